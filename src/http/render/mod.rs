//! Writes answers as JSON, CSV, NDJSON and text.

pub(crate) mod answer;
pub(crate) mod csv;
pub(crate) mod format;
pub(crate) mod guard;
pub(crate) mod json;
pub(crate) mod series;
pub(crate) mod text;
