//! A sensor's monthly totals as a document. They are packed, because the documents of the days have readable ones.

use bson::raw::RawDocument;

use super::BsonWriter;
use super::decode::{date, get, text, whole};
use super::encode::SCHEMA_VERSION;
use crate::bucket::store::Projection;
use crate::bucket::{MonthId, MonthTotals, MonthWrite, Result, StoredMonth};
use crate::figures::Room;
use crate::months;
use crate::reading::{Day, Hour, Month};

/// Returns the `_id` of a sensor's month.
#[must_use]
pub fn month_id(sensor: &str, month: Month) -> String {
    format!("{month} {sensor}")
}

/// Encodes a whole document with its next rev.
#[must_use]
pub fn month_document(write: &MonthWrite<'_>) -> Vec<u8> {
    let MonthId { sensor, month } = write.id;
    let days = month.days();
    let mut w = BsonWriter::document(4096);
    w.text("_id", &month_id(sensor, *month));
    w.count("schemaVersion", SCHEMA_VERSION);
    w.text("sensor", sensor);
    w.date("start", days.start.hours().start.start_ms());
    w.date("end", days.end.hours().start.start_ms());
    content(&mut w, write);
    w.finish()
}

/// Encodes the update that sets everything but the month's identity.
#[must_use]
pub fn month_update(write: &MonthWrite<'_>) -> Vec<u8> {
    let mut w = BsonWriter::document(4096);
    w.begin("$set");
    content(&mut w, write);
    w.end();
    w.finish()
}

fn content(w: &mut BsonWriter, write: &MonthWrite<'_>) {
    w.count("rev", write.next_rev);
    w.binary("totals", &write.totals.map(|totals| months::encode(write.id.month, totals)).unwrap_or_default());
}

/// Decodes a month with the totals of the projected fields. Damaged totals, or totals of an unknown form, are `None`.
///
/// # Errors
/// [`StorageError::Unreadable`](crate::bucket::StorageError::Unreadable) for a document without sensor, start or rev.
pub fn decode_month(document: &RawDocument, projection: &Projection) -> Result<(MonthId, StoredMonth)> {
    super::decode::decode_any(document, |document| {
        let month = Month::from_day(Day::from_hour(Hour::from_ms(date(document, "start")?)));
        let sensor = text(document, "sensor")?;
        let rev = whole(document, "rev")?;
        let is_known = whole(document, "schemaVersion")? == SCHEMA_VERSION;
        let packed = get(document, "totals").ok().and_then(|totals| Some(totals.as_binary()?.bytes));
        let totals: Option<MonthTotals> = packed
            .filter(|_| is_known)
            .and_then(|bytes| months::decode(bytes, month, projection, &mut Room::default()).ok());
        Ok((MonthId { sensor: sensor.into(), month }, StoredMonth { rev, totals }))
    })
}
