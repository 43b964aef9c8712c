//! The data that hourglass is about: a reading as it arrives, and the bucket, an hour of one sensor's readings, with the
//! law by which buckets merge. Pure: no clock, no disk, no network.

#![warn(missing_docs)]

#[macro_use]
mod named;

pub mod bucket;
pub mod reading;
