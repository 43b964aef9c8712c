//! `GET /api/v1/overview`: the state of the service for operators, in one answer. Served on the main address even if
//! `/metrics` is on `status.listen`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use serde_json::{Value, json};

use super::status;
use crate::access::Effect;
use crate::backup::BackupTimes;
use crate::clock::now_seconds;
use crate::http::admin::jobs;
use crate::http::parameters::Requester;
use crate::http::{App, Health};
use crate::memory::resident_bytes;
use crate::reading::time::rfc3339;

/// `GET /api/v1/overview`.
pub async fn overview(State(app): State<Arc<App>>, Extension(requester): Extension<Requester>) -> Json<Value> {
    let lag = app.ingest.lag();
    let log = app.ingest.submitter.wal.stats();
    let health = app.health.borrow().clone();
    let recent = &app.metrics.recent;
    let samples = recent.samples();
    let disk = recent.disk();
    let last = samples.last();
    let away = match &health {
        Health::StoreAway(reason) => Some(reason.clone()),
        Health::StoreUnusable { cause, .. } => Some(status::unusable_text(*cause)),
        Health::Ready | Health::Stopping => None,
    };
    let terms = app.access.terms(now_seconds());
    let dead_letters =
        app.ingest.flushes.dead_letters.outstanding().await.ok().map(|outstanding| outstanding.readings());
    let backups = BackupTimes::read(&app.settings.server.data_dir);
    // The names of tokens are for those who may list them.
    let can_list_tokens = requester.caller.allows(Effect::AdministerService, None);
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started": rfc3339(app.started.wall_ns),
        "uptime_seconds": app.started.monotonic.elapsed().as_secs(),
        "refusing": status::refusal(&app, &health),
        "rates": {
            "readings_per_second": last.map_or(0.0, |sample| sample.readings_per_second),
            "writes_per_second": last.map_or(0.0, |sample| sample.writes_per_second),
            "readings": lag.ledger.accepted,
        },
        "acks": {
            "p50_seconds": last.and_then(|sample| sample.ack_p50_seconds),
            "p99_seconds": last.and_then(|sample| sample.ack_p99_seconds),
        },
        "store": {
            "away": away, "pending_readings": lag.ledger.pending.max(0), "oldest_pending_seconds": status::age(lag.oldest),
            "failing_databases": app.ingest.failing().len(), "blocked": app.ingest.flushes.blocked.summary(), "dead_letters": dead_letters,
        },
        "log": {
            "bytes": log.bytes, "budget_bytes": app.ingest.wal_budget(), "segments": log.segments, "writable": log.unwritable.is_none(),
            "damaged": log.found.damaged + log.found.in_doubt,
        },
        "memory": { "resident_bytes": resident_bytes(), "limit_bytes": app.settings.server.memory, "unflushed_bytes": lag.unflushed_bytes },
        "disk": {
            "store_bytes": disk.store_bytes, "store_free_bytes": disk.store_free, "log_free_bytes": disk.log_free,
            "days_left": app.store_days_left(),
        },
        "jobs": jobs::list_json(&app.jobs),
        "backup": { "completed": time_from_ms(backups.completed), "proved": time_from_ms(backups.proved) },
        "tokens": { "valid": terms.valid, "first_ends_in_seconds": terms.ends_in },
        "early_timestamps": can_list_tokens.then(|| recent.early_senders()),
        "samples": samples,
    }))
}

/// Returns a time in RFC 3339, or `None` for 0.
fn time_from_ms(millis: u64) -> Option<String> {
    let millis = Some(millis).filter(|millis| *millis > 0)?;
    Some(rfc3339(i64::try_from(millis).ok()?.checked_mul(1_000_000)?))
}
