//! The common output of all formats: a sequence of points, each with its place in the body. A new format needs a type
//! that implements [`Points`] and an endpoint that uses it; validation and storage do not depend on the format.

use std::borrow::Cow;

use super::line_protocol::{SeriesError, parse_series};
use crate::reading::value::RawValue;
use crate::reading::{Limits, Reason, Rejection, Sensor};

/// One valid reading of a body; it borrows from the body.
#[derive(Debug)]
pub struct Point<'s, 'a> {
    /// The place in the body, from 1: the physical line where the reading starts, or the array element.
    pub number: usize,
    /// The text as sent, which a [`Rejection`] quotes.
    pub text: &'a [u8],
    /// The sensor.
    pub series: PointSeries<'s, 'a>,
    /// The fields in the order sent; at least one. Of two with the same key the last value wins, in the first's place.
    pub fields: &'s [(Cow<'a, str>, RawValue<'a>)],
    /// The timestamp in nanoseconds since the epoch, if the reading has one.
    pub timestamp: Option<i64>,
}

/// The sensor of a point, parsed or not, depending on the format.
#[derive(Debug, Clone, Copy)]
pub enum PointSeries<'s, 'a> {
    /// `measurement[,tag=value…]` in line protocol: valid UTF-8, otherwise unchecked. The caller usually knows the text
    /// already, so it is parsed only for new sensors.
    Text {
        /// Exactly as sent.
        text: &'a str,
        /// The byte column in the point's text where the series starts, from 1.
        column: usize,
    },
    /// A parsed sensor.
    Read(&'s Sensor),
}

/// Yields the points of a body.
pub trait Points<'a> {
    /// The next point, or why it was rejected; `None` at the end of the body. The point borrows the parser's buffers,
    /// so this cannot be an [`Iterator`].
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>>;
}

impl Point<'_, '_> {
    /// The sensor as spelled in the body. Equal spellings name the same sensor; one sensor may have several.
    #[must_use]
    pub fn spelling(&self) -> &str {
        match self.series {
            PointSeries::Text { text, .. } => text,
            PointSeries::Read(sensor) => &sensor.key,
        }
    }

    /// The parsed sensor.
    ///
    /// # Errors
    /// When the series is invalid or exceeds a limit.
    pub fn sensor(&self, limits: &Limits) -> Result<Cow<'_, Sensor>, Rejection> {
        match self.series {
            PointSeries::Text { text, column } => {
                parse_series(text, limits).map(Cow::Owned).map_err(|error| self.refuse_series(column, error))
            }
            PointSeries::Read(sensor) => Ok(Cow::Borrowed(sensor)),
        }
    }

    /// A rejection of the whole point because of its sensor.
    #[must_use]
    pub fn refuse_sensor(&self, reason: Reason) -> Rejection {
        match self.series {
            PointSeries::Text { column, .. } => self.refuse(column, reason),
            PointSeries::Read(_) => self.refuse(0, reason),
        }
    }

    /// A rejection at a byte column of the point's text, from 1; 0 for the whole point.
    #[must_use]
    pub fn refuse(&self, column: usize, reason: Reason) -> Rejection {
        Rejection::new(self.number, column, self.text, reason)
    }

    fn refuse_series(&self, start: usize, error: SeriesError) -> Rejection {
        let column = match error.column {
            0 => 0,
            column => start + column - 1,
        };
        // At the end of the series the line continues with a space.
        let reason = match error.reason {
            Reason::Syntax { expected, found: None } => Reason::Syntax { expected, found: Some(' ') },
            reason => reason,
        };
        self.refuse(column, reason)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::access::Caller;
    use crate::bucket::deletions::Masks;
    use crate::bucket::{Store, UnflushedReadings};
    use crate::clock::{ClockBounds, StampClock};
    use crate::ingest::{Arrival, Ingest, IngestOptions, Stores};
    use crate::reading::{Hour, Precision, Value};
    use crate::store::{EmbeddedStore, Masked};
    use crate::telemetry::Metrics;
    use crate::wal::{self, Folder, Wal};

    /// An invented format: `measurement;field;number;nanoseconds`, one reading per line.
    struct Semicolons<'a> {
        lines: std::iter::Enumerate<std::str::Lines<'a>>,
        sensor: Option<Sensor>,
        fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
    }

    impl<'a> Semicolons<'a> {
        fn new(body: &'a str) -> Self {
            Self { lines: body.lines().enumerate(), sensor: None, fields: Vec::new() }
        }
    }

    impl<'a> Points<'a> for Semicolons<'a> {
        fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
            let (at, line) = self.lines.next()?;
            let wrong = || Some(Err(Rejection::new(at + 1, 0, line.as_bytes(), Reason::MissingFields)));
            let parts: Vec<&str> = line.split(';').collect();
            let [measurement, field, value, time] = parts[..] else { return wrong() };
            let (Ok(value), Ok(time)) = (value.parse(), time.parse()) else { return wrong() };
            self.fields = vec![(Cow::Borrowed(field), RawValue::Float(value))];
            let no_tags: [(&str, &str); 0] = [];
            let sensor = self.sensor.insert(Sensor::new(measurement, no_tags).expect("no tag is there twice"));
            Some(Ok(Point {
                number: at + 1,
                text: line.as_bytes(),
                series: PointSeries::Read(sensor),
                fields: &self.fields,
                timestamp: Some(time),
            }))
        }
    }

    fn ingest(folder: &std::path::Path) -> Ingest {
        let raw: Arc<dyn Store> = Arc::new(EmbeddedStore::open(folder, 1 << 20).expect("a store in a new folder"));
        let masks = Masks::default();
        let store = Arc::new(Masked::new(raw.clone(), masks.clone()));
        let stores = Stores { store, raw, masks, understand: Arc::new(|_: &str| None) };
        let disk = Folder::new(folder.join("log")).expect("a folder");
        let (log, recovery) = Wal::open(disk, wal::WalOptions::new("toy")).expect("a log in a new folder");
        let bounds = ClockBounds { tolerance: Duration::from_millis(250), max_offset: Duration::from_secs(60) };
        let opened = (log, &recovery, Arc::new(StampClock::new(bounds)));
        Ingest::start(IngestOptions::small(), stores, opened, Metrics::new("toy", "embedded").expect("metrics")).0
    }

    /// A new format needs only a parser; validation and storage work unchanged.
    #[tokio::test]
    async fn a_format_is_a_type_that_yields_points() {
        let folder = tempfile::tempdir().expect("a folder");
        let ingest = ingest(folder.path());
        ingest.join(Duration::from_secs(5)).await;
        let body = "climate;t;22.5;1768485600000000000\nclimate;t;warm;1\nclimate;h;45;1768485600000000000\n";
        let arrival = Arrival {
            database: "plant",
            precision: Precision::Nanoseconds,
            received: 1_768_485_600_000_000_000,
            partial: true,
            ack: None,
            patient: false,
            by: &Caller::Anybody,
        };
        let ack = ingest.take(arrival, |_| Semicolons::new(body), ingest.admission()).await.expect("acked");
        assert_eq!((ack.accepted, ack.rejected.count, ack.rejected.told[0].line), (2, 1, 2));
        let hour = Hour::of(arrival.received);
        let unflushed = ingest.unflushed("plant", &["climate"], hour..hour.next()).await.expect("all is fed");
        let set = unflushed[0][0].readings();
        let read: Vec<(String, Value)> = set.fields(0).map(|(name, value)| (name.to_string(), value.clone())).collect();
        assert_eq!(read, [("t", 22.5), ("h", 45.0)].map(|(name, value)| (name.to_owned(), Value::Float(value))));
    }
}
