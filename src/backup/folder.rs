//! The folder of a backup. Files are written under a temporary name, synced, renamed and never changed. Files that the
//! manifest does not name are removed at the end.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::form::FrameReader;
use super::manifest::{FileRef, Manifest};
use crate::access::hex;

/// Name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// Suffix of the name of a file while it is written.
const UNFINISHED: &str = ".unfinished";
const LOCK: &str = "hourglass-backup.lock";

/// The folder of a backup.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held while a backup is written.
    _lock: Option<File>,
}

/// A file that is being written.
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

/// An error of the folder of a backup.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: {what}", path.display())]
    Wrong { path: PathBuf, what: String },
}

fn wrong(path: &Path, what: impl ToString) -> FolderError {
    FolderError::Wrong { path: path.to_owned(), what: what.to_string() }
}

/// Returns a function that adds the path to an I/O error.
fn with_path(path: &Path) -> impl FnOnce(io::Error) -> FolderError + '_ {
    |error| FolderError::Io { path: path.to_owned(), error }
}

impl Folder {
    /// Creates the folder if it is missing, accessible to its owner only, and locks it.
    ///
    /// # Errors
    /// If it has files but is no backup of hourglass, or another process is writing a backup there.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(with_path(path))?;
        let mut entries = fs::read_dir(path).map_err(with_path(path))?;
        let lock = path.join(LOCK);
        if !lock.exists() && entries.next().is_some() {
            return Err(wrong(path, "the folder is neither empty nor a backup of hourglass: choose another one"));
        }
        let mut options = OpenOptions::new();
        let file =
            options.write(true).create(true).truncate(false).mode(0o600).open(&lock).map_err(with_path(&lock))?;
        if file.try_lock().is_err() {
            return Err(wrong(path, "another process is writing a backup into this folder"));
        }
        Ok(Self { path: path.to_owned(), _lock: Some(file) })
    }

    /// Opens a folder for reading, without a lock.
    #[must_use]
    pub fn existing(path: &Path) -> Self {
        Self { path: path.to_owned(), _lock: None }
    }

    /// Returns the path of a file in the folder.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Reads the manifest of the last finished backup. Returns `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn manifest(&self) -> Result<Option<Manifest>, FolderError> {
        let path = self.file(MANIFEST);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(with_path(&path)(error)),
        };
        Manifest::parse(&text).map(Some).map_err(|error| wrong(&path, error))
    }

    /// Begins to write a file, and creates its subfolder.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, name: &str) -> Result<FileWriter, FolderError> {
        let path = self.path.join(format!("{name}{UNFINISHED}"));
        let parent = path.parent().unwrap_or(&self.path);
        if !parent.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(with_path(parent))?;
            sync_folder(parent.parent().unwrap_or(&self.path))?;
        }
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(with_path(&path))?;
        Ok(FileWriter { path, file: BufWriter::new(file), hash: Sha256::new(), bytes: 0 })
    }

    /// Syncs a file and renames it to its final name.
    ///
    /// # Errors
    /// If it cannot be synced or renamed.
    pub fn finish(&self, writing: FileWriter, name: &str) -> Result<FileRef, FolderError> {
        let FileWriter { path, file, hash, bytes } = writing;
        let file = file.into_inner().map_err(|error| with_path(&path)(error.into_error()))?;
        file.sync_all().map_err(with_path(&path))?;
        let target = self.path.join(name);
        fs::rename(&path, &target).map_err(with_path(&target))?;
        sync_folder(target.parent().unwrap_or(&self.path))?;
        Ok(FileRef { path: name.to_owned(), bytes, sha256: hex(&hash.finalize()) })
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<FileRef, FolderError> {
        let mut writing = self.begin(name)?;
        writing.put(content)?;
        self.finish(writing, name)
    }

    /// Removes all files that the manifest does not name. Call it after the manifest is written.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub fn remove_others(&self, manifest: &Manifest) -> Result<usize, FolderError> {
        let mut kept: HashSet<PathBuf> = manifest.files().map(|file| self.path.join(&file.path)).collect();
        kept.extend([self.path.join(MANIFEST), self.path.join(LOCK)]);
        remove_files_except(&self.path, &kept)
    }

    /// Opens a file of the manifest.
    ///
    /// # Errors
    /// If it is missing, or its length differs from that in the manifest.
    pub fn open(&self, file: &FileRef) -> Result<File, FolderError> {
        let path = self.path.join(&file.path);
        let opened = File::open(&path).map_err(with_path(&path))?;
        let bytes = opened.metadata().map_err(with_path(&path))?.len();
        if bytes != file.bytes {
            let what = format!("it is damaged: it has {bytes} bytes, and the manifest says {}", file.bytes);
            return Err(wrong(&path, what));
        }
        Ok(opened)
    }

    /// Reads a small file of the manifest.
    ///
    /// # Errors
    /// If it cannot be read, or its hash differs from that in the manifest.
    pub fn read(&self, file: &FileRef) -> Result<Vec<u8>, FolderError> {
        let path = self.path.join(&file.path);
        let mut content = Vec::new();
        self.open(file)?.read_to_end(&mut content).map_err(with_path(&path))?;
        if hex(&Sha256::digest(&content)) != file.sha256 {
            return Err(wrong(&path, "it is damaged: its SHA-256 differs from that in the manifest"));
        }
        Ok(content)
    }

    /// Opens a file of frames for reading.
    ///
    /// # Errors
    /// If it is missing, or its head is damaged.
    pub fn frames(&self, file: &FileRef) -> Result<FrameReader<HashingReader<BufReader<File>>>, FolderError> {
        let reader = HashingReader { reader: BufReader::new(self.open(file)?), hash: Sha256::new() };
        FrameReader::new(reader).map_err(|error| self.damaged_error(file, &error))
    }

    /// Returns an error about a damaged file of the backup.
    #[must_use]
    pub fn damaged_error(&self, file: &FileRef, error: &dyn std::fmt::Display) -> FolderError {
        wrong(&self.path.join(&file.path), error)
    }
}

impl FileWriter {
    /// Appends bytes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), FolderError> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(with_path(&self.path))
    }

    /// Removes the unfinished file.
    pub fn discard(self) {
        // If this fails, the next backup removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

/// A reader that hashes everything read through it.
#[derive(Debug)]
pub struct HashingReader<R> {
    reader: R,
    hash: Sha256,
}

impl<R> HashingReader<R> {
    /// Returns the SHA-256 of the bytes read so far, in hexadecimal digits.
    #[must_use]
    pub fn hex(self) -> String {
        hex(&self.hash.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(out)?;
        self.hash.update(&out[..read]);
        Ok(read)
    }
}

fn remove_files_except(folder: &Path, kept: &HashSet<PathBuf>) -> Result<usize, FolderError> {
    let mut removed = 0;
    for entry in fs::read_dir(folder).map_err(with_path(folder))? {
        let entry = entry.map_err(with_path(folder))?;
        let path = entry.path();
        if entry.file_type().map_err(with_path(&path))?.is_dir() {
            removed += remove_files_except(&path, kept)?;
            // A folder that still has files remains.
            let _ = fs::remove_dir(&path);
        } else if !kept.contains(&path) {
            fs::remove_file(&path).map_err(with_path(&path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn sync_folder(folder: &Path) -> Result<(), FolderError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(with_path(folder))
}
