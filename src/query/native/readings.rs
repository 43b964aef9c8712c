//! Readings of one sensor in parts, in ascending or descending order of time.

use std::ops::Range;
use std::sync::Arc;

use super::Selection;
pub use crate::bucket::store::Order;
use crate::bucket::store::{Extent, GROWTH, Projection, Scanned};
use crate::bucket::{Reading, Readings, StorageError, UnflushedHour};
use crate::query::engine::Engine;
use crate::query::engine::hours::{beside, by_hour, hours_of, overlay};
use crate::query::engine::memory::memory_of;
use crate::query::{Budget, HeldBytes, Query, QueryError};
use crate::reading::Hour;
use crate::reading::time::MILLI_NS;

/// A part of a range of readings.
#[derive(Debug)]
pub struct RangePart {
    /// In the requested order.
    pub readings: Vec<Reading>,
    /// The time from which the next part starts in the requested order, if there is one.
    pub next: Option<i64>,
    /// Whether the sensor exists. `read` only sees readings in the range; [`Query::readings`] also asks the catalog and the
    /// store.
    pub known: bool,
    /// The memory of the readings.
    pub held: HeldBytes,
}

/// A guess at the readings per page, for how many pages to read at a time.
const READINGS_PER_PAGE: usize = 50;
/// A guess at the stored bytes per page.
const PAGE_BYTES: usize = 32 << 10;

/// What is left of a range from this time on, in this order.
#[must_use]
pub fn rest(order: Order, range: &Range<i64>, from: i64) -> Range<i64> {
    match order {
        Order::Ascending => from..range.end,
        Order::Descending => range.start..from.saturating_add(1),
    }
}

/// The first time of a range, in this order. The range must not be empty.
#[must_use]
pub fn first(order: Order, range: &Range<i64>) -> i64 {
    match order {
        Order::Ascending => range.start,
        Order::Descending => range.end - 1,
    }
}

/// Bounds on the pages read at a time.
const PAGES_WITH_READINGS: Range<usize> = 4..24;

impl Query {
    /// The first `limit` readings of a selection.
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
            let part = read(engine, budget, &stored, order, (limit, room(engine))).await?;
            Ok::<_, QueryError>(RangePart { known: true, ..part })
        };
        let part = self.in_turn(budget, &selection.database, read).await?;
        self.count(part.readings.len());
        Ok(part)
    }
}

/// The memory that the readings of a part may take. The rest of the request's memory is for reading them, and for their
/// text.
pub(super) fn room(engine: &Engine) -> usize {
    engine.options.request_bytes / 4
}

/// As [`Query::readings`], without looking up whether the sensor exists. Stops after `limit` readings or `bytes_max` bytes,
/// but gives at least one reading if there are any.
pub(super) async fn read(
    engine: &Engine,
    budget: &Budget,
    selection: &Selection,
    order: Order,
    (limit, bytes_max): (usize, usize),
) -> Result<RangePart, QueryError> {
    let mut readings: Vec<Reading> = Vec::new();
    let range = engine.with_readings(budget, &selection.database, &selection.range, true);
    let selection = &Selection { range, ..selection.clone() };
    let mut hours = hours_of(&selection.range);
    let mut unflushed = engine.unflushed_of(&selection.database, &selection.sensor, &hours).await?;
    let _unflushed = budget.hold(unflushed.values().map(UnflushedHour::memory).sum())?;
    let (mut held, mut bytes, mut measured) = (budget.hold(0)?, 0, 0);
    let pages_max = (limit / READINGS_PER_PAGE).clamp(PAGES_WITH_READINGS.start, PAGES_WITH_READINGS.end);
    let fields: Vec<Arc<str>> = selection.fields.iter().map(|field| field.as_str().into()).collect();
    let fields = (!fields.is_empty()).then(|| fields.into());
    let mut projection = Projection { fields, times: selection.range.clone(), ..Projection::ALL };
    let extent = Extent { pages: pages_max, bytes: engine.batch_bytes(), hour_bytes: engine.hour_bytes() };
    // What the next scan covers: less than is left where an hour is too large. The part ends within such an hour.
    let mut ahead = hours.clone();
    let mut within: Option<Selection> = None;
    while hours.start < hours.end && readings.len() <= limit && bytes <= bytes_max {
        let batch = budget.hold(engine.batch_bytes().min(pages_max * PAGE_BYTES) * GROWTH)?;
        let scan = engine.store.scan(&selection.database, &selection.sensor, ahead.clone(), order, &projection, extent);
        let scanned = budget.waiting(scan).await;
        let Scanned { pages, rest } = match scanned {
            Err(StorageError::HourTooLarge { hour, limit }) => {
                ahead = before(order, &hours, hour);
                if !ahead.is_empty() {
                    continue;
                }
                // What was read of the hours before is a part by itself.
                if !readings.is_empty() {
                    break;
                }
                let times = narrowed(order, hour, &projection.times).ok_or(QueryError::HourTooLarge { limit })?;
                (hours, projection.times) = (hour..hour.next(), times.clone());
                ahead = hours.clone();
                within = Some(Selection { range: times, ..selection.clone() });
                continue;
            }
            scanned => scanned?,
        };
        let selection = within.as_ref().unwrap_or(selection);
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
            hours = behind(order, &hours, &(hour..hour.next()));
            let _unpacked = budget.hold(later.as_ref().map_or(0, UnflushedHour::unpacked_memory))?;
            let found = overlay(pages, later.as_ref());
            match order {
                Order::Ascending => readings.extend(selected(&found, selection)),
                Order::Descending => readings.extend(selected(&found, selection).rev()),
            }
        }
        if readings.len() <= limit {
            hours = joined(order, &rest, &hours);
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
    let rest = match within {
        Some(within) => behind(order, &selection.range, &within.range),
        None => hours.start.start_ns().max(selection.range.start)..hours.end.start_ns().min(selection.range.end),
    };
    let next = readings.get(limit).map(|reading| reading.time).or((!rest.is_empty()).then(|| first(order, &rest)));
    readings.truncate(limit);
    held.set(readings.iter().map(memory_of).sum())?;
    let known = !readings.is_empty();
    Ok(RangePart { readings, next, known, held })
}

/// The selected readings of a set, in time order.
fn selected<'a>(set: &'a Readings, selection: &'a Selection) -> impl DoubleEndedIterator<Item = Reading> + 'a {
    let wanted = |name: &str| selection.fields.is_empty() || selection.fields.iter().any(|field| field == name);
    let from = set.times().partition_point(|time| *time < selection.range.start);
    let to = set.times().partition_point(|time| *time < selection.range.end);
    let cut = move |index: usize| {
        let fields = set.fields(index).filter(|(name, _)| wanted(name));
        let fields: Vec<_> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!fields.is_empty()).then(|| Reading { time: set.times()[index], fields })
    };
    (from..to).filter_map(cut)
}

/// The hours that come before this one, in this order.
fn before(order: Order, hours: &Range<Hour>, hour: Hour) -> Range<Hour> {
    match order {
        Order::Ascending => hours.start..hour,
        Order::Descending => hour.next()..hours.end,
    }
}

/// The hours that the scan did not reach, of which it left `rest` of the first ones.
fn joined(order: Order, rest: &Range<Hour>, hours: &Range<Hour>) -> Range<Hour> {
    match order {
        Order::Ascending => rest.start..hours.end,
        Order::Descending => hours.start..rest.end,
    }
}

/// The half of an hour's selected times that comes first; `None` if these are too few to be halved.
fn narrowed(order: Order, hour: Hour, times: &Range<i64>) -> Option<Range<i64>> {
    let times = times.start.max(hour.start_ns())..times.end.min(hour.end_ns());
    let middle = times.start + (times.end - times.start) / 2;
    let half = match order {
        Order::Ascending => times.start..middle,
        Order::Descending => middle..times.end,
    };
    (half.end - half.start >= MILLI_NS).then_some(half)
}

/// What follows a part of a range, in this order.
fn behind<T: Copy>(order: Order, range: &Range<T>, part: &Range<T>) -> Range<T> {
    match order {
        Order::Ascending => part.end..range.end,
        Order::Descending => range.start..part.start,
    }
}

/// How many readings fit into so many bytes; at least one, so that a cursor always advances.
fn fitting(readings: &[Reading], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |reading: &&Reading| {
        bytes += memory_of(reading);
        bytes <= bytes_max
    };
    readings.iter().take_while(fits).count().max(1)
}
