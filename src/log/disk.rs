//! The seam to the file system: the few operations the log needs, so that a test can make each of
//! them fail. Knows nothing of segments.

use std::io;

/// The folder of one log. A name is a file name, or `quarantine/` and a file name.
pub trait Disk: Send + Sync + 'static {
    /// The names of all files directly in the folder, in any order.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// An open, empty, new file. Its name outlives a power cut only after [`Disk::sync_dir`]. The
    /// folder in the name is made when it is missing.
    ///
    /// # Errors
    /// `AlreadyExists` when there is a file of the name; others as the system has them.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// An open file that exists, to read and to write. Independent of other openings.
    ///
    /// # Errors
    /// `NotFound` when there is no file of the name; others as the system has them.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// The file goes by the new name at once, to outlive a power cut only after [`Disk::sync_dir`].
    /// After a power cut it has one of the two names.
    ///
    /// # Errors
    /// As the system has them; whether the file was renamed is then unknown.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// The name is gone; open files of it stay readable.
    ///
    /// # Errors
    /// As the system has them; whether the name is gone is then unknown.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// All creations, renames and removals before the call outlive a power cut.
    ///
    /// # Errors
    /// As the system has them; which of them survive is then unknown.
    fn sync_dir(&self) -> io::Result<()>;

    /// The file of the name is locked for this process until the value is dropped. It is made when
    /// missing.
    ///
    /// # Errors
    /// `WouldBlock` when somebody else holds the lock; others as the system has them.
    fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>>;
}

/// One open file.
pub trait DiskFile: Send + Sync {
    /// The file's length in bytes.
    ///
    /// # Errors
    /// As the system has them.
    fn size(&self) -> io::Result<u64>;

    /// How many bytes were read into the buffer's front; 0 only at the file's end.
    ///
    /// # Errors
    /// As the system has them.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// All bytes are in the file, which grows when needed; they outlive a power cut only after
    /// [`DiskFile::sync`].
    ///
    /// # Errors
    /// As the system has them; any part of the bytes may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// All bytes written before the call, and the length, outlive a power cut (fdatasync).
    ///
    /// # Errors
    /// As the system has them. What was written since the last sync is then in doubt for ever: a
    /// second sync of the same file may succeed without having written anything.
    fn sync(&self) -> io::Result<()>;

    /// The file is cut or, with zeros, extended to that length.
    ///
    /// # Errors
    /// As the system has them.
    fn set_len(&self, length: u64) -> io::Result<()>;
}

/// Fills the buffer from the file; zeros stand for what lies past the file's end.
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
