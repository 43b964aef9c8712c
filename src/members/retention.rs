//! The settings of databases: this process's copy, and changes by compare-and-set.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::member::Member;
use crate::bucket::settings::{Drift, ExpiredReadings, Settings};
use crate::bucket::{DatabaseSettings, Keep, KnownSettings, Rename, Renames, SealForm, StorageError, Store};
use crate::catalog::deletion::ALWAYS;
use crate::clock::{expiry_ns, first_rev};
use crate::config::{self, bound_ns};
use crate::reading::time::write_rfc3339;
use crate::reading::{Hour, Stamp};
use crate::store::MergedView;
use crate::{faults, files};

/// The statement of every deletion of expired readings; the time range is stored separately. All such deletions of a
/// database have the same text, so that the last one replaces the earlier ones in the registry.
pub const EXPIRY: &str = "DELETE WHERE time < now()";

/// The time between two reads of the settings if other instances may change them. A change applies everywhere within
/// it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The number of attempts to change settings against concurrent writers.
const ATTEMPTS_MAX: usize = 30;

/// The error of a deletion that would split an hour of which only summaries are left.
#[derive(Debug, Clone, thiserror::Error)]
#[error(
    "cannot delete a part of an hour in database {database:?} before {before}, because its readings have expired and only \
     summaries are left: begin and end the deletion at a whole hour, such as {hour}; nothing was deleted"
)]
pub struct ExpiredHourSplit {
    pub database: String,
    /// The time before which readings have expired, in RFC 3339.
    pub before: String,
    /// The start of the hour that would be split.
    pub hour: String,
}

/// The settings of databases and the rules that follow from them.
pub struct Retention {
    pub store: Arc<MergedView>,
    /// This process's copy.
    pub settings: KnownSettings,
    pub member: Arc<Member>,
    /// The configuration, with the defaults of databases and `retention.interval`.
    pub options: Arc<config::Settings>,
    /// The file with the last known settings, for a start without the store; `None` if the store is always there.
    pub file: Option<PathBuf>,
    /// The time of the last read from the store.
    pub read: Mutex<Option<Instant>>,
}

impl Retention {
    /// Loads the settings from the file, if there is one.
    pub fn load_file(&self) {
        let rows = self.file.as_deref().map(read_file).unwrap_or_default();
        // The form of sealed days is unknown until the settings were read from the store.
        self.settings.set(Settings { seal_form: None, ..self.with_defaults(rows) });
    }

    /// Combines the stored rows with the configured defaults.
    fn with_defaults(&self, rows: Vec<(String, DatabaseSettings)>) -> Settings {
        let config::Settings { retention, seal, ingest, .. } = &*self.options;
        Settings {
            by_database: rows.into_iter().collect(),
            readings: bound_ns(retention.readings).map(Keep::For),
            summaries: bound_ns(retention.summaries).map(Keep::For),
            seal_form: Some(seal.form),
            drift: ingest.drift,
        }
    }

    /// Keeps this process's copy current until the task is aborted.
    pub async fn keep_current(self: Arc<Self>) {
        let mut is_failing = false;
        loop {
            if !self.is_current() {
                let read = self.refresh().await.map(drop);
                if let Err(error) = &read
                    && !is_failing
                {
                    tracing::warn!(%error, "cannot read the settings of databases; retrying");
                }
                is_failing = read.is_err();
            }
            tokio::time::sleep(REFRESH_INTERVAL.min(self.options.retention.interval)).await;
        }
    }

    /// Returns true if the copy was read, and no other process can have changed the settings since.
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
        let start = Instant::now();
        let known = self.settings.now();
        let rows = self.store.raw().reread_settings(&known.by_database).await?;
        let settings = self.with_defaults(rows);
        {
            let mut read = self.read.lock();
            // Ignore the result of a read that began before the last applied one.
            if read.is_none_or(|read| read <= start) {
                *read = Some(start);
                if settings != *self.settings.now() {
                    self.save_file(&settings);
                    self.settings.set(settings);
                }
            }
        }
        Ok(self.settings.now())
    }

    fn save_file(&self, settings: &Settings) {
        if let Some(file) = &self.file
            && let Err(error) = write_file(file, settings)
        {
            tracing::warn!(%error, file = %file.display(), "cannot save the settings of databases for a start without the store");
        }
    }

    /// Changes the settings of a database by compare-and-set and returns them. Writes nothing if `change` leaves them
    /// equal.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn change(
        &self,
        database: &str,
        change: impl Fn(&mut DatabaseSettings),
    ) -> Result<DatabaseSettings, StorageError> {
        self.change_if(database, |_| Ok(()), change).await
    }

    /// As [`Retention::change`], if `check` accepts the settings that are changed.
    ///
    /// # Errors
    /// Those of `check`, and if the store does not answer.
    pub async fn change_if<E: From<StorageError>>(
        &self,
        database: &str,
        check: impl Fn(&Settings) -> Result<(), E>,
        change: impl Fn(&mut DatabaseSettings),
    ) -> Result<DatabaseSettings, E> {
        for _ in 0..ATTEMPTS_MAX {
            let settings = self.refresh().await?;
            check(&settings)?;
            let held = settings.for_database(database);
            let mut changed = held.clone();
            change(&mut changed);
            if changed == held {
                return Ok(held);
            }
            // A new row must not have the `rev` of a removed row.
            changed.rev = if held.rev == 0 { first_rev() } else { held.rev + 1 };
            if self.store.raw().write_settings(database, held.rev, Some(&changed)).await.applied()? {
                self.refresh().await?;
                return Ok(changed);
            }
        }
        Err(contended_error(database).into())
    }

    /// Notes the creation of a database at a stamp, together with the initial settings that `set` makes, so that no
    /// instance sees the database without them. Returns true if it had no settings before.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn note_created(
        &self,
        database: &str,
        created: Stamp,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<bool, StorageError> {
        let is_new = self.refresh().await?.for_database(database).rev == 0;
        let note = |settings: &mut DatabaseSettings| {
            set(settings);
            settings.created = settings.created.max(created);
        };
        self.change(database, note).await.map(|_| is_new)
    }

    /// Removes the settings of a database.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn remove(&self, database: &str) -> Result<(), StorageError> {
        for _ in 0..ATTEMPTS_MAX {
            let rev = self.refresh().await?.for_database(database).rev;
            if rev == 0 || self.store.raw().write_settings(database, rev, None).await.applied()? {
                return self.refresh().await.map(drop);
            }
        }
        Err(contended_error(database))
    }

    /// Checks that a deletion does not split an hour whose readings have expired: summaries cannot be split.
    ///
    /// # Errors
    /// [`ExpiredHourSplit`] if it does.
    pub fn check_deletion(&self, database: &str, range: &Range<i64>) -> Result<(), ExpiredHourSplit> {
        let settings = self.settings.now();
        let Some(before) = settings.readings_start(database, expiry_ns()) else { return Ok(()) };
        if range.is_empty() {
            return Ok(());
        }
        // Before this time, the summaries have expired too.
        let summaries_from = settings.for_database(database).expired.unwrap_or(i64::MIN).max(ALWAYS.start + 1);
        let splits_hour =
            |time: &i64| (summaries_from..before).contains(time) && Hour::from_ns(*time).start_ns() != *time;
        let Some(time) = [range.start, range.end].into_iter().find(splits_hour) else { return Ok(()) };
        Err(ExpiredHourSplit {
            database: database.to_owned(),
            before: rfc3339(before),
            hour: rfc3339(Hour::from_ns(time).start_ns()),
        })
    }

    /// Notes that all readings before a time are removed from the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn note_stripped(&self, database: &str, cutoff: i64) -> Result<(), StorageError> {
        let note = |settings: &mut DatabaseSettings| {
            if let Some(gone) = &mut settings.expired_readings {
                gone.done = gone.done.max(cutoff);
            }
        };
        self.change(database, note).await.map(drop)
    }
}

fn rfc3339(time: i64) -> String {
    let mut text = String::new();
    write_rfc3339(&mut text, time);
    text
}

/// Removes a dropped database and its settings from the store's lists. Settings later than the drop's stamp stay,
/// because a drop may be carried out long after it was logged, or repeated. Returns the settings that stay.
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
        if left.is_some() {
            // Create its collections again, which the drop may have removed.
            store.create_database(database).await?;
        } else {
            store.unlist_database(database).await?;
        }
        if left.as_ref() == Some(&held) {
            return Ok(left);
        }
        faults::point("during_unlisting");
        // The creator of a database writes its row first. So after a conflict, the database may have to be listed
        // again.
        let left = left.map(|left| DatabaseSettings { rev: held.rev + 1, ..left });
        if store.write_settings(database, held.rev, left.as_ref()).await.applied()? {
            return Ok(left);
        }
    }
    Err(contended_error(database))
}

fn contended_error(database: &str) -> StorageError {
    StorageError::Contended(format!("the settings of {database:?}"))
}

/// Converts settings to JSON: an array of rows.
#[must_use]
pub fn settings_to_json<'s>(rows: impl IntoIterator<Item = (&'s String, &'s DatabaseSettings)>) -> Value {
    rows.into_iter().map(|(database, settings)| settings_row(database, settings)).collect()
}

fn settings_row(database: &str, settings: &DatabaseSettings) -> Value {
    let expired_readings =
        settings.expired_readings.map(|expired| [json!(expired.before), json!(expired.stamp), json!(expired.done)]);
    let renames: Vec<BTreeMap<_, _>> =
        settings.renames.entries().iter().map(|entry| entry.fields().collect()).collect();
    json!({
        "database": database,
        "rev": settings.rev,
        "readings": settings.readings.map(Keep::ns),
        "default": settings.default,
        "replication": settings.replication,
        "shard_duration": settings.shard_duration,
        "expired": settings.expired,
        "summaries": settings.summaries.map(Keep::ns),
        "expired_readings": expired_readings,
        "seal_form": settings.seal_form.map(SealForm::name),
        "drift": settings.drift.map(Drift::name),
        "created": settings.created,
        "set": settings.set,
        "renames": renames,
        "mappings": *settings.mappings,
    })
}

/// Reads the rows that [`settings_to_json`] writes. Malformed rows are left out.
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
            expired_readings: parse_expired_readings(&row["expired_readings"]),
            seal_form: row["seal_form"].as_str().and_then(SealForm::from_name),
            drift: row["drift"].as_str().and_then(Drift::from_name),
            created: row["created"].as_u64().unwrap_or_default(),
            set: row["set"].as_u64().unwrap_or_default(),
            renames: renames_of_json(&row["renames"]),
            mappings: Arc::new(BTreeMap::deserialize(&row["mappings"]).unwrap_or_default()),
        };
        Some((row["database"].as_str()?.to_owned(), settings))
    };
    rows.as_array().into_iter().flatten().filter_map(row).collect()
}

/// Reads an array of renames. Malformed elements are left out.
fn renames_of_json(entries: &Value) -> Renames {
    let entry = |entry: &Value| Rename::from_fields(|name| entry[name].as_str());
    Renames::new(entries.as_array().into_iter().flatten().filter_map(entry).collect())
}

fn parse_expired_readings(row: &Value) -> Option<ExpiredReadings> {
    Some(ExpiredReadings { before: row[0].as_i64()?, stamp: row[1].as_u64()?, done: row[2].as_i64()? })
}

/// Reads the settings of a file. Returns nothing if the file cannot be read.
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
    fn settings_survive_a_round_trip_through_the_file() {
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
            mappings: Arc::new([("plug".to_owned(), "name = \"plug\"\n".to_owned())].into()),
        };
        let rows = [("d".to_owned(), full), ("d/week".to_owned(), DatabaseSettings { rev: 1, ..Default::default() })];
        let settings = Settings { by_database: rows.clone().into(), ..Settings::default() };
        write_file(&path, &settings).expect("it can be written");
        assert_eq!(read_file(&path), rows);
    }
}
