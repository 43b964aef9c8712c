//! Rewrites parts of days that an older version wrote in the form of this version, by compare-and-set on their revs.
//!
//! Any other write of such a part gives it the new form, too, so a conflict needs no retry. MongoDB finds the parts by a
//! partial index, which is empty in the end. The embedded file has no such index and remembers how far it was walked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::raw::{Cursor, DayDocument, RawDay};
use crate::bucket::{DayId, DayWrite, StorageError, Store};
use crate::faults;
use crate::members::member::Member;
use crate::store::document::day_id;

/// The interval of runs. The first one begins after it, so that a new version can be tried before its form spreads.
const PAUSE: Duration = Duration::from_secs(3600);
/// Maximum number of parts per step.
const PARTS: usize = 64;
/// Maximum number of parts that `/health` names.
const NAMED_MAX: usize = 3;

/// The job that rewrites parts of days of an older form.
pub struct Migrate {
    pub store: Arc<dyn Store>,
    pub member: Arc<Member>,
}

/// The parts and databases that cannot be migrated.
#[derive(Debug, Default)]
struct Failures {
    count: u64,
    named: Vec<String>,
}

impl Failures {
    fn add(&mut self, database: &str, error: &dyn std::fmt::Display) {
        tracing::debug!(database, %error, "a day cannot be migrated");
        self.count += 1;
        if self.named.len() < NAMED_MAX {
            self.named.push(format!("{database}: {error}"));
        }
    }
}

impl Job for Migrate {
    const NAME: &'static str = "migrate";

    fn interval(&self) -> Option<Duration> {
        Some(PAUSE)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        if !run.is_asked && !self.member.leads().await? {
            return Ok(None);
        }
        let mut failures = Failures::default();
        let mut outdated = Vec::new();
        let mut left = Some(0);
        for database in self.store.databases().await? {
            match self.store.count_outdated_days(&database).await {
                Ok(Some(0)) => {}
                Ok(count) => {
                    left = left.zip(count).map(|(left, count)| left + count);
                    outdated.push(database);
                }
                Err(error) if error.is_away() || error.is_transient() => return Err(error.into()),
                Err(error) => failures.add(&database, &error),
            }
        }
        for database in outdated {
            match self.migrate(&database, &mut left, &mut failures, run).await {
                Ok(()) => {}
                Err(error) if error.is_away() || error.is_transient() => return Err(error.into()),
                Err(error) => failures.add(&database, &error),
            }
        }
        run.set("failed", failures.count);
        run.set_left(Some(failures.count));
        if failures.count > 0 {
            let Failures { count, named } = failures;
            run.report(format!("{count} days or databases cannot be migrated: {}", named.join("; ")));
        }
        Ok(None)
    }
}

impl Migrate {
    /// Migrates a database in steps.
    async fn migrate(
        &self,
        database: &str,
        left: &mut Option<u64>,
        failures: &mut Failures,
        run: &Run,
    ) -> Result<(), StorageError> {
        let before = failures.count;
        let mut cursor: Option<Cursor> = None;
        loop {
            let began = Instant::now();
            run.set_left(*left);
            let step = self.store.walk_outdated_days(database, cursor.as_ref(), PARTS).await?;
            *left = left.map(|left| left.saturating_sub(step.found.len() as u64));
            self.rewrite(database, step.found, failures, run).await?;
            faults::point("migrated");
            // The next run begins with the first part that failed, because it may have been repaired.
            if failures.count == before {
                self.store.note_migrated(database, step.next.as_ref()).await?;
            }
            if step.next.is_none() {
                return Ok(());
            }
            cursor = step.next;
            run.pause(began).await;
        }
    }

    /// Writes parts in the form of this version. An unreadable or contradictory one is left for `hourglass verify`.
    async fn rewrite(
        &self,
        database: &str,
        found: Vec<RawDay>,
        failures: &mut Failures,
        run: &Run,
    ) -> Result<(), StorageError> {
        let mut sound: Vec<DayDocument> = Vec::new();
        for part in found {
            match part.document {
                Ok(document) if document.mismatches.is_empty() => sound.push(document),
                Ok(_) => failures.add(database, &format!("document {} contradicts its readings", part.key)),
                Err(error) => failures.add(database, &error),
            }
        }
        let writes: Vec<DayWrite<'_>> = sound
            .iter()
            .map(|DayDocument { id, day, .. }| DayWrite::again(id, day.rev, &day.readings, day.expired.as_ref()))
            .collect();
        faults::halt_at("migrating").await;
        for (write, outcome) in writes.iter().zip(self.store.write_days(database, &writes).await) {
            match outcome.applied() {
                Ok(is_applied) => run.count("days", u64::from(is_applied)),
                Err(error) if error.is_away() || error.is_transient() => return Err(error),
                Err(error) => {
                    let DayId { sensor, day, part } = write.id;
                    failures.add(database, &format!("document {}: {error}", day_id(&sensor.key, *day, *part)));
                }
            }
        }
        Ok(())
    }
}
