//! Parses request bodies: line protocol and JSON in, points and rejections out. Knows the formats and their limits;
//! knows no database, no store and no HTTP.

#![warn(missing_docs)]

pub mod json;
pub mod line_protocol;

mod fields;
mod names;
mod point;

pub use point::{Point, PointSeries, Points};
