//! Opens the configured store and WAL.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;

use super::STORE_UNUSABLE;
use super::not_started::NotStarted;
use crate::bucket::store::Coordination;
use crate::bucket::{CopyRule, CopyRules, GroupRule, GroupRules, KindChecks, KindRule, KindRules, Store, Unusable};
use crate::clock::{ClockBounds, StampClock};
use crate::config::{CopySettings, GroupSettings, Settings};
use crate::http::Health;
use crate::kinds::KindAction;
use crate::store::embedded::FileOpenError;
use crate::store::{EmbeddedStore, MongoOptions, MongoStore, free_bytes};
use crate::upkeep::Compact;
use crate::wal::{self, Folder, Recovery, Wal, WalOpenError};

/// Opens the store and checks its health. An unreachable MongoDB is no error, but an unusable one is.
pub(crate) async fn open_store(settings: &Settings) -> anyhow::Result<(Arc<dyn Store>, Health, OpenedStore)> {
    let directory = &settings.server.data_dir;
    if settings.store.uri.is_embedded() {
        let store = EmbeddedStore::open(directory, settings.embedded.cache_bytes).map_err(|error| {
            let is_in_use = matches!(error, FileOpenError::InUse(_));
            NotStarted::if_in_use(is_in_use, error, "opening the embedded store".to_owned())
        })?;
        let store = Arc::new(store);
        if !settings.copies.is_empty() {
            tracing::warn!("[[meta.copy]] has no effect on the embedded store: pages hold no copies of metadata");
        }
        return Ok((store.clone(), Health::Ready, OpenedStore::Embedded(store)));
    }
    let store = open_mongo(settings).await?;
    let health = Health::from_check(store.check().await);
    match &health {
        Health::StoreUnusable { cause: Unusable::Older, detail } => {
            anyhow::bail!("store: {} ({detail}): {}", Unusable::Older, Unusable::Older.advice());
        }
        Health::StoreUnusable { cause, detail } if !has_served(settings) => {
            return Err(NotStarted::unavailable(format!(
                "store: {cause} ({detail}): {}; nothing was started, because this data folder was never in use",
                cause.advice()
            ))
            .into());
        }
        Health::StoreUnusable { cause, detail } => tracing::error!(class = %cause, %detail, "{STORE_UNUSABLE}"),
        Health::StoreAway(reason) => {
            tracing::warn!(error = %reason, "MongoDB is not available yet; until it is, writes stay in the WAL and queries are answered with 503");
        }
        Health::Ready | Health::Stopping => {}
    }
    Ok((store.clone(), health, OpenedStore::Mongo(store)))
}

/// The opened store by its kind.
pub(crate) enum OpenedStore {
    Embedded(Arc<EmbeddedStore>),
    Mongo(Arc<MongoStore>),
}

impl OpenedStore {
    pub(crate) fn mongo(&self) -> Option<Arc<MongoStore>> {
        match self {
            Self::Embedded(_) => None,
            Self::Mongo(store) => Some(store.clone()),
        }
    }

    pub(crate) fn compact_job(self) -> Compact {
        match self {
            Self::Embedded(store) => Compact::Embedded(store),
            Self::Mongo(store) => Compact::Mongo(store),
        }
    }
}

/// Returns true if the data folder has a WAL. Devices may rely on this service already, so it must keep accepting
/// readings.
fn has_served(settings: &Settings) -> bool {
    std::fs::read_dir(settings.wal_dir()).is_ok_and(|mut files| files.next().is_some())
}

/// Returns the rules by which metadata is copied into pages and days.
fn copy_rules(settings: &Settings) -> CopyRules {
    let rule = |copy: &CopySettings| CopyRule {
        name: copy.name.as_str().into(),
        database: copy.database.as_deref().map(Into::into),
        has_index: copy.index,
    };
    CopyRules::new(settings.copies.iter().map(rule))
}

/// Returns the rules by which sensors are grouped.
pub(crate) fn group_rules(settings: &Settings) -> GroupRules {
    let rule = |group: &GroupSettings| GroupRule {
        name: group.name.as_str().into(),
        source: group.by.as_str().into(),
        database: group.database.as_deref().map(Into::into),
    };
    GroupRules::new(settings.groups.iter().map(rule))
}

/// Returns the kinds of sensors that documents name.
fn kind_rules(settings: &Settings) -> KindRules {
    KindRules::new(settings.kinds.all().map(|kind| KindRule {
        name: kind.name.as_str().into(),
        measurement: kind.measurement.as_deref().map(Into::into),
        has_index: kind.index,
        checks: KindChecks {
            rejects: kind.action == KindAction::Reject,
            meta: kind.meta.as_ref().map(|schema| schema.json().clone()),
            fields: kind.fields.as_ref().map(|schema| schema.json().clone()),
            unique: kind.unique.iter().map(|path| path.as_str().into()).collect(),
        },
    }))
}

pub(crate) async fn open_mongo(settings: &Settings) -> anyhow::Result<Arc<MongoStore>> {
    let options = MongoOptions {
        command_timeout: settings.store.command_timeout,
        seal_form: settings.seal.form,
        copies: copy_rules(settings),
        groups: group_rules(settings),
        text: settings.text.clone(),
        kinds: kind_rules(settings),
    };
    Ok(Arc::new(MongoStore::open(settings.store.uri.expose(), options).await.context("opening the store")?))
}

pub(crate) async fn open_wal(settings: &Settings, stamps: &Arc<StampClock>) -> anyhow::Result<(Wal, Recovery)> {
    let folder = settings.wal_dir();
    let shown = folder.display().to_string();
    let disk = Folder::new(&folder).with_context(|| format!("creating {shown}"))?;
    let options = wal::WalOptions {
        segment_bytes: settings.wal.segment_bytes as u64,
        budget_bytes: settings.wal.budget_bytes as u64,
        queue_bytes: settings.wal.queue_bytes as u64,
        compress: settings.wal.compress,
        least: least_sequence(stamps.clone()).context("reading the system's random bytes")?,
        room: wal_room(settings, &folder),
        ..wal::WalOptions::new(settings.store.uri.identity())
    };
    let started = Instant::now();
    let opened = tokio::task::spawn_blocking(move || Wal::open(disk, options)).await?;
    let (log, recovery) = opened.map_err(|error| {
        let is_in_use = matches!(error, WalOpenError::Locked);
        NotStarted::if_in_use(is_in_use, error, format!("opening the WAL in {shown}"))
    })?;
    let milliseconds = started.elapsed().as_millis();
    let Recovery { last, truncated, unwritable, .. } = &recovery;
    tracing::info!(
        bytes = log.bytes(),
        segments = log.segments(),
        backlog = last > truncated,
        milliseconds,
        "WAL opened"
    );
    if let Some(reason) = unwritable {
        tracing::error!(%reason, "the WAL is not writable; writes are answered with 503 until it is");
    }
    Ok((log, recovery))
}

/// Keeps as much space for an embedded store on the disk of the WAL as the WAL takes. On a full disk, the WAL would
/// otherwise take all space, and the store could not take readings out of it.
fn wal_room(settings: &Settings, wal_dir: &Path) -> wal::Room {
    let folder = settings.server.data_dir.clone();
    let device = |folder: &Path| std::fs::metadata(folder).map(|found| found.dev()).ok();
    if !settings.store.uri.is_embedded() || device(&folder) != device(wal_dir) {
        return wal::Room::default();
    }
    wal::Room::new(move |bytes| {
        if free_bytes(&folder)? >= bytes {
            return Ok(());
        }
        let reason = format!(
            "the disk has less free space than the {} MiB of the WAL, which are kept for the store",
            bytes >> 20
        );
        Err(io::Error::new(io::ErrorKind::StorageFull, reason))
    })
}

/// Makes stamps the lower bound of the WAL's sequence numbers.
fn least_sequence(stamps: Arc<StampClock>) -> anyhow::Result<wal::LeastSequence> {
    let mut random = [0];
    getrandom::fill(&mut random).map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(wal::LeastSequence::new(move || stamps.stamp(random[0])))
}

/// Returns the bounds of the offset from the clock of the store.
pub(crate) fn clock_bounds(settings: &Settings) -> ClockBounds {
    ClockBounds { tolerance: settings.clock.tolerance, max_offset: settings.clock.max_offset }
}
