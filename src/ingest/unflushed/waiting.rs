//! One bucket's readings that are not in the store, packed.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::bucket::UnflushedHour;
use crate::bucket::packed::Packed;
use crate::ingest::agreed::{Agreed, Fate};
use crate::ingest::catalog::{Database, KnownSensor};
use crate::log::Sequence;
use crate::reading::Hour;

/// One bucket's unflushed readings.
#[derive(Debug)]
pub struct Waiting {
    pub(super) hour: Hour,
    pub(super) known: Arc<KnownSensor>,
    pub(super) database: Arc<Database>,
    /// In log order.
    pub(super) rows: Packed,
    /// What they take in the store, roughly.
    pub(super) bytes: usize,
    /// The first of the rows' place in the log.
    pub(super) first: Sequence,
    pub(super) last_touch: Instant,
    pub(super) is_urgent: bool,
    /// How many flights in a row failed for reasons of this bucket alone.
    pub(super) failures: u32,
    /// After such a failure: when it is tried again, unless somebody waits for what came since.
    pub(super) not_before: Option<Instant>,
    pub(super) in_flight: Option<Arc<Packed>>,
}

pub(super) fn find(waiting: &mut VecDeque<Waiting>, hour: Hour) -> Option<&mut Waiting> {
    let at = place(waiting, hour).ok()?;
    Some(&mut waiting[at])
}

/// Where an hour of a sensor is, or would be.
pub(super) fn place(waiting: &VecDeque<Waiting>, hour: Hour) -> Result<usize, usize> {
    // Readings come for the latest hour, and flights take the earliest one; a sensor that catches up may have hundreds.
    match (waiting.back(), waiting.front()) {
        (Some(last), _) if last.hour == hour => Ok(waiting.len() - 1),
        (_, Some(first)) if first.hour == hour => Ok(0),
        _ => waiting.binary_search_by_key(&hour, |waiting| waiting.hour),
    }
}

impl Waiting {
    pub(super) fn new(
        hour: Hour,
        known: &Arc<KnownSensor>,
        database: &Arc<Database>,
        first: Sequence,
        last_touch: Instant,
    ) -> Self {
        let (known, database) = (known.clone(), database.clone());
        let (rows, bytes, is_urgent, failures, not_before, in_flight) = (Packed::default(), 0, false, 0, None, None);
        Self { hour, known, database, rows, bytes, first, last_touch, is_urgent, failures, not_before, in_flight }
    }

    pub(super) fn is_held_back(&self, now: Instant) -> bool {
        self.in_flight.is_some() || self.not_before.is_some_and(|at| now < at)
    }

    /// What is acked, and neither deleted nor known to be stored.
    pub(super) fn unflushed(&self, names: &Arc<[Arc<str>]>, agreed: &Agreed) -> Option<UnflushedHour> {
        let mut packed: Vec<Arc<Packed>> =
            self.in_flight.iter().cloned().chain([Arc::new(self.rows.clone())]).collect();
        let first = packed.iter().find_map(|rows| rows.stamps().next()).unwrap_or_default();
        let judge = agreed.judge(&self.database.name, &self.known.sensor, self.hour, first);
        if !judge.takes_all() {
            for rows in &mut packed {
                Arc::make_mut(rows).take_out(|time, stamp| judge.fate(time, stamp) != Fate::Merged);
            }
        }
        UnflushedHour::new(self.hour, packed, names)
    }
}
