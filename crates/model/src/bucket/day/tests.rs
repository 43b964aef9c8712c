//! Tests sealing against a plain model: a map from time and field to the value with the greatest stamp.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::bucket::merge::{Bucket, Caps, MergeOptions, Row};
use crate::bucket::page::StoredPage;
use crate::reading::Value;

const NAMES: [&str; 3] = ["a", "b", "c"];
const MINUTE: i64 = 60_000_000_000;

/// A minute, a field and a value.
type Cell = (i64, u16, i64);

/// An operation on one sensor's day.
#[derive(Debug, Clone)]
enum Step {
    /// Log a record with these readings.
    Log(Vec<Cell>),
    /// Flush a record into its hour pages, chosen by its distance from the last unflushed one.
    Flush(usize),
    /// Raise the floor to below the oldest unflushed record.
    Raise,
    /// End the day: from now on pages do not settle, and the steps below are possible.
    Over,
    /// Flush a record as a chunk.
    Chunk(usize),
    /// Fold the pages and chunks into one part, or one per hour. The fields state if the part is written, and after how
    /// many sources the removal stops.
    Seal { hourly: bool, written: bool, removed: usize },
    /// Delete all current cells of these minutes.
    Delete(std::ops::Range<i64>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cell = (0..8_i64, 0..3_u16, 0..50_i64).prop_map(|(slot, field, value)| (slot * 17, field, value));
    let step = prop_oneof![
        4 => prop::collection::vec(cell, 1..4).prop_map(Step::Log),
        4 => (0..4_usize).prop_map(Step::Flush),
        2 => Just(Step::Raise),
        2 => Just(Step::Over),
        3 => (0..4_usize).prop_map(Step::Chunk),
        4 => (any::<bool>(), any::<bool>(), 0..8_usize)
            .prop_map(|(hourly, written, removed)| Step::Seal { hourly, written, removed }),
        1 => (0..100_i64, 1..60_i64).prop_map(|(from, length)| Step::Delete(from..from + length)),
    ];
    prop::collection::vec(step, 1..40)
}

/// The store and the plain model.
#[derive(Default)]
struct World {
    is_over: bool,
    parts: BTreeMap<DayPart, Readings>,
    pages: BTreeMap<i64, Bucket>,
    unflushed: Vec<(Stamp, Vec<Cell>)>,
    floor: Stamp,
    stamp: Stamp,
    model: BTreeMap<(i64, u16), (Stamp, i64)>,
}

fn caps() -> Caps {
    Caps { max_readings: 3, max_bytes: 1 << 20, hard_bytes: 4 << 20 }
}

fn stored(bucket: &Bucket) -> Vec<StoredPage> {
    let stored = |page: &crate::bucket::Page| StoredPage {
        number: page.number,
        rev: page.rev().max(1),
        closed: page.closed,
        has_overflow: page.has_overflow,
        readings: page.readings.clone(),
        cut: false,
        left_out: None,
    };
    bucket.pages().iter().map(stored).collect()
}

impl World {
    fn take(&mut self, step: Step) {
        self.stamp += 1;
        match step {
            Step::Log(cells) => self.unflushed.push((self.stamp, cells)),
            Step::Flush(back) => {
                if let Some((stamp, cells)) = self.next(back) {
                    self.flush(stamp, &cells);
                }
            }
            Step::Chunk(back) if self.is_over => {
                if let Some((stamp, cells)) = self.next(back) {
                    self.flush_chunk(stamp, &cells);
                }
            }
            Step::Seal { hourly, written, removed } if self.is_over => self.seal(hourly, written, removed),
            Step::Chunk(_) | Step::Seal { .. } => {}
            Step::Over => self.is_over = true,
            Step::Raise => self.floor = self.unflushed.iter().map(|(stamp, _)| stamp - 1).min().unwrap_or(self.stamp),
            Step::Delete(minutes) => {
                // A deletion is carried out in the store before the floor may pass it, and hides later flushes' older
                // cells.
                let range = minutes.start * MINUTE..minutes.end * MINUTE;
                let before = self.stamp;
                self.unflushed.iter_mut().for_each(|(_, cells)| cells.retain(|(minute, ..)| !minutes.contains(minute)));
                self.unflushed.retain(|(_, cells)| !cells.is_empty());
                for bucket in self.pages.values_mut() {
                    bucket.delete(&range, before);
                }
                self.pages.retain(|_, bucket| !bucket.pages().iter().all(|page| page.readings.is_empty()));
                for part in self.parts.values_mut() {
                    part.delete(&range, before);
                }
                self.parts.retain(|_, part| !part.is_empty());
                self.model.retain(|(minute, _), _| !minutes.contains(minute));
            }
        }
    }

    /// Takes an unflushed record, chosen by its distance from the last one.
    fn next(&mut self, back: usize) -> Option<(Stamp, Vec<Cell>)> {
        self.unflushed.len().checked_sub(back + 1).map(|place| self.unflushed.remove(place))
    }

    fn note(&mut self, stamp: Stamp, cells: &[Cell]) {
        for (minute, field, value) in cells {
            let held = self.model.entry((*minute, *field)).or_insert((stamp, *value));
            // The last value of a cell in a record wins.
            if held.0 <= stamp {
                *held = (stamp, *value);
            }
        }
    }

    fn flush_chunk(&mut self, stamp: Stamp, cells: &[Cell]) {
        self.note(stamp, cells);
        let last: BTreeMap<(i64, u16), i64> =
            cells.iter().map(|(minute, field, value)| ((*minute, *field), *value)).collect();
        let mut chunk = Readings::default();
        chunk.raise_floor(self.floor);
        let rows: Vec<((i64, u16), i64)> = last.into_iter().collect();
        for of_minute in rows.chunk_by(|a, b| a.0.0 == b.0.0) {
            let fields: Vec<(Arc<str>, Value)> = of_minute
                .iter()
                .map(|((_, field), value)| (NAMES[usize::from(*field)].into(), Value::Integer(*value)))
                .collect();
            chunk.push(of_minute[0].0.0 * MINUTE, stamp, fields.iter().map(|(name, value)| (name, value)));
        }
        chunk.settle(false);
        self.parts.insert(DayPart::Chunk { stamp, hour: 0 }, chunk);
    }

    fn flush(&mut self, stamp: Stamp, cells: &[Cell]) {
        self.note(stamp, cells);
        let names: Vec<Arc<str>> = NAMES.map(Arc::from).into();
        let row = |(minute, field, value): &Cell| (minute * MINUTE, vec![(*field, Value::Integer(*value))]);
        let mut rows: Vec<(i64, Vec<(u16, Value)>)> = cells.iter().map(row).collect();
        rows.sort_by_key(|(time, _)| *time);
        for of_hour in rows.chunk_by(|a, b| Hour::from_ns(a.0) == Hour::from_ns(b.0)) {
            let bucket = self.pages.entry(Hour::from_ns(of_hour[0].0).0).or_default();
            let caps = caps();
            let floor = if self.is_over { 0 } else { self.floor };
            let options = MergeOptions { caps: &caps, floor, restamps: true };
            let row = |(time, cells): &(i64, Vec<(u16, Value)>)| (*time, cells.clone());
            let of_hour: Vec<(i64, Vec<(u16, Value)>)> = of_hour.iter().map(row).collect();
            bucket
                .apply(of_hour.iter().map(|(time, cells)| Row { time: *time, stamp, names: &names, cells }), &options);
        }
    }

    fn seal(&mut self, hourly: bool, written: bool, removed: usize) {
        let mut hours: Vec<DayPart> = vec![DayPart::Whole];
        if hourly {
            hours = (0..24).map(DayPart::Hour).collect();
        }
        for part in hours {
            let span = part.hours(Day(0));
            let within = |readings: &Readings| {
                let parts = by_hour(readings.clone()).into_iter().filter(|(hour, _)| span.contains(hour));
                parts.map(|(_, readings)| readings).collect::<Vec<_>>()
            };
            let pages: Vec<Readings> = self
                .pages
                .iter()
                .filter(|(hour, _)| span.contains(&Hour(**hour)))
                .flat_map(|(_, bucket)| stored(bucket))
                .map(|page| page.readings)
                .collect();
            let sets: Vec<Readings> = pages.into_iter().chain(self.parts.values().flat_map(within)).collect();
            let Ok(folded) = fold(sets.iter(), self.floor, PartBounds::DAY) else { return };
            if folded.is_empty() {
                continue;
            }
            if !written {
                return;
            }
            self.parts.insert(part, folded);
        }
        // The folded sources can be removed in any order.
        let gone = |part: &DayPart| part.is_chunk() || hourly == (*part == DayPart::Whole);
        let parts: Vec<DayPart> = self.parts.keys().copied().filter(gone).take(removed).collect();
        parts.iter().for_each(|part| drop(self.parts.remove(part)));
        let hours: Vec<i64> = self.pages.keys().copied().take(removed / 2).collect();
        hours.iter().for_each(|hour| drop(self.pages.remove(hour)));
    }

    fn visible(&self) -> Readings {
        let scanned = |hour: Hour, number: u32, readings: Readings| ScannedPage {
            hour,
            number,
            summary: readings.owned_summaries().into(),
            oldest: readings.stamps().oldest(),
            readings: Some(readings),
            is_expired: false,
        };
        let pages = self.pages.iter().flat_map(|(hour, bucket)| {
            stored(bucket).into_iter().map(|page| scanned(Hour(*hour), page.number, page.readings)).collect::<Vec<_>>()
        });
        let parts = self.parts.values().flat_map(|part| by_hour(part.clone()));
        let mut parts: Vec<ScannedPage> = parts.map(|(hour, readings)| scanned(hour, 0, readings)).collect();
        parts.sort_by_key(|page| page.hour);
        let mut all = Readings::default();
        for page in unite(pages.collect(), parts) {
            let readings = page.readings.expect("with readings");
            let summaries: Vec<_> = readings.owned_summaries();
            if all.times().last().is_none_or(|last| Hour::from_ns(*last) != page.hour) {
                assert_eq!(page.summary.to_vec(), summaries, "a page's summary is that of its readings");
            }
            all.merge_set(&readings);
        }
        all
    }
}

/// Regression: a reading that was stored later hid the summaries of its hour.
#[test]
fn expired_hours_have_only_their_summaries() {
    let page = |hour: i64, is_expired: bool| ScannedPage {
        hour: Hour(hour),
        number: 0,
        summary: Default::default(),
        oldest: 1,
        readings: None,
        is_expired,
    };
    let mut pages = vec![page(0, false), page(1, false), page(2, false)];
    let mut sealed = vec![page(1, false), page(1, true), page(2, false), page(3, true)];
    keep_expired(&mut pages, &mut sealed);
    let hours = |pages: &[ScannedPage]| pages.iter().map(|page| (page.hour.0, page.is_expired)).collect::<Vec<_>>();
    assert_eq!(hours(&pages), [(0, false), (2, false)]);
    assert_eq!(hours(&sealed), [(1, true), (2, false), (3, true)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn sealing_loses_doubles_and_reverts_nothing(steps in steps()) {
        let mut world = World::default();
        for step in steps {
            world.take(step);
            let visible = world.visible();
            let mut shown: BTreeMap<(i64, u16), i64> = BTreeMap::new();
            for row in 0..visible.len() {
                for (name, value) in visible.fields(row) {
                    let field = NAMES.iter().position(|known| *known == &**name).expect("known");
                    let Value::Integer(value) = value else { panic!("an integer") };
                    shown.insert((visible.times()[row] / MINUTE, u16::try_from(field).expect("small")), *value);
                }
            }
            let expected: BTreeMap<(i64, u16), i64> = world.model.iter().map(|(at, (_, value))| (*at, *value)).collect();
            prop_assert_eq!(shown, expected);
        }
    }

    #[test]
    fn the_parts_of_a_day_have_all_its_readings(minutes in prop::collection::btree_map(0..1440_i64, (0..3_usize, 0..9_i64), 0..50)) {
        let mut day = Readings::default();
        for (minute, (field, value)) in &minutes {
            day.push(minute * MINUTE, 5, std::iter::once((&Arc::from(NAMES[*field]), &Value::Integer(*value))));
        }
        day.settle(false);
        day.raise_floor(7);
        let mut again = Readings::default();
        for (hour, part) in by_hour(day.clone()) {
            prop_assert!(part.times().iter().all(|time| Hour::from_ns(*time) == hour));
            prop_assert_eq!(part.stamps().floor(), 7);
            again.merge_set(&part);
        }
        prop_assert_eq!(again, day);
    }
}

/// Regression: sets of many fields, of which each reading has one, were united before anybody saw that the union has more
/// cells than memory.
#[test]
fn sets_of_different_fields_are_too_large_before_they_are_united() {
    let set = |first: i64, count: i64, fields: i64| {
        let times: Vec<i64> = (first..first + count).collect();
        let column = |field: i64| {
            let cell = |time: &i64| (time % fields == field).then_some(Value::Integer(*time));
            (Arc::<str>::from(format!("f{first}-{field}")), times.iter().map(cell).collect::<Vec<_>>())
        };
        Readings::from_columns(times.clone(), (0..fields).map(column).collect::<Vec<_>>()).expect("times in order")
    };
    let narrow = set(0, 50_000, 1);
    let wide = set(50_000, 500, 400);
    let bounds = PartBounds { bytes: BYTES_MAX, cells: 300_000 };
    assert!(narrow.cell_count() + wide.cell_count() < bounds.cells);
    assert_eq!(fold([&narrow, &wide].into_iter(), 9, bounds), Err(Unsealable::Large));
    let again = fold([&narrow, &narrow].into_iter(), 9, bounds).expect("the same fields");
    assert_eq!(again.cell_count(), 50_000);
}

/// Regression: the tolerance for different clocks was subtracted instead of added, so for an hour after midnight
/// queries did not find a day that had just been sealed on request.
#[test]
fn parts_are_read_before_any_clock_can_have_sealed_a_day() {
    let midnight = Day(20_468).hours().end;
    let last = Hour(midnight.0 - 1);
    for (minutes, expected) in [(-30, false), (-9, true), (0, true), (30, true), (90, true)] {
        assert_eq!(
            may_be_sealed(last, midnight.start_ns() + minutes * MINUTE),
            expected,
            "{minutes} min after midnight"
        );
        assert!(!may_be_sealed(midnight, midnight.start_ns() + minutes * MINUTE), "today");
    }
}
