//! Reads readings back, answer by answer, and the counts of the server's summaries.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::expected::Expected;
use crate::client::{Answer, Connection};
use crate::run::asking::encoded;
use crate::run::random::hash;
use crate::run::values::{bool_fingerprint, field_fingerprint, number_fingerprint, text_fingerprint};

/// Readings per answer: the server's default maximum.
const LIMIT: usize = 100_000;
/// Maximum attempts of a query that is answered with 503.
const TRIES: usize = 30;

/// Number of values by numeric field; only these have summaries.
pub type Counts = BTreeMap<String, u64>;

/// A time range, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// Inclusive.
    pub from: i64,
    /// Exclusive.
    pub to: i64,
}

/// Reads back from a server.
pub struct Reader {
    address: String,
    db: String,
    range: Range,
    connection: Option<Connection>,
}

/// A line of NDJSON.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    sensor: Cow<'a, str>,
    #[serde(borrow)]
    reading: &'a RawValue,
}

impl Reader {
    pub fn new(address: &str, db: &str, range: Range) -> Self {
        Self { address: address.to_owned(), db: db.to_owned(), range, connection: None }
    }

    /// Compares all readings of a measurement, and returns the number of values of each numeric field.
    pub async fn readings(&mut self, measurement: &str, expected: &mut Expected) -> Result<Counts> {
        let mut counts = Counts::new();
        let mut sensor = String::new();
        let mut of_sensor = Vec::new();
        let mut cursor = None;
        loop {
            let mut path = self.path("readings", measurement) + &format!("&format=ndjson&epoch=ns&limit={LIMIT}");
            if let Some(cursor) = cursor {
                path += &format!("&cursor={}", encoded(cursor_text(&cursor)?));
            }
            let answer = self.ask(&path).await?;
            let text = std::str::from_utf8(&answer.body)?;
            for line in text.lines() {
                let line: Line = serde_json::from_str(line).with_context(|| format!("the line {line}"))?;
                if line.sensor != sensor {
                    end_of(&sensor, &mut of_sensor, expected);
                    sensor = line.sensor.into_owned();
                }
                of_sensor.push(reading(line.reading.get(), &mut counts)?);
            }
            cursor = answer.headers.get("x-next-cursor").cloned();
            if cursor.is_none() {
                break;
            }
        }
        end_of(&sensor, &mut of_sensor, expected);
        Ok(counts)
    }

    /// The number of values of each field of a measurement, by the server's summaries.
    pub async fn counts(&mut self, measurement: &str) -> Result<Counts> {
        let path = self.path("summary", measurement) + "&agg=count&group_by=*";
        let answer = self.ask(&path).await?;
        let said: Value = serde_json::from_slice(&answer.body)?;
        let mut counts = Counts::new();
        for series in said["series"].as_array().into_iter().flatten() {
            for window in series["windows"].as_array().into_iter().flatten() {
                for (field, told) in window["fields"].as_object().into_iter().flatten() {
                    let count = told["count"].as_u64().with_context(|| format!("no count in {window}"))?;
                    *counts.entry(field.clone()).or_default() += count;
                }
            }
        }
        Ok(counts)
    }

    fn path(&self, endpoint: &str, measurement: &str) -> String {
        let Range { from, to } = self.range;
        let (db, measurement) = (encoded(&self.db), encoded(measurement));
        format!("/api/v1/{endpoint}?db={db}&measurement={measurement}&from={from}&to={to}")
    }

    async fn ask(&mut self, path: &str) -> Result<Answer> {
        for _ in 0..TRIES {
            // The server closes idle connections (server.idle_timeout).
            let mut connection = match self.connection.take().filter(|connection| !connection.is_closed()) {
                Some(connection) => connection,
                None => Connection::open(&self.address).await?,
            };
            let answer = connection.ask(path).await?;
            if answer.status != 503 {
                let said = || String::from_utf8_lossy(&answer.body).into_owned();
                ensure!(answer.status == 200, "{path} was answered {}: {}", answer.status, said());
                self.connection = Some(connection);
                return Ok(answer);
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        anyhow::bail!("{path} was answered 503 again and again")
    }
}

fn cursor_text(cursor: &hyper::header::HeaderValue) -> Result<&str> {
    cursor.to_str().context("a cursor that is no text")
}

fn end_of(sensor: &str, of_sensor: &mut Vec<(i64, u64)>, expected: &mut Expected) {
    if !of_sensor.is_empty() {
        expected.compare(sensor, of_sensor);
        of_sensor.clear();
    }
}

/// The time and fingerprint of a reading. Counts its fields.
fn reading(text: &str, counts: &mut Counts) -> Result<(i64, u64)> {
    let fields = Fields { counts };
    fields.deserialize(&mut serde_json::Deserializer::from_str(text)).with_context(|| format!("the reading {text}"))
}

/// Deserializes the fields of a reading one by one.
struct Fields<'a> {
    counts: &'a mut Counts,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = (i64, u64);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = (i64, u64);

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a reading")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut time, mut fingerprint) = (None, 0_u64);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            if key == "ts" {
                time = Some(map.next_value()?);
                continue;
            }
            let value: &RawValue = map.next_value()?;
            let (value, is_number) = value_fingerprint(value.get()).map_err(serde::de::Error::custom)?;
            fingerprint = fingerprint.wrapping_add(field_fingerprint(hash(key.as_bytes()), value));
            match self.counts.get_mut(key.as_ref()) {
                _ if !is_number => {}
                Some(count) => *count += 1,
                None => drop(self.counts.insert(key.into_owned(), 1)),
            }
        }
        Ok((time.ok_or_else(|| serde::de::Error::missing_field("ts"))?, fingerprint))
    }
}

/// The fingerprint of a value, and whether it is a number.
fn value_fingerprint(text: &str) -> Result<(u64, bool)> {
    Ok(match text.as_bytes().first() {
        Some(b'"') => (text_fingerprint(&serde_json::from_str::<String>(text)?), false),
        Some(b't' | b'f') => (bool_fingerprint(text == "true"), false),
        _ => (number_fingerprint(text.parse()?), true),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::values::Value as Sent;

    #[test]
    fn what_is_read_back_is_known_again() {
        let mut counts = Counts::new();
        let (time, found) = reading(r#"{"ts":5,"d":"x \"y\"","a":1.1,"b":2,"c":true}"#, &mut counts).unwrap();
        let sent = [
            ("a", Sent::Decimal(110, 2)),
            ("b", Sent::Integer(2)),
            ("c", Sent::Bool(true)),
            ("d", Sent::Text("x \"y\"".into())),
        ];
        let fingerprint = sent.iter().fold(0_u64, |sum, (key, value)| {
            sum.wrapping_add(field_fingerprint(hash(key.as_bytes()), value.fingerprint()))
        });
        assert_eq!((time, found), (5, fingerprint));
        assert_eq!(counts, Counts::from([("a".to_owned(), 1), ("b".to_owned(), 1)]));
        assert!(reading(r#"{"a":1}"#, &mut counts).is_err());
    }
}
