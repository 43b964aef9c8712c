//! A backup as one archive: a tar of the files of its folder, with the manifest last. Equal days have equal bytes in every
//! archive, so that tools that deduplicate find them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::path::{Component, Path};

use tar::{Archive, Builder, Entry, Header};

use super::folder::{FileWriter, Folder, FolderError, LOCK, MANIFEST, with_path, wrong};
use super::manifest::{FileRef, Manifest};

/// The name of an archive in messages.
const STREAM: &str = "the archive";
/// Length of a block of an archive.
const BLOCK: u64 = 512;
/// The time of all files of an archive, in seconds since the epoch.
const FILE_TIME: u64 = 1_000_000_000;

/// Writes the files of a backup into its folder, or one after the other into an archive.
pub enum BackupWriter {
    Folder(Folder),
    /// Never dropped, because that would write the end of an archive that is incomplete.
    Archive(ManuallyDrop<Builder<Box<dyn Write>>>),
}

impl BackupWriter {
    /// Begins an archive.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn archive(out: impl Write + 'static) -> Result<Self, FolderError> {
        let mut writer = Self::Archive(ManuallyDrop::new(Builder::new(Box::new(out))));
        writer.write(LOCK, b"")?;
        Ok(writer)
    }

    /// Returns the folder, or `None` for an archive.
    #[must_use]
    pub fn folder(&self) -> Option<&Folder> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Archive(_) => None,
        }
    }

    /// Begins to write a file. A file of an archive is collected in an unnamed temporary file, because its length
    /// precedes it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&self, name: &str) -> Result<FileWriter, FolderError> {
        match self {
            Self::Folder(folder) => folder.begin(name),
            Self::Archive(_) => {
                let folder = std::env::temp_dir();
                let file = tempfile::tempfile_in(&folder).map_err(with_path(&folder))?;
                Ok(FileWriter::new(folder, file))
            }
        }
    }

    /// Ends a file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&mut self, writing: FileWriter, name: &str) -> Result<FileRef, FolderError> {
        match self {
            Self::Folder(folder) => folder.finish(writing, name),
            Self::Archive(tar) => {
                let (mut file, written) = writing.into_file(name)?;
                append(tar, &written, &mut file).map_err(with_path(Path::new(STREAM)))?;
                Ok(written)
            }
        }
    }

    /// Writes a whole file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, name: &str, content: &[u8]) -> Result<FileRef, FolderError> {
        let mut writing = self.begin(name)?;
        writing.write_all(content).map_err(with_path(Path::new(name)))?;
        self.finish(writing, name)
    }

    /// Removes a file that was begun.
    pub fn discard(&self, writing: &FileWriter) {
        if self.folder().is_some() {
            writing.discard();
        }
    }

    /// Writes the manifest, and the end of an archive. In a folder, removes the files of earlier backups.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn complete(&mut self, manifest: &Manifest) -> Result<(), FolderError> {
        self.write(MANIFEST, &manifest.to_json())?;
        // The manifest is in place, so a restore uses the new backup from here on.
        crate::faults::point("manifest_kept");
        match self {
            Self::Folder(folder) => folder.remove_others(manifest).map(drop),
            Self::Archive(tar) => tar.finish().map_err(with_path(Path::new(STREAM))),
        }
    }
}

fn append(tar: &mut Builder<Box<dyn Write>>, written: &FileRef, file: &mut File) -> io::Result<()> {
    io::Seek::rewind(file)?;
    let mut header = Header::new_gnu();
    header.set_size(written.bytes);
    header.set_mode(0o600);
    header.set_mtime(FILE_TIME);
    tar.append_data(&mut header, &written.path, file)
}

/// Reads an archive to its end, and checks that it has all files of its manifest. Writes them into the folder if one is
/// given. Files that the folder had before are not used.
///
/// # Errors
/// If the archive cannot be read, is incomplete or damaged, or the folder cannot be written.
pub fn read(source: impl Read, folder: Option<&Folder>) -> Result<Manifest, FolderError> {
    let damaged = |error: io::Error| wrong(Path::new(STREAM), format!("it is cut off or damaged: {error}"));
    let mut archive = Archive::new(source);
    let mut found = HashSet::new();
    let mut manifest = None;
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let bytes = entry.size();
        let Some(name) = file_name(&entry)? else { continue };
        let file = match folder {
            _ if name == MANIFEST => {
                let mut text = Vec::new();
                let file = FileRef::copy(&name, &mut entry, &mut text).map_err(damaged)?;
                manifest = Some(text);
                file
            }
            Some(folder) => {
                let mut writing = folder.begin(&name)?;
                io::copy(&mut entry, &mut writing).map_err(with_path(&folder.file(&name)))?;
                folder.finish(writing, &name)?
            }
            None => FileRef::copy(&name, &mut entry, &mut io::sink()).map_err(damaged)?,
        };
        if file.bytes != bytes {
            return Err(wrong(Path::new(STREAM), format!("it is cut off within {name:?}")));
        }
        if found.iter().any(|other: &FileRef| other.path == file.path) {
            return Err(wrong(Path::new(STREAM), format!("it has {name:?} twice")));
        }
        found.insert(file);
    }
    // The end is two blocks, of which the iterator has read one.
    let rest = io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    let cut = || wrong(Path::new(STREAM), "it is cut off: its end, or its manifest.json, is missing");
    let manifest = manifest.filter(|_| rest >= BLOCK).ok_or_else(cut)?;
    let manifest = Manifest::parse(&manifest).map_err(|error| wrong(Path::new(MANIFEST), error))?;
    if let Some(file) = manifest.files().find(|file| !found.contains(file)) {
        let what = "it is missing or damaged: its length or SHA-256 differs from that in the manifest";
        return Err(wrong(Path::new(&file.path), what));
    }
    Ok(manifest)
}

/// Returns the name of a file of an archive, or `None` for a folder and the lock.
fn file_name(entry: &Entry<'_, impl Read>) -> Result<Option<String>, FolderError> {
    let strange = |path: &Path| wrong(Path::new(STREAM), format!("it is no backup of hourglass: it has {path:?}"));
    let path = entry.path().map_err(|_| strange(Path::new("a strange name")))?;
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part.to_str().ok_or_else(|| strange(&path))?),
            _ => return Err(strange(&path)),
        }
    }
    match entry.header().entry_type() {
        kind if kind.is_dir() => Ok(None),
        kind if kind.is_file() && !parts.is_empty() => Ok(Some(parts.join("/")).filter(|name| name != LOCK)),
        _ => Err(strange(&path)),
    }
}
