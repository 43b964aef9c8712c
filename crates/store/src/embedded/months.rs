//! Monthly totals in the file: `rev:varint`, then the totals as `store::months` encodes them. A claim has no totals.

use std::ops::Range;
use std::sync::Arc;

use redb::Database;

use super::file::FileFailure;
use super::keys::Keys;
use super::tables::{DocumentRows, Listing, Put, unseal, write_each};
use crate::bucket::columns::PackedBytes;
use crate::bucket::store::{Projection, WriteOutcome};
use crate::bucket::{MonthId, MonthWrite, StorageError, StoredMonth};
use crate::figures::Room;
use crate::months;
use crate::reading::Month;
use crate::reading::varint::put_varint;

pub(super) fn encode(keys: &Keys, write: &MonthWrite<'_>) -> Put {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, write.next_rev);
    bytes.extend(write.totals.map(|totals| months::encode(write.id.month, totals)).unwrap_or_default());
    Put::new(keys.month(write.id.month, &write.id.sensor), write.rev, bytes)
}

/// A stored month before its totals are decoded.
struct PackedMonth<'v> {
    rev: u64,
    totals: &'v [u8],
}

/// Reads a stored month. Returns `None` if the row is damaged; the sealer then replaces it.
fn read_packed<'v>(key: &[u8], value: &'v [u8]) -> Option<PackedMonth<'v>> {
    let mut bytes = PackedBytes::new(unseal(key, value, String::new).ok()?);
    let rev = bytes.varint().ok()?;
    Some(PackedMonth { rev, totals: bytes.unread() })
}

/// Returns the rev of a stored month; 0 if the row is damaged.
fn rev(key: &[u8], value: &[u8]) -> Result<u64, StorageError> {
    Ok(read_packed(key, value).map_or(0, |month| month.rev))
}

/// Implements `Store::write_months`.
pub(super) fn write(database: &Database, name: &str, puts: &[Put]) -> Result<Vec<WriteOutcome>, FileFailure> {
    // The database may have been dropped since the sealer read its days. Totals must not list it again.
    write_each(database, name, Listing::Keep, puts, |tables, put| {
        let is_expected = put.matches(&tables.months, rev)?;
        if is_expected {
            put.put(&mut tables.months)?;
        }
        Ok(is_expected)
    })
}

/// Implements `Store::read_months`.
pub(super) fn read(
    keys: &Keys,
    table: &DocumentRows,
    sensors: &[Arc<str>],
    range: &Range<Month>,
    projection: &Projection,
) -> Result<Vec<(MonthId, StoredMonth)>, FileFailure> {
    let mut room = Room::default();
    let mut found = Vec::new();
    for number in range.start.0..range.end.0 {
        let month = Month(number);
        for sensor in sensors {
            let key = keys.month(month, sensor);
            let Some(value) = table.get(&*key)? else { continue };
            let Some(packed) = read_packed(&key, value.value()).filter(|packed| packed.rev > 0) else { continue };
            let totals = months::decode(packed.totals, month, projection, &mut room).ok();
            found.push((MonthId { sensor: sensor.clone(), month }, StoredMonth { rev: packed.rev, totals }));
        }
    }
    Ok(found)
}
