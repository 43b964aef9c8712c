//! Writes JSON directly into a string.

use std::borrow::Cow;
use std::fmt::Write;

use crate::bucket::{GroupRule, Reading};
use crate::http::api::sensors::ListedSensor;
use crate::http::errors::REJECTED;
use crate::ingest::Ack;
use crate::kinds::units_of;
use crate::reading::Value;
use crate::reading::time::write_rfc3339;
use crate::wire::names::field_name;

/// The form of timestamps in answers.
#[derive(Debug, Clone, Copy)]
pub enum Times {
    /// RFC 3339.
    Text,
    /// Integers in units of this many nanoseconds, rounded down.
    Epoch(i64),
}

/// Writes a string.
pub fn string(out: &mut String, text: &str) {
    // Serializing a string cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

/// Writes a timestamp.
pub fn time(out: &mut String, time: i64, times: Times) {
    match times {
        Times::Text => {
            out.push('"');
            write_rfc3339(out, time);
            out.push('"');
        }
        Times::Epoch(unit) => put(out, format_args!("{}", time.div_euclid(unit))),
    }
}

/// Writes the shortest text that parses to the same float, whole numbers without a point. Values that are not finite (a
/// sum may overflow) are null.
fn float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    if !value.is_finite() {
        out.push_str("null");
    } else if magnitude != 0.0 && !(1e-5..1e17).contains(&magnitude) {
        put(out, format_args!("{value:e}"));
    } else {
        put(out, format_args!("{value}"));
    }
}

/// Writes a value.
pub fn value(out: &mut String, value: &Value) {
    match value {
        Value::Float(v) => float(out, *v),
        Value::Integer(v) => put(out, format_args!("{v}")),
        Value::Unsigned(v) => put(out, format_args!("{v}")),
        Value::Boolean(v) => put(out, format_args!("{v}")),
        Value::String(v) => string(out, v),
    }
}

/// Writes a reading: `{"ts":"…","temp":22.1}`. Fields called `ts`, or like its escape, are [renamed](field_name).
pub fn reading(out: &mut String, reading: &Reading, times: Times) {
    out.push_str("{\"ts\":");
    time(out, reading.time, times);
    for (name, field) in &reading.fields {
        out.push(',');
        string(out, &field_name(name, |name| name == "ts"));
        out.push(':');
        value(out, field);
    }
    out.push('}');
}

/// Writes a comma before all items except the first. `number` counts from 0.
pub fn comma(out: &mut String, number: usize) {
    if number > 0 {
        out.push(',');
    }
}

/// Writes items separated by commas.
pub fn list<T>(out: &mut String, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut String, T)) {
    for (number, item) in items.into_iter().enumerate() {
        comma(out, number);
        write(out, item);
    }
}

/// Ends a list with the cursor of the next part or null, and with notices if there are any:
/// `],"next":"…","notices":["…"]}`.
pub fn end_with_next(out: &mut String, next: Option<&str>, notices: &[String]) {
    out.push_str("],\"next\":");
    optional(out, next, string);
    end_with_notices(out, notices);
}

/// Ends an object, with notices if there are any: `,"notices":["…"]}`.
pub fn end_with_notices(out: &mut String, notices: &[String]) {
    if !notices.is_empty() {
        out.push_str(",\"notices\":[");
        list(out, notices, |out, notice| string(out, notice));
        out.push(']');
    }
    out.push('}');
}

/// Begins a series: `{"sensor":"…","tags":{…}`, or `{"measurement":"…","tags":{…}`. `key_name` is the first member.
pub fn head<'a>(out: &mut String, key_name: &str, name: &str, tags: impl Iterator<Item = (&'a str, &'a str)>) {
    out.push('{');
    pair(out, key_name, name);
    out.push_str(",\"tags\":{");
    list(out, tags, |out, (name, tag)| pair(out, name, tag));
    out.push('}');
}

/// A sensor in a list.
#[derive(Clone, Copy)]
pub struct SensorItem<'a> {
    pub sensor: &'a ListedSensor,
    /// The groups of the database.
    pub groups: &'a [&'a GroupRule],
    pub is_silent: bool,
}

/// Writes a sensor in the format of `/api/v1/sensors`.
pub fn sensor(out: &mut String, item: SensorItem<'_>, times: Times, with_recent: bool) {
    let SensorItem { sensor: ListedSensor { document, kind, .. }, groups, is_silent } = item;
    let tags = document.sensor.tags.iter().map(|(name, tag)| (&**name, &**tag));
    head(out, "sensor", &document.sensor.key, tags);
    out.push(',');
    pair(out, "measurement", &document.sensor.measurement);
    out.push_str(",\"fields\":{");
    list(out, &document.fields, |out, (name, family)| pair(out, name, family.name()));
    out.push('}');
    for (name, seen) in [("first_seen", document.first_seen), ("last_seen", document.last_seen)] {
        put(out, format_args!(",\"{name}\":"));
        optional(out, seen, |out, seen| time(out, seen, times));
    }
    out.push_str(",\"latest\":");
    optional(out, document.recent.last(), |out, latest| reading(out, latest, times));
    if with_recent {
        out.push_str(",\"recent\":[");
        list(out, &document.recent, |out, recent| reading(out, recent, times));
        out.push(']');
    }
    if !document.meta.is_without_values() {
        out.push_str(",\"meta\":");
        out.push_str(&document.meta.json());
    }
    if let Some(kind) = kind {
        out.push(',');
        pair(out, "kind", &kind.name);
    }
    let fields = document.fields.iter().map(|(name, family)| (&**name, *family));
    let units = units_of(kind.as_deref(), &document.meta, fields);
    if !units.is_empty() {
        out.push_str(",\"units\":{");
        list(out, &units, |out, (field, unit)| pair(out, field, unit));
        out.push('}');
    }
    // A sensor without fields has no readings, and so no groups.
    let has_readings = !document.fields.is_empty();
    let groups = groups.iter().filter(|_| has_readings);
    let groups = groups.map(|rule| (&*rule.name, rule.values(&document.sensor, &document.meta)));
    let groups: Vec<(&str, Vec<Cow<'_, str>>)> = groups.filter(|(_, values)| !values.is_empty()).collect();
    if !groups.is_empty() {
        out.push_str(",\"groups\":{");
        list(out, &groups, |out, (name, values)| match &values[..] {
            [value] => pair(out, name, value),
            values => {
                string(out, name);
                out.push_str(":[");
                list(out, values, |out, value| string(out, value));
                out.push(']');
            }
        });
        out.push('}');
    }
    out.push_str(",\"outlier\":");
    optional(out, document.outlier, |out, outlier| {
        out.push_str("{\"since\":");
        time(out, outlier.since, times);
        out.push_str(",\"last_hour\":");
        time(out, outlier.last_hour.start_ns(), times);
        put(out, format_args!(",\"pages\":{}}}", outlier.pages));
    });
    put(out, format_args!(",\"silent\":{is_silent}}}"));
}

/// Writes a string member of an object.
pub fn pair(out: &mut String, name: &str, text: &str) {
    string(out, name);
    out.push(':');
    string(out, text);
}

fn optional<T>(out: &mut String, item: Option<T>, write: impl FnOnce(&mut String, T)) {
    match item {
        Some(item) => write(out, item),
        None => out.push_str("null"),
    }
}

/// Makes `{"accepted":n,"rejected":[…]}`, with `error` and `code` if readings were rejected, and
/// `rejected_total` if more were than are listed.
pub fn ack_json(ack: &Ack) -> String {
    let mut out = String::new();
    put(&mut out, format_args!("{{\"accepted\":{},\"rejected\":[", ack.accepted));
    list(&mut out, &ack.rejected.reported, |out, rejection| {
        put(out, format_args!("{{\"line\":{},\"column\":{},\"reason\":", rejection.line, rejection.column));
        string(out, &rejection.reason.to_string());
        out.push_str(",\"text\":");
        string(out, &rejection.text);
        out.push('}');
    });
    out.push(']');
    if ack.rejected.count > ack.rejected.reported.len() {
        put(&mut out, format_args!(",\"rejected_total\":{}", ack.rejected.count));
    }
    if let Some(first) = ack.rejected.reported.first() {
        out.push_str(",\"error\":");
        string(
            &mut out,
            &format!("{} rejected, the first in line {}: {}", ack.rejected.count, first.line, first.reason),
        );
        put(&mut out, format_args!(",\"code\":\"{REJECTED}\""));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_survive_a_round_trip() {
        for v in [0.0, -0.0, 45.0, 22.1, 1e16, 1e17, 1e300, -1.5e-9, f64::MIN_POSITIVE, f64::MAX, 0.1 + 0.2] {
            let mut out = String::new();
            float(&mut out, v);
            let back: f64 = serde_json::from_str(&out).expect("JSON");
            assert_eq!(back, v, "{out}");
            assert!(out.len() < 30, "{out}");
        }
        let mut out = String::new();
        float(&mut out, 45.0);
        float(&mut out, f64::INFINITY);
        assert_eq!(out, "45null");
    }

    #[test]
    fn strings_are_valid_json() {
        let text = "a\"b\\c\n\t\u{1}é🌡";
        let mut out = String::new();
        string(&mut out, text);
        assert_eq!(serde_json::from_str::<String>(&out).expect("JSON"), text);
    }
}
