//! Random steps, and the final state that they must lead to.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::instance::HORIZON_MS;
use super::oracle::{DeletedRange, SentReading};
use super::world::{KEYS, Network, World};
use super::{names, runner};
use crate::bucket::Caps;
use crate::reading::time::MILLI_NS;
use crate::reading::{Hour, Value};

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<SentReading>),
    StartFlush(usize, usize, u8),
    FlushBucket(usize, usize, Network),
    /// A whole flush of a bucket, without failures.
    Flush(usize, usize),
    Beat(usize),
    Tick(u64),
    Kill(usize),
    Leave(usize),
    Start(usize, usize, u8, i64),
    Copy(usize),
    Release(usize, bool),
    Delete(usize, DeletedRange),
    CarryOn(usize, Network),
    Sweep(usize),
    Forget(usize, usize),
    CompleteLate(usize),
    Look(usize),
    ClockJump(usize, i64),
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (0..3_i64).prop_map(Value::Integer),
        2 => prop::sample::select(vec![0.0, -0.0, 1.0]).prop_map(Value::Float),
        1 => Just(Value::Unsigned(u64::MAX)),
        1 => any::<bool>().prop_map(Value::Boolean),
        2 => prop::sample::select(vec![0, 1, 90]).prop_map(|len| Value::String("x".repeat(len).into())),
    ]
}

fn times() -> impl Strategy<Value = i64> {
    (0..2_i64, 0..4_i64, prop::sample::select(vec![0, 0, 0, 7]))
        .prop_map(|(hour, ms, rest)| Hour(hour).start_ns() + ms * MILLI_NS + rest)
}

fn sent_reading() -> impl Strategy<Value = SentReading> {
    let fields = prop_oneof![3 => Just(vec![0_u16]), 1 => prop::sample::subsequence(vec![0, 1, 2], 1..=3)];
    let sensor = prop_oneof![3 => Just(0_usize), 1 => Just(1)];
    (sensor, times(), fields, prop::collection::vec(values(), 3)).prop_map(|(sensor, time, fields, values)| {
        SentReading { sensor, time, cells: fields.into_iter().zip(values).collect() }
    })
}

fn deleted_range() -> impl Strategy<Value = DeletedRange> {
    let sensors = prop::sample::select(vec![vec![0], vec![0], vec![1], vec![0, 1]]);
    let part = (times(), times()).prop_map(|(one, other)| one.min(other)..one.max(other) + 1);
    let range = prop_oneof![1 => Just(Hour(-1).start_ns()..Hour(3).start_ns()), 2 => part];
    (sensors, range).prop_map(|(sensors, range)| DeletedRange { sensors, range })
}

fn fates() -> impl Strategy<Value = Network> {
    prop_oneof![
        9 => Just(Network::Answered),
        1 => Just(Network::Unavailable),
        1 => Just(Network::LostUnknown),
        2 => Just(Network::LandedUnknown),
        1 => Just(Network::Delayed),
    ]
}

/// Random steps. A write may have the same sensor and time more than once, as admission lets them through.
fn steps(with_horizon: bool) -> impl Strategy<Value = Vec<Step>> {
    let slot = || prop_oneof![3 => Just(0_usize), 3 => Just(1), 1 => Just(2)];
    let key = || prop_oneof![4 => Just(0_usize), 1 => 1..KEYS.len()];
    let offsets = || prop::sample::select(vec![0, 0, 1, -200, 200]);
    let tick = if with_horizon { vec![1, 300, 16_000, HORIZON_MS + 1] } else { vec![1, 1, 300, 16_000] };
    let jump =
        if with_horizon { vec![0, -200, 70_000, -70_000, 700_000, 2_000_000] } else { vec![0, -200, 200, 61_000] };
    let step = prop_oneof![
        10 => (slot(), prop::collection::vec(sent_reading(), 1..3)).prop_map(|(slot, rows)| Step::Write(slot, rows)),
        5 => (slot(), key(), 0..3_u8).prop_map(|(slot, key, how)| Step::StartFlush(slot, key, how)),
        8 => (slot(), key(), fates()).prop_map(|(slot, key, fate)| Step::FlushBucket(slot, key, fate)),
        5 => (slot(), key()).prop_map(|(slot, key)| Step::Flush(slot, key)),
        8 => slot().prop_map(Step::Beat),
        3 => prop::sample::select(tick).prop_map(Step::Tick),
        2 => slot().prop_map(Step::Kill),
        1 => slot().prop_map(Step::Leave),
        5 => (slot(), 0..4_usize, 0..2_u8, offsets()).prop_map(|(slot, f, bits, by)| Step::Start(slot, f, bits, by)),
        2 => (0..4_usize).prop_map(Step::Copy),
        2 => (slot(), any::<bool>()).prop_map(|(slot, all)| Step::Release(slot, all)),
        2 => (slot(), deleted_range()).prop_map(|(slot, deleted)| Step::Delete(slot, deleted)),
        6 => (slot(), fates()).prop_map(|(slot, fate)| Step::CarryOn(slot, fate)),
        2 => slot().prop_map(Step::Sweep),
        2 => (slot(), key()).prop_map(|(slot, key)| Step::Forget(slot, key)),
        1 => any::<usize>().prop_map(Step::CompleteLate),
        3 => slot().prop_map(Step::Look),
        1 => (slot(), prop::sample::select(jump)).prop_map(|(slot, by)| Step::ClockJump(slot, by)),
    ];
    prop::collection::vec(step, 0..70)
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Write(slot, rows) => self.write(slot, rows),
            Step::StartFlush(slot, key, how) => self.start_flush(slot, KEYS[key], how),
            Step::FlushBucket(slot, key, fate) => self.flush_bucket(slot, KEYS[key], fate),
            Step::Flush(slot, key) => self.flush(slot, key),
            Step::Beat(slot) => self.beat(slot),
            Step::Tick(ms) => self.now += ms,
            Step::Kill(slot) => self.kill(slot),
            Step::Leave(slot) => self.leave(slot),
            Step::Start(slot, folder, bits, offset) => self.start(slot, folder, bits, offset),
            Step::Copy(folder) => self.copy(folder),
            Step::Release(slot, with_segments) => self.truncate(slot, with_segments),
            Step::Delete(slot, deleted) => self.delete(slot, deleted),
            Step::CarryOn(slot, fate) => self.carry_on(slot, fate),
            Step::Sweep(slot) => self.sweep(slot),
            Step::Forget(slot, key) => drop(self.running[slot].as_mut().map(|i| i.cache.remove(&KEYS[key]))),
            Step::CompleteLate(at) => self.complete_late(at),
            Step::Look(slot) => self.look(slot),
            Step::ClockJump(slot, by) => self.running[slot].iter_mut().for_each(|instance| instance.offset += by),
        }
    }

    fn flush(&mut self, slot: usize, key: usize) {
        self.start_flush(slot, KEYS[key], 0);
        let is_under_way =
            |world: &Self| world.running[slot].as_ref().is_some_and(|i| i.flushes.contains_key(&KEYS[key]));
        for _ in 0..100 {
            if !is_under_way(self) {
                return;
            }
            self.flush_bucket(slot, KEYS[key], Network::Answered);
        }
        assert!(!is_under_way(self), "a flush never ends");
    }

    /// Stores everything that an instance has, deletions included.
    fn drain(&mut self, slot: usize) {
        for _ in 0..1000 {
            let Some(instance) = &self.running[slot] else { return };
            if instance.is_empty() {
                return;
            }
            (0..KEYS.len()).for_each(|key| self.flush(slot, key));
            self.carry_on(slot, Network::Answered);
        }
        panic!("an instance never drains");
    }

    /// Starts all folders; replays, stores, deletes, sweeps and forgets everything; then checks the store.
    fn rest(&mut self) {
        self.lose_delayed();
        let idle = |world: &Self, at: usize| !world.running.iter().flatten().any(|i| i.folder == at);
        for folder in 0..self.folders.len() {
            if idle(self, folder) {
                self.running.push(None);
                let before: usize = (0..folder).filter(|at| idle(self, *at)).count();
                self.start(self.running.len() - 1, before, 2, 0);
            }
        }
        for round in 0..6 {
            for slot in 0..self.running.len() {
                self.running[slot].iter_mut().for_each(|instance| instance.offset = 0);
                self.beat(slot);
                self.look(slot);
                self.drain(slot);
                self.truncate(slot, false);
                self.beat(slot);
                self.sweep(slot);
                self.beat(slot);
                self.look(slot);
            }
            self.now += if round == 0 { 20 } else { 16_000 };
        }
        for key in KEYS {
            self.oracle.check_final(key, &names().names(), self.store.cells(key));
        }
        self.check_floor();
    }
}

impl World {
    /// With all folders running, the floor has passed every deletion.
    fn check_floor(&self) {
        let registry = &self.store.registry;
        if self.running.iter().flatten().next().is_some() {
            assert!(registry.deletions.is_empty(), "never forgotten: {registry:?}");
        }
    }
}

fn caps() -> impl Strategy<Value = Caps> {
    let small = (1..4_usize, 60..200_usize, 0..100_usize).prop_map(|(max_readings, max_bytes, more)| Caps {
        max_readings,
        max_bytes,
        hard_bytes: max_bytes + more,
    });
    prop_oneof![Just(Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 }), small]
}

static STEPS: AtomicU64 = AtomicU64::new(0);
static MERGES: AtomicU64 = AtomicU64::new(0);

fn run(caps: Caps, is_alone: bool, steps: Vec<Step>) {
    STEPS.fetch_add(steps.len() as u64, Ordering::Relaxed);
    let mut world = World::new(caps);
    world.start(0, 0, 0, 0);
    if !is_alone {
        world.start(1, 0, 1, 0);
    }
    steps.into_iter().for_each(|step| world.take(step));
    world.rest();
    MERGES.fetch_add(world.merges, Ordering::Relaxed);
}

fn run_all(with_horizon: bool, by_default: u32) {
    let mut runner = runner(by_default);
    let result = runner.run(&(caps(), any::<bool>(), steps(with_horizon)), |(caps, is_alone, steps)| {
        run(caps, is_alone, steps);
        Ok(())
    });
    let steps = STEPS.load(Ordering::Relaxed);
    let merges = MERGES.load(Ordering::Relaxed);
    println!("{steps} steps and {merges} merges of buckets");
    if let Err(failed) = result {
        panic!("{failed}");
    }
}

/// No acked reading is lost, revived or set aside.
#[test]
fn the_greatest_stamp_of_every_cell_stands() {
    run_all(false, 9_000);
}

/// Readings of WALs that were silent for longer than the horizon may be set aside and reported, and no others.
#[test]
fn only_what_was_silent_beyond_the_horizon_is_set_aside() {
    run_all(true, 4_500);
}
