//! The settings of databases: this process's copy of them, and their changes by compare-and-set.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::member::Member;
use crate::bucket::settings::{Drift, ExpiredReadings, Settings};
use crate::bucket::{DatabaseSettings, Keep, KnownSettings, Rename, Renames, SealForm, StorageError, Store};
use crate::catalog::deletion::ALWAYS;
use crate::clock::{first_rev, now_ns};
use crate::config::{self, bound_ns};
use crate::reading::time::write_rfc3339;
use crate::reading::{Hour, Stamp};
use crate::store::MergedView;
use crate::{faults, files};

/// The statement of every deletion of expired readings. Its range stands beside it. As all of a database have the same text,
/// the last one takes the place of those before it.
pub const EXPIRY: &str = "DELETE WHERE time < now()";

/// How often the settings are read again where other instances may change them: a change applies everywhere within this.
const REFRESH: Duration = Duration::from_secs(1);
/// How often a change is tried against concurrent writers.
const ATTEMPTS_MAX: usize = 30;

/// A deletion cuts hours of which only summaries are left.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "the readings of database {database:?} before {before} have expired, and of their hours only summaries are left: begin \
         and end the deletion at a whole hour, such as {hour}; nothing was deleted"
)]
pub struct CutsExpired {
    pub database: String,
    /// The time before which readings have expired, in RFC 3339.
    pub before: String,
    /// The start of the hour that is cut.
    pub hour: String,
}

/// The settings of databases, and what follows from them.
pub struct Retention {
    pub store: Arc<MergedView>,
    /// This process's copy.
    pub settings: KnownSettings,
    pub member: Arc<Member>,
    /// The defaults of databases that do not say it themselves, and `retention.interval`.
    pub options: Arc<config::Settings>,
    /// The last known settings, for a start without the store; `None` if the store is always there.
    pub file: Option<PathBuf>,
    /// When the settings were last read from the store.
    pub read: Mutex<Option<Instant>>,
}

impl Retention {
    /// Starts from the settings that the file has, if there is one.
    pub fn recall(&self) {
        let rows = self.file.as_deref().map(read_file).unwrap_or_default();
        // How days are sealed is known once the store was asked.
        self.settings.set(Settings { seal_form: None, ..self.all(rows) });
    }

    fn all(&self, rows: Vec<(String, DatabaseSettings)>) -> Settings {
        let config::Settings { retention, seal, ingest, .. } = &*self.options;
        Settings {
            by_database: rows.into_iter().collect(),
            readings: bound_ns(retention.readings).map(Keep::For),
            summaries: bound_ns(retention.summaries).map(Keep::For),
            seal_form: Some(seal.form),
            drift: ingest.drift,
        }
    }

    /// Keeps this process's copy current, until it is aborted.
    pub async fn keep_current(self: Arc<Self>) {
        let mut is_failing = false;
        loop {
            if !self.is_current() {
                let read = self.refresh().await.map(drop);
                if let (Err(error), false) = (&read, is_failing) {
                    tracing::warn!(%error, "the databases' settings could not be read; it is tried again");
                }
                is_failing = read.is_err();
            }
            tokio::time::sleep(REFRESH.min(self.options.retention.interval)).await;
        }
    }

    /// Whether the settings in memory are those of the store: no other process can have changed them since they were read.
    fn is_current(&self) -> bool {
        !self.store.raw().has_other_writers() && self.read.lock().is_some()
    }

    /// Returns true if the settings were read from the store since the start.
    pub fn is_read(&self) -> bool {
        self.read.lock().is_some()
    }

    /// Reads the settings from the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn refresh(&self) -> Result<Arc<Settings>, StorageError> {
        faults::halt_at("reading_settings").await;
        let asked = Instant::now();
        let rows = self.store.raw().read_settings().await?;
        let settings = self.all(rows);
        {
            let mut read = self.read.lock();
            if read.is_none_or(|read| read <= asked) {
                *read = Some(asked);
                if settings != *self.settings.now() {
                    self.remember(&settings);
                    self.settings.set(settings);
                }
            }
        }
        Ok(self.settings.now())
    }

    fn remember(&self, settings: &Settings) {
        if let Some(file) = &self.file
            && let Err(error) = write_file(file, settings)
        {
            tracing::warn!(%error, file = %file.display(), "the databases' settings cannot be kept for a start without the store");
        }
    }

    /// Changes the settings of a database by compare-and-set, unless they stay as they are; returns them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn change(
        &self,
        database: &str,
        change: impl Fn(&mut DatabaseSettings),
    ) -> Result<DatabaseSettings, StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let held = self.refresh().await?.of(database);
            let mut changed = held.clone();
            change(&mut changed);
            if changed == held {
                return Ok(held);
            }
            // A row created after an earlier one was removed must have another rev than that one.
            changed.rev = if held.rev == 0 { first_rev() } else { held.rev + 1 };
            if self.store.raw().write_settings(database, held.rev, Some(&changed)).await.applied()? {
                self.refresh().await?;
                return Ok(changed);
            }
        }
        Err(contended(database))
    }

    /// Notes that somebody creates a database, with what is set of it from the start, so that no instance knows it without; returns
    /// whether it had no settings.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn note_created(
        &self,
        database: &str,
        at: Stamp,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<bool, StorageError> {
        let is_new = self.refresh().await?.of(database).rev == 0;
        let note = |settings: &mut DatabaseSettings| {
            set(settings);
            settings.created = settings.created.max(at);
        };
        self.change(database, note).await.map(|_| is_new)
    }

    /// Removes the settings of a database.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn remove(&self, database: &str) -> Result<(), StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let rev = self.refresh().await?.of(database).rev;
            if rev == 0 || self.store.raw().write_settings(database, rev, None).await.applied()? {
                return self.refresh().await.map(drop);
            }
        }
        Err(contended(database))
    }

    /// Whether what is left of expired readings can be cut as a deletion asks: only whole hours can.
    ///
    /// # Errors
    /// [`CutsExpired`]
    pub fn check_deletion(&self, database: &str, range: &Range<i64>) -> Result<(), CutsExpired> {
        let settings = self.settings.now();
        let Some(before) = settings.readings_from(database, now_ns()) else { return Ok(()) };
        let gone = settings.of(database).expired.unwrap_or(i64::MIN);
        let cuts =
            |time: &i64| (gone.max(ALWAYS.start + 1)..before).contains(time) && Hour::of(*time).start_ns() != *time;
        let Some(time) = [range.start, range.end].into_iter().find(cuts).filter(|_| !range.is_empty()) else {
            return Ok(());
        };
        let shown = |time: i64| {
            let mut text = String::new();
            write_rfc3339(&mut text, time);
            text
        };
        let (before, hour) = (shown(before), shown(Hour::of(time).start_ns()));
        Err(CutsExpired { database: database.to_owned(), before, hour })
    }

    /// Notes that all readings before a time have gone.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn note_stripped(&self, database: &str, before: i64) -> Result<(), StorageError> {
        let note = |settings: &mut DatabaseSettings| {
            if let Some(gone) = &mut settings.expired_readings {
                gone.done = gone.done.max(before);
            }
        };
        self.change(database, note).await.map(drop)
    }
}

/// Takes a dropped database and its settings off the store's lists, but for what is later than the drop's stamp: that may be
/// carried out long after it was logged, or once more. Returns the settings that stay.
///
/// # Errors
/// If the store does not answer.
pub async fn unlist_dropped(
    store: &dyn Store,
    database: &str,
    dropped: Stamp,
) -> Result<Option<DatabaseSettings>, StorageError> {
    for _ in 0..ATTEMPTS_MAX {
        let rows = store.read_settings().await?;
        let held = rows.into_iter().find(|(name, _)| name == database).map(|(_, held)| held).unwrap_or_default();
        let left = held.left_by_drop(dropped);
        match left {
            // With its collections, which the drop may have taken along.
            Some(_) => store.create_database(database).await?,
            None => store.unlist_database(database).await?,
        }
        if left.as_ref() == Some(&held) {
            return Ok(left);
        }
        faults::point("during_unlisting");
        // Whoever creates the database writes its row first: a conflict says that it is to be listed again.
        let left = left.map(|left| DatabaseSettings { rev: held.rev + 1, ..left });
        if store.write_settings(database, held.rev, left.as_ref()).await.applied()? {
            return Ok(left);
        }
    }
    Err(contended(database))
}

fn contended(database: &str) -> StorageError {
    StorageError::Contended(format!("the settings of {database:?}"))
}

/// The settings as JSON: an array of rows.
#[must_use]
pub fn settings_to_json<'s>(rows: impl IntoIterator<Item = (&'s String, &'s DatabaseSettings)>) -> Value {
    let row = |(database, of): (&String, &DatabaseSettings)| {
        json!({
            "database": database, "rev": of.rev, "readings": of.readings.map(Keep::ns), "default": of.default,
            "replication": of.replication, "shard_duration": of.shard_duration, "expired": of.expired,
            "summaries": of.summaries.map(Keep::ns),
            "expired_readings": of.expired_readings.map(|gone| [json!(gone.before), json!(gone.stamp), json!(gone.done)]),
            "seal_form": of.seal_form.map(SealForm::name), "drift": of.drift.map(Drift::name),
            "created": of.created, "set": of.set,
            "renames": of.renames.entries().iter().map(|entry| entry.fields().collect::<BTreeMap<_, _>>()).collect::<Vec<_>>(),
        })
    };
    rows.into_iter().map(row).collect()
}

/// The settings of such rows; those that are none are left out.
#[must_use]
pub fn settings_of_json(rows: &Value) -> Vec<(String, DatabaseSettings)> {
    let row = |row: &Value| {
        let settings = DatabaseSettings {
            rev: row["rev"].as_u64()?,
            readings: row["readings"].as_i64().map(Keep::from_ns),
            default: row["default"].as_str().map(str::to_owned),
            replication: row["replication"].as_u64().and_then(|count| u32::try_from(count).ok()),
            shard_duration: row["shard_duration"].as_i64(),
            expired: row["expired"].as_i64(),
            summaries: row["summaries"].as_i64().map(Keep::from_ns),
            expired_readings: expired_readings_of(&row["expired_readings"]),
            seal_form: row["seal_form"].as_str().and_then(SealForm::from_name),
            drift: row["drift"].as_str().and_then(Drift::from_name),
            created: row["created"].as_u64().unwrap_or_default(),
            set: row["set"].as_u64().unwrap_or_default(),
            renames: renames_of_json(&row["renames"]),
        };
        Some((row["database"].as_str()?.to_owned(), settings))
    };
    rows.as_array().into_iter().flatten().filter_map(row).collect()
}

/// The renames of such an array; an element that is none is left out.
fn renames_of_json(entries: &Value) -> Renames {
    let entry = |entry: &Value| Rename::from_fields(|name| entry[name].as_str());
    Renames::new(entries.as_array().into_iter().flatten().filter_map(entry).collect())
}

fn expired_readings_of(row: &Value) -> Option<ExpiredReadings> {
    Some(ExpiredReadings { before: row[0].as_i64()?, stamp: row[1].as_u64()?, done: row[2].as_i64()? })
}

/// What the file holds; nothing if it cannot be read.
fn read_file(path: &Path) -> Vec<(String, DatabaseSettings)> {
    let rows = fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok());
    rows.as_ref().map(settings_of_json).unwrap_or_default()
}

fn write_file(path: &Path, settings: &Settings) -> io::Result<()> {
    files::replace(path, &serde_json::to_vec_pretty(&settings_to_json(&settings.by_database))?, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_holds_is_what_was_known() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("settings.json");
        assert_eq!(read_file(&path), []);
        let fields = [("kind", "tag_value"), ("tag", "room"), ("from", "a"), ("to", "b c")];
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let rename = Rename::from_fields(field).expect("an entry");
        let full = DatabaseSettings {
            rev: 1 << 50,
            readings: Some(Keep::Forever),
            default: Some("a \"week\"".to_owned()),
            replication: Some(2),
            shard_duration: Some(3),
            expired: Some(-1),
            summaries: Some(Keep::For(1 << 60)),
            expired_readings: Some(ExpiredReadings { before: -5, stamp: 1 << 62, done: -7 }),
            seal_form: Some(SealForm::Columns),
            drift: Some(Drift::Keep),
            created: 1 << 61,
            set: (1 << 61) + 1,
            renames: Renames::new(vec![rename]),
        };
        let rows = [("d".to_owned(), full), ("d/week".to_owned(), DatabaseSettings { rev: 1, ..Default::default() })];
        let settings = Settings { by_database: rows.clone().into(), ..Settings::default() };
        write_file(&path, &settings).expect("it can be written");
        assert_eq!(read_file(&path), rows);
    }
}
