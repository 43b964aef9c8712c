//! The text of rejected lines: finds the measurement, hides tokens, and exports line protocol that can be sent again.

use std::fmt::Write;

use super::KeptLine;
use crate::access::is_control_or_invisible;
use crate::reading::time::write_rfc3339;
use crate::reading::{Limits, Precision, Value};
use crate::wire::Points;
use crate::wire::json::Items;
use crate::wire::line_protocol::{Lines, write_line};

/// Maximum number of characters of a reason.
pub const REASON_CHARS: usize = 256;

impl KeptLine {
    /// Returns the measurement, or an empty text if the line does not have one.
    #[must_use]
    pub fn measurement(&self) -> String {
        parse_measurement(&self.text)
    }

    /// Returns the line as line protocol with a timestamp in nanoseconds, after a comment with the reason. A line that
    /// cannot be parsed is returned as sent, or as a comment if it is JSON, a device's message or has terminal control
    /// characters.
    #[must_use]
    pub fn to_line_protocol(&self) -> String {
        let mut text = "# ".to_owned();
        write_rfc3339(&mut text, self.received);
        let token = self.token.as_ref().map(|token| format!(" of token {token}")).unwrap_or_default();
        let mapping = self.mapping.as_ref().map(|mapping| format!(", mapping {mapping}")).unwrap_or_default();
        let topic = self.topic.as_ref().map(|topic| format!(", topic {topic}")).unwrap_or_default();
        let comment = format!(", line {}{token}{mapping}{topic}: {}: {}", self.number, self.code, self.reason);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", plain(&comment, usize::MAX));
        let is_message = self.mapping.is_some();
        let line = match self.normalize().filter(|_| !is_message) {
            Some(line) => line,
            None if is_message || is_json(&self.text) || self.text.chars().any(is_control_or_invisible) => {
                format!("# {}\n", plain(&self.text, usize::MAX))
            }
            None => format!("{}\n", self.text),
        };
        text.push_str(&line);
        text
    }

    fn normalize(&self) -> Option<String> {
        let unlimited = Limits { line_bytes: usize::MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };
        let precision = Precision::from_name(&self.precision).unwrap_or(Precision::Nanoseconds);
        let text = self.text.as_bytes();
        if is_json(&self.text) {
            self.encode_point(Items::new(text, precision, unlimited), &unlimited)
        } else {
            self.encode_point(Lines::new(text, precision, unlimited), &unlimited)
        }
    }

    /// Returns the single point as line protocol, without the fields that are already stored.
    fn encode_point<'a>(&self, mut points: impl Points<'a>, limits: &Limits) -> Option<String> {
        let mut line = String::new();
        {
            let point = points.next()?.ok()?;
            let sensor = point.sensor(limits).ok()?;
            let is_rejected = |name: &str| self.field.as_deref().is_none_or(|field| field == name);
            let fields = point.fields.iter().filter(|(name, _)| is_rejected(name));
            let fields: Vec<(&str, Value)> =
                fields.map(|(name, value)| (&**name, value.clone().into_value())).collect();
            let time = point.timestamp.or(self.time).unwrap_or_else(|| self.undated_time());
            write_line(&mut line, &sensor.key, fields.iter().map(|(name, value)| (*name, value)), time);
        }
        points.next().is_none().then_some(line)
    }

    /// Returns the time for a line without a timestamp: one nanosecond per line before the receipt, because accepted
    /// undated readings have the time of receipt or a later one.
    fn undated_time(&self) -> i64 {
        self.received.saturating_sub(i64::try_from(self.number).unwrap_or(i64::MAX))
    }
}

/// Returns true if a line is JSON. Names in line protocol may begin with a bracket too, so the next character decides.
fn is_json(line: &str) -> bool {
    let begins_with = |open: char, next: [char; 2]| {
        let rest = line.trim_start().strip_prefix(open);
        rest.is_some_and(|rest| rest.trim_start().starts_with(next))
    };
    begins_with('{', ['"', '}']) || begins_with('[', ['{', ']'])
}

/// Returns the measurement of a line, or an empty text if it does not have one.
pub fn parse_measurement(line: &str) -> String {
    let text = line.trim_start();
    if !is_json(text) {
        return line_protocol_name(text);
    }
    // The text may be truncated, so it cannot be parsed as a whole.
    let Some((_, rest)) = text.split_once("\"measurement\"") else { return String::new() };
    let Some(rest) = rest.trim_start().strip_prefix(':') else { return String::new() };
    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    values.next().and_then(Result::ok).unwrap_or_default()
}

/// Returns the text up to the first comma or space that is not escaped, without the escapes.
fn line_protocol_name(text: &str) -> String {
    let mut name = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            ',' | ' ' => break,
            '\\' => name.push(characters.next_if(|next| matches!(next, ',' | ' ')).unwrap_or('\\')),
            other => name.push(other),
        }
    }
    name
}

/// Hides tokens in a line. An `auth` line has a token even if it was not the first line over TCP, and any other line
/// may have one.
pub fn hidden(text: &str) -> String {
    let is_auth = text.split_whitespace().next().is_some_and(|word| word.eq_ignore_ascii_case("auth"));
    if is_auth { "auth ***".to_owned() } else { without_tokens(text) }
}

/// Replaces everything that may be a token, or the beginning of one, with `hg_***`.
pub fn without_tokens(text: &str) -> String {
    let mut parts = text.split("hg_");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|character: char| character.is_ascii_hexdigit() || character == '_');
        shown.push_str(if rest.len() < part.len() { "hg_***" } else { "hg_" });
        shown.push_str(rest);
    }
    shown
}

/// Returns the text as one line of at most `chars_max` characters. Escapes characters that control a terminal or hide
/// text, as in `\u{9b}`.
pub fn plain(text: &str, chars_max: usize) -> String {
    let mut plain = String::with_capacity(text.len().min(chars_max.saturating_mul(4)));
    for (number, character) in text.chars().enumerate() {
        if number >= chars_max {
            plain.push('…');
            break;
        }
        if is_control_or_invisible(character) {
            // Writing to a String cannot fail.
            let _ = write!(plain, "{}", character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}
