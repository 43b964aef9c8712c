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
        let mut cursor = Cursor { body, at: start, start, limits, long: None };
        cursor.spaces();
        if cursor.peek() == Some(b'#') || cursor.ends() {
            start = next_line(body, cursor.at);
            continue;
        }
        if cursor.at == body.len() {
            break;
        }
        match cursor.line(precision) {
            Ok(point) => {
                outcomes.push((number, point));
                start = next_line(body, cursor.at);
            }
            Err(fault) => {
                outcomes.push((number, None));
                start = match cursor.long {
                    Some(long) if fault.open || !long.looks_closed(body) => next_line(body, long.opened),
                    _ => next_line(body, fault.at),
                };
            }
        }
    }
    outcomes
}

/// An error in a line.
struct Fault {
    /// The physical line.
    at: usize,
    /// True if the error is a string without an end, or one that crosses a newline and ends where no string can end.
    open: bool,
}

/// The first string of a line that crosses a newline.
#[derive(Clone, Copy)]
struct Long {
    opened: usize,
    closed: Option<usize>,
}

impl Long {
    /// Returns true if the physical line with the closing quote has an odd number of quotes. A line that is valid on
    /// its own has an even number.
    fn looks_closed(self, body: &[u8]) -> bool {
        let Some(closed) = self.closed else { return false };
        let first = body[..closed].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = body[first..].split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut quotes = 0;
        let mut at = 0;
        while at < line.len() {
            match line[at] {
                b'\\' => at += 1,
                b'"' => quotes += 1,
                _ => {}
            }
            at += 1;
        }
        quotes % 2 == 1
    }
}

struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
    start: usize,
    limits: &'a Limits,
    long: Option<Long>,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.body.get(self.at).copied()
    }

    fn spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    /// Returns true if the line ends here.
    fn ends(&self) -> bool {
        matches!(&self.body[self.at..], [] | [b'\r'] | [b'\n', ..] | [b'\r', b'\n', ..])
    }

    fn wrong<T>(&self) -> Result<T, Fault> {
        Err(Fault { at: self.at, open: false })
    }

    /// Parses the line that begins here. Checks the series last, so that a line with only that error is skipped as a
    /// whole.
    fn line(&mut self, precision: Precision) -> Result<Option<Point>, Fault> {
        let series = self.series()?;
        self.spaces();
        if self.ends() {
            return self.wrong();
        }
        let fields = self.fields()?;
        let timestamp = self.timestamp(precision)?;
        if self.at - self.start > self.limits.line_bytes {
            return self.wrong();
        }
        let named = names(&series, self.limits);
        Ok(named.map(|(measurement, tags)| Point { measurement, tags, fields, timestamp }))
    }

    /// Returns everything up to the first space that is not escaped by a backslash.
    fn series(&mut self) -> Result<String, Fault> {
        let first = self.at;
        loop {
            match self.peek() {
                None | Some(b'\n') => return self.wrong(),
                Some(b' ') if self.body[self.at - 1] != b'\\' => break,
                Some(_) => self.at += 1,
            }
        }
        String::from_utf8(self.body[first..self.at].to_vec()).or_else(|_| self.wrong())
    }

    fn fields(&mut self) -> Result<Vec<(String, Value)>, Fault> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        let mut count = 0;
        loop {
            let key = self.field_key()?;
            let value = if self.peek() == Some(b'"') { self.text()? } else { self.plain()? };
            count += 1;
            match fields.iter_mut().find(|(known, _)| *known == key) {
                Some((_, earlier)) => *earlier = value,
                None => fields.push((key, value)),
            }
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        if count > self.limits.fields { self.wrong() } else { Ok(fields) }
    }

    fn field_key(&mut self) -> Result<String, Fault> {
        let first = self.at;
        let mut key = Vec::new();
        loop {
            if self.ends() {
                return self.wrong();
            }
            match (self.body[self.at], self.body.get(self.at + 1)) {
                (b'=', _) => break,
                (b',' | b' ', _) => return self.wrong(),
                (b'\\', Some(&next @ (b',' | b'=' | b' '))) => {
                    key.push(next);
                    self.at += 2;
                }
                (byte, _) => {
                    key.push(byte);
                    self.at += 1;
                    if byte == b'\\' && self.ends() {
                        return self.wrong();
                    }
                }
            }
        }
        let Ok(key) = String::from_utf8(key) else { return self.wrong() };
        if self.at == first || key.chars().any(char::is_control) || key.len() > self.limits.name_bytes {
            return self.wrong();
        }
        self.at += 1;
        Ok(key)
    }

    /// Parses the string that opens here. Its end must be within `line_bytes` of the start of the line.
    fn text(&mut self) -> Result<Value, Fault> {
        let opened = self.at;
        let window = &self.body[..self.body.len().min(self.start + self.limits.line_bytes).max(opened + 1)];
        let mut text = Vec::new();
        let mut at = opened + 1;
        let closed = loop {
            match (window.get(at), window.get(at + 1)) {
                (None, _) => break None,
                (Some(b'"'), _) => break Some(at),
                (Some(b'\\'), Some(&next @ (b'"' | b'\\'))) => {
                    text.push(next);
                    at += 2;
                }
                (Some(&byte), _) => {
                    text.push(byte);
                    at += 1;
                }
            }
        };
        let is_long = closed.is_none() || self.body[opened..at].contains(&b'\n');
        if is_long && self.long.is_none() {
            self.long = Some(Long { opened, closed });
        }
        let sent = opened + 1..at;
        self.at = at + 1;
        if closed.is_none() || !(self.ends() || matches!(self.peek(), Some(b',' | b' '))) {
            return Err(Fault { at: self.at.min(self.body.len()), open: is_long });
        }
        let bad = std::str::from_utf8(&self.body[sent.clone()]).err().map(|error| error.valid_up_to());
        match bad {
            Some(offset) => Err(Fault { at: sent.start + offset, open: false }),
            None => Ok(Value::Text(String::from_utf8_lossy(&text).into_owned())),
        }
    }

    /// Parses a number or a boolean.
    fn plain(&mut self) -> Result<Value, Fault> {
        let mut token = String::new();
        while !self.ends() && !matches!(self.peek(), Some(b',' | b' ')) {
            token.push(char::from(self.body[self.at]));
            self.at += 1;
        }
        plain_value(&token).map_or_else(|| self.wrong(), Ok)
    }

    fn timestamp(&mut self, precision: Precision) -> Result<Option<i64>, Fault> {
        self.spaces();
        if self.ends() {
            return Ok(None);
        }
        let mut token = String::new();
        while !self.ends() && self.peek() != Some(b' ') {
            token.push(char::from(self.body[self.at]));
            self.at += 1;
        }
        self.spaces();
        match nanoseconds(&token, precision) {
            Some(time) if self.ends() => Ok(Some(time)),
            _ => self.wrong(),
        }
    }
}

fn count_newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// Returns the start of the physical line after the one that contains `at`.
fn next_line(body: &[u8], at: usize) -> usize {
    let rest = body.get(at..).unwrap_or_default();
    rest.iter().position(|&byte| byte == b'\n').map_or(body.len(), |newline| at + newline + 1)
}

type Names = (String, Vec<(String, String)>);

/// Parses the names of a series, in which all spaces are escaped.
fn names(series: &str, limits: &Limits) -> Option<Names> {
    let mut letters = series.chars().peekable();
    let measurement = name(&mut letters, &[',', ' '], limits)?;
    if series.starts_with('#') {
        return None;
    }
    let mut tags = Vec::new();
    while let Some(separator) = letters.next() {
        if separator != ',' {
            return None;
        }
        let key = name(&mut letters, &[',', '=', ' '], limits)?;
        if letters.next() != Some('=') {
            return None;
        }
        tags.push((key, name(&mut letters, &[',', '=', ' '], limits)?));
    }
    tags.sort();
    let twice = tags.windows(2).any(|pair| pair[0].0 == pair[1].0);
    (!twice && tags.len() <= limits.tags).then_some((measurement, tags))
}

/// Parses the non-empty name up to a separator or the end.
fn name(
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

fn plain_value(token: &str) -> Option<Value> {
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
fn nanoseconds(token: &str, precision: Precision) -> Option<i64> {
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
