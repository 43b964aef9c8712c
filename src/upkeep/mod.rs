//! Upkeep: background jobs that maintain the store. Each job is a file with its walk. `runner.rs` has the parts that
//! they share: schedule, pacing, retries, runs on demand, status, metrics, logging and shutdown. Does not depend on
//! HTTP.

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
use crate::lanes::Lanes;
use crate::telemetry::Metrics;

/// The number of command timeouts after which copies of metadata are final. A write takes less: it waits for its turn,
/// for the read before it, and for its answer. So no write with older metadata is left by then.
const SETTLE_TIMEOUTS: u32 = 4;

/// Starts all jobs that the store needs.
#[must_use]
pub fn start(ingest: &Ingest, compact: Compact, lanes: Lanes, metrics: Metrics) -> Jobs {
    let Ingest { options, store, dispatch, submitter, retention, member, deleter, .. } = ingest;
    let context = &deleter.context;
    let turns = &deleter.turns;
    let mut jobs = Jobs::new(lanes, metrics);
    let sealer = Arc::new(seal::Sealer::new(context.clone(), turns.clone(), options));
    jobs.add(seal::Seal::new(sealer.clone(), dispatch.clone(), options.seal.form, options.seal.interval));
    jobs.add(expire::Expire::new(retention.clone(), submitter.clone()));
    jobs.add(strip::Strip { sealer, retention: retention.clone(), left: HashMap::new() });
    jobs.add(sweep::Sweep { member: member.clone(), deleter: deleter.clone() });
    jobs.add(outliers::Outliers { store: store.clone() });
    jobs.add(migrate::Migrate { store: store.raw().clone(), member: member.clone() });
    jobs.add(compact);
    if let Some(extras) = context.store.raw().clone().mongo_extras() {
        if extras.keeps_copies() {
            let settle = SETTLE_TIMEOUTS * options.store.command_timeout;
            jobs.add(refresh::Refresh::new(extras.clone(), context.stale_copies.clone(), settle));
        }
        if extras.keeps_groups() {
            jobs.add(group::Group::new(extras.clone()));
        }
        let is_declared = !options.text.is_empty()
            || options.copies.iter().any(|copy| copy.index)
            || options.kinds.all().any(|kind| kind.index || kind.is_checked_in_store());
        jobs.add(index::Index { store: extras, is_declared, has_run: false });
    }
    jobs
}
