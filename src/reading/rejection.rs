//! What was not kept, and why: data for the sender's error body, the metrics' reason label and
//! the log.

use std::fmt;

use super::Family;

/// How many characters of the offending text an answer repeats.
const TEXT_CHARS_MAX: usize = 256;

/// One line (or JSON reading) of a request that was not kept, or not wholly.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// Which line of the body, from 1; for a JSON array, which element.
    pub line: usize,
    /// Byte column in that line where the trouble is, from 1; 0 when the whole line is meant.
    pub column: usize,
    /// The line as sent, cut to a length fit for an error body.
    pub text: String,
    /// Why.
    pub reason: Reason,
}

impl Rejection {
    /// A rejection that repeats at most [`TEXT_CHARS_MAX`] characters of `line_text`; bytes that
    /// are no UTF-8 are shown as the replacement character.
    #[must_use]
    pub fn new(line: usize, column: usize, line_text: &[u8], reason: Reason) -> Self {
        let shown = &line_text[..line_text.len().min(4 * TEXT_CHARS_MAX)];
        let mut text: String = String::from_utf8_lossy(shown).chars().take(TEXT_CHARS_MAX).collect();
        if text.len() < line_text.len() {
            text.push('…');
        }
        Self { line, column, text, reason }
    }

    /// The reason with its place, as one sentence for a sender: `line 2, column 7: …`.
    #[must_use]
    pub fn message(&self) -> String {
        match self.column {
            0 => format!("line {}: {}", self.line, self.reason),
            column => format!("line {}, column {column}: {}", self.line, self.reason),
        }
    }
}

/// Why a line, or one field of it, was not kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// Something else was expected here.
    Syntax {
        /// What the grammar allows at this place, e.g. `'=' after the tag key`.
        expected: &'static str,
        /// The character found, or `None` at the end of the line.
        found: Option<char>,
    },
    /// A line with a measurement but no field.
    MissingFields,
    /// The same tag key twice.
    DuplicateTag {
        /// The key, unescaped.
        key: String,
    },
    /// A number that is not written as one.
    InvalidNumber {
        /// The text in the number's place.
        text: String,
    },
    /// An integer or float beyond its type's range.
    NumberOutOfRange {
        /// The text of the number.
        text: String,
    },
    /// NaN or an infinity: no summary could be kept over it.
    NotFinite {
        /// The text of the number.
        text: String,
    },
    /// A timestamp that is neither an integer nor (in JSON) RFC 3339.
    InvalidTimestamp {
        /// The text in the timestamp's place.
        text: String,
    },
    /// A timestamp that nanoseconds in an `i64` cannot hold.
    TimeOutOfRange {
        /// The text of the timestamp.
        text: String,
    },
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A control character where names and values may not have one.
    ControlCharacter {
        /// Its code point.
        code: u32,
    },
    /// A name that ends in a backslash, which would escape whatever follows it.
    TrailingBackslash,
    /// More or longer than a limit allows.
    Limit {
        /// What there is too much of, e.g. `tags`.
        what: &'static str,
        /// How much there was.
        found: usize,
        /// The limit's value.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// The field holds values of another family; the reading's other fields were kept.
    FamilyConflict {
        /// The field's name.
        field: String,
        /// The measurement it belongs to.
        measurement: String,
        /// The family sent.
        sent: Family,
        /// The family the sensor's field has.
        stored: Family,
    },
    /// A field beyond the number that one sensor may have; the reading's other fields were kept.
    TooManyFields {
        /// The field's name.
        field: String,
        /// The limit's value, config key `limits.sensor_fields`.
        limit: usize,
    },
    /// A new sensor beyond the number that may be known.
    TooManySensors {
        /// The measurement of the new sensor.
        measurement: String,
        /// The tag of that measurement that has most values, which is mostly the one that should not be a tag.
        widest_tag: Option<String>,
        /// The bound: a limit with its config key, or a quota with whose it is.
        bound: String,
    },
    /// A sensor that the sender's token may not write.
    OtherSensor {
        /// The tag by which it is not.
        tag: String,
        /// The value that the token asks for.
        required: String,
    },
    /// A time that lies too far before or after now.
    OutsideWindow {
        /// The timestamp in nanoseconds.
        time: i64,
        /// Whether it lies after now.
        ahead: bool,
        /// The bound in whole seconds.
        seconds: u64,
    },
    /// JSON that is not JSON, or not of a reading's shape.
    Json {
        /// The decoder's or our own explanation.
        message: String,
    },
}

impl Reason {
    /// The metric label: one of a small fixed set.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Syntax { .. }
            | Self::MissingFields
            | Self::DuplicateTag { .. }
            | Self::InvalidNumber { .. }
            | Self::TrailingBackslash => "syntax",
            Self::NumberOutOfRange { .. } => "number_range",
            Self::NotFinite { .. } => "not_finite",
            Self::InvalidTimestamp { .. } | Self::TimeOutOfRange { .. } => "timestamp",
            Self::NotUtf8 | Self::ControlCharacter { .. } => "encoding",
            Self::Limit { .. } | Self::TooManyFields { .. } => "limit",
            Self::FamilyConflict { .. } => "family",
            Self::TooManySensors { .. } => "sensors",
            Self::OtherSensor { .. } => "forbidden",
            Self::OutsideWindow { .. } => "window",
            Self::Json { .. } => "json",
        }
    }

    /// Whether the reading's other fields were kept.
    #[must_use]
    pub fn keeps_the_rest(&self) -> bool {
        matches!(self, Self::FamilyConflict { .. } | Self::TooManyFields { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { expected, found: Some(c) } => write!(f, "expected {expected}, found {c:?}"),
            Self::Syntax { expected, found: None } => write!(f, "expected {expected}, found the end of the line"),
            Self::MissingFields => {
                write!(f, "missing fields: a line is 'measurement[,tag=value…] field=value[,…] [timestamp]'")
            }
            Self::DuplicateTag { key } => write!(f, "duplicate tags: the key {key:?} stands twice"),
            Self::InvalidNumber { text } => write!(
                f,
                "invalid number {text:?}: write 1.5 or 1 (float), 1i (integer), 1u (unsigned), true or false, or \"text\""
            ),
            Self::NumberOutOfRange { text } => write!(f, "number out of range: {text}"),
            Self::NotFinite { text } => write!(f, "{text} is not a finite number: leave the field out instead"),
            Self::InvalidTimestamp { text } => {
                write!(
                    f,
                    "bad timestamp {text:?}: an integer in the request's precision is wanted (in JSON also RFC 3339)"
                )
            }
            Self::TimeOutOfRange { text } => {
                write!(f, "time outside range: {text} does not fit 1677-09-21 to 2262-04-11; is the precision right?")
            }
            Self::NotUtf8 => write!(f, "the line is not valid UTF-8"),
            Self::ControlCharacter { code } => write!(f, "control character U+{code:04X} is not allowed here"),
            Self::TrailingBackslash => write!(f, "a name may not end in a backslash"),
            Self::Limit { what, found, limit, key } => {
                write!(f, "{what}: {found} is over the limit of {limit} ({key})")
            }
            Self::FamilyConflict { field, measurement, sent, stored } => write!(
                f,
                "field type conflict: input field {field:?} on measurement {measurement:?} is type {}, already exists as type {}",
                sent.name(),
                stored.name()
            ),
            Self::TooManyFields { field, limit } => {
                write!(f, "field {field:?}: the sensor has {limit} other fields already (limits.sensor_fields)")
            }
            Self::TooManySensors { measurement, widest_tag, bound } => {
                write!(f, "a new sensor of measurement {measurement:?} is over {bound}")?;
                match widest_tag {
                    Some(tag) => write!(f, "; its tag {tag:?} has most values"),
                    None => Ok(()),
                }
            }
            Self::OtherSensor { tag, required } => {
                write!(f, "the token is for sensors with the tag {tag}={required} only")
            }
            Self::OutsideWindow { time, ahead, seconds } => {
                let (side, key) = if *ahead { ("ahead of", "max_future") } else { ("before", "max_past") };
                write!(f, "the timestamp {time} ns lies more than {seconds} s {side} now (limits.{key})")
            }
            Self::Json { message } => write!(f, "{message}"),
        }
    }
}
