//! `hourglass copy` from a running service: copies day by day what the target does not have as the service has it, again and
//! again, until it is told to switch. Then the service takes no more writes, the rest is copied, and both are compared.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use super::fill::{Filling, Target};
use super::origin::{Begun, Origin, is_refused};
use super::post::{self, PostAnswer, Service};
use super::progress::Progress;
use crate::backup::form::{Held, Next};
use crate::backup::manifest::date;
use crate::backup::read::all_hours;
use crate::backup::sensors::described;
use crate::backup::{DatabaseDigest, Fill, Parts, ReadBounds, Sensors, SetDigest, StoreDigest};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, DayId, DayWrite, SensorDocument};
use crate::clock::now_ns;
use crate::config::Settings;
use crate::faults;
use crate::ingest::settings_of_json;
use crate::reading::stamp::first_of;
use crate::reading::time::write_rfc3339;
use crate::reading::{Day, Hour, Sensor, Stamp};
use crate::store::MergedView;
use crate::telemetry::logs;

/// While following, every pass looks at the last two days and the coming one, and every one of this many at all of them.
const ALL_EVERY: u64 = 10;
/// How long to wait for other instances on the source's store.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the rest is copied while the service is found to have taken writes meanwhile.
const TRIES: usize = 5;
/// Buckets that are listed at a time.
const LISTED: usize = 512;
/// Parts of days that are read at a time.
const PARTS: usize = 16;

/// What `hourglass copy` is asked for.
#[derive(Debug)]
pub struct FollowRequest {
    pub from: Service,
    /// Whether to end.
    pub switches: bool,
    /// The pause between two passes.
    pub every: Duration,
}

/// Copies from a running service.
#[must_use]
pub fn follow(to: &Settings, request: &FollowRequest) -> ExitCode {
    logs::start("warn", &to.telemetry);
    match super::run_to_end(run(to, request)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => super::failed(&error),
    }
}

async fn run(to: &Settings, request: &FollowRequest) -> anyhow::Result<()> {
    let (mut asked, mut stop) = (signal(SignalKind::user_defined1())?, signal(SignalKind::interrupt())?);
    let url = &request.from.url;
    let origin = Origin::Service(post::Target::of(&request.from)?);
    let mut begun = origin.begin(PATIENCE).await?;
    let filling = Filling { what: "copy", from: url.clone(), stamp: first_of(begun.began_ms) };
    let (target, progress) = (Target::open(to, filling).await?, Progress::new("copy"));
    let mut copying = Copying { origin, target, progress, described: BTreeMap::new() };
    let (mut number, mut all_ms) = (0, begun.began_ms);
    loop {
        let started = Instant::now();
        let all = number % ALL_EVERY == 0;
        let copied = copying.pass(&begun, all).await?;
        if all {
            all_ms = begun.began_ms;
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("{}: {copied} days in {seconds:.1} s", reached(begun.began_ms, all_ms, recent_days()));
        if request.switches {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(request.every) => {}
            _ = asked.recv() => break,
            _ = stop.recv() => bail!("stopped while following: the copy goes on when this is run again; --switch ends it"),
        }
        number += 1;
        begun = copying.origin.begin(PATIENCE).await?;
    }
    let service = post::Target::of(&request.from)?;
    let quiet = set_read_only(&service, true)?;
    faults::point("read_only");
    match copying.finish(to, &service, quiet).await {
        Ok(digest) => {
            println!("copied {url}: {}", digest.total());
            println!("the service at {url} takes no more writes: send them to the new one, and stop it");
            Ok(())
        }
        Err(error) => {
            // If this fails, too, a restart of the service ends it.
            let _ = set_read_only(&service, false);
            Err(error.context("the service takes writes again"))
        }
    }
}

/// What a pass that began at `began_ms` has copied, where the last one over all days began at `all_ms`, in milliseconds since 1970,
/// and the others compare days from `recent` on.
fn reached(began_ms: u64, all_ms: u64, recent: Day) -> String {
    let time = |ms: u64| {
        let mut text = String::new();
        write_rfc3339(&mut text, i64::try_from(ms).unwrap_or_default().saturating_mul(1_000_000));
        text
    };
    let all = format!("everything acknowledged before {} is copied", time(all_ms));
    if began_ms == all_ms {
        return all;
    }
    format!("{all}, and of {} and later, and of new days, everything before {}", date(recent), time(began_ms))
}

/// The first of the days that every pass compares.
fn recent_days() -> Day {
    Day(Day::of(Hour::of(now_ns())).0 - 1)
}

/// What a service says that takes no changes.
#[derive(Debug, Deserialize)]
struct Quiet {
    opening: String,
    /// How often this opening was told so while it took changes.
    turns: u64,
    /// The other openings on its store, those that ended, too.
    others: BTreeSet<String>,
}

impl Quiet {
    /// Whether nobody can have taken changes between an earlier answer and this one.
    fn goes_on_from(&self, earlier: &Self) -> bool {
        (&self.opening, self.turns) == (&earlier.opening, earlier.turns) && self.others.is_subset(&earlier.others)
    }
}

fn set_read_only(service: &post::Target, is_on: bool) -> anyhow::Result<Quiet> {
    let state = if is_on { "on" } else { "off" };
    match service.post(&format!("/api/v1/read-only?state={state}"), b"")? {
        PostAnswer { status: 200, text } => {
            serde_json::from_str(&text).context("the service answered what this version does not understand")
        }
        answer => bail!("the service goes on taking writes: {answer}"),
    }
}

struct Copying {
    origin: Origin,
    target: Target,
    progress: Progress,
    /// By database, what this run has copied of sensors and their metadata.
    described: BTreeMap<String, Described>,
}

/// The sensors of a database, as the service had them.
struct Described {
    held: Held,
    keys: HashSet<Box<str>>,
}

impl Copying {
    /// Copies what differs; returns how many days did. With `all`, every day is compared, else the last ones.
    async fn pass(&mut self, begun: &Begun, all: bool) -> anyhow::Result<usize> {
        let mut copied = 0;
        // First: they say how days are sealed.
        self.settings(&begun.settings).await?;
        for dropped in self.target.store.raw().databases().await? {
            if !begun.databases.contains(&dropped) {
                self.target.mark.forget(&dropped).context("marking what is done")?;
                self.described.remove(&dropped);
                self.target.store.raw().drop_database(&dropped).await?;
                self.target.store.raw().unlist_database(&dropped).await?;
                copied += 1;
            }
        }
        let recent = recent_days();
        for database in &begun.databases {
            let listed = self.origin.days(database).await?;
            let mut days: BTreeSet<Day> = self.target.mark.days(database).into_iter().collect();
            days.extend(listed);
            let (store, count) = (self.target.store.clone(), days.len());
            let mut fill = Fill::begin(&*store, database, self.target.options).await?;
            for (number, day) in days.into_iter().enumerate() {
                self.progress.tell(|| format!("{database}, {}: {number} of {count} days", date(day)));
                let known = self.target.mark.digest(database, day);
                if all || known.is_none() || day >= recent {
                    let copying = self.whole_day(&mut fill, (database, day), known).await;
                    let differed = copying.with_context(|| format!("database {database:?}, day {}", date(day)))?;
                    copied += usize::from(differed);
                }
            }
            // Last: no day has a sensor then that is not among them.
            self.sensors(&mut fill, database).with_context(|| format!("the sensors of database {database:?}"))?;
            fill.finish().await.with_context(|| format!("writing the sensors of database {database:?}"))?;
        }
        Ok(copied)
    }

    async fn settings(&self, rows: &Value) -> anyhow::Result<()> {
        self.target.replace_settings(settings_of_json(rows)).await.context("writing the databases' settings")
    }

    /// Copies the sensors of a database with their metadata, unless the target has them as the service has.
    fn sensors(&mut self, fill: &mut Fill<'_>, database: &str) -> anyhow::Result<()> {
        let known = self.described.get(database).map(|described| described.held.content);
        let Some(mut frames) = self.origin.changed_sensors(database, known)? else { return Ok(()) };
        let mut keys = HashSet::new();
        let held = loop {
            match frames.read()? {
                Next::Sensor(document) => {
                    fill.take_sensor(&document);
                    keys.insert(document.sensor.key.clone());
                }
                Next::Piece(_) => bail!("the service sent readings in the place of sensors"),
                Next::End(held) => break held,
            }
        };
        self.described.insert(database.to_owned(), Described { held, keys });
        Ok(())
    }

    /// As [`Copying::day`], again if the service could not send all of it: its readings may have expired meanwhile.
    async fn whole_day(
        &mut self,
        fill: &mut Fill<'_>,
        of: (&str, Day),
        known: Option<SetDigest>,
    ) -> anyhow::Result<bool> {
        match self.day(fill, of, known).await {
            Err(error) if is_refused(&error) => self.day(fill, of, None).await,
            copied => copied,
        }
    }

    /// Copies a day unless the target has it as the service has; returns whether it differed.
    async fn day(
        &mut self,
        fill: &mut Fill<'_>,
        (database, day): (&str, Day),
        known: Option<SetDigest>,
    ) -> anyhow::Result<bool> {
        let Some(mut frames) = self.origin.changed_day((database, day), known)? else { return Ok(false) };
        let mark = &mut self.target.mark;
        let may_have_some = mark.is_begun(database, day);
        mark.day_begun(database, day).context("marking what is done")?;
        if may_have_some {
            clear(&*self.target.store, database, day, self.target.options.stamp).await.context("removing the day")?;
        }
        faults::point("day_cleared");
        let held = loop {
            match frames.read()? {
                Next::Piece(piece) => fill.take(piece).await.context("writing to the store")?,
                Next::Sensor(_) => bail!("the service sent sensors in the place of readings"),
                Next::End(held) => break held,
            }
        };
        fill.flush().await.context("writing to the store")?;
        self.target.mark.day_copied(database, day, held.set).context("marking what is done")?;
        faults::point("day_copied");
        Ok(true)
    }

    /// Copies the rest, while the service takes no writes, and compares everything; again if it took some meanwhile: it was
    /// restarted, told to go on, or another instance began on its store.
    async fn finish(mut self, to: &Settings, service: &post::Target, mut quiet: Quiet) -> anyhow::Result<StoreDigest> {
        for _ in 0..TRIES {
            let (found, expected) = self.rest(to).await?;
            let now = set_read_only(service, true)?;
            if now.goes_on_from(&quiet) {
                return self.target.end(Ok(found), &expected).await;
            }
            println!("the service took writes again meanwhile: what it took is copied, too");
            quiet = now;
        }
        bail!(
            "the service was restarted or told to take writes {TRIES} times while the rest was copied: keep it from that"
        )
    }

    /// Copies what is left, and settings and tokens; returns what the target has, and should have.
    async fn rest(&mut self, to: &Settings) -> anyhow::Result<(StoreDigest, StoreDigest)> {
        let begun = self.origin.begin(PATIENCE).await?;
        self.pass(&begun, true).await?;
        // Readings may have expired meanwhile, and only settings say up to where.
        self.settings(&self.origin.settings().await?).await?;
        faults::point("all_copied");
        let (mut expected, mut found) = (StoreDigest::default(), StoreDigest::default());
        for name in &begun.databases {
            let mut set = SetDigest::default();
            let mark = &self.target.mark;
            mark.days(name).into_iter().filter_map(|day| mark.digest(name, day)).for_each(|day| set += day);
            self.described.get(name).into_iter().for_each(|described| set += described.held.set);
            expected.databases.push(DatabaseDigest { name: name.clone(), sensors: 0, set });
            let read = self.read_back(name, to).await.with_context(|| format!("reading database {name:?} back"))?;
            found.databases.push(read);
        }
        if let Some(other) =
            self.target.store.raw().databases().await?.iter().find(|name| !begun.databases.contains(name))
        {
            bail!("the target has a database {other:?} that the service does not have");
        }
        self.target.replace_tokens(&begun.tokens).await.context("writing the tokens")?;
        Ok((found, expected))
    }

    /// Reads all of a database back, returns its digest, and makes the sensors' documents anew: each pass knew a part of them.
    async fn read_back(&mut self, database: &str, to: &Settings) -> anyhow::Result<DatabaseDigest> {
        let mut digest = DatabaseDigest { name: database.to_owned(), ..DatabaseDigest::default() };
        let store = self.target.store.clone();
        let mut fill = Fill::begin(&*store, database, self.target.options).await?;
        let bounds = ReadBounds::of_memory(to.query.request_bytes);
        let mut parts = Parts::new(&*store, database, all_hours(), bounds);
        let mut seen: HashSet<Box<str>> = HashSet::new();
        let described_keys = self.described.get(database).map(|described| &described.keys);
        let is_described = |key: &str| described_keys.is_some_and(|keys| keys.contains(key));
        while let Some(piece) = parts.next().await? {
            self.progress.tell(|| format!("{database}: {} sensors read back", seen.len()));
            let key = &piece.of().sensor.key;
            if !seen.contains(key) {
                seen.insert(key.clone());
                if !is_described(key) {
                    // Its document is gone, and the metadata with it.
                    fill.take_sensor(&SensorDocument::new(piece.of().sensor.clone()));
                }
            }
            digest.set += piece.digest();
            fill.see(&piece);
        }
        let mut sensors = Sensors::new(&*store, database);
        loop {
            let some = sensors.some().await?;
            if some.is_empty() {
                break;
            }
            let unseen = some.iter().filter(|document| !seen.contains(&document.sensor.key));
            let (left, gone): (Vec<_>, Vec<_>) = unseen.partition(|document| is_described(&document.sensor.key));
            // The sensor has no readings any more, so the target's document must not list any: write it again from the metadata alone.
            left.into_iter().for_each(|document| fill.take_sensor(document));
            let gone: Vec<(&str, Option<u64>)> = gone.iter().map(|document| (&*document.sensor.key, None)).collect();
            if !gone.is_empty() {
                store.raw().remove_sensors(database, &gone).await?;
            }
        }
        fill.finish().await?;
        let (count, metadata) = described(&*store, database).await?;
        digest.sensors = count;
        digest.set += metadata;
        Ok(digest)
    }
}

async fn remove_parts(store: &MergedView, database: &str, ids: &[DayId]) -> anyhow::Result<()> {
    let revs: Vec<Option<u64>> =
        store.read_days(database, ids).await?.into_iter().map(|stored| Some(stored?.rev)).collect();
    let held = ids.iter().zip(revs).filter_map(|(id, rev)| Some((id, rev?)));
    let writes: Vec<DayWrite<'_>> =
        held.map(|(id, rev)| DayWrite { id, rev, next_rev: rev + 1, readings: None, expired: None }).collect();
    for outcome in store.write_days(database, &writes).await {
        match outcome {
            Written::Yes => {}
            Written::Conflict => bail!("somebody else writes to the target"),
            Written::Failed(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Removes what is left of buckets that have several pages.
async fn cut_buckets(store: &MergedView, database: &str, day: Day, before: Stamp) -> anyhow::Result<()> {
    let hours = day.hours();
    let mut from = (hours.start, String::new());
    loop {
        let left = store.raw().next_buckets(database, &from, hours.end, LISTED).await?;
        let Some((hour, key)) = left.last() else { return Ok(()) };
        // The next key there can be.
        from = (*hour, format!("{key}\0"));
        for (hour, key) in left {
            let sensor = Sensor::of_key(&key).with_context(|| format!("the sensor's key {key:?}"))?;
            cut(store, database, BucketId { sensor: Arc::new(sensor), hour }, before).await?;
        }
    }
}

async fn cut(store: &MergedView, database: &str, id: BucketId, before: Stamp) -> anyhow::Result<()> {
    let pages = store.read_buckets(database, std::slice::from_ref(&id), usize::MAX).await?.pop();
    let mut bucket = Bucket::from_stored(pages.unwrap_or_default());
    bucket.delete(&(id.hour.start_ns()..id.hour.end_ns()), before);
    loop {
        let groups = bucket.next_writes();
        if groups.is_empty() {
            return Ok(());
        }
        for group in groups {
            let write = PageWrite { id: &id, bucket: &bucket, group: group.clone() };
            match store.raw().write_pages(database, &[write]).await.pop() {
                Some(Written::Yes) => bucket.mark_written(&group),
                Some(Written::Failed(error)) => return Err(error.into()),
                Some(Written::Conflict) | None => bail!("somebody else writes to the target"),
            }
        }
    }
}

/// Removes everything of a day, in whatever form it is. All of it has this stamp.
async fn clear(store: &MergedView, database: &str, day: Day, stamp: Stamp) -> anyhow::Result<()> {
    let before = stamp.saturating_add(1);
    let mut sensors = Sensors::new(store, database);
    loop {
        let listed = sensors.some().await?;
        if listed.is_empty() {
            return cut_buckets(store, database, day, before).await;
        }
        let keys: Vec<&str> = listed.iter().map(|document| &*document.sensor.key).collect();
        store.raw().remove_buckets(database, &keys, day.hours(), before).await?;
        let parts = store.raw().parts_of(database, &keys, day..day.next()).await?;
        let id = |(place, day, part): (usize, Day, _)| DayId { sensor: listed[place].sensor.clone(), day, part };
        let ids: Vec<DayId> = parts.into_iter().map(id).collect();
        for some in ids.chunks(PARTS) {
            remove_parts(store, database, some).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pass said that everything acknowledged before it was copied; nine of ten had looked at the last two days only. A late
    /// reading of last week was missing on the copy, and the line said that it was there.
    #[test]
    fn a_pass_over_the_last_days_says_so() {
        let (week, later) = (1_768_435_200_000, 1_768_435_210_000);
        assert_eq!(reached(week, week, Day(20_467)), "everything acknowledged before 2026-01-15T00:00:00Z is copied");
        assert_eq!(
            reached(later, week, Day(20_467)),
            "everything acknowledged before 2026-01-15T00:00:00Z is copied, and of 2026-01-14 and later, and of new days, \
             everything before 2026-01-15T00:00:10Z"
        );
    }
}
