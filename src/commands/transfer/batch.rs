//! Rows on their way from a source to the service.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::totals::Totals;

/// Rows of one database as line protocol.
#[derive(Debug, Default)]
pub struct Batch {
    pub place: Place,
    pub lines: Vec<u8>,
    pub rows: Vec<BatchRow>,
    /// The rows that cannot be sent.
    pub refusals: Vec<Refusal>,
    /// InfluxQL statements of the source, to execute before the rows are sent.
    pub statements: Vec<String>,
    /// Counts and sums of `rows`.
    pub totals: Totals,
    /// The position in the source after these rows.
    pub end: Position,
    /// Newlines in `lines`.
    newlines: usize,
}

/// The database and the retention policy of rows. `None` stands for the default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub database: Option<String>,
    pub policy: Option<String>,
}

/// A position between two rows of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Bytes after decompression.
    pub offset: u64,
    /// Number of lines before.
    pub lines: u64,
    /// The last place that a comment of the source names.
    pub place: Place,
    /// True within the statements of an export of InfluxDB.
    pub is_in_statements: bool,
    /// The last completed step of a database of InfluxDB.
    pub step: Option<Step>,
    /// The place of the last document of a MongoDB collection.
    pub place_in_collection: Option<String>,
}

/// The readings of a measurement in a shard of InfluxDB.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Step {
    pub policy: String,
    /// The first time of the shard.
    pub start: i64,
    pub measurement: String,
}

/// A row in the lines of a batch.
#[derive(Debug, Clone)]
pub struct BatchRow {
    /// The number of its line in the source, from 1.
    pub number: u64,
    /// The number of its line in the batch, from 1.
    pub line: usize,
    /// Its text in the batch.
    pub range: Range<usize>,
}

/// A row that was refused, by this command or by the service.
#[derive(Debug)]
pub struct Refusal {
    pub number: u64,
    pub reason: String,
    /// The row as line protocol, or as it is in the source if it cannot be parsed.
    pub text: String,
    pub is_line_protocol: bool,
}

impl Batch {
    /// Appends a row, without a newline at its end.
    pub fn push(&mut self, number: u64, text: &[u8]) {
        let start = self.lines.len();
        self.lines.extend_from_slice(text);
        self.rows.push(BatchRow { number, line: self.newlines + 1, range: start..self.lines.len() });
        self.lines.push(b'\n');
        self.newlines += memchr::memchr_iter(b'\n', text).count() + 1;
    }

    /// Appends a row that cannot be sent.
    pub fn refuse(&mut self, number: u64, reason: String, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        self.refusals.push(Refusal { number, reason, text, is_line_protocol: false });
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.refusals.is_empty() && self.statements.is_empty()
    }
}
