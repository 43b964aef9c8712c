//! Administration endpoints: databases, tokens, mappings, jobs, instances, renames, rejections, dead letters and backups.

pub(crate) mod backup;
pub(crate) mod databases;
pub(crate) mod dead_letters;
pub(crate) mod instances;
pub(crate) mod jobs;
pub(crate) mod mappings;
pub(crate) mod preview;
pub(crate) mod rejections;
pub(crate) mod renames;
pub(crate) mod tokens;
