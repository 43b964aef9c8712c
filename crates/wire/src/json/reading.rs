//! Parses one reading from one JSON object. The JSON decoder returns only keys and raw values, so the depth of nesting
//! is bounded, and every error has its position.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, MapAccess, Visitor};
use serde_json::value::RawValue as RawJson;

use crate::fields::keep_last_of_equal_keys;
use crate::line_protocol::parse_series;
use crate::names::{self, Name};
use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Precision, Reason, Sensor, time};

/// The measurement of a reading without one.
const MEASUREMENT_DEFAULT: &str = "readings";
/// The tag that can be given at the top level of a reading.
const SENSOR: &str = "sensor";
/// The field that can be given at the top level of a reading.
const VALUE: &str = "value";
/// The time of a reading, also among the fields of an [answer](answered).
const TS: &str = "ts";
/// All keys of a reading. A similar key is probably a mistake and not a field.
const KEYS: [&str; 8] = ["measurement", "tags", SENSOR, TS, "time", "timestamp", "fields", VALUE];
/// The minimum length of a key for which similar keys are detected. Shorter keys are similar to too many words.
const SIMILAR_BYTES_MIN: usize = 4;

/// A valid reading.
#[derive(Debug)]
pub(super) struct JsonReading<'a> {
    pub sensor: Sensor,
    pub fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
    pub timestamp: Option<i64>,
    /// True if the timestamp is a text in RFC 3339.
    pub has_unit: bool,
}

/// An error, with its offset in the reading's text if it has one.
#[derive(Debug)]
pub(super) struct JsonFault {
    pub offset: Option<usize>,
    pub reason: Reason,
}

impl JsonFault {
    fn new(offset: usize, reason: Reason) -> Self {
        Self { offset: Some(offset), reason }
    }

    fn json(offset: usize, message: String) -> Self {
        Self::new(offset, Reason::Json(message))
    }
}

/// Parses the reading in `text`.
pub(super) fn parse<'a>(text: &'a str, precision: Precision, limits: &Limits) -> Result<JsonReading<'a>, JsonFault> {
    let parts = Parts::parse(text)?;
    if let Some(reading) = &parts.reading {
        return answered(&parts, reading, precision, limits);
    }
    let measurement = match &parts.measurement {
        Some(entry) => entry.value.name(names::MEASUREMENT, "measurement", limits)?,
        None => Cow::Borrowed(MEASUREMENT_DEFAULT),
    };
    let sensor = sensor(&measurement, &parts, limits)?;
    let fields = fields(all_fields(&parts)?, limits)?;
    let timestamp = match &parts.ts {
        Some(entry) => entry.value.timestamp(&entry.key, precision)?,
        None => None,
    };
    let has_unit = parts.ts.as_ref().is_some_and(|entry| entry.value.text.starts_with('"'));
    Ok(JsonReading { sensor, fields, timestamp, has_unit })
}

/// Parses a line of NDJSON as `GET /api/v1/readings` answers it, such as
/// `{"sensor":"climate,sensor=s1","tags":{"sensor":"s1"},"reading":{"ts":"2026-01-15T14:00:00Z","temp":22.1}}`.
fn answered<'a>(
    parts: &Parts<'a>,
    reading: &JsonEntry<'a>,
    precision: Precision,
    limits: &Limits,
) -> Result<JsonReading<'a>, JsonFault> {
    let is_other = [&parts.measurement, &parts.ts, &parts.fields, &parts.value].iter().any(|part| part.is_some());
    let Some(sensor) = parts.sensor.as_ref().filter(|_| !is_other && parts.others.is_empty()) else {
        let message = "beside \"reading\" there are only \"sensor\", the key, and \"tags\"".to_owned();
        return Err(JsonFault::json(reading.offset, message));
    };
    let JsonText(key) = sensor.value.decode()?;
    let sensor = parse_series(&key, limits).map_err(|error| JsonFault::new(sensor.value.offset, error.reason))?;
    let (times, mut entries): (Vec<_>, Vec<_>) =
        reading.value.entries("reading")?.into_iter().partition(|entry| entry.key == TS);
    // Without its time, a reading would be stored as a new one.
    let [time] = &times[..] else {
        return Err(JsonFault::json(reading.offset, "expected one \"ts\" in \"reading\"".to_owned()));
    };
    let Some(timestamp) = time.value.timestamp(TS, precision)? else {
        return Err(JsonFault::new(time.value.offset, Reason::InvalidTimestamp("null".to_owned())));
    };
    for entry in &mut entries {
        entry.key = names::named_field(&entry.key, |name| name == TS).into();
    }
    let has_unit = time.value.text.starts_with('"');
    Ok(JsonReading { sensor, fields: fields(entries, limits)?, timestamp: Some(timestamp), has_unit })
}

/// The entries at the top level of a reading, by known key.
#[derive(Default)]
struct Parts<'a> {
    measurement: Option<JsonEntry<'a>>,
    tags: Option<JsonEntry<'a>>,
    sensor: Option<JsonEntry<'a>>,
    ts: Option<JsonEntry<'a>>,
    fields: Option<JsonEntry<'a>>,
    value: Option<JsonEntry<'a>>,
    /// The time and the fields, in an [answer](answered).
    reading: Option<JsonEntry<'a>>,
    /// Other keys, which are fields if there is no `fields`.
    others: Vec<JsonEntry<'a>>,
}

impl<'a> Parts<'a> {
    fn parse(text: &'a str) -> Result<Self, JsonFault> {
        let offset = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
        let mut parts = Self::default();
        let object = JsonValue { offset, text: &text[offset..] };
        for entry in object.entries("a reading")? {
            let slot = match &*entry.key {
                "measurement" => &mut parts.measurement,
                "tags" => &mut parts.tags,
                SENSOR => &mut parts.sensor,
                TS | "time" | "timestamp" => &mut parts.ts,
                "fields" => &mut parts.fields,
                VALUE => &mut parts.value,
                "reading" if entry.value.text.starts_with('{') => &mut parts.reading,
                _ => {
                    parts.others.push(entry);
                    continue;
                }
            };
            if let Some(first) = slot {
                let message = if first.key == entry.key {
                    format!("the key {:?} is given twice", entry.key)
                } else {
                    format!("the keys {:?} and {:?} mean the same", first.key, entry.key)
                };
                return Err(JsonFault::json(entry.offset, message));
            }
            *slot = Some(entry);
        }
        match parts.others.iter().find_map(|other| other.fault_as_field(parts.fields.is_some())) {
            Some(fault) => Err(fault),
            None => Ok(parts),
        }
    }
}

/// Returns true if the texts differ by at most one edit, ignoring ASCII case.
fn is_similar(text: &str, other: &str) -> bool {
    let a = text.as_bytes();
    let b = other.as_bytes();
    let same = |(x, y): &(&u8, &u8)| x.eq_ignore_ascii_case(y);
    let before = a.iter().zip(b).take_while(same).count();
    let a = &a[before..];
    let b = &b[before..];
    let after = a.iter().rev().zip(b.iter().rev()).take_while(same).count();
    a.len() - after <= 1 && b.len() - after <= 1
}

fn sensor(measurement: &str, parts: &Parts<'_>, limits: &Limits) -> Result<Sensor, JsonFault> {
    let mut entries = match &parts.tags {
        Some(tags) if !tags.value.is_null() => tags.value.entries("tags")?,
        _ => Vec::new(),
    };
    entries.extend(parts.sensor.clone());
    names::check_tags(entries.len(), limits).map_err(|reason| JsonFault { offset: None, reason })?;
    let mut tags = Vec::with_capacity(entries.len());
    for entry in &entries {
        names::TAG_KEY.check(&entry.key, limits).map_err(|reason| JsonFault::new(entry.offset, reason))?;
        tags.push((&*entry.key, entry.value.name(names::TAG_VALUE, &entry.key, limits)?));
    }
    Sensor::new(measurement, tags.iter().map(|(key, value)| (*key, &**value))).map_err(|repeated_key| {
        let second = entries.iter().filter(|entry| entry.key == repeated_key).nth(1);
        JsonFault { offset: second.map(|entry| entry.offset), reason: Reason::DuplicateTag(repeated_key) }
    })
}

fn all_fields<'a>(parts: &Parts<'a>) -> Result<Vec<JsonEntry<'a>>, JsonFault> {
    let mut entries = match &parts.fields {
        Some(fields) if !fields.value.is_null() => fields.value.entries("fields")?,
        _ => Vec::new(),
    };
    entries.extend(parts.others.iter().cloned());
    if let Some(value) = &parts.value {
        if entries.iter().any(|entry| entry.key == VALUE) {
            return Err(JsonFault::json(value.offset, "the field \"value\" is also in \"fields\"".to_owned()));
        }
        entries.push(value.clone());
    }
    Ok(entries)
}

fn fields<'a>(entries: Vec<JsonEntry<'a>>, limits: &Limits) -> Result<Vec<(Cow<'a, str>, RawValue<'a>)>, JsonFault> {
    names::check_fields(entries.len(), limits).map_err(|reason| JsonFault { offset: None, reason })?;
    let mut fields = Vec::with_capacity(entries.len());
    for entry in entries {
        names::FIELD_KEY.check(&entry.key, limits).map_err(|reason| JsonFault::new(entry.offset, reason))?;
        let value = entry.value.field(&entry.key)?;
        fields.push((entry.key, value));
    }
    keep_last_of_equal_keys(&mut fields, &mut Vec::new());
    let is_all_null = !fields.is_empty();
    let fields: Vec<_> = fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    if fields.is_empty() {
        let why = if is_all_null {
            "every field is null"
        } else {
            "expected \"fields\", \"value\" or a number under a name of its own"
        };
        return Err(JsonFault { offset: None, reason: Reason::Json(format!("missing fields: {why}")) });
    }
    Ok(fields)
}

/// A key of an object and its value.
#[derive(Clone)]
struct JsonEntry<'a> {
    /// The offset of the key's opening quote.
    offset: usize,
    key: Cow<'a, str>,
    value: JsonValue<'a>,
}

/// A value that is not decoded yet, and its offset.
#[derive(Clone, Copy)]
struct JsonValue<'a> {
    offset: usize,
    text: &'a str,
}

impl JsonEntry<'_> {
    /// The error of an entry with an unknown key; `None` if the entry is a field.
    fn fault_as_field(&self, has_fields: bool) -> Option<JsonFault> {
        let near = KEYS.iter().find(|key| {
            if key.len() >= SIMILAR_BYTES_MIN {
                is_similar(key, &self.key)
            } else {
                key.eq_ignore_ascii_case(&self.key)
            }
        });
        let is_value = self.value.is_null() || matches!(self.value.kind(), "a number" | "a boolean");
        let why = match near {
            Some(near) => format!("did you mean {near:?}? A field of this name belongs in \"fields\""),
            None if !has_fields && is_value => return None,
            None if is_value => "it belongs in \"fields\"".to_owned(),
            None => "a text belongs in \"tags\" or in \"fields\"".to_owned(),
        };
        let key = names::shorten(&self.key);
        let message =
            format!("unknown key {key:?}: a reading has measurement, tags, sensor, ts, fields and value; {why}");
        Some(JsonFault::json(self.offset, message))
    }
}

impl<'a> JsonValue<'a> {
    fn is_null(self) -> bool {
        self.text == "null"
    }

    fn kind(self) -> &'static str {
        match self.text.as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    /// The entries of this value, which must be an object, in the order sent.
    fn entries(self, what: &str) -> Result<Vec<JsonEntry<'a>>, JsonFault> {
        if !self.text.starts_with('{') {
            // For invalid JSON the decoder has the better error.
            self.decode::<&RawJson>()?;
            return Err(JsonFault::json(self.offset, format!("{what}: expected an object, not {}", self.kind())));
        }
        let JsonEntries(entries) = self.decode()?;
        let mut end = 0;
        let locate = |(key, value): (JsonText<'a>, &'a RawJson)| {
            // Between two values there are a comma and a key, and the first quote is the key's.
            let key_offset = end + self.text[end..].find('"').unwrap_or(0);
            let text = value.get();
            let value_offset = text.as_ptr().addr() - self.text.as_ptr().addr();
            end = value_offset + text.len();
            JsonEntry {
                offset: self.offset + key_offset,
                key: key.0,
                value: JsonValue { offset: self.offset + value_offset, text },
            }
        };
        Ok(entries.into_iter().map(locate).collect())
    }

    /// This value as a name; it must be a string.
    fn name(self, name: Name, key: &str, limits: &Limits) -> Result<Cow<'a, str>, JsonFault> {
        if !self.text.starts_with('"') {
            let message = format!("{:?}: expected a string, not {}", names::shorten(key), self.kind());
            return Err(JsonFault::json(self.offset, message));
        }
        let JsonText(text) = self.decode()?;
        name.check(&text, limits).map_err(|reason| JsonFault::new(self.offset, reason))?;
        Ok(text)
    }

    /// This value as a field value; `None` if it is null.
    fn field(self, key: &str) -> Result<Option<RawValue<'a>>, JsonFault> {
        Ok(Some(match self.text.as_bytes().first() {
            Some(b'n') => return Ok(None),
            Some(b't') => RawValue::Boolean(true),
            Some(b'f') => RawValue::Boolean(false),
            Some(b'"') => RawValue::String(self.decode::<JsonText<'a>>()?.0),
            Some(b'{' | b'[') => {
                let key = names::shorten(key);
                let kind = self.kind();
                let message = format!("field {key:?}: expected a number, a string or a boolean, not {kind}");
                return Err(JsonFault::json(self.offset, message));
            }
            _ => self.number()?,
        }))
    }

    fn number(self) -> Result<RawValue<'a>, JsonFault> {
        let out_of_range = || JsonFault::new(self.offset, Reason::NumberOutOfRange(names::shorten(self.text)));
        parse_number(self.text).ok_or_else(out_of_range)
    }

    fn timestamp(self, key: &str, precision: Precision) -> Result<Option<i64>, JsonFault> {
        let invalid = |text: &str| JsonFault::new(self.offset, Reason::InvalidTimestamp(names::shorten(text)));
        match self.text.as_bytes().first() {
            Some(b'n') => Ok(None),
            Some(b'"') => {
                let JsonText(text) = self.decode()?;
                time::parse_rfc3339(&text).map(Some).ok_or_else(|| match time::as_if_in_utc(&text) {
                    Some(in_utc) => {
                        let text = names::shorten(&text);
                        let in_utc = format!("\"{key}\":\"{in_utc}\"");
                        JsonFault::new(self.offset, Reason::NoZone { text, in_utc })
                    }
                    None => invalid(&text),
                })
            }
            Some(b'-' | b'0'..=b'9') if !self.text.contains(['.', 'e', 'E']) => {
                let ns = self.text.parse().ok().and_then(|value| precision.to_ns(value));
                let reason = || Reason::TimeOutOfRange(names::shorten(self.text));
                ns.map(Some).ok_or_else(|| JsonFault::new(self.offset, reason()))
            }
            _ => Err(invalid(self.text)),
        }
    }

    fn decode<T: Deserialize<'a>>(self) -> Result<T, JsonFault> {
        serde_json::from_str(self.text).map_err(|error| self.decoder_fault(&error))
    }

    /// The decoder's error, with its position as an offset.
    fn decoder_fault(self, error: &serde_json::Error) -> JsonFault {
        let lines_before = self.text.split_inclusive('\n').take(error.line().saturating_sub(1));
        let offset = if error.is_eof() {
            self.text.len()
        } else {
            lines_before.map(str::len).sum::<usize>() + error.column().saturating_sub(1)
        };
        let offset = offset.min(self.text.len());
        if let Some((start, word)) = not_finite_word(self.text, offset) {
            return JsonFault::new(self.offset + start, Reason::NotFinite(word.to_owned()));
        }
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(&*message, |(what, _)| what);
        JsonFault::json(self.offset + offset, format!("invalid JSON: {message}"))
    }
}

/// Parses a finite number. Numbers are floats, as in line protocol, except integers that a float cannot represent
/// exactly. The standard library parses the digits, because the JSON decoder rounds some floats incorrectly.
pub(crate) fn parse_number(text: &str) -> Option<RawValue<'static>> {
    let float = text.parse().ok().filter(|float: &f64| float.is_finite())?;
    if let Ok(integer) = text.parse::<i64>() {
        // A float of this size converts exactly to i128.
        if float as i128 != i128::from(integer) {
            return Some(RawValue::Integer(integer));
        }
    } else if let Ok(unsigned) = text.parse::<u64>()
        && float as i128 != i128::from(unsigned)
    {
        return Some(RawValue::Unsigned(unsigned));
    }
    Some(RawValue::Float(float))
}

/// The word at `offset`, if it is a non-finite number such as `NaN` or `-Infinity`. JSON has no such numbers, but many
/// writers produce them.
fn not_finite_word(text: &str, offset: usize) -> Option<(usize, &str)> {
    let in_word = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'+');
    let bytes = text.as_bytes();
    let before = bytes[..offset].iter().rev().take_while(|byte| in_word(byte)).count();
    let after = bytes[offset..].iter().take_while(|byte| in_word(byte)).count();
    // `get` fails if an end of the word is inside a character.
    let word = text.get(offset - before..offset + after)?;
    let magnitude = word.trim_start_matches(['-', '+']);
    let known = ["nan", "inf", "infinity"].iter().any(|name| magnitude.eq_ignore_ascii_case(name));
    known.then_some((offset - before, word))
}

/// Text that borrows from the JSON if it has no escape.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

/// An object as sent: every key in order, duplicates included.
struct JsonEntries<'a>(Vec<(JsonText<'a>, &'a RawJson)>);

impl<'de> Deserialize<'de> for JsonEntries<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = JsonEntries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(JsonEntries(entries))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
