//! Relabels: made, made final and taken back. Each change is one compare-and-set of the database's settings, which every instance reads
//! again within a second; it is in the store before it is answered. No reading and no log record is touched.

use super::{Ingest, check_database_name};
use crate::bucket::relabel::{NoRenaming, UNITED_MAX};
use crate::bucket::{DatabaseSettings, Relabel, Relabels, Renaming};
use crate::faults;
use crate::ingest::error::IngestError;

/// Why a relabel is not as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RelabelRefusal {
    #[error("the relabel is none: {0}")]
    None(#[from] NoRenaming),
    #[error("a name has {bytes} bytes, more than {limit} (limits.name_bytes)")]
    Long { bytes: usize, limit: usize },
    #[error("database {database:?} has {limit} relabels, which is the limit (limits.relabels): take some back")]
    TooMany { database: String, limit: usize },
    #[error("with it one name would stand for more than {UNITED_MAX} names: rename fewer tags one by one")]
    Unites,
    #[error("it is there already, as {id:016x}")]
    Exists { id: u64 },
    #[error("there is no relabel {id:?} in database {database:?}: GET /api/v1/relabels lists them")]
    Unknown { id: String, database: String },
    #[error("relabel {id:016x} is final and cannot be taken back: rename in the other direction instead")]
    Final { id: u64 },
    #[error("{database:?} is a retention policy: relabel its database, which the policies follow")]
    Policy { database: String },
    #[error("{0}")]
    Families(String),
}

/// A relabel to be made.
#[derive(Debug, Clone)]
pub struct NewRelabel {
    pub renaming: Renaming,
    /// Readings from this time on, in nanoseconds; `None` for all.
    pub since: Option<i64>,
    /// When the request was received, in nanoseconds since the epoch.
    pub received: i64,
    pub by: String,
}

impl Ingest {
    /// The relabels of a database, from the store, and what they would be with another one.
    ///
    /// # Errors
    /// If it would not be made, or the store does not answer.
    pub async fn relabels_with(&self, database: &str, new: &NewRelabel) -> Result<(Relabels, Relabels), IngestError> {
        check_relabelled(database)?;
        let held = self.settings_now().await?.of(database).relabels;
        let with = self.checked(database, &held, new)?;
        Ok((held, with))
    }

    /// Makes a relabel; returns it.
    ///
    /// # Errors
    /// As [`Ingest::relabels_with`].
    pub async fn relabel(&self, database: &str, new: &NewRelabel) -> Result<Relabel, IngestError> {
        self.relabels_with(database, new).await?;
        faults::point("before_relabel");
        let change = |settings: &mut DatabaseSettings| match self.checked(database, &settings.relabels, new) {
            Ok(with) => {
                settings.relabels = with;
                true
            }
            Err(_) => false,
        };
        let settings = self.retention.change(database, change).await?;
        faults::point("after_relabel");
        let made = |rule: &&Relabel| rule.renaming == new.renaming && rule.since == new.since;
        match settings.relabels.rules().iter().rev().find(made) {
            Some(rule) => Ok(rule.clone()),
            // Others made relabels meanwhile.
            None => Err(match self.checked(database, &settings.relabels, new) {
                Err(refusal) => refusal.into(),
                Ok(_) => IngestError::Stopping,
            }),
        }
    }

    /// The relabels of a database, from the store, and what they would be without one of them.
    ///
    /// # Errors
    /// If there is none, it is final, or the store does not answer.
    pub async fn relabels_without(&self, database: &str, id: &str) -> Result<(Relabels, Relabels), IngestError> {
        let (held, rule) = self.known_relabel(database, id).await?;
        if rule.is_final {
            return Err(RelabelRefusal::Final { id: rule.id }.into());
        }
        let without = held.changed(rule.id, |_| None);
        Ok((held, without))
    }

    /// Takes a relabel back: everything is shown as if it had never been.
    ///
    /// # Errors
    /// As [`Ingest::relabels_without`].
    pub async fn undo_relabel(&self, database: &str, id: &str) -> Result<Relabel, IngestError> {
        let (_, rule) = self.known_relabel(database, id).await?;
        if rule.is_final {
            return Err(RelabelRefusal::Final { id: rule.id }.into());
        }
        let left = self.change_relabel(database, rule.id, |rule| rule.is_final.then_some(rule)).await?;
        match left {
            // Others made it final meanwhile.
            Some(rule) => Err(RelabelRefusal::Final { id: rule.id }.into()),
            None => Ok(rule),
        }
    }

    /// Makes a relabel final: it cannot be taken back any more.
    ///
    /// # Errors
    /// If there is none, or the store does not answer.
    pub async fn finalize_relabel(&self, database: &str, id: &str) -> Result<Relabel, IngestError> {
        let (_, rule) = self.known_relabel(database, id).await?;
        let left = self.change_relabel(database, rule.id, |rule| Some(Relabel { is_final: true, ..rule })).await?;
        // Others may have taken it back meanwhile.
        Ok(left.ok_or_else(|| unknown(database, id))?)
    }

    async fn known_relabel(&self, database: &str, id: &str) -> Result<(Relabels, Relabel), IngestError> {
        check_relabelled(database)?;
        let held = self.settings_now().await?.of(database).relabels;
        let number = u64::from_str_radix(id, 16).ok();
        let rule = held.rules().iter().find(|rule| Some(rule.id) == number).cloned();
        Ok((held, rule.ok_or_else(|| unknown(database, id))?))
    }

    /// Changes a rule, or removes it; returns what is left of it.
    async fn change_relabel(
        &self,
        database: &str,
        id: u64,
        change: impl Fn(Relabel) -> Option<Relabel>,
    ) -> Result<Option<Relabel>, IngestError> {
        let put = |settings: &mut DatabaseSettings| {
            let changed = settings.relabels.changed(id, &change);
            let differs = changed != settings.relabels;
            settings.relabels = changed;
            differs
        };
        faults::halt_at("changing_relabel").await;
        let settings = self.retention.change(database, put).await?;
        Ok(settings.relabels.rules().iter().find(|rule| rule.id == id).cloned())
    }

    /// The table with the new rule.
    fn checked(&self, database: &str, held: &Relabels, new: &NewRelabel) -> Result<Relabels, RelabelRefusal> {
        let NewRelabel { renaming, since, received, by } = new;
        renaming.check()?;
        let (from, to) = renaming.names();
        let limit = self.options.limits.name_bytes;
        let is_key = matches!(renaming, Renaming::Sensor { .. });
        if let Some(bytes) = [from.len(), to.len()].into_iter().max().filter(|bytes| *bytes > limit && !is_key) {
            return Err(RelabelRefusal::Long { bytes, limit });
        }
        if let Some(rule) = held.rules().last().filter(|rule| rule.renaming == *renaming && rule.since == *since) {
            return Err(RelabelRefusal::Exists { id: rule.id });
        }
        let limit = self.options.limits.relabels;
        if held.rules().len() >= limit {
            return Err(RelabelRefusal::TooMany { database: database.to_owned(), limit });
        }
        let last = held.rules().iter().map(|rule| rule.id).max().unwrap_or_default();
        let id = u64::try_from(*received).unwrap_or_default().max(last + 1);
        let (renaming, by, stamp) = (renaming.clone(), by.clone(), self.member.stamp_now());
        let with = held.with(Relabel { id, renaming, since: *since, made: *received, stamp, by, is_final: false });
        if with.united_most() > UNITED_MAX { Err(RelabelRefusal::Unites) } else { Ok(with) }
    }
}

fn unknown(database: &str, id: &str) -> RelabelRefusal {
    RelabelRefusal::Unknown { id: id.to_owned(), database: database.to_owned() }
}

fn check_relabelled(database: &str) -> Result<(), IngestError> {
    check_database_name(database)?;
    match database.contains('/') {
        true => Err(RelabelRefusal::Policy { database: database.to_owned() }.into()),
        false => Ok(()),
    }
}
