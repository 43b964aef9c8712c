//! The state that instances share through the store, and this instance's part of it: WAL positions, the registry, the
//! mark of the data folder, and the settings of databases.

pub(crate) mod cluster_registry;
pub mod folder_mark;
pub(crate) mod marks;
pub(crate) mod member;
pub(crate) mod positions;
pub mod registry_view;
pub(crate) mod retention;
pub mod store_time;

pub use member::MemberError;
