//! Upkeep: background jobs that keep the store in shape. A job is one file with its walk; `runner.rs` owns what all of them
//! share: schedule, pacing, retries, runs on demand, status, metrics, logging and the stop. Knows ingest and the store;
//! knows nothing of HTTP.

mod compact;
mod expire;
mod group;
mod index;
mod job;
mod migrate;
mod outliers;
mod refresh;
mod runner;
mod seal;
mod strip;
mod sweep;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::compact::Compact;
pub use self::runner::{JobState, JobStatus, Jobs};
use crate::ingest::Ingest;
use crate::telemetry::Metrics;

/// Starts all jobs that the store needs.
#[must_use]
pub fn start(ingest: &Ingest, compact: Compact, metrics: Metrics) -> Jobs {
    let Ingest { options, store, dispatch, submitter, retention, member, deleter, .. } = ingest;
    let (context, turns) = (&deleter.context, &deleter.turns);
    let raw = &context.raw;
    let mut jobs = Jobs::new(metrics);
    let sealer = Arc::new(seal::Sealer::new(context.clone(), turns.clone(), options));
    jobs.add(seal::Seal::new(sealer.clone(), dispatch.clone(), options.seal_form, options.seal_pause));
    jobs.add(expire::Expire::new(retention.clone(), submitter.clone()));
    jobs.add(strip::Strip { sealer, retention: retention.clone(), left: HashMap::new() });
    jobs.add(sweep::Sweep { member: member.clone(), deleter: deleter.clone() });
    jobs.add(migrate::Migrate { raw: raw.clone(), turns: turns.clone(), has_run: false });
    jobs.add(outliers::Outliers { store: store.clone(), ttl_ns: options.outlier_ttl_ns() });
    jobs.add(compact);
    if store.keeps_copies() {
        jobs.add(refresh::Refresh::new(raw.clone(), context.stale_copies.clone(), options.copies_settle));
    }
    if store.keeps_groups() {
        jobs.add(group::Group::new(raw.clone()));
    }
    if store.is_shared() {
        let is_declared = options.declares_indexes;
        jobs.add(index::Index { raw: raw.clone(), is_declared, has_run: false });
    }
    jobs
}
