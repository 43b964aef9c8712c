//! What a check may find: differences, which are wrong, and notes, which are lawful and worth knowing.

use std::collections::BTreeMap;
use std::fmt;

/// A document is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The id of the page, or the key of the sensor.
    pub document: String,
    /// What about it.
    pub what: What,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// What about a document is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// It cannot be read.
    Unreadable,
    /// Key, `_id`, sensor, start, end, number and the place where it stands contradict each other.
    Identity,
    /// A reading is of another hour.
    Hour,
    /// Readings are out of order, or one is there twice, or has a field twice.
    Order,
    /// A timestamp stands on two pages.
    TwoPages,
    /// It has no readings.
    Empty,
    /// `count`, `first` or `last`.
    Count,
    /// The summary of a field.
    Summary,
    /// What it says of its stamps. Made anew, its readings are taken for older than every stamp above the last that it names.
    Stamps,
    /// It is larger than a page may be.
    Size,
    /// More than one page of the bucket is open.
    Open,
    /// `hasOverflow`.
    Overflow,
    /// A page of the bucket is missing, or there twice.
    Numbers,
    /// The bucket has pages and no page 0, by which all others are found.
    NoFirst,
    /// A sensor with pages has no document.
    NoSensor,
    /// The sensor's document lacks fields that its pages have.
    Fields,
}

impl What {
    /// Whether it can be made anew from what is there, without a reading being changed.
    #[must_use]
    pub fn is_mendable(self) -> bool {
        matches!(
            self,
            Self::Count | Self::Summary | Self::Stamps | Self::Overflow | Self::NoFirst | Self::NoSensor | Self::Fields
        )
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "unreadable",
            Self::Identity => "identity",
            Self::Hour => "hour",
            Self::Order => "order",
            Self::TwoPages => "two pages",
            Self::Empty => "no readings",
            Self::Count => "count",
            Self::Summary => "summary",
            Self::Stamps => "stamps",
            Self::Size => "size",
            Self::Open => "open pages",
            Self::Overflow => "hasOverflow",
            Self::Numbers => "page numbers",
            Self::NoFirst => "no page 0",
            Self::NoSensor => "sensor document",
            Self::Fields => "sensor's fields",
        })
    }
}

/// What is lawful and worth knowing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// `page.max_readings` may have been another when the page was filled.
    ManyReadings,
    /// A process ended between the mark and the further page.
    MarkedAhead,
    /// First or last seen are not what the pages say.
    SeenLags,
    /// The pages have a later reading than the recent ones.
    RecentLags,
    /// A field has another family in the pages than in the document.
    Family,
    /// An older program has added up sums: queries read the readings instead, until the page is written again.
    OlderSums,
    /// Its stamps are wrong, and a deletion that may be about it is remembered.
    Deletion,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ManyReadings => "page has more readings than page.max_readings, which may have been changed",
            Self::MarkedAhead => "page 0 is marked hasOverflow and there is no further page yet",
            Self::SeenLags => "sensor document lags behind in firstSeen or lastSeen",
            Self::RecentLags => "sensor document lags behind in its recent readings",
            Self::OlderSums => "page has sums that an older version added up, so queries read its readings",
            Self::Deletion => {
                "page with wrong stamps is left until no deletion is remembered: keep an instance running, repair again"
            }
            Self::Family => "field is of another family in the pages than in the sensor's document",
        })
    }
}

/// All that was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// What is wrong.
    pub differences: Vec<Difference>,
    /// How often each note was made, and about which document first.
    pub notes: BTreeMap<Note, (u64, String)>,
}

impl Findings {
    /// One more difference.
    pub fn differs(&mut self, document: &str, what: What, expected: impl Into<String>, found: impl Into<String>) {
        let (expected, found) = (expected.into(), found.into());
        self.differences.push(Difference { document: document.to_owned(), what, expected, found });
    }

    /// One more note.
    pub fn note(&mut self, document: &str, note: Note) {
        self.notes.entry(note).or_insert_with(|| (0, document.to_owned())).0 += 1;
    }

    /// Takes in what was found elsewhere.
    pub fn add(&mut self, other: Self) {
        self.differences.extend(other.differences);
        for (note, (count, first)) in other.notes {
            self.notes.entry(note).or_insert_with(|| (0, first)).0 += count;
        }
    }
}
