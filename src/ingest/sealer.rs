//! Seals days that have been over for a while: folds their hour pages and chunks into one document per sensor and day, or
//! one per hour where a day is too large for that, and then removes them. `bucket::day` says why no reading is lost,
//! doubled or reverted while others write or delete, and if the process stops at any step; the next round continues with
//! what is left.

mod hourly;
mod lot;
mod months;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::lot::{Lot, Work};
use super::catalog::reads::read_sensors_each;
use super::deleter::{DatabaseTurns, is_listed, write_buckets};
use super::deletion::ALWAYS;
use super::flush::task::FlushContext;
use super::sealing::{Left, Sealing};
use crate::bucket::day::Unsealable;
use crate::bucket::settings::Settings;
use crate::bucket::store::{BucketId, Written};
use crate::bucket::{Bucket, DayId, DayPart, DayWrite, Readings, SealForm, StorageError, StoredDay, StoredPage};
use crate::clock::{first_rev, now_ns};
use crate::faults;
use crate::reading::stamp::millis_of;
use crate::reading::{Day, Hour, Sensor, Stamp};

/// Buckets that are listed at a time.
const LISTED: usize = 512;
/// Most days that are sealed together. All their readings are in memory: fewer where they would not fit ([`Lot`]).
const DAYS_MOST: usize = 64;
/// From how many chunks of a day on they are folded, even if more are coming: queries read all of them.
const CHUNKS_MOST: usize = 24;
/// How often a round that somebody waits for tries again what was not settled, and the wait before each try. A log holds
/// readings until their sensors' documents are written (`sensors.write_interval`).
const SETTLING_MAX: usize = 60;
const SETTLING: Duration = Duration::from_secs(2);
/// Most days of which a round remembers that it has counted them. Of more, some count twice.
const COUNTED_MOST: usize = 100_000;
/// How long after the last look for months without totals there is another one, if nothing was sealed.
const MONTHS_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// The longest rest after a step in the background.
const REST_MAX: Duration = Duration::from_secs(5);

pub struct Sealer {
    pub context: Arc<FlushContext>,
    /// Deletions of this process exclude sealing, database by database.
    pub turns: Arc<DatabaseTurns>,
    /// What was done, and who asks for more.
    pub sealing: Sealing,
    /// How days are sealed of databases that do not say it themselves.
    pub form: SealForm,
    /// How long a day must be over; `None` if days are sealed only when somebody asks for it.
    pub after: Option<Duration>,
    /// The wait between two rounds.
    pub pause: Duration,
    /// How long no chunk of a day must have come before its chunks are folded in the background.
    pub quiet: Duration,
    /// The most cells of a part for an hour.
    pub hour_cells: usize,
}

/// How a round takes turns with flushes and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Half of the time it rests.
    Background,
    /// Somebody waits for it.
    Now,
}

/// When to look for months without totals: once sealing has come to rest after it did something, and now and then, because
/// deletions and other instances remove totals, too.
#[derive(Debug, Default)]
struct MonthsDue {
    /// When that was last done, and how many days had been sealed then.
    last: Option<(Instant, u64)>,
    /// How many days had been sealed after the round before.
    before: u64,
}

impl MonthsDue {
    /// `sealed`: how many days have been sealed so far.
    fn are_due(&mut self, asked: bool, sealed: u64) -> bool {
        let is_at_rest = std::mem::replace(&mut self.before, sealed) == sealed;
        let is_new = self.last.is_none_or(|(at, then)| then != sealed || at.elapsed() >= MONTHS_PAUSE);
        asked || is_at_rest && is_new
    }

    fn looked(&mut self, sealed: u64) {
        self.last = Some((Instant::now(), sealed));
    }
}

/// What one round did.
#[derive(Debug, Default)]
struct Round {
    days: u64,
    readings: u64,
    /// How many days may be in the next lot: twice as many each time.
    together: usize,
    left: Left,
    /// Sensors and days that it could not seal, and that may come again in its lists.
    skipped: HashSet<(Day, String)>,
    /// Those that `left` counts, so that a day with pages and chunks counts once. At most [`COUNTED_MOST`].
    counted: HashSet<(Day, String)>,
}

impl Round {
    /// Leaves a day for another round, and counts it.
    fn leave(&mut self, day: Day, sensor: &str, count: impl FnOnce(&mut Left)) {
        if self.counted.len() >= COUNTED_MOST || self.counted.insert((day, sensor.to_owned())) {
            count(&mut self.left);
        }
        self.skip(day, sensor);
    }

    fn skip(&mut self, day: Day, sensor: &str) {
        self.skipped.insert((day, sensor.to_owned()));
    }
}

impl Sealer {
    /// Runs until it is aborted.
    pub async fn run(self: Arc<Self>) {
        let (mut failing, mut months) = (false, MonthsDue::default());
        loop {
            let asked = self.sealing.next(self.after.map(|_| self.pause)).await;
            let mut round = self.round(if asked { Pace::Now } else { Pace::Background }).await;
            for _ in 0..if asked { SETTLING_MAX } else { 0 } {
                let Some(left) = round.as_ref().ok().filter(|left| left.unsettled > 0) else { break };
                self.sealing.walked(*left);
                tokio::time::sleep(SETTLING).await;
                round = self.round(Pace::Now).await;
            }
            if months.are_due(asked, self.sealing.done().days) && round.is_ok() {
                let pace = if asked { Pace::Now } else { Pace::Background };
                match self.months(pace).await {
                    Ok(()) => months.looked(self.sealing.done().days),
                    Err(error) => round = Err(error),
                }
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
        let trusted = self.context.trusted_ns();
        let now = trusted.map_err(|doubt| StorageError::Unavailable { detail: doubt.to_string() })?;
        // From the store: no day may be sealed before its database's settings are known.
        let by_database = self.context.store.raw().read_settings().await?.into_iter().collect();
        let settings = Settings { by_database, seal_form: Some(self.form), ..Settings::default() };
        let mut failed = Ok(());
        for database in self.context.store.raw().databases().await? {
            if settings.sealed_as(&database) == SealForm::Off {
                left.off += 1;
                continue;
            }
            let round = match self.seal(&database, now, pace).await {
                Err(error) if error.is_of_store() => return Err(error),
                Err(error) => {
                    failed = Err(error);
                    continue;
                }
                Ok(round) => round,
            };
            left += round.left;
            if round.days > 0 {
                tracing::info!(%database, days = round.days, readings = round.readings, "days sealed");
            }
        }
        failed.map(|()| left)
    }

    /// Makes the totals of all months.
    async fn months(&self, pace: Pace) -> Result<(), StorageError> {
        for database in self.context.store.raw().databases().await? {
            let made = self.add_up_months(&database, pace).await?;
            if made > 0 {
                tracing::info!(%database, months = made, "months added up");
            }
        }
        Ok(())
    }

    /// Seals all days of a database that are over for long enough: first those with hour pages, oldest first, then those that
    /// have only chunks beside the day.
    async fn seal(&self, database: &str, now: i64, pace: Pace) -> Result<Round, StorageError> {
        let after = match pace {
            Pace::Now => Duration::ZERO,
            Pace::Background => self.after.unwrap_or_default(),
        };
        let now = now.saturating_sub(i64::try_from(after.as_nanos()).unwrap_or(i64::MAX));
        self.seal_until(database, Day::of(Hour::of(now)), pace).await
    }

    /// Seals all days of a database before one, whenever they ended and whatever its settings say.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn seal_before(&self, database: &str, until: Day) -> Result<(), StorageError> {
        self.seal_until(database, until, Pace::Background).await.map(drop)
    }

    async fn seal_until(&self, database: &str, until: Day, pace: Pace) -> Result<Round, StorageError> {
        let mut round = Round { together: 1, ..Round::default() };
        let mut from = (Hour::of(ALWAYS.start), String::new());
        loop {
            let buckets = self.context.store.raw().next_buckets(database, &from, until.hours().start, LISTED).await?;
            let Some(last) = buckets.last().cloned() else { break };
            let mut days: Vec<(Day, String)> = Vec::new();
            for (hour, sensor) in buckets {
                let day = (Day::of(hour), sensor);
                if !round.skipped.contains(&day) && !days.contains(&day) {
                    days.push(day);
                }
            }
            round.skipped.retain(|(day, _)| *day >= Day::of(last.0));
            self.seal_each(database, &days, &mut round, pace).await?;
            from = last;
        }
        round.skipped.clear();
        let mut from = (Day::of(Hour::of(ALWAYS.start)), String::new());
        loop {
            let days = self.context.store.raw().next_chunks(database, &from, until, LISTED).await?;
            let Some(last) = days.last().cloned() else { return Ok(round) };
            self.seal_each(database, &days, &mut round, pace).await?;
            from = last;
        }
    }

    async fn seal_each(
        &self,
        database: &str,
        mut days: &[(Day, String)],
        round: &mut Round,
        pace: Pace,
    ) -> Result<(), StorageError> {
        faults::halt_at("days_listed").await;
        while !days.is_empty() {
            let lot = &days[..days.len().min(round.together)];
            round.together = (2 * round.together).min(DAYS_MOST);
            let (began, before, left) = (Instant::now(), (round.days, round.readings), round.left);
            let taken = match self.seal_some(database, lot, round, pace).await {
                Err(error) if !error.is_away() => {
                    round.left = left;
                    self.seal_singly(database, lot, round, pace).await?;
                    lot.len()
                }
                taken => taken?,
            };
            self.sealing.sealed(round.days - before.0, round.readings - before.1);
            if pace == Pace::Background {
                // Flushes and queries have the store for as long as this had it.
                tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
            }
            days = &days[taken..];
        }
        Ok(())
    }

    /// Seals days one by one, after one of them could not be read or written: it hides no other.
    async fn seal_singly(
        &self,
        database: &str,
        days: &[(Day, String)],
        round: &mut Round,
        pace: Pace,
    ) -> Result<(), StorageError> {
        for one in days {
            match self.seal_some(database, std::slice::from_ref(one), round, pace).await {
                Ok(_) => {}
                Err(error) if error.is_transient() => {
                    round.leave(one.0, &one.1, |left| left.unsettled += 1);
                }
                Err(error) if !error.is_away() => {
                    let (day, sensor) = (one.0.hours().start.start_ns(), &one.1);
                    // Once, not every round.
                    if round.left.failed == 0 && self.sealing.done().left.is_none_or(|left| left.failed == 0) {
                        tracing::warn!(database, sensor, day, %error, "a day could not be sealed; it is tried again");
                    } else {
                        tracing::debug!(database, sensor, day, %error, "a day could not be sealed; it is tried again");
                    }
                    round.leave(one.0, sensor, |left| left.failed += 1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Seals the first of these days, as many as fit into memory together; returns how many.
    async fn seal_some(
        &self,
        database: &str,
        days: &[(Day, String)],
        round: &mut Round,
        pace: Pace,
    ) -> Result<usize, StorageError> {
        let turn = self.turns.of(database);
        let _turn = turn.lock().await;
        if !is_listed(&*self.context.raw, database).await? {
            // It was dropped since the days were listed: claims would make it anew.
            return Ok(days.len());
        }
        // Before the deletions: a merge must know every deletion below the floor that it uses.
        let floor = self.context.registry_view.view().floor;
        let mut lot = self.list(database, days, round, pace).await?;
        lot.work.retain(|one| {
            let is_settled = one.chunks_are_settled(floor);
            if !is_settled {
                round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
            }
            is_settled
        });
        self.weigh(database, &mut lot).await?;
        faults::halt_at("parts_listed").await;
        self.begin(database, &mut lot, floor).await?;
        faults::point("claimed");
        if let Err(error) = self.read(database, &mut lot).await {
            self.give_back_all(database, &lot.work).await?;
            return Err(error);
        }
        faults::halt_at("pages_read").await;
        let (mut sealed, mut left): (Vec<(Work, Readings)>, Vec<Work>) = (Vec::new(), Vec::new());
        for one in std::mem::take(&mut lot.work) {
            match one.fold(floor) {
                Ok(readings) if !readings.is_empty() => sealed.push((one, readings)),
                Err(Unsealable::Large) => {
                    lot.hourly.push((one.place, one.id.sensor.clone(), one.id.day));
                    left.push(one.without_content());
                }
                Ok(_) | Err(Unsealable::Unsettled) => {
                    round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
                    left.push(one.without_content());
                }
            }
        }
        self.give_back_all(database, &left).await?;
        let written = self.write(database, &sealed).await?;
        faults::point("sealed");
        let (mut singles, mut chunks) = (Vec::new(), Vec::new());
        for ((one, readings), written) in sealed.into_iter().zip(written) {
            if !written {
                round.leave(one.id.day, &one.id.sensor.key, |left| left.unsettled += 1);
                continue;
            }
            round.days += 1;
            round.readings += readings.len() as u64;
            chunks.extend(one.chunks.into_iter().map(|(id, chunk)| (id, chunk.rev)));
            self.remove(database, one.buckets, &mut singles).await?;
        }
        self.remove_parts(database, &chunks).await?;
        self.context.store.raw().remove_single_pages(database, &singles).await?;
        faults::point("pages_removed");
        for (_, sensor, day) in lot.hourly {
            self.seal_hours(database, &sensor, day, floor, round).await?;
        }
        Ok(lot.days)
    }

    /// The parts that are stored of these days: days that are to be sealed whole, and those that are sealed by hour already.
    async fn list(
        &self,
        database: &str,
        days: &[(Day, String)],
        round: &mut Round,
        pace: Pace,
    ) -> Result<Lot, StorageError> {
        let store = &*self.context.store;
        let mut keys: Vec<&str> = days.iter().map(|(_, key)| &**key).collect();
        keys.sort_unstable();
        keys.dedup();
        let documents = read_sensors_each(store, database, &keys).await?;
        let (Some(first), Some(last)) = (days.iter().map(|day| day.0).min(), days.iter().map(|day| day.0).max()) else {
            return Ok(Lot::default());
        };
        let mut parts: BTreeMap<(Day, &str), Vec<DayPart>> = BTreeMap::new();
        for (place, day, part) in store.raw().parts_of(database, &keys, first..last.next()).await? {
            parts.entry((day, keys[place])).or_default().push(part);
        }
        let mut lot = Lot { days: days.len(), ..Lot::default() };
        for (place, (day, key)) in days.iter().enumerate() {
            let document = documents.get(&**key).and_then(|document| document.as_ref().ok());
            let sensor = document.map(|document| document.sensor.clone());
            let Some(sensor) = sensor.or_else(|| Sensor::of_key(key).map(Arc::new)) else {
                round.skip(*day, key);
                continue;
            };
            let parts = parts.remove(&(*day, key)).unwrap_or_default();
            if pace == Pace::Background && is_being_delivered(&parts, self.quiet) {
                round.skip(*day, key);
                continue;
            }
            if parts.iter().any(|part| matches!(part, DayPart::Hour(_))) {
                lot.hourly.push((place, sensor, *day));
                continue;
            }
            let id = DayId { sensor: sensor.clone(), day: *day, part: DayPart::Whole };
            let chunk = |part: &DayPart| DayId { part: *part, ..id.clone() };
            lot.work.push(Work {
                place,
                fields: document.map_or(1, |document| document.fields.len().max(1)),
                is_stored: parts.contains(&DayPart::Whole),
                listed: parts.iter().filter(|part| part.is_chunk()).map(chunk).collect(),
                ..Work::of(id)
            });
        }
        Ok(lot)
    }

    /// Reads parts; those that are gone are left out.
    async fn read_parts(&self, database: &str, ids: Vec<DayId>) -> Result<Vec<(DayId, StoredDay)>, StorageError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let read = self.context.store.read_days(database, &ids).await?;
        Ok(ids.into_iter().zip(read).filter_map(|(id, part)| Some((id, part?))).collect())
    }

    /// Reads the stored days. Where others share the store, claims those that are not stored.
    async fn begin(&self, database: &str, lot: &mut Lot, floor: Stamp) -> Result<(), StorageError> {
        self.read_held(database, lot).await?;
        let work = &mut lot.work;
        // Nothing can be folded into what is left of readings that have expired.
        work.retain(|one| one.held.as_ref().is_none_or(|held| held.expired.is_none()));
        if !self.context.store.raw().has_other_writers() {
            return Ok(());
        }
        let missing: Vec<DayId> = work.iter().filter(|one| one.held.is_none()).map(|one| one.id.clone()).collect();
        let claims = self.claim(database, &missing, floor).await?;
        let mut claims = claims.into_iter();
        for one in work.iter_mut().filter(|one| one.held.is_none()) {
            one.rev = claims.next().flatten().unwrap_or_default();
        }
        // Another instance claimed or sealed the others meanwhile.
        work.retain(|one| one.rev > 0);
        Ok(())
    }

    /// Claims parts that are not stored; returns the revs of the claims, `None` where another instance was faster.
    async fn claim(&self, database: &str, ids: &[DayId], floor: Stamp) -> Result<Vec<Option<u64>>, StorageError> {
        let mut none = Readings::default();
        none.raise_floor(floor);
        let claim = |(id, next_rev)| DayWrite { id, rev: 0, next_rev, readings: Some(&none), expired: None };
        let claims: Vec<DayWrite<'_>> = ids.iter().zip(first_rev()..).map(claim).collect();
        let outcomes = self.context.store.write_days(database, &claims).await;
        let of = |(claim, written): (&DayWrite<'_>, Written)| match written {
            Written::Yes => Ok(Some(claim.next_rev)),
            Written::Conflict => Ok(None),
            Written::Failed(error) => Err(error),
        };
        claims.iter().zip(outcomes).map(of).collect()
    }

    /// Removes a claim of a part that cannot be folded now.
    async fn give_back(
        &self,
        database: &str,
        id: &DayId,
        rev: u64,
        held: Option<&StoredDay>,
    ) -> Result<(), StorageError> {
        match is_claim(rev, held) {
            true => self.remove_parts(database, &[(id.clone(), rev)]).await,
            false => Ok(()),
        }
    }

    /// The same for several days, together: each removal waits for a sync of the store.
    async fn give_back_all(&self, database: &str, work: &[Work]) -> Result<(), StorageError> {
        let claims = work.iter().filter(|one| is_claim(one.rev, one.held.as_ref()));
        let claims: Vec<(DayId, u64)> = claims.map(|one| (one.id.clone(), one.rev)).collect();
        self.remove_parts(database, &claims).await
    }

    /// Removes parts that still have these revs.
    async fn remove_parts(&self, database: &str, parts: &[(DayId, u64)]) -> Result<(), StorageError> {
        if parts.is_empty() {
            return Ok(());
        }
        let writes: Vec<DayWrite<'_>> = parts.iter().map(|(id, rev)| removal(id, *rev)).collect();
        let failed = |written| if let Written::Failed(error) = written { Some(error) } else { None };
        let written = self.context.store.write_days(database, &writes).await;
        written.into_iter().find_map(failed).map_or(Ok(()), Err)
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
                expired: None,
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
        write_buckets(&*self.context.raw, database, several).await.map(drop)
    }
}

/// Whether what is stored with this rev is a part without content.
fn is_claim(rev: u64, held: Option<&StoredDay>) -> bool {
    rev > 0 && held.is_none_or(StoredDay::is_empty)
}

fn removal(id: &DayId, rev: u64) -> DayWrite<'_> {
    DayWrite { id, rev, next_rev: rev + 1, readings: None, expired: None }
}

fn hours(day: Day) -> impl Iterator<Item = Hour> {
    let Range { start, end } = day.hours();
    (start.0..end.0).map(Hour)
}

/// Whether chunks of a day are still coming.
fn is_being_delivered(parts: &[DayPart], quiet: Duration) -> bool {
    let stamps =
        parts.iter().filter_map(|part| if let DayPart::Chunk { stamp, .. } = part { Some(*stamp) } else { None });
    let (count, latest) = (stamps.clone().count(), stamps.max().map_or(0, millis_of));
    let rested = u64::try_from(now_ns() / 1_000_000).unwrap_or_default().saturating_sub(latest);
    (1..CHUNKS_MOST).contains(&count) && u128::from(rested) < quiet.as_millis()
}
