//! Readings of one sensor in parts, in ascending or descending time order.

use std::ops::Range;
use std::sync::Arc;

use super::Selection;
pub use crate::bucket::store::Order;
use crate::bucket::store::{Extent, GROWTH, Projection, ScanResult};
use crate::bucket::{Reading, Readings, StorageError, UnflushedHour};
use crate::query::engine::Engine;
use crate::query::engine::hours::{beside, by_hour, first_half, hours_of, overlay, within};
use crate::query::engine::memory::memory_of;
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::Hour;

/// A part of a range of readings.
#[derive(Debug)]
pub struct RangePart {
    /// The readings in the requested order.
    pub readings: Vec<Reading>,
    /// The first time of the next part in the requested order, if there is one.
    pub next: Option<i64>,
    /// True if the sensor exists. `read` sets it from the readings in the range, and [`Query::readings`] from the
    /// catalog and the store.
    pub known: bool,
    /// The memory of the readings.
    pub held: HeldBytes,
}

/// Estimated readings per page, which determines the number of pages per read.
const READINGS_PER_PAGE: usize = 50;
/// Estimated stored bytes per page.
const PAGE_BYTES: usize = 32 << 10;

/// Returns the rest of a range from this time on, in this order.
#[must_use]
pub fn remaining_range(order: Order, range: &Range<i64>, start: i64) -> Range<i64> {
    match order {
        Order::Ascending => start..range.end,
        Order::Descending => range.start..start.saturating_add(1),
    }
}

/// Returns the first time of a non-empty range, in this order.
#[must_use]
pub fn first(order: Order, range: &Range<i64>) -> i64 {
    match order {
        Order::Ascending => range.start,
        Order::Descending => range.end - 1,
    }
}

/// Bounds on the number of pages per read.
const PAGES_WITH_READINGS: Range<usize> = 4..24;

impl Query {
    /// Returns the first `limit` readings of a selection.
    ///
    /// # Errors
    /// If the answer would be incomplete.
    pub async fn readings(
        &self,
        budget: &Budget,
        selection: &Selection,
        order: Order,
        limit: usize,
    ) -> Result<RangePart, QueryError> {
        let engine = &self.engine;
        let read = || async {
            let Some(entry) = engine.named(&selection.database, &selection.sensor).await? else {
                return Ok(RangePart { readings: Vec::new(), next: None, known: false, held: budget.hold(0)? });
            };
            let stored = Selection { sensor: entry.stored.key.to_string(), ..selection.clone() };
            let part = read(engine, budget, &stored, order, limit, room(engine)).await?;
            Ok::<_, QueryError>(RangePart { known: true, ..part })
        };
        let part = self.in_turn(budget, &selection.database, read).await?;
        self.count(part.readings.len());
        Ok(part)
    }
}

/// Returns the maximum bytes of the readings of a part. The rest of the request's memory is for reading them, and for
/// their text.
pub(super) fn room(engine: &Engine) -> usize {
    engine.options.request_bytes / 4
}

/// As [`Query::readings`], without looking up the sensor. Stops after `limit` readings or `bytes_max` bytes, but
/// returns at least one reading if there is one.
pub(super) async fn read(
    engine: &Engine,
    budget: &Budget,
    selection: &Selection,
    order: Order,
    limit: usize,
    bytes_max: usize,
) -> Result<RangePart, QueryError> {
    let mut readings: Vec<Reading> = Vec::new();
    let range = engine.with_readings(budget, &selection.database, &selection.range, true);
    let selection = &Selection { range, ..selection.clone() };
    let mut hours = hours_of(&selection.range);
    let sensor = [&*selection.sensor];
    let unflushed = engine.unflushed_within(budget, &selection.database, &sensor, &selection.range).await?;
    let mut unflushed = unflushed.into_iter().next().unwrap_or_default();
    let _unflushed = budget.hold(unflushed.values().map(UnflushedHour::memory).sum())?;
    let mut held = budget.hold(0)?;
    let mut bytes = 0;
    let mut measured = 0;
    let pages_max = (limit / READINGS_PER_PAGE).clamp(PAGES_WITH_READINGS.start, PAGES_WITH_READINGS.end);
    let fields: Vec<Arc<str>> = selection.fields.iter().map(|field| field.as_str().into()).collect();
    let fields = (!fields.is_empty()).then(|| fields.into());
    let mut projection = Projection { fields, times: selection.range.clone(), ..Projection::ALL };
    let extent = Extent { pages: pages_max, bytes: engine.batch_bytes(), hour_bytes: engine.hour_bytes() };
    // The hours of the next scan. It ends before an hour that is too large, and the part then ends within that hour.
    let mut ahead = hours.clone();
    let mut page: Option<Selection> = None;
    while hours.start < hours.end && readings.len() <= limit && bytes <= bytes_max {
        let mut batch = budget.hold(engine.batch_bytes().min(pages_max * PAGE_BYTES) * GROWTH)?;
        let unpacked = unflushed.range(ahead.clone()).map(|(_, hour)| hour);
        let too_large = match order {
            Order::Ascending => engine.too_large(unpacked, order, &projection.times),
            Order::Descending => engine.too_large(unpacked.rev(), order, &projection.times),
        };
        let scanned = match too_large {
            Some(hour) => Err(StorageError::HourTooLarge { hour, limit: extent.hour_bytes }),
            None => {
                let Selection { database, sensor, .. } = selection;
                let scan = engine.store.scan(database, sensor, ahead.clone(), order, &projection, extent);
                budget.waiting(scan).await
            }
        };
        let ScanResult { pages, rest } = match scanned {
            Err(StorageError::HourTooLarge { hour, limit }) => {
                ahead = before(order, &hours, hour);
                if !ahead.is_empty() {
                    continue;
                }
                // The readings of earlier hours are a part of their own.
                if !readings.is_empty() {
                    break;
                }
                let times = first_half(order, hour, &projection.times).ok_or(QueryError::HourTooLarge { limit })?;
                hours = hour..hour.next();
                unflushed = within(unflushed, &times);
                projection.times = times.clone();
                ahead = hours.clone();
                page = Some(Selection { range: times, ..selection.clone() });
                continue;
            }
            scanned => scanned?,
        };
        let decoded: usize = pages.iter().filter_map(|page| page.readings.as_ref()).map(Readings::memory).sum();
        batch.set(decoded)?;
        let selection = page.as_ref().unwrap_or(selection);
        let mut scanned = match order {
            Order::Ascending => by_hour(&pages, &mut unflushed, rest.start),
            Order::Descending => beside(&pages, unflushed.split_off(&rest.end)),
        };
        if order == Order::Descending {
            scanned.reverse();
        }
        for (hour, pages, later) in scanned {
            if readings.len() > limit {
                break;
            }
            hours = range_after(order, &hours, &(hour..hour.next()));
            let _unpacked = budget.hold(later.as_ref().map_or(0, UnflushedHour::unpacked_memory))?;
            let found = overlay(pages, later.as_ref());
            match order {
                Order::Ascending => readings.extend(select_readings(&found, selection)),
                Order::Descending => readings.extend(select_readings(&found, selection).rev()),
            }
        }
        if readings.len() <= limit {
            hours = unscanned_hours(order, &rest, &hours);
        }
        ahead = hours.clone();
        bytes += readings[measured..].iter().map(memory_of).sum::<usize>();
        held.set(bytes)?;
        let stored = pages.iter().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum();
        budget.note_read(stored, readings.len() - measured);
        measured = readings.len();
        drop(batch);
        budget.pause().await?;
    }
    let limit = limit.min(fitting(&readings, bytes_max));
    let rest = match page {
        Some(page) => range_after(order, &selection.range, &page.range),
        None => hours.start.start_ns().max(selection.range.start)..hours.end.start_ns().min(selection.range.end),
    };
    let next = readings.get(limit).map(|reading| reading.time).or((!rest.is_empty()).then(|| first(order, &rest)));
    readings.truncate(limit);
    held.set(readings.iter().map(memory_of).sum())?;
    let known = !readings.is_empty();
    Ok(RangePart { readings, next, known, held })
}

/// Returns the selected readings of a set, in time order.
fn select_readings<'a>(set: &'a Readings, selection: &'a Selection) -> impl DoubleEndedIterator<Item = Reading> + 'a {
    let wanted = |name: &str| selection.fields.is_empty() || selection.fields.iter().any(|field| field == name);
    let start = set.times().partition_point(|time| *time < selection.range.start);
    let end = set.times().partition_point(|time| *time < selection.range.end);
    let cut = move |index: usize| {
        let fields = set.fields(index).filter(|(name, _)| wanted(name));
        let fields: Vec<_> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!fields.is_empty()).then(|| Reading { time: set.times()[index], fields })
    };
    (start..end).filter_map(cut)
}

/// Returns the hours before this one, in this order.
fn before(order: Order, hours: &Range<Hour>, hour: Hour) -> Range<Hour> {
    match order {
        Order::Ascending => hours.start..hour,
        Order::Descending => hour.next()..hours.end,
    }
}

/// Returns the hours that the scan did not reach. `rest` are those left of the scanned ones.
fn unscanned_hours(order: Order, rest: &Range<Hour>, hours: &Range<Hour>) -> Range<Hour> {
    match order {
        Order::Ascending => rest.start..hours.end,
        Order::Descending => hours.start..rest.end,
    }
}

/// Returns the rest of a range after a part, in this order.
fn range_after<T: Copy>(order: Order, range: &Range<T>, part: &Range<T>) -> Range<T> {
    match order {
        Order::Ascending => part.end..range.end,
        Order::Descending => range.start..part.start,
    }
}

/// Returns the number of readings that fit into `bytes_max`, but at least one, so that a cursor always advances.
fn fitting(readings: &[Reading], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |reading: &&Reading| {
        bytes += memory_of(reading);
        bytes <= bytes_max
    };
    readings.iter().take_while(fits).count().max(1)
}
