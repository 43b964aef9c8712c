//! Stored documents: encoded pages and sensors with any names and values must decode to the same, and no bytes may make
//! the decoding of a page or the folding of its content panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::RawDocument;
use hourglass::bucket::store::Outlier;
use hourglass::bucket::store::Projection;
use hourglass::bucket::{Bucket, BucketId, Caps, MergeOptions, Meta, Reading, Readings, Row, SensorDocument};
use hourglass::reading::{Family, Hour, Sensor, Stamp, Value};
use hourglass::store::document::{
    append_update, decode_page, decode_raw_page, decode_raw_sensor, decode_scanned, decode_sensor, page_document,
    replace_update, sensor_document,
};

/// Checks a document. The first byte selects the content of the rest: a document, the source of a page, or such a
/// source with damage.
///
/// # Panics
/// If an encoded document does not decode to the same, or if decoding panics.
pub fn check(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    match first % 4 {
        0 => check_any_document(rest),
        1 => check_sensor(&mut Source(rest)),
        2 => drop(check_page(&mut Source(rest))),
        _ => {
            let (content, damage) = rest.split_at(rest.len() / 2);
            let mut document = check_page(&mut Source(content));
            for change in damage.chunks_exact(3).take(16) {
                let index = usize::from(u16::from_le_bytes([change[0], change[1]])) % document.len();
                document[index] ^= change[2];
            }
            check_any_document(&document);
        }
    }
}

/// Decodes any bytes. A decoded page must also fold and print.
fn check_any_document(bytes: &[u8]) {
    let Ok(document) = RawDocument::from_bytes(bytes) else { return };
    drop(decode_raw_page(document, "key", None));
    drop((decode_sensor(document), decode_raw_sensor(document, "key".to_owned())));
    if let Ok(stored) = decode_page(document) {
        let bucket = Bucket::from_stored([stored]);
        drop(page_document(&id("m", Vec::new(), 0), &bucket.pages()[0]));
    }
    if let Ok(scanned) = decode_scanned(document, &Projection::ALL) {
        for (_, summary) in scanned.summary {
            let united = (0..5).fold(summary.clone(), |united, _| united.union(&summary));
            drop(united.figures());
        }
    }
}

/// Encodes a page made from the source, checks that every decoder returns it, and returns the document.
fn check_page(source: &mut Source<'_>) -> Vec<u8> {
    let hour = Hour::from_ns(i64::from_le_bytes(source.bytes()).clamp(i64::MIN + 2, i64::MAX - 1));
    let count = source.byte() % 8;
    let tags = (0..count).map(|_| (source.name(), source.text())).collect();
    let id = id(&source.name(), tags, hour.0);
    let names: Vec<Arc<str>> = (0..=source.byte() % 16).map(|_| Arc::from(source.name())).collect();
    let mut bucket = Bucket::default();
    let caps = Caps { max_readings: 1000, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
    for sequence in 1..=u64::from(source.byte() % 32) {
        let offset_ns = i64::try_from(u64::from_le_bytes(source.bytes()) % 3_600_000_000_000).unwrap_or_default();
        let time = hour.start_ns().saturating_add(offset_ns).clamp(i64::MIN + 2, i64::MAX - 1);
        let mut cells: BTreeMap<&str, (u16, Value)> = BTreeMap::new();
        for _ in 0..=source.byte() % 4 {
            let field = u16::from(source.byte()) % u16::try_from(names.len()).unwrap_or(1);
            cells.insert(&names[usize::from(field)], (field, source.value()));
        }
        let cells: Vec<(u16, Value)> = cells.into_values().collect();
        let row = Row { time, stamp: sequence, names: &names, cells: &cells };
        if Hour::from_ns(time) == hour {
            bucket.apply(std::iter::once(row), &MergeOptions { caps: &caps, floor: 0, restamps: true });
        }
    }
    let Some(page) = bucket.pages().first() else { return vec![0] };
    let bytes = page_document(&id, page);
    let document = RawDocument::from_bytes(&bytes).expect("a document");
    let read = decode_page(document).unwrap_or_else(|error| panic!("{error}: {document:?}"));
    assert_eq!(read.readings, page.readings);
    assert_eq!((read.number, read.rev, read.closed), (page.number, page.next_rev(), page.closed));
    let scanned = decode_scanned(document, &Projection::ALL).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((scanned.hour, scanned.readings.as_ref()), (id.hour, Some(&page.readings)));
    let expected: Vec<String> =
        page.readings.summaries().map(|(name, sum)| format!("{name} {:?}", sum.figures())).collect();
    let decoded: Vec<String> =
        scanned.summary.iter().map(|(name, sum)| format!("{name} {:?}", sum.figures())).collect();
    assert_eq!(decoded, expected);
    assert_eq!(stamps(&read.readings), stamps(&page.readings));
    let whole = decode_raw_page(document, "key", Some(false)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((&whole.id, &*whole.sensor), (&whole.own_id, &*id.sensor));
    for update in [append_update(page, 0), replace_update(page)] {
        let update = RawDocument::from_bytes(&update).expect("a document").to_owned();
        assert!(update.iter().all(|element| element.is_ok()));
    }
    bytes
}

/// Returns the floor, and the stamp of each cell by time and field, because documents order their columns differently.
fn stamps(readings: &Readings) -> (Stamp, BTreeMap<(i64, &str), Stamp>) {
    let mut found = BTreeMap::new();
    for (column, (name, cells)) in readings.columns().enumerate() {
        for (row, time) in readings.times().iter().enumerate().filter(|(row, _)| cells[*row].is_some()) {
            found.insert((*time, &**name), readings.stamps().get(row, column));
        }
    }
    (readings.stamps().floor(), found)
}

fn id(measurement: &str, tags: Vec<(String, String)>, hour: i64) -> BucketId {
    let sensor = Sensor::new(measurement, tags).or_else(|_| Sensor::new::<&str>(measurement, []));
    BucketId { sensor: Arc::new(sensor.expect("no tag twice")), hour: Hour(hour) }
}

fn check_sensor(source: &mut Source<'_>) {
    let count = source.byte() % 8;
    let tags = (0..count).map(|_| (source.name(), source.text())).collect();
    let families = [Family::Number, Family::Boolean, Family::String];
    let count = source.byte() % 16;
    let fields: BTreeMap<String, Family> =
        (0..count).map(|_| (source.name(), families[usize::from(source.byte()) % 3])).collect();
    let milliseconds = |source: &mut Source<'_>| i64::from_le_bytes(source.bytes()) / 1_000_000 * 1_000_000;
    let mut recent = Vec::new();
    for _ in 0..source.byte() % 8 {
        let fields: BTreeMap<String, Value> = (0..source.byte() % 4).map(|_| (source.name(), source.value())).collect();
        let fields = fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect();
        recent.push(Reading { time: i64::from_le_bytes(source.bytes()), fields });
    }
    let outlier = (source.byte() % 2 == 1).then(|| Outlier {
        since: milliseconds(source),
        seen: milliseconds(source),
        last_hour: Hour::from_ns(i64::from_le_bytes(source.bytes())),
        pages: u32::from(source.byte()) << 24,
    });
    let document = SensorDocument {
        sensor: id(&source.name(), tags, 0).sensor,
        rev: u64::from(source.byte()) << 30,
        fields: fields.into_iter().map(|(name, family)| (Arc::from(name), family)).collect(),
        first_seen: Some(milliseconds(source)),
        last_seen: (source.byte() % 2 == 1).then(|| milliseconds(source)),
        recent,
        outlier,
        lifetime: None,
        meta: meta(source),
    };
    let bytes = sensor_document(&document, None);
    let read = decode_sensor(RawDocument::from_bytes(&bytes).expect("a document"));
    // Encoding increments the rev.
    assert_eq!(read, Ok(SensorDocument { rev: document.rev + 1, ..document }));
}

/// Metadata with texts, numbers and removed names.
fn meta(source: &mut Source<'_>) -> Meta {
    let mut meta = Meta::default();
    for _ in 0..source.byte() % 4 {
        let value = match source.byte() % 3 {
            0 => None,
            1 => Some(Arc::from(i64::from_le_bytes(source.bytes()).to_string())),
            _ => Some(Arc::from(format!("[{},null]", source.byte()))),
        };
        let stamp = u64::from(source.byte()) << 40 | 1;
        meta.merge(&Meta::change(stamp, source.byte().is_multiple_of(4), [(source.name().into(), value)]));
    }
    meta
}

/// Reads numbers, names and values from the data, and zeros after its end.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    fn text(&mut self) -> String {
        let length = usize::from(self.byte() % 24).min(self.0.len());
        let (text, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    }

    /// Reads a name, which often has a special meaning somewhere.
    fn name(&mut self) -> String {
        const SPECIAL: [&str; 12] =
            ["ts", "ns", "_id", "$set", "a.b", "%74s", "__proto__", "", "\0", "sensor", "readings", "🌡"];
        match self.byte() {
            special @ 0..64 => SPECIAL[usize::from(special) % SPECIAL.len()].to_owned(),
            _ => self.text(),
        }
    }

    fn value(&mut self) -> Value {
        match self.byte() % 8 {
            0 => Value::Integer(i64::from_le_bytes(self.bytes())),
            1 => Value::Unsigned(u64::from_le_bytes(self.bytes()) | 1 << 63),
            2 => Value::Boolean(self.byte() % 2 == 1),
            3 => Value::String(self.text().into()),
            4 => Value::Float(f64::from(self.byte()) / 10.0),
            5 => Value::Integer(i64::from(self.byte())),
            6 => Value::Float([0.0, -0.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE][usize::from(self.byte() % 5)]),
            _ => Value::Float(Some(f64::from_le_bytes(self.bytes())).filter(|v| v.is_finite()).unwrap_or(0.0)),
        }
    }
}
