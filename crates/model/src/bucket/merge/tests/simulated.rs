//! A simulated store in a map, and writers that race on it step by step. After every write the store checks all
//! invariants of a bucket, independently of how readings are merged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::*;
use crate::bucket::page::{LeftOut, Overflow, WriteKind};
use crate::bucket::summary::{Fold, Summary};

pub(super) type Fields = BTreeMap<String, Value>;
/// The reference model of a bucket: fields by time.
pub(super) type Model = BTreeMap<i64, Fields>;
/// A row that owns its values: time and fields.
pub(super) type TestRow = (i64, Vec<(&'static str, Value)>);

/// Choices made by the test case. Once they run out, the choice is 0, the harmless one, so that cases shrink.
pub(super) struct Choices {
    given: std::vec::IntoIter<u8>,
}

impl Choices {
    pub(super) fn new(given: Vec<u8>) -> Self {
        Self { given: given.into_iter() }
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        usize::from(self.given.next().unwrap_or(0)) % count
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, i - self.below(i + 1));
        }
    }
}

/// The stamp of the rows, and whether other writers exist.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) stamp: Stamp,
    pub(super) shared: bool,
}

/// Merges rows after sorting them by time, as [`Bucket::apply`] requires; the sort is stable, so their order is kept.
pub(super) fn apply(bucket: &mut Bucket, rows: &[TestRow], caps: &Caps, origin: Origin) -> MergeCounts {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|(time, _)| *time);
    let mut names: Vec<Arc<str>> = Vec::new();
    let mut cells: Vec<Vec<(u16, Value)>> = Vec::new();
    for (_, fields) in &rows {
        let cell = |(name, value): &(&str, Value)| {
            let at = names.iter().position(|n| **n == **name).unwrap_or_else(|| {
                names.push((*name).into());
                names.len() - 1
            });
            (u16::try_from(at).expect("few names"), value.clone())
        };
        cells.push(fields.iter().map(cell).collect());
    }
    let rows = rows.iter().zip(&cells).map(|((time, _), cells)| Row {
        time: *time,
        stamp: origin.stamp,
        names: &names,
        cells,
    });
    // Pack and unpack, as the bucket cache does between two flush tasks.
    *bucket = std::mem::take(bucket).pack().unpack();
    bucket.apply(rows, &MergeOptions { caps, floor: 0, restamps: origin.shared })
}

pub(super) fn merge_into_model(model: &mut Model, rows: &[TestRow]) {
    for (time, fields) in rows {
        let held = model.entry(*time).or_default();
        held.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
}

pub(super) fn reading_fields(readings: &Readings, index: usize) -> Fields {
    readings.fields(index).map(|(name, value)| (name.to_string(), value.clone())).collect()
}

/// The union over a bucket's pages; panics if a timestamp is on two of them.
pub(super) fn union(bucket: &Bucket) -> Model {
    let mut union = Model::new();
    for page in bucket.pages() {
        for (i, time) in page.readings.times().iter().enumerate() {
            let before = union.insert(*time, reading_fields(&page.readings, i));
            assert!(before.is_none(), "{time} is on two pages");
        }
    }
    union
}

/// A summary as bits, so that `0.0` and `-0.0` differ.
pub(super) fn bits(summary: &Summary) -> (u64, String, [u128; 4]) {
    fn all<T: Copy, S>(f: &Fold<T, S>, bits: impl Fn(T) -> u128) -> [u128; 4] {
        [f.min, f.max, f.first, f.last].map(bits)
    }
    match summary {
        Summary::Integers(f) => (f.count, f.sum.to_string(), all(f, i128::cast_unsigned)),
        Summary::Floats(f) => (f.count, format!("{:?}", f.sum.parts()), all(f, |v: f64| u128::from(v.to_bits()))),
    }
}

/// Asserts that every summary of the set equals the fold over its values, bit for bit.
pub(super) fn check_summaries(readings: &Readings) {
    let kept: BTreeMap<String, _> = readings.summaries().map(|(n, s)| (n.to_string(), bits(s))).collect();
    let names: BTreeSet<String> = (0..readings.len()).flat_map(|i| reading_fields(readings, i).into_keys()).collect();
    let folded = names.into_iter().filter_map(|name| {
        let values: Vec<Value> =
            (0..readings.len()).filter_map(|i| reading_fields(readings, i).remove(&name)).collect();
        Some((name, bits(&Summary::fold(values.iter())?)))
    });
    assert_eq!(kept, folded.collect::<BTreeMap<_, _>>());
}

#[derive(Clone)]
struct Record {
    rev: u64,
    closed: bool,
    has_overflow: bool,
    overflow: Option<Overflow>,
    readings: Readings,
}

impl Record {
    fn times(&self) -> BTreeSet<i64> {
        self.readings.times().iter().copied().collect()
    }
}

/// One bucket's documents by page number.
pub(super) struct SimulatedStore {
    pages: BTreeMap<u32, Record>,
    caps: Caps,
    /// The number of successful writes.
    pub(super) writes: usize,
    /// The number of pages written by [`WriteKind::Append`].
    pub(super) appends: usize,
}

impl SimulatedStore {
    pub(super) fn new(caps: Caps) -> Self {
        Self { pages: BTreeMap::new(), caps, writes: 0, appends: 0 }
    }

    pub(super) fn load(&self) -> Bucket {
        Bucket::from_stored(self.stored())
    }

    fn stored(&self) -> impl Iterator<Item = StoredPage> {
        self.pages.iter().map(|(number, record)| StoredPage {
            number: *number,
            rev: record.rev,
            closed: record.closed,
            has_overflow: record.has_overflow,
            readings: record.readings.clone().pack().unpack(),
            cut: false,
            left_out: None,
        })
    }

    /// The bucket without the readings of any page.
    fn load_marks(&self) -> Bucket {
        let left_out = |readings: &Readings| {
            let ms = |time: Option<&i64>| time.expect("no page is empty").div_euclid(MILLI_NS);
            let span_ms = (ms(readings.times().first()), ms(readings.times().last()));
            LeftOut { count: readings.len(), bytes: readings.bytes(), span_ms }
        };
        Bucket::from_stored(self.stored().map(|page| StoredPage {
            left_out: Some(left_out(&page.readings)),
            readings: Readings::default(),
            ..page
        }))
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Writes the whole group by compare-and-set, or nothing; returns `false` on a conflict.
    pub(super) fn write(&mut self, bucket: &Bucket, group: &[usize]) -> bool {
        let pages: Vec<&Page> = group.iter().map(|p| &bucket.pages()[*p]).collect();
        let is_applicable = |page: &Page| match (page.write_in_group(), self.pages.get(&page.number)) {
            (WriteKind::Insert, held) => held.is_none(),
            (_, held) => held.is_some_and(|record| record.rev == page.rev()),
        };
        if !pages.iter().all(|page| is_applicable(page)) {
            return false;
        }
        let before = self.pages.clone();
        let last_ms = before.values().filter_map(|r| r.readings.times().last()).max().map(|t| t.div_euclid(MILLI_NS));
        for page in &pages {
            let readings = match page.write_in_group() {
                WriteKind::Insert => {
                    let with_page_0 = pages.iter().any(|page| page.number == 0);
                    assert!(with_page_0, "page {} is inserted without a compare-and-set on page 0", page.number);
                    page.readings.clone()
                }
                WriteKind::Append { start } => {
                    self.appends += 1;
                    let held = &before[&page.number].readings;
                    assert_eq!(held.len(), start, "an append starts after the stored readings");
                    let appended = &page.readings.times()[start..];
                    assert!(appended.iter().all(|t| last_ms.is_none_or(|last| t.div_euclid(MILLI_NS) > last)));
                    let all = (0..held.len()).map(|i| held.reading(i));
                    let all: Readings =
                        all.chain((start..page.readings.len()).map(|i| page.readings.reading(i))).collect();
                    assert_eq!(all, page.readings, "an append must result in the page");
                    page.readings.clone()
                }
                WriteKind::Replace => page.readings.clone(),
                WriteKind::Remove => {
                    self.pages.remove(&page.number);
                    continue;
                }
            };
            let closed = page.closed;
            let has_overflow = page.has_overflow;
            let record = Record { rev: page.next_rev(), closed, has_overflow, overflow: page.overflow, readings };
            self.pages.insert(page.number, record);
        }
        self.writes += 1;
        self.check(&before);
        true
    }

    fn check(&self, before: &BTreeMap<u32, Record>) {
        let numbers: Vec<u32> = self.pages.keys().copied().collect();
        assert!(
            (0..).zip(&numbers).all(|(at, number)| at == *number),
            "a missing page could still be inserted by a late writer: {numbers:?}"
        );
        assert!(self.pages.values().filter(|record| !record.closed).count() <= 1, "two open pages");
        assert!(self.pages.len() == 1 || self.pages[&0].has_overflow, "page 0 must have the overflow mark");
        if let Some(overflow) = self.pages.get(&0).and_then(|record| record.overflow) {
            let closed = self.pages.iter().filter(|(number, record)| **number > 0 && record.closed);
            let counts: Vec<usize> = closed.map(|(_, record)| record.readings.len()).collect();
            let found = (overflow.pages as usize, overflow.count);
            assert_eq!(found, (counts.len(), counts.iter().sum::<usize>() as u64), "page 0 counts the closed pages");
        }
        let mut seen = BTreeSet::new();
        for (number, record) in &self.pages {
            let times = record.readings.times();
            assert!(times.is_sorted_by(|a, b| a < b), "page {number} is sorted");
            assert!(times.iter().all(|time| seen.insert(*time)), "page {number} holds a timestamp of another page");
            assert!(times.len() <= self.caps.max_readings, "page {number} is over the cap of readings");
            let bytes: usize = (0..times.len())
                .map(|i| {
                    let fields = reading_fields(&record.readings, i);
                    crate::bucket::readings::reading_bytes(times[i], fields.iter().map(|(n, v)| (&**n, v)))
                })
                .sum();
            assert_eq!(bytes, record.readings.bytes(), "page {number} counts its bytes right");
            assert!(bytes <= self.caps.hard_bytes || times.len() == 1, "page {number} is over the hard size");
            check_summaries(&record.readings);
            let Some(old) = before.get(number) else { continue };
            assert!(!old.closed || record.closed, "page {number} was opened again");
            assert!(!old.closed || record.times().is_subset(&old.times()), "closed page {number} gained timestamps");
        }
        assert!(before.values().flat_map(Record::times).all(|time| seen.contains(&time)), "a reading got lost");
    }
}

/// The fate of one write on the network.
#[derive(Clone, Copy)]
enum Fate {
    Answered,
    Unavailable,
    LostUnknown,
    LandedUnknown,
    /// Applied at any later moment, or never.
    Delayed,
}

/// Merges under way: rows with their stamps.
pub(super) struct Job {
    pub(super) merges: Vec<(Stamp, Vec<TestRow>)>,
    /// Rows that are not merged yet into a bucket with left-out pages.
    rest: Vec<(Stamp, Vec<TestRow>)>,
}

/// An instance that merges its batches in order and writes one group per step.
pub(super) struct Writer {
    number: u64,
    pub(super) waiting: std::collections::VecDeque<Vec<Vec<TestRow>>>,
    pub(super) done: Vec<Job>,
    job: Option<Job>,
    bucket: Option<Bucket>,
    round: Vec<Vec<usize>>,
    reload: bool,
}

/// Everything that races: the store, the writers, and delayed writes.
pub(super) struct World {
    pub(super) store: SimulatedStore,
    pub(super) writers: Vec<Writer>,
    delayed: Vec<(Bucket, Vec<usize>)>,
    pub(super) step: usize,
}

impl World {
    /// Creates one writer per list of batches; a batch is the merges before its first write.
    pub(super) fn new(caps: Caps, batches: Vec<Vec<Vec<Vec<TestRow>>>>) -> Self {
        let writer = |(i, waiting): (usize, Vec<Vec<Vec<TestRow>>>)| Writer {
            number: i as u64,
            waiting: waiting.into(),
            done: Vec::new(),
            job: None,
            bucket: None,
            round: Vec::new(),
            reload: false,
        };
        let writers = batches.into_iter().enumerate().map(writer).collect();
        Self { store: SimulatedStore::new(caps), writers, delayed: Vec::new(), step: 0 }
    }

    /// Runs until every batch is stored. Faults stop when the choices run out.
    pub(super) fn run(&mut self, choices: &mut Choices) {
        loop {
            let busy = |w: &Writer| w.job.is_some() || !w.waiting.is_empty();
            let busy: Vec<usize> = (0..self.writers.len()).filter(|w| busy(&self.writers[*w])).collect();
            if busy.is_empty() {
                return;
            }
            self.step += 1;
            assert!(self.step < 20_000, "the writers do not finish");
            let turn = busy[choices.below(busy.len())];
            if !self.delayed.is_empty() && choices.below(4) == 1 {
                let (bucket, group) = self.delayed.swap_remove(choices.below(self.delayed.len()));
                self.store.write(&bucket, &group);
            } else {
                self.turn(turn, choices);
            }
        }
    }

    fn turn(&mut self, turn: usize, choices: &mut Choices) {
        let writer = &mut self.writers[turn];
        let Some(job) = &mut writer.job else { return writer.begin(&self.store, self.step, choices) };
        let bucket = writer.bucket.as_mut().expect("a job has a bucket");
        if let Some(group) = writer.round.pop() {
            let fate = match choices.below(12) {
                7 => Fate::Unavailable,
                8 => Fate::LostUnknown,
                9 => Fate::LandedUnknown,
                10 => Fate::Delayed,
                _ => Fate::Answered,
            };
            match fate {
                Fate::Answered if self.store.write(bucket, &group) => bucket.mark_written(&group),
                Fate::Answered | Fate::LostUnknown => writer.reload = true,
                Fate::Unavailable => {}
                Fate::LandedUnknown => {
                    self.store.write(bucket, &group);
                    writer.reload = true;
                }
                Fate::Delayed => {
                    self.delayed.push((bucket.clone(), group));
                    writer.reload = true;
                }
            }
        } else if std::mem::take(&mut writer.reload) {
            *bucket = if choices.below(3) == 1 { self.store.load_marks() } else { self.store.load() };
            job.begin(bucket, &self.store.caps);
        } else {
            writer.round = bucket.next_writes();
            choices.shuffle(&mut writer.round);
            if writer.round.is_empty() && job.rest.is_empty() {
                writer.done.extend(writer.job.take());
            } else if writer.round.is_empty() {
                writer.reload = !job.go_on(bucket, &self.store);
            }
        }
    }
}

impl Writer {
    fn begin(&mut self, store: &SimulatedStore, step: usize, choices: &mut Choices) {
        let batch = self.waiting.pop_front().expect("only a busy writer has its turn");
        // Clocks agree here: a later job has a greater stamp. No two writers share a stamp.
        let stamp = |number: usize| ((step as u64) << 8 | number as u64) << 8 | self.number;
        let merges: Vec<(Stamp, Vec<TestRow>)> =
            batch.into_iter().enumerate().map(|(number, rows)| (stamp(number), rows)).collect();
        // The cached bucket of the last job, however outdated, or an empty bucket.
        let mut bucket = match (self.bucket.take(), choices.below(4)) {
            (Some(bucket), 0..3) => bucket,
            (None, 3) => Bucket::default(),
            _ => store.load(),
        };
        if choices.below(3) == 1 {
            bucket.leave_out(1);
        }
        let mut job = Job { merges, rest: Vec::new() };
        job.begin(&mut bucket, &store.caps);
        self.reload = false;
        self.bucket = Some(bucket);
        self.job = Some(job);
    }
}

impl Job {
    fn begin(&mut self, bucket: &mut Bucket, caps: &Caps) {
        self.rest.clear();
        match bucket.is_partial() {
            true => self.rest = self.merges.clone(),
            false => merge(bucket, &self.merges, caps),
        }
    }

    /// Loads one more page and merges its rows, or merges all rows without a page. Returns false if the stored pages
    /// have changed.
    fn go_on(&mut self, bucket: &mut Bucket, store: &SimulatedStore) -> bool {
        let mut times: Vec<i64> = self.rest.iter().flat_map(|(_, rows)| rows.iter().map(|(time, _)| *time)).collect();
        times.sort_unstable();
        let mut wanted = bucket.always_needed();
        let needed = bucket.needed_for(&times);
        wanted.extend(needed.first().filter(|number| !wanted.contains(number)));
        if !bucket.load(&wanted, store.stored().filter(|page| wanted.contains(&page.number)).collect()) {
            return false;
        }
        let is_last = bucket.needed_for(&times).is_empty();
        for (stamp, rows) in &mut self.rest {
            let (here, later) = std::mem::take(rows).into_iter().partition(|(time, _)| is_last || bucket.has(*time));
            *rows = later;
            merge(bucket, &[(*stamp, here)], &store.caps);
        }
        self.rest.retain(|(_, rows)| !rows.is_empty());
        true
    }
}

fn merge(bucket: &mut Bucket, merges: &[(Stamp, Vec<TestRow>)], caps: &Caps) {
    for (stamp, rows) in merges {
        let applied = apply(bucket, rows, caps, Origin { stamp: *stamp, shared: true });
        assert_eq!(
            applied.new + applied.duplicate + applied.overwritten,
            rows.len() as u64,
            "each row is counted once"
        );
        assert!(applied.late <= applied.new);
    }
    for page in bucket.pages() {
        check_summaries(&page.readings);
    }
}
