//! The findings of a check: differences, which are errors, and notes, which are allowed states.

use std::collections::BTreeMap;
use std::fmt;

use crate::bucket::StorageError;

/// An error in a stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The id of the page, or the key of the sensor.
    pub document: String,
    pub kind: FindingKind,
    pub expected: String,
    pub found: String,
}

/// The part of a document that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// The document cannot be read.
    Unreadable,
    /// Key, `_id`, sensor, start, end, page number and collection contradict each other.
    Identity,
    /// A reading belongs to another hour or day.
    Hour,
    /// Readings are out of order, or a timestamp occurs twice, or a reading has a field twice.
    Order,
    /// A timestamp is on two pages.
    TwoPages,
    /// The page has no readings.
    Empty,
    /// `count`, `first` or `last`.
    Count,
    /// The summary of a field.
    Summary,
    /// The totals of a month.
    Totals,
    /// The stored stamps. If they are unreadable, a repair settles all readings of the page: they count as older than
    /// any stamp above the page's last one.
    Stamps,
    /// The page exceeds the maximum size.
    Size,
    /// More than one page of the bucket is open.
    Open,
    /// `hasOverflow`.
    Overflow,
    /// A page of the bucket is missing or occurs twice.
    Numbers,
    /// The bucket has pages but no page 0. Without it, queries do not find the others.
    NoFirst,
    /// The sensor has pages but no document.
    NoSensor,
    /// The sensor's document lacks fields that its pages have.
    Fields,
}

impl FindingKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Identity => "identity",
            Self::Hour => "hour",
            Self::Order => "order",
            Self::TwoPages => "two pages",
            Self::Empty => "no readings",
            Self::Count => "count",
            Self::Summary => "summary",
            Self::Totals => "totals of a month",
            Self::Stamps => "stamps",
            Self::Size => "size",
            Self::Open => "open pages",
            Self::Overflow => "hasOverflow",
            Self::Numbers => "page numbers",
            Self::NoFirst => "no page 0",
            Self::NoSensor => "sensor document",
            Self::Fields => "sensor's fields",
        }
    }

    /// Returns true if a repair can recompute the part from the readings, without changing a reading.
    #[must_use]
    pub fn is_repairable(self) -> bool {
        matches!(
            self,
            Self::Count
                | Self::Summary
                | Self::Totals
                | Self::Stamps
                | Self::Overflow
                | Self::NoFirst
                | Self::NoSensor
                | Self::Fields
        )
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An allowed state worth reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The page has more readings than the current maximum.
    ManyReadings,
    /// Page 0 has the overflow mark, but there is no second page: a process ended between the two writes.
    MarkedAhead,
    /// `firstSeen` or `lastSeen` lags behind the pages.
    SeenLags,
    /// The recent readings lag behind the pages.
    RecentLags,
    /// A field has another family in the pages than in the document.
    Family,
    /// An instance is about to seal the day, or ended before it could.
    Claim,
    /// The stamps are wrong, and cannot be repaired while a deletion in this database is remembered.
    Deletion,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ManyReadings => "page has more readings than pages get today",
            Self::MarkedAhead => "page 0 is marked hasOverflow, but there is no second page yet",
            Self::SeenLags => "sensor document: firstSeen or lastSeen is behind the pages",
            Self::RecentLags => "sensor document: the recent readings are behind the pages",
            Self::Claim => "day is claimed by an instance that is about to seal it, or that ended before it could",
            Self::Deletion => {
                "page with wrong stamps is not repaired while a deletion is remembered: keep an instance running, retry"
            }
            Self::Family => "field has another type (family) in the pages than in the sensor document",
        })
    }
}

/// Everything that a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub differences: Vec<Difference>,
    pub notes: BTreeMap<Note, NoteCount>,
}

/// The documents with a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteCount {
    /// Number of documents.
    pub documents: u64,
    /// The id or key of the first document.
    pub first: String,
}

impl Findings {
    /// Adds a difference.
    pub fn differs(
        &mut self,
        document: &str,
        kind: FindingKind,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        let expected = expected.into();
        let found = found.into();
        self.differences.push(Difference { document: document.to_owned(), kind, expected, found });
    }

    /// Adds an unreadable document. `expected` describes a readable one.
    pub fn unreadable(&mut self, document: &str, expected: &str, error: &StorageError) {
        let found = match error {
            StorageError::Unreadable { detail, .. } | StorageError::Newer { detail, .. } => detail.clone(),
            other => other.to_string(),
        };
        self.differs(document, FindingKind::Unreadable, expected, found);
    }

    /// Adds a note.
    pub fn note(&mut self, document: &str, note: Note) {
        let count = self.notes.entry(note).or_insert_with(|| NoteCount { documents: 0, first: document.to_owned() });
        count.documents += 1;
    }
}
