//! Random merges by writers with outdated state, against a plain map; a failure names seed and step.

use std::collections::{BTreeMap, HashMap};

use hourglass::bucket::store::{BucketId, Extent, Order, Projection, ScannedPage};
use hourglass::bucket::{Bucket, Caps, Reading, Summary};
use hourglass::reading::{Hour, Value};

use crate::support::random;

use super::test_store::{
    Plain, TestStore, assert_stored, bucket_id, merge_as, plain, read, reading, sensor, write_through,
};

const SEEDS: std::ops::Range<u64> = 1..4;
const STEPS: usize = 120;
const DATABASES: [&str; 2] = ["one", "two"];
const SENSORS: [&str; 3] = ["a", "a!", "b"];
const HOURS: [Hour; 4] = [Hour(-1), Hour(0), Hour(7), Hour(491_150)];
/// Small, so that pages close and long strings split them.
const CAPS: Caps = Caps { max_readings: 6, max_bytes: 600, hard_bytes: 1000 };

/// Random values for the model.
struct Random(random::Random);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        let bound = i64::try_from(bound).expect("a small bound");
        usize::try_from(self.0.below(bound)).expect("below a usize")
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns some readings in time order, from few times, so that many repeat.
    fn readings(&mut self, hour: Hour) -> Vec<Reading> {
        let mut times: Vec<i64> = (0..=self.below(6)).map(|_| i64::try_from(self.below(30)).expect("small")).collect();
        times.sort_unstable();
        times.dedup();
        times.into_iter().map(|slot| reading(hour.start_ns() + slot * 700_000, &self.fields())).collect()
    }

    fn fields(&mut self) -> Vec<(&'static str, Value)> {
        let number = i64::try_from(self.below(1000)).expect("small");
        let value = match self.below(8) {
            0 => Value::Boolean(number % 2 == 0),
            1 => Value::String("long ".repeat(self.below(40)).into()),
            2 => Value::Unsigned(u64::MAX - number.unsigned_abs()),
            3 | 4 => Value::Float(f64::from_bits(0x4000_0000_0000_0000 + number.unsigned_abs())),
            _ => Value::Integer(number),
        };
        let mut fields = vec![(self.pick(&["n", "x.y"]), value)];
        if self.below(3) == 0 {
            fields.push(("more", Value::Integer(number)));
        }
        fields
    }
}

type Key = (&'static str, &'static str, Hour);

#[derive(Default)]
struct Model {
    buckets: BTreeMap<Key, Plain>,
}

impl Model {
    fn merge(&mut self, key: Key, readings: &[Reading]) {
        let bucket = self.buckets.entry(key).or_default();
        for reading in readings {
            let fields = reading.fields.iter().map(|(name, value)| (name.to_string(), value.clone()));
            bucket.entry(reading.time).or_default().extend(fields);
        }
    }
}

pub async fn random_writers_agree_with_a_plain_map(target: &mut impl TestStore) {
    // Each seed has its own sensors; the databases are shared.
    for seed in SEEDS {
        let mut random = Random(random::Random::new(seed));
        let mut model = Model::default();
        let mut writers: [HashMap<Key, Bucket>; 3] = Default::default();
        for step in 0..STEPS {
            let key = (random.pick(&DATABASES), random.pick(&SENSORS), random.pick(&HOURS));
            // Writers do not always learn of deletions.
            if random.below(6) == 0 {
                delete(target, seed, key, &mut model, &mut random).await;
            }
            let readings = random.readings(key.2);
            let writer = random.below(3);
            let forgets = random.below(4) == 0;
            model.merge(key, &readings);
            let known = writers[writer].remove(&key).filter(|_| !forgets);
            let bucket = write(target, seed, key, known, &readings, step).await;
            writers[writer].insert(key, bucket);
            let stored = read(target.store(), key.0, &id(seed, key)).await;
            let readings = plain(stored.iter().map(|page| &page.readings));
            assert_eq!(Some(&readings), model.buckets.get(&key), "seed {seed}, step {step}");
            if random.below(40) == 0 {
                target.reopen().await;
            }
        }
        check_scans(target, seed, &model, &mut random).await;
        check_scans_of_all(target, seed).await;
    }
}

fn id(seed: u64, key: Key) -> BucketId {
    bucket_id(&sensor(key.1, &[("seed", &seed.to_string())]), key.2)
}

/// Merges into the writer's view or into nothing; after a conflict, into the stored bucket.
async fn write(
    target: &impl TestStore,
    seed: u64,
    key: Key,
    known: Option<Bucket>,
    readings: &[Reading],
    step: usize,
) -> Bucket {
    let id = id(seed, key);
    let mut bucket = known.unwrap_or_default();
    for attempt in 0.. {
        merge_as(step as u64 + 1, &mut bucket, readings, &CAPS);
        if write_through(target.store(), key.0, &id, &mut bucket).await {
            return bucket;
        }
        assert!(attempt < 2, "seed {seed}, step {step}: a conflict without anybody else");
        bucket = Bucket::from_stored(read(target.store(), key.0, &id).await);
    }
    bucket
}

/// Deletes a range of times in one bucket, or whole hours.
async fn delete(target: &impl TestStore, seed: u64, key: Key, model: &mut Model, random: &mut Random) {
    let id = id(seed, key);
    if random.below(3) == 0 {
        let hours = random.pick(&HOURS)..random.pick(&HOURS).next();
        target.store().remove_buckets(key.0, &[&id.sensor.key], hours.clone(), u64::MAX >> 1).await.expect("removed");
        // Buckets of several pages may be left for deletion page by page.
        for hour in HOURS.into_iter().filter(|hour| hours.contains(hour)) {
            let id = BucketId { sensor: id.sensor.clone(), hour };
            let mut bucket = Bucket::from_stored(read(target.store(), key.0, &id).await);
            bucket.delete(&(i64::MIN..i64::MAX), u64::MAX >> 1);
            assert!(write_through(target.store(), key.0, &id, &mut bucket).await, "seed {seed}: nobody else writes");
        }
        model.buckets.retain(|(d, s, hour), _| (*d, *s) != (key.0, key.1) || !hours.contains(hour));
        return;
    }
    let slot = |random: &mut Random| key.2.start_ns() + i64::try_from(random.below(32)).expect("small") * 700_000;
    let a = slot(random);
    let b = slot(random);
    let range = a.min(b)..a.max(b);
    let mut bucket = Bucket::from_stored(read(target.store(), key.0, &id).await);
    let removed = bucket.delete(&range, u64::MAX >> 1);
    assert!(write_through(target.store(), key.0, &id, &mut bucket).await, "seed {seed}: nobody else writes");
    assert_stored(&bucket, &read(target.store(), key.0, &id).await);
    let Some(plain) = model.buckets.get_mut(&key) else { return assert_eq!(removed, 0) };
    let before = plain.len();
    plain.retain(|time, _| !range.contains(time));
    assert_eq!(removed, before - plain.len(), "seed {seed}");
    if plain.is_empty() {
        model.buckets.remove(&key);
    }
}

async fn check_scans(target: &impl TestStore, seed: u64, model: &Model, random: &mut Random) {
    for database in DATABASES {
        for sensor in SENSORS {
            let key = &id(seed, (database, sensor, Hour(0))).sensor.key.clone();
            let first = random.pick(&HOURS);
            let to = Hour(491_151);
            let pages_max = random.below(4) + 1;
            let mut rest = first..to;
            let mut found: BTreeMap<Key, Vec<hourglass::bucket::Readings>> = BTreeMap::new();
            while !rest.is_empty() {
                let scan = target.store().scan(
                    database,
                    key,
                    rest,
                    Order::Ascending,
                    &Projection::ALL,
                    Extent::pages(pages_max),
                );
                let scanned = scan.await.expect("a scan");
                rest = scanned.rest;
                assert!(rest.is_empty() || scanned.pages.last().is_some_and(|last| last.hour.next() <= rest.start));
                for page in scanned.pages {
                    let readings = page.readings.expect("readings were asked for");
                    assert_summaries(&page.summary, &readings);
                    found.entry((database, sensor, page.hour)).or_default().push(readings);
                }
            }
            let found: Vec<(Key, Plain)> = found.iter().map(|(key, pages)| (*key, plain(pages.iter()))).collect();
            let expected =
                model.buckets.iter().filter(|((d, s, hour), _)| (*d, *s) == (database, sensor) && *hour >= first);
            let expected: Vec<(Key, Plain)> = expected.map(|(key, readings)| (*key, readings.clone())).collect();
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}

/// A scan of all sensors finds the same as a scan of each; unknown sensors have nothing.
async fn check_scans_of_all(target: &impl TestStore, seed: u64) {
    let hours = Hour::from_ns(i64::MIN)..Hour(491_151);
    let shown = |pages: &[ScannedPage]| -> Vec<String> {
        let page = |page: &ScannedPage| {
            let mut summary = page.summary.clone();
            summary.sort_by(|a, b| a.0.cmp(&b.0));
            let readings = page.readings.as_ref().map(|readings| plain(std::iter::once(readings)));
            format!("{:?} {} {readings:?} {summary:?}", page.hour, page.number)
        };
        pages.iter().map(page).collect()
    };
    for database in DATABASES {
        let mut keys: Vec<String> =
            SENSORS.iter().map(|sensor| id(seed, (database, *sensor, Hour(0))).sensor.key.to_string()).collect();
        keys.push("nobody".to_owned());
        let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
        for projection in [Projection::ALL, Projection::SUMMARIES] {
            let scan = target.store().scan_sensors(database, &asked, hours.clone(), &projection, usize::MAX).await;
            for (sensor, found) in asked.iter().zip(scan.expect("a scan").expect("nothing bounds it")) {
                let one = target
                    .store()
                    .scan(database, sensor, hours.clone(), Order::Ascending, &projection, Extent::ALL)
                    .await;
                assert_eq!(shown(&found), shown(&one.expect("a scan").pages), "seed {seed}: {sensor}");
            }
        }
    }
}

fn assert_summaries(stored: &[(std::sync::Arc<str>, Summary)], readings: &hourglass::bucket::Readings) {
    let by_name =
        |(name, summary): (&std::sync::Arc<str>, &Summary)| (name.to_string(), format!("{:?}", summary.figures()));
    let stored: BTreeMap<String, String> = stored.iter().map(|(name, summary)| by_name((name, summary))).collect();
    assert_eq!(stored, readings.summaries().map(by_name).collect());
}
