//! The parser of a line's series, `measurement[,tag=value…]`. It is slower than the rest, and used only for new sensors
//! and for the `sensor` of a query.

use std::borrow::Cow;

use super::escape::{separates, separates_measurement, unescape};
use crate::names::{self, Name};
use hourglass_model::reading::{Limits, Reason, Sensor};

/// The reason that a series is invalid.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesError {
    /// The byte column in the series text, from 1; 0 for the whole series.
    /// [`Point::sensor`](crate::Point::sensor) converts it to a column of the line.
    pub column: usize,
    /// The reason.
    pub reason: Reason,
}

/// Parses a series to a sensor with unescaped names and sorted tags.
///
/// # Errors
/// [`SeriesError`] if the series is invalid or exceeds a limit.
pub fn parse_series(text: &str, limits: &Limits) -> Result<Sensor, SeriesError> {
    let (measurement, mut position) = name(text, 0, names::MEASUREMENT, separates_measurement, limits)?;
    let mut tags: Vec<(Cow<str>, Cow<str>)> = Vec::new();
    let mut key_starts = Vec::new();
    let mut count = 0;
    while position < text.len() {
        if text.as_bytes()[position] != b',' {
            let expected = if count == 0 { AFTER_MEASUREMENT } else { AFTER_TAG_VALUE };
            return Err(syntax_error(text, position, expected));
        }
        let key_start = position + 1;
        let (key, key_end) = name(text, key_start, names::TAG_KEY, separates, limits)?;
        if text.as_bytes().get(key_end) != Some(&b'=') {
            return Err(syntax_error(text, key_end, "'=' after the tag key"));
        }
        let (value, value_end) = name(text, key_end + 1, names::TAG_VALUE, separates, limits)?;
        // Tags beyond the limit are only counted, for the error.
        count += 1;
        if count <= limits.tags {
            tags.push((key, value));
            key_starts.push(key_start);
        }
        position = value_end;
    }
    names::check_tags(count, limits).map_err(|reason| SeriesError { column: 0, reason })?;
    Sensor::new(&measurement, tags.iter().map(|(key, value)| (&**key, &**value))).map_err(|repeated_key| {
        let second = tags.iter().zip(&key_starts).filter(|((key, _), _)| *key == repeated_key).nth(1);
        SeriesError { column: second.map_or(0, |(_, start)| start + 1), reason: Reason::DuplicateTag(repeated_key) }
    })
}

const AFTER_MEASUREMENT: &str = "',' or a space after the measurement";
const AFTER_TAG_VALUE: &str = "',' or a space after the tag value";

/// The name that starts at `start`, and its end: at a separator or at the end of the text.
fn name<'t>(
    text: &'t str,
    start: usize,
    what: Name,
    separates: fn(u8) -> bool,
    limits: &Limits,
) -> Result<(Cow<'t, str>, usize), SeriesError> {
    let bytes = text.as_bytes();
    let mut end = start;
    while end < bytes.len() && !separates(bytes[end]) {
        let escapes = bytes[end] == b'\\' && bytes.get(end + 1).is_some_and(|&next| separates(next));
        end += 1 + usize::from(escapes);
    }
    if end == start || what.starts_a_comment(&text[start..end]) {
        return Err(syntax_error(text, start, what.wanted));
    }
    let sent = &text[start..end];
    if let Some((offset, code)) = names::control_character(sent) {
        return Err(SeriesError { column: start + offset + 1, reason: Reason::ControlCharacter(code) });
    }
    // A backslash before a separator would be an escape, so this one is at the end of the text.
    if sent.ends_with('\\') {
        return Err(SeriesError { column: end, reason: Reason::TrailingBackslash });
    }
    let name = unescape(sent, separates);
    what.check_length(&name, limits).map_err(|reason| SeriesError { column: start + 1, reason })?;
    Ok((name, end))
}

fn syntax_error(text: &str, position: usize, expected: &'static str) -> SeriesError {
    SeriesError { column: position + 1, reason: Reason::Syntax { expected, found: text[position..].chars().next() } }
}
