//! Rejected lines and their reasons, as used in error responses, the metric label `reason` and the log.

use super::Family;

/// Maximum number of characters of the rejected line that an error response repeats.
const TEXT_CHARS_MAX: usize = 256;
/// Maximum length of a line that is kept for a replay.
const WHOLE_BYTES_MAX: usize = 64 << 10;

/// A line (or JSON reading) of a request that was rejected, in whole or in part.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// The line of the body, counted from 1; for a JSON array, the element.
    pub line: usize,
    /// The byte column of the error in that line, counted from 1; 0 if the reason concerns the whole line.
    pub column: usize,
    /// The line as sent, truncated to 256 characters.
    pub text: String,
    /// The reason.
    pub reason: Reason,
    /// The whole line as sent, if it is UTF-8 and at most 64 KiB. The sender can correct it and send it again.
    pub whole: Option<Box<WholeLine>>,
}

/// A line as sent. [`Rejection`] boxes it to stay small, because it is the error type of many results.
#[derive(Debug, Clone, PartialEq)]
pub struct WholeLine(pub Box<str>);

impl Rejection {
    /// A rejection that repeats at most 256 characters of `line_text`; invalid UTF-8 becomes the
    /// replacement character.
    #[must_use]
    pub fn new(line: usize, column: usize, line_text: &[u8], reason: Reason) -> Self {
        let shown = &line_text[..line_text.len().min(4 * TEXT_CHARS_MAX)];
        let mut text: String = String::from_utf8_lossy(shown).chars().take(TEXT_CHARS_MAX).collect();
        if text.len() < line_text.len() {
            text.push('…');
        }
        let is_kept = line_text.len() <= WHOLE_BYTES_MAX;
        let whole_text = if is_kept { std::str::from_utf8(line_text).ok() } else { None };
        let whole = whole_text.map(|whole| Box::new(WholeLine(whole.into())));
        Self { line, column, text, reason, whole }
    }

    /// The reason with its position, for the sender: `line 2, column 7: …`.
    #[must_use]
    pub fn message(&self) -> String {
        match self.column {
            0 => format!("line {}: {}", self.line, self.reason),
            column => format!("line {}, column {column}: {}", self.line, self.reason),
        }
    }
}

/// The reason that a line, or one field of it, was rejected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Reason {
    /// A syntax error.
    #[error("expected {expected}, found {}", found_text(*found))]
    Syntax {
        /// The expected text, e.g. `'=' after the tag key`.
        expected: &'static str,
        /// The character found; `None` at the end of the line.
        found: Option<char>,
    },
    /// A line with a measurement but without fields.
    #[error("missing fields: a line is 'measurement[,tag=value…] field=value[,…] [timestamp]'")]
    MissingFields,
    /// A tag key appears twice.
    #[error("duplicate tags: the key {0:?} appears twice")]
    DuplicateTag(String),
    /// A malformed number.
    #[error("invalid number {0:?}: write 1.5 or 1 (float), 1i (integer), 1u (unsigned), true or false, or \"text\"")]
    InvalidNumber(String),
    /// An integer or float beyond its type's range.
    #[error("number out of range: {0}")]
    NumberOutOfRange(String),
    /// NaN or an infinity; summaries cannot include them.
    #[error("{0} is not a finite number: leave the field out instead")]
    NotFinite(String),
    /// A timestamp that is neither an integer nor (in JSON) RFC 3339.
    #[error("bad timestamp {0:?}: use an integer in the request's precision; JSON also allows RFC 3339")]
    InvalidTimestamp(String),
    /// A JSON timestamp without a time zone, which does not identify an instant.
    #[error("the time {text:?} has no zone: send {in_utc} if it is in UTC, else its offset, such as +01:00, for the Z")]
    NoZone {
        /// The text of the timestamp.
        text: String,
        /// The JSON entry that is right if the time is in UTC: `"ts":"2026-01-15T14:00:00Z"`.
        in_utc: String,
    },
    /// A timestamp that does not fit into `i64` nanoseconds.
    #[error("time outside range: {0} does not fit 1677-09-21 to 2262-04-11; is the precision right?")]
    TimeOutOfRange(String),
    /// Bytes that are not UTF-8.
    #[error("the line is not valid UTF-8")]
    NotUtf8,
    /// A control character where none is allowed.
    #[error("control character U+{0:04X} is not allowed here")]
    ControlCharacter(u32),
    /// A name that ends in a backslash, which would escape the separator that follows.
    #[error("a name may not end in a backslash")]
    TrailingBackslash,
    /// A limit is exceeded.
    #[error("{what}: {found} exceeds the limit of {limit} ({key})")]
    Limit {
        /// The item that exceeds the limit, e.g. `tags`.
        what: &'static str,
        /// The number found.
        found: usize,
        /// The limit's value.
        limit: usize,
        /// The limit's config key.
        key: &'static str,
    },
    /// The field already has values of another family; the reading's other fields were accepted.
    #[error("field type conflict: input field {field:?} on measurement {measurement:?} is type {}, already exists as type {}", sent.name(), stored.name())]
    FamilyConflict {
        /// The field's name.
        field: String,
        /// The measurement of the reading.
        measurement: String,
        /// The family of the value sent.
        sent: Family,
        /// The family of the stored field.
        stored: Family,
    },
    /// A new field beyond the limit per sensor; the reading's other fields were accepted.
    #[error("field {field:?}: the sensor has {limit} other fields already")]
    TooManyFields {
        /// The field's name.
        field: String,
        /// The value of `limits.sensor_fields`.
        limit: usize,
    },
    /// A new field for which the catalog has no memory left; the reading's other fields were accepted.
    #[error("field {field:?}: known sensors and fields take all of the {limit} bytes of catalog.max_bytes")]
    NoMemoryForField {
        /// The field's name.
        field: String,
        /// The value of `catalog.max_bytes`.
        limit: usize,
    },
    /// A new sensor beyond a limit or quota.
    #[error("a new sensor of measurement {measurement:?} exceeds {bound}{}", widest_text(widest_tag.as_deref()))]
    TooManySensors {
        /// The measurement of the new sensor.
        measurement: String,
        /// The tag of that measurement with the most values, which probably should be a field.
        widest_tag: Option<String>,
        /// The bound in words: a limit with its config key, or a quota with its owner.
        bound: String,
    },
    /// A sensor that the token is not allowed to write.
    #[error("the token may only write sensors with the tag {tag}={required}")]
    OtherSensor {
        /// The key of the tag that the token requires.
        tag: String,
        /// The tag value that the token requires.
        required: String,
    },
    /// A timestamp too far in the past or the future.
    #[error("the timestamp {time} ns is more than {seconds} s {}", window_text(*ahead))]
    OutsideWindow {
        /// The timestamp in nanoseconds.
        time: i64,
        /// True if the timestamp is in the future.
        ahead: bool,
        /// The maximum distance from now, in whole seconds.
        seconds: u64,
    },
    /// A timestamp older than the retention period of the database.
    #[error("the timestamp {time} ns is beyond the retention policy, which keeps {seconds} s")]
    Expired {
        /// The timestamp in nanoseconds.
        time: i64,
        /// The retention period in whole seconds.
        seconds: u64,
    },
    /// A timestamp without a declared unit that is close to the current time only in another unit than the default.
    #[error(
        "the timestamp {number} looks like {unit}, but no unit was declared: send precision={unit}, or precision=ns if it is right (limits.undeclared_unit)"
    )]
    UndeclaredUnit {
        /// The number as sent.
        number: i64,
        /// The unit in which the number is close to the current time.
        unit: &'static str,
    },
    /// A reading that violates the schema of its sensor's kind.
    #[error("field {field:?} {what} (kind {kind})")]
    Kind {
        /// The kind's name.
        kind: Box<str>,
        /// The field.
        field: Box<str>,
        /// The violation: the actual and the required form of the field.
        what: Box<str>,
    },
    /// Invalid JSON, or JSON that is not a reading.
    #[error("{0}")]
    Json(String),
    /// CSV that has no readings as they are answered.
    #[error("{0}")]
    Csv(String),
    /// Bytes that are not the expected protobuf message.
    #[error("invalid protobuf: {0}")]
    Protobuf(&'static str),
    /// A reading in a form that is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
}

impl Reason {
    /// The value of the metric label `reason`: one of a small fixed set.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Syntax { .. }
            | Self::MissingFields
            | Self::DuplicateTag(_)
            | Self::InvalidNumber(_)
            | Self::TrailingBackslash => "syntax",
            Self::NumberOutOfRange(_) => "number_range",
            Self::NotFinite(_) => "not_finite",
            Self::InvalidTimestamp(_) | Self::NoZone { .. } | Self::TimeOutOfRange(_) => "timestamp",
            Self::NotUtf8 | Self::ControlCharacter(_) => "encoding",
            Self::Limit { .. } | Self::TooManyFields { .. } | Self::NoMemoryForField { .. } => "limit",
            Self::FamilyConflict { .. } => "family",
            Self::TooManySensors { .. } => "sensors",
            Self::OtherSensor { .. } => "forbidden",
            Self::OutsideWindow { .. } => "window",
            Self::Expired { .. } => "retention",
            Self::UndeclaredUnit { .. } => "unit",
            Self::Kind { .. } => "kind",
            Self::Json(_) => "json",
            Self::Csv(_) => "csv",
            Self::Protobuf(_) | Self::Unsupported(_) => "protobuf",
        }
    }

    /// The rejected field; `None` if the whole reading was rejected.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::FamilyConflict { field, .. }
            | Self::TooManyFields { field, .. }
            | Self::NoMemoryForField { field, .. } => Some(field),
            _ => None,
        }
    }

    /// Returns true if the reading's other fields were accepted.
    #[must_use]
    pub fn keeps_other_fields(&self) -> bool {
        self.field().is_some()
    }
}

fn found_text(found: Option<char>) -> String {
    found.map_or_else(|| "the end of the line".to_owned(), |found| format!("{found:?}"))
}

fn widest_text(tag: Option<&str>) -> String {
    tag.map_or_else(String::new, |tag| format!("; its tag {tag:?} has the most values"))
}

fn window_text(is_ahead: bool) -> &'static str {
    if is_ahead { "ahead of now (limits.max_future)" } else { "before now (limits.max_past)" }
}
