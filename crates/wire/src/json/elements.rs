//! Splits a body into the texts of its readings by quotes and brackets only, so that the end of a reading with invalid
//! JSON is still found.

use memchr::{memchr, memchr_iter, memchr2};

use hourglass_model::reading::{Reason, Rejection};

/// The text of one reading, which may be invalid.
#[derive(Debug, Clone, Copy)]
pub struct Element<'a> {
    /// The number of the line, or the index in the array, from 1.
    pub number: usize,
    /// The text of the reading. Includes surrounding white space if the element is a line.
    pub text: &'a [u8],
}

/// The layout of the readings in the body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    /// One per line.
    Lines,
    /// A sequence of readings that may span several lines.
    Spread,
    /// The elements of one array.
    Array,
    /// The body is at its end, or the rest cannot be split.
    Done,
}

/// The elements of a body. Each byte is read a bounded number of times.
#[derive(Debug)]
pub struct Elements<'a> {
    body: &'a [u8],
    layout: Layout,
    offset: usize,
    /// The number of the line at `offset`, or of the last element of the array.
    number: usize,
}

impl<'a> Elements<'a> {
    /// The elements of `body`.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        let start = skip_white(body, 0);
        match body.get(start) {
            None => Self { body, layout: Layout::Done, offset: start, number: 0 },
            Some(b'[') => Self { body, layout: Layout::Array, offset: start + 1, number: 0 },
            Some(_) => Self { body, layout: detect_layout(body, start), offset: 0, number: 1 },
        }
    }

    fn next_line(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        while self.offset < self.body.len() {
            let text = rest_of_line(self.body, self.offset);
            let number = self.number;
            self.offset += text.len() + 1;
            self.number += 1;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if skip_white(text, 0) < text.len() {
                return Some(Ok(Element { number, text }));
            }
        }
        None
    }

    fn next_spread(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        let start = skip_white(self.body, self.offset);
        if start == self.body.len() {
            return None;
        }
        self.number += memchr_iter(b'\n', &self.body[self.offset..start]).count();
        let number = self.number;
        let end = value_end(self.body, start).unwrap_or(self.body.len()).max(start + 1);
        self.number += memchr_iter(b'\n', &self.body[start..end]).count();
        self.offset = end;
        Some(Ok(Element { number, text: &self.body[start..end] }))
    }

    fn next_in_array(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        let first = self.number == 0;
        let mut start = skip_white(self.body, self.offset);
        self.number += 1;
        match self.body.get(start) {
            Some(b']') => return self.finish_array(start + 1).map(Err),
            Some(b',') if !first => start = skip_white(self.body, start + 1),
            Some(_) if first => {}
            _ => return Some(Err(self.give_up(start, "expected ',' or ']' after an element of the array"))),
        }
        match self.body.get(start) {
            None => Some(Err(self.give_up(start, "the array has no end: expected an element or ']'"))),
            Some(b']') => Some(Err(self.give_up(start, "expected an element after the last ',' of the array"))),
            Some(_) => match value_end(self.body, start) {
                Some(end) => {
                    self.offset = end;
                    Some(Ok(Element { number: self.number, text: &self.body[start..end] }))
                }
                None => Some(Err(self.give_up(start, "the element has no end"))),
            },
        }
    }

    fn finish_array(&mut self, offset: usize) -> Option<Rejection> {
        let rest = skip_white(self.body, offset);
        self.layout = Layout::Done;
        (rest < self.body.len()).then(|| self.give_up(rest, "expected nothing after the end of the array"))
    }

    /// Ends the iteration with a rejection. Its message states if the rest of the body was not read.
    fn give_up(&mut self, offset: usize, why: &str) -> Rejection {
        self.layout = Layout::Done;
        let rest = &self.body[offset..];
        let consequence = if rest.len() > 1 { "; the body was not read from here on" } else { "" };
        Rejection::new(self.number, 0, rest, Reason::Json(format!("{why}{consequence}")))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Rejection>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.layout {
            Layout::Lines => self.next_line(),
            Layout::Spread => self.next_spread(),
            Layout::Array => self.next_in_array(),
            Layout::Done => None,
        }
    }
}

/// Detects the layout: `Lines`, unless the first reading spans several lines. It does if it is valid JSON that way, or
/// if no later line is valid JSON by itself.
fn detect_layout(body: &[u8], start: usize) -> Layout {
    let first_line = rest_of_line(body, start);
    let end = value_end(body, start);
    if body[start] != b'{' || end.is_some_and(|end| end <= start + first_line.len()) {
        return Layout::Lines;
    }
    if end.is_some_and(|end| is_json(&body[start..end])) {
        return Layout::Spread;
    }
    let mut later = body[start + first_line.len()..].split(|&byte| byte == b'\n');
    if later.any(|line| line.trim_ascii_start().starts_with(b"{") && is_json(line)) {
        Layout::Lines
    } else {
        Layout::Spread
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(text).is_ok()
}

/// The rest of the line from `offset`, without its newline.
fn rest_of_line(body: &[u8], offset: usize) -> &[u8] {
    let rest = &body[offset..];
    &rest[..memchr(b'\n', rest).unwrap_or(rest.len())]
}

fn skip_white(body: &[u8], start: usize) -> usize {
    let white = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    body[start..].iter().position(|byte| !white(byte)).map_or(body.len(), |offset| start + offset)
}

/// The end of the value at `start`. An object or array ends at its last closing bracket; any other value ends before
/// the next comma, bracket or white space.
fn value_end(body: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut offset = start;
    loop {
        match body.get(offset)? {
            b'"' => {
                offset = string_end(body, offset)?;
                if depth == 0 {
                    return Some(offset);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                // An unmatched closing bracket ends the value.
                depth = match depth {
                    0 => return Some(offset),
                    1 => return Some(offset + 1),
                    depth => depth - 1,
                };
            }
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return Some(offset),
            _ if depth == 0 && offset + 1 == body.len() => return Some(offset + 1),
            _ => {}
        }
        offset += 1;
    }
}

/// The position after the closing quote of the string that opens at `open`.
fn string_end(body: &[u8], open: usize) -> Option<usize> {
    let mut offset = open + 1;
    loop {
        offset += memchr2(b'"', b'\\', body.get(offset..)?)?;
        if body[offset] == b'"' {
            return Some(offset + 1);
        }
        offset += 2;
    }
}
