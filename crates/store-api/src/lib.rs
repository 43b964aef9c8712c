//! The storage traits that ingest and queries use. Two stores, MongoDB and embedded, implement them and pass one contract
//! suite (`tests/it/store_contract.rs`).
//!
//! Start with [`Store`], the union of the traits: [`PageStore`] for the readings of recent hours, [`DayStore`] for sealed
//! days, [`SensorStore`] and [`DatabaseStore`]. Most writes are a compare-and-set on a document's rev and return
//! [`WriteOutcome`].
//!
//! ```
//! use hourglass_store_api::{StorageError, WriteOutcome};
//!
//! // After a conflict, the caller reads the document, merges and writes again.
//! assert_eq!(WriteOutcome::Conflict.applied(), Ok(false));
//!
//! let failed = WriteOutcome::Failed(StorageError::Unavailable("no primary".to_owned()));
//! let error = failed.applied().unwrap_err();
//! assert!(error.is_away());
//! assert_eq!(error.class(), "unavailable");
//! ```

use std::sync::Arc;

mod coordination;
mod databases;
mod days;
mod error;
mod extras;
mod pages;
mod sensors;
mod shown;
pub mod walks;

pub use coordination::{Coordination, StoreSpace};
pub use databases::DatabaseStore;
pub use days::DayStore;
pub use error::{Result, StorageError, Unusable};
pub use extras::{GroupUpdateStep, MongoExtras, SettledIndexes, StaleCopyStep, UniqueClaim, UniqueOwner};
pub use pages::{Extent, Order, PageStore, PageWrite, ScanResult, WriteOutcome};
pub use sensors::{SensorFilter, SensorStore};
pub use shown::{PackedReadings, ShowStore, ShownDocument};
pub use walks::WalkStore;

pub use hourglass_model::bucket::stored::*;

/// The operations that both stores support. Reads return the stored documents; queries use the merged view instead, which
/// applies pending deletions.
pub trait Store:
    PageStore + DayStore + SensorStore + DatabaseStore + Coordination + WalkStore + ShowStore + std::fmt::Debug
{
    /// Returns the features of the MongoDB store, or `None` for another store.
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>>;
}
