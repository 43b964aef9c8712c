//! What a check may find: differences, which are errors, and notes, which are allowed states worth knowing.

use std::collections::BTreeMap;
use std::fmt;

use crate::bucket::StorageError;

/// An error in a stored document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The id of the page, or the key of the sensor.
    pub document: String,
    pub what: What,
    pub expected: String,
    pub found: String,
}

/// The part of a document that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// The document cannot be read.
    Unreadable,
    /// Key, `_id`, sensor, start, end, page number and collection contradict each other.
    Identity,
    /// A reading belongs to another hour, or to another day.
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
    /// The page is larger than a page may be.
    Size,
    /// More than one page of the bucket is open.
    Open,
    /// `hasOverflow`.
    Overflow,
    /// A page of the bucket is missing or occurs twice.
    Numbers,
    /// The bucket has pages but no page 0, without which queries do not find the others.
    NoFirst,
    /// A sensor with pages has no document.
    NoSensor,
    /// The sensor's document lacks fields that its pages have.
    Fields,
}

impl What {
    /// Its name, and whether a repair can recompute it from the readings, without changing a reading.
    const fn row(self) -> (&'static str, bool) {
        match self {
            Self::Unreadable => ("unreadable", false),
            Self::Identity => ("identity", false),
            Self::Hour => ("hour", false),
            Self::Order => ("order", false),
            Self::TwoPages => ("two pages", false),
            Self::Empty => ("no readings", false),
            Self::Count => ("count", true),
            Self::Summary => ("summary", true),
            Self::Totals => ("totals of a month", true),
            Self::Stamps => ("stamps", true),
            Self::Size => ("size", false),
            Self::Open => ("open pages", false),
            Self::Overflow => ("hasOverflow", true),
            Self::Numbers => ("page numbers", false),
            Self::NoFirst => ("no page 0", true),
            Self::NoSensor => ("sensor document", true),
            Self::Fields => ("sensor's fields", true),
        }
    }

    #[must_use]
    pub fn is_mendable(self) -> bool {
        self.row().1
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// An allowed state that is worth knowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The page has more readings than pages get today.
    ManyReadings,
    /// Page 0 has the overflow mark, but there is no second page: a process ended between the two writes.
    MarkedAhead,
    /// `firstSeen` or `lastSeen` is behind the pages.
    SeenLags,
    /// The recent readings are behind the pages.
    RecentLags,
    /// A field has another family in the pages than in the document.
    Family,
    /// An instance is about to seal the day, or ended before it could.
    Claim,
    /// The stamps are wrong, but are not repaired while a deletion in this database is remembered.
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
    /// For each note, the number of documents, and the first of them.
    pub notes: BTreeMap<Note, (u64, String)>,
}

impl Findings {
    pub fn differs(&mut self, document: &str, what: What, expected: impl Into<String>, found: impl Into<String>) {
        let (expected, found) = (expected.into(), found.into());
        self.differences.push(Difference { document: document.to_owned(), what, expected, found });
    }

    /// Adds that a document cannot be read; `expected` says what it should be.
    pub fn unreadable(&mut self, document: &str, expected: &str, error: &StorageError) {
        let found = match error {
            StorageError::Unreadable { detail, .. } | StorageError::Newer { detail, .. } => detail.clone(),
            other => other.to_string(),
        };
        self.differs(document, What::Unreadable, expected, found);
    }

    pub fn note(&mut self, document: &str, note: Note) {
        self.notes.entry(note).or_insert_with(|| (0, document.to_owned())).0 += 1;
    }
}
