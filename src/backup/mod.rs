//! Backup of a whole store: its digest, the format of backups, and filling another store.
//!
//! It reads through `store::MergedView`, so that a backup has the same readings as a query. It opens no store and does
//! not use HTTP.

pub mod archive;
pub mod digest;
pub mod expired;
pub mod fill;
pub mod folder;
pub mod form;
pub mod manifest;
pub mod read;
pub mod sensors;
pub mod times;
pub mod unfinished;

pub use archive::BackupWriter;
pub use digest::{DatabaseDigest, SetDigest, StoreDigest};
pub use fill::{Fill, FillOptions};
pub use folder::Folder;
pub use manifest::Manifest;
pub use read::{Part, Parts, Piece, ReadBounds};
pub use sensors::Sensors;
pub use times::BackupTimes;
pub use unfinished::{Operation, UnfinishedMark};
