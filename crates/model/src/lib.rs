//! The data model of hourglass: readings as they arrive, and buckets, which hold the readings of one sensor in one
//! hour. All of it is pure code, without clock, disk or network.
//!
//! Start with [`Sensor`](reading::Sensor) and [`Value`](reading::Value), then [`Bucket`](bucket::Bucket) with
//! [`Bucket::apply`](bucket::Bucket::apply), which implements the merge rule, and [`Readings`](bucket::Readings), the
//! columns of one page.
//!
//! ```
//! use std::sync::Arc;
//!
//! use hourglass_model::bucket::{Bucket, Caps, MergeOptions, Row};
//! use hourglass_model::reading::Value;
//!
//! let caps = Caps { max_readings: 1000, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
//! let options = MergeOptions { caps: &caps, floor: 0, restamps: false };
//! let names: [Arc<str>; 1] = ["temperature".into()];
//! let cells = [(0, Value::Float(21.5))];
//! let row = Row { time: 0, stamp: 1, names: &names, cells: &cells };
//!
//! let mut bucket = Bucket::default();
//! assert_eq!(bucket.apply([row].into_iter(), &options).new, 1);
//! // A retry changes nothing.
//! let retry = Row { stamp: 2, ..row };
//! assert_eq!(bucket.apply([retry].into_iter(), &options).duplicate, 1);
//! ```

#![warn(missing_docs)]

#[macro_use]
mod named;

pub mod bucket;
pub mod reading;
