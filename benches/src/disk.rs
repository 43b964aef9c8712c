//! A disk in memory for the WAL, so that benchmarks measure only the work of the WAL, and a sync takes no time.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hourglass::wal::{Disk, DiskFile};

/// A folder in memory. Clones share its files.
#[derive(Debug, Default, Clone)]
pub struct MemoryDisk {
    files: Arc<Mutex<BTreeMap<String, MemoryFile>>>,
}

/// A file. Clones share its content.
#[derive(Debug, Default, Clone)]
struct MemoryFile(Arc<Mutex<Vec<u8>>>);

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Disk for MemoryDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock_mutex(&self.files).keys().filter(|name| !name.contains('/')).cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = MemoryFile::default();
        lock_mutex(&self.files).insert(name.to_owned(), file.clone());
        Ok(Box::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(lock_mutex(&self.files).get(name).cloned().ok_or_else(not_found)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock_mutex(&self.files);
        let file = files.remove(from).ok_or_else(not_found)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock_mutex(&self.files).remove(name).map(drop).ok_or_else(not_found)
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, _name: &str) -> io::Result<Box<dyn Send + Sync>> {
        // No other process can use this folder.
        Ok(Box::new(()))
    }
}

impl DiskFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(lock_mutex(&self.0).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let content = lock_mutex(&self.0);
        let rest = content.get(to_index(offset)?..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut content = lock_mutex(&self.0);
        let start = to_index(offset)?;
        let end = start + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        lock_mutex(&self.0).resize(to_index(length)?, 0);
        Ok(())
    }
}

fn to_index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}
