//! The settings of databases, such as retention periods, and the names of retention policies. The policy `week` of the
//! database `w` is stored as the separate database `w/week`; `autogen` is `w` itself. Callers pass the current time.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::rename::Renames;
use super::snapshot::Snapshot;
use crate::reading::Stamp;
use crate::reading::time::TIMESTAMP_MIN;

/// The name of the policy that is the database itself.
pub const AUTOGEN: &str = "autogen";
/// The separator between a database's name and a policy's name.
pub const POLICY_MARK: char = '/';
/// The shortest retention period, as in `InfluxDB`.
pub const RETENTION_MIN: i64 = HOUR;
/// The shortest retention period with which readings expire by whole UTC days. With a shorter one, they expire by whole
/// hours.
const DAILY_EXPIRY_MIN: i64 = 7 * DAY;

const HOUR: i64 = 3_600_000_000_000;
const DAY: i64 = 24 * HOUR;

/// A retention period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Data never expires.
    Forever,
    /// Data expires after this many nanoseconds.
    For(i64),
}

impl Keep {
    /// A retention period of `ns` nanoseconds, where 0 means forever.
    #[must_use]
    pub fn from_ns(ns: i64) -> Self {
        if ns <= 0 { Self::Forever } else { Self::For(ns) }
    }

    /// The period in nanoseconds; 0 means forever.
    #[must_use]
    pub fn ns(self) -> i64 {
        match self {
            Self::Forever => 0,
            Self::For(ns) => ns,
        }
    }

    /// The earliest time that is accepted at `now`; `None` if there is no limit.
    #[must_use]
    pub fn start(self, now: i64) -> Option<i64> {
        match self {
            Self::Forever => None,
            Self::For(ns) => Some(now.saturating_sub(ns).max(TIMESTAMP_MIN)),
        }
    }

    /// The time before which readings have expired at `now`: the start of a UTC day, or of an hour if the period is
    /// less than seven days. Never later than [`Keep::start`].
    #[must_use]
    pub fn cutoff(self, now: i64) -> Option<i64> {
        let step = if self.ns() >= DAILY_EXPIRY_MIN { DAY } else { HOUR };
        self.start(now).map(|from| from.div_euclid(step).saturating_mul(step).max(TIMESTAMP_MIN))
    }

    /// The start of the UTC day that contains [`Keep::start`].
    fn day(self, now: i64) -> Option<i64> {
        self.start(now).map(|from| from.div_euclid(DAY).saturating_mul(DAY).max(TIMESTAMP_MIN))
    }

    /// The longer of two periods.
    #[must_use]
    pub fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::For(one), Self::For(other)) => Self::For(one.max(other)),
            _ => Self::Forever,
        }
    }
}

/// The stored form of past days.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SealForm {
    /// Packed readings and readable summaries.
    #[default]
    Packed,
    /// Readings in readable columns, if the store is readable.
    Columns,
    /// Days are not sealed: they stay in hour pages.
    Off,
}

named!(SealForm: Packed "packed", Columns "columns", Off "off");

/// The treatment of a value whose family differs from its field's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Drift {
    /// The value is rejected.
    #[default]
    Reject,
    /// The value is stored in a separate field ([`Family::beside`](crate::reading::Family::beside)).
    Keep,
}

named!(Drift: Reject "reject", Keep "keep");

/// The progress of the expiry of readings whose summaries stay. It never moves back: no reading can be added to expired
/// days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpiredReadings {
    /// Readings before this time, the start of a UTC day, are rejected and hidden from queries.
    pub before: i64,
    /// All readings before that time have lower stamps. They can be removed once the floor has passed this stamp.
    pub stamp: Stamp,
    /// The time before which all readings have been removed.
    pub done: i64,
}

/// The settings of one database, as the store holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseSettings {
    /// The revision that the store holds.
    pub rev: u64,
    /// The retention period of readings; `None` for the configured default.
    pub readings: Option<Keep>,
    /// The default retention policy; `None` for the database itself.
    pub default: Option<String>,
    /// The value of `REPLICATION`, which InfluxDB clients set and read back. It has no effect.
    pub replication: Option<u32>,
    /// The value of `SHARD DURATION` in nanoseconds, which InfluxDB clients set and read back. It has no effect.
    pub shard_duration: Option<i64>,
    /// The time up to which expired data was deleted since the last change of `readings` or `summaries`.
    pub expired: Option<i64>,
    /// The retention period of summaries, if longer than that of readings; `None` for the configured default.
    pub summaries: Option<Keep>,
    /// The expiry of readings whose summaries stay.
    pub expired_readings: Option<ExpiredReadings>,
    /// The stored form of past days; `None` for the configured default.
    pub seal_form: Option<SealForm>,
    /// The treatment of values of other families. `None` for the setting of the policy's database, or else the
    /// configured default.
    pub drift: Option<Drift>,
    /// The stamp of the last explicit creation. Drops with a lower stamp came before it. 0 if writes created the
    /// database.
    pub created: Stamp,
    /// The stamp of the last change of these settings by a client.
    pub set: Stamp,
    /// The names under which the sensors of the database and of its policies are shown.
    pub renames: Renames,
    /// The text of each own mapping of the database, by its name.
    pub mappings: Arc<BTreeMap<String, String>>,
}

impl DatabaseSettings {
    /// The settings after a drop with this stamp: unchanged if they were set later, without settings if only the
    /// creation was later, or else `None`.
    #[must_use]
    pub fn left_by_drop(&self, stamp: Stamp) -> Option<Self> {
        if self.set > stamp {
            return Some(self.clone());
        }
        (self.created > stamp).then(|| Self { rev: self.rev, created: self.created, ..Self::default() })
    }

    /// The stamp of the last creation or change. A drop with a greater stamp removes the settings.
    #[must_use]
    pub fn last_changed(&self) -> Stamp {
        self.created.max(self.set)
    }

    /// The duration of `InfluxDB`'s shard groups in nanoseconds. If it was not set, it follows from the retention
    /// period.
    #[must_use]
    pub fn shard_duration(&self, kept: Keep) -> i64 {
        shard_duration(self.shard_duration.unwrap_or_default(), kept)
    }
}

/// Normalizes the duration of a shard group as `InfluxDB` does. `requested` is in nanoseconds, 0 if not set.
#[must_use]
pub fn shard_duration(requested: i64, kept: Keep) -> i64 {
    match (requested, kept.ns()) {
        (0, 0) => 7 * DAY,
        (0, kept) if kept >= 180 * DAY => 7 * DAY,
        (0, kept) if kept >= 2 * DAY => DAY,
        (0, _) => HOUR,
        (requested, _) => requested.max(HOUR),
    }
}

/// The reason that a name does not refer to a database.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchPolicy {
    /// The database has no policy with this name. The message is InfluxDB's.
    #[error("retention policy not found: {0}")]
    Unknown(String),
    /// The database's name includes a policy, and the request names another one.
    #[error("two retention policies are named: {0} and {1}")]
    Two(String, String),
}

/// A snapshot of the settings of all databases, with the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The stored settings, by database.
    pub by_database: BTreeMap<String, DatabaseSettings>,
    /// The default retention period of readings.
    pub readings: Option<Keep>,
    /// The default retention period of summaries; `None` for that of readings.
    pub summaries: Option<Keep>,
    /// The default form of sealed days; `None` until it was read from the store.
    pub seal_form: Option<SealForm>,
    /// The default treatment of values of other families.
    pub drift: Drift,
}

impl Settings {
    /// The settings of a database; default settings if none are stored.
    #[must_use]
    pub fn for_database(&self, database: &str) -> DatabaseSettings {
        self.by_database.get(database).cloned().unwrap_or_default()
    }

    /// The renames of a database; `None` if there are none. A policy has the renames of its database.
    #[must_use]
    pub fn renames(&self, database: &str) -> Option<&Renames> {
        self.by_database.get(owner(database)).map(|settings| &settings.renames).filter(|renames| !renames.is_empty())
    }

    /// The texts of the own mappings of a database, by name. A policy has the mappings of its database.
    pub fn mappings(&self, database: &str) -> impl Iterator<Item = (&str, &str)> {
        let own = self.by_database.get(owner(database)).map(|settings| settings.mappings.iter());
        own.into_iter().flatten().map(|(name, text)| (&**name, &**text))
    }

    /// The retention period of a database's readings. The default does not apply to policies.
    #[must_use]
    pub fn readings_retention(&self, database: &str) -> Keep {
        let set = self.by_database.get(database).and_then(|settings| settings.readings);
        let default = self.readings.filter(|_| !database.contains(POLICY_MARK));
        set.or(default).unwrap_or(Keep::Forever)
    }

    /// The retention period of a database's summaries, at least that of its readings.
    #[must_use]
    pub fn summaries_retention(&self, database: &str) -> Keep {
        let set = self.by_database.get(database).and_then(|settings| settings.summaries);
        let default = self.summaries.filter(|_| !database.contains(POLICY_MARK));
        let readings = self.readings_retention(database);
        set.or(default).map_or(readings, |summaries| summaries.longer(readings))
    }

    /// The form in which a database's days are sealed; [`SealForm::Off`] until it is known.
    #[must_use]
    pub fn seal_form(&self, database: &str) -> SealForm {
        let set = self.by_database.get(database).and_then(|settings| settings.seal_form);
        set.or(self.seal_form).unwrap_or(SealForm::Off)
    }

    /// The treatment of values of other families in a database.
    #[must_use]
    pub fn drift(&self, database: &str) -> Drift {
        let set = |name: &str| self.by_database.get(name).and_then(|settings| settings.drift);
        set(database).or_else(|| set(owner(database))).unwrap_or(self.drift)
    }

    /// The time before which all data has expired at `now`, including summaries.
    #[must_use]
    pub fn cutoff(&self, database: &str, now: i64) -> Option<i64> {
        let readings = self.readings_retention(database);
        let summaries = self.summaries_retention(database);
        if readings == summaries { readings.cutoff(now) } else { summaries.day(now) }
    }

    /// The start of the UTC day before which readings have expired at `now` while their summaries stay.
    #[must_use]
    pub fn summaries_only_cutoff(&self, database: &str, now: i64) -> Option<i64> {
        let readings = self.readings_retention(database);
        let summaries = self.summaries_retention(database);
        readings.day(now).filter(|_| readings != summaries)
    }

    /// The time before which a database has summaries only; `None` if it has none without readings.
    #[must_use]
    pub fn readings_start(&self, database: &str, now: i64) -> Option<i64> {
        let expired = self.by_database.get(database).and_then(|settings| settings.expired_readings);
        self.summaries_only_cutoff(database, now).max(expired.map(|expired| expired.before))
    }

    /// The earliest time of a reading that is accepted at `now`.
    #[must_use]
    pub fn accepted_start(&self, database: &str, now: i64) -> Option<i64> {
        self.readings_retention(database).start(now).max(self.readings_start(database, now))
    }

    /// Returns true if a policy exists.
    #[must_use]
    pub fn has_policy(&self, database: &str, policy: &str) -> bool {
        policy == AUTOGEN || self.by_database.contains_key(&policy_database(database, policy))
    }

    /// The policies of a database in the order of their names, without `autogen`.
    pub fn policies<'s>(&'s self, database: &str) -> impl Iterator<Item = (&'s str, &'s DatabaseSettings)> {
        let first = policy_database(database, "");
        let length = first.len();
        let from = self.by_database.range((Bound::Excluded(first.clone()), Bound::Unbounded));
        let own = from.take_while(move |(name, _)| name.starts_with(&first));
        own.map(move |(name, settings)| (&name[length..], settings))
    }

    /// The policy of requests that name none.
    #[must_use]
    pub fn default_policy(&self, database: &str) -> &str {
        let default = self.by_database.get(database).and_then(|settings| settings.default.as_deref());
        default.unwrap_or(AUTOGEN)
    }

    /// The stored database for a name and a policy. The name may include the policy, as in `w/week`.
    ///
    /// # Errors
    /// [`NoSuchPolicy`] if the policy does not exist, or two different policies are named.
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

/// The name of the stored database of a policy.
#[must_use]
pub fn policy_database(database: &str, policy: &str) -> String {
    format!("{database}{POLICY_MARK}{policy}")
}

/// The name by which a client refers to exactly this stored database. A name without a policy refers to its default
/// policy.
#[must_use]
pub fn qualified_name(database: &str) -> String {
    if database.contains(POLICY_MARK) { database.to_owned() } else { policy_database(database, AUTOGEN) }
}

/// The database that a policy belongs to, or the database itself.
#[must_use]
pub fn owner(database: &str) -> &str {
    database.split_once(POLICY_MARK).map_or(database, |(owner, _)| owner)
}

/// Returns true if a new policy may have this name.
#[must_use]
pub fn is_policy_name(name: &str) -> bool {
    name != AUTOGEN && is_new_name(name)
}

/// Returns true if InfluxDB accepts the name for a new database or policy.
#[must_use]
pub fn is_new_name(name: &str) -> bool {
    let is_printable = |c: char| c == ' ' || !c.is_control() && !c.is_whitespace();
    !matches!(name, "" | "." | "..") && name.chars().all(|c| is_printable(c) && !matches!(c, '/' | '\\'))
}

/// The last known settings, shared by readers and writers.
pub type KnownSettings = Snapshot<Settings>;

impl KnownSettings {
    /// Replaces the settings of a database; `None` removes them.
    pub fn put(&self, database: &str, settings: Option<DatabaseSettings>) {
        self.change(|known| match settings {
            Some(settings) => drop(known.by_database.insert(database.to_owned(), settings)),
            None => drop(known.by_database.remove(database)),
        });
    }
}

#[cfg(test)]
mod tests;
