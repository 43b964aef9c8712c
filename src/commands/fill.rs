//! Opens a store that `restore` or `copy` fills, which must be empty or half filled by the same command, and ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, bail};

use super::digest::{must_be_equal, open_logs, stored_digest};
use crate::access::{Token, TokenFile, TokenStore};
use crate::backup::{Doing, FillOptions, StoreDigest, Unfinished};
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
    pub mark: Unfinished,
    pub options: FillOptions,
    tokens: Arc<dyn TokenStore>,
}

impl Target {
    /// Opens the store that `restore` or `copy` (`what`) fills, and marks its data folder.
    ///
    /// # Errors
    /// If the store is not empty, unless the same command began to fill it.
    pub async fn open(settings: &Settings, what: &str, from: String, stamp: Stamp) -> anyhow::Result<Self> {
        let folder = &settings.server.data_dir;
        let doing = Doing { what: what.to_owned(), from, to: settings.store.uri.identity(), stamp };
        let begun = Unfinished::of(folder).with_context(|| format!("reading {}", folder.display()))?;
        if let Some(begun) = &begun
            && (&begun.what, &begun.from, &begun.to) != (&doing.what, &doing.from, &doing.to)
        {
            let Doing { what, from, .. } = begun;
            bail!(
                "the data folder {} is half filled by `hourglass backup {what}` from {from}: run that again, or remove the folder \
                 (with MongoDB also the database) to start anew",
                folder.display()
            );
        }
        let records = unflushed_records(&settings.wal_dir()).context("reading the WAL")?.map_or(0, |log| log.records);
        if records > 0 {
            bail!(
                "the data folder {} is not empty: its WAL has {records} records; name an empty folder with --data-dir",
                folder.display()
            );
        }
        crate::app::data_folder::make_private(&settings.server.data_dir)?;
        let (raw, _, opened) = crate::app::open::open_store(settings).await?;
        raw.check().await?;
        if begun.is_none() {
            must_be_empty(&*raw).await?;
        }
        let mark = Unfinished::open(folder, doing).with_context(|| format!("marking {}", folder.display()))?;
        let stamp = mark.doing().stamp;
        raise_floor(&*raw, stamp).await?;
        let tokens: Arc<dyn TokenStore> = match opened.mongo() {
            Some(mongo) => mongo,
            None => Arc::new(TokenFile::own(folder)),
        };
        let options = FillOptions {
            caps: settings.caps(),
            stamp,
            seals: !settings.seal.after.is_zero(),
            seal_form: settings.seal.form,
            recent: settings.sensors.recent,
        };
        let store = super::digest::as_queries_see_it(raw).await?;
        Ok(Self { store, mark, options, tokens })
    }

    /// Stores tokens that are not there yet.
    pub async fn put_tokens(&self, tokens: &[Token]) -> anyhow::Result<()> {
        let there = self.tokens.tokens().await?;
        for token in tokens.iter().filter(|token| !there.contains(token)) {
            if !self.tokens.put(token, None).await? {
                bail!("there is another token named {:?} already", token.name);
            }
        }
        Ok(())
    }

    /// Stores settings of databases.
    pub async fn put_settings(&self, rows: Vec<(String, DatabaseSettings)>) -> anyhow::Result<()> {
        let there: BTreeMap<String, DatabaseSettings> = self.store.raw().read_settings().await?.into_iter().collect();
        for (name, settings) in rows {
            let settings = as_begun(settings);
            if there.get(&name) == Some(&settings) {
                continue;
            }
            if !self.store.raw().write_settings(&name, 0, Some(&settings)).await.applied()? {
                bail!("there are other settings of database {name:?} already");
            }
        }
        Ok(())
    }

    /// Reads everything back and compares it. The mark goes if nothing differs.
    pub async fn finish(self, settings: &Settings, expected: &StoreDigest) -> anyhow::Result<StoreDigest> {
        let found = stored_digest(settings, &self.store).await;
        self.store.raw().close().await;
        let found = found?;
        must_be_equal(&found, expected)?;
        self.mark.finish().context("removing the mark of the data folder")?;
        Ok(found)
    }
}

/// Settings as a store has them that is filled. Expired readings are removed anew. Days of which only summaries are left take no
/// readings here either.
fn as_begun(settings: DatabaseSettings) -> DatabaseSettings {
    let begun = |gone| ExpiredReadings { done: TIMESTAMP_MIN, ..gone };
    DatabaseSettings { expired: None, expired_readings: settings.expired_readings.map(begun), ..settings }
}

/// An error if the store has a database, or an instance uses it.
pub async fn must_be_empty(store: &dyn Store) -> anyhow::Result<()> {
    let databases = store.databases().await?;
    if let Some(first) = databases.first() {
        let (count, s) = (databases.len(), if databases.len() == 1 { "" } else { "s" });
        bail!(
            "the store is not empty: it has {count} database{s}, among them {first:?}. Only an empty store is filled, because \
             nobody could say afterwards which of two values is later: name another store or data folder"
        );
    }
    let hosts = open_logs(store).await?;
    if !hosts.is_empty() {
        bail!(
            "instances use this store, or were killed with unflushed readings ({}): stop them first",
            hosts.join(", ")
        );
    }
    Ok(())
}

/// Everything that is written counts as stored, and every later stamp is greater.
async fn raise_floor(store: &dyn Store, stamp: Stamp) -> anyhow::Result<()> {
    loop {
        let mut registry = store.read_registry().await?;
        if registry.floor >= stamp {
            return Ok(());
        }
        registry.floor = stamp;
        // After a conflict, the registry is read again.
        store.write_registry(&registry).await.applied()?;
    }
}
