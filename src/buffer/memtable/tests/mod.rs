//! Tests of the order of due buckets, of flushes that exclude each other, and of the visibility and order of unflushed
//! readings.

mod visible;

use super::*;
use crate::access::Allowance;
use crate::bucket::packed::UnpackedRows;
use crate::catalog::{Catalog, LookupResult, WantedSensor};
use crate::members::positions::{LoggedRequest, WalPositions};
use crate::reading::{Family, Sensor, Value};

use crate::buffer::record::batch::Batch;

const INTERVAL: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(5);
const HOUR: Hour = Hour(10);
/// A clock in the middle of the hour.
const OPEN: i64 = 10 * 3_600_000_000_000 + 1_800_000_000_000;
/// A clock at the end of the hour.
const OVER: i64 = 11 * 3_600_000_000_000;
/// Estimated bytes of a reading with one number.
const READING_BYTES: usize = 40;
/// Caps that no test reaches.
const ROOMY: Caps = Caps { max_readings: 1000, max_bytes: 1 << 20, hard_bytes: 4 << 20 };

/// A reading: sensor number, nanosecond of the hour, and cells by field number.
type GivenRow<'a> = (usize, i64, &'a [(u16, Value)]);

/// A memtable with its environment.
struct Bench {
    catalog: Catalog,
    database: Arc<Database>,
    positions: Arc<WalPositions>,
    unflushed: MemtableBuckets,
    start: Instant,
    sequence: Sequence,
}

impl Bench {
    fn new(caps: Caps) -> Self {
        let catalog = Catalog::new(&crate::config::one_shard());
        let database = catalog.enlist_database("d");
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
        catalog.add_sensors(&database, (0..5).map(wanted).collect(), LookupResult::default(), usize::MAX);
        let rules = DueRules { interval: INTERVAL, quiet: QUIET, caps, direct_after: None };
        // Start later, because the code subtracts from the time, and `Instant` is near zero after a boot.
        let start = Instant::now() + Duration::from_secs(3600);
        let positions = WalPositions::new(0, 0, usize::MAX);
        let unflushed = MemtableBuckets::new(rules);
        Self { catalog, database, positions, unflushed, start, sequence: 0 }
    }

    fn known(&self, number: usize) -> Arc<KnownSensor> {
        self.catalog.sensor(&self.database, &format!("m,s={number}")).expect("known")
    }

    fn key(&self, number: usize) -> CacheKey {
        (self.known(number).id, HOUR)
    }

    /// Dispatches a request with these readings at a time after the start. Returns its WAL record.
    fn dispatch(&mut self, elapsed: Duration, rows: &[GivenRow<'_>]) -> Sequence {
        self.sequence += 1;
        let sequence = self.sequence;
        let logged = LoggedRequest { sequence, readings: rows.len() as u64, memory: 1, received: 0 };
        let guards = self.positions.read_back(logged, true);
        let mut batch = Batch::default();
        for (number, time, cells) in rows {
            let known = self.known(*number);
            for field in 0..4 {
                known.add_field(&format!("f{field}"), Family::Number, 4).expect("room");
            }
            let start = batch.cells();
            cells.iter().for_each(|(field, value)| batch.push_cell(*field, value.clone()));
            batch.sensors.push(known);
            let place = u32::try_from(batch.sensors.len() - 1).expect("few");
            batch.push_row(place, HOUR.start_ns() + time, start);
        }
        let dispatched = DispatchedBatch {
            database: self.database.clone(),
            batch,
            pending_ack: guards.pending_ack,
            _queued: guards.queued,
        };
        self.unflushed.add(&dispatched, self.start + elapsed);
        sequence
    }

    /// Dispatches a reading of one number.
    fn dispatch_one(&mut self, elapsed: Duration, sensor: usize, time: i64) -> Sequence {
        self.dispatch(elapsed, &[(sensor, time, &[(0, Value::Integer(time))])])
    }

    /// Dispatches a reading whose flush a write waits for.
    fn dispatch_urgent(&mut self, elapsed: Duration, sensor: usize, time: i64) -> Sequence {
        let (waiter, _) = tokio::sync::oneshot::channel();
        self.positions.wait_for(self.sequence + 1, waiter);
        self.dispatch_one(elapsed, sensor, time)
    }

    /// Takes all due buckets, without pressure and without a due record.
    fn due(&mut self, elapsed: Duration, clock: i64) -> Vec<(CacheKey, Load)> {
        self.due_up_to(elapsed, clock, 0, false)
    }

    fn due_up_to(&mut self, elapsed: Duration, clock: i64, due: Sequence, is_pressed: bool) -> Vec<(CacheKey, Load)> {
        let now = self.start + elapsed;
        let next = || {
            let key = self.unflushed.next_due(now, clock, due, is_pressed)?;
            Some((key, self.unflushed.take(key).expect("what is due can be taken")))
        };
        std::iter::from_fn(next).collect()
    }

    /// A flush failed.
    fn return_flush(&mut self, elapsed: Duration, flush: (CacheKey, Load), own_failure: bool) {
        self.unflushed.put_back(flush.0, flush.1, own_failure, self.start + elapsed);
    }

    /// A flush completed.
    fn complete(&mut self, key: CacheKey) {
        let completed = self.unflushed.complete(key).expect("in flush");
        self.unflushed.release(&completed);
    }
}

/// Returns the sensors of taken buckets, in order.
fn sensors(taken: &[(CacheKey, Load)]) -> Vec<String> {
    taken.iter().map(|(_, load)| load.known.sensor.key.to_string()).collect()
}

/// Returns the readings of a flush: nanosecond of the hour and WAL record.
fn rows(load: &Load) -> Vec<(i64, Sequence)> {
    let mut rows = UnpackedRows::default();
    rows.unpack_in_time_order([&*load.rows]);
    rows.rows(&[]).map(|row| (row.time - HOUR.start_ns(), row.stamp)).collect()
}

fn only(mut taken: Vec<(CacheKey, Load)>) -> (CacheKey, Load) {
    assert_eq!(taken.len(), 1, "{:?}", sensors(&taken));
    taken.remove(0)
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const JUST: Duration = Duration::from_nanos(1);

#[test]
fn a_page_full_of_readings_is_due_at_once() {
    let mut bench = Bench::new(Caps { max_readings: 3, ..ROOMY });
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 0, 2);
    bench.dispatch_one(seconds(0), 1, 1);
    assert_eq!(sensors(&bench.due(seconds(0), OPEN)), [""; 0]);
    bench.dispatch_one(seconds(0), 0, 3);
    let (_, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!((&*load.known.sensor.key, rows(&load).len()), ("m,s=0", 3));
}

#[test]
fn a_page_full_of_bytes_is_due_at_once() {
    let mut bench = Bench::new(Caps { max_bytes: 3 * READING_BYTES, ..ROOMY });
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 0, 2);
    assert_eq!(sensors(&bench.due(seconds(0), OPEN)), [""; 0]);
    bench.dispatch_one(seconds(0), 0, 3);
    assert_eq!(sensors(&bench.due(seconds(0), OPEN)), ["m,s=0"]);
    let text = Value::String("x".repeat(3 * READING_BYTES).into());
    bench.dispatch(seconds(0), &[(1, 1, &[(0, text)])]);
    assert_eq!(sensors(&bench.due(seconds(0), OPEN)), ["m,s=1"]);
}

#[test]
fn only_a_bucket_that_a_write_waits_for_is_due_at_once() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 1, 1);
    bench.dispatch_urgent(seconds(0), 1, 2);
    let (_, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!(rows(&load), [(1, 2), (2, 3)], "what came before goes with it");
    assert_eq!(&*load.known.sensor.key, "m,s=1");
}

#[test]
fn a_reading_waits_for_the_interval_and_no_longer() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(1), 1, 1);
    // Later readings do not postpone it.
    bench.dispatch_one(INTERVAL - JUST, 0, 2);
    assert_eq!(sensors(&bench.due(INTERVAL - JUST, OPEN)), [""; 0]);
    let (_, load) = only(bench.due(INTERVAL, OPEN));
    assert_eq!((&*load.known.sensor.key, rows(&load).len()), ("m,s=0", 2));
    assert_eq!(sensors(&bench.due(INTERVAL + seconds(1), OPEN)), ["m,s=1"]);
}

#[test]
fn buckets_up_to_a_record_are_due_oldest_first() {
    let mut bench = Bench::new(ROOMY);
    for sensor in [3, 1, 2, 0] {
        bench.dispatch_one(seconds(0), sensor, 1);
    }
    // Its first reading decides, not later ones.
    bench.dispatch_one(seconds(0), 1, 2);
    assert_eq!(sensors(&bench.due_up_to(seconds(0), OPEN, 3, false)), ["m,s=3", "m,s=1", "m,s=2"]);
    assert_eq!(sensors(&bench.due_up_to(seconds(0), OPEN, 3, false)), [""; 0]);
    assert_eq!(sensors(&bench.due_up_to(seconds(0), OPEN, 4, false)), ["m,s=0"]);
}

#[test]
fn under_pressure_everything_is_due_oldest_first() {
    let mut bench = Bench::new(ROOMY);
    for sensor in [2, 0, 1] {
        bench.dispatch_one(seconds(0), sensor, 1);
    }
    assert_eq!(sensors(&bench.due_up_to(seconds(0), OPEN, 0, true)), ["m,s=2", "m,s=0", "m,s=1"]);
}

#[test]
fn a_past_hour_is_due_when_it_is_quiet() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 1, 1);
    bench.dispatch_one(seconds(3), 1, 2);
    assert_eq!(sensors(&bench.due(QUIET - JUST, OVER)), [""; 0]);
    assert_eq!(sensors(&bench.due(QUIET, OVER)), ["m,s=0"], "something came for the other");
    assert_eq!(sensors(&bench.due(seconds(3) + QUIET - JUST, OVER)), [""; 0]);
    assert_eq!(sensors(&bench.due(seconds(3) + 2 * QUIET, OVER)), ["m,s=1"]);
}

/// Regression: with a backfill of 100,000 sensors hour by hour, faster than the store, an entry of 32 bytes per sensor
/// and hour stayed until the backfill ended.
#[test]
fn under_pressure_taken_buckets_leave_no_entries() {
    let mut bench = Bench::new(ROOMY);
    for round in 0..1000 {
        bench.dispatch_one(seconds(0), round % 5, i64::try_from(round).expect("few"));
        for (key, _) in bench.due_up_to(seconds(0), OVER, 0, true) {
            bench.complete(key);
        }
    }
    assert!(bench.unflushed.quiet.len() <= 2, "{}", bench.unflushed.quiet.len());
}

#[test]
fn the_open_hour_is_left_to_the_interval() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_one(seconds(0), 0, 1);
    assert_eq!(sensors(&bench.due(2 * QUIET, OPEN)), [""; 0]);
    assert_eq!(sensors(&bench.due(2 * QUIET, OVER - 1)), [""; 0], "its last nanosecond is not over");
    assert_eq!(sensors(&bench.due(INTERVAL, OPEN)), ["m,s=0"]);
}

#[test]
fn a_bucket_in_flush_is_not_taken_again() {
    let mut bench = Bench::new(Caps { max_readings: 2, ..ROOMY });
    bench.dispatch_urgent(seconds(0), 0, 1);
    let (key, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!((key, rows(&load)), (bench.key(0), vec![(1, 1)]));
    // The bucket is due for every reason: full, urgent, up to a record, pressed, past the interval, quiet.
    bench.dispatch_urgent(seconds(0), 0, 2);
    bench.dispatch_one(seconds(0), 0, 3);
    bench.dispatch_one(seconds(0), 1, 1);
    let others = bench.due_up_to(2 * INTERVAL, OVER, Sequence::MAX, true);
    assert_eq!(sensors(&others), ["m,s=1"], "it does not hold up those behind it");
    assert!(bench.unflushed.take(key).is_none());
    drop(load);
    bench.complete(key);
    let (_, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!(rows(&load), [(2, 2), (3, 3)]);
}

#[test]
fn new_readings_of_a_bucket_in_flush_wait_for_the_interval() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_urgent(seconds(0), 0, 1);
    let (key, load) = only(bench.due(seconds(0), OPEN));
    bench.dispatch_one(seconds(10), 0, 2);
    drop(load);
    bench.complete(key);
    assert_eq!(bench.unflushed.len(), 1, "the later reading is there");
    assert_eq!(sensors(&bench.due(INTERVAL, OPEN)), [""; 0]);
    let (_, load) = only(bench.due(seconds(10) + INTERVAL, OPEN));
    assert_eq!(rows(&load), [(2, 2)]);
    drop(load);
    bench.complete(key);
    assert_eq!(bench.unflushed.len(), 0);
    assert_eq!(sensors(&bench.due_up_to(2 * INTERVAL, OVER, Sequence::MAX, true)), [""; 0]);
}

#[test]
fn readings_of_a_failed_flush_are_due_first() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_one(seconds(0), 0, 1);
    bench.dispatch_one(seconds(0), 1, 1);
    let flush = bench.due_up_to(seconds(1), OPEN, 1, false);
    assert_eq!(sensors(&flush), ["m,s=0"]);
    bench.return_flush(seconds(1), only(flush), false);
    let (key, load) = only(bench.due(seconds(1), OPEN));
    assert_eq!((key, load.failures), (bench.key(0), 0));
    bench.return_flush(seconds(1), (key, load), false);
    assert_eq!(sensors(&bench.due_up_to(seconds(1), OPEN, Sequence::MAX, false)), ["m,s=0", "m,s=1"]);
}

#[test]
fn a_failing_bucket_is_delayed_and_delays_no_other() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_urgent(seconds(0), 0, 1);
    let mut flush = only(bench.due(seconds(0), OPEN));
    let mut elapsed = seconds(0);
    let delays = (0..20).map(|failures| Duration::from_millis(100 << failures).min(seconds(30)));
    for (failures, delay) in (1..).zip(delays) {
        bench.return_flush(elapsed, flush, true);
        bench.dispatch_one(elapsed, 1, failures);
        // Neither pressure nor a flush request shortens the delay.
        let others = bench.due_up_to(elapsed + delay - JUST, OPEN, Sequence::MAX, true);
        assert_eq!(sensors(&others), ["m,s=1"], "{failures} failures");
        bench.complete(only(others).0);
        elapsed += delay;
        flush = only(bench.due(elapsed, OPEN));
        assert_eq!((flush.0, i64::from(flush.1.failures)), (bench.key(0), failures));
    }
    // One success resets the failures.
    bench.complete(flush.0);
    bench.dispatch_urgent(elapsed, 0, 2);
    flush = only(bench.due(elapsed, OPEN));
    assert_eq!(flush.1.failures, 0);
    bench.return_flush(elapsed, flush, true);
    assert_eq!(sensors(&bench.due(elapsed + DELAY.start, OPEN)), ["m,s=0"]);
}

/// Regression: with a full page, every further reading of a device caused another try of its failing bucket.
#[test]
fn new_readings_do_not_shorten_the_delay() {
    let mut bench = Bench::new(Caps { max_readings: 2, ..ROOMY });
    bench.dispatch(seconds(0), &[(0, 1, &[(0, Value::Integer(1))]), (0, 2, &[(0, Value::Integer(1))])]);
    let flush = only(bench.due(seconds(0), OPEN));
    bench.return_flush(seconds(0), flush, true);
    let early = DELAY.start - JUST;
    bench.dispatch_one(seconds(0), 0, 3);
    assert_eq!(sensors(&bench.due(early, OPEN)), [""; 0]);
    let (_, load) = only(bench.due(DELAY.start, OPEN));
    assert_eq!(rows(&load), [(1, 1), (2, 1), (3, 2)], "it goes with the next try");
}

#[test]
fn age_pressure_and_quiet_do_not_shorten_the_delay() {
    let mut bench = Bench::new(ROOMY);
    // The bucket in front of it stays first in the order.
    bench.dispatch_one(QUIET, 1, 1);
    bench.dispatch_urgent(seconds(0), 0, 1);
    let flush = only(bench.due(seconds(0), OVER));
    bench.return_flush(QUIET, flush, true);
    let early = QUIET + DELAY.start - JUST;
    assert_eq!(sensors(&bench.due(early, OVER)), [""; 0]);
    assert_eq!(sensors(&bench.due_up_to(early, OVER, Sequence::MAX, true)), ["m,s=1"]);
    assert_eq!(sensors(&bench.due(QUIET + DELAY.start, OVER)), ["m,s=0"]);
}

#[test]
fn a_waiting_write_ends_the_delay() {
    let mut bench = Bench::new(ROOMY);
    bench.dispatch_urgent(seconds(0), 0, 1);
    let flush = only(bench.due(seconds(0), OPEN));
    bench.return_flush(seconds(0), flush, true);
    bench.dispatch_urgent(seconds(0), 0, 2);
    let (_, load) = only(bench.due(seconds(0), OPEN));
    assert_eq!((rows(&load), load.failures), (vec![(1, 1), (2, 2)], 1));
}
