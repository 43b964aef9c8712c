//! Splits a body into the texts of its readings by quotes and brackets only, so that the end of a reading with invalid
//! JSON is still found.

use memchr::{memchr, memchr_iter, memchr2};

use hourglass_model::reading::{Reason, Rejection};

/// The text of one reading, which may be invalid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element<'a> {
    /// The number of the line, or the index in the array, from 1.
    pub number: usize,
    /// Includes surrounding white space if the element is a line.
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
pub(super) struct Elements<'a> {
    body: &'a [u8],
    layout: Layout,
    at: usize,
    /// The number of the line at `at`, or of the last element of the array.
    number: usize,
}

impl<'a> Elements<'a> {
    pub fn new(body: &'a [u8]) -> Self {
        let start = skip_white(body, 0);
        match body.get(start) {
            None => Self { body, layout: Layout::Done, at: start, number: 0 },
            Some(b'[') => Self { body, layout: Layout::Array, at: start + 1, number: 0 },
            Some(_) => Self { body, layout: layout_from(body, start), at: 0, number: 1 },
        }
    }

    fn next_line(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        while self.at < self.body.len() {
            let text = line_at(self.body, self.at);
            let number = self.number;
            self.at += text.len() + 1;
            self.number += 1;
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if skip_white(text, 0) < text.len() {
                return Some(Ok(Element { number, text }));
            }
        }
        None
    }

    fn next_spread(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        let start = skip_white(self.body, self.at);
        if start == self.body.len() {
            return None;
        }
        self.number += memchr_iter(b'\n', &self.body[self.at..start]).count();
        let number = self.number;
        let end = value_end(self.body, start).unwrap_or(self.body.len()).max(start + 1);
        self.number += memchr_iter(b'\n', &self.body[start..end]).count();
        self.at = end;
        Some(Ok(Element { number, text: &self.body[start..end] }))
    }

    fn next_in_array(&mut self) -> Option<Result<Element<'a>, Rejection>> {
        let first = self.number == 0;
        let mut start = skip_white(self.body, self.at);
        self.number += 1;
        match self.body.get(start) {
            Some(b']') => return self.after_array(start + 1).map(Err),
            Some(b',') if !first => start = skip_white(self.body, start + 1),
            Some(_) if first => {}
            _ => return Some(Err(self.give_up(start, "expected ',' or ']' after an element of the array"))),
        }
        match self.body.get(start) {
            None => Some(Err(self.give_up(start, "the array has no end: expected an element or ']'"))),
            Some(b']') => Some(Err(self.give_up(start, "expected an element after the last ',' of the array"))),
            Some(_) => match value_end(self.body, start) {
                Some(end) => {
                    self.at = end;
                    Some(Ok(Element { number: self.number, text: &self.body[start..end] }))
                }
                None => Some(Err(self.give_up(start, "the element has no end"))),
            },
        }
    }

    fn after_array(&mut self, at: usize) -> Option<Rejection> {
        let rest = skip_white(self.body, at);
        self.layout = Layout::Done;
        (rest < self.body.len()).then(|| self.give_up(rest, "expected nothing after the end of the array"))
    }

    /// Ends the iteration with a rejection. Its message states if the rest of the body was not read.
    fn give_up(&mut self, at: usize, why: &str) -> Rejection {
        self.layout = Layout::Done;
        let rest = &self.body[at..];
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
fn layout_from(body: &[u8], start: usize) -> Layout {
    let first_line = line_at(body, start);
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

/// The rest of the line from `at`, without its newline.
fn line_at(body: &[u8], at: usize) -> &[u8] {
    let rest = &body[at..];
    &rest[..memchr(b'\n', rest).unwrap_or(rest.len())]
}

fn skip_white(body: &[u8], at: usize) -> usize {
    let white = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    body[at..].iter().position(|byte| !white(byte)).map_or(body.len(), |offset| at + offset)
}

/// The end of the value at `start`. An object or array ends at its last closing bracket; any other value ends before
/// the next comma, bracket or white space.
fn value_end(body: &[u8], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        match body.get(at)? {
            b'"' => {
                at = string_end(body, at)?;
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                // An unmatched closing bracket ends the value.
                depth = match depth {
                    0 => return Some(at),
                    1 => return Some(at + 1),
                    depth => depth - 1,
                };
            }
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return Some(at),
            _ if depth == 0 && at + 1 == body.len() => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
}

/// The position after the closing quote of the string that opens at `open`.
fn string_end(body: &[u8], open: usize) -> Option<usize> {
    let mut at = open + 1;
    loop {
        at += memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}
