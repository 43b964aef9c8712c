//! The parser of a line's fields. A string may contain newlines, so a line may span several physical lines. Unclosed
//! quotes are detected here.

use std::borrow::Cow;

use memchr::memchr3;

use super::scanner::{LineFault, Scanner};
use super::{line_bytes_limit, number};
use crate::fields::keep_last_of_equal_keys;
use crate::names;
use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Reason};

type LineField<'a> = (Cow<'a, str>, RawValue<'a>);

/// The fields of the current line.
#[derive(Debug, Default)]
pub(super) struct LineFields<'a> {
    list: Vec<LineField<'a>>,
    /// Scratch space of [`keep_last_of_equal_keys`].
    by_key: Vec<usize>,
    newlines: usize,
    open_string: Option<OpenString>,
}

/// The first string of a line that extends beyond its physical line or has no end.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenString {
    /// The position of its opening quote.
    pub open: usize,
    /// The position of its closing quote, or where the search for one stopped.
    pub scanned_to: usize,
    is_closed: bool,
}

impl<'a> LineFields<'a> {
    pub fn as_slice(&self) -> &[LineField<'a>] {
        &self.list
    }

    /// The number of newlines within strings.
    pub fn newlines(&self) -> usize {
        self.newlines
    }

    pub fn open_string(&self) -> Option<OpenString> {
        self.open_string
    }

    pub fn clear(&mut self) {
        self.list.clear();
        self.newlines = 0;
        self.open_string = None;
    }

    /// Reads `key=value[,key=value…]` from `position` on into the cleared list. Returns the end position, which is at a space
    /// or at the end of the line.
    pub fn read(
        &mut self,
        scanner: &Scanner<'a>,
        line_start: usize,
        mut position: usize,
        limits: &Limits,
    ) -> Result<usize, LineFault> {
        let mut count = 0;
        loop {
            let (key, value_start) = scanner.field_key(position)?;
            names::FIELD_KEY.check_length(&key, limits).map_err(|reason| LineFault::new(position, reason))?;
            let (value, end) = match scanner.byte(value_start) {
                Some(b'"') => self.string(scanner, line_start, value_start, limits)?,
                _ => number::value(scanner, value_start)?,
            };
            // Fields beyond the limit are only counted, for the error.
            count += 1;
            if count <= limits.fields {
                self.list.push((key, value));
            }
            position = end;
            if scanner.byte(position) != Some(b',') {
                break;
            }
            position += 1;
        }
        names::check_fields(count, limits).map_err(|reason| LineFault::whole_line(position, reason))?;
        keep_last_of_equal_keys(&mut self.list, &mut self.by_key);
        Ok(position)
    }

    /// The string whose opening quote is at `open`, and the position after its closing quote.
    fn string(
        &mut self,
        scanner: &Scanner<'a>,
        line_start: usize,
        open: usize,
        limits: &Limits,
    ) -> Result<(RawValue<'a>, usize), LineFault> {
        let window_end = scanner.len().min(line_start.saturating_add(limits.line_bytes)).max(open + 1);
        let window = scanner.bytes(0..window_end);
        let mut position = open + 1;
        let mut is_escaped = false;
        let mut newlines = 0;
        let is_closed = loop {
            let Some(offset) = memchr3(b'"', b'\\', b'\n', &window[position.min(window_end)..]) else { break false };
            position += offset;
            match window[position] {
                b'"' => break true,
                b'\n' => newlines += 1,
                _ if matches!(window.get(position + 1), Some(b'"' | b'\\')) => {
                    is_escaped = true;
                    position += 1;
                }
                _ => {}
            }
            position += 1;
        };
        if !is_closed || newlines > 0 {
            let scanned_to = if is_closed { position } else { window_end };
            self.open_string.get_or_insert(OpenString { open, scanned_to, is_closed });
            self.newlines += newlines;
        }
        let after = position + 1;
        let has_valid_end =
            is_closed && (matches!(scanner.byte(after), Some(b',' | b' ')) || scanner.line_ends_at(after).is_some());
        if !has_valid_end {
            let fault =
                scanner.syntax_fault("',', a space or the end of the line after the string", after.min(scanner.len()));
            return Err(LineFault { is_unclosed: !is_closed || newlines > 0, ..fault });
        }
        let sent = scanner.str(open + 1, position)?;
        let text = if is_escaped { Cow::Owned(unescape_string(sent)) } else { Cow::Borrowed(sent) };
        Ok((RawValue::String(text), after))
    }
}

impl OpenString {
    /// Returns true if the string probably has a closing quote. If it has none, the quote taken for its end belongs to
    /// a later line that is valid by itself, which has an even number of quotes. The last line of a string with
    /// newlines has an odd number.
    pub fn looks_closed(&self, scanner: &Scanner<'_>) -> bool {
        let mut quotes = 0;
        let mut is_escaped = false;
        for &byte in scanner.physical_line(self.scanned_to) {
            quotes += usize::from(byte == b'"' && !is_escaped);
            is_escaped = byte == b'\\' && !is_escaped;
        }
        self.is_closed && quotes % 2 == 1
    }

    /// The error of a line with an unclosed string.
    pub fn unclosed_fault(&self, scanner: &Scanner<'_>, line_start: usize, limits: &Limits) -> LineFault {
        let physical_bytes = scanner.line_end(self.open).position - line_start;
        if physical_bytes > limits.line_bytes {
            return LineFault::whole_line(line_start, line_bytes_limit(physical_bytes, limits));
        }
        let expected = if !self.is_closed && self.scanned_to < scanner.len() {
            "a closing '\"' within limits.line_bytes for the string that starts here"
        } else {
            "a closing '\"' for the string that starts here"
        };
        LineFault::new(self.open, Reason::Syntax { expected, found: None })
    }
}

/// Unescapes a string: `\"` and `\\` are escapes, and every other backslash is a plain character.
fn unescape_string(sent: &str) -> String {
    let mut text = String::with_capacity(sent.len());
    let mut rest = sent;
    while let Some(position) = memchr::memchr(b'\\', rest.as_bytes()) {
        let escapes = matches!(rest.as_bytes().get(position + 1), Some(b'"' | b'\\'));
        text.push_str(&rest[..position + usize::from(!escapes)]);
        rest = &rest[position + 1..];
        if escapes {
            // The escaped character is plain text, even if it is a backslash.
            text.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_two_escapes() {
        for (sent, text) in [
            (r#"a\"b"#, r#"a"b"#),
            (r"a\\b", r"a\b"),
            (r"a\nb\", r"a\nb\"),
            (r#"\\\""#, r#"\""#),
            (r"\\\\", r"\\"),
            (r"ü\\ü", r"ü\ü"),
        ] {
            assert_eq!(unescape_string(sent), text, "{sent}");
        }
    }
}
