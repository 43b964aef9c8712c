//! Parsers of request bodies: line protocol, JSON, CSV, Prometheus remote write and OTLP. They return points and rejections, and do not depend on
//! databases, stores or HTTP.
//!
//! Start with [`line_protocol::Lines`] and [`json::Items`], which implement [`Points`].
//!
//! ```
//! use hourglass_model::reading::{Limits, Precision};
//! use hourglass_wire::Points;
//! use hourglass_wire::line_protocol::Lines;
//!
//! let body = b"climate,sensor=s1 temp=22.1 1768485600\nclimate,sensor=s1 temp=\n";
//! let mut lines = Lines::new(body, Precision::Seconds, Limits::default());
//!
//! let point = lines.next().unwrap().unwrap();
//! assert_eq!(point.spelling(), "climate,sensor=s1");
//! assert_eq!(point.timestamp, Some(1_768_485_600_000_000_000));
//!
//! let rejection = lines.next().unwrap().unwrap_err();
//! assert_eq!((rejection.line, rejection.column), (2, 24));
//! assert!(lines.next().is_none());
//! ```

#![warn(missing_docs)]

pub mod csv;
pub mod json;
pub mod line_protocol;
pub mod names;
pub mod push;

mod fields;
mod point;

pub use fields::keep_last_of_equal_keys;
pub use point::{Point, PointSeries, Points, Skipped};
