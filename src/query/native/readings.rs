//! Readings of one sensor, part by part, from the earliest on or from the latest back.

use std::ops::Range;
use std::sync::Arc;

use super::Selection;
use crate::bucket::store::{Extent, GROWTH, Projection, Scanned, ScannedPage};
use crate::bucket::{Reading, Readings, StorageError, UnflushedHour};
use crate::query::engine::evaluate::text_bytes;
use crate::query::engine::hours::{beside, by_hour, hours_of, overlay};
use crate::query::engine::{Engine, Unflushed};
use crate::query::{Budget, Held, QueryError};
use crate::reading::{Hour, Value};

/// Which readings come first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// The earliest.
    #[default]
    Ascending,
    /// The latest.
    Descending,
}

/// A part of a range of readings.
#[derive(Debug)]
pub struct Part {
    /// In the order asked for.
    pub readings: Vec<Reading>,
    /// Where the next part begins, if there is one: no reading before it, in the order asked for, is left.
    pub next: Option<i64>,
    /// Whether the sensor is known at all, as its readings show; [`readings`] looks further.
    pub known: bool,
    /// What they take.
    pub held: Held,
}

/// How many readings a page is guessed to hold when one asks for just enough pages.
const READINGS_PER_PAGE: usize = 50;
/// How many bytes.
const PAGE_BYTES: usize = 32 << 10;

impl Order {
    /// What is left of a range from this time on, in this order.
    #[must_use]
    pub fn rest(self, range: &Range<i64>, from: i64) -> Range<i64> {
        match self {
            Self::Ascending => from..range.end,
            Self::Descending => range.start..from.saturating_add(1),
        }
    }

    /// The first time of a range, in this order. The range is not empty.
    #[must_use]
    pub fn first(self, range: &Range<i64>) -> i64 {
        match self {
            Self::Ascending => range.start,
            Self::Descending => range.end - 1,
        }
    }
}

/// Bounds on the pages read at once with their readings.
const PAGES_WITH_READINGS: Range<usize> = 4..24;

/// The first `limit` readings of a selection.
///
/// # Errors
/// When the answer cannot be complete.
pub async fn readings(
    engine: &Engine,
    budget: &Budget,
    selection: &Selection,
    order: Order,
    limit: usize,
) -> Result<Part, QueryError> {
    engine.span(&selection.range)?;
    let mut part = read(engine, budget, selection, order, (limit, room(engine))).await?;
    part.known = !part.readings.is_empty() || engine.is_known(&selection.database, &selection.sensor).await?;
    Ok(part)
}

/// The memory that the readings of a part may take: what is left of a request's is for reading them, and for their text.
pub(super) fn room(engine: &Engine) -> usize {
    engine.options.request_bytes / 4
}

/// As [`readings`], of a sensor that is known; at most so many, and so many bytes, but one at least.
pub(super) async fn read(
    engine: &Engine,
    budget: &Budget,
    selection: &Selection,
    order: Order,
    (limit, bytes_max): (usize, usize),
) -> Result<Part, QueryError> {
    let mut readings: Vec<Reading> = Vec::new();
    let mut hours = hours_of(&selection.range);
    let mut unflushed = engine.unflushed_of(&selection.database, &selection.sensor, &hours).await?;
    let _unflushed = budget.hold(unflushed.values().map(UnflushedHour::memory).sum())?;
    let (mut held, mut bytes, mut measured) = (budget.hold(0)?, 0, 0);
    let pages_max = (limit / READINGS_PER_PAGE).clamp(PAGES_WITH_READINGS.start, PAGES_WITH_READINGS.end);
    let fields: Vec<Arc<str>> = selection.fields.iter().map(|field| field.as_str().into()).collect();
    let projection = Projection { readings: true, fields: (!fields.is_empty()).then(|| fields.into()) };
    let extent = Extent { pages: pages_max, bytes: engine.lot_bytes() };
    while hours.start < hours.end && readings.len() <= limit && bytes <= bytes_max {
        let lot = budget.hold(engine.lot_bytes().min(pages_max * PAGE_BYTES) * GROWTH)?;
        let Scanned { pages, rest } =
            budget.waiting(scan(engine, selection, order, &hours, &projection, extent)).await?;
        for (hour, pages, later) in order.scanned(&pages, &rest, &mut unflushed) {
            if readings.len() > limit {
                break;
            }
            hours = order.behind(&hours, hour);
            let _unpacked = budget.hold(later.as_ref().map_or(0, UnflushedHour::unpacked_memory))?;
            let found = overlay(pages, later.as_ref());
            match order {
                Order::Ascending => readings.extend(selected(&found, selection)),
                Order::Descending => readings.extend(selected(&found, selection).rev()),
            }
        }
        if readings.len() <= limit {
            hours = rest;
        }
        bytes += readings[measured..].iter().map(memory_of).sum::<usize>();
        held.set(bytes)?;
        let stored = pages.iter().filter_map(|page| page.readings.as_ref()).map(Readings::bytes).sum();
        budget.note_read(stored, readings.len() - measured);
        measured = readings.len();
        drop(lot);
        budget.pause().await?;
    }
    let limit = limit.min(fitting(&readings, bytes_max));
    let rest = (hours.start < hours.end).then(|| order.first(&(hours.start.start_ns()..hours.end.start_ns())));
    let next = readings.get(limit).map(|reading| reading.time).or(rest.filter(|_| bytes > bytes_max));
    readings.truncate(limit);
    held.set(readings.iter().map(memory_of).sum())?;
    let known = !readings.is_empty();
    Ok(Part { readings, next, known, held })
}

/// Pages with readings, from that end of the hours on from which the order goes.
async fn scan(
    engine: &Engine,
    Selection { database, sensor, .. }: &Selection,
    order: Order,
    hours: &Range<Hour>,
    projection: &Projection,
    extent: Extent,
) -> Result<Scanned, StorageError> {
    match order {
        Order::Ascending => engine.store.scan(database, sensor, hours.clone(), projection, extent).await,
        Order::Descending => engine.store.scan_back(database, sensor, hours.clone(), projection, extent).await,
    }
}

/// The readings of a set that are selected, in time order.
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

/// An hour with its stored pages and what is not flushed of it.
type ScannedHour<'a> = (Hour, &'a [ScannedPage], Option<UnflushedHour>);

impl Order {
    /// The hours that a scan has gone through, in this order, given those that are left.
    fn scanned<'a>(
        self,
        pages: &'a [ScannedPage],
        rest: &Range<Hour>,
        unflushed: &mut Unflushed,
    ) -> Vec<ScannedHour<'a>> {
        match self {
            Self::Ascending => by_hour(pages, unflushed, rest.start),
            Self::Descending => {
                let mut scanned = beside(pages, unflushed.split_off(&rest.end));
                scanned.reverse();
                scanned
            }
        }
    }

    /// The hours left behind this one.
    fn behind(self, hours: &Range<Hour>, hour: Hour) -> Range<Hour> {
        match self {
            Self::Ascending => hour.next()..hours.end,
            Self::Descending => hours.start..hour,
        }
    }
}

/// The memory that a reading takes, and about what its text takes.
pub fn memory_of(reading: &Reading) -> usize {
    let cell = |(name, value): &(Arc<str>, Value)| size_of::<(Arc<str>, Value)>() + name.len() + 2 * text_bytes(value);
    size_of::<Reading>() + reading.fields.iter().map(cell).sum::<usize>()
}

/// How many of the readings fit into so many bytes; at least one, so that a cursor moves on.
fn fitting(readings: &[Reading], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |reading: &&Reading| {
        bytes += memory_of(reading);
        bytes <= bytes_max
    };
    readings.iter().take_while(fits).count().max(1)
}
