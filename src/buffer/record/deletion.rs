//! The format of a deletion's WAL record.
//!
//! ```text
//! record   := version:u8 (1)  request:text (reserved, empty)  received:varint (zigzag ns)  database:text  scope
//! scope    := 0:varint                                              the database
//!           | 1:varint readings  count:varint (0 or 1) statement:text…
//!           | 2:varint                                              a mark
//!           | 3:varint before:varint (stamp)  count:varint cells…   cells older than a mark
//! readings := from:varint (zigzag ns)  to:varint (zigzag ns, exclusive)  count:varint sensor…
//! cells    := sensor  count:varint time:varint… (zigzag ns, delta to the previous one)
//! ```
//!
//! Text, varint and sensor are as in a record of readings.

use crate::buffer::record::{PayloadReader, RecordError, RecordHead, put_head, put_length, put_sensor, put_text};
use crate::catalog::deletion::{DeletedTimes, Deletion, Scope};
use crate::reading::varint::{put_varint, unzigzag, zigzag};

/// The record kind of deletions. The WAL stores it beside the payload.
pub const KIND_DELETION: u8 = 2;
const DATABASE: u64 = 0;
const READINGS: u64 = 1;
const MARK: u64 = 2;
const CELLS: u64 = 3;

/// Encodes a deletion as a record's payload.
pub fn encode(deletion: &Deletion) -> Vec<u8> {
    let mut out = Vec::new();
    put_head(&mut out, deletion.received, &deletion.database);
    match &deletion.scope {
        Scope::Database => put_varint(&mut out, DATABASE),
        Scope::Readings { sensors, range, statement } => {
            put_varint(&mut out, READINGS);
            put_varint(&mut out, zigzag(range.start));
            put_varint(&mut out, zigzag(range.end));
            put_length(&mut out, sensors.len());
            sensors.iter().for_each(|sensor| put_sensor(&mut out, sensor));
            put_length(&mut out, statement.iter().len());
            statement.iter().for_each(|statement| put_text(&mut out, statement));
        }
        Scope::Mark => put_varint(&mut out, MARK),
        Scope::Cells { sensors, mark } => {
            put_varint(&mut out, CELLS);
            put_varint(&mut out, *mark);
            put_length(&mut out, sensors.len());
            for DeletedTimes { sensor, times } in sensors {
                put_sensor(&mut out, sensor);
                put_length(&mut out, times.len());
                let mut last = 0;
                for time in times.iter() {
                    put_varint(&mut out, zigzag(time.wrapping_sub(last)));
                    last = *time;
                }
            }
        }
    }
    out
}

/// Decodes a record's payload.
///
/// # Errors
/// If the kind or version is unknown, or the payload is malformed.
pub fn decode(kind: u8, payload: &[u8]) -> Result<Deletion, RecordError> {
    PayloadReader::read(kind, KIND_DELETION, payload, |bytes| {
        let RecordHead { received, database } = bytes.head()?;
        let scope = match bytes.varint()? {
            MARK => Scope::Mark,
            CELLS => {
                let mark = bytes.varint()?;
                Scope::Cells { mark, sensors: bytes.list(PayloadReader::cells)? }
            }
            DATABASE => Scope::Database,
            READINGS => {
                let range = unzigzag(bytes.varint()?)..unzigzag(bytes.varint()?);
                let sensors = bytes.list(PayloadReader::sensor)?;
                let statement = bytes.list(|bytes| bytes.text().map(str::to_owned))?.pop();
                Scope::Readings { range, sensors, statement }
            }
            _ => return None,
        };
        Some(Deletion { received, database, scope })
    })
}

impl PayloadReader<'_> {
    fn cells(&mut self) -> Option<DeletedTimes> {
        let sensor = self.sensor()?;
        let mut last = 0_i64;
        let times = self.list(|bytes| {
            last = last.wrapping_add(unzigzag(bytes.varint()?));
            Some(last)
        })?;
        Some(DeletedTimes { sensor, times: times.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Sensor;

    #[test]
    fn deletions_survive_a_round_trip() {
        let sensor = |room: &str| Sensor::new("my climate", [("room", room)]).expect("one tag");
        let readings =
            Scope::Readings { sensors: vec![sensor("a,b"), sensor("ü")], range: i64::MIN..-1, statement: None };
        let times = |times: &[i64]| times.into();
        let cells = Scope::Cells {
            mark: 1 << 60,
            sensors: vec![
                DeletedTimes { sensor: sensor("a"), times: times(&[i64::MIN, -1, 0, 7, i64::MAX]) },
                DeletedTimes { sensor: sensor("b"), times: times(&[]) },
            ],
        };
        for scope in [Scope::Database, readings, Scope::Mark, cells] {
            let deletion = Deletion { received: 1_700_000_000_000_000_001, database: "plant 7".into(), scope };
            let payload = encode(&deletion);
            assert_eq!(decode(KIND_DELETION, &payload), Ok(deletion));
            let unknown = RecordError::Unknown { kind: 1, version: payload[0] };
            assert_eq!(decode(1, &payload), Err(unknown), "readings are another kind");
            for cut in 1..payload.len() {
                assert!(decode(KIND_DELETION, &payload[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    /// The bytes of version 1 must not change, because WAL files hold them.
    #[test]
    fn the_bytes_of_version_1_stay() {
        let sensors = vec![Sensor::new("m", [("t", "a")]).expect("one tag")];
        let scope = Scope::Readings { sensors: sensors.clone(), range: -1..300, statement: None };
        let deletion = Deletion { received: 5, database: "d".into(), scope };
        assert_eq!(encode(&deletion), b"\x01\x00\x0a\x01d\x01\x01\xd8\x04\x01\x01m\x01\x01t\x01a\x00");
        let scope = Scope::Readings { sensors, range: -1..300, statement: Some("x".to_owned()) };
        let deletion = Deletion { scope, ..deletion };
        assert_eq!(encode(&deletion), b"\x01\x00\x0a\x01d\x01\x01\xd8\x04\x01\x01m\x01\x01t\x01a\x01\x01x");
        assert_eq!(decode(KIND_DELETION, &encode(&deletion)), Ok(deletion.clone()));
        let deletion = Deletion { scope: Scope::Database, ..deletion };
        assert_eq!(encode(&deletion), b"\x01\x00\x0a\x01d\x00");
        let deletion = Deletion { scope: Scope::Mark, ..deletion };
        assert_eq!(encode(&deletion), b"\x01\x00\x0a\x01d\x02");
        let sensor = Sensor::new("m", [("t", "a")]).expect("one tag");
        let cells = DeletedTimes { sensor, times: [-1, 300].into() };
        let deletion = Deletion { scope: Scope::Cells { sensors: vec![cells], mark: 7 }, ..deletion };
        assert_eq!(encode(&deletion), b"\x01\x00\x0a\x01d\x03\x07\x01\x01m\x01\x01t\x01a\x02\x01\xda\x04");
    }
}
