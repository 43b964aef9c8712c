//! Stamps of a page, decoded by independent code according to the design.

use bson::raw::{RawBsonRef, RawDocument};

use super::{Reading, keys, whole};

/// Bits below the milliseconds of a stamp.
const LOW_BITS: u32 = 20;

/// Checks that floor, first and last of `order` match the stamps of the readings.
pub fn check(order: &RawDocument, readings: &[Reading], id: &str) {
    let known = ["floor", "first", "last", "stamps"];
    assert!(keys(order).iter().all(|name| known.contains(name)), "{id}: order of {:?}", keys(order));
    let floor = whole(order, "floor");
    let last = whole(order, "last");
    let first = order.get("first").expect("BSON").map(|_| whole(order, "first"));
    let kept = match order.get("stamps").expect("BSON") {
        None => vec![None; readings.len()],
        Some(RawBsonRef::Binary(binary)) => stamps(binary.bytes, readings, id),
        Some(other) => panic!("{id}: stamps are {other:?}"),
    };
    assert!(floor >= 0, "{id}: floor {floor}");
    let above = || kept.iter().flatten().copied();
    assert!(above().all(|stamp| stamp > floor), "{id}: a stamp at or below the floor {floor}");
    assert_eq!(last, above().max().unwrap_or(floor), "{id}: the last stamp");
    let oldest = if kept.contains(&None) { None } else { above().min() };
    assert_eq!(first, oldest, "{id}: the first stamp");
}

/// Returns the stamps of readings, then those of cells; `None` is at or below the floor.
fn stamps(bytes: &[u8], readings: &[Reading], id: &str) -> Vec<Option<i64>> {
    let mut from = bytes;
    let mut found = Vec::new();
    let mut millis = 0_i64;
    let mut step = 0_i64;
    let mut low = 0_u64;
    while found.len() < readings.len() {
        let head = varint(&mut from);
        if head & 1 == 0 {
            found.extend((0..head >> 1).map(|_| None));
            continue;
        }
        let length = if head & 2 == 0 { varint(&mut from) } else { 1 };
        low = if head & 4 == 0 { varint(&mut from) } else { low };
        let zigzag = head >> 3;
        step += (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
        millis += step;
        found.extend((0..length).map(|_| Some(stamp(millis, low))));
    }
    assert_eq!(found.len(), readings.len(), "{id}: runs of stamps");
    let names: Vec<String> = (0..varint(&mut from)).map(|_| text(&mut from)).collect();
    for _ in 0..varint(&mut from) {
        let row = varint(&mut from);
        let name = varint(&mut from);
        let row = usize::try_from(row).expect("few");
        let name = &names[usize::try_from(name).expect("few")];
        let has_field = readings[row].fields.iter().any(|(field, _)| field == name);
        assert!(has_field, "{id}: a stamp of {name}, which reading {row} has not");
        let stamp = stamp(varint(&mut from).cast_signed(), varint(&mut from));
        found.push((stamp != 0).then_some(stamp));
    }
    assert!(from.is_empty(), "{id}: {} bytes behind the stamps", from.len());
    found
}

fn stamp(millis: i64, low: u64) -> i64 {
    assert!(low >> LOW_BITS == 0, "{low} has more than {LOW_BITS} bits");
    millis << LOW_BITS | low.cast_signed()
}

fn varint(from: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = from.split_first().expect("a byte");
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn text(from: &mut &[u8]) -> String {
    let length = usize::try_from(varint(from)).expect("few");
    let (text, rest) = from.split_at(length);
    *from = rest;
    String::from_utf8(text.to_vec()).expect("UTF-8")
}
