//! The syntax tree of a query. `now()` is a [`Call`](Expr::Call) like any other.
//!
//! `Display` prints statements that change data as InfluxDB does, and the text parses to the same tree. It prints only
//! the first word of other statements.

pub(super) mod display;
mod expr;
mod named;

pub use expr::{Expr, Literal, Operator, ReferenceKind, WildcardKind};

/// One statement of a query.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a query has at most a hundred statements")]
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
    /// `SHOW MEASUREMENTS`, `SERIES`, `TAG KEYS`, `TAG VALUES` or `FIELD KEYS`, or the `CARDINALITY` of one.
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
        /// The measurements; all if empty.
        sources: Vec<Measurement>,
        /// The condition on their series; all if `None`.
        condition: Option<Expr>,
    },
    /// `DELETE [FROM …] [WHERE …]`
    Delete {
        /// The measurements; all if empty.
        sources: Vec<Measurement>,
        /// The condition on their readings; all if `None`.
        condition: Option<Expr>,
    },
    /// `EXPLAIN [ANALYZE] SELECT …`
    Explain {
        /// The SELECT.
        select: Box<Select>,
        /// True if ANALYZE asks to run it.
        analyze: bool,
    },
    /// `SHOW QUERIES`
    ShowQueries,
    /// `SHOW USERS`
    ShowUsers,
    /// `SHOW STATS [FOR 'module']`
    ShowStats {
        /// The module; all if `None`.
        module: Option<String>,
    },
    /// `SHOW DIAGNOSTICS [FOR 'module']`
    ShowDiagnostics {
        /// The module; all if `None`.
        module: Option<String>,
    },
    /// `KILL QUERY id [ON "host"]`. The host is ignored.
    KillQuery {
        /// The number that `SHOW QUERIES` lists.
        id: u64,
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
    /// The selected columns; never empty.
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
    /// `ORDER BY [time] [ASC|DESC]`: true if the earliest rows come first.
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
    /// Returns true if the latest rows come first.
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
    /// The name or pattern.
    pub name: MeasurementName,
}

/// The name or pattern of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasurementName {
    /// The measurement with this name.
    Exact(String),
    /// All measurements that match the regex.
    Regex(String),
    /// The measurement of the source rows: `INTO policy.:MEASUREMENT`.
    OfSource,
}

/// The content of empty windows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fill {
    /// Null.
    #[default]
    Null,
    /// Empty windows are omitted.
    None,
    /// The value of the previous window.
    Previous,
    /// Linear interpolation between the neighbouring windows.
    Linear,
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
}

/// `SHOW MEASUREMENTS`, `SERIES`, `TAG KEYS`, `TAG VALUES`, `FIELD KEYS`, or the `CARDINALITY` of one. The parser
/// ensures that a statement has only clauses that its kind allows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// The listed or counted items.
    pub kind: ListingKind,
    /// `CARDINALITY`: only the number of items.
    pub cardinality: Option<Cardinality>,
    /// `ON database`; the request's if `None`.
    pub database: Option<String>,
    /// `ON database.policy`, only in `SHOW MEASUREMENTS`; all policies if `None`.
    pub policy: Option<String>,
    /// `WITH MEASUREMENT = name` or `=~ /regex/`, only in `SHOW MEASUREMENTS`.
    pub matching: Option<Measurement>,
    /// `FROM …`; all measurements if empty.
    pub sources: Vec<Measurement>,
    /// `WITH KEY …`: required for tag values, optional for tag keys (as in InfluxDB from 1.8 on).
    pub keys: Option<KeyFilter>,
    /// `WHERE …`
    pub condition: Option<Expr>,
    /// `GROUP BY …`, only with CARDINALITY.
    pub group_by: Vec<Expr>,
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
    /// The keys that the filter names.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Is(key) => std::slice::from_ref(key),
            Self::In(keys) => keys,
            Self::IsNot(_) | Self::Matches(_) | Self::MatchesNot(_) => &[],
        }
    }
}

/// The items of a [`Listing`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub enum ListingKind {
    #[default]
    Measurements,
    Series,
    TagKeys,
    TagValues,
    FieldKeys,
}

/// The method of counting the items of a [`Listing`].
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
    /// True if the policy becomes the default policy of the database.
    pub is_default: bool,
}
