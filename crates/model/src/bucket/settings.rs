//! The settings of databases: how long readings are kept, and the retention policies as names. A policy `week` of the
//! database `w` is a database of its own, `w/week`; `autogen` is `w` itself. Pure: the time is an argument.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::rename::Renames;
use super::snapshot::Snapshot;
use crate::reading::Stamp;
use crate::reading::time::TIMESTAMP_MIN;

/// The name of the policy that is the database itself.
pub const AUTOGEN: &str = "autogen";
/// What parts a database's name from that of its policy.
pub const POLICY_MARK: char = '/';
/// The shortest time that readings are kept, as in `InfluxDB`.
pub const KEPT_MIN: i64 = HOUR;
/// From this on, readings expire by whole UTC days, below it by whole hours.
const BY_DAYS: i64 = 7 * DAY;

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;

/// How long something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// It never expires.
    Forever,
    /// For so many nanoseconds.
    For(i64),
}

impl Keep {
    /// From nanoseconds, of which 0 means for ever.
    #[must_use]
    pub fn of_ns(ns: i64) -> Self {
        if ns <= 0 { Self::Forever } else { Self::For(ns) }
    }

    /// In nanoseconds, 0 for ever.
    #[must_use]
    pub fn ns(self) -> i64 {
        match self {
            Self::Forever => 0,
            Self::For(ns) => ns,
        }
    }

    /// Nothing before this time is accepted at `now`.
    #[must_use]
    pub fn from(self, now: i64) -> Option<i64> {
        match self {
            Self::Forever => None,
            Self::For(ns) => Some(now.saturating_sub(ns).max(TIMESTAMP_MIN)),
        }
    }

    /// What lies before this time has expired at `now`: the start of a UTC day, or of an hour if less than
    /// seven days are kept. Never later than [`Keep::from`].
    #[must_use]
    pub fn cutoff(self, now: i64) -> Option<i64> {
        let step = if self.ns() >= BY_DAYS { DAY } else { HOUR };
        self.from(now).map(|from| from.div_euclid(step).saturating_mul(step).max(TIMESTAMP_MIN))
    }

    /// The start of the UTC day that [`Keep::from`] lies in.
    fn day(self, now: i64) -> Option<i64> {
        self.from(now).map(|from| from.div_euclid(DAY).saturating_mul(DAY).max(TIMESTAMP_MIN))
    }

    /// The longer of two.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::For(one), Self::For(other)) => Self::For(one.max(other)),
            _ => Self::Forever,
        }
    }
}

/// How the days of a database are sealed once they are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SealForm {
    /// Packed readings beside readable summaries.
    #[default]
    Packed,
    /// Readings in columns that people read, in a store that people read.
    Columns,
    /// Not at all: they stay in hour pages.
    Off,
}

named!(SealForm: Packed "packed", Columns "columns", Off "off");

/// What becomes of a value of another family than its field's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Drift {
    /// It is rejected.
    #[default]
    Reject,
    /// It is kept beside the field.
    Keep,
}

named!(Drift: Reject "reject", Keep "keep");

/// How far readings have gone of which the summaries stay. It never goes back: nothing can come to those days any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredReadings {
    /// Readings before this time, the start of a UTC day, are refused, and no longer shown.
    pub before: i64,
    /// Every reading before that time was logged below this stamp: they may go once the floor has passed it.
    pub stamp: Stamp,
    /// The time before which all of them have gone.
    pub done: i64,
}

/// The settings of one database, as the store holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// The revision that the store holds.
    pub rev: u64,
    /// How long readings are kept; `None` for the config's default.
    pub readings: Option<Keep>,
    /// The policy that is meant where none is named; `None` for the database itself.
    pub default: Option<String>,
    /// `REPLICATION` and `SHARD DURATION`, which InfluxDB's clients set and read back. They have no effect.
    pub replication: Option<u32>,
    /// In nanoseconds.
    pub shard_duration: Option<i64>,
    /// Up to which time everything was deleted because it had expired, since `readings` or `summaries` was last changed.
    pub expired: Option<i64>,
    /// How long summaries are kept, if longer than readings; `None` for the config's default.
    pub summaries: Option<Keep>,
    /// Which readings have gone while their summaries stay.
    pub expired_readings: Option<ExpiredReadings>,
    /// How days are sealed; `None` for the config's default.
    pub seal_form: Option<SealForm>,
    /// What becomes of values of other families; `None` for what the database of a policy says, else the config's default.
    pub drift: Option<Drift>,
    /// When somebody last created the database, as a stamp: a drop with a lower one came before. 0 if only writes made it.
    pub created: Stamp,
    /// When somebody last set any of this, as a stamp.
    pub set: Stamp,
    /// The names under which its sensors are shown, in its policies too.
    pub renames: Renames,
}

impl DatabaseSettings {
    /// The settings that a drop with this stamp leaves: those set since, the database without settings, or nothing.
    #[must_use]
    pub fn left_by_drop(&self, stamp: Stamp) -> Option<Self> {
        if self.set > stamp {
            return Some(self.clone());
        }
        (self.created > stamp).then(|| Self { rev: self.rev, created: self.created, ..Self::default() })
    }

    /// The stamp of the last change that a drop with a greater one takes along.
    #[must_use]
    pub fn last_changed(&self) -> Stamp {
        self.created.max(self.set)
    }

    /// The length of `InfluxDB`'s shard groups, in nanoseconds, which follows from the duration unless it was set.
    #[must_use]
    pub fn shard_duration(&self, kept: Keep) -> i64 {
        shard_duration(self.shard_duration.unwrap_or_default(), kept)
    }
}

/// As `InfluxDB` normalises the length of shard groups.
#[must_use]
pub fn shard_duration(asked: i64, kept: Keep) -> i64 {
    match (asked, kept.ns()) {
        (0, 0) => 7 * DAY,
        (0, kept) if kept >= 180 * DAY => 7 * DAY,
        (0, kept) if kept >= 2 * DAY => DAY,
        (0, _) => HOUR,
        (asked, _) => asked.max(HOUR),
    }
}

/// Why a name stands for no database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchPolicy {
    /// The database has no policy of this name. The text is InfluxDB's.
    #[error("retention policy not found: {0}")]
    Unknown(String),
    /// The database's name has a policy, and another one is named beside it.
    #[error("two retention policies are named: {0} and {1}")]
    Two(String, String),
}

/// The settings of all databases at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The rows of the store, by database.
    pub by_database: BTreeMap<String, DatabaseSettings>,
    /// How long a database without a setting of its own keeps readings.
    pub readings: Option<Keep>,
    /// How long it keeps summaries; `None` for as long as readings.
    pub summaries: Option<Keep>,
    /// How its days are sealed; `None` until the store was asked.
    pub seal_form: Option<SealForm>,
    /// What becomes of its values of other families.
    pub drift: Drift,
}

impl Settings {
    /// The settings of a database; the default ones if the store has none.
    #[must_use]
    pub fn of(&self, database: &str) -> DatabaseSettings {
        self.by_database.get(database).cloned().unwrap_or_default()
    }

    /// The renames of a database; `None` if there are none. A policy has those of its database.
    #[must_use]
    pub fn renames(&self, database: &str) -> Option<&Renames> {
        self.by_database.get(owner(database)).map(|settings| &settings.renames).filter(|renames| !renames.is_empty())
    }

    /// How long a database keeps readings. A policy without a setting of its own keeps them for ever.
    #[must_use]
    pub fn kept(&self, database: &str) -> Keep {
        let set = self.by_database.get(database).and_then(|settings| settings.readings);
        let default = self.readings.filter(|_| !database.contains(POLICY_MARK));
        set.or(default).unwrap_or(Keep::Forever)
    }

    /// How long a database keeps summaries: never shorter than readings.
    #[must_use]
    pub fn summaries_kept(&self, database: &str) -> Keep {
        let set = self.by_database.get(database).and_then(|settings| settings.summaries);
        let default = self.summaries.filter(|_| !database.contains(POLICY_MARK));
        let readings = self.kept(database);
        set.or(default).map_or(readings, |summaries| summaries.longer(readings))
    }

    /// How the days of a database are sealed: not at all where nobody knows yet.
    #[must_use]
    pub fn sealed_as(&self, database: &str) -> SealForm {
        let set = self.by_database.get(database).and_then(|settings| settings.seal_form);
        set.or(self.seal_form).unwrap_or(SealForm::Off)
    }

    /// What becomes of values of other families in a database.
    #[must_use]
    pub fn drift(&self, database: &str) -> Drift {
        let set = |name: &str| self.by_database.get(name).and_then(|settings| settings.drift);
        set(database).or_else(|| set(owner(database))).unwrap_or(self.drift)
    }

    /// The time before which everything has expired at `now`, summaries too.
    #[must_use]
    pub fn gone_before(&self, database: &str, now: i64) -> Option<i64> {
        let (readings, summaries) = (self.kept(database), self.summaries_kept(database));
        if readings == summaries { readings.cutoff(now) } else { summaries.day(now) }
    }

    /// The start of the UTC day before which readings expire at `now` while their summaries stay.
    #[must_use]
    pub fn summaries_only_before(&self, database: &str, now: i64) -> Option<i64> {
        let (readings, summaries) = (self.kept(database), self.summaries_kept(database));
        readings.day(now).filter(|_| readings != summaries)
    }

    /// The time from which on a database has readings, where it has summaries of earlier ones.
    #[must_use]
    pub fn readings_from(&self, database: &str, now: i64) -> Option<i64> {
        let gone = self.by_database.get(database).and_then(|of| of.expired_readings).map(|gone| gone.before);
        self.summaries_only_before(database, now).max(gone)
    }

    /// The time before which a reading is refused at `now`.
    #[must_use]
    pub fn accepted_from(&self, database: &str, now: i64) -> Option<i64> {
        self.kept(database).from(now).max(self.readings_from(database, now))
    }

    /// Whether a policy exists.
    #[must_use]
    pub fn has_policy(&self, database: &str, policy: &str) -> bool {
        policy == AUTOGEN || self.by_database.contains_key(&policy_database(database, policy))
    }

    /// The policies of a database in the order of their names, `autogen` not among them.
    pub fn policies<'s>(&'s self, database: &str) -> impl Iterator<Item = (&'s str, &'s DatabaseSettings)> {
        let first = policy_database(database, "");
        let length = first.len();
        let from = self.by_database.range((Bound::Excluded(first.clone()), Bound::Unbounded));
        from.take_while(move |(name, _)| name.starts_with(&first)).map(move |(name, of)| (&name[length..], of))
    }

    /// The policy that is meant where none is named.
    #[must_use]
    pub fn default_policy(&self, database: &str) -> &str {
        let default = self.by_database.get(database).and_then(|settings| settings.default.as_deref());
        default.unwrap_or(AUTOGEN)
    }

    /// The database that a name and a policy stand for. The name may have the policy behind a slash.
    ///
    /// # Errors
    /// If there is no such policy.
    pub fn resolve(&self, name: &str, policy: Option<&str>) -> Result<String, NoSuchPolicy> {
        let (database, within) = name.split_once(POLICY_MARK).unwrap_or((name, ""));
        let policy = policy.filter(|policy| !policy.is_empty());
        let policy = match (within, policy) {
            ("", policy) => policy,
            (within, Some(policy)) if policy != within => {
                return Err(NoSuchPolicy::Two(within.to_owned(), policy.to_owned()));
            }
            (within, _) => Some(within),
        };
        match policy.unwrap_or_else(|| self.default_policy(database)) {
            AUTOGEN => Ok(database.to_owned()),
            policy if self.has_policy(database, policy) => Ok(policy_database(database, policy)),
            policy => Err(NoSuchPolicy::Unknown(policy.to_owned())),
        }
    }
}

/// The name of the database that a policy is.
#[must_use]
pub fn policy_database(database: &str, policy: &str) -> String {
    format!("{database}{POLICY_MARK}{policy}")
}

/// The name by which a client means exactly this stored database: by itself a name stands for its default policy.
#[must_use]
pub fn named_in_full(database: &str) -> String {
    if database.contains(POLICY_MARK) { database.to_owned() } else { policy_database(database, AUTOGEN) }
}

/// The database that a policy belongs to, or the database itself.
#[must_use]
pub fn owner(database: &str) -> &str {
    database.split_once(POLICY_MARK).map_or(database, |(owner, _)| owner)
}

/// Whether `InfluxDB` takes this as a name of a database or of a policy.
#[must_use]
pub fn is_policy_name(name: &str) -> bool {
    !matches!(name, "" | "." | ".." | AUTOGEN) && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\'))
}

/// The settings as last read, shared by all who need them.
pub type KnownSettings = Snapshot<Settings>;

impl KnownSettings {
    /// Replaces the row of a database; `None` removes it.
    pub fn put(&self, database: &str, row: Option<DatabaseSettings>) {
        self.change(|known| match row {
            Some(row) => drop(known.by_database.insert(database.to_owned(), row)),
            None => drop(known.by_database.remove(database)),
        });
    }
}

#[cfg(test)]
mod tests;
