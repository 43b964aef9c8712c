//! JSON in: one reading, an array of readings, or one reading per line. Readings come out one by
//! one, and a bad one does not hide the others.
//! Knows no sensor that was seen before and no clock: an absent timestamp stays absent.

mod elements;
mod reading;

use std::borrow::Cow;

use crate::reading::value::RawValue;
use crate::reading::{Limits, Precision, Reason, Rejection, Sensor};

use elements::Elements;

/// One good reading.
#[derive(Debug)]
pub struct Item<'a> {
    /// Its place in the body, from 1: of an array the element, else the physical line it starts on.
    pub number: usize,
    /// The reading as sent: what a [`Rejection`] quotes.
    pub text: &'a [u8],
    /// Whose reading it is.
    pub sensor: Sensor,
    /// The fields in the order sent; at least one. Of two with one key the last wins, in the
    /// first's place; null fields are left out.
    pub fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
    /// The timestamp in nanoseconds, if the reading has one.
    pub timestamp: Option<i64>,
}

/// The readings of a body, one at a time; integer timestamps are in `precision`.
///
/// A reading is `{"measurement":"climate","tags":{"sensor":"s1"},"ts":"2026-01-15T14:00:00Z","fields":{"temp":22.1}}`,
/// where `measurement` is `readings` when absent, `ts` is RFC 3339 or an integer, and
/// `"sensor":"s1"` and `"value":22.1` stand for the tag and the field of that name.
pub fn items<'a>(
    body: &'a [u8],
    precision: Precision,
    limits: Limits,
) -> impl Iterator<Item = Result<Item<'a>, Rejection>> {
    Elements::new(body).map(move |element| {
        let element = element?;
        let reject = |column, reason| Rejection::new(element.number, column, element.text, reason);
        if element.text.len() > limits.line_bytes {
            let found = element.text.len();
            let (limit, key) = (limits.line_bytes, "limits.line_bytes");
            return Err(reject(0, Reason::Limit { what: "bytes of one reading", found, limit, key }));
        }
        let text = std::str::from_utf8(element.text).map_err(|e| reject(e.valid_up_to() + 1, Reason::NotUtf8))?;
        match reading::parse(text, precision, &limits) {
            Ok(reading) => Ok(Item {
                number: element.number,
                text: element.text,
                sensor: reading.sensor,
                fields: reading.fields,
                timestamp: reading.timestamp,
            }),
            Err(fault) => Err(reject(fault.at.map_or(0, |at| at + 1), fault.reason)),
        }
    })
}
