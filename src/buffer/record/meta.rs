//! The format of a metadata change's WAL record.
//!
//! ```text
//! record   := version:u8 (1)  request:text (reserved, empty)  received:varint (zigzag ns)  database:text
//!             count:varint change…
//! change   := sensor  replaces:varint (0 or 1)  count:varint value…
//! value    := name:text  0:varint                                  the name is removed
//!           | name:text  1:varint  json:text
//! ```
//!
//! Text, varint and sensor are as in a record of readings.

use std::sync::Arc;

use crate::bucket::Meta;
use crate::buffer::record::{PayloadReader, RecordError, RecordHead, put_head, put_length, put_sensor, put_text};
use crate::reading::varint::put_varint;
use crate::reading::{Sensor, Stamp};

/// The record kind of metadata. The WAL stores it beside the payload.
pub const KIND_META: u8 = 3;

/// The metadata changes of one record.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaRecord {
    /// The time at which the request was received, in nanoseconds since the epoch.
    pub received: i64,
    pub database: String,
    pub changes: Vec<MetaChange>,
}

/// A change of a sensor's metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaChange {
    pub sensor: Sensor,
    /// True if all other names are removed.
    pub replaces: bool,
    /// Names with their JSON values; `None` removes a name.
    pub values: Vec<(Arc<str>, Option<Arc<str>>)>,
}

impl MetaChange {
    /// Returns the change with the stamp of its record.
    pub fn to_meta(&self, stamp: Stamp) -> Meta {
        Meta::change(stamp, self.replaces, self.values.iter().cloned())
    }

    /// Merges a later change of the same sensor into this one.
    pub fn follow(&mut self, later: Self) {
        if later.replaces {
            *self = later;
            return;
        }
        for (name, value) in later.values {
            match self.values.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => self.values.push((name, value)),
            }
        }
    }

    /// Returns the size of the names and values in bytes.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, |value| value.len())).sum()
    }
}

/// Encodes metadata changes as a record's payload.
pub fn encode(record: &MetaRecord) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(&mut out, record.received, &record.database);
    put_length(&mut out, record.changes.len());
    for MetaChange { sensor, replaces, values } in &record.changes {
        put_sensor(&mut out, sensor);
        put_varint(&mut out, u64::from(*replaces));
        put_length(&mut out, values.len());
        for (name, value) in values {
            put_text(&mut out, name);
            put_varint(&mut out, u64::from(value.is_some()));
            value.iter().for_each(|value| put_text(&mut out, value));
        }
    }
    out
}

/// Decodes a record's payload.
///
/// # Errors
/// If the kind or version is unknown, or the payload is malformed.
pub fn decode(kind: u8, payload: &[u8]) -> Result<MetaRecord, RecordError> {
    PayloadReader::read(kind, KIND_META, payload, |bytes| {
        let RecordHead { received, database } = bytes.head()?;
        let changes = bytes.list(PayloadReader::meta_change)?;
        Some(MetaRecord { received, database, changes })
    })
}

impl PayloadReader<'_> {
    fn flag(&mut self) -> Option<bool> {
        match self.varint()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn meta_change(&mut self) -> Option<MetaChange> {
        let sensor = self.sensor()?;
        let replaces = self.flag()?;
        let values = self.list(|bytes| {
            let name = bytes.text()?.into();
            let value = if bytes.flag()? { Some(bytes.text()?.into()) } else { None };
            Some((name, value))
        })?;
        Some(MetaChange { sensor, replaces, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> MetaRecord {
        let change = |tag: &str, replaces, values: &[(&str, Option<&str>)]| MetaChange {
            sensor: Sensor::new("m", [("t", tag)]).expect("one tag"),
            replaces,
            values: values.iter().map(|(name, value)| ((*name).into(), value.map(Into::into))).collect(),
        };
        let changes = vec![change("a", true, &[("site", Some("\"lab\"")), ("old", None)]), change("ü", false, &[])];
        MetaRecord { received: -5, database: "d".into(), changes }
    }

    #[test]
    fn metadata_survives_a_round_trip() {
        let payload = encode(&record());
        assert_eq!(decode(KIND_META, &payload), Ok(record()));
        assert!(decode(1, &payload).is_err(), "readings are another kind");
        for cut in 1..payload.len() {
            assert!(decode(KIND_META, &payload[..cut]).is_err(), "cut at {cut}");
        }
    }

    /// The bytes of version 1 must not change, because WAL files hold them.
    #[test]
    fn the_bytes_of_version_1_stay() {
        let expected = b"\x01\x00\x09\x01d\x02\x01m\x01\x01t\x01a\x01\x02\x04site\x01\x05\"lab\"\x03old\x00\x01m\x01\x01t\x02\xc3\xbc\x00\x00";
        assert_eq!(encode(&record()), expected);
    }
}
