//! The two stores of hourglass, their common document formats, and the view that queries read. No other crate depends on
//! `bson`, `mongodb` or `redb`.
//!
//! Start with [`EmbeddedStore`], which keeps everything in one redb file, and [`MongoStore`]. Both implement the traits of
//! `hourglass_store_api`. [`MergedView`] applies pending deletions to the reads of a store.
//!
//! ```
//! use hourglass_store::EmbeddedStore;
//! use hourglass_store_api::DatabaseStore;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let store = EmbeddedStore::open(folder.path(), 1 << 20)?;
//! tokio::runtime::Runtime::new()?.block_on(async {
//!     store.create_database("plant").await?;
//!     assert_eq!(store.databases().await?, ["plant"]);
//!     Ok(())
//! })
//! # }
//! ```

mod distributions;
pub mod document;
pub mod embedded;
pub mod figures;
pub mod foreign;
pub mod merged;
pub mod mongo;
pub mod months;
pub mod names;
pub mod rest;
pub mod sealed;
mod shown;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use embedded::EmbeddedStore;
pub use merged::MergedView;
pub use mongo::{CollectionSpace, MongoOptions, MongoStore};

use hourglass_base::{clock, faults};
use hourglass_model::reading;

/// The bucket types of the model and the storage traits, under one path.
mod bucket {
    pub use hourglass_model::bucket::*;
    pub use hourglass_store_api as store;
    pub use hourglass_store_api::walks as raw;
    pub use hourglass_store_api::{Result, StorageError, Store, StoreSpace, Unusable};
}

/// Returns the bytes that this process can still write to the disk of a file or folder. Can block.
///
/// # Errors
/// If the path does not exist or cannot be examined.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let disk = rustix::fs::statvfs(path)?;
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// The bytes that a scan can still read, shared by its threads and commands.
#[derive(Debug, Clone)]
pub(crate) struct ScanBudget(Arc<AtomicUsize>);

impl ScanBudget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Returns the bytes that remain.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes bytes from the budget. Returns false, and takes nothing, if too few remain.
    pub fn take(&self, bytes: usize) -> bool {
        let subtract = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract).is_ok()
    }
}
