//! The digest of a database: of its readings, of summaries whose readings have expired, and of sensor metadata. It does
//! not depend on the kind of store, on the form of the stored documents, or on the order in which they are read.
//! docs/how-to/backup.md describes it, so that other programs can compute it.
//!
//! ```text
//! place    := SHA-256(length of the sensor's key: u64  key  name)
//! cell     := SHA-256(place of the field  time: i64 nanoseconds  kind: u8  value)
//! kind     := 0 float (its bits: u64)  1 integer (i64)  2 unsigned (u64)  3 boolean (u8)  4 text (UTF-8)
//! summary  := SHA-256(place of the field  hour: i64 since 1970  5: u8  count: u64  figure…  rest…)
//! figure   := kind: u8  value                          of min, max, first, last, sum; then of a distribution
//!             bound: u64 (its bits)…  count: u64…
//! rest     := significand: i64  exponent: i32          each part of the rounding error of the sum, greatest first
//! hour     := SHA-256(place of an empty name  hour: i64 since 1970  6: u8  count: u64  first: i64  last: i64)
//! metadata := SHA-256(place of the name  0: i64  7: u8  JSON)
//! sum      := the first 16 bytes of each as a number, added modulo 2^128
//! total    := the sum of SHA-256(length of the database's name: u64  name  its digest: 16 bytes), in the same way
//! ```
//!
//! All numbers are big-endian. A sensor's key is its measurement and its sorted tags, as in line protocol. An unsigned
//! number that fits into an i64 counts as signed. JSON is without spaces, with names in order. Hours count from 1970.

use std::fmt;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bucket::exact::SumPart;
use crate::bucket::expired::ExpiredHour;
use crate::bucket::summary::distribution::Distribution;
use crate::bucket::{ExpiredDay, Meta, Readings, Summary};
use crate::reading::Value;

/// The digest of a database, or of a part of it. The digest of several disjoint parts is their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDigest {
    /// Number of readings: the timestamps of each sensor, added up.
    pub readings: u64,
    /// Number of field values.
    pub cells: u64,
    /// Number of hours, per sensor, whose readings have expired and whose summaries are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub summaries: u64,
    /// Number of metadata values.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub metadata: u64,
    /// Serialised as 32 hexadecimal digits.
    #[serde(rename = "digest", with = "hexadecimal")]
    pub sum: u128,
}

/// The digest of one database, or of all databases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DatabaseDigest {
    /// Empty for all databases.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of sensors, including those without readings.
    pub sensors: u64,
    #[serde(flatten)]
    pub set: SetDigest,
}

/// The digests of the databases of a store, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreDigest {
    pub databases: Vec<DatabaseDigest>,
}

impl AddAssign for SetDigest {
    fn add_assign(&mut self, other: Self) {
        self.readings += other.readings;
        self.cells += other.cells;
        self.summaries += other.summaries;
        self.metadata += other.metadata;
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

impl SetDigest {
    /// Computes the digest of readings of one sensor.
    #[must_use]
    pub fn from_readings(key: &str, readings: &Readings) -> Self {
        let mut digest = Self { readings: readings.len() as u64, ..Self::default() };
        for (name, cells) in readings.columns() {
            let field_hash = field_hash(key, name);
            for (time, value) in
                readings.times().iter().zip(cells).filter_map(|(time, cell)| Some((time, cell.as_ref()?)))
            {
                digest.cells += 1;
                digest.add(cell_number(&field_hash, *time, value));
            }
        }
        digest
    }

    /// Computes the digest of the summaries of a sensor's day, or of a part of it, whose readings have expired.
    #[must_use]
    pub fn from_expired(key: &str, expired: &ExpiredDay) -> Self {
        let mut digest = Self { summaries: expired.hours.len() as u64, ..Self::default() };
        for hour in &expired.hours {
            digest.add(hour_number(key, hour));
            for (name, summary) in &hour.summaries {
                digest.add(summary_number(&field_hash(key, name), hour, summary));
            }
        }
        digest
    }

    /// Computes the digest of a sensor's current metadata.
    #[must_use]
    pub fn from_meta(key: &str, meta: &Meta) -> Self {
        let mut digest = Self::default();
        for (name, json) in meta.values() {
            digest.metadata += 1;
            let hash = Sha256::new().chain_update(field_hash(key, name)).chain_update(0_i64.to_be_bytes());
            digest.add(number(&hash.chain_update([7]).chain_update(json.as_bytes()).finalize()));
        }
        digest
    }

    fn add(&mut self, number: u128) {
        self.sum = self.sum.wrapping_add(number);
    }
}

impl fmt::Display for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { readings, cells, summaries, metadata, sum } = self;
        write!(f, "{readings} readings, {cells} cells, ")?;
        if *summaries > 0 {
            write!(f, "{summaries} hours of summaries, ")?;
        }
        if *metadata > 0 {
            write!(f, "{metadata} values of metadata, ")?;
        }
        write!(f, "digest {sum:032x}")
    }
}

impl fmt::Display for DatabaseDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sensors, {}", self.sensors, self.set)
    }
}

impl StoreDigest {
    /// Returns the digest of all databases. Its sum adds up the first 16 bytes of SHA-256(length of the name: u64,
    /// name, sum of the database).
    #[must_use]
    pub fn total(&self) -> DatabaseDigest {
        let mut total = DatabaseDigest::default();
        for database in &self.databases {
            let DatabaseDigest { name, sensors, set } = database;
            let mark = Sha256::new().chain_update((name.len() as u64).to_be_bytes()).chain_update(name);
            total.sensors += sensors;
            total.set += SetDigest { sum: number(&mark.chain_update(set.sum.to_be_bytes()).finalize()), ..*set };
        }
        total
    }

    /// Describes each database whose digest differs from the expected one. Numbers of sensors are not compared, because
    /// the digests cover the keys of sensors.
    #[must_use]
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let find = |digest: &Self, name: &str| {
            digest.databases.iter().find(|database| database.name == name).map(|database| database.set)
        };
        let mut names: Vec<&str> =
            self.databases.iter().chain(&expected.databases).map(|database| &*database.name).collect();
        names.sort_unstable();
        names.dedup();
        let shown = |set: Option<SetDigest>| set.map_or_else(|| "no such database".to_owned(), |set| set.to_string());
        let mut differences = Vec::new();
        for name in names {
            let expected = find(expected, name);
            let found = find(self, name);
            if found != expected {
                differences.push(format!("database {name:?}: expected {}; found {}", shown(expected), shown(found)));
            }
        }
        differences
    }
}

fn field_hash(key: &str, name: &str) -> [u8; 32] {
    let hash = Sha256::new().chain_update((key.len() as u64).to_be_bytes());
    hash.chain_update(key).chain_update(name).finalize().into()
}

fn cell_number(field_hash: &[u8; 32], time: i64, value: &Value) -> u128 {
    let hash = Sha256::new().chain_update(field_hash).chain_update(time.to_be_bytes());
    number(&with_value(hash, value).finalize())
}

fn with_value(hash: Sha256, value: &Value) -> Sha256 {
    match value {
        Value::Float(v) => hash.chain_update([0]).chain_update(v.to_bits().to_be_bytes()),
        Value::Integer(v) => hash.chain_update([1]).chain_update(v.to_be_bytes()),
        Value::Unsigned(v) => hash.chain_update([2]).chain_update(v.to_be_bytes()),
        Value::Boolean(v) => hash.chain_update([3, u8::from(*v)]),
        Value::String(v) => hash.chain_update([4]).chain_update(v.as_bytes()),
    }
}

fn hour_number(key: &str, hour: &ExpiredHour) -> u128 {
    let hash =
        Sha256::new().chain_update(field_hash(key, "")).chain_update(hour.hour.0.to_be_bytes()).chain_update([6]);
    let hash = hash.chain_update(hour.count.to_be_bytes()).chain_update(hour.first.to_be_bytes());
    number(&hash.chain_update(hour.last.to_be_bytes()).finalize())
}

fn summary_number(field_hash: &[u8; 32], hour: &ExpiredHour, summary: &Summary) -> u128 {
    let figures = summary.figures();
    let hash = Sha256::new().chain_update(field_hash).chain_update(hour.hour.0.to_be_bytes()).chain_update([5]);
    let values = [&figures.min, &figures.max, &figures.first, &figures.last, &figures.sum];
    let hash = values.into_iter().fold(hash.chain_update(figures.count.to_be_bytes()), with_value);
    let counts = figures.distribution.as_deref();
    let bounds = counts.into_iter().flat_map(|counts| counts.bounds().iter());
    let hash = bounds.fold(hash, |hash, bound| hash.chain_update(bound.to_bits().to_be_bytes()));
    let counts = counts.into_iter().flat_map(Distribution::counts);
    let hash = counts.fold(hash, |hash, count| hash.chain_update(count.to_be_bytes()));
    let rest = figures.rest.parts();
    let with_part = |hash: Sha256, part: SumPart| {
        hash.chain_update(part.significand().to_be_bytes()).chain_update(part.exponent().to_be_bytes())
    };
    number(&rest.fold(hash, with_part).finalize())
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Returns the first 16 bytes of a hash as a big-endian number.
#[must_use]
pub fn number(hash: &[u8]) -> u128 {
    hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Serialises a `u128` as 32 hexadecimal digits, for `serde(with)`.
pub mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Serialises the number.
    ///
    /// # Errors
    /// If the serialiser fails.
    pub fn serialize<S: Serializer>(number: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{number:032x}"))
    }

    /// Deserialises a number.
    ///
    /// # Errors
    /// If the text has anything but hexadecimal digits.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(deserializer)?, 16).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bucket::Reading;

    fn set(readings: &[(i64, &[(&str, Value)])]) -> Readings {
        let field = |(name, value): &(&str, Value)| (Arc::from(*name), value.clone());
        let reading = |(time, fields): &(i64, &[(&str, Value)])| Reading {
            time: *time,
            fields: fields.iter().map(field).collect(),
        };
        readings.iter().map(reading).collect()
    }

    /// Compares with the digest that Python's hashlib computes by the format in docs/how-to/backup.md.
    #[test]
    fn the_digest_is_the_documented_one() {
        let one = set(&[(1_768_435_200_000_000_000, &[("temp", Value::Float(21.5)), ("n", Value::Integer(-3))])]);
        let digest = SetDigest::from_readings("climate,sensor=s1", &one);
        assert_eq!((digest.readings, digest.cells), (1, 2));
        assert_eq!(format!("{:032x}", digest.sum), PYTHON);
    }

    /// As above, for two hours of summaries, with one rounded sum, and for metadata.
    #[test]
    fn the_digest_of_summaries_and_metadata_is_the_documented_one() {
        let start = 1_768_435_200_000_000_000;
        let readings = set(&[
            (start, &[("temp", Value::Float(1e16)), ("n", Value::Integer(-3))]),
            (start + 5, &[("temp", Value::Float(1.0)), ("n", Value::Integer(4))]),
            (start + 3_600_000_000_000, &[("ok", Value::Boolean(true))]),
        ]);
        let digest = SetDigest::from_expired("climate,sensor=s1", &ExpiredDay::from_readings(&readings));
        assert_eq!((digest.summaries, digest.readings), (2, 0));
        assert_eq!(format!("{:032x}", digest.sum), PYTHON_SUMMARIES);
        let values = [("site".into(), Some(Arc::from("\"lab\""))), ("x".into(), Some(Arc::from("{\"a\":0.1}")))];
        let digest = SetDigest::from_meta("climate,sensor=s1", &Meta::change(7, true, values));
        assert_eq!(digest.metadata, 2);
        assert_eq!(format!("{:032x}", digest.sum), PYTHON_METADATA);
    }

    const PYTHON_SUMMARIES: &str = "f785d0c5ab3a324dec4d740b61610265";
    const PYTHON_METADATA: &str = "030c8e7fcb616440dc8d64fb5b75bc7b";
    const PYTHON: &str = "a39d280afedb557ca103ed185e306c07";

    #[test]
    fn parts_add_up_and_every_bit_counts() {
        let all = [(1, Value::Float(0.0)), (2, Value::Float(-0.0)), (3, Value::Integer(0)), (4, Value::Unsigned(0))];
        let rows: Vec<(i64, [(&str, Value); 1])> = all.iter().map(|(time, v)| (*time, [("v", v.clone())])).collect();
        let rows: Vec<(i64, &[(&str, Value)])> = rows.iter().map(|(time, fields)| (*time, &fields[..])).collect();
        let whole = SetDigest::from_readings("m", &set(&rows));
        let mut sum = SetDigest::default();
        rows.iter().rev().for_each(|row| sum += SetDigest::from_readings("m", &set(&[*row])));
        assert_eq!(whole, sum);
        let digest_of_cell =
            |key: &str, time, name, value| SetDigest::from_readings(key, &set(&[(time, &[(name, value)])])).sum;
        let flip_bit = |v: f64, bit: u32| Value::Float(f64::from_bits(v.to_bits() ^ 1 << bit));
        let mut sums = vec![digest_of_cell("m", 1, "v", Value::Float(1.5))];
        sums.extend((0..64).map(|index| digest_of_cell("m", 1, "v", flip_bit(1.5, index))));
        sums.push(digest_of_cell("m", 2, "v", Value::Float(1.5)));
        sums.push(digest_of_cell("m", 1, "w", Value::Float(1.5)));
        sums.push(digest_of_cell("n", 1, "v", Value::Float(1.5)));
        sums.push(digest_of_cell("mv", 1, "", Value::Float(1.5)));
        sums.push(digest_of_cell("m", 1, "v", Value::Integer(1.5_f64.to_bits().cast_signed())));
        sums.push(digest_of_cell("m", 1, "v", Value::Unsigned(1.5_f64.to_bits())));
        sums.push(digest_of_cell("m", 1, "v", Value::Boolean(true)));
        sums.push(digest_of_cell("m", 1, "v", Value::String("\u{1}".into())));
        let count = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), count);
    }
}
