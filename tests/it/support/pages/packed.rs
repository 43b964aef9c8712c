//! Packed pages of the embedded file, converted to documents and back by independent code, according to the design.

use std::collections::BTreeMap;

use hourglass::reading::time::Hour;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, doc};

use super::HOUR_MS;
use crate::support::exact::times_power_of_two;

const CLOSED: u8 = 1;
const HAS_OVERFLOW: u8 = 2;
const UNITS: [i64; 4] = [1_000_000_000, 1_000_000, 1_000, 1];
/// Order of the figures in a summary.
const FIGURES: [&str; 5] = ["min", "max", "first", "last", "sum"];

/// The page that a key names.
pub struct Key {
    sensor: String,
    start: i64,
    pub number: u32,
}

impl Key {
    pub fn parse(key: &[u8], database: &str) -> Key {
        let rest = key[database.len() + 2..].split_at(8);
        let hour = i64::from_be_bytes(rest.0.try_into().expect("eight bytes")) ^ i64::MIN;
        let (sensor, number) = rest.1.split_at(rest.1.len() - 4);
        let sensor = sensor.strip_suffix(&[0, 0]).expect("the end of a text");
        let sensor = String::from_utf8(sensor.to_vec()).expect("UTF-8").replace("\0\u{ff}", "\0");
        Key { sensor, start: hour * HOUR_MS, number: u32::from_be_bytes(number.try_into().expect("four bytes")) }
    }

    pub fn bytes(&self, database: &str) -> Vec<u8> {
        let hour = (self.start / HOUR_MS) ^ i64::MIN;
        [database.as_bytes(), &[0, 0], &hour.to_be_bytes(), self.sensor.as_bytes(), &[0, 0], &self.number.to_be_bytes()]
            .concat()
    }

    pub fn with_number(self, number: u32) -> Key {
        Key { number, ..self }
    }

    pub fn id(&self) -> String {
        hourglass::store::document::page_id(&self.sensor, Hour::from_ms(self.start), self.number)
    }
}

/// Returns the document of a stored value without its checksum.
pub fn document(key: &[u8], database: &str, value: &[u8]) -> Document {
    let (form, packed) = value.split_last().expect("a form");
    if *form == 0 {
        return Document::from_reader(value).expect("BSON");
    }
    let key = Key::parse(key, database);
    let mut from = Reader(packed);
    let rev = from.varint();
    let marks = from.byte();
    let count = from.varint();
    let first = from.zigzag();
    let last = from.zigzag();
    let (measurement, tags) = from.sensor(&key.sensor);
    let names: Vec<String> = (0..from.varint()).map(|_| from.text()).collect();
    let mut summary = Document::new();
    for _ in 0..from.varint() {
        let name = &names[usize::try_from(from.varint()).expect("few")];
        summary.insert(escaped(name), from.summary());
    }
    let order = from.order();
    let readings = from.readings(&names);
    assert!(from.0.is_empty(), "{}: {} bytes are left over", key.id(), from.0.len());
    doc! {
        "_id": key.id(), "schemaVersion": i32::from(*form), "sensor": &key.sensor,
        "measurement": measurement, "tags": tags,
        "start": DateTime::from_millis(key.start), "end": DateTime::from_millis(key.start + HOUR_MS),
        "page": i32::try_from(key.number).expect("few"), "rev": i64::try_from(rev).expect("a rev"),
        "closed": marks & CLOSED != 0, "count": i64::try_from(count).expect("few"),
        "first": DateTime::from_millis(key.start + first), "last": DateTime::from_millis(key.start + last),
        "hasOverflow": marks & HAS_OVERFLOW != 0,
        "readings": readings, "summary": summary, "order": order,
    }
}

/// Returns the rev of a packed page; `None` for a document.
pub fn rev(value: &[u8]) -> Option<i64> {
    (value.last() != Some(&0)).then(|| i64::try_from(Reader(value).varint()).expect("a rev"))
}

/// Packs a changed document. Parts outside of the value must be unchanged; damaged dates and readings stay damaged.
pub fn value(document: &Document, before: &Document) -> Vec<u8> {
    for name in ["_id", "sensor", "measurement", "tags", "start", "end", "page"] {
        assert_eq!(document.get(name), before.get(name), "{name} stands in the key");
    }
    let mut out = Vec::new();
    put_varint(&mut out, whole(&document["rev"]).unsigned_abs());
    let mark = |name: &str, bit| if document.get_bool(name).expect("a mark") { bit } else { 0 };
    out.push(mark("closed", CLOSED) | mark("hasOverflow", HAS_OVERFLOW));
    put_varint(&mut out, whole(&document["count"]).unsigned_abs());
    let start = document.get_datetime("start").expect("a date").timestamp_millis();
    for name in ["first", "last"] {
        let date = document.get_datetime(name).map_or(0, |date| date.timestamp_millis());
        put_varint(&mut out, zigzag(date - start));
    }
    put_parts(&mut out, document);
    let readings = document.get_array("readings").cloned();
    let names = names(readings.as_deref().unwrap_or_default(), document);
    put_varint(&mut out, names.len() as u64);
    names.iter().for_each(|name| put_text(&mut out, &unescaped(name)));
    let form = u8::try_from(whole(&document["schemaVersion"])).expect("a form");
    put_summaries(&mut out, document.get_document("summary").unwrap_or(&Document::new()), &names);
    put_order(&mut out, document.get_document("order").expect("a document"));
    match readings {
        Ok(readings) => put_readings(&mut out, &readings, &names),
        Err(_) => put_varint(&mut out, 60),
    }
    out.push(form);
    out
}

/// Returns the value of a page with its sensor key as a measurement without tags.
pub fn without_tags(key: &[u8], database: &str, value: &[u8]) -> Vec<u8> {
    let mut from = Reader(value);
    let _ = (from.varint(), from.byte(), from.varint(), from.varint(), from.varint());
    let head = value.len() - from.0.len();
    let sensor = Key::parse(key, database).sensor;
    from.sensor(&sensor);
    let mut out = value[..head].to_vec();
    out.push(0);
    put_varint(&mut out, sensor.len() as u64);
    out.extend_from_slice(from.0);
    out
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().expect("a byte");
        self.0 = rest;
        *byte
    }

    fn varint(&mut self) -> u64 {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte();
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }

    fn zigzag(&mut self) -> i64 {
        let value = self.varint();
        let half = (value >> 1).cast_signed();
        if value & 1 == 1 { !half } else { half }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::try_from(self.varint()).expect("a length");
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes.to_vec()
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }

    /// Keys with escapes are left to the wire format.
    fn sensor(&mut self, key: &str) -> (String, Document) {
        let count = usize::try_from(self.varint()).expect("few");
        let mut offset = 0;
        let mut part = |length: u64| {
            let part = &key[offset..offset + usize::try_from(length).expect("short")];
            offset += part.len() + 1;
            part.replace('\\', "")
        };
        let measurement = part(self.varint());
        let tags = (0..count).map(|_| (escaped(&part(self.varint())), Bson::String(part(self.varint()))));
        (measurement, tags.collect())
    }

    fn summary(&mut self) -> Document {
        let count = i64::try_from(self.varint()).expect("few");
        let mut summary = doc! { "count": count };
        summary.extend(
            FIGURES.map(str::to_owned).into_iter().zip(self.cells(5).into_iter().map(|c| c.expect("a figure"))),
        );
        #[allow(clippy::cast_precision_loss, reason = "the mean is a double")]
        let mean = match &summary["sum"] {
            Bson::Double(sum) => *sum / count as f64,
            other => whole(other) as f64 / count as f64,
        };
        summary.insert("avg", mean);
        if let Bson::Double(sum) = &summary["sum"] {
            let sum = *sum;
            summary.insert("rest", self.rest(sum));
        }
        summary
    }

    /// Reads the residue of a sum: 0, one part, or several.
    fn rest(&mut self, sum: f64) -> Bson {
        let mut parts = Vec::new();
        let mut exponent = unit(sum);
        loop {
            let head = self.varint();
            if head == 0 {
                return Bson::Double(0.0);
            }
            exponent -= i32::try_from(head >> 1).expect("small");
            #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
            let odd = (2 * self.zigzag() + 1) as f64;
            // Otherwise it would be an infinity, too.
            let scale = if sum.is_infinite() && parts.is_empty() { -64 } else { 0 };
            parts.push(Bson::Double(times_power_of_two(odd, exponent + scale)));
            if head & 1 == 0 {
                return if parts.len() == 1 { parts.remove(0) } else { Bson::Array(parts) };
            }
        }
    }

    /// A packed page has an order with its own rev.
    fn order(&mut self) -> Document {
        let long = |value: u64| i64::try_from(value).expect("63 bits");
        let floor = self.varint();
        let mut order = doc! { "floor": long(floor) };
        match self.varint() {
            0 => {}
            behind => _ = order.insert("first", long(floor + behind)),
        }
        order.insert("last", long(floor + self.varint()));
        match self.bytes() {
            stamps if stamps.is_empty() => {}
            bytes => _ = order.insert("stamps", Binary { subtype: BinarySubtype::Generic, bytes }),
        }
        order
    }

    fn readings(&mut self, names: &[String]) -> Vec<Bson> {
        let count = usize::try_from(self.varint()).expect("few");
        if count == 0 {
            return Vec::new();
        }
        let unit = UNITS[usize::from(self.byte())];
        let mut time = 0;
        let mut interval = 0;
        let times: Vec<i64> = (0..count)
            .map(|_| {
                interval += self.zigzag();
                time += interval;
                time * unit
            })
            .collect();
        let columns: Vec<Vec<Option<Bson>>> = names.iter().map(|_| self.cells(count)).collect();
        let reading = |(index, time): (usize, &i64)| {
            let mut reading = doc! { "ts": DateTime::from_millis(time.div_euclid(1_000_000)) };
            match time.rem_euclid(1_000_000) {
                0 => {}
                rest => _ = reading.insert("ns", i32::try_from(rest).expect("small")),
            }
            for (name, cells) in names.iter().zip(&columns) {
                cells[index].clone().into_iter().for_each(|value| _ = reading.insert(escaped(name), value));
            }
            Bson::Document(reading)
        };
        times.iter().enumerate().map(reading).collect()
    }

    fn cells(&mut self, count: usize) -> Vec<Option<Bson>> {
        let mut cells = Vec::new();
        while cells.len() < count {
            let head = self.varint();
            let places = if head & 7 == 1 { i32::from(self.byte()) } else { 0 };
            let mut before = 0;
            for _ in 0..=head >> 3 {
                cells.push(self.cell(head & 7, places, &mut before));
            }
        }
        assert_eq!(cells.len(), count, "runs end where the column does");
        cells
    }

    fn cell(&mut self, kind: u64, places: i32, before: &mut i64) -> Option<Bson> {
        Some(match kind {
            0 => return None,
            1 => {
                *before += self.zigzag();
                #[allow(clippy::cast_precision_loss, reason = "it is below 2^53")]
                let number = *before as f64;
                Bson::Double(number / 10_f64.powi(places))
            }
            2 => {
                let mut bytes = self.bytes();
                bytes.resize(8, 0);
                Bson::Double(f64::from_be_bytes(bytes.try_into().expect("eight bytes")))
            }
            3 => {
                *before = before.wrapping_add(self.zigzag());
                Bson::Int64(*before)
            }
            4 => Bson::Decimal128(self.varint().to_string().parse::<Decimal128>().expect("a number")),
            5 => Bson::Boolean(self.byte() == 1),
            6 => Bson::String(self.text()),
            other => panic!("{other} is no kind of cells"),
        })
    }
}

/// Returns the field names as in documents, in order of appearance.
fn names(readings: &[Bson], document: &Document) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let fields = readings.iter().flat_map(|reading| reading.as_document().expect("a reading").keys());
    let summaries = document.get_document("summary").into_iter().flat_map(Document::keys);
    for name in fields.chain(summaries).filter(|name| !["ts", "ns"].contains(&name.as_str())) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn put_parts(out: &mut Vec<u8>, document: &Document) {
    let escaped_bytes = |part: &str, separators: &[char]| (part.len() + part.matches(separators).count()) as u64;
    let tags = document.get_document("tags").expect("tags");
    put_varint(out, tags.len() as u64);
    put_varint(out, escaped_bytes(document.get_str("measurement").expect("a text"), &[',', ' ']));
    for (name, value) in tags {
        for part in [&*unescaped(name), value.as_str().expect("a text")] {
            put_varint(out, escaped_bytes(part, &[',', '=', ' ']));
        }
    }
}

fn put_summaries(out: &mut Vec<u8>, summary: &Document, names: &[String]) {
    put_varint(out, summary.len() as u64);
    for (name, figures) in summary {
        let figures = figures.as_document().expect("a summary");
        put_varint(out, names.iter().position(|known| known == name).expect("a known field") as u64);
        put_varint(out, whole(&figures["count"]).unsigned_abs());
        FIGURES.iter().for_each(|name| put_cell(out, Some(&figures[*name])));
        if let Bson::Double(sum) = &figures["sum"] {
            put_rest(out, *sum, figures.get("rest"));
        }
    }
}

fn put_rest(out: &mut Vec<u8>, sum: f64, rest: Option<&Bson>) {
    let parts: Vec<f64> = match rest {
        Some(Bson::Double(one)) if *one != 0.0 => vec![*one],
        Some(Bson::Array(parts)) => parts.iter().map(|part| part.as_f64().expect("a double")).collect(),
        _ => return put_varint(out, 0),
    };
    let mut before = unit(sum);
    for (place, part) in parts.iter().enumerate() {
        let significand = part.to_bits() & ((1 << 52) - 1) | if part.is_normal() { 1 << 52 } else { 0 };
        let scale = if sum.is_infinite() && place == 0 { 64 } else { 0 };
        let exponent = unit(*part) + significand.trailing_zeros().cast_signed() + scale;
        let odd = (significand >> significand.trailing_zeros()).cast_signed();
        let gap = u64::from((before - exponent).unsigned_abs());
        put_varint(out, gap << 1 | u64::from(place + 1 < parts.len()));
        put_varint(out, zigzag((if *part < 0.0 { -odd } else { odd } - 1) / 2));
        before = exponent;
    }
}

/// Returns the exponent of a double's last bit.
fn unit(double: f64) -> i32 {
    if double.is_infinite() {
        return 1200;
    }
    i32::try_from(double.to_bits() >> 52 & 0x7ff).expect("small").max(1) - 1075
}

fn put_order(out: &mut Vec<u8>, order: &Document) {
    let floor = whole(&order["floor"]);
    let stamps: &[u8] = order.get_binary_generic("stamps").map_or(&[], |stamps| stamps);
    put_varint(out, floor.unsigned_abs());
    put_varint(out, (order.get("first").map_or(floor, whole) - floor).unsigned_abs());
    put_varint(out, (whole(&order["last"]) - floor).unsigned_abs());
    put_varint(out, stamps.len() as u64);
    out.extend_from_slice(stamps);
}

fn put_readings(out: &mut Vec<u8>, readings: &[Bson], names: &[String]) {
    put_varint(out, readings.len() as u64);
    if readings.is_empty() {
        return;
    }
    out.push(3);
    let mut before = 0;
    let mut interval = 0;
    let mut columns: BTreeMap<&str, Vec<Option<&Bson>>> = BTreeMap::new();
    for reading in readings {
        let reading = reading.as_document().expect("a reading");
        let millis = reading.get_datetime("ts").expect("a date").timestamp_millis();
        let time = millis * 1_000_000 + reading.get("ns").map_or(0, whole);
        put_varint(out, zigzag(time - before - interval));
        (before, interval) = (time, time - before);
        names.iter().for_each(|name| columns.entry(name).or_default().push(reading.get(name)));
    }
    names.iter().for_each(|name| columns[&**name].iter().for_each(|cell| put_cell(out, *cell)));
}

/// Writes a run of one cell.
fn put_cell(out: &mut Vec<u8>, cell: Option<&Bson>) {
    match cell {
        None => out.push(0),
        Some(Bson::Double(v)) => {
            out.extend_from_slice(&[2, 8]);
            out.extend_from_slice(&v.to_be_bytes());
        }
        Some(Bson::Int64(v)) => {
            out.push(3);
            put_varint(out, zigzag(*v));
        }
        Some(Bson::Decimal128(v)) => {
            out.push(4);
            put_varint(out, v.to_string().parse().expect("a whole number"));
        }
        Some(Bson::Boolean(v)) => out.extend_from_slice(&[5, u8::from(*v)]),
        Some(Bson::String(v)) => {
            out.push(6);
            put_text(out, v);
        }
        Some(other) => panic!("{other} is no value"),
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn whole(value: &Bson) -> i64 {
    match value {
        Bson::Int32(v) => i64::from(*v),
        Bson::Int64(v) => *v,
        other => panic!("{other} is no whole number"),
    }
}

fn escaped(name: &str) -> String {
    hourglass::store::names::key(name).into_owned()
}

fn unescaped(name: &str) -> String {
    super::name_of(name)
}
