//! A line in the log for every minute of an outage of the store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use crate::http::{App, Health};

/// Interval of the lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Logs a line at an interval while the store is unavailable, until the service stops.
pub(super) async fn log_outages(app: Arc<App>) {
    let mut health = app.health.clone();
    loop {
        let changed = health.wait_for(|health| health.is_away() || *health == Health::Stopping).await;
        if !changed.is_ok_and(|health| health.is_away()) {
            return;
        }
        let start = Instant::now();
        let appended = app.ingest.submitter.wal.stats().appended_bytes;
        while timeout(LOG_INTERVAL, health.wait_for(|health| !health.is_away())).await.is_err() {
            log_outage(&app, start, appended);
        }
    }
}

/// Logs how long the store has been unavailable, the readings that wait for it, and how long the WAL will last.
fn log_outage(app: &App, start: Instant, appended_before: u64) {
    let wal = app.ingest.submitter.wal.stats();
    let budget = app.ingest.wal_budget().saturating_sub(wal.bytes);
    let free = app.metrics.recent.disk().log_free.map_or(budget, |free| free.min(budget));
    let elapsed = start.elapsed();
    tracing::warn!(
        minutes = elapsed.as_secs() / 60,
        pending_readings = app.ingest.lag().ledger.pending.max(0),
        wal_bytes = wal.bytes,
        wal_full_in_minutes = minutes_left(free, wal.appended_bytes.saturating_sub(appended_before), elapsed),
        "the store is still unavailable"
    );
}

/// Returns the minutes until `free` bytes are used at the rate of `written` bytes in `elapsed`; `None` if nothing is
/// written.
fn minutes_left(free: u64, written: u64, elapsed: Duration) -> Option<u64> {
    let milliseconds = (u128::from(free) * elapsed.as_millis()).checked_div(u128::from(written))?;
    u64::try_from(milliseconds / 60_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_lasts_as_long_as_its_space_at_this_rate() {
        let minute = Duration::from_secs(60);
        assert_eq!(minutes_left(1000, 10, minute), Some(100));
        assert_eq!(minutes_left(1000, 2000, minute), Some(0));
        assert_eq!(minutes_left(1000, 0, minute), None);
    }
}
