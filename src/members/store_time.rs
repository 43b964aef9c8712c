//! What the store tells of the time, for a machine whose clock is behind: without that it would not look for sealed days that
//! it takes for days to come, nor know that pages stand beside them.

use futures_util::future::join_all;

use crate::bucket::registry::MemberRegistry;
use crate::bucket::{StorageError, Store};
use crate::clock::note_passed;
use crate::reading::stamp::millis_of;
use crate::reading::time::MILLI_NS;

/// Notes the latest time in a registry: instances whose clock is wrong write none.
pub fn note_registry(registry: &MemberRegistry) {
    let seen = registry.logs.iter().map(|log| log.seen_ms).max().unwrap_or_default();
    let latest = i64::try_from(seen.max(millis_of(registry.floor))).unwrap_or(i64::MAX);
    note_passed(latest.saturating_mul(MILLI_NS));
}

/// Notes the ends of the latest sealed days: each was over when it was sealed.
///
/// # Errors
/// If the store is away.
pub async fn note_sealed(store: &dyn Store) -> Result<(), StorageError> {
    let databases = store.databases().await?;
    // Together: one that is locked holds up no other.
    let found = join_all(databases.iter().map(|database| store.last_day(database))).await;
    for (database, last) in databases.iter().zip(found) {
        match last {
            Ok(last) => last.into_iter().for_each(|day| note_passed(day.hours().end.start_ns())),
            Err(error) if error.is_of_store() => return Err(error),
            // Queries of this database fail, too.
            Err(error) => {
                tracing::warn!(%database, %error, "the latest sealed day of a database could not be looked up")
            }
        }
    }
    Ok(())
}
