//! Everything that is stored, as a whole: its digest, its backup, and writing it into another store. Works on the trait
//! `Store`, through `store::MergedView`, so that a backup has what queries see; opens no store and speaks no HTTP.

pub mod digest;
pub mod expired;
pub mod fill;
pub mod folder;
pub mod form;
pub mod manifest;
pub mod proved;
pub mod read;
pub mod sensors;
pub mod unfinished;

pub use digest::{DatabaseDigest, SetDigest, StoreDigest};
pub use fill::{Fill, FillOptions};
pub use folder::Folder;
pub use manifest::Manifest;
pub use read::{Part, Parts, Piece, ReadBounds};
pub use sensors::Sensors;
pub use unfinished::{Doing, Unfinished};
