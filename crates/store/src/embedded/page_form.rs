//! Page encoding of the embedded store. Pages are packed; those with very many cells are BSON documents. Decoders do not
//! trust the bytes.
//!
//! ```text
//! value  := document 0  |  packed version:u8 (1)        (0 is the last byte of every BSON document)
//! packed := rev:varint marks:u8 (1 closed | 2 has overflow | 4 has distributions)  count:varint
//!           first:zigzag last:zigzag (ms since the start of the hour)
//!           sensor names summaries order readings
//! order  := floor:varint first:varint last:varint (both relative to the floor)  length:varint stamps
//! sensor    := tags:varint length:varint…            lengths of the measurement, tag names and values in the key
//! names     := count:varint text…                    summaries := count:varint (name:varint count:varint cells rest
//!                                                               distribution)…
//! text      := length:varint bytes
//! readings, cells: see `bucket::columns`; stamps: see `bucket::stamps`
//! the cells of a summary are min, max, first, last and sum
//! distribution: see `store::distributions`, only if the page is marked
//! rest      := the rounding error of a float sum, see `store::rest`; empty for other sums
//! ```
//!
//! Only the key holds the page's sensor, hour and number; the checksum covers the key too. The mean is computed from sum
//! and count.

use std::sync::Arc;

use bson::RawDocument;

use crate::bucket::columns::{CELLS_MAX, ColumnsDamage, PackedBytes, put_cells, take_cells, unpack};
use crate::bucket::exact::SumRest;
use crate::bucket::page::LeftOut;
use crate::bucket::raw::RawPage;
use crate::bucket::stamps::StampOrder;
use crate::bucket::store::{BucketId, Projection, ScannedPage};
use crate::bucket::summary::Figures;
use crate::bucket::summary::distribution::FieldBounds;
use crate::bucket::{Page, Reading, Readings, Result, StorageError, StoredPage, Summary};
use crate::distributions;
use crate::document::{
    decode_page, decode_page_marks, decode_raw_page, decode_scanned, document_last, document_rev, page_document,
    page_id,
};
use crate::figures::FiguresError;
use crate::reading::time::MILLI_NS;
use crate::reading::varint::{put_bytes, put_texts, put_varint, unzigzag, zigzag};
use crate::reading::{Hour, Sensor, Stamp, Value};
use crate::rest::{put_rest, take_rest};

/// Last byte of a page that is a BSON document.
const DOCUMENT: u8 = 0;
/// Last byte of a packed page: the version of the encoding.
const PACKED: u8 = 1;

const CLOSED: u8 = 1;
const HAS_OVERFLOW: u8 = 2;
const HAS_DISTRIBUTIONS: u8 = 4;

/// Estimated bytes of a packed page without its readings.
const HEAD_BYTES: usize = 256;

/// The decoded key of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageKey<'a> {
    pub(super) sensor: &'a str,
    pub(super) hour: Hour,
    pub(super) number: u32,
}

/// An error of decoding a packed page or part of a day.
#[derive(Debug, thiserror::Error)]
pub(super) enum PageError {
    #[error(transparent)]
    Damage(#[from] ColumnsDamage),
    #[error(transparent)]
    Readings(#[from] crate::bucket::readings::InvalidReadings),
    #[error(transparent)]
    Figures(#[from] FiguresError),
    #[error("field number {0} has no name")]
    Name(u64),
    #[error("the lengths of the sensor's tags do not match the key")]
    Parts,
    #[error("the checksum of the summaries does not match; the stored bytes are damaged")]
    Checksum,
    #[error("the sensor has the tag {0} twice")]
    Tag(String),
    #[error("it has version {0}, this program knows only {PACKED}")]
    Version(u8),
    #[error("unknown kind {0}")]
    Kind(u8),
}

/// A packed page with its head decoded and its readings still packed.
struct PackedHead<'a> {
    rev: u64,
    marks: u8,
    count: u64,
    first_ms: i64,
    last_ms: i64,
    /// Lengths of the measurement, tag names and tag values in the sensor's key.
    part_lengths: Vec<u64>,
    names: Vec<Arc<str>>,
    summaries: Vec<(Arc<str>, Figures)>,
    order: StampOrder<'a>,
    readings: &'a [u8],
}

/// Encodes a page with the rev that this write gives it.
pub(super) fn encode(id: &BucketId, page: &Page) -> Vec<u8> {
    if page.readings.cell_count() > CELLS_MAX {
        return page_document(id, page);
    }
    let readings = page.readings.packed();
    let mut out = Vec::with_capacity(HEAD_BYTES + readings.len());
    put_varint(&mut out, page.next_rev());
    let has_distributions = !page.readings.bounds().is_empty();
    out.push(
        if page.closed { CLOSED } else { 0 }
            | if page.has_overflow { HAS_OVERFLOW } else { 0 }
            | if has_distributions { HAS_DISTRIBUTIONS } else { 0 },
    );
    let times = page.readings.times();
    put_varint(&mut out, times.len() as u64);
    let hour_offset_ms = |time: Option<&i64>| time.map_or(0, |time| time.div_euclid(MILLI_NS) - id.hour.start_ms());
    put_varint(&mut out, zigzag(hour_offset_ms(times.first())));
    put_varint(&mut out, zigzag(hour_offset_ms(times.last())));
    put_part_lengths(&mut out, &id.sensor);
    put_names(&mut out, &page.readings);
    put_summaries(&mut out, &page.readings);
    put_order(&mut out, &page.readings);
    out.extend_from_slice(readings);
    out.push(PACKED);
    out
}

fn put_order(out: &mut Vec<u8>, readings: &Readings) {
    let stamps = readings.stamps();
    put_varint(out, stamps.floor());
    put_varint(out, stamps.oldest().saturating_sub(stamps.floor()));
    put_varint(out, stamps.greatest() - stamps.floor());
    put_bytes(out, &readings.encode_stamps());
}

/// Writes the lengths of the measurement, tag names and tag values in the sensor's key.
pub(super) fn put_part_lengths(out: &mut Vec<u8>, sensor: &Sensor) {
    put_varint(out, sensor.tags.len() as u64);
    sensor.part_lengths().for_each(|length| put_varint(out, length as u64));
}

pub(super) fn put_names(out: &mut Vec<u8>, readings: &Readings) {
    put_texts(out, readings.columns().map(|(name, _)| &**name));
}

fn put_summaries(out: &mut Vec<u8>, readings: &Readings) {
    put_varint(out, readings.summaries().count() as u64);
    let has_distributions = !readings.bounds().is_empty();
    let mut room = Vec::new();
    for (number, summary) in readings.numbered_summaries() {
        let Figures { count, min, max, sum, rest, first, last, avg: _, distribution } = summary.figures();
        put_varint(out, number as u64);
        put_varint(out, count);
        let float = if let Value::Float(sum) = sum { Some(sum) } else { None };
        put_cells(out, &[min, max, first, last, sum].map(Some), &mut room);
        if let Some(sum) = float {
            put_rest(out, sum, &rest);
        }
        if has_distributions {
            distributions::put(out, distribution.as_deref());
        }
    }
}

/// Returns the rev of a stored page. Decodes nothing else of a packed page.
pub(super) fn rev(bytes: &[u8], id: impl Fn() -> String) -> Result<u64> {
    read(bytes, id, document_rev, |packed| Ok(PackedBytes::new(packed).varint()?))
}

/// Returns the greatest stamp of a stored page.
pub(super) fn last_stamp(bytes: &[u8], id: impl Fn() -> String) -> Result<Stamp> {
    read(bytes, id, document_last, |packed| Ok(PackedHead::read(packed)?.order.last))
}

/// Decodes a page with its readings. Summaries are recomputed from the readings.
pub(super) fn decode(bytes: &[u8], key: PageKey<'_>) -> Result<StoredPage> {
    read(
        bytes,
        || key.id(),
        decode_page,
        |packed| {
            let head = PackedHead::read(packed)?;
            Ok(head.page(key, head.unpack_readings()?, None))
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

/// Decodes the parts of a page that a query needs. Returns `None` if the page is outside its time range.
pub(super) fn decode_for_scan(bytes: &[u8], key: PageKey<'_>, projection: &Projection) -> Result<Option<ScannedPage>> {
    let decode_document = |document: &RawDocument| decode_scanned(document, projection).map(Some);
    read(
        bytes,
        || key.id(),
        decode_document,
        |packed| {
            let head = PackedHead::read(packed)?;
            let (first, last) = head.span_ms(key.hour);
            if projection.span_ms().is_some_and(|(from, to)| last < from || to < first) {
                return Ok(None);
            }
            let wanted = head.summaries.iter().filter(|(name, _)| projection.has(name));
            let summary = wanted.map(|(name, figures)| (name.clone(), Summary::from_figures(figures))).collect();
            let readings = if projection.readings { Some(projection.project(head.unpack_readings()?)) } else { None };
            let oldest = head.order.oldest;
            Ok(Some(ScannedPage { hour: key.hour, number: key.number, summary, oldest, readings, is_expired: false }))
        },
    )
}

/// Decodes a page for checks. Every field is returned as it is stored.
pub(super) fn decode_for_walk(bytes: &[u8], key: PageKey<'_>) -> Result<RawPage> {
    let id = key.id();
    read(bytes, || id.clone(), |document| decode_raw_page(document, &id, None), |packed| raw_page(packed, key, &id))
}

/// Reads a page in either form. `read_packed` gets the bytes without the version.
fn read<T>(
    bytes: &[u8],
    id: impl Fn() -> String,
    read_document: impl FnOnce(&RawDocument) -> Result<T>,
    read_packed: impl FnOnce(&[u8]) -> Result<T, PageError>,
) -> Result<T> {
    let read = match bytes.split_last() {
        Some((&DOCUMENT, _)) => {
            let unreadable = |e: bson::error::Error| StorageError::Unreadable { id: id(), detail: e.to_string() };
            return read_document(RawDocument::from_bytes(bytes).map_err(unreadable)?);
        }
        Some((&PACKED, packed)) => read_packed(packed),
        Some((other, _)) => Err(PageError::Version(*other)),
        None => Err(ColumnsDamage::Cut { position: 0, len: 0 }.into()),
    };
    read.map_err(|error| unreadable(id(), error))
}

fn raw_page(bytes: &[u8], key: PageKey<'_>, id: &str) -> Result<RawPage, PageError> {
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
        // A packed page stores no id. It follows from the key.
        id: id.to_owned(),
        own_id: id.to_owned(),
        sensor_key: key.sensor.into(),
        sensor: Arc::new(parse_sensor(key.sensor, &head.part_lengths)?),
        start_ms,
        end_ms: key.hour.next().start_ms(),
        number: key.number,
        rev: head.rev,
        closed: head.is_closed(),
        has_overflow: head.has_overflow(),
        count: Some(head.count),
        first_ms: Some(start_ms.saturating_add(head.first_ms)),
        last_ms: Some(start_ms.saturating_add(head.last_ms)),
        readings: readings.collect(),
        summary: head.summaries.into_iter().map(|(name, figures)| (name, Some(figures))).collect(),
        order: Ok(head.order.into_owned()),
    })
}

fn unreadable(id: String, error: PageError) -> StorageError {
    let detail = error.to_string();
    match error {
        PageError::Version(_) => StorageError::Newer { id, detail },
        _ => StorageError::Unreadable { id, detail },
    }
}

impl PageKey<'_> {
    /// Returns the id of the page, as MongoDB would store it.
    pub(super) fn id(&self) -> String {
        page_id(self.sensor, self.hour, self.number)
    }
}

impl<'a> PackedHead<'a> {
    /// Returns the times of the first and the last reading, in milliseconds since the epoch.
    fn span_ms(&self, hour: Hour) -> (i64, i64) {
        let epoch_ms = |offset_ms: i64| hour.start_ms().saturating_add(offset_ms);
        (epoch_ms(self.first_ms), epoch_ms(self.last_ms))
    }

    fn read(bytes: &'a [u8]) -> Result<Self, PageError> {
        let mut bytes = PackedBytes::new(bytes);
        let rev = bytes.varint()?;
        let marks = bytes.byte()?;
        let count = bytes.varint()?;
        if marks > CLOSED | HAS_OVERFLOW | HAS_DISTRIBUTIONS {
            return Err(ColumnsDamage::Unknown { what: "its marks", found: u64::from(marks) }.into());
        }
        let first_ms = unzigzag(bytes.varint()?);
        let last_ms = unzigzag(bytes.varint()?);
        let part_lengths = take_part_lengths(&mut bytes)?;
        let names: Vec<Arc<str>> = bytes.texts()?.into_iter().map(Arc::from).collect();
        let mut summaries = Vec::new();
        let mut bounds: Arc<[f64]> = Arc::default();
        for _ in 0..bytes.varint()? {
            let (name, mut figures) = take_summary(&mut bytes, &names)?;
            if marks & HAS_DISTRIBUTIONS != 0 {
                figures.distribution = distributions::take(&mut bytes, &mut bounds)?.map(Box::new);
            }
            summaries.push((name, figures));
        }
        let order = take_order(&mut bytes)?;
        let readings = bytes.unread();
        Ok(Self { rev, marks, count, first_ms, last_ms, part_lengths, names, summaries, order, readings })
    }

    fn page(&self, key: PageKey<'_>, readings: Readings, left_out: Option<LeftOut>) -> StoredPage {
        StoredPage {
            number: key.number,
            rev: self.rev,
            closed: self.is_closed(),
            has_overflow: self.has_overflow(),
            readings,
            cut: false,
            left_out,
        }
    }

    fn is_closed(&self) -> bool {
        self.marks & CLOSED != 0
    }

    fn has_overflow(&self) -> bool {
        self.marks & HAS_OVERFLOW != 0
    }

    fn unpack_readings(&self) -> Result<Readings, PageError> {
        let (times, columns) = unpack(self.readings, self.names.len(), CELLS_MAX)?;
        let mut readings = Readings::from_columns(times, self.names.iter().cloned().zip(columns))?;
        let bounds = |(name, figures): &(Arc<str>, Figures)| {
            Some((name.clone(), figures.distribution.as_ref()?.bounds().clone()))
        };
        readings.set_bounds(&FieldBounds::new(self.summaries.iter().filter_map(bounds)));
        readings.decode_stamps(self.order.floor, &self.order.stamps)?;
        Ok(readings)
    }
}

/// Splits a sensor's key into measurement and tags, whose lengths are given.
pub(super) fn parse_sensor(key: &str, lengths: &[u64]) -> Result<Sensor, PageError> {
    let parts = Sensor::split_key(key, lengths).ok_or(PageError::Parts)?;
    let (measurement, tags) = parts.split_first().ok_or(PageError::Parts)?;
    let tags = tags.chunks_exact(2).map(|tag| (&*tag[0], &*tag[1]));
    Sensor::new(measurement, tags).map_err(PageError::Tag)
}

fn take_order<'a>(bytes: &mut PackedBytes<'a>) -> Result<StampOrder<'a>, PageError> {
    let floor = bytes.varint()?;
    let oldest = floor.saturating_add(bytes.varint()?);
    let last = floor.saturating_add(bytes.varint()?);
    Ok(StampOrder { floor, oldest, last, stamps: bytes.prefixed_bytes()?.into() })
}

/// Reads the lengths of the measurement, tag names and tag values.
pub(super) fn take_part_lengths(bytes: &mut PackedBytes<'_>) -> Result<Vec<u64>, PageError> {
    let tags = bytes.varint()?;
    // Each tag takes at least two bytes, so the remaining bytes bound the allocation.
    let mut lengths = Vec::with_capacity(usize::try_from(tags).unwrap_or(usize::MAX).min(bytes.unread_len()) * 2 + 1);
    lengths.push(bytes.varint()?);
    for _ in 0..tags {
        lengths.extend([bytes.varint()?, bytes.varint()?]);
    }
    Ok(lengths)
}

fn take_summary(bytes: &mut PackedBytes<'_>, names: &[Arc<str>]) -> Result<(Arc<str>, Figures), PageError> {
    let number = bytes.varint()?;
    let name = usize::try_from(number).ok().and_then(|number| names.get(number)).ok_or(PageError::Name(number))?;
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
