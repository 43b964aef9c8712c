//! The folder of a backup. Files are written under a temporary name, synced, renamed and never changed. Files that the
//! manifest does not name are removed at the end.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use zstd::stream::read::Decoder;

use super::form::FrameReader;
use super::manifest::{FileRef, Manifest};
use crate::access::hex;

/// Name of the manifest.
pub const MANIFEST: &str = "manifest.json";
/// The first bytes of a compressed file.
const ZSTD_MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Suffix of the name of a file while it is written.
const UNFINISHED: &str = ".unfinished";
/// Name of the file that marks a folder as a backup.
pub const LOCK: &str = "hourglass-backup.lock";

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

/// Returns an error about the content of a file.
pub(super) fn wrong(path: &Path, what: impl ToString) -> FolderError {
    FolderError::Wrong { path: path.to_owned(), what: what.to_string() }
}

/// Returns a function that adds the path to an I/O error.
pub(super) fn with_path(path: &Path) -> impl FnOnce(io::Error) -> FolderError + '_ {
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
        Ok(FileWriter::new(path, file))
    }

    /// Syncs a file and renames it to its final name.
    ///
    /// # Errors
    /// If it cannot be synced or renamed.
    pub fn finish(&self, writing: FileWriter, name: &str) -> Result<FileRef, FolderError> {
        let path = writing.path.clone();
        let (file, written) = writing.into_file(name)?;
        file.sync_all().map_err(with_path(&path))?;
        let target = self.path.join(name);
        fs::rename(&path, &target).map_err(with_path(&target))?;
        sync_folder(target.parent().unwrap_or(&self.path))?;
        Ok(written)
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
        let mut content = Vec::new();
        self.copy(file, &mut content)?;
        Ok(content)
    }

    /// Checks a file against the manifest.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn check(&self, file: &FileRef) -> Result<(), FolderError> {
        self.copy(file, &mut io::sink())
    }

    fn copy(&self, file: &FileRef, out: &mut impl Write) -> Result<(), FolderError> {
        let path = self.path.join(&file.path);
        let copied = FileRef::copy(&file.path, &mut self.open(file)?, out).map_err(with_path(&path))?;
        if copied != *file {
            return Err(wrong(&path, "it is damaged: its SHA-256 differs from that in the manifest"));
        }
        Ok(())
    }

    /// Checks a file of frames against the manifest, and opens it for reading.
    ///
    /// # Errors
    /// As [`Self::read`], or if its head is damaged.
    pub fn frames(&self, file: &FileRef) -> Result<FrameReader<Box<dyn Read>>, FolderError> {
        self.check(file)?;
        let damaged = |error: &dyn std::fmt::Display| self.damaged_error(file, error);
        let mut opened = BufReader::new(self.open(file)?);
        // Form 1 is not compressed.
        let is_packed = opened.fill_buf().map_err(|error| damaged(&error))?.starts_with(ZSTD_MAGIC);
        let reader: Box<dyn Read> = if is_packed {
            Box::new(Decoder::with_buffer(opened).map_err(|error| damaged(&error))?)
        } else {
            Box::new(opened)
        };
        FrameReader::new(reader).map_err(|error| damaged(&error))
    }

    /// Returns an error about a damaged file of the backup.
    #[must_use]
    pub fn damaged_error(&self, file: &FileRef, error: &dyn std::fmt::Display) -> FolderError {
        wrong(&self.path.join(&file.path), error)
    }
}

impl FileWriter {
    pub(super) fn new(path: PathBuf, file: File) -> Self {
        Self { path, file: BufWriter::new(file), hash: Sha256::new(), bytes: 0 }
    }

    /// Returns the written file, and its entry in the manifest.
    pub(super) fn into_file(self, name: &str) -> Result<(File, FileRef), FolderError> {
        let Self { path, file, hash, bytes } = self;
        let file = file.into_inner().map_err(|error| with_path(&path)(error.into_error()))?;
        Ok((file, FileRef { path: name.to_owned(), bytes, sha256: hex(&hash.finalize()) }))
    }

    /// Removes the unfinished file.
    pub fn discard(&self) {
        // If this fails, the next backup removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes).map_err(with_path(&self.path)).map_err(io::Error::other)?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A reader that hashes everything read through it.
struct HashingReader<R> {
    reader: R,
    hash: Sha256,
}

impl FileRef {
    /// Copies a file from a reader to a writer. Returns its entry in the manifest.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn copy(name: &str, reader: &mut impl Read, out: &mut impl Write) -> io::Result<Self> {
        let mut reader = HashingReader { reader, hash: Sha256::new() };
        let bytes = io::copy(&mut reader, out)?;
        Ok(Self { path: name.to_owned(), bytes, sha256: hex(&reader.hash.finalize()) })
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
