//! The file system operations of the WAL, as traits, so that tests can make each of them fail.

use std::io;

/// The folder of one WAL. A name is a file name, or `quarantine/` and a file name.
pub trait Disk: Send + Sync + 'static {
    /// The names of all files directly in the folder, in any order.
    ///
    /// # Errors
    /// If the folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file and opens it. Its name survives a power cut only after [`Disk::sync_dir`]. A missing
    /// folder in the name is created.
    ///
    /// # Errors
    /// `AlreadyExists` if the file exists; any other I/O error.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing, independently of other openings.
    ///
    /// # Errors
    /// `NotFound` if the file does not exist; any other I/O error.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file. The new name is visible immediately, and survives a power cut only after [`Disk::sync_dir`].
    /// After a power cut the file has one of the two names.
    ///
    /// # Errors
    /// Any I/O error. The file may have been renamed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Its open handles stay readable.
    ///
    /// # Errors
    /// Any I/O error. The file may have been removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the folder: all creations, renames and removals before the call survive a power cut.
    ///
    /// # Errors
    /// Any I/O error. Any of these operations may be lost in a power cut.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks the file for this process until the value is dropped. A missing file is created.
    ///
    /// # Errors
    /// `WouldBlock` if the lock is held already; any other I/O error.
    fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// The file's length in bytes.
    ///
    /// # Errors
    /// Any I/O error.
    fn size(&self) -> io::Result<u64>;

    /// Reads into the front of the buffer. Returns the number of bytes, 0 only at the end of the file.
    ///
    /// # Errors
    /// Any I/O error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes. The file grows if necessary. The bytes survive a power cut only after [`DiskFile::sync`].
    ///
    /// # Errors
    /// Any I/O error. Any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Syncs the file (fdatasync): all bytes written before the call, and the length, survive a power cut.
    ///
    /// # Errors
    /// Any I/O error. Bytes written since the last sync may then be lost for good: a second sync of the same file may
    /// succeed without writing anything.
    fn sync(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// Any I/O error.
    fn set_len(&self, length: u64) -> io::Result<()>;
}

/// Fills the buffer from the file. Bytes after the end of the file are zeros.
pub(super) fn read_padded(file: &dyn DiskFile, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.read_at(buffer, offset) {
            Ok(0) => {
                buffer.fill(0);
                return Ok(());
            }
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
