//! Scanning operations on the bytes of a body: finds the ends of names, lines and series.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memchr2_iter, memrchr};

use super::escape::{separates, unescape};
use crate::names;
use hourglass_model::reading::Reason;

/// An error with its position in the body.
#[derive(Debug)]
pub(super) struct LineFault {
    pub at: usize,
    pub reason: Reason,
    /// True if the error concerns the whole line and has no column.
    pub whole_line: bool,
    /// True if a string of this line has no closing quote, or one where no string can end.
    pub unclosed: bool,
}

impl LineFault {
    pub fn new(at: usize, reason: Reason) -> Self {
        Self { at, reason, whole_line: false, unclosed: false }
    }

    pub fn whole_line(at: usize, reason: Reason) -> Self {
        Self { whole_line: true, ..Self::new(at, reason) }
    }
}

/// The end of a line's text, and the start of the next line.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineEnd {
    pub at: usize,
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
    pub fn byte(&self, at: usize) -> Option<u8> {
        self.body.get(at).copied()
    }

    #[inline]
    pub fn bytes(&self, from: usize, to: usize) -> &'a [u8] {
        &self.body[from..to]
    }

    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// The text between two positions, both next to ASCII bytes and therefore not inside a character.
    #[inline]
    pub fn str(&self, from: usize, to: usize) -> Result<&'a str, LineFault> {
        match self.text {
            Some(text) => Ok(&text[from..to]),
            None => std::str::from_utf8(&self.body[from..to])
                .map_err(|error| LineFault::new(from + error.valid_up_to(), Reason::NotUtf8)),
        }
    }

    /// A syntax error at `at`, with the expected text and the character found.
    pub fn expected(&self, expected: &'static str, at: usize) -> LineFault {
        let found = match self.line_ends_at(at) {
            Some(_) => None,
            None => self.char_at(at),
        };
        LineFault::new(at, Reason::Syntax { expected, found })
    }

    /// The character at `at`; the replacement character for invalid UTF-8.
    fn char_at(&self, at: usize) -> Option<char> {
        let rest = &self.body[at..self.body.len().min(at + 4)];
        rest.utf8_chunks().next().map(|chunk| chunk.valid().chars().next().unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    #[inline]
    pub fn skip_spaces(&self, mut at: usize) -> usize {
        while self.byte(at) == Some(b' ') {
            at += 1;
        }
        at
    }

    /// The end of a line, if there is one exactly at `at`: LF, CR LF, or the end of the body with or without CR.
    #[inline]
    pub fn line_ends_at(&self, at: usize) -> Option<LineEnd> {
        match (self.byte(at), self.byte(at + 1)) {
            (Some(b'\n'), _) | (Some(b'\r'), None) => Some(LineEnd { at, next: at + 1 }),
            (Some(b'\r'), Some(b'\n')) => Some(LineEnd { at, next: at + 2 }),
            (None, _) => Some(LineEnd { at, next: at }),
            _ => None,
        }
    }

    /// The end of the physical line that contains `at`.
    pub fn line_end(&self, at: usize) -> LineEnd {
        let (newline, next) = match memchr(b'\n', &self.body[at..]) {
            Some(offset) => (at + offset, at + offset + 1),
            None => (self.len(), self.len()),
        };
        let has_return = newline > at && self.body[newline - 1] == b'\r';
        LineEnd { at: newline - usize::from(has_return), next }
    }

    /// The physical line that contains `at`.
    pub fn physical_line(&self, at: usize) -> &'a [u8] {
        let start = memrchr(b'\n', &self.body[..at]).map_or(0, |newline| newline + 1);
        &self.body[start..self.line_end(at).at]
    }

    pub fn newlines(&self, from: usize, to: usize) -> usize {
        memchr_iter(b'\n', &self.body[from..to]).count()
    }

    /// The first space not preceded by a backslash. The tags before it are not checked.
    pub fn series_end(&self, first: usize) -> Result<usize, LineFault> {
        for offset in memchr2_iter(b' ', b'\n', &self.body[first..]) {
            let at = first + offset;
            if self.body[at] == b'\n' {
                break;
            }
            if self.body[at - 1] != b'\\' {
                return Ok(at);
            }
        }
        let end = self.line_end(first).at;
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

    /// The number of bytes from `at` on that have no special meaning in a name.
    #[inline]
    fn plain_bytes(&self, at: usize) -> usize {
        let rest = &self.body[at..];
        rest.iter().position(|&byte| !PLAIN[usize::from(byte)]).unwrap_or(rest.len())
    }

    /// As [`Scanner::field_key`], for a key with a special byte at `at` and none before it.
    #[cold]
    fn field_key_with_escapes(&self, start: usize, mut at: usize) -> Result<(Cow<'a, str>, usize), LineFault> {
        loop {
            match self.byte(at) {
                Some(b'=') if at > start => {
                    let key = unescape(self.str(start, at)?, separates);
                    return Ok((key, at + 1));
                }
                Some(b'\\') if self.line_ends_at(at + 1).is_some() => {
                    return Err(LineFault::new(at, Reason::TrailingBackslash));
                }
                Some(b'\\') => at += 1 + usize::from(self.byte(at + 1).is_some_and(separates)),
                // U+0080 to U+009F are the control characters beyond ASCII: C2 80 to C2 9F.
                Some(0xc2) => match self.byte(at + 1) {
                    Some(code @ 0x80..=0x9f) => {
                        return Err(LineFault::new(at, Reason::ControlCharacter(u32::from(code))));
                    }
                    _ => at += 1,
                },
                Some(code) if code.is_ascii_control() && self.line_ends_at(at).is_none() => {
                    return Err(LineFault::new(at, Reason::ControlCharacter(u32::from(code))));
                }
                _ if at == start => return Err(self.expected(names::FIELD_KEY.wanted, at)),
                _ => return Err(self.expected("'=' after the field key", at)),
            }
            at += self.plain_bytes(at);
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
