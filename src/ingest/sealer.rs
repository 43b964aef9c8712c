//! Seals days that have been over for a while: folds their hour pages into one document per sensor and day, and then
//! removes the pages. `bucket::day` says why no reading is lost, doubled or reverted while others write or delete, and
//! if the process stops at any step; the next round continues with the pages that are left.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::catalog::reads::{read_buckets_each, read_sensors_each};
use super::deleter::{DatabaseTurns, write_buckets};
use super::deletion::ALWAYS;
use super::flush::task::FlushContext;
use super::sealing::{Left, Sealing};
use crate::bucket::day::{Unsealable, fold};
use crate::bucket::store::{BucketId, Written};
use crate::bucket::{Bucket, DayId, DayWrite, Readings, StorageError, StoredDay, StoredPage};
use crate::clock::now_ns;
use crate::faults;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Buckets that are listed at a time.
const LISTED: usize = 512;
/// Most days that are sealed together. All their readings are in memory, so how many there are depends on the days before.
const DAYS_MOST: usize = 64;
/// Most pages of a bucket that is sealed.
const PAGES_MAX: usize = 64;
/// How often a round that somebody waits for tries again what was not settled, and the wait before each try. A log holds
/// readings until their sensors' documents are written (`sensors.write_interval`).
const SETTLING_MAX: usize = 60;
const SETTLING: Duration = Duration::from_secs(2);
/// The longest rest after a step in the background.
const REST_MAX: Duration = Duration::from_secs(5);

pub struct Sealer {
    pub context: Arc<FlushContext>,
    /// Deletions of this process exclude sealing, database by database.
    pub turns: Arc<DatabaseTurns>,
    /// What was done, and who asks for more.
    pub sealing: Sealing,
    /// How long a day must be over; `None` if days are sealed only when somebody asks for it.
    pub after: Option<Duration>,
    /// The wait between two rounds.
    pub pause: Duration,
}

/// How a round takes turns with flushes and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Half of the time it rests.
    Background,
    /// Somebody waits for it.
    Now,
}

/// What one round did.
#[derive(Debug, Default)]
struct Round {
    days: u64,
    readings: u64,
    /// How many days may be sealed together.
    together: usize,
    left: Left,
    /// Sensors and days that it could not seal, and that may come again in its lists.
    skipped: HashSet<(Day, String)>,
}

impl Round {
    fn skip(&mut self, day: Day, sensor: &str) {
        self.skipped.insert((day, sensor.to_owned()));
    }
}

/// A day that is being sealed.
struct Work {
    id: DayId,
    /// The rev of the stored day, or of this process's claim.
    rev: u64,
    held: Option<StoredDay>,
    buckets: Vec<(BucketId, Vec<StoredPage>)>,
}

impl Sealer {
    /// Runs until it is aborted.
    pub async fn run(self) {
        let mut failing = false;
        loop {
            let asked = self.sealing.next(self.after.map(|_| self.pause)).await;
            let mut round = self.round(if asked { Pace::Now } else { Pace::Background }).await;
            for _ in 0..if asked { SETTLING_MAX } else { 0 } {
                if !round.as_ref().is_ok_and(|left| left.unsettled > 0) {
                    break;
                }
                tokio::time::sleep(SETTLING).await;
                round = self.round(Pace::Now).await;
            }
            if let (Err(error), false) = (&round, failing) {
                tracing::warn!(%error, "sealing days failed; it is tried again");
            }
            failing = round.is_err();
            self.sealing.end_round(round);
        }
    }

    async fn round(&self, pace: Pace) -> Result<Left, StorageError> {
        let mut left = Left::default();
        if !self.context.registry_view.is_known() {
            return Err(StorageError::Unavailable { detail: "the registry was not read yet".to_owned() });
        }
        for database in self.context.store.databases().await? {
            let round = self.seal(&database, pace).await?;
            left.unsettled += round.left.unsettled;
            left.large += round.left.large;
            if round.days > 0 {
                tracing::info!(%database, days = round.days, readings = round.readings, "days sealed");
            }
        }
        Ok(left)
    }

    /// Seals all days of a database that are over for long enough, oldest first.
    async fn seal(&self, database: &str, pace: Pace) -> Result<Round, StorageError> {
        let after = match pace {
            Pace::Now => Duration::ZERO,
            Pace::Background => self.after.unwrap_or_default(),
        };
        let now = now_ns().saturating_sub(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX));
        let until = Day::of(Hour::of(now)).hours().start;
        let mut round = Round { together: 1, ..Round::default() };
        let mut from = (Hour::of(ALWAYS.start), String::new());
        loop {
            let buckets = self.context.store.next_buckets(database, &from, until, LISTED).await?;
            let Some(last) = buckets.last().cloned() else { return Ok(round) };
            let mut days: Vec<(Day, String)> = Vec::new();
            for (hour, sensor) in buckets {
                let day = (Day::of(hour), sensor);
                if !round.skipped.contains(&day) && !days.contains(&day) {
                    days.push(day);
                }
            }
            round.skipped.retain(|(day, _)| *day >= Day::of(last.0));
            let mut days = &*days;
            while !days.is_empty() {
                let (some, rest) = days.split_at(round.together.min(days.len()));
                let (began, before) = (Instant::now(), (round.days, round.readings));
                self.seal_some(database, some, &mut round).await?;
                self.sealing.sealed(round.days - before.0, round.readings - before.1);
                if pace == Pace::Background {
                    // Flushes and queries have the store for as long as this had it.
                    tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
                }
                days = rest;
            }
            from = last;
        }
    }

    async fn seal_some(&self, database: &str, days: &[(Day, String)], round: &mut Round) -> Result<(), StorageError> {
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        // Before the deletions: a merge must know every deletion below the floor that it uses.
        let floor = self.context.registry_view.view().floor;
        let mut work = self.begin(database, days, floor, round).await?;
        faults::point("claimed");
        self.read(database, &mut work).await?;
        let mut sealed: Vec<(Work, Readings)> = Vec::new();
        for one in work {
            let pages = one.buckets.iter().flat_map(|(_, pages)| pages);
            match fold(one.held.as_ref(), pages, floor) {
                Ok(readings) if !readings.is_empty() => sealed.push((one, readings)),
                other => {
                    match other {
                        Err(Unsealable::Large) => round.left.large += 1,
                        Ok(_) | Err(Unsealable::Unsettled) => round.left.unsettled += 1,
                    }
                    round.skip(one.id.day, &one.id.sensor.key);
                    self.give_back(database, &one).await?;
                }
            }
        }
        let bytes = sealed.iter().map(|(_, readings)| readings.memory()).max().unwrap_or(1).max(1);
        round.together = (self.context.bytes / bytes).clamp(1, DAYS_MOST);
        let written = self.write(database, &sealed).await?;
        faults::point("sealed");
        let mut singles = Vec::new();
        for ((one, readings), written) in sealed.into_iter().zip(written) {
            if !written {
                round.left.unsettled += 1;
                round.skip(one.id.day, &one.id.sensor.key);
                continue;
            }
            round.days += 1;
            round.readings += readings.len() as u64;
            self.remove(database, one.buckets, &mut singles).await?;
        }
        self.context.store.remove_single_pages(database, &singles).await?;
        faults::point("pages_removed");
        Ok(())
    }

    /// Reads the stored days. Where others share the store, claims those that are not stored.
    async fn begin(
        &self,
        database: &str,
        days: &[(Day, String)],
        floor: Stamp,
        round: &mut Round,
    ) -> Result<Vec<Work>, StorageError> {
        let store = &*self.context.store;
        let keys: Vec<&str> = days.iter().map(|(_, key)| &**key).collect();
        let mut documents = read_sensors_each(store, database, &keys).await?;
        let mut ids = Vec::with_capacity(days.len());
        for (day, key) in days {
            let document = documents.remove(&**key).and_then(Result::ok).map(|document| document.sensor);
            match document.or_else(|| Sensor::of_key(key).map(Arc::new)) {
                Some(sensor) => ids.push(DayId { sensor, day: *day }),
                None => round.skip(*day, key),
            }
        }
        let held = store.read_days(database, &ids).await?;
        let mut none = Readings::default();
        none.raise_floor(floor);
        let mut work: Vec<Work> = ids
            .into_iter()
            .zip(held)
            .map(|(id, held)| Work { id, rev: held.as_ref().map_or(0, |day| day.rev), held, buckets: Vec::new() })
            .collect();
        if !store.is_shared() {
            return Ok(work);
        }
        let first = first_rev();
        let missing: Vec<usize> = (0..work.len()).filter(|at| work[*at].held.is_none()).collect();
        let claims: Vec<DayWrite<'_>> = missing
            .iter()
            .zip(first..)
            .map(|(at, next_rev)| DayWrite { id: &work[*at].id, rev: 0, next_rev, readings: Some(&none) })
            .collect();
        let outcomes = store.write_days(database, &claims).await;
        let revs: Vec<u64> = claims.iter().map(|claim| claim.next_rev).collect();
        for ((at, rev), written) in missing.into_iter().zip(revs).zip(outcomes) {
            match written {
                Written::Yes => work[at].rev = rev,
                Written::Conflict => {}
                Written::Failed(error) => return Err(error),
            }
        }
        // Another instance claimed or sealed the others meanwhile.
        work.retain(|one| one.rev > 0);
        Ok(work)
    }

    async fn read(&self, database: &str, work: &mut [Work]) -> Result<(), StorageError> {
        let of = |one: &Work| {
            let sensor = one.id.sensor.clone();
            hours(one.id.day).map(move |hour| BucketId { sensor: sensor.clone(), hour })
        };
        let ids: Vec<BucketId> = work.iter().flat_map(of).collect();
        let read = read_buckets_each(&*self.context.store, database, &ids, PAGES_MAX).await;
        let mut found = ids.into_iter().zip(read);
        for one in work {
            for (id, pages) in found.by_ref().take(hours(one.id.day).count()) {
                let pages = pages?;
                if !pages.is_empty() {
                    one.buckets.push((id, pages));
                }
            }
        }
        Ok(())
    }

    /// Removes a claim of a day that cannot be sealed now.
    async fn give_back(&self, database: &str, one: &Work) -> Result<(), StorageError> {
        let is_claim = one.held.as_ref().is_none_or(|day| day.readings.is_empty());
        if one.rev == 0 || !is_claim {
            return Ok(());
        }
        let removal = DayWrite { id: &one.id, rev: one.rev, next_rev: one.rev + 1, readings: None };
        match self.context.store.write_days(database, &[removal]).await.pop() {
            Some(Written::Failed(error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Which of the days are written; the others were changed by somebody else meanwhile.
    async fn write(&self, database: &str, sealed: &[(Work, Readings)]) -> Result<Vec<bool>, StorageError> {
        let first = first_rev();
        let writes: Vec<DayWrite<'_>> = sealed
            .iter()
            .zip(first..)
            .map(|((one, readings), first)| DayWrite {
                id: &one.id,
                rev: one.rev,
                next_rev: if one.rev == 0 { first } else { one.rev + 1 },
                readings: Some(readings),
            })
            .collect();
        let outcomes = self.context.store.write_days(database, &writes).await;
        outcomes
            .into_iter()
            .map(|written| match written {
                Written::Yes => Ok(true),
                Written::Conflict => Ok(false),
                Written::Failed(error) => Err(error),
            })
            .collect()
    }

    /// Removes the pages of sealed buckets: those of several pages here, each bucket at once, and the others later.
    async fn remove(
        &self,
        database: &str,
        buckets: Vec<(BucketId, Vec<StoredPage>)>,
        singles: &mut Vec<(BucketId, u64)>,
    ) -> Result<(), StorageError> {
        let mut several = Vec::new();
        for (id, pages) in buckets {
            match &*pages {
                [only] if only.number == 0 && !only.has_overflow => singles.push((id, only.rev)),
                _ => {
                    let mut bucket = Bucket::from_stored(pages);
                    bucket.delete(&ALWAYS, Stamp::MAX);
                    several.push((id, bucket));
                }
            }
        }
        // What others changed meanwhile stays beside the day, until the next round.
        write_buckets(&*self.context.store, database, several).await.map(drop)
    }
}

fn hours(day: Day) -> impl Iterator<Item = Hour> {
    let Range { start, end } = day.hours();
    (start.0..end.0).map(Hour)
}

/// The first rev of a day that is not stored: no other process, and no other moment of this one, chooses the same.
fn first_rev() -> u64 {
    let millis = u64::try_from(now_ns() / 1_000_000).unwrap_or_default();
    millis << 20 | u64::from(std::process::id()) << 8 & 0xf_ff00
}
