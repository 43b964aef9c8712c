//! A database that the store fails on is tried again alone, with a few buckets, and delays no other.

use std::sync::Arc;

use super::*;
use crate::access::Allowance;
use crate::bucket::Caps;
use crate::buffer::record::batch::{Batch, DispatchedBatch};
use crate::catalog::{Catalog, Database, LookupResult, WantedSensor};
use crate::members::positions::{LoggedRequest, WalPositions};
use crate::reading::{Family, Hour, Sensor, Value};

const FLIGHT: FlushBounds = FlushBounds { buckets: 1000, bytes: 1 << 20 };
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
        let (pending_ack, queued) = self.positions.read_back(logged, true);
        let dispatched = DispatchedBatch { database, batch, pending_ack, _queued: queued };
        let database = &dispatched.database;
        self.memtables.with(database, |unflushed| unflushed.add(&dispatched, self.start));
    }

    fn is_failing(&self, name: &str) -> bool {
        self.memtables.is_failing(&self.catalog.enlist_database(name))
    }

    fn at(&self, millis: u64) -> FlushMoment {
        FlushMoment { now: self.start + Duration::from_millis(millis), clock: 0, due: 0, pressed: true }
    }

    fn next(&mut self, millis: u64, room: FlushBounds) -> Vec<Vec<Load>> {
        let at = self.at(millis);
        self.memtables.next(at, room, |_| 0)
    }

    fn probes(&mut self, millis: u64) -> Vec<Vec<Load>> {
        let at = self.at(millis);
        self.memtables.next_probes(at, PROBE, 2)
    }

    /// None of these is stored, for a reason that is the database's own or the whole store's.
    fn fail(&mut self, loads: Vec<Load>, millis: u64, of_store: bool) {
        let database = loads[0].database.clone();
        let now = self.start + Duration::from_millis(millis);
        for load in loads {
            let key = (load.known.id, load.hour);
            self.memtables.with(&database, |unflushed| unflushed.returned(key, load, false, now));
        }
        self.memtables.completed(&database, Some(of_store), now);
    }

    fn store(&mut self, loads: Vec<Load>, millis: u64) {
        let database = loads[0].database.clone();
        for load in loads {
            let key = (load.known.id, load.hour);
            let completed =
                self.memtables.with(&database, |unflushed| unflushed.completed(key)).expect("it was in flight");
            drop(load);
            self.memtables.with(&database, |unflushed| unflushed.release(&completed));
        }
        self.memtables.completed(&database, None, self.start + Duration::from_millis(millis));
    }
}

fn names(batches: &[Vec<Load>]) -> Vec<(String, usize)> {
    batches.iter().map(|loads| (loads[0].database.name.to_string(), loads.len())).collect()
}

/// Regression: one database's collection had an index under another name, and all databases waited. The whole shard
/// backed off and tried again with the oldest readings, which were that database's.
#[test]
fn a_database_that_fails_is_tried_again_alone_and_holds_up_no_other() {
    let mut bench = Bench::new();
    bench.add("one", 3);
    bench.add("two", 2);
    let mut batches = bench.next(0, FLIGHT);
    assert_eq!(names(&batches), [("one".to_owned(), 3), ("two".to_owned(), 2)]);
    let (two, one) = (batches.pop().expect("two"), batches.pop().expect("one"));
    bench.fail(one, 0, false);
    bench.store(two, 0);
    assert!(bench.is_failing("one") && !bench.is_failing("two"));
    bench.add("two", 2);
    assert_eq!(names(&bench.next(1, FLIGHT)), [("two".to_owned(), 2)], "what is older and fails is passed over");
    assert!(bench.probes(99).is_empty());
    // Each failed try doubles the wait, up to two seconds.
    let mut millis = 100;
    for wait in [200, 400, 800, 1600, 2000, 2000] {
        let mut probes = bench.probes(millis);
        assert_eq!(names(&probes), [("one".to_owned(), 1)]);
        assert_eq!(bench.memtables.probes(), 1);
        assert!(bench.probes(millis + 5000).is_empty(), "one probe at a time");
        bench.fail(probes.remove(0), millis, false);
        assert!(bench.probes(millis + wait - 1).is_empty());
        millis += wait;
    }
    let mut probes = bench.probes(millis);
    bench.store(probes.remove(0), millis);
    assert!(!bench.is_failing("one"));
    assert_eq!(names(&bench.next(millis, FLIGHT)), [("one".to_owned(), 2)], "all the rest at once");
}

#[test]
fn databases_take_turns() {
    let mut bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.add(name, 4);
    }
    let room = FlushBounds { buckets: 3, bytes: 1 << 20 };
    let flushes: Vec<Vec<(String, usize)>> = (0..4).map(|_| names(&bench.next(0, room))).collect();
    let of = |name: &str, buckets| (name.to_owned(), buckets);
    assert_eq!(flushes[..3], [[of("one", 3)], [of("two", 3)], [of("three", 3)]], "none waits for another's backlog");
    assert_eq!(flushes[3], [of("one", 1), of("two", 1), of("three", 1)], "and the rest of several is flushed together");
}

#[test]
fn when_the_store_is_back_for_one_it_is_tried_at_once_for_all_who_waited_for_it() {
    let mut bench = Bench::new();
    for name in ["one", "two", "three"] {
        bench.add(name, 1);
    }
    // The last one has a failure of its own.
    for (loads, of_store) in bench.next(0, FLIGHT).into_iter().zip([true, true, false]) {
        bench.fail(loads, 0, of_store);
    }
    let mut probes = bench.probes(100);
    assert_eq!(probes.len(), 2, "no more probes at a time than that");
    let (other, first) = (probes.pop().expect("two of them"), probes.pop().expect("one of them"));
    bench.fail(other, 100, true);
    bench.store(first, 101);
    assert_eq!(names(&bench.probes(101)).len(), 2);
}

#[test]
fn at_the_end_each_is_tried_once() {
    let mut bench = Bench::new();
    bench.add("one", 1);
    let batches = bench.next(0, FLIGHT);
    batches.into_iter().for_each(|loads| bench.fail(loads, 0, false));
    bench.memtables.try_for_the_last_time();
    let batches = bench.next(1, FLIGHT);
    assert_eq!(names(&batches), [("one".to_owned(), 1)]);
    batches.into_iter().for_each(|loads| bench.fail(loads, 1, false));
    assert!(bench.next(10_000, FLIGHT).is_empty() && bench.probes(10_000).is_empty());
}

/// Regression: a deletion in one database stopped the flushes of all others until it was done.
#[test]
fn a_database_that_is_stopped_holds_up_no_other_and_goes_as_a_whole() {
    let mut bench = Bench::new();
    for name in ["one", "two"] {
        bench.add(name, 2);
    }
    bench.memtables.stop("one");
    let batches = bench.next(0, FLIGHT);
    assert_eq!(names(&batches), [("two".to_owned(), 2)]);
    batches.into_iter().for_each(|loads| bench.fail(loads, 0, false));
    bench.memtables.stop("two");
    assert!(bench.probes(100).is_empty(), "nothing of it is probed either");
    bench.memtables.resume("two");
    assert_eq!(names(&bench.probes(100)), [("two".to_owned(), 1)]);
    let one = bench.catalog.enlist_database("one");
    let (before, removed) = (bench.memtables.memory(), bench.memtables.remove(&one).expect("it is there"));
    assert_eq!((removed.unflushed.readings(), removed.is_reported), (2, false));
    assert!(bench.memtables.memory() < before && bench.memtables.get(&one).is_none());
    bench.memtables.resume("one");
    assert!(bench.next(100, FLIGHT).is_empty());
}
