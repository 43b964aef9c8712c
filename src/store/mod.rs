//! The two stores behind the trait that `bucket` declares, and the documents that both keep.
//! Only this room knows `bson`, `mongodb` and `redb`.

pub mod document;
pub mod embedded;
pub mod masked;
pub mod mongo;
pub mod names;

pub use embedded::EmbeddedStore;
pub use masked::Masked;
pub use mongo::{MongoOptions, MongoStore};
