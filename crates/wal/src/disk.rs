//! The file system operations that the log needs, as traits, so that a test can make each of them fail. Knows nothing
//! of segments.

use std::io;

/// The folder of one log. A name is a file name, or `quarantine/` and a file name.
pub trait Disk: Send + Sync + 'static {
    /// The names of all files directly in the folder, in any order.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes an empty file and opens it. Its name outlives a power cut only after [`Disk::sync_dir`]. The folder in the
    /// name is made when it is missing.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a file of the name; any other I/O error.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens an existing file for reading and writing, independently of other openings.
    ///
    /// # Errors
    /// `NotFound` when there is no file of the name; any other I/O error.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file. The new name is visible at once and outlives a power cut only after [`Disk::sync_dir`]; after a
    /// power cut the file has one of the two names.
    ///
    /// # Errors
    /// Any I/O error; whether the file was renamed is then unknown.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; open handles of it stay readable.
    ///
    /// # Errors
    /// Any I/O error; whether the file was removed is then unknown.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the folder: all creations, renames and removals before the call outlive a power cut.
    ///
    /// # Errors
    /// Any I/O error; which of them survive is then unknown.
    fn sync_dir(&self) -> io::Result<()>;

    /// Locks the file for this process until the value is dropped. The file is made when missing.
    ///
    /// # Errors
    /// `WouldBlock` when the lock is held already; any other I/O error.
    fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// The file's length in bytes.
    ///
    /// # Errors
    /// Any I/O error.
    fn size(&self) -> io::Result<u64>;

    /// Reads into the front of the buffer and returns how many bytes; 0 only at the file's end.
    ///
    /// # Errors
    /// Any I/O error.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all bytes; the file grows when needed. They outlive a power cut only after [`DiskFile::sync`].
    ///
    /// # Errors
    /// Any I/O error; any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Syncs the file (fdatasync): all bytes written before the call, and the length, outlive a power cut.
    ///
    /// # Errors
    /// Any I/O error. Whatever was written since the last sync is then in doubt for ever: a second sync of the same
    /// file may succeed without having written anything.
    fn sync(&self) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    ///
    /// # Errors
    /// Any I/O error.
    fn set_len(&self, length: u64) -> io::Result<()>;
}

/// Fills the buffer from the file; bytes past the file's end are zeros.
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
