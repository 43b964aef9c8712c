//! The digest of everything that a database has: readings, summaries whose readings have expired, metadata of sensors. It is
//! the same for both stores, whatever is in hour pages, overflow pages or sealed days, and in whatever order it is read.
//! With this description anybody can compute it.
//!
//! ```text
//! place    := SHA-256(length of the sensor's key: u64  key  name)
//! cell     := SHA-256(place of the field  time: i64 nanoseconds  kind: u8  value)
//! kind     := 0 float (its bits: u64)  1 integer (i64)  2 unsigned (u64)  3 boolean (u8)  4 text (UTF-8)
//! summary  := SHA-256(place of the field  hour: i64 since 1970  5: u8  count: u64  figure…  rest…)
//! figure   := kind: u8  value                          of min, max, first, last, sum
//! rest     := significand: i64  exponent: i32          each part of what rounding the sum left, greatest first
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
use crate::bucket::{ExpiredDay, Meta, Readings, Summary};
use crate::reading::Value;

/// The digest of a database, or of a part of it. Digests of disjoint parts are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDigest {
    /// Timestamps, of all sensors together.
    pub readings: u64,
    /// Values.
    pub cells: u64,
    /// Hours of sensors whose readings have expired and whose summaries are kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub summaries: u64,
    /// Values of sensors' metadata.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub metadata: u64,
    /// In hexadecimal digits where people see it.
    #[serde(rename = "digest", with = "hexadecimal")]
    pub sum: u128,
}

/// The digest of a database, or of all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DatabaseDigest {
    /// Empty for all databases.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Sensors, those without readings included.
    pub sensors: u64,
    #[serde(flatten)]
    pub set: SetDigest,
}

/// The digest of a store, by database in the order of their names.
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
    /// The digest of readings of one sensor.
    #[must_use]
    pub fn of(key: &str, readings: &Readings) -> Self {
        let mut digest = Self { readings: readings.len() as u64, ..Self::default() };
        for (name, cells) in readings.columns() {
            let place = place(key, name);
            for (time, value) in
                readings.times().iter().zip(cells).filter_map(|(time, cell)| Some((time, cell.as_ref()?)))
            {
                digest.cells += 1;
                digest.add(cell(&place, *time, value));
            }
        }
        digest
    }

    /// The digest of what is left of a sensor's day, or a part of it, whose readings have expired.
    #[must_use]
    pub fn of_expired(key: &str, expired: &ExpiredDay) -> Self {
        let mut digest = Self { summaries: expired.hours.len() as u64, ..Self::default() };
        for hour in &expired.hours {
            digest.add(hour_number(key, hour));
            for (name, summary) in &hour.summaries {
                digest.add(summary_number(&place(key, name), hour, summary));
            }
        }
        digest
    }

    /// The digest of a sensor's metadata, as it is now.
    #[must_use]
    pub fn of_meta(key: &str, meta: &Meta) -> Self {
        let mut digest = Self::default();
        for (name, json) in meta.values() {
            digest.metadata += 1;
            let hash = Sha256::new().chain_update(place(key, name)).chain_update(0_i64.to_be_bytes());
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
    /// Of all databases. The sum is over the first 16 bytes of SHA-256(length of the name: u64, name, the database's sum).
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

    /// Where this digest differs from the one that is expected, for people; empty if they are equal. Numbers of sensors are
    /// not compared: the digests cover their keys.
    #[must_use]
    pub fn differences(&self, expected: &Self) -> Vec<String> {
        let of = |digest: &Self, name: &str| {
            digest.databases.iter().find(|database| database.name == name).map(|database| database.set)
        };
        let mut names: Vec<&str> =
            self.databases.iter().chain(&expected.databases).map(|database| &*database.name).collect();
        names.sort_unstable();
        names.dedup();
        let shown = |set: Option<SetDigest>| set.map_or_else(|| "no such database".to_owned(), |set| set.to_string());
        let differs = |name: &&str| of(self, name) != of(expected, name);
        names
            .into_iter()
            .filter(differs)
            .map(|name| {
                format!("database {name:?}: expected {}; found {}", shown(of(expected, name)), shown(of(self, name)))
            })
            .collect()
    }
}

fn place(key: &str, name: &str) -> [u8; 32] {
    let place = Sha256::new().chain_update((key.len() as u64).to_be_bytes());
    place.chain_update(key).chain_update(name).finalize().into()
}

fn cell(place: &[u8; 32], time: i64, value: &Value) -> u128 {
    let hash = Sha256::new().chain_update(place).chain_update(time.to_be_bytes());
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

fn hour_number(key: &str, of: &ExpiredHour) -> u128 {
    let hash = Sha256::new().chain_update(place(key, "")).chain_update(of.hour.0.to_be_bytes()).chain_update([6]);
    let hash = hash.chain_update(of.count.to_be_bytes()).chain_update(of.first.to_be_bytes());
    number(&hash.chain_update(of.last.to_be_bytes()).finalize())
}

fn summary_number(place: &[u8; 32], of: &ExpiredHour, summary: &Summary) -> u128 {
    let figures = summary.figures();
    let hash = Sha256::new().chain_update(place).chain_update(of.hour.0.to_be_bytes()).chain_update([5]);
    let values = [&figures.min, &figures.max, &figures.first, &figures.last, &figures.sum];
    let hash = values.into_iter().fold(hash.chain_update(figures.count.to_be_bytes()), with_value);
    let rest = figures.rest.parts();
    let with_part = |hash: Sha256, part: SumPart| {
        hash.chain_update(part.significand().to_be_bytes()).chain_update(part.exponent().to_be_bytes())
    };
    number(&rest.fold(hash, with_part).finalize())
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The first 16 bytes of a hash.
#[must_use]
pub fn number(hash: &[u8]) -> u128 {
    hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// A number of 128 bits as 32 hexadecimal digits.
pub mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    /// For `serde(with)`.
    ///
    /// # Errors
    /// Those of the format.
    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:032x}"))
    }

    /// For `serde(with)`.
    ///
    /// # Errors
    /// If it is no such text.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(from)?, 16).map_err(de::Error::custom)
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

    /// The digest by the description above, computed by Python's hashlib.
    #[test]
    fn the_digest_is_the_documented_one() {
        let one = set(&[(1_768_435_200_000_000_000, &[("temp", Value::Float(21.5)), ("n", Value::Integer(-3))])]);
        let digest = SetDigest::of("climate,sensor=s1", &one);
        assert_eq!((digest.readings, digest.cells), (1, 2));
        assert_eq!(format!("{:032x}", digest.sum), PYTHON);
    }

    /// As above: two hours' summaries, of which one sum is rounded, and metadata.
    #[test]
    fn the_digest_of_summaries_and_metadata_is_the_documented_one() {
        let start = 1_768_435_200_000_000_000;
        let readings = set(&[
            (start, &[("temp", Value::Float(1e16)), ("n", Value::Integer(-3))]),
            (start + 5, &[("temp", Value::Float(1.0)), ("n", Value::Integer(4))]),
            (start + 3_600_000_000_000, &[("ok", Value::Boolean(true))]),
        ]);
        let digest = SetDigest::of_expired("climate,sensor=s1", &ExpiredDay::of(&readings));
        assert_eq!((digest.summaries, digest.readings), (2, 0));
        assert_eq!(format!("{:032x}", digest.sum), PYTHON_SUMMARIES);
        let values = [("site".into(), Some(Arc::from("\"lab\""))), ("x".into(), Some(Arc::from("{\"a\":0.1}")))];
        let digest = SetDigest::of_meta("climate,sensor=s1", &Meta::change(7, true, values));
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
        let whole = SetDigest::of("m", &set(&rows));
        let mut sum = SetDigest::default();
        rows.iter().rev().for_each(|row| sum += SetDigest::of("m", &set(&[*row])));
        assert_eq!(whole, sum);
        let of = |key: &str, time, name, value| SetDigest::of(key, &set(&[(time, &[(name, value)])])).sum;
        let bit = |v: f64, bit: u32| Value::Float(f64::from_bits(v.to_bits() ^ 1 << bit));
        let mut sums = vec![of("m", 1, "v", Value::Float(1.5))];
        sums.extend((0..64).map(|at| of("m", 1, "v", bit(1.5, at))));
        sums.push(of("m", 2, "v", Value::Float(1.5)));
        sums.push(of("m", 1, "w", Value::Float(1.5)));
        sums.push(of("n", 1, "v", Value::Float(1.5)));
        sums.push(of("mv", 1, "", Value::Float(1.5)));
        sums.push(of("m", 1, "v", Value::Integer(1.5_f64.to_bits().cast_signed())));
        sums.push(of("m", 1, "v", Value::Unsigned(1.5_f64.to_bits())));
        sums.push(of("m", 1, "v", Value::Boolean(true)));
        sums.push(of("m", 1, "v", Value::String("\u{1}".into())));
        let count = sums.len();
        sums.sort_unstable();
        sums.dedup();
        assert_eq!(sums.len(), count);
    }
}
