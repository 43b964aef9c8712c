//! The syntax tree of a query. It needs no storage and no clock: `now()` is a [`Call`](Expr::Call) like any other.
//! `Display` writes a statement that changes something as InfluxDB prints it; the text parses to the same tree. Of other
//! statements it writes the first word.

pub(super) mod display;
mod expr;
mod named;

pub use expr::{Expr, Literal, Operator, ReferenceKind, WildcardKind};

/// One statement of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `SELECT …`
    Select(Box<Select>),
    /// `SHOW DATABASES`
    ShowDatabases,
    /// `SHOW RETENTION POLICIES [ON database]`
    ShowRetentionPolicies {
        /// The database; the request's if `None`.
        database: Option<String>,
    },
    /// A list of measurements, series, tag keys, tag values or field keys, or their number.
    Show(Listing),
    /// `CREATE DATABASE name [WITH …]`
    CreateDatabase {
        /// The database.
        name: String,
        /// The retention policy to create with it.
        policy: Option<NewPolicy>,
    },
    /// `CREATE RETENTION POLICY name ON database DURATION d REPLICATION n [SHARD DURATION d] [DEFAULT]`
    CreatePolicy(PolicyStatement),
    /// `ALTER RETENTION POLICY name ON database [DURATION d] [REPLICATION n] [SHARD DURATION d] [DEFAULT]`
    AlterPolicy(PolicyStatement),
    /// `DROP RETENTION POLICY name ON database`
    DropPolicy {
        /// The policy.
        name: String,
        /// The database.
        database: String,
    },
    /// `DROP DATABASE name`
    DropDatabase {
        /// The database.
        name: String,
    },
    /// `DROP MEASUREMENT name`
    DropMeasurement {
        /// The measurement.
        name: String,
    },
    /// `DROP SERIES [FROM …] [WHERE …]`
    DropSeries {
        /// The measurements; all when empty.
        sources: Vec<Measurement>,
        /// Which of their series; all if `None`.
        condition: Option<Expr>,
    },
    /// `DELETE [FROM …] [WHERE …]`
    Delete {
        /// The measurements; all when empty.
        sources: Vec<Measurement>,
        /// Which of their readings; all if `None`.
        condition: Option<Expr>,
    },
    /// A statement of InfluxDB that is recognized by its keywords only.
    Unsupported {
        /// The keywords, such as `CREATE USER`.
        what: &'static str,
    },
}

/// A SELECT, or a subquery of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// What is selected; never empty.
    pub columns: Vec<SelectColumn>,
    /// `INTO …`
    pub into: Option<Measurement>,
    /// `FROM …`; never empty.
    pub sources: Vec<FromSource>,
    /// `WHERE …`, including its conditions on time, which [`split`](super::conditions::split) separates.
    pub condition: Option<Expr>,
    /// `GROUP BY …`: references, wildcards, regexes and `time(…)`, interpreted by [`check`](super::check::check).
    pub group_by: Vec<Expr>,
    /// `fill(…)`
    pub fill: Fill,
    /// `ORDER BY [time] [ASC|DESC]`: whether the earliest rows come first.
    pub ascending: Option<bool>,
    /// `LIMIT n`: rows per series, 0 for all.
    pub limit: u64,
    /// `OFFSET n`
    pub offset: u64,
    /// `SLIMIT n`: series, 0 for all.
    pub slimit: u64,
    /// `SOFFSET n`
    pub soffset: u64,
    /// `tz('…')`
    pub zone: Option<String>,
}

impl Select {
    /// Whether the latest rows come first.
    #[must_use]
    pub fn is_descending(&self) -> bool {
        self.ascending == Some(false)
    }
}

/// One column of a SELECT.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectColumn {
    /// The column's expression.
    pub expr: Expr,
    /// `AS alias`
    pub alias: Option<String>,
}

/// A source of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum FromSource {
    /// A measurement, or all that match a regex.
    Measurement(Measurement),
    /// Another SELECT.
    Subquery(Box<Select>),
}

/// `database.policy.name`, where the first two may be absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The database; the request's if `None`.
    pub database: Option<String>,
    /// The retention policy; the default one if `None`.
    pub policy: Option<String>,
    /// Which measurement.
    pub name: MeasurementName,
}

/// Which measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasurementName {
    /// The measurement of this name.
    Exact(String),
    /// All measurements that match.
    Regex(String),
    /// The measurement that the rows come from: `INTO policy.:MEASUREMENT`.
    OfSource,
}

/// What empty windows show.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fill {
    /// Null.
    #[default]
    Null,
    /// Empty windows are left out.
    None,
    /// The value of the window before.
    Previous,
    /// Linear interpolation between the neighbouring windows.
    Linear,
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
}

/// `SHOW MEASUREMENTS`, `SERIES`, `TAG KEYS`, `TAG VALUES`, `FIELD KEYS`, or the `CARDINALITY` of one. The parser decides which of
/// the clauses a statement may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// What is listed or counted.
    pub of: ListingOf,
    /// `CARDINALITY`: only their number.
    pub cardinality: Option<Cardinality>,
    /// `ON database`; the request's if `None`.
    pub database: Option<String>,
    /// `ON database.policy`, only of `SHOW MEASUREMENTS`; all policies if `None`.
    pub policy: Option<String>,
    /// `WITH MEASUREMENT = name` or `=~ /regex/`, only of `SHOW MEASUREMENTS`.
    pub matching: Option<Measurement>,
    /// `FROM …`; all measurements if empty.
    pub sources: Vec<Measurement>,
    /// `WITH KEY …`: always of tag values, and supported by InfluxDB of tag keys from 1.8 on.
    pub keys: Option<KeyFilter>,
    /// `WHERE …`
    pub condition: Option<Expr>,
    /// `LIMIT n`, 0 for all.
    pub limit: u64,
    /// `OFFSET n`
    pub offset: u64,
    /// `SLIMIT n`, 0 for all.
    pub slimit: u64,
    /// `SOFFSET n`
    pub soffset: u64,
}

/// `WITH KEY …`: a filter on tag keys.
#[derive(Debug, Clone, PartialEq)]
pub enum KeyFilter {
    /// `= key`
    Is(String),
    /// `!= key`
    IsNot(String),
    /// `=~ /regex/`
    Matches(String),
    /// `!~ /regex/`
    MatchesNot(String),
    /// `IN (key, …)`
    In(Vec<String>),
}

impl KeyFilter {
    /// The keys that it names.
    #[must_use]
    pub fn named(&self) -> &[String] {
        match self {
            Self::Is(key) => std::slice::from_ref(key),
            Self::In(keys) => keys,
            Self::IsNot(_) | Self::Matches(_) | Self::MatchesNot(_) => &[],
        }
    }
}

/// What a [`Listing`] lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ListingOf {
    #[default]
    Measurements,
    Series,
    TagKeys,
    TagValues,
    FieldKeys,
}

/// How the number of a [`Listing`] is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cardinality {
    /// `CARDINALITY`
    Estimated,
    /// `EXACT CARDINALITY`
    Exact,
}

/// The retention policy of `CREATE DATABASE … WITH …`, durations in nanoseconds. `INF` is 0, as in InfluxDB.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewPolicy {
    /// `DURATION d`
    pub duration: Option<i64>,
    /// `REPLICATION n`
    pub replication: Option<u32>,
    /// `SHARD DURATION d`
    pub shard_duration: Option<i64>,
    /// `NAME name`
    pub name: Option<String>,
}

/// A statement about a retention policy of a database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyStatement {
    /// The database.
    pub database: String,
    /// The policy, which always has a name.
    pub policy: NewPolicy,
    /// Whether it is to be the one that is meant where none is named.
    pub default: bool,
}
