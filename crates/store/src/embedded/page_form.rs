//! Page encoding of the embedded store, in two forms: packed, and BSON documents for pages too large for that. The bytes
//! are not trusted.
//!
//! ```text
//! value  := document 0  |  packed version:u8 (1)        (the 0 is the last byte that every BSON document has)
//! packed := rev:varint marks:u8 (1 closed | 2 has overflow)  count:varint
//!           first:zigzag last:zigzag (ms after the hour's start)
//!           sensor names summaries order readings
//! order  := floor:varint first:varint last:varint (both relative to the floor)  length:varint stamps
//! sensor    := tags:varint length:varint…            of measurement, names and values, as parts of the sensor's key
//! names     := count:varint text…                    summaries := count:varint (name:varint count:varint cells rest)…
//! text      := length:varint bytes
//! readings, cells: see `bucket::columns`; stamps: see `bucket::stamps`
//! the cells of a summary are min, max, first, last and sum
//! rest      := if the sum is a float, the remainder that rounding left, see `store::rest`; else nothing
//! ```
//!
//! The page's sensor, hour and number are in its key only, which the checksum covers. The mean is computed from sum and
//! count.

use std::sync::Arc;

use bson::RawDocument;

use crate::bucket::columns::{CELLS_MAX, ColumnsDamage, PackedBytes, put_cells, take_cells, unpack};
use crate::bucket::exact::SumRest;
use crate::bucket::page::LeftOut;
use crate::bucket::raw::RawPage;
use crate::bucket::stamps::StampOrder;
use crate::bucket::store::{BucketId, Projection, ScannedPage};
use crate::bucket::summary::Figures;
use crate::bucket::{Page, Reading, Readings, Result, StorageError, StoredPage, Summary};
use crate::document::{
    decode_page, decode_page_marks, decode_raw_page, decode_scanned, document_last, document_rev, page_document,
    page_id,
};
use crate::figures::FiguresError;
use crate::reading::time::MILLI_NS;
use crate::reading::varint::{put_bytes, put_texts, put_varint, unzigzag, zigzag};
use crate::reading::{Hour, Sensor, Stamp, Value};
use crate::rest::{put_rest, take_rest};

/// Last byte of a page in the form of a BSON document.
const DOCUMENT: u8 = 0;
/// Last byte of a packed page: the version of the form.
const PACKED: u8 = 1;

const CLOSED: u8 = 1;
const HAS_OVERFLOW: u8 = 2;

/// Estimated bytes of a packed page without its readings.
const HEAD_BYTES: usize = 256;

/// The page that a key names.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageKey<'a> {
    pub(super) sensor: &'a str,
    pub(super) hour: Hour,
    pub(super) number: u32,
}

/// Why packed bytes are not a valid page.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoPage {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    NoSet(#[from] crate::bucket::readings::NoSet),
    #[error(transparent)]
    Figures(#[from] FiguresError),
    #[error("field number {0} has no name")]
    Name(u64),
    #[error("the part lengths of its sensor do not fit its key")]
    Parts,
    #[error("the checksum of its summaries does not match; it was changed or damaged since it was written")]
    Sum,
    #[error("its sensor has the tag {0} twice")]
    Tag(String),
    #[error("it has version {0}, this program knows only {PACKED}")]
    Version(u8),
    #[error("it has the unknown kind {0}")]
    Kind(u8),
}

/// The part of a packed page before its readings.
struct PackedHead<'a> {
    rev: u64,
    marks: u8,
    count: u64,
    first_ms: i64,
    last_ms: i64,
    parts: Vec<u64>,
    names: Vec<Arc<str>>,
    summaries: Vec<(Arc<str>, Figures)>,
    order: StampOrder<'a>,
    readings: &'a [u8],
}

/// Encodes a page, with the rev it has once written.
pub(super) fn encode(id: &BucketId, page: &Page) -> Vec<u8> {
    if page.readings.cells_in_all() > CELLS_MAX {
        return page_document(id, page);
    }
    let readings = page.readings.packed();
    let mut out = Vec::with_capacity(HEAD_BYTES + readings.len());
    put_varint(&mut out, page.next_rev());
    out.push(if page.closed { CLOSED } else { 0 } | if page.has_overflow { HAS_OVERFLOW } else { 0 });
    let times = page.readings.times();
    put_varint(&mut out, times.len() as u64);
    let behind = |time: Option<&i64>| time.map_or(0, |time| time.div_euclid(MILLI_NS) - id.hour.start_ms());
    put_varint(&mut out, zigzag(behind(times.first())));
    put_varint(&mut out, zigzag(behind(times.last())));
    put_parts(&mut out, &id.sensor);
    put_names(&mut out, &page.readings);
    put_summaries(&mut out, &page.readings);
    put_order(&mut out, &page.readings);
    out.extend_from_slice(readings);
    out.push(PACKED);
    out
}

fn put_order(out: &mut Vec<u8>, readings: &Readings) {
    let (stamps, kept) = (readings.stamps(), readings.encode_stamps());
    put_varint(out, stamps.floor());
    put_varint(out, stamps.oldest().saturating_sub(stamps.floor()));
    put_varint(out, stamps.greatest() - stamps.floor());
    put_bytes(out, &kept);
}

pub(super) fn put_parts(out: &mut Vec<u8>, sensor: &Sensor) {
    put_varint(out, sensor.tags.len() as u64);
    sensor.part_lengths().for_each(|length| put_varint(out, length as u64));
}

pub(super) fn put_names(out: &mut Vec<u8>, readings: &Readings) {
    put_texts(out, readings.columns().map(|(name, _)| &**name));
}

fn put_summaries(out: &mut Vec<u8>, readings: &Readings) {
    put_varint(out, readings.summaries().count() as u64);
    let mut room = Vec::new();
    for (number, summary) in readings.numbered_summaries() {
        let Figures { count, min, max, sum, rest, first, last, avg: _ } = summary.figures();
        put_varint(out, number as u64);
        put_varint(out, count);
        let float = if let Value::Float(sum) = sum { Some(sum) } else { None };
        put_cells(out, &[min, max, first, last, sum].map(Some), &mut room);
        if let Some(sum) = float {
            put_rest(out, sum, &rest);
        }
    }
}

/// The rev of a stored page. Reads nothing else of a packed page.
pub(super) fn rev(bytes: &[u8], id: impl Fn() -> String) -> Result<u64> {
    read(bytes, id, document_rev, |packed| Ok(PackedBytes::new(packed).varint()?))
}

/// The greatest stamp of a stored page.
pub(super) fn last(bytes: &[u8], id: impl Fn() -> String) -> Result<Stamp> {
    read(bytes, id, document_last, |packed| Ok(PackedHead::read(packed)?.order.last))
}

/// Decodes a page with its readings; summaries are computed again from them.
pub(super) fn decode(bytes: &[u8], key: PageKey<'_>) -> Result<StoredPage> {
    read(
        bytes,
        || key.id(),
        decode_page,
        |packed| {
            let head = PackedHead::read(packed)?;
            Ok(head.page(key, head.set()?, None))
        },
    )
}

/// Decodes a page without its readings.
pub(super) fn decode_marks(bytes: &[u8], key: PageKey<'_>) -> Result<StoredPage> {
    read(
        bytes,
        || key.id(),
        decode_page_marks,
        |packed| {
            let head = PackedHead::read(packed)?;
            let count = usize::try_from(head.count).unwrap_or(usize::MAX);
            let left_out = LeftOut { count, bytes: packed.len(), span_ms: head.span_ms(key.hour) };
            Ok(head.page(key, Readings::default(), Some(left_out)))
        },
    )
}

/// Decodes the parts of a page that a query wants; `None` if it wants none of the page's times.
pub(super) fn decode_for_scan(bytes: &[u8], key: PageKey<'_>, projection: &Projection) -> Result<Option<ScannedPage>> {
    let of_document = |document: &RawDocument| decode_scanned(document, projection).map(Some);
    read(
        bytes,
        || key.id(),
        of_document,
        |packed| {
            let head = PackedHead::read(packed)?;
            let (first, last) = head.span_ms(key.hour);
            if projection.span_ms().is_some_and(|(from, to)| last < from || to < first) {
                return Ok(None);
            }
            let wanted = head.summaries.iter().filter(|(name, _)| projection.has(name));
            let summary = wanted.map(|(name, figures)| (name.clone(), Summary::of_figures(figures))).collect();
            let readings = if projection.readings { Some(projection.of(head.set()?)) } else { None };
            let oldest = head.order.oldest;
            Ok(Some(ScannedPage { hour: key.hour, number: key.number, summary, oldest, readings, is_expired: false }))
        },
    )
}

/// Decodes a page for checks, every field as it is stored.
pub(super) fn decode_for_walk(bytes: &[u8], key: PageKey<'_>) -> Result<RawPage> {
    let id = key.id();
    read(bytes, || id.clone(), |document| decode_raw_page(document, &id, None), |packed| kept(packed, key, &id))
}

/// Reads a page in either form; a packed one without the byte for its version.
fn read<T>(
    bytes: &[u8],
    id: impl Fn() -> String,
    of_document: impl FnOnce(&RawDocument) -> Result<T>,
    of_packed: impl FnOnce(&[u8]) -> Result<T, NoPage>,
) -> Result<T> {
    let read = match bytes.split_last() {
        Some((&DOCUMENT, _)) => {
            let document = RawDocument::from_bytes(bytes);
            return of_document(document.map_err(|e| StorageError::Unreadable { id: id(), detail: e.to_string() })?);
        }
        Some((&PACKED, packed)) => of_packed(packed),
        Some((other, _)) => Err(NoPage::Version(*other)),
        None => Err(ColumnsDamage::Cut { at: 0, len: 0 }.into()),
    };
    read.map_err(|why| unreadable(id(), why))
}

fn kept(bytes: &[u8], key: PageKey<'_>, id: &str) -> Result<RawPage, NoPage> {
    let head = PackedHead::read(bytes)?;
    let (times, columns) = unpack(head.readings, head.names.len(), CELLS_MAX)?;
    let fields = |index: usize| {
        let cells = head.names.iter().zip(&columns);
        cells.filter_map(|(name, cells)| Some((name.clone(), cells[index].clone()?))).collect()
    };
    let readings = times.iter().enumerate().map(|(index, time)| Reading { time: *time, fields: fields(index) });
    let start_ms = key.hour.start_ms();
    Ok(RawPage {
        key: id.to_owned(),
        in_overflow: None,
        // A packed page has no id of its own; its key names it.
        id: id.to_owned(),
        own_id: id.to_owned(),
        sensor_key: key.sensor.into(),
        sensor: Arc::new(sensor(key.sensor, &head.parts)?),
        start_ms,
        end_ms: key.hour.next().start_ms(),
        number: key.number,
        rev: head.rev,
        closed: head.closed(),
        has_overflow: head.has_overflow(),
        count: Some(head.count),
        first_ms: Some(start_ms.saturating_add(head.first_ms)),
        last_ms: Some(start_ms.saturating_add(head.last_ms)),
        readings: readings.collect(),
        summary: head.summaries.into_iter().map(|(name, figures)| (name, Some(figures))).collect(),
        order: Ok(head.order.into_owned()),
    })
}

fn unreadable(id: String, why: NoPage) -> StorageError {
    let detail = why.to_string();
    match why {
        NoPage::Version(_) => StorageError::Newer { id, detail },
        _ => StorageError::Unreadable { id, detail },
    }
}

impl PageKey<'_> {
    pub(super) fn id(&self) -> String {
        page_id(self.sensor, self.hour, self.number)
    }
}

impl<'a> PackedHead<'a> {
    /// The first and the last reading's milliseconds since the epoch.
    fn span_ms(&self, hour: Hour) -> (i64, i64) {
        let ms = |after: i64| hour.start_ms().saturating_add(after);
        (ms(self.first_ms), ms(self.last_ms))
    }

    fn read(bytes: &'a [u8]) -> Result<Self, NoPage> {
        let mut bytes = PackedBytes::new(bytes);
        let (rev, marks, count) = (bytes.varint()?, bytes.byte()?, bytes.varint()?);
        if marks > CLOSED | HAS_OVERFLOW {
            return Err(ColumnsDamage::Unknown { what: "its marks", found: u64::from(marks) }.into());
        }
        let (first_ms, last_ms) = (unzigzag(bytes.varint()?), unzigzag(bytes.varint()?));
        let parts = take_parts(&mut bytes)?;
        let names: Vec<Arc<str>> = bytes.texts()?.into_iter().map(Arc::from).collect();
        let mut summaries = Vec::new();
        for _ in 0..bytes.varint()? {
            summaries.push(summary(&mut bytes, &names)?);
        }
        let order = order(&mut bytes)?;
        let readings = bytes.rest();
        Ok(Self { rev, marks, count, first_ms, last_ms, parts, names, summaries, order, readings })
    }

    fn page(&self, key: PageKey<'_>, readings: Readings, left_out: Option<LeftOut>) -> StoredPage {
        let (closed, has_overflow) = (self.closed(), self.has_overflow());
        StoredPage { number: key.number, rev: self.rev, closed, has_overflow, readings, cut: false, left_out }
    }

    fn closed(&self) -> bool {
        self.marks & CLOSED != 0
    }

    fn has_overflow(&self) -> bool {
        self.marks & HAS_OVERFLOW != 0
    }

    fn set(&self) -> Result<Readings, NoPage> {
        let (times, columns) = unpack(self.readings, self.names.len(), CELLS_MAX)?;
        let mut set = Readings::from_columns(times, self.names.iter().cloned().zip(columns))?;
        set.decode_stamps(self.order.floor, &self.order.stamps)?;
        Ok(set)
    }
}

/// The sensor of a key whose parts have these lengths.
pub(super) fn sensor(key: &str, lengths: &[u64]) -> Result<Sensor, NoPage> {
    let parts = Sensor::parts_of(key, lengths).ok_or(NoPage::Parts)?;
    let (measurement, tags) = parts.split_first().ok_or(NoPage::Parts)?;
    let tags = tags.chunks_exact(2).map(|tag| (&*tag[0], &*tag[1]));
    Sensor::new(measurement, tags).map_err(NoPage::Tag)
}

fn order<'a>(bytes: &mut PackedBytes<'a>) -> Result<StampOrder<'a>, NoPage> {
    let floor = bytes.varint()?;
    let (oldest, last) = (floor.saturating_add(bytes.varint()?), floor.saturating_add(bytes.varint()?));
    Ok(StampOrder { floor, oldest, last, stamps: bytes.counted()?.into() })
}

/// The lengths of the parts of a sensor's key.
pub(super) fn take_parts(bytes: &mut PackedBytes<'_>) -> Result<Vec<u64>, NoPage> {
    let tags = bytes.varint()?;
    // A huge number of tags does no harm: each takes two bytes.
    let mut parts = Vec::with_capacity(usize::try_from(tags).unwrap_or(usize::MAX).min(bytes.left()) * 2 + 1);
    parts.push(bytes.varint()?);
    for _ in 0..tags {
        parts.extend([bytes.varint()?, bytes.varint()?]);
    }
    Ok(parts)
}

fn summary(bytes: &mut PackedBytes<'_>, names: &[Arc<str>]) -> Result<(Arc<str>, Figures), NoPage> {
    let number = bytes.varint()?;
    let name = usize::try_from(number).ok().and_then(|number| names.get(number)).ok_or(NoPage::Name(number))?;
    let count = bytes.varint()?;
    let cells: Option<Vec<Value>> = take_cells(bytes, 5)?.into_iter().collect();
    let missing = ColumnsDamage::Unknown { what: "a figure of a summary", found: 0 };
    let cells: [Value; 5] = cells.and_then(|cells| cells.try_into().ok()).ok_or(missing)?;
    let [min, max, first, last, sum] = cells;
    let rest = match &sum {
        Value::Float(sum) => take_rest(bytes, *sum)?,
        _ => SumRest::default(),
    };
    Ok((name.clone(), Figures::with_mean(count, [min, max, first, last], sum, rest)))
}

#[cfg(test)]
mod tests;
