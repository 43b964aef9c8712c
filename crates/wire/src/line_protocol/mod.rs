//! The parser of line protocol: `climate,room=lab,sensor=s1 temp=22.1,humidity=45 1768485600000000000`. The points
//! borrow from the body, an invalid line does not affect the others, and a missing timestamp stays missing. A line's
//! series is parsed separately, because the caller usually knows its text already.

mod escape;
mod fields;
mod number;
mod scanner;
mod series;
mod write;

use super::point::{Point, PointSeries, Points};
use hourglass_model::reading::{Limits, Precision, Reason, Rejection};

pub use series::{SeriesError, parse_series};
pub(crate) use write::write_fields;
pub use write::write_line;

use fields::LineFields;
use scanner::{LineEnd, LineFault, Scanner};

/// A parser that yields the lines of a body one at a time. It skips blank lines and comments.
#[derive(Debug)]
pub struct Lines<'a> {
    scanner: Scanner<'a>,
    precision: Precision,
    limits: Limits,
    /// The start of the next line.
    position: usize,
    /// The physical number of that line.
    number: usize,
    /// The fields of the current line, reused to avoid an allocation per line.
    fields: LineFields<'a>,
    /// Bytes read a second time after an error, for a test.
    #[cfg(test)]
    reread_bytes: usize,
}

impl<'a> Lines<'a> {
    /// A parser of `body`. Integer timestamps are in `precision`.
    #[must_use]
    pub fn new(body: &'a [u8], precision: Precision, limits: Limits) -> Self {
        Self {
            scanner: Scanner::new(body),
            precision,
            limits,
            position: 0,
            number: 1,
            fields: LineFields::default(),
            #[cfg(test)]
            reread_bytes: 0,
        }
    }

    /// Skips blank lines and comments. Returns the position of the first byte of the next line that is not a space.
    fn skip_to_text(&mut self) -> Option<usize> {
        loop {
            let first = self.scanner.skip_spaces(self.position);
            let end = match self.scanner.byte(first)? {
                b'#' => self.scanner.line_end(first),
                b'\n' | b'\r' => match self.scanner.line_ends_at(first) {
                    Some(end) => end,
                    None => return Some(first),
                },
                _ => return Some(first),
            };
            self.position = end.next;
            self.number += 1;
        }
    }

    fn read(&mut self, start: usize, first: usize) -> Result<ParsedLine<'a>, LineFault> {
        self.fields.clear();
        let scanner = self.scanner;
        let series_end = scanner.series_end(first)?;
        let series = scanner.str(first, series_end)?;
        let fields_start = scanner.skip_spaces(series_end);
        if scanner.line_ends_at(fields_start).is_some() {
            return Err(LineFault::new(fields_start, Reason::MissingFields));
        }
        let after_fields = self.fields.read(&scanner, start, fields_start, &self.limits)?;
        let (timestamp, end) = number::timestamp(&scanner, after_fields, self.precision)?;
        let line_bytes = end.position - start;
        if line_bytes > self.limits.line_bytes {
            return Err(LineFault::whole_line(end.position, line_bytes_limit(line_bytes, &self.limits)));
        }
        Ok(ParsedLine { series, timestamp, end })
    }

    /// Rejects the line at `start` and resumes after the first newline after the error. If a string was opened before a
    /// newline and has probably no closing quote, the error is at its opening quote, and reading resumes on the next
    /// physical line. Otherwise that quote would hide all lines up to a later quote or the end.
    ///
    /// Reading again takes linear time. The scan of a string ends at the next quote that can open a string (such a
    /// quote follows `=`, so it is not escaped). The lines before that quote are read again, but they open no string
    /// and start no long scan. In addition, no scan exceeds `limits.line_bytes` from the start of its line.
    fn recover(&mut self, start: usize, fault: LineFault) -> Rejection {
        let fault = match self.fields.open_string() {
            Some(string) if fault.is_unclosed || !string.looks_closed(&self.scanner) => {
                #[cfg(test)]
                {
                    self.reread_bytes += fault.position.max(string.scanned_to) - string.open;
                }
                string.unclosed_fault(&self.scanner, start, &self.limits)
            }
            _ => fault,
        };
        let end = self.scanner.line_end(fault.position);
        let rejection = Rejection::new(
            self.number,
            if fault.is_whole_line { 0 } else { fault.position - start + 1 },
            self.scanner.bytes(start..end.position),
            fault.reason,
        );
        self.number += self.scanner.count_newlines(start..end.position) + 1;
        self.position = end.next;
        rejection
    }
}

impl<'a> Points<'a> for Lines<'a> {
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let first = self.skip_to_text()?;
        let start = self.position;
        let number = self.number;
        match self.read(start, first) {
            Ok(read) => {
                self.position = read.end.next;
                self.number += 1 + self.fields.newlines();
                Some(Ok(Point {
                    number,
                    text: self.scanner.bytes(start..read.end.position),
                    series: PointSeries::Text { text: read.series, column: first - start + 1 },
                    fields: self.fields.as_slice(),
                    timestamp: read.timestamp,
                    has_unit: false,
                }))
            }
            Err(fault) => Some(Err(self.recover(start, fault))),
        }
    }
}

struct ParsedLine<'a> {
    series: &'a str,
    timestamp: Option<i64>,
    end: LineEnd,
}

fn line_bytes_limit(found: usize, limits: &Limits) -> Reason {
    Reason::Limit { what: "bytes of one line", found, limit: limits.line_bytes, key: "limits.line_bytes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a body to its end; returns the numbers of valid lines, of rejected lines, and of bytes read again.
    fn drain(body: &[u8]) -> (usize, usize, usize) {
        let mut lines = Lines::new(body, Precision::Nanoseconds, Limits::default());
        let mut good = 0;
        let mut bad = 0;
        while let Some(line) = lines.next() {
            match line {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
        (good, bad, lines.reread_bytes)
    }

    /// An unclosed quote sends the parser back to the next line. A megabyte of such lines must not be read again for
    /// each of them.
    #[test]
    fn unclosed_quotes_cost_a_constant_factor() {
        for pattern in [
            "m f=\"x\n",
            "m f=\"\n",
            "m f=\"\\\"\\\"\\\"\n",
            "m f=\"a\",g=\"\n",
            "m f=\",g=\"\n",
            "m f=\",g=\",h=\"\n",
            "m f=\"\\\\\",g=\"x\n",
            "\",a=\" f=\"\n",
            "\",a=\" \",b=\" f=\"x\",g=\"\n",
            "m f=\"x\nm f=1\nm f=2\nm f=3\n",
            "m f=\"x\nm f=\",g=\"\nm f=\",g=\"\nm f=\",g=\"\n",
            "m f=\"x\n#\"\n\"\n",
            "m f=\"x\n\n\n\n\n\n",
        ] {
            let body = pattern.repeat(1_000_000 / pattern.len());
            let (_, _, reread_bytes) = drain(body.as_bytes());
            assert!(reread_bytes <= 2 * body.len(), "{pattern:?}: {reread_bytes} of {}", body.len());
        }
        // One quote at the start of a body without other quotes: all other lines are valid.
        let body = format!("m f=\"x\n{}", "m f=1\n".repeat(150_000));
        let (good, bad, reread_bytes) = drain(body.as_bytes());
        assert_eq!((good, bad), (150_000, 1));
        assert!(reread_bytes <= Limits::default().line_bytes, "{reread_bytes}");
    }
}
