//! The target of `restore` and `copy`: a store that is empty, or that the same command filled in part.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::digest::{compute_digest, must_be_equal, unfinished_hosts};
use crate::access::{Token, TokenFile, TokenStore};
use crate::app::open::{OpenedStore, open_store};
use crate::backup::{FillOptions, Operation, StoreDigest, UnfinishedMark};
use crate::bucket::registry::MemberRegistry;
use crate::bucket::settings::ExpiredReadings;
use crate::bucket::{DatabaseSettings, Store};
use crate::config::Settings;
use crate::reading::Stamp;
use crate::reading::time::TIMESTAMP_MIN;
use crate::store::MergedView;
use crate::verify::unflushed_records;

/// A store that is being filled.
pub struct Target {
    pub store: Arc<MergedView>,
    pub mark: UnfinishedMark,
    pub options: FillOptions,
    tokens: Arc<dyn TokenStore>,
}

/// The store of a target before it is marked.
struct OpenedTarget {
    raw: Arc<dyn Store>,
    opened: OpenedStore,
    /// The command that began to fill it.
    begun: Option<Operation>,
}

/// Opens a store that is empty, or that a command began to fill.
async fn open_target(settings: &Settings) -> anyhow::Result<OpenedTarget> {
    let folder = &settings.server.data_dir;
    let begun = UnfinishedMark::read(folder).with_context(|| format!("reading {}", folder.display()))?;
    let records = unflushed_records(&settings.wal_dir()).context("reading the WAL")?.map_or(0, |log| log.records);
    if records > 0 {
        bail!(
            "the data folder {} is not empty: its WAL has {records} records; choose an empty folder with --data-dir",
            folder.display()
        );
    }
    crate::app::data_folder::make_private(folder)?;
    let (raw, _, opened) = open_store(settings).await?;
    raw.check().await?;
    if begun.is_none() {
        must_be_empty(&*raw).await?;
    }
    Ok(OpenedTarget { raw, opened, begun })
}

impl Target {
    /// Returns an error if the store is not empty, unless a command began to fill it.
    pub async fn check(settings: &Settings) -> anyhow::Result<()> {
        open_target(settings).await?.raw.close().await;
        Ok(())
    }

    /// Opens the store and marks its data folder. `command` is `restore` or `copy`.
    ///
    /// # Errors
    /// If the store is not empty, unless the same command began to fill it.
    pub async fn open(settings: &Settings, command: &str, source: String, stamp: Stamp) -> anyhow::Result<Self> {
        let folder = &settings.server.data_dir;
        let operation = Operation { command: command.to_owned(), source, target: settings.store.uri.identity(), stamp };
        let OpenedTarget { raw, opened, begun } = open_target(settings).await?;
        if let Some(begun) = &begun
            && (&begun.command, &begun.source, &begun.target)
                != (&operation.command, &operation.source, &operation.target)
        {
            let Operation { command, source, .. } = begun;
            bail!(
                "the data folder {} is partly filled by `hourglass backup {command}` from {source}: run that again, or remove the folder \
                 (with MongoDB also the database) to start over",
                folder.display()
            );
        }
        if begun.is_none() {
            // They would cover what is written. An empty store has nothing left of what they delete.
            change_registry(&*raw, |registry| registry.deletions.clear()).await?;
        }
        let mark = UnfinishedMark::open(folder, operation).with_context(|| format!("marking {}", folder.display()))?;
        let stamp = mark.operation().stamp;
        // The filled readings are settled, and every later stamp is greater.
        change_registry(&*raw, |registry| registry.floor = registry.floor.max(stamp)).await?;
        let tokens: Arc<dyn TokenStore> = match opened.mongo() {
            Some(mongo) => mongo,
            None => Arc::new(TokenFile::primary(folder)),
        };
        let options = FillOptions {
            caps: settings.caps(),
            stamp,
            seals: !settings.seal.after.is_zero(),
            seal_form: settings.seal.form,
            recent: settings.sensors.recent,
        };
        let store = super::digest::open_view(raw).await?;
        Ok(Self { store, mark, options, tokens })
    }

    /// Stores tokens that are missing.
    pub async fn put_tokens(&self, tokens: &[Token]) -> anyhow::Result<()> {
        let stored = self.tokens.tokens().await?;
        for token in tokens.iter().filter(|token| !stored.contains(token)) {
            if !self.tokens.put(token, None).await? {
                bail!("there is another token named {:?} already", token.name);
            }
        }
        Ok(())
    }

    /// Stores settings of databases that are missing.
    pub async fn put_settings(&self, rows: Vec<(String, DatabaseSettings)>) -> anyhow::Result<()> {
        let stored: BTreeMap<String, DatabaseSettings> = self.store.raw().read_settings().await?.into_iter().collect();
        for (name, settings) in rows {
            let settings = reset_expiry(settings);
            if stored.get(&name) == Some(&settings) {
                continue;
            }
            if !self.store.raw().write_settings(&name, 0, Some(&settings)).await.applied()? {
                bail!("database {name:?} already has other settings");
            }
        }
        Ok(())
    }

    /// Reads everything back and compares it. Removes the mark if nothing differs.
    pub async fn finish(self, settings: &Settings, expected: &StoreDigest) -> anyhow::Result<StoreDigest> {
        let found = compute_digest(settings, &self.store).await;
        self.store.raw().close().await;
        let found = found?;
        must_be_equal(&found, expected)?;
        self.mark.finish().context("removing the mark of the data folder")?;
        Ok(found)
    }
}

/// Resets the progress of expiry, so that the new store removes expired readings again. Days with only summaries still
/// accept no readings.
fn reset_expiry(settings: DatabaseSettings) -> DatabaseSettings {
    let reset = |expired| ExpiredReadings { done: TIMESTAMP_MIN, ..expired };
    DatabaseSettings { expired: None, expired_readings: settings.expired_readings.map(reset), ..settings }
}

/// Returns an error if the store has a database, or an instance uses it.
pub async fn must_be_empty(store: &dyn Store) -> anyhow::Result<()> {
    let databases = store.databases().await?;
    if let Some(first) = databases.first() {
        let count = databases.len();
        let s = if count == 1 { "" } else { "s" };
        bail!(
            "the store is not empty: it has {count} database{s}, among them {first:?}. Only an empty store can be filled, because \
             otherwise the later of two values is unknown: choose another store or data folder"
        );
    }
    let hosts = unfinished_hosts(store).await?;
    if !hosts.is_empty() {
        bail!(
            "instances use this store, or were killed with unflushed readings ({}): stop them first",
            hosts.join(", ")
        );
    }
    Ok(())
}

/// Changes the registry by compare-and-set.
async fn change_registry(store: &dyn Store, change: impl Fn(&mut MemberRegistry)) -> anyhow::Result<()> {
    loop {
        let before = store.read_registry().await?;
        let mut registry = before.clone();
        change(&mut registry);
        if registry == before || store.write_registry(&registry).await.applied()? {
            return Ok(());
        }
    }
}
