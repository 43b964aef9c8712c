//! Documents as they are stored, for people.

use std::ops::Range;

use async_trait::async_trait;
use hourglass_model::bucket::Reading;
use hourglass_model::reading::{Hour, Sensor};

use crate::Result;

/// A stored document of a sensor.
#[derive(Debug)]
pub struct ShownDocument {
    /// The collection, without the name of the database.
    pub collection: &'static str,
    /// The document as relaxed extended JSON.
    pub json: String,
    /// The first readings, if the document has them in binary form.
    pub packed: Option<PackedReadings>,
}

/// The readings of a binary form.
#[derive(Debug)]
pub struct PackedReadings {
    /// At most [`PackedReadings::MAX`].
    pub first: Vec<Reading>,
    /// The number of all readings.
    pub count: usize,
}

impl PackedReadings {
    /// The number of readings that are shown.
    pub const MAX: usize = 100;
}

/// Reads documents for people.
#[async_trait]
pub trait ShowStore: Send + Sync {
    /// Returns the document of a sensor, its pages and its days that begin in these hours: at most `max` per collection,
    /// in order of time. The embedded store returns what MongoDB would have.
    async fn show(&self, database: &str, sensor: &Sensor, hours: Range<Hour>, max: usize)
    -> Result<Vec<ShownDocument>>;
}
