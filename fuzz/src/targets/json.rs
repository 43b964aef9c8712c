//! JSON readings: another JSON decoder must read the same from an accepted reading, which must parse again when
//! printed.

use std::collections::BTreeMap;

use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision};
use hourglass::wire::json::Items;
use hourglass::wire::{Point, Points};
use serde_json::{Map, Value, json};

/// The first byte of the data selects one.
const PRECISIONS: [Precision; 4] = [Precision::Auto, Precision::Nanoseconds, Precision::Milliseconds, Precision::Hours];

/// The first byte selects precision and limits, the rest is the body.
///
/// # Panics
/// If an accepted reading is not JSON, is read differently by another decoder, or does not parse again when printed.
pub fn check(data: &[u8]) {
    let Some((first, body)) = data.split_first() else { return };
    let precision = PRECISIONS[usize::from(*first & 0x7f) % PRECISIONS.len()];
    let tight = Limits { line_bytes: 200, tags: 3, fields: 4, name_bytes: 12 };
    let limits = if *first & 0x80 == 0 { Limits::default() } else { tight };
    let mut numbers = Vec::new();
    let mut before = 0;
    let mut items = Items::new(body, precision, limits);
    while let Some(item) = items.next() {
        let number = match &item {
            Ok(item) => item.number,
            Err(rejection) => rejection.line,
        };
        assert!(number >= before, "{number} after {before}");
        before = number;
        numbers.push((number, item.is_ok()));
        match item {
            Ok(item) => {
                assert_matches_serde_json(&item);
                assert_round_trip(&item);
            }
            Err(rejection) => {
                assert!(rejection.column <= body.len() + 1 && !rejection.message().is_empty());
            }
        }
    }
    // An array must have one outcome per element, an object exactly one.
    match serde_json::from_slice::<Value>(body) {
        Ok(Value::Array(elements)) => {
            let found: Vec<usize> = numbers.iter().map(|(number, _)| *number).collect();
            assert_eq!(found, (1..=elements.len()).collect::<Vec<_>>());
        }
        // A valid object may span several lines.
        Ok(Value::Object(_)) => assert_eq!(numbers.len(), 1),
        Ok(_) => assert!(numbers.iter().all(|(_, is_accepted)| !is_accepted), "only an object is a reading"),
        Err(_) => {}
    }
}

/// The keys of a reading other than fields.
const KEYS: [&str; 8] = ["measurement", "tags", "sensor", "ts", "time", "timestamp", "fields", "value"];

/// Compares the reading with `serde_json::Value`.
fn assert_matches_serde_json(item: &Point<'_, '_>) {
    let value: Value = serde_json::from_slice(item.text).expect("an accepted reading is JSON");
    let object = value.as_object().expect("a reading is an object");
    let measurement = object.get("measurement").map_or("readings", |name| name.as_str().expect("a string"));
    let sensor = item.sensor(&Limits::default()).expect("a valid sensor");
    assert_eq!(&*sensor.measurement, measurement);
    let mut tags: BTreeMap<&str, &str> = BTreeMap::new();
    let named = object.get("tags").and_then(Value::as_object).into_iter().flatten();
    for (key, value) in named.chain(object.get_key_value("sensor")) {
        assert!(tags.insert(key, value.as_str().expect("a tag is a string")).is_none());
    }
    assert!(sensor.tags.iter().map(|(key, value)| (&**key, &**value)).eq(tags));
    let mut fields: BTreeMap<&str, &Value> = BTreeMap::new();
    match object.get("fields") {
        Some(named) => fields.extend(named.as_object().into_iter().flatten().map(|(key, value)| (&**key, value))),
        // Any other number or boolean is a field then.
        None => {
            fields.extend(object.iter().filter(|(key, _)| !KEYS.contains(&&***key)).map(|(key, value)| (&**key, value)))
        }
    }
    fields.extend(object.get_key_value("value").map(|(key, value)| (&**key, value)));
    fields.retain(|_, value| !value.is_null());
    assert_eq!(item.fields.len(), fields.len());
    for (key, value) in item.fields {
        assert!(is_same(value, fields[&**key]), "{key}: {value:?} {:?}", fields[&**key]);
    }
    let time = ["ts", "time", "timestamp"].into_iter().find_map(|key| object.get(key));
    assert_eq!(item.timestamp.is_some(), time.is_some_and(|time| !time.is_null()));
}

fn is_same(found: &RawValue<'_>, expected: &Value) -> bool {
    match found {
        // serde_json rounds some floats to a neighbouring one.
        RawValue::Float(v) => {
            expected.as_f64().is_some_and(|expected| (expected - v).abs() <= v.abs() * 1e-15 + f64::MIN_POSITIVE)
        }
        RawValue::Integer(v) => expected.as_i64() == Some(*v),
        RawValue::Unsigned(v) => expected.as_u64() == Some(*v),
        RawValue::Boolean(v) => expected.as_bool() == Some(*v),
        RawValue::String(v) => expected.as_str() == Some(&**v),
    }
}

/// Prints the reading and checks that it parses to the same one.
fn assert_round_trip(item: &Point<'_, '_>) {
    let sensor = item.sensor(&Limits::default()).expect("a valid sensor");
    let tags: Map<String, Value> = sensor.tags.iter().map(|(key, value)| (key.to_string(), json!(value))).collect();
    let fields: Map<String, Value> = item.fields.iter().map(|(key, field)| (key.to_string(), to_json(field))).collect();
    let printed = json!({
        "measurement": sensor.measurement, "tags": tags, "fields": fields, "ts": item.timestamp,
    })
    .to_string();
    let limits = Limits { line_bytes: usize::MAX, ..Limits::default() };
    let mut reparsed = Items::new(printed.as_bytes(), Precision::Nanoseconds, limits);
    let read = reparsed.next().expect("a reading").unwrap_or_else(|error| panic!("{printed}: {}", error.message()));
    assert_eq!(read.spelling(), item.spelling(), "{printed}");
    assert_eq!(read.timestamp, item.timestamp, "{printed}");
    let bits = |fields: &[(std::borrow::Cow<'_, str>, RawValue<'_>)]| -> BTreeMap<String, String> {
        fields.iter().map(|(key, value)| (key.to_string(), format!("{value:?}"))).collect()
    };
    assert_eq!(bits(read.fields), bits(item.fields), "{printed}");
    assert!(reparsed.next().is_none(), "{printed}");
}

fn to_json(field: &RawValue<'_>) -> Value {
    match field {
        RawValue::Float(v) => json!(v),
        RawValue::Integer(v) => json!(v),
        RawValue::Unsigned(v) => json!(v),
        RawValue::Boolean(v) => json!(v),
        RawValue::String(v) => json!(v),
    }
}
