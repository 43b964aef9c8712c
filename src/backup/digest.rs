//! The digest of a set of readings: the same for both stores, whatever is in hour pages, overflow pages or sealed days,
//! and in whatever order it is read. docs/backup.md describes it, so that anybody can compute it.
//!
//! ```text
//! place  := SHA-256(length of the sensor's key: u64  key  field name)
//! cell   := SHA-256(place  time: i64 nanoseconds  kind: u8  value), its first 16 bytes as one number
//! kind   := 0 float (its bits: u64)  1 integer (i64)  2 unsigned (u64)  3 boolean (u8)  4 text (UTF-8)
//! sum    := the cells' numbers, added modulo 2^128
//! ```
//!
//! All numbers are big-endian.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::bucket::Readings;
use crate::reading::Value;

/// The digest of the readings of a database, or of a part of them. Digests of disjoint parts are added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDigest {
    /// Timestamps, of all sensors together.
    pub readings: u64,
    /// Values.
    pub cells: u64,
    /// In hexadecimal digits where people see it.
    #[serde(rename = "digest", with = "hexadecimal")]
    pub sum: u128,
}

/// The digest of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseDigest {
    pub name: String,
    /// Sensors that have readings.
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
                digest.sum = digest.sum.wrapping_add(cell(&place, *time, value));
            }
        }
        digest
    }
}

impl fmt::Display for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} readings, {} cells, digest {:032x}", self.readings, self.cells, self.sum)
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

fn place(key: &str, field: &Arc<str>) -> [u8; 32] {
    let place = Sha256::new().chain_update((key.len() as u64).to_be_bytes());
    place.chain_update(key).chain_update(field.as_bytes()).finalize().into()
}

fn cell(place: &[u8; 32], time: i64, value: &Value) -> u128 {
    let hash = Sha256::new().chain_update(place).chain_update(time.to_be_bytes());
    let hash = match value {
        Value::Float(v) => hash.chain_update([0]).chain_update(v.to_bits().to_be_bytes()),
        Value::Integer(v) => hash.chain_update([1]).chain_update(v.to_be_bytes()),
        Value::Unsigned(v) => hash.chain_update([2]).chain_update(v.to_be_bytes()),
        Value::Boolean(v) => hash.chain_update([3, u8::from(*v)]),
        Value::String(v) => hash.chain_update([4]).chain_update(v.as_bytes()),
    };
    number(&hash.finalize())
}

/// The first 16 bytes of a hash.
fn number(hash: &[u8]) -> u128 {
    hash.iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// Bytes as hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        u128::from_str_radix(&String::deserialize(from)?, 16).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
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

    /// What the form of docs/backup.md gives, computed by Python's hashlib.
    #[test]
    fn the_digest_is_the_documented_one() {
        let one = set(&[(1_768_435_200_000_000_000, &[("temp", Value::Float(21.5)), ("n", Value::Integer(-3))])]);
        let digest = SetDigest::of("climate,sensor=s1", &one);
        assert_eq!((digest.readings, digest.cells), (1, 2));
        assert_eq!(format!("{:032x}", digest.sum), PYTHON);
    }

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
