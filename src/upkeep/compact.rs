//! Returns free space to the disk while the service runs. Compacts the embedded file on a schedule or on request, and
//! the collections in MongoDB on request only.

use std::sync::Arc;
use std::time::Duration;

use super::job::{Job, JobError, Run};
use crate::store::embedded::FileSpace;
use crate::store::{CollectionSpace, EmbeddedStore, MongoStore};

/// The interval at which the embedded file is measured, which reads all of it.
const PAUSE: Duration = Duration::from_secs(3600);
/// Minimum free bytes at which the file is compacted without a request.
const FREE_BYTES_MIN: u64 = 64 << 20;
/// Minimum free percentage of the file at which it is compacted without a request.
const FREE_PERCENT_MIN: u64 = 50;

/// The job that returns free space to the disk.
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
    // Skip a small file without reading it, because it cannot have enough free space.
    if !run.is_asked && store.file_bytes() < FREE_BYTES_MIN {
        return Ok(());
    }
    let space = store.measure().await?;
    show(space.taken, space.taken.saturating_sub(space.used), run);
    if !run.is_asked && !has_enough_free(space) {
        return Ok(());
    }
    tracing::info!(bytes = space.taken, in_use = space.used, "compacting the embedded file");
    let copying = run.clone();
    let taken = store.compact_in_use(move |rows| copying.set("rows", rows)).await?;
    let freed = space.taken.saturating_sub(taken);
    tracing::info!(bytes = taken, freed, "compacted the embedded file");
    note(freed, run);
    show(taken, taken.saturating_sub(space.used), run);
    Ok(())
}

/// Measures all collections and reports the totals. Returns the space of each collection.
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

fn note(freed: u64, run: &Run) {
    run.count("times", 1);
    run.count("given_back_bytes", freed);
}

/// Returns true if enough of the file is free to compact it without a request.
fn has_enough_free(space: FileSpace) -> bool {
    let free = space.taken.saturating_sub(space.used);
    free >= FREE_BYTES_MIN && u128::from(free) * 100 >= u128::from(space.taken) * u128::from(FREE_PERCENT_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compacted_if_half_of_it_and_64_mib_are_free() {
        let is_due = |taken: u64, used: u64| has_enough_free(FileSpace { taken: taken << 20, used: used << 20 });
        assert!(is_due(200, 100) && is_due(128, 64));
        assert!(!is_due(200, 101), "less than half is free");
        assert!(!is_due(127, 64), "less than 64 MiB are free");
        assert!(!is_due(100, 200), "measured while it grew");
    }
}
