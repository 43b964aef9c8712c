//! Builds the parts of the ingest path and starts their tasks.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Semaphore, mpsc};

use super::Ingest;
use super::mappings::ParsedMappings;
use super::meta::MetaTurns;
use crate::bucket::deletions::StatementCompiler;
use crate::bucket::{HourVersions, KnownSettings};
use crate::buffer::deleter::{DatabaseTurns, Deleter};
use crate::buffer::dispatch::backlog::Backlog;
use crate::buffer::dispatch::backlog::scan::scan;
use crate::buffer::dispatch::{self, Dispatch, Replay};
use crate::buffer::flush::blocked::BlockedBuckets;
use crate::buffer::flush::chunks::DirectRules;
use crate::buffer::flush::dead_letters::DeadLetters;
use crate::buffer::flush::failing::FailingDatabases;
use crate::buffer::flush::lifetimes::OutdatedLifetimes;
use crate::buffer::flush::stale_copies::StaleCopies;
use crate::buffer::flush::task::FlushContext;
use crate::buffer::shard::Shard;
use crate::buffer::truncate::{self, Closing};
use crate::catalog::lookup::{SensorLookup, StorePresence};
use crate::catalog::{Catalog, silence};
use crate::clock::{StampClock, now_ns};
use crate::config::Settings;
use crate::ingest::admission::in_validation::InValidation;
use crate::ingest::admission::submit::Submitter;
use crate::ingest::rejections::Rejections;
use crate::ingest::request_keys::{KeyOptions, REQUEST_KEYS_MAX, RequestKeys};
use crate::ingest::tail::Tail;
use crate::members::folder_mark::FolderMark;
use crate::members::member::Member;
use crate::members::positions::WalPositions;
use crate::members::registry_view::RegistryView;
use crate::members::retention::Retention;
use crate::reading::stamp::stamp_millis;
use crate::store::MergedView;
use crate::telemetry::Metrics;
use crate::wal::{Recovery, Wal};

/// Returns the host name, which the registry shows to operators.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "a host".to_owned(), |name| name.trim().to_owned())
}

impl Ingest {
    /// Starts the shards, the replay of the WAL and the other tasks. The shards end once [`Ingest`] is dropped and
    /// everything is stored or cannot be stored at present. [`Closing`] waits for that. `compiler` parses the
    /// statement of a deletion into a predicate on sensors.
    #[must_use]
    pub fn start(
        options: Arc<Settings>,
        store: Arc<MergedView>,
        compiler: StatementCompiler,
        wal: Wal,
        recovery: &Recovery,
        clock: Arc<StampClock>,
        metrics: Metrics,
    ) -> (Self, Closing) {
        let wal = Arc::new(wal);
        let positions = WalPositions::new(recovery.truncated, recovery.last, options.memtable.max_bytes);
        let presence = StorePresence::default();
        let changes = Arc::<HourVersions>::default();
        let rejections = Arc::new(Rejections::open(options.rejections_dir(), &options.rejections));
        let key_options = KeyOptions {
            folder: options.server.data_dir.join("request-keys"),
            window: options.ingest.idempotency_window,
            count_max: REQUEST_KEYS_MAX,
        };
        let request_keys = RequestKeys::open(key_options, now_ns());
        let registry_view = Arc::new(RegistryView::new(
            store.masks().clone(),
            compiler.clone(),
            recovery,
            store.raw().has_other_writers(),
        ));
        let mark = FolderMark::new(&options.wal_dir());
        let horizon_ms = u64::try_from(options.wal.horizon.as_millis()).unwrap_or(u64::MAX);
        let is_held =
            |since_ms: u64| clock.now_ms().saturating_sub(since_ms.max(stamp_millis(recovery.last))) < horizon_ms;
        if mark.since_ms().is_some_and(is_held) {
            // The registry still has the entry of this folder, so the floor already waits for this WAL.
            registry_view.note_joined();
        }
        let settings = KnownSettings::default();
        let flushes = Arc::new(FlushContext {
            store: store.clone(),
            metrics: metrics.clone(),
            caps: options.caps(),
            registry_view: registry_view.clone(),
            clock: clock.clone(),
            presence: presence.clone(),
            failing: FailingDatabases::default(),
            dead_letters: DeadLetters::new(options.dead_letters_dir()),
            changes: changes.clone(),
            blocked: BlockedBuckets::default(),
            recent: options.sensors.recent,
            bytes: options.flush_task_bytes(),
            read_back_bytes: AtomicUsize::new(0),
            direct: DirectRules::new(&options),
            settings: settings.clone(),
            stale_copies: StaleCopies::default(),
            lifetimes: OutdatedLifetimes::default(),
        });
        let mut inboxes = Vec::new();
        let mut shards = Vec::new();
        for number in 0..options.ingest.shards {
            // `dispatch` bounds this channel by the memory for unflushed readings.
            let (sender, inbox) = mpsc::unbounded_channel();
            let shard = Shard::new(number, &options, flushes.clone(), positions.clone());
            shards.push(tokio::spawn(shard.run(inbox)));
            inboxes.push(sender);
        }
        let catalog = Arc::new(Catalog::new(&options));
        let lookup =
            SensorLookup { store: store.clone(), catalog: catalog.clone(), presence, metrics: metrics.clone() };
        // Bounded like the inboxes of shards, because a deletion's record counts as unflushed until it is carried out.
        let (deletions, deleter_inbox) = mpsc::unbounded_channel();
        let sensors_max = dispatch::backlog::sensors_max(options.memtable.max_bytes);
        let backlog = Backlog::new(recovery.truncated, recovery.last, sensors_max);
        let dispatch = Arc::new(Dispatch {
            positions: positions.clone(),
            backlog: Arc::new(backlog),
            catalog: catalog.clone(),
            shards: inboxes,
            deleter: deletions,
            marks: registry_view.marks(),
        });
        let deleter = Arc::new(Deleter {
            context: flushes.clone(),
            dispatch: dispatch.clone(),
            compiler,
            opening: recovery.opening,
            turns: Arc::default(),
            removals: DatabaseTurns::default(),
            unswept: parking_lot::Mutex::default(),
        });
        let member = Arc::new(Member {
            store: store.raw().clone(),
            log: wal.clone(),
            wal_id: recovery.log,
            opening: recovery.opening,
            positions: positions.clone(),
            registry_view,
            clock,
            catalog: catalog.clone(),
            changes,
            metrics: metrics.clone(),
            horizon: options.wal.horizon,
            last: recovery.last,
            mark,
            cluster: OnceLock::new(),
            host: format!("{} pid {}", hostname(), std::process::id()),
        });
        let replay = Replay {
            dispatch: dispatch.clone(),
            log: wal.clone(),
            last_at_start: recovery.last,
            lookup: lookup.clone(),
        };
        let mut tasks = vec![
            tokio::spawn(replay.run()),
            tokio::spawn(scan(dispatch.clone(), wal.clone(), recovery.last)),
            tokio::spawn(deleter.clone().run(deleter_inbox)),
            tokio::spawn(truncate::truncate_at_intervals(
                wal.clone(),
                positions.clone(),
                options.wal.budget_bytes as u64,
            )),
            tokio::spawn(member.clone().run()),
            tokio::spawn(rejections.clone().keep_saving()),
        ];
        if !options.sensors.silent_after.is_zero() || options.kinds.have_intervals() {
            let after = options.sensors.silent_after;
            let kinds = options.kinds.clone();
            tasks.push(tokio::spawn(silence::watch(catalog.clone(), after, kinds, metrics.clone())));
        }
        let bytes = Arc::new(Semaphore::new(options.ingest.bytes_in_flight));
        let submitter = Arc::new(Submitter {
            wal: wal.clone(),
            dispatch: dispatch.clone(),
            member: member.clone(),
            tail: Tail::new(&options.tail),
            in_validation: InValidation::default(),
            ack_timeout: options.ingest.ack_timeout,
            deletions: options.limits.deletions,
            owners: OnceLock::new(),
        });
        let retention = Arc::new(Retention {
            store: store.clone(),
            settings,
            member: member.clone(),
            options: options.clone(),
            file: store.raw().has_other_writers().then(|| options.server.data_dir.join("settings.json")),
            read: parking_lot::Mutex::default(),
        });
        retention.load_file();
        tasks.push(tokio::spawn(retention.clone().keep_current()));
        let closing = Closing { shards, log: wal, positions, member: member.clone() };
        let ingest = Self {
            options,
            store,
            catalog,
            lookup,
            submitter,
            retention,
            dispatch,
            flushes,
            rejections,
            request_keys,
            mappings: ParsedMappings::default(),
            bytes,
            metrics,
            member,
            deleter,
            meta_turns: MetaTurns::default(),
            tasks,
        };
        (ingest, closing)
    }
}
