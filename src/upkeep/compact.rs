//! Gives space back to the disk while the service runs: compacts the embedded file, by itself or when asked, and has MongoDB
//! compact its collections when asked.

use std::sync::Arc;
use std::time::Duration;

use super::job::{Job, JobError, Run};
use crate::store::embedded::FileSpace;
use crate::store::{CollectionSpace, EmbeddedStore, MongoStore};

/// How often the embedded file is measured, which reads all of it.
const PAUSE: Duration = Duration::from_secs(3600);
/// Least free bytes for which the file is compacted by itself.
const LEAST_FREE: u64 = 64 << 20;
/// Percent of the file that must be free for it to be compacted by itself.
const FREE_PERCENT: u64 = 50;

/// The job that gives space back.
pub enum Compact {
    Embedded(Arc<EmbeddedStore>),
    Mongo(Arc<MongoStore>),
}

impl Job for Compact {
    const NAME: &'static str = "compact";

    fn interval(&self) -> Option<Duration> {
        matches!(self, Self::Embedded(_)).then_some(PAUSE)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        match self {
            Self::Embedded(store) => compact_file(store, run).await?,
            Self::Mongo(store) => compact_collections(store, run).await?,
        }
        Ok(None)
    }
}

async fn compact_collections(store: &MongoStore, run: &Run) -> Result<(), JobError> {
    for CollectionSpace { name, bytes, reusable } in measure(store, run).await? {
        if reusable > 0 {
            let freed = store.compact(&name).await?;
            tracing::info!(collection = %name, bytes, free = reusable, freed, "compacted by MongoDB");
            note(freed, run);
        }
    }
    measure(store, run).await.map(drop)
}

async fn compact_file(store: &Arc<EmbeddedStore>, run: &Run) -> Result<(), JobError> {
    // A small file cannot have that much free space, and need not be read.
    if !run.is_asked && store.file_bytes() < LEAST_FREE {
        return Ok(());
    }
    let space = store.measure().await?;
    show(space.taken, space.taken.saturating_sub(space.used), run);
    if !run.is_asked && !is_worth_it(space) {
        return Ok(());
    }
    tracing::info!(bytes = space.taken, in_use = space.used, "compacting the embedded file");
    let copying = run.clone();
    let taken = store.compact_in_use(move |rows| copying.set("rows", rows)).await?;
    let given_back = space.taken.saturating_sub(taken);
    tracing::info!(bytes = taken, given_back, "compacted the embedded file");
    note(given_back, run);
    show(taken, taken.saturating_sub(space.used), run);
    Ok(())
}

/// Measures all collections and reports the totals.
async fn measure(store: &MongoStore, run: &Run) -> Result<Vec<CollectionSpace>, JobError> {
    let spaces = store.collection_spaces().await?;
    let bytes = spaces.iter().map(|space| space.bytes).sum();
    let reusable = spaces.iter().map(|space| space.reusable).sum();
    show(bytes, reusable, run);
    Ok(spaces)
}

fn show(bytes: u64, free: u64, run: &Run) {
    run.set("bytes", bytes);
    run.set("free_bytes", free);
}

fn note(given_back: u64, run: &Run) {
    run.count("times", 1);
    run.count("given_back_bytes", given_back);
}

/// Returns true if so much of the file is free that it is compacted without a request.
fn is_worth_it(space: FileSpace) -> bool {
    let free = space.taken.saturating_sub(space.used);
    free >= LEAST_FREE && u128::from(free) * 100 >= u128::from(space.taken) * u128::from(FREE_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compacted_by_itself_when_half_of_it_and_64_mib_are_free() {
        let is_worth = |taken: u64, used: u64| is_worth_it(FileSpace { taken: taken << 20, used: used << 20 });
        assert!(is_worth(200, 100) && is_worth(128, 64));
        assert!(!is_worth(200, 101), "less than half is free");
        assert!(!is_worth(127, 64), "less than 64 MiB are free");
        assert!(!is_worth(100, 200), "measured while it grew");
    }
}
