//! Databases and their retention policies: made, altered and dropped. Every change is in the store before it is answered.

use std::sync::Arc;
use std::time::Duration;

use super::{Ingest, check_database_name};
use crate::access::Caller;
use crate::bucket::settings::{AUTOGEN, Drift, KEPT_MIN, NoSuchPolicy, Settings, is_policy_name, policy_database};
use crate::bucket::{DatabaseSettings, Keep, KnownSettings, SealForm};
use crate::ingest::error::IngestError;

/// The terms of a policy, as far as they are named. `replication` and `shard_duration` have no effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyTerms {
    pub kept: Option<Keep>,
    pub replication: Option<u32>,
    /// In nanoseconds, 0 for the usual one.
    pub shard_duration: Option<i64>,
}

/// What becomes of one setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SettingChange<T> {
    /// It stays as it is.
    #[default]
    Stays,
    /// It is this from now on; `None` for the default.
    To(Option<T>),
}

/// What is set of a database by `PUT /api/v1/databases/NAME`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetSettings {
    /// How long readings are kept; by default as the config says.
    pub readings: SettingChange<Keep>,
    /// How long summaries are kept; by default as the config says, or as long as readings.
    pub summaries: SettingChange<Keep>,
    /// The default policy.
    pub default: SettingChange<String>,
    /// How days are sealed; by default as the config says.
    pub seal_form: SettingChange<SealForm>,
    /// What becomes of values of other families; by default as the config says.
    pub drift: SettingChange<Drift>,
}

impl<T: Clone> SettingChange<T> {
    fn put(&self, setting: &mut Option<T>) {
        if let Self::To(wanted) = self {
            setting.clone_from(wanted);
        }
    }
}

impl SetSettings {
    /// Changes the settings of a database.
    pub fn put(&self, settings: &mut DatabaseSettings) {
        let before = (settings.readings, settings.summaries);
        self.readings.put(&mut settings.readings);
        self.summaries.put(&mut settings.summaries);
        settings.expired = settings.expired.filter(|_| before == (settings.readings, settings.summaries));
        settings.shard_duration = settings.shard_duration.filter(|_| before.0 == settings.readings);
        self.default.put(&mut settings.default);
        settings.default = settings.default.take().filter(|default| default != AUTOGEN);
        self.seal_form.put(&mut settings.seal_form);
        self.drift.put(&mut settings.drift);
    }
}

/// Why a policy is not as asked. The texts are InfluxDB's, where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("invalid name")]
    Name,
    #[error("retention policy duration must be at least 1h0m0s")]
    TooShort,
    #[error("retention policy duration must be greater than the shard duration")]
    Shards,
    #[error("summaries cannot be kept shorter than readings: send at least the time that readings are kept, or null")]
    SummariesTooShort,
    #[error("retention policy already exists")]
    Exists,
    #[error("retention policy conflicts with an existing policy")]
    Conflict,
    #[error("database not found: {0}")]
    NoDatabase(String),
    #[error(transparent)]
    Unknown(#[from] NoSuchPolicy),
    #[error("the retention policy autogen is the database itself: DROP DATABASE drops it")]
    Autogen,
}

impl PolicyTerms {
    /// Checks the terms as InfluxDB does, beside those of the policy that is altered: how long it keeps readings, and how
    /// long its shard groups are.
    fn check(&self, held: Option<(Keep, i64)>) -> Result<(), PolicyError> {
        let kept = self.kept.or(held.map(|(kept, _)| kept)).unwrap_or(Keep::Forever);
        if matches!(kept, Keep::For(ns) if ns < KEPT_MIN) {
            return Err(PolicyError::TooShort);
        }
        let shards = self.shard_duration.or(held.map(|(_, shards)| shards)).unwrap_or_default();
        if kept != Keep::Forever && shards > kept.ns() {
            return Err(PolicyError::Shards);
        }
        Ok(())
    }

    /// Whether the named ones are those of a policy.
    fn fit(&self, held: &DatabaseSettings, kept: Keep) -> bool {
        self.kept.is_none_or(|asked| asked == kept)
            && self.replication.is_none_or(|asked| asked == held.replication.unwrap_or(1))
            && self.shard_duration.is_none_or(|asked| {
                let kept_asked = self.kept.unwrap_or(kept);
                crate::bucket::settings::shard_duration(asked, kept_asked) == held.shard_duration(kept)
            })
    }

    fn put(&self, settings: &mut DatabaseSettings) {
        if let Some(kept) = self.kept {
            settings.expired = settings.expired.filter(|_| settings.readings == Some(kept));
            settings.readings = Some(kept);
        }
        settings.replication = self.replication.or(settings.replication);
        settings.shard_duration = self.shard_duration.or(settings.shard_duration);
    }
}

impl Ingest {
    /// The settings of databases, as this process knows them.
    #[must_use]
    pub fn settings(&self) -> KnownSettings {
        self.retention.settings.clone()
    }

    /// The settings as the store has them.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn settings_now(&self) -> Result<Arc<Settings>, IngestError> {
        Ok(self.retention.refresh().await?)
    }

    /// The database that a name and a policy stand for. One that another instance has just made is known.
    ///
    /// # Errors
    /// If there is no such policy.
    pub async fn resolve(&self, name: &str, policy: Option<&str>) -> Result<String, IngestError> {
        if let Ok(database) = self.retention.settings.now().resolve(name, policy) {
            return Ok(database);
        }
        // If the store does not answer, nobody can say that there is none.
        Ok(self.retention.refresh().await?.resolve(name, policy).map_err(PolicyError::from)?)
    }

    /// Whether there is a database of this name, itself or by a policy.
    async fn is_database(&self, name: &str) -> Result<bool, IngestError> {
        if self.catalog.database(name).is_some() || self.settings_now().await?.policies(name).next().is_some() {
            return Ok(true);
        }
        Ok(self.store.raw().databases().await?.iter().any(|known| known == name))
    }

    /// Creates a database with these terms, which are those of its policy `autogen` or of another one, then the default.
    /// Of a database that exists, a policy that it does not have is created beside the others. Says what was not as asked.
    ///
    /// # Errors
    /// If it exists with other terms, and as [`Ingest::create_database`].
    pub async fn create_database_with(
        &self,
        database: &str,
        (policy, terms): (Option<&str>, PolicyTerms),
        by: &Caller,
    ) -> Result<Option<String>, IngestError> {
        check_new_name(database)?;
        let policy = policy.filter(|policy| *policy != AUTOGEN);
        if policy.is_some_and(|policy| !is_policy_name(policy)) {
            return Err(PolicyError::Name.into());
        }
        terms.check(None)?;
        let is_new = !self.is_database(database).await?;
        let settings = self.settings_now().await?;
        let named = policy.map_or_else(|| database.to_owned(), |policy| policy_database(database, policy));
        let has_policy = policy.is_none_or(|policy| settings.has_policy(database, policy));
        if !is_new && has_policy && !terms.fit(&settings.of(&named), settings.kept(&named)) {
            return Err(PolicyError::Conflict.into());
        }
        check_database_name(&named)?;
        // If it exists, too: a drop that was logged before may be carried out later.
        self.create_database(database, by).await?;
        let Some(policy) = policy else {
            if terms != PolicyTerms::default() {
                self.set_terms(&named, terms).await?;
            }
            return Ok(None);
        };
        self.make_policy(&named, terms, by).await?;
        if is_new {
            self.set_default(database, Some(policy)).await?;
            return Ok(None);
        }
        Ok((!has_policy).then(|| {
            format!("the database exists: the retention policy {policy} was created beside its others, and its default stays")
        }))
    }

    /// Creates a policy.
    ///
    /// # Errors
    /// If it exists with other terms, and as [`Ingest::create_database`].
    pub async fn create_policy(
        &self,
        (database, policy): (&str, &str),
        terms: PolicyTerms,
        default: bool,
        by: &Caller,
    ) -> Result<(), IngestError> {
        terms.check(None)?;
        if policy != AUTOGEN && !is_policy_name(policy) {
            return Err(PolicyError::Name.into());
        }
        // A policy has none of its own.
        if database.contains('/') || !self.is_database(database).await? {
            return Err(PolicyError::NoDatabase(database.to_owned()).into());
        }
        let settings = self.settings_now().await?;
        let named = named(database, policy);
        if settings.has_policy(database, policy) && !terms.fit(&settings.of(&named), settings.kept(&named)) {
            return Err(PolicyError::Exists.into());
        }
        check_database_name(&named)?;
        self.make_policy(&named, terms, by).await?;
        if default { self.set_default(database, Some(policy)).await } else { Ok(()) }
    }

    /// Alters a policy; terms that are not named stay.
    ///
    /// # Errors
    /// If there is none, or the terms are not valid.
    pub async fn alter_policy(
        &self,
        (database, policy): (&str, &str),
        terms: PolicyTerms,
        default: bool,
    ) -> Result<(), IngestError> {
        let (named, shards) = self.check_alter((database, policy), terms).await?;
        if terms != PolicyTerms::default() {
            // As in InfluxDB, a new duration does not change the length of shard groups.
            let shard_duration = terms.shard_duration.or(Some(shards));
            self.set_terms(&named, PolicyTerms { shard_duration, ..terms }).await?;
        }
        if default { self.set_default(database, Some(policy)).await } else { Ok(()) }
    }

    /// Checks what [`Ingest::alter_policy`] is to set. Returns the database that the policy is, and how long its shard groups are.
    ///
    /// # Errors
    /// See there.
    pub async fn check_alter(
        &self,
        (database, policy): (&str, &str),
        terms: PolicyTerms,
    ) -> Result<(String, i64), IngestError> {
        // A policy has none of its own.
        if database.contains('/') || !self.is_database(database).await? {
            return Err(PolicyError::NoDatabase(database.to_owned()).into());
        }
        let settings = self.settings_now().await?;
        if !settings.has_policy(database, policy) {
            return Err(PolicyError::Unknown(NoSuchPolicy::Unknown(policy.to_owned())).into());
        }
        let named = named(database, policy);
        let kept = settings.kept(&named);
        let shards = settings.of(&named).shard_duration(kept);
        terms.check(Some((kept, shards)))?;
        Ok((named, shards))
    }

    /// Drops a policy with everything in it. If it was the default, the database itself is the default from then on.
    ///
    /// # Errors
    /// As [`Ingest::drop_database`].
    pub async fn drop_policy(
        &self,
        (database, policy): (&str, &str),
        received: i64,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        if policy == AUTOGEN {
            return Err(PolicyError::Autogen.into());
        }
        let settings = self.settings_now().await?;
        if !settings.has_policy(database, policy) {
            // As InfluxDB answers.
            return Ok(());
        }
        if settings.default_policy(database) == policy {
            self.set_default(database, None).await?;
        }
        self.drop_one(&policy_database(database, policy), received, timeout).await
    }

    /// Drops a database and its settings.
    pub(super) async fn drop_one(&self, name: &str, received: i64, timeout: Duration) -> Result<(), IngestError> {
        let of = self.retention.settings.now().of(name);
        self.submitter.drop_database(name, of.last_changed(), received, timeout).await?;
        self.rejections.forget(name).await;
        // The deletion removed them.
        self.settings_now().await.map(drop)
    }

    /// Changes what is set of a database. Creates what does not exist.
    ///
    /// # Errors
    /// An invalid name, policy or time, and as [`Ingest::create_database`].
    pub async fn put_settings(
        &self,
        name: &str,
        wanted: &SetSettings,
        by: &Caller,
    ) -> Result<DatabaseSettings, IngestError> {
        self.check_settings(name, wanted).await?;
        if let Some((database, _)) = name.split_once('/') {
            self.create_if_missing(database, by, |_| {}).await?;
        }
        let at = self.member.stamp_now();
        let set = |settings: &mut DatabaseSettings| {
            settings.set = at;
            wanted.put(settings);
        };
        // First: what is set may have readings deleted at once, and a database is not created meanwhile.
        self.create_if_missing(name, by, set).await?;
        Ok(self.retention.change(name, set).await?)
    }

    /// Checks what [`Ingest::put_settings`] is to set.
    ///
    /// # Errors
    /// See there.
    pub async fn check_settings(&self, name: &str, wanted: &SetSettings) -> Result<(), IngestError> {
        check_database_name(name)?;
        let default = if let SettingChange::To(Some(default)) = &wanted.default { Some(default) } else { None };
        match name.split_once('/') {
            Some((database, policy)) if database.is_empty() || !is_policy_name(policy) || default.is_some() => {
                return Err(PolicyError::Name.into());
            }
            _ => {}
        }
        let settings = self.settings_now().await?;
        let held = settings.of(name);
        let mut changed = held.clone();
        wanted.put(&mut changed);
        PolicyTerms { kept: changed.readings, ..PolicyTerms::default() }.check(None)?;
        let default_kept = settings.readings.filter(|_| !name.contains('/'));
        let readings = changed.readings.or(default_kept).unwrap_or(Keep::Forever);
        // What is set already may be sent again, and summaries that are not sent last as long as readings.
        let is_told = wanted.summaries != SettingChange::Stays
            && (changed.readings, changed.summaries) != (held.readings, held.summaries);
        if is_told && changed.summaries.is_some_and(|summaries| summaries.longer(readings) != summaries) {
            return Err(PolicyError::SummariesTooShort.into());
        }
        match default {
            Some(policy) if !settings.has_policy(name, policy) => {
                Err(PolicyError::Unknown(NoSuchPolicy::Unknown(policy.clone())).into())
            }
            _ => Ok(()),
        }
    }

    /// The settings make a policy exist, so they come first: nothing is written to it before it has its terms.
    async fn make_policy(&self, named: &str, terms: PolicyTerms, by: &Caller) -> Result<(), IngestError> {
        let is_new = self.retention.settings.now().of(named).rev == 0;
        self.set_terms(named, terms).await?;
        let made = self.create_database(named, by).await;
        if made.is_err() && is_new {
            self.retention.remove(named).await?;
        }
        made
    }

    async fn create_if_missing(
        &self,
        name: &str,
        by: &Caller,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<(), IngestError> {
        match self.store.raw().databases().await?.iter().any(|known| known == name) {
            true => Ok(()),
            false => self.create_with(name, by, set).await,
        }
    }

    async fn set_terms(&self, name: &str, terms: PolicyTerms) -> Result<(), IngestError> {
        let at = self.member.stamp_now();
        let put = |settings: &mut DatabaseSettings| {
            terms.put(settings);
            settings.set = at;
        };
        Ok(self.retention.change(name, put).await.map(drop)?)
    }

    async fn set_default(&self, database: &str, policy: Option<&str>) -> Result<(), IngestError> {
        let policy = policy.filter(|policy| *policy != AUTOGEN).map(str::to_owned);
        let at = self.member.stamp_now();
        let put = |settings: &mut DatabaseSettings| {
            if settings.default != policy {
                settings.default.clone_from(&policy);
                settings.set = at;
            }
        };
        Ok(self.retention.change(database, put).await.map(drop)?)
    }
}

fn named(database: &str, policy: &str) -> String {
    if policy == AUTOGEN { database.to_owned() } else { policy_database(database, policy) }
}

/// A database that is created by name has no slash in it, which would be a policy's.
fn check_new_name(name: &str) -> Result<(), IngestError> {
    match name.is_empty() || name.contains('/') {
        true => Err(PolicyError::Name.into()),
        false => check_database_name(name),
    }
}
