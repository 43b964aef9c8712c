//! Parsers of the protobuf bodies that monitoring systems push: Prometheus remote write and OTLP metrics. Both walk the
//! body message by message, so their memory does not depend on its size, and no message can nest deeper than they look.

pub mod otlp;
pub mod remote_write;

mod protobuf;
mod series;

#[cfg(test)]
mod tests;
