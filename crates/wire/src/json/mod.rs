//! The parser of JSON bodies: one reading, an array of readings, or one reading per line. An invalid reading does not
//! affect the others, and a missing timestamp stays missing.

mod elements;
mod reading;

use super::point::{Point, PointSeries, Points};
use hourglass_model::reading::{Limits, Precision, Reason, Rejection};

pub use elements::{Element, Elements};
use reading::JsonReading;
pub(crate) use reading::parse_number;

/// A parser that yields the readings of a JSON body one at a time.
///
/// A reading is `{"measurement":"climate","tags":{"sensor":"s1"},"ts":"2026-01-15T14:00:00Z","fields":{"temp":22.1}}`,
/// where `measurement` defaults to `readings`, `ts` (also `time` or `timestamp`) is RFC 3339 or an integer, and
/// `"sensor":"s1"` and `"value":22.1` are short for the tag and the field with that name. Without `fields`, all other
/// numbers and booleans at the top level are fields: `{"sensor":"s1","temperature":22.1}`. Null fields are ignored.
///
/// A line of NDJSON that `GET /api/v1/readings` answered is a reading, too.
#[derive(Debug)]
pub struct Items<'a> {
    elements: Elements<'a>,
    precision: Precision,
    limits: Limits,
    /// The current reading, which the returned point borrows.
    reading: Option<JsonReading<'a>>,
}

impl<'a> Items<'a> {
    /// A parser of `body`. Integer timestamps are in `precision`.
    #[must_use]
    pub fn new(body: &'a [u8], precision: Precision, limits: Limits) -> Self {
        Self { elements: Elements::new(body), precision, limits, reading: None }
    }

    fn read(&self, element: &Element<'a>) -> Result<JsonReading<'a>, Rejection> {
        let reject = |column, reason| Rejection::new(element.number, column, element.text, reason);
        if element.text.len() > self.limits.line_bytes {
            let found = element.text.len();
            let limit = self.limits.line_bytes;
            let key = "limits.line_bytes";
            return Err(reject(0, Reason::Limit { what: "bytes of one reading", found, limit, key }));
        }
        let text = std::str::from_utf8(element.text).map_err(|e| reject(e.valid_up_to() + 1, Reason::NotUtf8))?;
        reading::parse(text, self.precision, &self.limits)
            .map_err(|fault| reject(fault.offset.map_or(0, |offset| offset + 1), fault.reason))
    }
}

impl<'a> Points<'a> for Items<'a> {
    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let element = match self.elements.next()? {
            Ok(element) => element,
            Err(rejection) => return Some(Err(rejection)),
        };
        let reading = match self.read(&element) {
            Ok(reading) => self.reading.insert(reading),
            Err(rejection) => return Some(Err(rejection)),
        };
        Some(Ok(Point {
            number: element.number,
            text: element.text,
            series: PointSeries::Read(&reading.sensor),
            fields: &reading.fields,
            timestamp: reading.timestamp,
            has_unit: reading.has_unit,
        }))
    }
}
