//! Months: the rev, then `store::months`; no totals of a claim.

use std::ops::Range;
use std::sync::Arc;

use redb::Database;

use super::file::FileFailure;
use super::keys::Keys;
use super::tables::{DocumentRows, Put, unseal, write_each};
use crate::bucket::columns::PackedBytes;
use crate::bucket::store::{Projection, Written};
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

/// The rev and the totals, packed; rev 0 if the row is damaged, so that it is written anew.
fn parts<'v>(key: &[u8], value: &'v [u8]) -> (u64, &'v [u8]) {
    let Ok(bytes) = unseal(key, value, String::new) else { return (0, &[]) };
    let mut bytes = PackedBytes::new(bytes);
    bytes.varint().map_or((0, &[][..]), |rev| (rev, bytes.rest()))
}

/// Implements `Store::write_months`.
pub(super) fn write(database: &Database, name: &str, puts: &[Put]) -> Result<Vec<Written>, FileFailure> {
    // The sealer found parts of days before it added them up. If the database was dropped since, this must not list it again.
    write_each(database, (name, false), puts, |tables, put| {
        let fits = put.fits(&tables.months, |key, value| Ok::<_, StorageError>(parts(key, value).0))?;
        if fits {
            put.put(&mut tables.months)?;
        }
        Ok(fits)
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
    let (mut room, mut found) = (Room::default(), Vec::new());
    for number in range.start.0..range.end.0 {
        let month = Month(number);
        for sensor in sensors {
            let key = keys.month(month, sensor);
            let Some(value) = table.get(&*key)? else { continue };
            let (rev, bytes) = parts(&key, value.value());
            if rev == 0 {
                continue;
            }
            let totals = months::decode(bytes, month, projection, &mut room).ok();
            found.push((MonthId { sensor: sensor.clone(), month }, StoredMonth { rev, totals }));
        }
    }
    Ok(found)
}
