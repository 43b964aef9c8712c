//! The two stores that implement the storage traits, the documents both keep, and the view that queries read. Only this crate
//! knows `bson`, `mongodb` and `redb`.

pub mod document;
pub mod embedded;
pub mod figures;
pub mod merged;
pub mod mongo;
pub mod months;
pub mod names;
pub mod rest;
pub mod sealed;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use embedded::EmbeddedStore;
pub use merged::MergedView;
pub use mongo::{MongoOptions, MongoStore};

use hourglass_base::{clock, faults};
use hourglass_model::reading;

/// Buckets, and the traits of the stores that hold them.
mod bucket {
    pub use hourglass_model::bucket::*;
    pub use hourglass_store_api as store;
    pub use hourglass_store_api::walks as raw;
    pub use hourglass_store_api::{Result, StorageError, Store, StoreSpace, Unusable};
}

/// Bytes that this process may still write on the disk of a file or folder. May block.
///
/// # Errors
/// If it is not there, or cannot be looked at.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes that a scan may still read, shared by all its threads and commands.
#[derive(Debug, Clone)]
pub(crate) struct ScanBudget(Arc<AtomicUsize>);

impl ScanBudget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes this many bytes; false, and nothing taken, if fewer are left.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}
