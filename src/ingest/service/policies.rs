//! Creates, alters and drops databases and their retention policies. A change is in the store before the response.

use std::sync::Arc;
use std::time::Duration;

use super::{Ingest, check_database_name};
use crate::access::Caller;
use crate::bucket::settings::{
    AUTOGEN, Drift, NoSuchPolicy, RETENTION_MIN, Settings, is_new_name, is_policy_name, policy_database,
};
use crate::bucket::{DatabaseSettings, Keep, KnownSettings, SealForm};
use crate::faults;
use crate::ingest::error::IngestError;

/// An existing retention policy, before it is altered.
#[derive(Debug)]
pub struct PresentPolicy {
    /// The database that holds the readings of the policy.
    pub database: String,
    /// The duration of its shard groups in nanoseconds.
    pub shard_duration: i64,
}

/// The given terms of a retention policy. `replication` and `shard_duration` are stored, but have no effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyTerms {
    pub kept: Option<Keep>,
    pub replication: Option<u32>,
    /// In nanoseconds; 0 stands for the default.
    pub shard_duration: Option<i64>,
}

/// A change of one setting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SettingChange<T> {
    /// Keeps the present value.
    #[default]
    Stays,
    /// Sets a value. `None` resets to the default.
    To(Option<T>),
}

/// The settings in a request `PATCH` or `PUT /api/v1/databases/NAME`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetSettings {
    /// True to reset settings that are not sent to their defaults, as by `PUT`.
    pub is_whole: bool,
    /// The retention of readings. The default is set in the configuration.
    pub readings: SettingChange<Keep>,
    /// The retention of summaries. The default is set in the configuration, and is at least that of readings.
    pub summaries: SettingChange<Keep>,
    /// The default retention policy.
    pub default: SettingChange<String>,
    /// The form of sealed days. The default is set in the configuration.
    pub seal_form: SettingChange<SealForm>,
    /// The treatment of values of another family than their field's. The default is set in the configuration.
    pub drift: SettingChange<Drift>,
}

impl<T: Clone> SettingChange<T> {
    fn apply(&self, setting: &mut Option<T>, is_whole: bool) {
        match self {
            Self::To(wanted) => setting.clone_from(wanted),
            Self::Stays if is_whole => *setting = None,
            Self::Stays => {}
        }
    }
}

impl SetSettings {
    /// Changes the settings of a database.
    pub fn put(&self, settings: &mut DatabaseSettings) {
        let readings = settings.readings;
        let summaries = settings.summaries;
        self.readings.apply(&mut settings.readings, self.is_whole);
        self.summaries.apply(&mut settings.summaries, self.is_whole);
        if settings.readings != readings || settings.summaries != summaries {
            settings.expired = None;
        }
        if settings.readings != readings {
            settings.shard_duration = None;
        }
        self.default.apply(&mut settings.default, self.is_whole);
        settings.default = settings.default.take().filter(|default| default != AUTOGEN);
        self.seal_form.apply(&mut settings.seal_form, self.is_whole);
        self.drift.apply(&mut settings.drift, self.is_whole);
    }

    /// The policy that becomes the default.
    fn new_default(&self) -> Option<&String> {
        if let SettingChange::To(Some(default)) = &self.default { Some(default) } else { None }
    }

    /// Checks the change of a database with these settings.
    fn check(&self, name: &str, settings: &Settings) -> Result<(), IngestError> {
        if self.is_whole {
            self.check_missing(name, settings)?;
        }
        let present = settings.for_database(name);
        let mut changed = present.clone();
        self.put(&mut changed);
        PolicyTerms { kept: changed.readings, ..PolicyTerms::default() }.check()?;
        let default_kept = settings.readings.filter(|_| !name.contains('/'));
        let readings = changed.readings.or(default_kept).unwrap_or(Keep::Forever);
        // Accept present values that are sent again. Summaries without a value are kept at least as long as readings.
        let has_new_summaries = self.summaries != SettingChange::Stays
            && (changed.readings, changed.summaries) != (present.readings, present.summaries);
        if has_new_summaries && changed.summaries.is_some_and(|summaries| summaries.longer(readings) != summaries) {
            return Err(PolicyError::SummariesTooShort.into());
        }
        match self.new_default() {
            Some(policy) if !settings.has_policy(name, policy) => {
                Err(PolicyError::Unknown(NoSuchPolicy::Unknown(policy.clone())).into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that no retention becomes shorter because it is not sent.
    fn check_missing(&self, name: &str, settings: &Settings) -> Result<(), PolicyError> {
        let retention = |is_whole| {
            let mut own = settings.for_database(name);
            Self { is_whole, ..self.clone() }.put(&mut own);
            let mut changed = settings.clone();
            changed.by_database.insert(name.to_owned(), own);
            [changed.readings_retention(name), changed.summaries_retention(name)]
        };
        let merged = retention(false);
        let replaced = retention(true);
        let is_shorter = |index: usize| replaced[index].longer(merged[index]) != replaced[index];
        match (is_shorter(0), is_shorter(1)) {
            (true, _) => Err(PolicyError::Missing("readings")),
            (false, true) => Err(PolicyError::Missing("summaries")),
            (false, false) => Ok(()),
        }
    }
}

/// An error of a statement or request about retention policies. The texts are those of InfluxDB, if it has one.
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
    #[error("{0} is not sent, and its default would delete data: send PATCH to change single settings, or add {0}")]
    Missing(&'static str),
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
    /// Checks the terms as InfluxDB does. Terms that are not given have their defaults.
    fn check(&self) -> Result<(), PolicyError> {
        let kept = self.kept.unwrap_or(Keep::Forever);
        if matches!(kept, Keep::For(ns) if ns < RETENTION_MIN) {
            return Err(PolicyError::TooShort);
        }
        if kept != Keep::Forever && self.shard_duration.unwrap_or_default() > kept.ns() {
            return Err(PolicyError::Shards);
        }
        Ok(())
    }

    /// Returns true if the given terms equal those of an existing policy.
    fn fit(&self, policy: &DatabaseSettings, kept: Keep) -> bool {
        self.kept.is_none_or(|given| given == kept)
            && self.replication.is_none_or(|given| given == policy.replication.unwrap_or(1))
            && self.shard_duration.is_none_or(|given| {
                let kept_given = self.kept.unwrap_or(kept);
                crate::bucket::settings::shard_duration(given, kept_given) == policy.shard_duration(kept)
            })
    }

    fn apply(&self, settings: &mut DatabaseSettings) {
        if let Some(kept) = self.kept {
            settings.expired = settings.expired.filter(|_| settings.readings == Some(kept));
            settings.readings = Some(kept);
        }
        settings.replication = self.replication.or(settings.replication);
        settings.shard_duration = self.shard_duration.or(settings.shard_duration);
    }
}

impl Ingest {
    /// Returns the settings of databases as this instance knows them.
    #[must_use]
    pub fn settings(&self) -> KnownSettings {
        self.retention.settings.clone()
    }

    /// Reads the settings of databases from the store.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn settings_now(&self) -> Result<Arc<Settings>, IngestError> {
        Ok(self.retention.refresh().await?)
    }

    /// Returns the database that a name and a policy stand for. Also finds a policy that another instance has just
    /// created.
    ///
    /// # Errors
    /// If there is no such policy, or it is unknown here and the store does not answer.
    pub async fn resolve(&self, name: &str, policy: Option<&str>) -> Result<String, IngestError> {
        if let Ok(database) = self.retention.settings.now().resolve(name, policy) {
            return Ok(database);
        }
        Ok(self.retention.refresh().await?.resolve(name, policy).map_err(PolicyError::from)?)
    }

    /// Returns true if a database of this name exists, or has a policy.
    async fn is_database(&self, name: &str) -> Result<bool, IngestError> {
        if self.catalog.database(name).is_some() || self.settings_now().await?.policies(name).next().is_some() {
            return Ok(true);
        }
        Ok(self.store.raw().databases().await?.iter().any(|known| known == name))
    }

    /// Creates a database with the given terms for its policy `autogen`, or with a policy of another name as the
    /// default. If the database exists, adds the policy to it and returns a warning that the default has not changed.
    ///
    /// # Errors
    /// If the policy exists with other terms, and as [`Ingest::create_database`].
    pub async fn create_database_with(
        &self,
        database: &str,
        policy: Option<&str>,
        terms: PolicyTerms,
        caller: &Caller,
    ) -> Result<Option<String>, IngestError> {
        check_new_name(database)?;
        let policy = policy.filter(|policy| *policy != AUTOGEN);
        if policy.is_some_and(|policy| !is_policy_name(policy)) {
            return Err(PolicyError::Name.into());
        }
        terms.check()?;
        let is_new = !self.is_database(database).await?;
        let settings = self.settings_now().await?;
        let named = policy.map_or_else(|| database.to_owned(), |policy| policy_database(database, policy));
        let has_policy = policy.is_none_or(|policy| settings.has_policy(database, policy));
        if !is_new && has_policy && !terms.fit(&settings.for_database(&named), settings.readings_retention(&named)) {
            return Err(PolicyError::Conflict.into());
        }
        check_database_name(&named)?;
        // Create the database even if it exists, because a drop that was logged earlier may still be carried out.
        self.create_database(database, caller).await?;
        let Some(policy) = policy else {
            if terms != PolicyTerms::default() {
                self.set_terms(&named, terms).await?;
            }
            return Ok(None);
        };
        self.write_policy(&named, terms, caller).await?;
        if is_new {
            self.set_default(database, Some(policy)).await?;
            return Ok(None);
        }
        Ok((!has_policy).then(|| {
            format!("the database exists: the retention policy {policy} was added to it, and its default policy stays")
        }))
    }

    /// Creates a policy. With `default`, makes it the default policy.
    ///
    /// # Errors
    /// If the policy exists with other terms, and as [`Ingest::create_database`].
    pub async fn create_policy(
        &self,
        database: &str,
        policy: &str,
        terms: PolicyTerms,
        default: bool,
        caller: &Caller,
    ) -> Result<(), IngestError> {
        terms.check()?;
        if policy != AUTOGEN && !is_policy_name(policy) {
            return Err(PolicyError::Name.into());
        }
        // A name with a slash stands for a policy, which has no policies of its own.
        if database.contains('/') || !self.is_database(database).await? {
            return Err(PolicyError::NoDatabase(database.to_owned()).into());
        }
        let settings = self.settings_now().await?;
        let named = stored_name(database, policy);
        if settings.has_policy(database, policy)
            && !terms.fit(&settings.for_database(&named), settings.readings_retention(&named))
        {
            return Err(PolicyError::Exists.into());
        }
        check_database_name(&named)?;
        self.write_policy(&named, terms, caller).await?;
        if default { self.set_default(database, Some(policy)).await } else { Ok(()) }
    }

    /// Alters a policy. Terms that are not given stay. With `default`, makes it the default policy.
    ///
    /// # Errors
    /// If the policy does not exist, or the terms are invalid.
    pub async fn alter_policy(
        &self,
        database: &str,
        policy: &str,
        terms: PolicyTerms,
        default: bool,
    ) -> Result<(), IngestError> {
        let altered = self.check_alter(database, policy, terms).await?;
        if terms != PolicyTerms::default() {
            // As in InfluxDB, a new duration does not change the length of shard groups.
            let shard_duration = terms.shard_duration.or(Some(altered.shard_duration));
            self.set_terms(&altered.database, PolicyTerms { shard_duration, ..terms }).await?;
        }
        if default { self.set_default(database, Some(policy)).await } else { Ok(()) }
    }

    /// Checks the parameters of [`Ingest::alter_policy`], and returns the present policy.
    ///
    /// # Errors
    /// As [`Ingest::alter_policy`].
    pub async fn check_alter(
        &self,
        database: &str,
        policy: &str,
        terms: PolicyTerms,
    ) -> Result<PresentPolicy, IngestError> {
        // A name with a slash stands for a policy, which has no policies of its own.
        if database.contains('/') || !self.is_database(database).await? {
            return Err(PolicyError::NoDatabase(database.to_owned()).into());
        }
        let settings = self.settings_now().await?;
        if !settings.has_policy(database, policy) {
            return Err(PolicyError::Unknown(NoSuchPolicy::Unknown(policy.to_owned())).into());
        }
        let named = stored_name(database, policy);
        let kept = settings.readings_retention(&named);
        let shard_duration = settings.for_database(&named).shard_duration(kept);
        let resulting = PolicyTerms {
            kept: terms.kept.or(Some(kept)),
            shard_duration: terms.shard_duration.or(Some(shard_duration)),
            ..terms
        };
        resulting.check()?;
        Ok(PresentPolicy { database: named, shard_duration })
    }

    /// Drops a policy with everything in it. If it was the default, `autogen` becomes the default.
    ///
    /// # Errors
    /// As [`Ingest::drop_database`].
    pub async fn drop_policy(
        &self,
        database: &str,
        policy: &str,
        received: i64,
        timeout: Duration,
    ) -> Result<(), IngestError> {
        if policy == AUTOGEN {
            return Err(PolicyError::Autogen.into());
        }
        let settings = self.settings_now().await?;
        if !settings.has_policy(database, policy) {
            // InfluxDB reports success too.
            return Ok(());
        }
        if settings.default_policy(database) == policy {
            self.set_default(database, None).await?;
        }
        self.drop_one(&policy_database(database, policy), received, timeout).await
    }

    /// Drops a database and its settings.
    pub(super) async fn drop_one(&self, name: &str, received: i64, timeout: Duration) -> Result<(), IngestError> {
        let settings = self.retention.settings.now().for_database(name);
        self.submitter.drop_database(name, settings.last_changed(), received, timeout).await?;
        self.rejections.forget(name).await;
        // The deletion removed the settings, so read them again.
        self.settings_now().await.map(drop)
    }

    /// Changes the settings of a database or policy. Creates it if it does not exist.
    ///
    /// # Errors
    /// If the name, the policy or a retention period is invalid, and as [`Ingest::create_database`].
    pub async fn put_settings(
        &self,
        name: &str,
        wanted: &SetSettings,
        caller: &Caller,
    ) -> Result<DatabaseSettings, IngestError> {
        self.check_settings(name, wanted).await?;
        if let Some((database, _)) = name.split_once('/') {
            self.create_if_missing(database, caller, |_| {}).await?;
        }
        let stamp = self.member.stamp_now();
        let set = |settings: &mut DatabaseSettings| {
            settings.set = stamp;
            wanted.put(settings);
        };
        // Create the database first, because the new settings may cause an expiry at once, during which it cannot be
        // created.
        self.create_if_missing(name, caller, set).await?;
        if wanted.is_whole {
            faults::halt_at("replacing_settings").await;
        }
        // Another change may have come after the first check.
        self.retention.change_if(name, |settings| wanted.check(name, settings), set).await
    }

    /// Checks the parameters of [`Ingest::put_settings`].
    ///
    /// # Errors
    /// As [`Ingest::put_settings`].
    pub async fn check_settings(&self, name: &str, wanted: &SetSettings) -> Result<(), IngestError> {
        check_database_name(name)?;
        if let Some((database, policy)) = name.split_once('/')
            && (database.is_empty() || !is_policy_name(policy) || wanted.new_default().is_some())
        {
            return Err(PolicyError::Name.into());
        }
        wanted.check(name, &*self.settings_now().await?)
    }

    /// Writes the terms of a policy, then creates its database. A policy exists once it has settings, so no reading can
    /// be written to it before it has its terms.
    async fn write_policy(&self, named: &str, terms: PolicyTerms, caller: &Caller) -> Result<(), IngestError> {
        let is_new = self.retention.settings.now().for_database(named).rev == 0;
        self.set_terms(named, terms).await?;
        let result = self.create_database(named, caller).await;
        if result.is_err() && is_new {
            self.retention.remove(named).await?;
        }
        result
    }

    async fn create_if_missing(
        &self,
        name: &str,
        caller: &Caller,
        set: impl Fn(&mut DatabaseSettings),
    ) -> Result<(), IngestError> {
        if self.store.raw().databases().await?.iter().any(|known| known == name) {
            return Ok(());
        }
        self.create_with(name, caller, set).await
    }

    async fn set_terms(&self, name: &str, terms: PolicyTerms) -> Result<(), IngestError> {
        let stamp = self.member.stamp_now();
        let set = |settings: &mut DatabaseSettings| {
            terms.apply(settings);
            settings.set = stamp;
        };
        Ok(self.retention.change(name, set).await.map(drop)?)
    }

    async fn set_default(&self, database: &str, policy: Option<&str>) -> Result<(), IngestError> {
        let policy = policy.filter(|policy| *policy != AUTOGEN).map(str::to_owned);
        let stamp = self.member.stamp_now();
        let set = |settings: &mut DatabaseSettings| {
            if settings.default != policy {
                settings.default.clone_from(&policy);
                settings.set = stamp;
            }
        };
        Ok(self.retention.change(database, set).await.map(drop)?)
    }
}

fn stored_name(database: &str, policy: &str) -> String {
    if policy == AUTOGEN { database.to_owned() } else { policy_database(database, policy) }
}

/// Checks the name of a database that a statement creates. A slash would make it the name of a policy.
///
/// # Errors
/// If the name is invalid.
pub fn check_new_name(name: &str) -> Result<(), IngestError> {
    if !is_new_name(name) {
        return Err(PolicyError::Name.into());
    }
    check_database_name(name)
}
