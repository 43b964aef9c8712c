//! The two forms in which the file has a page: packed, as all are written now, and as a BSON document, as all were before
//! and as those still are that the packed form has no room for. Nothing in the bytes is trusted.
//!
//! ```text
//! value  := document 0  |  packed 1                 a document's own last byte is its 0
//! packed := rev:varint marks:u8 (1 closed | 2 has overflow)  count:varint first:zigzag last:zigzag (ms behind the hour's start)
//!           sensor names summaries applied readings
//! sensor    := tags:varint length:varint…            of measurement, names and values, as parts of the sensor's key
//! names     := count:varint text…                    summaries := count:varint (name:varint count:varint cells)…
//! applied   := count:varint (text sequence:varint)…  text      := length:varint bytes
//! readings, cells: as `bucket::columns` has them; the cells of a summary are min, max, first, last and sum
//! ```
//!
//! Which page it is stands in its key alone, which the checksum covers. The mean is what sum and count say.

use std::sync::Arc;

use bson::RawDocument;

use crate::bucket::columns::{Bytes, CELLS_MAX, Damage, put_cells, take_cells, unpack};
use crate::bucket::kept::KeptPage;
use crate::bucket::store::{BucketId, ScannedPage};
use crate::bucket::summary::Figures;
use crate::bucket::{Page, Reading, Readings, StorageError, StoredPage, Summary};
use crate::reading::time::MILLI_NS;
use crate::reading::varint::{put_varint, unzigzag, zigzag};
use crate::reading::{Hour, Sensor, Value};
use crate::store::document::{
    decode_kept, decode_page, decode_scanned, document_rev, page_document, page_id, summary_of_figures,
};

/// The last byte of a BSON document, and thus of a page that is one.
const DOCUMENT: u8 = 0;
/// The last byte of a packed page.
const PACKED: u8 = 1;

const CLOSED: u8 = 1;
const HAS_OVERFLOW: u8 = 2;

/// Room for what a packed page says besides its readings.
const HEAD_BYTES: usize = 256;

/// Which page a key names.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageKey<'a> {
    pub(super) sensor: &'a str,
    pub(super) hour: Hour,
    pub(super) number: u32,
}

/// Why packed bytes are no page.
#[derive(Debug, thiserror::Error)]
enum NoPage {
    #[error(transparent)]
    Damage(#[from] Damage),
    #[error(transparent)]
    NoSet(#[from] crate::bucket::readings::NoSet),
    #[error("the field number {0} has no name")]
    Name(u64),
    #[error("its sensor's parts are not those of its key")]
    Parts,
    #[error("its sensor has the tag {0} twice")]
    Tag(String),
    #[error("it is of form {0}, this program knows {DOCUMENT} and {PACKED}")]
    Form(u8),
}

/// What stands before the readings of a packed page.
struct Head<'a> {
    rev: u64,
    marks: u8,
    count: u64,
    first_ms: i64,
    last_ms: i64,
    parts: Vec<u64>,
    names: Vec<Arc<str>>,
    summaries: Vec<(Arc<str>, Figures)>,
    applied: Vec<(Arc<str>, u64)>,
    readings: &'a [u8],
}

/// A page as it is stored, with the rev that its writing makes.
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
    put_varint(&mut out, page.applied.len() as u64);
    for (instance, sequence) in &page.applied {
        put_text(&mut out, instance);
        put_varint(&mut out, *sequence);
    }
    out.extend_from_slice(readings);
    out.push(PACKED);
    out
}

fn put_parts(out: &mut Vec<u8>, sensor: &Sensor) {
    put_varint(out, sensor.tags.len() as u64);
    sensor.part_lengths().for_each(|length| put_varint(out, length as u64));
}

fn put_names(out: &mut Vec<u8>, readings: &Readings) {
    let names = readings.columns();
    put_varint(out, names.len() as u64);
    names.for_each(|(name, _)| put_text(out, name));
}

fn put_summaries(out: &mut Vec<u8>, readings: &Readings) {
    put_varint(out, readings.summaries().count() as u64);
    let mut room = Vec::new();
    for (number, summary) in readings.numbered_summaries() {
        let Figures { count, min, max, sum, first, last, avg: _ } = summary.figures();
        put_varint(out, number as u64);
        put_varint(out, count);
        put_cells(out, &[min, max, first, last, sum].map(Some), &mut room);
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The rev of a stored page, whatever else is in it.
pub(super) fn rev(bytes: &[u8], id: impl Fn() -> String) -> Result<u64, StorageError> {
    match form(bytes, &id)? {
        Form::Document(document) => document_rev(document),
        Form::Packed(bytes) => Bytes::new(bytes).varint().map_err(|e| unreadable(id(), e.into())),
    }
}

/// A page with its readings; summaries are made anew from them.
pub(super) fn decode(bytes: &[u8], key: PageKey<'_>) -> Result<StoredPage, StorageError> {
    let read = |bytes| {
        let head = Head::read(bytes)?;
        Ok(StoredPage {
            number: key.number,
            rev: head.rev,
            closed: head.closed(),
            has_overflow: head.has_overflow(),
            readings: head.set()?,
            applied: head.applied,
        })
    };
    match form(bytes, &|| key.id())? {
        Form::Document(document) => decode_page(document),
        Form::Packed(bytes) => read(bytes).map_err(|e| unreadable(key.id(), e)),
    }
}

/// A page as a query reads it: its stored summary, and its readings if they were asked for.
pub(super) fn decode_for_scan(
    bytes: &[u8],
    key: PageKey<'_>,
    with_readings: bool,
) -> Result<ScannedPage, StorageError> {
    let read = |bytes| {
        let head = Head::read(bytes)?;
        let readings = if with_readings { Some(head.set()?) } else { None };
        let summary: Vec<(Arc<str>, Summary)> =
            head.summaries.into_iter().map(|(name, figures)| (name, summary_of_figures(&figures))).collect();
        Ok(ScannedPage { hour: key.hour, number: key.number, summary, readings })
    };
    match form(bytes, &|| key.id())? {
        Form::Document(document) => decode_scanned(document, with_readings),
        Form::Packed(bytes) => read(bytes).map_err(|e| unreadable(key.id(), e)),
    }
}

/// A page for whoever checks it.
pub(super) fn decode_for_walk(bytes: &[u8], key: PageKey<'_>) -> Result<KeptPage, StorageError> {
    let id = key.id();
    match form(bytes, &|| id.clone())? {
        Form::Document(document) => decode_kept(document, &id, None),
        Form::Packed(bytes) => kept(bytes, key, &id).map_err(|e| unreadable(id, e)),
    }
}

fn kept(bytes: &[u8], key: PageKey<'_>, id: &str) -> Result<KeptPage, NoPage> {
    let head = Head::read(bytes)?;
    let (times, columns) = unpack(head.readings, head.names.len())?;
    let fields = |index: usize| {
        let cells = head.names.iter().zip(&columns);
        cells.filter_map(|(name, cells)| Some((name.clone(), cells[index].clone()?))).collect()
    };
    let readings = times.iter().enumerate().map(|(index, time)| Reading { time: *time, fields: fields(index) });
    let start_ms = key.hour.start_ms();
    Ok(KeptPage {
        key: id.to_owned(),
        in_overflow: None,
        // Which page it is stands in its key and nowhere else.
        id: id.to_owned(),
        own_id: id.to_owned(),
        sensor_key: key.sensor.into(),
        sensor: Arc::new(head.sensor(key.sensor)?),
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
        applied: head.applied,
    })
}

enum Form<'a> {
    Document(&'a RawDocument),
    Packed(&'a [u8]),
}

fn form<'a>(bytes: &'a [u8], id: &impl Fn() -> String) -> Result<Form<'a>, StorageError> {
    match bytes.split_last() {
        Some((&DOCUMENT, _)) => {
            let document = RawDocument::from_bytes(bytes);
            document.map(Form::Document).map_err(|e| StorageError::Unreadable { id: id(), detail: e.to_string() })
        }
        Some((&PACKED, packed)) => Ok(Form::Packed(packed)),
        Some((other, _)) => Err(unreadable(id(), NoPage::Form(*other))),
        None => Err(unreadable(id(), Damage::Cut { at: 0, len: 0 }.into())),
    }
}

fn unreadable(id: String, why: NoPage) -> StorageError {
    StorageError::Unreadable { id, detail: why.to_string() }
}

impl PageKey<'_> {
    /// The page's id.
    pub(super) fn id(&self) -> String {
        page_id(self.sensor, self.hour, self.number)
    }
}

impl<'a> Head<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, NoPage> {
        let mut bytes = Bytes::new(bytes);
        let (rev, marks, count) = (bytes.varint()?, bytes.byte()?, bytes.varint()?);
        if marks > CLOSED | HAS_OVERFLOW {
            return Err(Damage::Unknown { what: "its marks", found: u64::from(marks) }.into());
        }
        let (first_ms, last_ms) = (unzigzag(bytes.varint()?), unzigzag(bytes.varint()?));
        let tags = bytes.varint()?;
        let mut parts = vec![bytes.varint()?];
        // Whatever the number says, every turn takes bytes.
        for _ in 0..tags {
            parts.extend([bytes.varint()?, bytes.varint()?]);
        }
        let mut names = Vec::new();
        for _ in 0..bytes.varint()? {
            names.push(Arc::from(bytes.text()?));
        }
        let mut summaries = Vec::new();
        for _ in 0..bytes.varint()? {
            summaries.push(summary(&mut bytes, &names)?);
        }
        let mut applied = Vec::new();
        for _ in 0..bytes.varint()? {
            applied.push((Arc::from(bytes.text()?), bytes.varint()?));
        }
        let readings = bytes.rest();
        Ok(Self { rev, marks, count, first_ms, last_ms, parts, names, summaries, applied, readings })
    }

    fn closed(&self) -> bool {
        self.marks & CLOSED != 0
    }

    fn has_overflow(&self) -> bool {
        self.marks & HAS_OVERFLOW != 0
    }

    fn set(&self) -> Result<Readings, NoPage> {
        let (times, columns) = unpack(self.readings, self.names.len())?;
        Ok(Readings::from_columns(times, self.names.iter().cloned().zip(columns))?)
    }

    fn sensor(&self, key: &str) -> Result<Sensor, NoPage> {
        let parts = Sensor::parts_of(key, &self.parts).ok_or(NoPage::Parts)?;
        let (measurement, tags) = parts.split_first().ok_or(NoPage::Parts)?;
        let tags = tags.chunks_exact(2).map(|tag| (&*tag[0], &*tag[1]));
        Sensor::new(measurement, tags).map_err(NoPage::Tag)
    }
}

fn summary(bytes: &mut Bytes<'_>, names: &[Arc<str>]) -> Result<(Arc<str>, Figures), NoPage> {
    let number = bytes.varint()?;
    let name = usize::try_from(number).ok().and_then(|number| names.get(number)).ok_or(NoPage::Name(number))?;
    let count = bytes.varint()?;
    let cells: Option<Vec<Value>> = take_cells(bytes, 5)?.into_iter().collect();
    let missing = Damage::Unknown { what: "a figure of a summary", found: 0 };
    let cells: [Value; 5] = cells.and_then(|cells| cells.try_into().ok()).ok_or(missing)?;
    let [min, max, first, last, sum] = cells;
    Ok((name.clone(), Figures::with_mean(count, min, max, sum, first, last)))
}

#[cfg(test)]
mod tests;
