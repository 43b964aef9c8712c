//! Rewrites documents of older forms in the form of today. Each by compare-and-set, with the same readings: no reading is
//! lost, doubled or reverted, whoever else writes, deletes, seals or rewrites meanwhile, and if the process stops at any
//! step. A page that a version without stamps wrote keeps its `applied` and gets a floor of 0: its cells stay older than
//! every stamp, and what WALs of that version still have of it merges as before (`bucket::legacy`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::deleter::{DatabaseTurns, is_listed};
use super::flush::task::FlushContext;
use super::migration::Migration;
use crate::bucket::raw::{Cursor, OtherForms};
use crate::bucket::store::{BucketId, PageWrite, Written};
use crate::bucket::{Bucket, StorageError};
use crate::faults;

/// Documents that are looked at together.
const EXAMINED: usize = 2000;
/// Pages that are rewritten together: all of them are in memory.
const TOGETHER: usize = 32;
/// The wait between two rounds.
const PAUSE: Duration = Duration::from_secs(3600);
/// The wait before a round is tried again that failed, or left something.
const RETRY: Duration = Duration::from_secs(60);
/// The longest rest after a step in the background.
const REST_MAX: Duration = Duration::from_secs(5);

pub struct Migrator {
    pub context: Arc<FlushContext>,
    /// Deletions of this process exclude rewriting, database by database.
    pub turns: Arc<DatabaseTurns>,
    /// What was done, and who asks for more.
    pub migration: Migration,
}

/// What a walk does with the documents of older forms that it meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Walk {
    Counts,
    Rewrites,
}

impl Migrator {
    /// Runs until it is aborted.
    pub async fn run(self) {
        let (mut failing, mut pause) = (false, Duration::ZERO);
        loop {
            let asked = self.migration.next(pause).await;
            let round = self.round(asked).await;
            // A store that is away is reported by those who need it.
            if let Some(error) = round.as_ref().err().filter(|error| !failing && !error.is_away()) {
                tracing::warn!(%error, "documents of older forms could not be rewritten; it is tried again");
            }
            failing = round.is_err();
            pause = if failing || self.migration.done().left > 0 { RETRY } else { PAUSE };
            self.migration.end_round(round);
        }
    }

    /// Walks the databases that may have documents of older forms, or all if somebody waits for it.
    async fn round(&self, asked: bool) -> Result<(), StorageError> {
        let store = &*self.context.raw;
        let databases = if asked { store.databases().await? } else { store.unmigrated().await? };
        for database in databases {
            let before = self.migration.done();
            let found = self.walk(&database, asked, Walk::Counts).await?;
            if found > 0 {
                tracing::info!(%database, documents = found, "rewriting documents of older forms");
                self.walk(&database, asked, Walk::Rewrites).await?;
                // What was not rewritten is counted again.
                self.migration.note(|done| (done.left, done.newer) = (before.left, before.newer));
                let left = self.walk(&database, asked, Walk::Counts).await?;
                tracing::info!(%database, left, "documents of older forms rewritten");
                if left > 0 {
                    continue;
                }
            }
            store.note_migrated(&database).await?;
        }
        Ok(())
    }

    /// Looks at all pages of a database; counts those of older forms, or rewrites them. Returns how many it
    /// counted.
    async fn walk(&self, database: &str, asked: bool, walk: Walk) -> Result<u64, StorageError> {
        let (mut from, mut counted): (Option<Cursor>, u64) = (None, 0);
        loop {
            let began = Instant::now();
            let found = self.context.raw.other_forms(database, from.as_ref(), EXAMINED).await?;
            match walk {
                Walk::Rewrites => self.rewrite(database, &found).await?,
                Walk::Counts => {
                    let older = found.pages.len() as u64;
                    counted += older;
                    self.migration.note(|done| {
                        done.examined += found.examined;
                        done.left += older;
                        done.newer += found.newer;
                    });
                }
            }
            if !asked {
                // Flushes and queries have the store for as long as this had it.
                tokio::time::sleep(began.elapsed().min(REST_MAX)).await;
            }
            from = found.next;
            if from.is_none() {
                return Ok(counted);
            }
        }
    }

    async fn rewrite(&self, database: &str, found: &OtherForms) -> Result<(), StorageError> {
        let store = &*self.context.raw;
        for lot in found.pages.chunks(TOGETHER) {
            let turn = self.turns.of(database);
            let _turn = turn.lock().await;
            if !is_listed(store, database).await? {
                // It was dropped since these were listed.
                return Ok(());
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
            self.note(store.write_pages(database, &writes).await)?;
            faults::point("rewritten");
        }
        Ok(())
    }

    /// Counts what was rewritten. What somebody else changed meanwhile, or the store refuses, the next walk counts again.
    fn note(&self, outcomes: Vec<Written>) -> Result<(), StorageError> {
        let rewritten = outcomes.iter().filter(|written| **written == Written::Yes).count() as u64;
        self.migration.note(|done| {
            done.rewritten += rewritten;
            done.left = done.left.saturating_sub(rewritten);
        });
        let away = |written| match written {
            Written::Failed(error) if error.is_away() => Some(error),
            _ => None,
        };
        outcomes.into_iter().find_map(away).map_or(Ok(()), Err)
    }
}
