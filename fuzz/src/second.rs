//! A second parser of line protocol, written only from the rules: byte by byte, copying every name, without regard to
//! speed. It shares no code with the parser under test, so results on which both agree are most likely right.
//!
//! A body consists of lines. Blank lines and those that begin with `#` are ignored. A line is
//! `measurement[,tag=value…] field=value[,…] [timestamp]`; it ends with LF, CR LF or the body, and only quoted strings
//! may contain newlines. An error rejects the physical line that it is in, and all earlier physical lines of the same
//! line. But if a string crosses a newline and does not look closed, only the physical line that opens it is rejected.

use hourglass::reading::{Limits, Precision};

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The bits, so that -0 is not 0.
    Float(u64),
    /// Written with an `i`.
    Integer(i64),
    /// Written with a `u`.
    Unsigned(u64),
    /// Written as one of ten words.
    Boolean(bool),
    /// Written in quotes.
    Text(String),
}

/// A valid line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Unescaped.
    pub measurement: String,
    /// Unescaped, by key.
    pub tags: Vec<(String, String)>,
    /// In the order sent; of equal keys, the last value at the first position.
    pub fields: Vec<(String, Value)>,
    /// In nanoseconds.
    pub timestamp: Option<i64>,
}

/// The number of a physical line, from 1, and its point, or `None` if it is rejected.
pub type Outcome = (usize, Option<Point>);

#[must_use]
pub fn read(body: &[u8], precision: Precision, limits: &Limits) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut start = 0;
    while start < body.len() {
        let number = 1 + count_newlines(&body[..start]);
        let mut cursor = Cursor { body, offset: start, start, limits, long_string: None };
        cursor.skip_spaces();
        if cursor.peek() == Some(b'#') || cursor.is_at_end() {
            start = next_line(body, cursor.offset);
            continue;
        }
        if cursor.offset == body.len() {
            break;
        }
        match cursor.parse_line(precision) {
            Ok(point) => {
                outcomes.push((number, point));
                start = next_line(body, cursor.offset);
            }
            Err(fault) => {
                outcomes.push((number, None));
                start = match cursor.long_string {
                    Some(long) if fault.is_open || !long.looks_closed(body) => next_line(body, long.opening_quote),
                    _ => next_line(body, fault.offset),
                };
            }
        }
    }
    outcomes
}

/// An error in a line.
struct Fault {
    /// Offset in the body; its physical line is rejected.
    offset: usize,
    /// True if the error is a string without an end, or one that crosses a newline and ends where no string can end.
    is_open: bool,
}

/// The first string of a line that crosses a newline.
#[derive(Clone, Copy)]
struct LongString {
    /// Offsets in the body.
    opening_quote: usize,
    closing_quote: Option<usize>,
}

impl LongString {
    /// Returns true if the physical line with the closing quote has an odd number of quotes. A line that is valid on
    /// its own has an even number.
    fn looks_closed(self, body: &[u8]) -> bool {
        let Some(closing_quote) = self.closing_quote else { return false };
        let first = body[..closing_quote].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = body[first..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut quotes = 0;
        let mut offset = 0;
        while offset < line.len() {
            match line[offset] {
                b'\\' => offset += 1,
                b'"' => quotes += 1,
                _ => {}
            }
            offset += 1;
        }
        quotes % 2 == 1
    }
}

struct Cursor<'a> {
    body: &'a [u8],
    offset: usize,
    start: usize,
    limits: &'a Limits,
    long_string: Option<LongString>,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.offset).copied()
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.offset += 1;
        }
    }

    /// Returns true if the line ends here.
    fn is_at_end(&self) -> bool {
        matches!(&self.body[self.offset..], [] | [b'\r'] | [b'\n', ..] | [b'\r', b'\n', ..])
    }

    fn fault<T>(&self) -> Result<T, Fault> {
        Err(Fault { offset: self.offset, is_open: false })
    }

    /// Parses the line that begins here. Checks the series last, so that a line with only that error is skipped as a
    /// whole.
    fn parse_line(&mut self, precision: Precision) -> Result<Option<Point>, Fault> {
        let series = self.parse_series()?;
        self.skip_spaces();
        if self.is_at_end() {
            return self.fault();
        }
        let fields = self.parse_fields()?;
        let timestamp = self.parse_timestamp(precision)?;
        if self.offset - self.start > self.limits.line_bytes {
            return self.fault();
        }
        let named = parse_names(&series, self.limits);
        Ok(named.map(|(measurement, tags)| Point { measurement, tags, fields, timestamp }))
    }

    /// Returns everything up to the first space that is not escaped by a backslash.
    fn parse_series(&mut self) -> Result<String, Fault> {
        let first = self.offset;
        loop {
            match self.peek() {
                None | Some(b'\n') => return self.fault(),
                Some(b' ') if self.body[self.offset - 1] != b'\\' => break,
                Some(_) => self.offset += 1,
            }
        }
        String::from_utf8(self.body[first..self.offset].to_vec()).or_else(|_| self.fault())
    }

    fn parse_fields(&mut self) -> Result<Vec<(String, Value)>, Fault> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        let mut count = 0;
        loop {
            let key = self.parse_field_key()?;
            let value = if self.peek() == Some(b'"') { self.parse_string()? } else { self.parse_plain()? };
            count += 1;
            match fields.iter_mut().find(|(known, _)| *known == key) {
                Some((_, earlier)) => *earlier = value,
                None => fields.push((key, value)),
            }
            if self.peek() != Some(b',') {
                break;
            }
            self.offset += 1;
        }
        if count > self.limits.fields { self.fault() } else { Ok(fields) }
    }

    fn parse_field_key(&mut self) -> Result<String, Fault> {
        let first = self.offset;
        let mut key = Vec::new();
        loop {
            if self.is_at_end() {
                return self.fault();
            }
            match (self.body[self.offset], self.body.get(self.offset + 1)) {
                (b'=', _) => break,
                (b',' | b' ', _) => return self.fault(),
                (b'\\', Some(&next @ (b',' | b'=' | b' '))) => {
                    key.push(next);
                    self.offset += 2;
                }
                (byte, _) => {
                    key.push(byte);
                    self.offset += 1;
                    if byte == b'\\' && self.is_at_end() {
                        return self.fault();
                    }
                }
            }
        }
        let Ok(key) = String::from_utf8(key) else { return self.fault() };
        if self.offset == first || key.chars().any(char::is_control) || key.len() > self.limits.name_bytes {
            return self.fault();
        }
        self.offset += 1;
        Ok(key)
    }

    /// Parses the string that opens here. Its end must be within `line_bytes` of the start of the line.
    fn parse_string(&mut self) -> Result<Value, Fault> {
        let opened = self.offset;
        let window = &self.body[..self.body.len().min(self.start + self.limits.line_bytes).max(opened + 1)];
        let mut text = Vec::new();
        let mut offset = opened + 1;
        let closed = loop {
            match (window.get(offset), window.get(offset + 1)) {
                (None, _) => break None,
                (Some(b'"'), _) => break Some(offset),
                (Some(b'\\'), Some(&next @ (b'"' | b'\\'))) => {
                    text.push(next);
                    offset += 2;
                }
                (Some(&byte), _) => {
                    text.push(byte);
                    offset += 1;
                }
            }
        };
        let is_long = closed.is_none() || self.body[opened..offset].contains(&b'\n');
        if is_long && self.long_string.is_none() {
            self.long_string = Some(LongString { opening_quote: opened, closing_quote: closed });
        }
        let sent = opened + 1..offset;
        self.offset = offset + 1;
        if closed.is_none() || !(self.is_at_end() || matches!(self.peek(), Some(b',' | b' '))) {
            return Err(Fault { offset: self.offset.min(self.body.len()), is_open: is_long });
        }
        let bad = std::str::from_utf8(&self.body[sent.clone()]).err().map(|error| error.valid_up_to());
        match bad {
            Some(valid_bytes) => Err(Fault { offset: sent.start + valid_bytes, is_open: false }),
            None => Ok(Value::Text(String::from_utf8_lossy(&text).into_owned())),
        }
    }

    /// Parses a number or a boolean.
    fn parse_plain(&mut self) -> Result<Value, Fault> {
        let mut token = String::new();
        while !self.is_at_end() && !matches!(self.peek(), Some(b',' | b' ')) {
            token.push(char::from(self.body[self.offset]));
            self.offset += 1;
        }
        parse_plain_value(&token).map_or_else(|| self.fault(), Ok)
    }

    fn parse_timestamp(&mut self, precision: Precision) -> Result<Option<i64>, Fault> {
        self.skip_spaces();
        if self.is_at_end() {
            return Ok(None);
        }
        let mut token = String::new();
        while !self.is_at_end() && self.peek() != Some(b' ') {
            token.push(char::from(self.body[self.offset]));
            self.offset += 1;
        }
        self.skip_spaces();
        match parse_nanoseconds(&token, precision) {
            Some(time) if self.is_at_end() => Ok(Some(time)),
            _ => self.fault(),
        }
    }
}

fn count_newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the start of the physical line after the one that contains `offset`.
fn next_line(body: &[u8], offset: usize) -> usize {
    let rest = body.get(offset..).unwrap_or_default();
    rest.iter().position(|&byte| byte == b'\n').map_or(body.len(), |newline| offset + newline + 1)
}

type Names = (String, Vec<(String, String)>);

/// Parses the names of a series, in which all spaces are escaped.
fn parse_names(series: &str, limits: &Limits) -> Option<Names> {
    let mut letters = series.chars().peekable();
    let measurement = parse_name(&mut letters, &[',', ' '], limits)?;
    if series.starts_with('#') {
        return None;
    }
    let mut tags = Vec::new();
    while let Some(separator) = letters.next() {
        if separator != ',' {
            return None;
        }
        let key = parse_name(&mut letters, &[',', '=', ' '], limits)?;
        if letters.next() != Some('=') {
            return None;
        }
        tags.push((key, parse_name(&mut letters, &[',', '=', ' '], limits)?));
    }
    tags.sort();
    let has_duplicates = tags.windows(2).any(|pair| pair[0].0 == pair[1].0);
    (!has_duplicates && tags.len() <= limits.tags).then_some((measurement, tags))
}

/// Parses the non-empty name up to a separator or the end.
fn parse_name(
    letters: &mut std::iter::Peekable<std::str::Chars<'_>>,
    separators: &[char],
    limits: &Limits,
) -> Option<String> {
    let mut name = String::new();
    while let Some(&letter) = letters.peek() {
        if separators.contains(&letter) {
            break;
        }
        letters.next();
        if letter == '\\' {
            // A name must not end in a backslash, which would escape the separator.
            match *letters.peek()? {
                next if separators.contains(&next) => {
                    letters.next();
                    name.push(next);
                    continue;
                }
                _ => {}
            }
        }
        if letter.is_control() {
            return None;
        }
        name.push(letter);
    }
    (!name.is_empty() && name.len() <= limits.name_bytes).then_some(name)
}

fn parse_plain_value(token: &str) -> Option<Value> {
    match token {
        "t" | "T" | "true" | "True" | "TRUE" => return Some(Value::Boolean(true)),
        "f" | "F" | "false" | "False" | "FALSE" => return Some(Value::Boolean(false)),
        _ => {}
    }
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = |text: &str| text.strip_prefix('-').unwrap_or(text).to_owned();
    if let Some(number) = token.strip_suffix('i') {
        return digits(&unsigned(number)).then(|| number.parse().ok().map(Value::Integer))?;
    }
    if let Some(number) = token.strip_suffix('u') {
        return digits(number).then(|| number.parse().ok().map(Value::Unsigned))?;
    }
    let magnitude = unsigned(token);
    let (mantissa, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (&*magnitude, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_fits = digits(&format!("{whole}{fraction}"));
    let exponent_fits = exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)));
    if !mantissa_fits || !exponent_fits {
        return None;
    }
    token.parse().ok().filter(|value: &f64| value.is_finite()).map(|value| Value::Float(value.to_bits()))
}

/// Parses a timestamp in nanoseconds, in a wider type that cannot overflow.
fn parse_nanoseconds(token: &str, precision: Precision) -> Option<i64> {
    let digits = token.strip_prefix('-').unwrap_or(token);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.len() > 19 {
        return None;
    }
    let magnitude: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let unit: i128 = match precision {
        Precision::Nanoseconds => 1,
        Precision::Microseconds => 1_000,
        Precision::Milliseconds => 1_000_000,
        Precision::Seconds => 1_000_000_000,
        Precision::Minutes => 60_000_000_000,
        Precision::Hours => 3_600_000_000_000,
        Precision::Auto if magnitude < 5_000_000_000 => 1_000_000_000,
        Precision::Auto if magnitude < 5_000_000_000_000 => 1_000_000,
        Precision::Auto if magnitude < 5_000_000_000_000_000 => 1_000,
        Precision::Auto => 1,
    };
    let time = if token.starts_with('-') { -magnitude * unit } else { magnitude * unit };
    // The range of InfluxDB: it excludes the two least i64 values, and the greatest.
    i64::try_from(time).ok().filter(|time| (i64::MIN + 2..i64::MAX).contains(time))
}
