//! The syntax tree of a query. It needs no storage and no clock: `now()` is a [`Call`](Expr::Call) like any other.
//! `Display` writes a statement as InfluxDB prints it; the text parses to the same tree.

mod display;
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
    /// `SHOW MEASUREMENTS [ON database] [WITH MEASUREMENT …]`; its listing has no sources.
    ShowMeasurements {
        /// `WITH MEASUREMENT = name` or `=~ /regex/`.
        matching: Option<Measurement>,
        /// The common clauses.
        listing: Listing,
    },
    /// `SHOW SERIES …`
    ShowSeries(Listing),
    /// `SHOW TAG KEYS …`
    ShowTagKeys {
        /// `WITH KEY …`, supported by InfluxDB from 1.8 on.
        keys: Option<KeyFilter>,
        /// The common clauses.
        listing: Listing,
    },
    /// `SHOW TAG VALUES … WITH KEY …`
    ShowTagValues {
        /// `WITH KEY …`
        keys: KeyFilter,
        /// The common clauses.
        listing: Listing,
    },
    /// `SHOW FIELD KEYS …`
    ShowFieldKeys(Listing),
    /// `SHOW … [EXACT] CARDINALITY …`
    ShowCardinality {
        /// What is counted.
        of: CardinalityOf,
        /// `EXACT`: counted, not estimated.
        exact: bool,
        /// `WITH KEY …`, only for tag values.
        keys: Option<KeyFilter>,
        /// The common clauses.
        listing: Listing,
        /// `GROUP BY …`
        group_by: Vec<Expr>,
    },
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
        sources: Vec<FromSource>,
        /// Which of their series; all if `None`.
        condition: Option<Expr>,
    },
    /// `DELETE [FROM …] [WHERE …]`
    Delete {
        /// The measurements; all when empty.
        sources: Vec<FromSource>,
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
    /// `ORDER BY …`; only time is allowed.
    pub order: Option<OrderBy>,
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
    /// Whether no column contains a call, so that the rows are readings as they are.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        !self.columns.iter().any(|column| column.expr.any(&|expr| matches!(expr, Expr::Call { .. })))
    }

    /// Whether the latest rows come first.
    #[must_use]
    pub fn is_descending(&self) -> bool {
        self.order.as_ref().is_some_and(|order| !order.ascending)
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

/// `ORDER BY [time] [ASC|DESC]`
#[derive(Debug, Clone, PartialEq)]
pub struct OrderBy {
    /// The field, if one was named; in a SELECT always `time`. InfluxDB prints it only if it was written.
    pub field: Option<String>,
    /// Whether the earliest rows come first.
    pub ascending: bool,
}

/// The clauses that the `SHOW` statements share. The parser decides which of them a statement may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// `ON database`; the request's if `None`.
    pub database: Option<String>,
    /// `ON database.policy`, only of `SHOW MEASUREMENTS`; all policies if `None`.
    pub policy: Option<String>,
    /// `FROM …` without subqueries; all measurements if empty.
    pub sources: Vec<FromSource>,
    /// `WHERE …`
    pub condition: Option<Expr>,
    /// `ORDER BY …`
    pub order: Option<OrderBy>,
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

/// What a `SHOW … CARDINALITY` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardinalityOf {
    /// Measurements.
    Measurements,
    /// Series.
    Series,
    /// Tag keys.
    TagKeys,
    /// Tag values.
    TagValues,
    /// Field keys.
    FieldKeys,
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
