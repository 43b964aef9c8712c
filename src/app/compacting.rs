//! Gives space back while the service runs: compacts the embedded file, by itself or when asked; tells of each collection of
//! MongoDB what could come back, and has MongoDB compact it when asked to.

use std::sync::Arc;
use std::time::Duration;

use crate::http::{CompactRound, Compacting, SpaceOf};
use crate::store::embedded::{CompactError, FileSpace};
use crate::store::{EmbeddedStore, MongoStore};

/// How often the embedded file is measured, which reads all of it.
const INTERVAL: Duration = Duration::from_secs(3600);
/// Least free bytes for which the file is compacted by itself.
const LEAST_FREE: u64 = 64 << 20;

/// Percent of the file that must be free for it to be compacted by itself.
const FREE_PERCENT: u64 = 50;

/// What is compacted.
pub enum Compacted {
    Embedded(Arc<EmbeddedStore>),
    Mongo(Arc<MongoStore>),
}

/// Compacts again and again.
pub async fn keep_compact(of: Compacted, compacting: Compacting) {
    let by_itself = matches!(of, Compacted::Embedded(_)).then_some(INTERVAL);
    loop {
        let round = compacting.next(by_itself).await;
        let error = match &of {
            Compacted::Embedded(store) => {
                compact_file(store, round, &compacting).await.err().map(|error| error.to_string())
            }
            Compacted::Mongo(store) => compact_collections(store, round, &compacting).await.err(),
        };
        if let Some(error) = &error {
            tracing::warn!(%error, "no space came back");
        }
        compacting.end_round(error);
    }
}

async fn compact_file(
    store: &Arc<EmbeddedStore>,
    round: CompactRound,
    compacting: &Compacting,
) -> Result<(), CompactError> {
    // A small file cannot have that much free space, and need not be read.
    if !round.asked && store.file_bytes() < LEAST_FREE {
        return Ok(());
    }
    let space = store.measure().await?;
    tell_file(compacting, space);
    if !round.asked && !is_worth_it(space) {
        return Ok(());
    }
    tracing::info!(bytes = space.taken, in_use = space.used, "compacting the embedded file");
    let told = compacting.clone();
    compacting.tell(|done| done.rows = 0);
    let taken = store.compact_in_use(move |rows| told.tell(|done| done.rows = rows)).await?;
    let given_back = space.taken.saturating_sub(taken);
    tracing::info!(bytes = taken, given_back, "compacted the embedded file");
    compacting.tell(|done| (done.times, done.given_back) = (done.times + 1, done.given_back + given_back));
    tell_file(compacting, FileSpace { taken, used: space.used.min(taken) });
    Ok(())
}

fn tell_file(compacting: &Compacting, FileSpace { taken, used }: FileSpace) {
    let name = crate::store::embedded::FILE_NAME.to_owned();
    let of_file = SpaceOf { name, bytes: taken, free: taken.saturating_sub(used) };
    compacting.tell(|done| done.spaces = vec![of_file]);
}

/// Whether so much of the file is free that it is compacted by itself; `percent` is 0 for never.
fn is_worth_it(space: FileSpace) -> bool {
    let free = space.taken.saturating_sub(space.used);
    free >= LEAST_FREE && u128::from(free) * 100 >= u128::from(space.taken) * u128::from(FREE_PERCENT)
}

async fn compact_collections(store: &MongoStore, round: CompactRound, compacting: &Compacting) -> Result<(), String> {
    let spaces = store.reusable().await.map_err(|error| error.to_string())?;
    compacting.tell(|done| done.spaces.clone_from(&spaces_of(&spaces)));
    if !round.runs {
        return Ok(());
    }
    for (name, ..) in spaces.iter().filter(|(_, _, free)| *free > 0) {
        let freed = store.compact(name).await.map_err(|error| format!("compacting {name}: {error}"))?;
        tracing::info!(collection = %name, freed, "compacted by MongoDB");
        compacting.tell(|done| {
            (done.times, done.given_back) = (done.times + 1, done.given_back + freed);
        });
    }
    let spaces = store.reusable().await.map_err(|error| error.to_string())?;
    compacting.tell(|done| done.spaces = spaces_of(&spaces));
    Ok(())
}

fn spaces_of(spaces: &[(String, u64, u64)]) -> Vec<SpaceOf> {
    spaces.iter().map(|(name, bytes, free)| SpaceOf { name: name.clone(), bytes: *bytes, free: *free }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compacted_by_itself_when_half_of_it_and_64_mib_are_free() {
        let worth = |taken: u64, used: u64| is_worth_it(FileSpace { taken: taken << 20, used: used << 20 });
        assert!(worth(200, 100) && worth(128, 64));
        assert!(!worth(200, 101), "less than half is free");
        assert!(!worth(127, 64), "less than 64 MiB are free");
        assert!(!worth(100, 200), "measured while it grew");
    }
}
