//! The two stores behind the trait that `bucket` declares, and the documents that both keep.
//! Only this room knows `bson`, `mongodb` and `redb`.

pub mod document;
pub mod embedded;
pub mod masked;
pub mod mongo;
pub mod names;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use embedded::EmbeddedStore;
pub use masked::Masked;
pub use mongo::{MongoOptions, MongoStore};

/// How many bytes a scan may still read, by all the threads and commands that it is made of.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<AtomicUsize>);

impl Room {
    /// For so many.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes so many, if these are left.
    pub fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}
