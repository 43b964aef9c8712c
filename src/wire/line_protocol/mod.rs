//! Line protocol in: `climate,room=lab,sensor=s1 temp=22.1,humidity=45 1768485600000000000`.
//! A body becomes points that borrow from it, one bad line never hiding a good one; a line's series
//! is parsed apart, because its text names a sensor that the caller mostly knows already.
//! Knows no sensor that was seen before and no clock: an absent timestamp stays absent.

mod escape;
mod fields;
mod number;
mod scanner;
mod series;
mod write;

use super::point::{Point, Points, Series};
use crate::reading::{Limits, Precision, Reason, Rejection};

pub use series::{SeriesError, parse_series};
pub use write::write_line;

use fields::Fields;
use scanner::{Fault, LineEnd, Scanner};

/// The lines of a body, one after the other. Blank lines and comments are passed over.
#[derive(Debug)]
pub struct Lines<'a> {
    scanner: Scanner<'a>,
    precision: Precision,
    limits: Limits,
    /// Where the next line starts.
    position: usize,
    /// The physical number of that line.
    number: usize,
    /// The fields of the line last read; kept so that a line allocates nothing.
    fields: Fields<'a>,
    /// Bytes read a second time after an error. Only a test looks at it.
    #[cfg(test)]
    reread_bytes: usize,
}

impl<'a> Lines<'a> {
    /// The lines of `body`, whose integer timestamps are in `precision`.
    #[must_use]
    pub fn new(body: &'a [u8], precision: Precision, limits: Limits) -> Self {
        Self {
            scanner: Scanner::new(body),
            precision,
            limits,
            position: 0,
            number: 1,
            fields: Fields::default(),
            #[cfg(test)]
            reread_bytes: 0,
        }
    }

    /// Passes over blank lines and comments to the first byte of a line that has something to say.
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

    fn read(&mut self, start: usize, first: usize) -> Result<Read<'a>, Fault> {
        self.fields.clear();
        let scanner = self.scanner;
        let series_end = scanner.series_end(first)?;
        let series = scanner.str(first, series_end)?;
        let fields_start = scanner.skip_spaces(series_end);
        if scanner.line_ends_at(fields_start).is_some() {
            return Err(Fault::new(fields_start, Reason::MissingFields));
        }
        let after_fields = self.fields.read(&scanner, start, fields_start, &self.limits)?;
        let (timestamp, end) = number::timestamp(&scanner, after_fields, self.precision)?;
        let line_bytes = end.at - start;
        if line_bytes > self.limits.line_bytes {
            return Err(Fault::whole_line(end.at, line_bytes_limit(line_bytes, &self.limits)));
        }
        Ok(Read { series, timestamp, end })
    }

    /// Says what was wrong with the line at `start` and moves to where the next one begins: after
    /// the first newline behind the trouble. But a quote that was never closed swallows the lines
    /// behind it up to some later quote, or to the end; so when a string went over a newline and
    /// does not look closed, the trouble is its opening quote, and only that physical line is lost.
    ///
    /// The way back stays linear. A string's scan ends at the next quote that can open a string
    /// (such a quote follows `=`, so no backslash escapes it), and the lines before that quote
    /// open none: they are read again, but start no long scan. Besides, no scan goes further than
    /// `limits.line_bytes` from its line's start.
    fn recover(&mut self, start: usize, fault: Fault) -> Rejection {
        let fault = match self.fields.open_string() {
            Some(string) if fault.unclosed || !string.looks_closed(&self.scanner) => {
                #[cfg(test)]
                {
                    self.reread_bytes += fault.at.max(string.scanned_to) - string.open;
                }
                string.unclosed(&self.scanner, start, &self.limits)
            }
            _ => fault,
        };
        let end = self.scanner.line_end(fault.at);
        let rejection = Rejection::new(
            self.number,
            if fault.whole_line { 0 } else { fault.at - start + 1 },
            self.scanner.bytes(start, end.at),
            fault.reason,
        );
        self.number += self.scanner.newlines(start, end.at) + 1;
        self.position = end.next;
        rejection
    }
}

impl<'a> Points<'a> for Lines<'a> {
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let first = self.skip_to_text()?;
        let (start, number) = (self.position, self.number);
        match self.read(start, first) {
            Ok(read) => {
                self.position = read.end.next;
                self.number += 1 + self.fields.newlines();
                Some(Ok(Point {
                    number,
                    text: self.scanner.bytes(start, read.end.at),
                    series: Series::Text { text: read.series, column: first - start + 1 },
                    fields: self.fields.as_slice(),
                    timestamp: read.timestamp,
                }))
            }
            Err(fault) => Some(Err(self.recover(start, fault))),
        }
    }
}

struct Read<'a> {
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

    /// Reads a body to its end: how many lines were good, how many bad, and the bytes read again.
    fn drain(body: &[u8]) -> (usize, usize, usize) {
        let mut lines = Lines::new(body, Precision::Nanoseconds, Limits::default());
        let (mut good, mut bad) = (0, 0);
        while let Some(line) = lines.next() {
            match line {
                Ok(_) => good += 1,
                Err(_) => bad += 1,
            }
        }
        (good, bad, lines.reread_bytes)
    }

    /// A quote that is not closed sends the parser back to the next line. A megabyte of such lines
    /// must not be read again for each of them.
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
        // One quote at the head of a body without quotes: the whole rest is good.
        let body = format!("m f=\"x\n{}", "m f=1\n".repeat(150_000));
        let (good, bad, reread_bytes) = drain(body.as_bytes());
        assert_eq!((good, bad), (150_000, 1));
        assert!(reread_bytes <= Limits::default().line_bytes, "{reread_bytes}");
    }
}
