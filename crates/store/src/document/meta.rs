//! Metadata in a sensor's document: readable values, and the stamps that decide between conflicting changes.
//!
//! ```text
//! meta: { site: "lab", position: { x: 1.5 } },          the values
//! metaStamps: { site: Int64, position: Int64, … },      stamp of the last change by name, including removed names
//! metaReplaced: Int64 (if any)                          all values with older stamps were replaced or deleted
//! metaDropped: Int64 (if any)                           latest stamp of the removals that are no longer remembered
//! ```
//!
//! Empty fields are left out. A value without a stamp was set by hand, and is older than any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{RawBsonRef, RawDocument};
use serde_json::{Number, Value};

use super::encode::signed;
use super::writer::BsonWriter;
use crate::bucket::Meta;
use crate::bucket::meta::MetaEntry;
use crate::names::{from_key, key};
use crate::reading::Stamp;
use crate::reading::stamp::SETTLED;

/// The names of the fields. An update unsets those that it leaves out.
pub const META_FIELDS: [&str; 4] = ["meta", "metaStamps", "metaReplaced", "metaDropped"];

/// Writes the fields that are not empty. Returns the names of the others.
pub fn put(w: &mut BsonWriter, meta: &Meta) -> Vec<&'static str> {
    let mut left_out = Vec::new();
    let [values, stamps, replaced, dropped] = META_FIELDS;
    if meta.is_without_values() {
        left_out.push(values);
    } else {
        w.begin(values);
        for (name, json) in meta.values() {
            // Requests were parsed as JSON, so this does not fail.
            put_value(w, &key(name), &serde_json::from_str(json).unwrap_or(Value::Null));
        }
        w.end();
    }
    if meta.entries().next().is_none() {
        left_out.push(stamps);
    } else {
        w.begin(stamps);
        meta.entries().for_each(|(name, entry)| w.long(&key(name), signed(entry.stamp)));
        w.end();
    }
    for (name, stamp) in [(replaced, meta.replaced_before()), (dropped, meta.forgotten_stamp())] {
        if stamp == SETTLED {
            left_out.push(name);
        } else {
            w.long(name, signed(stamp));
        }
    }
    left_out
}

pub(super) fn put_value(w: &mut BsonWriter, name: &str, value: &Value) {
    match value {
        Value::Null => w.null(name),
        Value::Bool(is_true) => w.boolean(name, *is_true),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => w.long(name, whole),
            None => w.float(name, number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => w.text(name, text),
        Value::Array(values) => w.array(name, values.iter(), put_value),
        Value::Object(values) => {
            w.begin(name);
            values.iter().for_each(|(name, value)| put_value(w, &key(name), value));
            w.end();
        }
    }
}

/// Reads a document's metadata.
pub fn read(document: &RawDocument) -> Meta {
    let part = |name: &str| document.get(name).ok().flatten().and_then(RawBsonRef::as_document);
    let mut entries = BTreeMap::new();
    for (name, value) in part(META_FIELDS[0]).into_iter().flatten().flatten() {
        let value = Some(Arc::from(to_json(value).to_string()));
        entries.insert(from_key(name.as_str()).into(), MetaEntry { stamp: SETTLED, value });
    }
    for (name, stamp) in part(META_FIELDS[1]).into_iter().flatten().flatten() {
        let entry = entries.entry(from_key(name.as_str()).into()).or_insert(MetaEntry { stamp: SETTLED, value: None });
        entry.stamp = read_stamp(stamp);
    }
    let stamp = |name: &str| document.get(name).ok().flatten().map_or(SETTLED, read_stamp);
    Meta::new(stamp(META_FIELDS[2]), stamp(META_FIELDS[3]), entries)
}

fn read_stamp(value: RawBsonRef<'_>) -> Stamp {
    value.as_i64().and_then(|stamp| Stamp::try_from(stamp).ok()).unwrap_or(SETTLED)
}

/// Converts a value to JSON. A type that JSON lacks, which only other programs write, becomes text.
fn to_json(value: RawBsonRef<'_>) -> Value {
    match value {
        RawBsonRef::Null => Value::Null,
        RawBsonRef::Boolean(is_true) => Value::Bool(is_true),
        RawBsonRef::Int32(whole) => Value::from(whole),
        RawBsonRef::Int64(whole) => Value::from(whole),
        RawBsonRef::Double(number) => {
            Number::from_f64(number).map_or_else(|| Value::from(number.to_string()), Value::Number)
        }
        RawBsonRef::String(text) => Value::from(text),
        RawBsonRef::Document(document) => {
            let fields = document.into_iter().flatten();
            Value::Object(fields.map(|(name, value)| (from_key(name.as_str()).into_owned(), to_json(value))).collect())
        }
        RawBsonRef::Array(values) => Value::Array(values.into_iter().flatten().map(to_json).collect()),
        other => Value::from(format!("{other:?}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;

    #[test]
    fn metadata_round_trips() {
        let json = r#"{"a.b":"x","deep":{"$y":[1,2.5,-0.0,null,true,{"ts":"ü"}]},"n":9223372036854775807,"z":""}"#;
        let values: BTreeMap<String, Value> = serde_json::from_str(json).unwrap();
        let entry = |value: &Value| Some(Arc::from(value.to_string()));
        let mut meta =
            Meta::change(1 << 60, true, values.iter().map(|(name, value)| (name.clone().into(), entry(value))));
        meta.merge(&Meta::change(
            (1 << 60) + 7,
            false,
            [("gone".into(), None), ("z".into(), entry(&Value::from("new")))],
        ));
        let mut w = BsonWriter::document(0);
        assert_eq!(put(&mut w, &meta), ["metaDropped"]);
        let document = RawDocumentBuf::from_bytes(w.finish()).unwrap();
        assert_eq!(read(&document), meta);
        meta.settle(u64::MAX);
        let mut w = BsonWriter::document(0);
        assert_eq!(put(&mut w, &meta), ["metaReplaced"]);
        assert_eq!(read(&RawDocumentBuf::from_bytes(w.finish()).unwrap()), meta);
        let mut w = BsonWriter::document(0);
        assert_eq!(put(&mut w, &Meta::default()), META_FIELDS);
        assert_eq!(read(&RawDocumentBuf::from_bytes(w.finish()).unwrap()), Meta::default());
    }

    /// A user's script can write `meta` without stamps and with a date.
    #[test]
    fn values_set_by_hand_are_older_than_any_change() {
        let mut by_hand = bson::Document::new();
        by_hand.insert("meta", bson::doc! { "site": "lab", "since": bson::DateTime::from_millis(0), "floor": 3_i32 });
        let mut meta = read(&RawDocumentBuf::try_from(&by_hand).unwrap());
        assert_eq!((meta.get("site").map(|v| &**v), meta.get("floor").map(|v| &**v)), (Some("\"lab\""), Some("3")));
        assert!(meta.get("since").is_some());
        meta.merge(&Meta::change(1, false, [("site".into(), Some("\"roof\"".into()))]));
        assert_eq!(meta.get("site").map(|v| &**v), Some("\"roof\""));
    }
}
