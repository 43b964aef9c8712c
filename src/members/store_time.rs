//! Evidence of the current time in the store. A machine with a slow clock would otherwise take the latest sealed days
//! for future days, and would neither read them nor expect pages beside them.

use futures_util::future::join_all;

use crate::bucket::registry::MemberRegistry;
use crate::bucket::{StorageError, Store};
use crate::clock::note_passed;
use crate::reading::stamp::stamp_millis;
use crate::reading::time::MILLI_NS;

/// Notes the latest time in a registry. It can be trusted, because instances with a wrong clock do not write the
/// registry.
pub fn note_registry_time(registry: &MemberRegistry) {
    let seen = registry.logs.iter().map(|log| log.seen_ms).max().unwrap_or_default();
    let latest = i64::try_from(seen.max(stamp_millis(registry.floor))).unwrap_or(i64::MAX);
    note_passed(latest.saturating_mul(MILLI_NS));
}

/// Notes the end of each database's latest sealed day, which was over when it was sealed.
///
/// # Errors
/// If the store is away.
pub async fn note_sealed_days(store: &dyn Store) -> Result<(), StorageError> {
    let databases = store.databases().await?;
    // Concurrently, so that a locked database does not delay the others.
    let last_days = join_all(databases.iter().map(|database| store.last_day(database))).await;
    for (database, last_day) in databases.iter().zip(last_days) {
        match last_day {
            Ok(Some(day)) => note_passed(day.hours().end.start_ns()),
            Ok(None) => {}
            Err(error) if error.is_store_unreachable() => return Err(error),
            // Continue: queries of this database fail with an error of their own.
            Err(error) => tracing::warn!(%database, %error, "cannot look up the latest sealed day of a database"),
        }
    }
    Ok(())
}
