//! The manifest of a backup: its files and their totals. It is written last, so that the previous backup stays valid
//! until the new one is complete.

use serde::{Deserialize, Serialize};

use super::digest::{DatabaseDigest, SetDigest, StoreDigest};
use super::form::FileTotals;
use crate::access::is_control_or_invisible;
use crate::ingest::check_database_name;
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN, rfc3339};
use crate::reading::{Day, Hour};

/// The version of the format. In version 1, files were not compressed as a whole.
const FORM: u32 = 2;

/// The content of `manifest.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub form: u32,
    /// The version of hourglass that made the backup.
    pub version: String,
    /// Start of the backup in milliseconds since the epoch, by the clock of the service. Everything acknowledged before
    /// is in the backup.
    pub began_ms: u64,
    /// `began_ms` in RFC 3339.
    pub began: String,
    pub databases: Vec<BackupDatabase>,
    /// `tokens.json`.
    pub tokens: Option<FileRef>,
    /// `settings.json`: the retention of databases, and their policies.
    pub settings: Option<FileRef>,
    /// The configuration file, under its own name.
    pub config: Option<FileRef>,
    /// The digest of everything, as `hourglass backup digest` prints it.
    #[serde(flatten)]
    pub total: SetDigest,
}

/// A database with its days.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDatabase {
    pub name: String,
    /// The digest of its days and of its sensor metadata.
    #[serde(flatten)]
    pub set: SetDigest,
    /// The file of its sensors with their metadata. `None` if it has no sensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensors: Option<BackupFile>,
    pub days: Vec<BackupDay>,
}

/// A file of a backup with its totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupFile {
    #[serde(flatten)]
    pub totals: FileTotals,
    #[serde(flatten)]
    pub file: FileRef,
}

/// A day of a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDay {
    /// Days since the epoch.
    pub number: i64,
    #[serde(flatten)]
    pub content: BackupFile,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// The path in the folder of the backup.
    #[serde(rename = "file")]
    pub path: String,
    pub bytes: u64,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// The reason why a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("it cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    #[error(
        "it has form {0}, and this version reads up to {FORM}: use the version that wrote the backup, or a later one"
    )]
    Form(u32),
    #[error("it names the file {0:?}, which is outside the folder of the backup")]
    Outside(String),
    #[error("it names the database {0:?}, which cannot exist")]
    Database(String),
    #[error("it names the day {0}, which is out of range")]
    Day(i64),
    #[error("it was changed: its days do not add up to the digest of database {0:?}")]
    Sum(String),
    #[error("it was changed: its databases do not add up to its digest, or it states two times")]
    Head,
}

impl Manifest {
    /// Returns the manifest of a backup that begins.
    #[must_use]
    pub fn begin(began_ms: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { form: FORM, version, began_ms, began: time_text(began_ms), ..Self::default() }
    }

    /// Parses and checks a manifest.
    ///
    /// # Errors
    /// [`ManifestError`]
    pub fn parse(text: &[u8]) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Form {
            form: u32,
        }
        let Form { form } = serde_json::from_slice(text)?;
        if !(1..=FORM).contains(&form) {
            return Err(ManifestError::Form(form));
        }
        let manifest: Self = serde_json::from_slice(text)?;
        let is_within = |path: &str| path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        let is_strange = |path: &str| !is_within(path) || path.chars().any(is_control_or_invisible);
        if let Some(strange) = manifest.files().find(|file| is_strange(&file.path)) {
            return Err(ManifestError::Outside(strange.path.clone()));
        }
        manifest.databases.iter().try_for_each(BackupDatabase::check)?;
        if let Some(odd) = manifest.databases.iter().find(|database| database.sum() != database.set) {
            return Err(ManifestError::Sum(odd.name.clone()));
        }
        if manifest.total != manifest.digest().total().set || manifest.began != time_text(manifest.began_ms) {
            return Err(ManifestError::Head);
        }
        Ok(manifest)
    }

    /// Returns the text of `manifest.json`.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Serialising texts and numbers cannot fail.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Returns all files of the backup.
    pub fn files(&self) -> impl Iterator<Item = &FileRef> {
        let days = self.databases.iter().flat_map(|database| database.days.iter().map(|day| &day.content.file));
        let sensors = self.databases.iter().filter_map(|database| Some(&database.sensors.as_ref()?.file));
        days.chain(sensors).chain(&self.tokens).chain(&self.settings).chain(&self.config)
    }

    /// Returns the file of a day.
    #[must_use]
    pub fn day(&self, database: &str, day: Day) -> Option<&BackupFile> {
        let stored = self.database(database)?.days.iter().find(|stored| stored.number == day.0)?;
        Some(&stored.content)
    }

    /// Returns the entry of a database.
    #[must_use]
    pub fn database(&self, name: &str) -> Option<&BackupDatabase> {
        self.databases.iter().find(|database| database.name == name)
    }

    /// Returns the digest of the backup, without numbers of sensors.
    #[must_use]
    pub fn digest(&self) -> StoreDigest {
        let digest =
            |database: &BackupDatabase| DatabaseDigest { name: database.name.clone(), sensors: 0, set: database.set };
        StoreDigest { databases: self.databases.iter().map(digest).collect() }
    }
}

impl BackupDatabase {
    /// Returns a database with its digest.
    #[must_use]
    pub fn new(name: String, days: Vec<BackupDay>, sensors: Option<BackupFile>) -> Self {
        let database = Self { name, set: SetDigest::default(), sensors, days };
        Self { set: database.sum(), ..database }
    }

    /// Checks the name and the days, which a restore writes as they are.
    fn check(&self) -> Result<(), ManifestError> {
        if check_database_name(&self.name).is_err() {
            return Err(ManifestError::Database(self.name.clone()));
        }
        let days = Day::from_hour(Hour::from_ns(TIMESTAMP_MIN))..=Day::from_hour(Hour::from_ns(TIMESTAMP_MAX));
        match self.days.iter().find(|day| !days.contains(&Day(day.number))) {
            Some(day) => Err(ManifestError::Day(day.number)),
            None => Ok(()),
        }
    }

    fn sum(&self) -> SetDigest {
        let mut sum = SetDigest::default();
        self.days.iter().for_each(|day| sum += day.content.totals.set);
        self.sensors.iter().for_each(|sensors| sum += sensors.totals.set);
        sum
    }
}

fn time_text(millis: u64) -> String {
    rfc3339(i64::try_from(millis).unwrap_or(i64::MAX).saturating_mul(1_000_000))
}

/// Returns the date of a day, such as 2026-01-15.
#[must_use]
pub fn date(day: Day) -> String {
    let mut text = rfc3339(day.hours().start.start_ns());
    text.truncate(10);
    text
}
