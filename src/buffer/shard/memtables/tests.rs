//! Tests of probes, turns and backoffs: a failing database is probed alone, with a few buckets, and delays no other.

use std::sync::Arc;

use super::*;
use crate::access::Allowance;
use crate::bucket::Caps;
use crate::buffer::record::batch::{Batch, DispatchedBatch};
use crate::catalog::{Catalog, Database, LookupResult, WantedSensor};
use crate::members::positions::{LoggedRequest, WalPositions};
use crate::reading::{Family, Hour, Sensor, Value};

const FLUSH: FlushBounds = FlushBounds { buckets: 1000, bytes: 1 << 20 };
const PROBE: FlushBounds = FlushBounds { buckets: 1, bytes: 1 << 20 };

struct Bench {
    catalog: Catalog,
    positions: Arc<WalPositions>,
    memtables: Memtables,
    start: Instant,
    sequence: Sequence,
}

impl Bench {
    fn new() -> Self {
        let caps = Caps { max_readings: 1000, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
        let rules =
            DueRules { interval: Duration::from_secs(60), quiet: Duration::from_secs(5), caps, direct_after: None };
        Self {
            catalog: Catalog::new(&crate::config::one_shard()),
            positions: WalPositions::new(0, 0, usize::MAX),
            memtables: Memtables::new(rules),
            start: Instant::now() + Duration::from_secs(3600),
            sequence: 0,
        }
    }

    /// Adds a reading of each of this many sensors.
    fn add(&mut self, name: &str, sensors: usize) {
        let database: Arc<Database> = self.catalog.enlist_database(name);
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
        self.catalog.add_sensors(&database, (0..sensors).map(wanted).collect(), LookupResult::default(), usize::MAX);
        let mut batch = Batch::default();
        for number in 0..sensors {
            let known = self.catalog.sensor(&database, &format!("m,s={number}")).expect("known");
            known.add_field("v", Family::Number, 10);
            batch.push_cell(0, Value::Integer(1));
            batch.sensors.push(known);
            batch.push_row(u32::try_from(number).expect("few"), Hour(10).start_ns(), number);
        }
        self.sequence += 1;
        let logged = LoggedRequest { sequence: self.sequence, readings: sensors as u64, memory: 0, received: 0 };
        let guards = self.positions.read_back(logged, true);
        let dispatched = DispatchedBatch { database, batch, pending_ack: guards.pending_ack, _queued: guards.queued };
        let database = &dispatched.database;
        self.memtables.update_buckets(database, |unflushed| unflushed.add(&dispatched, self.start));
    }

    fn is_failing(&self, name: &str) -> bool {
        self.memtables.is_failing(&self.catalog.enlist_database(name))
    }

    fn moment(&self, millis: u64) -> FlushMoment {
        FlushMoment { now: self.start + Duration::from_millis(millis), clock: 0, due: 0, is_pressed: true }
    }

    fn next(&mut self, millis: u64, bounds: FlushBounds) -> Vec<Vec<Load>> {
        let moment = self.moment(millis);
        self.memtables.next(moment, bounds, |_| 0)
    }

    fn probes(&mut self, millis: u64) -> Vec<Vec<Load>> {
        let moment = self.moment(millis);
        self.memtables.next_probes(moment, PROBE, 2)
    }

    /// Ends a flush that stored nothing.
    fn fail(&mut self, loads: Vec<Load>, millis: u64, outcome: FlushOutcome) {
        let database = loads[0].database.clone();
        let now = self.start + Duration::from_millis(millis);
        for load in loads {
            let key = (load.known.id, load.hour);
            self.memtables.update_buckets(&database, |unflushed| unflushed.put_back(key, load, false, now));
        }
        self.memtables.note_outcome(&database, outcome, now);
    }

    /// Ends a flush that stored everything.
    fn store(&mut self, loads: Vec<Load>, millis: u64) {
        let database = loads[0].database.clone();
        for load in loads {
            let key = (load.known.id, load.hour);
            let completed =
                self.memtables.update_buckets(&database, |unflushed| unflushed.complete(key)).expect("it was in flush");
            drop(load);
            self.memtables.update_buckets(&database, |unflushed| unflushed.release(&completed));
        }
        self.memtables.note_outcome(&database, FlushOutcome::Stored, self.start + Duration::from_millis(millis));
    }
}

fn names(batches: &[Vec<Load>]) -> Vec<(String, usize)> {
    batches.iter().map(|loads| (loads[0].database.name.to_string(), loads.len())).collect()
}

/// Regression: a collection of one database had an index with an unexpected name, and all databases waited. The whole
/// shard backed off and tried again with the oldest readings, which were those of that database.
#[test]
fn a_failing_database_is_probed_and_delays_no_other() {
    let mut bench = Bench::new();
    bench.add("one", 3);
    bench.add("two", 2);
    let mut batches = bench.next(0, FLUSH);
    assert_eq!(names(&batches), [("one".to_owned(), 3), ("two".to_owned(), 2)]);
    let two = batches.pop().expect("two");
    let one = batches.pop().expect("one");
    bench.fail(one, 0, FlushOutcome::DatabaseFailed);
    bench.store(two, 0);
    assert!(bench.is_failing("one") && !bench.is_failing("two"));
    bench.add("two", 2);
    assert_eq!(names(&bench.next(1, FLUSH)), [("two".to_owned(), 2)], "older readings that fail are skipped");
    assert!(bench.probes(99).is_empty());
    // Each failed probe doubles the wait, up to two seconds.
    let mut millis = 100;
    for wait in [200, 400, 800, 1600, 2000, 2000] {
        let mut probes = bench.probes(millis);
        assert_eq!(names(&probes), [("one".to_owned(), 1)]);
        assert_eq!(bench.memtables.probes(), 1);
        assert!(bench.probes(millis + 5000).is_empty(), "one probe at a time");
        bench.fail(probes.remove(0), millis, FlushOutcome::DatabaseFailed);
        assert!(bench.probes(millis + wait - 1).is_empty());
        millis += wait;
    }
    let mut probes = bench.probes(millis);
    bench.store(probes.remove(0), millis);
    assert!(!bench.is_failing("one"));
    assert_eq!(names(&bench.next(millis, FLUSH)), [("one".to_owned(), 2)], "all the rest at once");
}

#[test]
fn databases_take_turns() {
    let mut bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.add(name, 4);
    }
    let room = FlushBounds { buckets: 3, bytes: 1 << 20 };
    let flushes: Vec<Vec<(String, usize)>> = (0..4).map(|_| names(&bench.next(0, room))).collect();
    let batch = |name: &str, buckets| (name.to_owned(), buckets);
    let first = [[batch("one", 3)], [batch("two", 3)], [batch("three", 3)]];
    assert_eq!(flushes[..3], first, "no database waits for the readings of another");
    let rest = [batch("one", 1), batch("two", 1), batch("three", 1)];
    assert_eq!(flushes[3], rest, "the rest of several databases is flushed together");
}

#[test]
fn when_the_store_is_back_all_waiting_databases_are_probed() {
    let mut bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.add(name, 1);
    }
    // The last failure is of the database only.
    let outcomes = [FlushOutcome::StoreFailed, FlushOutcome::StoreFailed, FlushOutcome::DatabaseFailed];
    for (loads, outcome) in bench.next(0, FLUSH).into_iter().zip(outcomes) {
        bench.fail(loads, 0, outcome);
    }
    let mut probes = bench.probes(100);
    assert_eq!(probes.len(), 2, "the maximum number of probes at a time");
    let other = probes.pop().expect("two of them");
    let first = probes.pop().expect("one of them");
    bench.fail(other, 100, FlushOutcome::StoreFailed);
    bench.store(first, 101);
    assert_eq!(names(&bench.probes(101)).len(), 2);
}

#[test]
fn at_shutdown_each_database_is_tried_once() {
    let mut bench = Bench::new();
    bench.add("one", 1);
    let batches = bench.next(0, FLUSH);
    batches.into_iter().for_each(|loads| bench.fail(loads, 0, FlushOutcome::DatabaseFailed));
    bench.memtables.begin_last_attempt();
    let batches = bench.next(1, FLUSH);
    assert_eq!(names(&batches), [("one".to_owned(), 1)]);
    batches.into_iter().for_each(|loads| bench.fail(loads, 1, FlushOutcome::DatabaseFailed));
    assert!(bench.next(10_000, FLUSH).is_empty() && bench.probes(10_000).is_empty());
}

/// Regression: a deletion in one database stopped the flushes of all others until it was done.
#[test]
fn a_stopped_database_delays_no_other_and_can_be_removed() {
    let mut bench = Bench::new();
    for name in ["one", "two"] {
        bench.add(name, 2);
    }
    bench.memtables.stop("one");
    let batches = bench.next(0, FLUSH);
    assert_eq!(names(&batches), [("two".to_owned(), 2)]);
    batches.into_iter().for_each(|loads| bench.fail(loads, 0, FlushOutcome::DatabaseFailed));
    bench.memtables.stop("two");
    assert!(bench.probes(100).is_empty(), "nothing of it is probed either");
    bench.memtables.resume("two");
    assert_eq!(names(&bench.probes(100)), [("two".to_owned(), 1)]);
    let one = bench.catalog.enlist_database("one");
    let before = bench.memtables.memory();
    let removed = bench.memtables.remove(&one).expect("it is there");
    assert_eq!((removed.unflushed.readings(), removed.is_reported), (2, false));
    assert!(bench.memtables.memory() < before && bench.memtables.get(&one).is_none());
    bench.memtables.resume("one");
    assert!(bench.next(100, FLUSH).is_empty());
}
