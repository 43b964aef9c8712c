//! The query endpoint of InfluxDB 1.x, with its parameters and answers in JSON and CSV.

pub(crate) mod query;
pub(crate) mod render;
