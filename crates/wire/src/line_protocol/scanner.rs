//! Scanning operations on the bytes of a body: finds the ends of names, lines and series.

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr2_iter, memrchr};

use super::escape::{separates, unescape};
use crate::names;
use hourglass_model::reading::Reason;

/// An error with its position in the body.
#[derive(Debug)]
pub(super) struct LineFault {
    pub position: usize,
    pub reason: Reason,
    /// True if the error concerns the whole line and has no column.
    pub is_whole_line: bool,
    /// True if a string of this line has no closing quote, or one where no string can end.
    pub is_unclosed: bool,
}

impl LineFault {
    pub fn new(position: usize, reason: Reason) -> Self {
        Self { position, reason, is_whole_line: false, is_unclosed: false }
    }

    pub fn whole_line(position: usize, reason: Reason) -> Self {
        Self { is_whole_line: true, ..Self::new(position, reason) }
    }
}

/// The end of a line's text, and the start of the next line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineEnd {
    pub position: usize,
    pub next: usize,
}

/// A body of line protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scanner<'a> {
    body: &'a [u8],
    /// The body as text if all of it is UTF-8. Its parts then need no further check.
    text: Option<&'a str>,
}

impl<'a> Scanner<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, text: std::str::from_utf8(body).ok() }
    }

    #[inline]
    pub fn byte(&self, position: usize) -> Option<u8> {
        self.body.get(position).copied()
    }

    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> &'a [u8] {
        &self.body[range]
    }

    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// The text between two positions, both next to ASCII bytes and therefore not inside a character.
    #[inline]
    pub fn str(&self, start: usize, end: usize) -> Result<&'a str, LineFault> {
        match self.text {
            Some(text) => Ok(&text[start..end]),
            None => std::str::from_utf8(&self.body[start..end])
                .map_err(|error| LineFault::new(start + error.valid_up_to(), Reason::NotUtf8)),
        }
    }

    /// A syntax error at `position`, with the expected text and the character found.
    pub fn syntax_fault(&self, expected: &'static str, position: usize) -> LineFault {
        let found = match self.line_ends_at(position) {
            Some(_) => None,
            None => self.char_at(position),
        };
        LineFault::new(position, Reason::Syntax { expected, found })
    }

    /// The character at `position`; the replacement character for invalid UTF-8.
    fn char_at(&self, position: usize) -> Option<char> {
        let rest = &self.body[position..self.body.len().min(position + 4)];
        rest.utf8_chunks().next().map(|chunk| chunk.valid().chars().next().unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    #[inline]
    pub fn skip_spaces(&self, mut position: usize) -> usize {
        while self.byte(position) == Some(b' ') {
            position += 1;
        }
        position
    }

    /// The end of a line, if there is one exactly at `position`: LF, CR LF, or the end of the body with or without CR.
    #[inline]
    pub fn line_ends_at(&self, position: usize) -> Option<LineEnd> {
        match (self.byte(position), self.byte(position + 1)) {
            (Some(b'\n'), _) | (Some(b'\r'), None) => Some(LineEnd { position, next: position + 1 }),
            (Some(b'\r'), Some(b'\n')) => Some(LineEnd { position, next: position + 2 }),
            (None, _) => Some(LineEnd { position, next: position }),
            _ => None,
        }
    }

    /// The end of the physical line that contains `position`.
    pub fn line_end(&self, position: usize) -> LineEnd {
        let (newline, next) = match memchr(b'\n', &self.body[position..]) {
            Some(offset) => (position + offset, position + offset + 1),
            None => (self.len(), self.len()),
        };
        let has_return = newline > position && self.body[newline - 1] == b'\r';
        LineEnd { position: newline - usize::from(has_return), next }
    }

    /// The physical line that contains `position`.
    pub fn physical_line(&self, position: usize) -> &'a [u8] {
        let start = memrchr(b'\n', &self.body[..position]).map_or(0, |newline| newline + 1);
        &self.body[start..self.line_end(position).position]
    }

    pub fn count_newlines(&self, range: Range<usize>) -> usize {
        memchr_iter(b'\n', &self.body[range]).count()
    }

    /// The first space not preceded by a backslash. The tags before it are not checked.
    pub fn series_end(&self, first: usize) -> Result<usize, LineFault> {
        for offset in memchr2_iter(b' ', b'\n', &self.body[first..]) {
            let position = first + offset;
            if self.body[position] == b'\n' {
                break;
            }
            if self.body[position - 1] != b'\\' {
                return Ok(position);
            }
        }
        let end = self.line_end(first).position;
        Err(match self.body[..end].last() {
            Some(b'\\') => LineFault::new(end - 1, Reason::TrailingBackslash),
            _ => LineFault::new(end, Reason::MissingFields),
        })
    }

    /// The field key at `start`, unescaped, and the position after its `=`.
    #[inline]
    pub fn field_key(&self, start: usize) -> Result<(Cow<'a, str>, usize), LineFault> {
        let plain = self.plain_bytes(start);
        if plain > 0 && self.byte(start + plain) == Some(b'=') {
            let end = start + plain;
            return Ok((Cow::Borrowed(self.str(start, end)?), end + 1));
        }
        self.field_key_with_escapes(start, start + plain)
    }

    /// The number of bytes from `position` on that have no special meaning in a name.
    #[inline]
    fn plain_bytes(&self, position: usize) -> usize {
        let rest = &self.body[position..];
        rest.iter().position(|&byte| !PLAIN[usize::from(byte)]).unwrap_or(rest.len())
    }

    /// As [`Scanner::field_key`], for a key with a special byte at `position` and none before it.
    #[cold]
    fn field_key_with_escapes(&self, start: usize, mut position: usize) -> Result<(Cow<'a, str>, usize), LineFault> {
        loop {
            match self.byte(position) {
                Some(b'=') if position > start => {
                    let key = unescape(self.str(start, position)?, separates);
                    return Ok((key, position + 1));
                }
                Some(b'\\') if self.line_ends_at(position + 1).is_some() => {
                    return Err(LineFault::new(position, Reason::TrailingBackslash));
                }
                Some(b'\\') => position += 1 + usize::from(self.byte(position + 1).is_some_and(separates)),
                // U+0080 to U+009F are the control characters beyond ASCII: C2 80 to C2 9F.
                Some(0xc2) => match self.byte(position + 1) {
                    Some(code @ 0x80..=0x9f) => {
                        return Err(LineFault::new(position, Reason::ControlCharacter(u32::from(code))));
                    }
                    _ => position += 1,
                },
                Some(code) if code.is_ascii_control() && self.line_ends_at(position).is_none() => {
                    return Err(LineFault::new(position, Reason::ControlCharacter(u32::from(code))));
                }
                _ if position == start => return Err(self.syntax_fault(names::FIELD_KEY.wanted, position)),
                _ => return Err(self.syntax_fault("'=' after the field key", position)),
            }
            position += self.plain_bytes(position);
        }
    }
}

/// The bytes that have no special meaning in a name.
const PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[0x7f] = false;
    plain[b' ' as usize] = false;
    plain[b',' as usize] = false;
    plain[b'=' as usize] = false;
    plain[b'\\' as usize] = false;
    // The first byte of U+0080 to U+009F, control characters too.
    plain[0xc2] = false;
    plain
};
