//! Parses CSV as `GET /api/v1/readings` answers it: the columns `sensor`, `tag.…`, `ts` and the fields. Quotes tell texts
//! from numbers and booleans, and an empty text from no value.

use std::borrow::Cow;
use std::collections::BTreeSet;

use memchr::{memchr, memchr_iter, memchr2};

use crate::fields::keep_last_of_equal_keys;
use crate::json::parse_number;
use crate::line_protocol::parse_series;
use crate::names::{self, named_field};
use crate::{Point, PointSeries, Points};
use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Precision, Reason, Rejection, Sensor, time};

/// The column with the sensor's key.
const SENSOR: &str = "sensor";
/// The prefix of columns with tags, which the sensor's key has, too.
const TAG_PREFIX: &str = "tag.";
/// The column with the time.
const TS: &str = "ts";
/// Maximum number of cells in a row, because they take more memory than their text.
const COLUMNS_MAX: usize = 4096;
/// Blank lines after which the parser pauses.
const BLANK_LINES_MAX: usize = 4096;

/// Parses an unquoted cell as a number or boolean; `None` if it is a text.
#[must_use]
pub fn parse_bare(cell: &str) -> Option<RawValue<'static>> {
    match cell {
        "true" => Some(RawValue::Boolean(true)),
        "false" => Some(RawValue::Boolean(false)),
        _ => parse_number(cell),
    }
}

/// The readings of a table.
#[derive(Debug)]
pub struct Rows<'a> {
    body: &'a [u8],
    offset: usize,
    /// The number of the line at `offset`.
    line: usize,
    /// True if the parser pauses between blank lines.
    is_paused: bool,
    precision: Precision,
    limits: Limits,
    /// The columns, once the first row is read.
    columns: Option<Columns<'a>>,
    cells: Vec<Cell<'a>>,
    /// The sensor of the last row and its cell, because the rows of a sensor follow each other.
    sensor: Option<(Cow<'a, str>, Sensor)>,
    /// The fields of the current row, which the returned point borrows.
    fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
}

/// The columns of a table.
#[derive(Debug)]
struct Columns<'a> {
    /// The index of `ts`. The fields follow.
    ts: usize,
    fields: Vec<Cow<'a, str>>,
}

#[derive(Debug)]
struct Cell<'a> {
    text: Cow<'a, str>,
    is_quoted: bool,
}

impl<'a> Rows<'a> {
    /// A parser of `body`. Integer timestamps are in `precision`.
    #[must_use]
    pub fn new(body: &'a [u8], precision: Precision, limits: Limits) -> Self {
        let cells = Vec::new();
        let fields = Vec::new();
        let is_paused = false;
        Self { body, offset: 0, line: 1, is_paused, precision, limits, columns: None, cells, sensor: None, fields }
    }

    /// Returns the next row that is not empty, and the number of its first line. A line break in quotes does not end it.
    /// `None` is the end or a pause.
    fn next_row(&mut self) -> Option<(usize, &'a [u8])> {
        self.is_paused = false;
        let mut blank_lines = 0;
        while self.offset < self.body.len() {
            let rest = &self.body[self.offset..];
            let mut is_quoted = false;
            let mut end = 0;
            while let Some(found) = memchr2(b'"', b'\n', &rest[end..]) {
                end += found;
                match rest[end] {
                    b'"' => is_quoted = !is_quoted,
                    _ if !is_quoted => break,
                    _ => {}
                }
                end += 1;
            }
            if is_quoted || rest.get(end) != Some(&b'\n') {
                end = rest.len();
            }
            let number = self.line;
            self.line += memchr_iter(b'\n', &rest[..end]).count() + 1;
            self.offset += end + 1;
            let row = &rest[..end];
            let row = row.strip_suffix(b"\r").unwrap_or(row);
            if !row.is_empty() {
                return Some((number, row));
            }
            blank_lines += 1;
            if blank_lines == BLANK_LINES_MAX {
                self.is_paused = true;
                break;
            }
        }
        None
    }

    /// Splits a row into cells.
    fn split(&mut self, row: &'a [u8]) -> Result<(), Reason> {
        let limit = self.limits.line_bytes;
        if row.len() > limit {
            let key = "limits.line_bytes";
            return Err(Reason::Limit { what: "bytes of one reading", found: row.len(), limit, key });
        }
        let mut rest = std::str::from_utf8(row).map_err(|_| Reason::NotUtf8)?;
        self.cells.clear();
        loop {
            let quoted = rest.strip_prefix('"');
            let (text, after) = match quoted {
                Some(quoted) => {
                    let Some(end) = closing_quote(quoted.as_bytes()) else {
                        return Err(Reason::Csv("a quoted cell has no end".to_owned()));
                    };
                    (unescape(&quoted[..end]), &quoted[end + 1..])
                }
                None => {
                    let end = memchr(b',', rest.as_bytes()).unwrap_or(rest.len());
                    (Cow::Borrowed(&rest[..end]), &rest[end..])
                }
            };
            if self.cells.len() == COLUMNS_MAX {
                return Err(Reason::Csv(format!("the table has more than {COLUMNS_MAX} columns: read fewer fields")));
            }
            self.cells.push(Cell { text, is_quoted: quoted.is_some() });
            match after.strip_prefix(',') {
                Some(next) => rest = next,
                None if after.is_empty() => return Ok(()),
                None => return Err(Reason::Csv("expected ',' or the end of the row after a quoted cell".to_owned())),
            }
        }
    }

    /// Makes the columns of the first row.
    fn columns(&mut self) -> Result<Columns<'a>, Reason> {
        let before: Vec<Cow<'a, str>> = self.cells.iter().map(|cell| cell.text.clone()).collect();
        let ts = before.iter().position(|name| name == TS);
        let is_answer =
            |ts: &usize| before[0] == SENSOR && before[..*ts].iter().skip(1).all(|name| name.starts_with(TAG_PREFIX));
        let Some(ts) = ts.filter(is_answer) else {
            return Err(Reason::Csv(
                "the columns are not sensor,tag.…,ts,field… as GET /api/v1/readings answers them: import other tables with hourglass import".to_owned(),
            ));
        };
        let taken: BTreeSet<&str> = before[..=ts].iter().map(|name| &**name).collect();
        let is_taken = |name: &str| taken.contains(name);
        let fields = before[ts + 1..].iter().map(|name| Cow::from(named_field(name, is_taken))).collect::<Vec<_>>();
        fields.iter().try_for_each(|name| names::FIELD_KEY.check(name, &self.limits))?;
        Ok(Columns { ts, fields })
    }

    /// Reads the cells as a reading. Leaves its fields in `fields`, and returns its time and whether that has a unit.
    fn read(&mut self) -> Result<(i64, bool), Reason> {
        let Some(columns) = &self.columns else { return Err(Reason::MissingFields) };
        let width = columns.ts + 1 + columns.fields.len();
        if self.cells.len() != width {
            let text = format!("the row has {} cells, but there are {width} columns", self.cells.len());
            return Err(Reason::Csv(text));
        }
        let mut cells = self.cells.drain(..);
        let key = cells.next().map(|cell| cell.text).unwrap_or_default();
        if self.sensor.as_ref().is_none_or(|(known, _)| *known != key) {
            let sensor = parse_series(&key, &self.limits).map_err(|error| error.reason)?;
            self.sensor = Some((key, sensor));
        }
        let ts = cells.nth(columns.ts - 1).map(|cell| cell.text).unwrap_or_default();
        let time = parse_time(&ts, self.precision)?;
        self.fields.clear();
        for (name, Cell { text, is_quoted }) in columns.fields.iter().zip(cells) {
            if text.is_empty() && !is_quoted {
                continue;
            }
            let bare = if is_quoted { None } else { parse_bare(&text) };
            self.fields.push((name.clone(), bare.unwrap_or(RawValue::String(text))));
            names::check_fields(self.fields.len(), &self.limits)?;
        }
        keep_last_of_equal_keys(&mut self.fields, &mut Vec::new());
        if self.fields.is_empty() { Err(Reason::Csv("the row has no values".to_owned())) } else { Ok(time) }
    }
}

/// The position of the quote that ends a cell; one that is doubled does not.
fn closing_quote(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        end += memchr(b'"', bytes.get(end..)?)?;
        if bytes.get(end + 1) != Some(&b'"') {
            return Some(end);
        }
        end += 2;
    }
}

fn unescape(quoted: &str) -> Cow<'_, str> {
    if quoted.contains('"') { quoted.replace("\"\"", "\"").into() } else { quoted.into() }
}

/// Parses a time as it is answered: RFC 3339, or an integer in `precision`. The former has a unit, so the second value is
/// true.
fn parse_time(text: &str, precision: Precision) -> Result<(i64, bool), Reason> {
    let time = match text.parse() {
        Ok(value) => precision.to_ns(value).map(|time| (time, false)),
        Err(_) => {
            let time = time::parse_rfc3339(text).ok_or_else(|| Reason::InvalidTimestamp(names::shorten(text)))?;
            Some((time, true))
        }
    };
    time.ok_or_else(|| Reason::TimeOutOfRange(names::shorten(text)))
}

impl<'a> Points<'a> for Rows<'a> {
    fn is_paused(&self) -> bool {
        self.is_paused
    }

    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        if self.columns.is_none() {
            let (number, row) = self.next_row()?;
            match self.split(row).and_then(|()| self.columns()) {
                Ok(columns) => self.columns = Some(columns),
                Err(reason) => {
                    self.offset = self.body.len();
                    return Some(Err(Rejection::new(number, 0, row, reason)));
                }
            }
        }
        let (number, row) = self.next_row()?;
        let (timestamp, has_unit) = match self.split(row).and_then(|()| self.read()) {
            Ok((time, has_unit)) => (Some(time), has_unit),
            Err(reason) => return Some(Err(Rejection::new(number, 0, row, reason))),
        };
        let (_, sensor) = self.sensor.as_ref()?;
        // Without a text, a rejection has the reading as a line, because a row means nothing without its columns.
        let series = PointSeries::Read(sensor);
        Some(Ok(Point { number, text: &[], series, fields: &self.fields, timestamp, has_unit }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a line for each point, and the message of each rejection.
    fn parse(body: &str) -> Vec<String> {
        let mut rows = Rows::new(body.as_bytes(), Precision::Seconds, Limits::default());
        let mut found = Vec::new();
        while let Some(row) = rows.next() {
            found.push(match row {
                Ok(point) => crate::point::line_text(point.spelling(), point.fields, point.timestamp),
                Err(rejection) => rejection.message(),
            });
        }
        found
    }

    #[test]
    fn quotes_tell_texts_from_numbers_and_no_value() {
        let head = "sensor,tag.s,ts,%74s,b,\"c,d\"\r\n";
        let rows = "\"m,s=1\",1,5,1.5,true,\r\n\"m,s=1\",1,1970-01-01T00:00:06Z,,\"true\",\"a\"\"\nb\"\r\n\r\nm,,7,\"\",inf,9007199254740993\n";
        let expected = [
            "m,s=1 ts=1.5,b=true 5000000000",
            "m,s=1 b=\"true\",c\\,d=\"a\\\"\nb\" 6000000000",
            "m ts=\"\",b=\"inf\",c\\,d=9007199254740993i 7000000000",
        ];
        assert_eq!(parse(&format!("{head}{rows}")), expected);
        assert_eq!(parse(head), Vec::<String>::new());
        assert_eq!(parse(""), Vec::<String>::new());
    }

    /// Regression: 12 MiB of blank lines kept a thread for 0.34 s, because the parser skipped all before it returned.
    #[test]
    fn blank_lines_are_skipped_with_pauses() {
        let blank = "\n\r\n".repeat(BLANK_LINES_MAX);
        let body = format!("{blank}sensor,ts,v\n{blank}m,1,1\n{blank}");
        let mut rows = Rows::new(body.as_bytes(), Precision::Seconds, Limits::default());
        let mut pause = |count| (0..count).for_each(|_| assert!(rows.next().is_none() && rows.is_paused()));
        pause(4);
        assert_eq!(rows.next().expect("a row").expect("a point").number, 4 * BLANK_LINES_MAX + 2);
        assert!(!rows.is_paused());
        let pauses = (0..).take_while(|_| rows.next().is_none() && rows.is_paused()).count();
        assert_eq!(pauses, 2);
    }

    #[test]
    fn other_tables_and_undated_rows_are_rejected() {
        let wide = format!("sensor,ts{}", ",v".repeat(COLUMNS_MAX));
        for head in ["a,b", "sensor,v", "sensor,v,ts", "ts,sensor,v", "tag.s,ts,v", "\"sensor", &wide] {
            let found = parse(&format!("{head}\nm,1,1\nm,1,2\n"));
            assert!(found.len() == 1 && found[0].starts_with("line 1: "), "{head}: {found:?}");
        }
        let rows = "m,,1\nm,1\nm,1,\nm,x,1\n,1,1\n\"m\"x,1,1\nm,99999999999999,1\nm,1,\"2\n";
        let found = parse(&format!("sensor,ts,v\n{rows}"));
        assert!(found.len() == 8 && found.iter().all(|text| text.starts_with("line ")), "{found:?}");
    }
}
