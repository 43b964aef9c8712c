//! The storage traits that ingest and queries use, small ones by purpose. Two stores (MongoDB and embedded) implement them and
//! pass one contract suite (`tests/it/store_contract.rs`).

use std::sync::Arc;

mod coordination;
mod databases;
mod days;
mod error;
mod extras;
mod pages;
mod sensors;
pub mod walks;

pub use coordination::{Coordination, StoreSpace};
pub use databases::DatabaseStore;
pub use days::DayStore;
pub use error::{Result, StorageError, Unusable};
pub use extras::MongoExtras;
pub use pages::{Extent, Order, PageStore, PageWrite, Scanned, Written};
pub use sensors::{SensorFilter, SensorStore};
pub use walks::WalkStore;

pub use hourglass_model::bucket::stored::*;

/// A store: all that both stores have. Reads through it see what is stored; queries see it through the merged view.
pub trait Store:
    PageStore + DayStore + SensorStore + DatabaseStore + Coordination + WalkStore + std::fmt::Debug
{
    /// What only MongoDB has; `None` for another store.
    fn mongo_extras(self: Arc<Self>) -> Option<Arc<dyn MongoExtras>>;
}
