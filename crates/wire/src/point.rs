//! The common output of all formats: a sequence of points, each with its position in the body. A new format only needs a
//! type that implements [`Points`], and an endpoint.

use std::borrow::Cow;
use std::fmt::Write;

use super::line_protocol::{SeriesError, parse_series, write_fields};
use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Reason, Rejection, Sensor, Value};

/// One valid reading, which borrows from the body.
#[derive(Debug)]
pub struct Point<'s, 'a> {
    /// The position in the body, from 1: the physical line where the reading starts, or the array element.
    pub number: usize,
    /// The text as sent, which a [`Rejection`] quotes. Empty for binary formats: it quotes the line of the reading then.
    pub text: &'a [u8],
    /// The sensor.
    pub series: PointSeries<'s, 'a>,
    /// The fields in the order sent; at least one. If a key is repeated, the last value wins, at the position of the first.
    pub fields: &'s [(Cow<'a, str>, RawValue<'a>)],
    /// The timestamp in nanoseconds since the epoch, if the reading has one.
    pub timestamp: Option<i64>,
    /// True if the body or its format gives the unit of the timestamp, so that a declared precision does not apply.
    pub has_unit: bool,
}

/// The sensor of a point, parsed or as text, depending on the format.
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
    /// Returns the next point or its rejection; `None` at the end of the body. The point borrows the parser's buffers,
    /// so this cannot be an [`Iterator`].
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>>;

    /// True if a point may take long to read, so that even a small body is read with pauses.
    const IS_SLOW: bool = false;

    /// Returns true if the last [`next`](Self::next) returned `None` only because it skipped [`SKIPPED_MAX`] messages
    /// that give no point: call it again.
    fn is_paused(&self) -> bool {
        false
    }
}

/// Messages without a point after which a parser pauses, so that its caller can let other tasks run.
pub const SKIPPED_MAX: usize = 64;

/// Counts the messages that a parser skips.
#[derive(Debug, Default)]
pub struct Skipped(usize);

impl Skipped {
    /// Counts a message. Returns true if the parser must pause.
    pub fn note(&mut self) -> bool {
        self.0 += 1;
        self.is_pause()
    }

    /// Begins to count again.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Returns true if the parser pauses.
    #[must_use]
    pub fn is_pause(&self) -> bool {
        self.0 >= SKIPPED_MAX
    }
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
    /// A [`Rejection`] if the series is invalid or exceeds a limit.
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
        self.refuse_quoting(&mut None, column, reason)
    }

    /// As [`refuse`](Self::refuse), for one of several fields. `line` keeps the line of a binary point, which is long to
    /// write.
    #[must_use]
    pub fn refuse_quoting(&self, line: &mut Option<String>, column: usize, reason: Reason) -> Rejection {
        if !self.text.is_empty() {
            return Rejection::new(self.number, column, self.text, reason);
        }
        let line = line.get_or_insert_with(|| line_text(self.spelling(), self.fields, self.timestamp));
        Rejection::new(self.number, column, line.as_bytes(), reason)
    }

    fn refuse_series(&self, start: usize, error: SeriesError) -> Rejection {
        let column = match error.column {
            0 => 0,
            column => start + column - 1,
        };
        // A series ends at a space, so report the space as the unexpected character.
        let reason = match error.reason {
            Reason::Syntax { expected, found: None } => Reason::Syntax { expected, found: Some(' ') },
            reason => reason,
        };
        self.refuse(column, reason)
    }
}

/// The line of a reading from a binary format, with its time in nanoseconds.
pub(crate) fn line_text(key: &str, fields: &[(Cow<'_, str>, RawValue<'_>)], timestamp: Option<i64>) -> String {
    let values: Vec<(&str, Value)> = fields.iter().map(|(name, value)| (&**name, value.clone().into_value())).collect();
    let mut line = key.to_owned();
    write_fields(&mut line, values.iter().map(|(name, value)| (*name, value)));
    if let Some(time) = timestamp {
        // Writing to a String cannot fail.
        let _ = write!(line, " {time}");
    }
    line
}
