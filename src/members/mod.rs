//! What this instance knows of its own WAL and of the other instances on one store: the positions that are stored, the
//! registry's view of deletions and time, the folder's mark, and the settings of databases.

pub mod folder_mark;
pub(crate) mod marks;
pub(crate) mod member;
pub mod passed;
pub(crate) mod positions;
pub mod registry_view;
pub(crate) mod retention;

pub use member::MemberError;
