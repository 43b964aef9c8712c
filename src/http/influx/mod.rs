//! The query endpoint of InfluxDB 1.x: its parameters, and its JSON and CSV.

pub(crate) mod query;
pub(crate) mod render;
