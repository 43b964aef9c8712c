//! Rewrites documents of older forms in the form of today. Each by compare-and-set, with the same readings: no reading is
//! lost, doubled or reverted, whoever else writes, deletes, seals or rewrites meanwhile, and if the process stops at any
//! step. A page that a version without stamps wrote keeps its `applied` and gets a floor of 0: its cells stay older than
//! every stamp, and what WALs of that version still have of it merges as before (`bucket::legacy`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::job::{Job, JobError, Run, Step};
use crate::bucket::raw::{Cursor, OtherForms};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, StorageError, Store};
use crate::faults;
use crate::ingest::deleter::{DatabaseTurns, is_listed};

/// Documents that are looked at together.
const EXAMINED: usize = 2000;
/// Pages that are rewritten together: all of them are in memory.
const TOGETHER: usize = 32;
/// The wait between two rounds.
const PAUSE: Duration = Duration::from_secs(3600);
/// The wait before a round is tried again that failed, or left something.
const RETRY: Duration = Duration::from_secs(60);

/// The job that rewrites documents of older forms.
pub struct Migrate {
    /// The store as it is, with what is deleted and not removed yet.
    pub raw: Arc<dyn Store>,
    /// Deletions of this process exclude rewriting, database by database.
    pub turns: Arc<DatabaseTurns>,
    /// A run has been started.
    pub has_run: bool,
}

/// The position of a run.
#[derive(Default)]
pub struct MigrateWalk {
    /// The databases that are left; `None` before they were listed.
    databases: Option<VecDeque<String>>,
    from: Option<Cursor>,
    /// Documents of older forms that were found in the current database, and how many of them were rewritten.
    found: u64,
    rewritten: u64,
    /// Documents that could not be rewritten in the databases before.
    left: u64,
    newer: u64,
}

impl Job for Migrate {
    const NAME: &'static str = "migrate";
    type Walk = MigrateWalk;

    fn interval(&self) -> Option<Duration> {
        Some(PAUSE)
    }

    fn is_due(&mut self) -> bool {
        !self.has_run
    }

    async fn step(&mut self, walk: &mut MigrateWalk, run: &Run) -> Result<Step, JobError> {
        let Some(databases) = &mut walk.databases else {
            self.has_run = true;
            run.set("newer", 0);
            run.set_left(None);
            // All databases if somebody asked, whatever was noted of them.
            let listed = if run.is_asked { self.raw.databases().await? } else { self.raw.unmigrated().await? };
            walk.databases = Some(listed.into());
            return Ok(Step::More);
        };
        let Some(database) = databases.front().cloned() else {
            run.set_left(Some(walk.left));
            return Ok(if walk.left > 0 { Step::Again(RETRY) } else { Step::Done });
        };
        let found = self.raw.other_forms(&database, walk.from.as_ref(), EXAMINED).await?;
        let rewritten = self.rewrite(&database, &found).await?;
        run.count("examined", found.examined);
        run.count("rewritten", rewritten);
        walk.newer += found.newer;
        run.set("newer", walk.newer);
        walk.found += found.pages.len() as u64;
        walk.rewritten += rewritten;
        walk.from = found.next;
        if walk.from.is_none() {
            databases.pop_front();
            self.end(&database, walk).await?;
        }
        Ok(Step::More)
    }
}

impl Migrate {
    /// Notes that a database has no document of an older form any more, if that is so.
    async fn end(&self, database: &str, walk: &mut MigrateWalk) -> Result<(), StorageError> {
        let rewritten = std::mem::take(&mut walk.rewritten);
        let left = std::mem::take(&mut walk.found).saturating_sub(rewritten);
        if rewritten + left > 0 {
            tracing::info!(%database, rewritten, left, "documents of older forms rewritten");
        }
        walk.left += left;
        if left == 0 { self.raw.note_migrated(database).await } else { Ok(()) }
    }

    /// Rewrites documents; returns how many. What somebody else changed meanwhile, or the store refuses, the next run finds again.
    async fn rewrite(&self, database: &str, found: &OtherForms) -> Result<u64, StorageError> {
        let mut rewritten = 0;
        let store = &*self.raw;
        for lot in found.pages.chunks(TOGETHER) {
            let turn = self.turns.of(database);
            let _turn = turn.lock().await;
            if !is_listed(store, database).await? {
                // It was dropped since these were listed.
                return Ok(found.pages.len() as u64);
            }
            let mut read: Vec<(&BucketId, Bucket)> = Vec::new();
            for (id, number) in lot {
                // One that cannot be read, or is gone, is none that can be rewritten.
                let page = store.read_pages(database, id, &[*number]).await;
                for page in page.or_else(|error| if error.is_of_document() { Ok(Vec::new()) } else { Err(error) })? {
                    let mut bucket = Bucket::from_stored([page]);
                    bucket.mark_anew(false);
                    read.push((id, bucket));
                }
            }
            let writes: Vec<PageWrite<'_>> =
                read.iter().map(|(id, bucket)| PageWrite { id, bucket, group: vec![0] }).collect();
            let outcomes = store.write_pages(database, &writes).await;
            rewritten += outcomes.iter().filter(|written| **written == Written::Yes).count() as u64;
            let away = |written| match written {
                Written::Failed(error) if error.is_away() => Some(error),
                _ => None,
            };
            outcomes.into_iter().find_map(away).map_or(Ok(()), Err)?;
            faults::point("rewritten");
        }
        Ok(rewritten)
    }
}
