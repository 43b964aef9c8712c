//! The query endpoint of InfluxDB 1.x, with its parameters and answers in JSON and CSV, and endpoints of 2.x.

pub(crate) mod query;
pub(crate) mod render;
mod statements;
pub(crate) mod v2;
