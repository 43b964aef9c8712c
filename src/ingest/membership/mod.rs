//! This process's view of the registry that all instances on one store share, what it tells of the time, and the mark in the
//! WAL's folder that says that the registry has it.

pub mod folder_mark;
pub mod passed;
pub mod registry_view;
