//! What a query says, as data. Nothing here knows storage or a clock: `now()` is a [`Call`](Expr::Call) like any
//! other. `Display` writes a statement as InfluxDB prints it; what it writes parses to the same tree.

mod display;
mod expr;
mod named;

pub use expr::{Expr, Kind, Literal, Operator, WildcardKind};

/// One statement of a query.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `SELECT …`
    Select(Box<Select>),
    /// `SHOW DATABASES`
    ShowDatabases,
    /// `SHOW RETENTION POLICIES [ON database]`
    ShowRetentionPolicies {
        /// The database, else the request's.
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
        /// `WITH KEY …`, which InfluxDB knows from 1.8 on.
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
        of: Counted,
        /// Counted one by one, not estimated.
        exact: bool,
        /// `WITH KEY …`, which only tag values have.
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
        /// The retention policy to make with it.
        policy: Option<NewPolicy>,
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
        sources: Vec<Source>,
        /// Which of their series.
        condition: Option<Expr>,
    },
    /// `DELETE [FROM …] [WHERE …]`
    Delete {
        /// The measurements; all when empty.
        sources: Vec<Source>,
        /// Which of their readings.
        condition: Option<Expr>,
    },
    /// A statement that InfluxDB has and that is not carried further than its name.
    Unsupported {
        /// Its keywords, such as `CREATE USER`.
        what: &'static str,
    },
}

/// A SELECT, or a subquery of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Select {
    /// What is selected; never empty.
    pub columns: Vec<Column>,
    /// `INTO …`
    pub into: Option<Measurement>,
    /// `FROM …`; never empty.
    pub sources: Vec<Source>,
    /// `WHERE …`, time and all. [`split`](super::conditions::split) takes it apart.
    pub condition: Option<Expr>,
    /// `GROUP BY …`: references, wildcards, regexes and `time(…)`. [`check`](super::check::check) reads them.
    pub group_by: Vec<Expr>,
    /// `fill(…)`
    pub fill: Fill,
    /// `ORDER BY …`, which is about time and nothing else.
    pub order: Option<Order>,
    /// `LIMIT n`: rows of a series, 0 for all.
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
    /// Whether there is no call among the columns: readings as they are.
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
pub struct Column {
    /// What it is made of.
    pub expr: Expr,
    /// `AS alias`
    pub alias: Option<String>,
}

/// Where a SELECT takes its rows from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A measurement, or all that match a regex.
    Measurement(Measurement),
    /// Another SELECT.
    Subquery(Box<Select>),
}

/// `database.policy.name`, where the first two may be absent.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// The database, else the request's.
    pub database: Option<String>,
    /// The retention policy, else the default one.
    pub policy: Option<String>,
    /// Which measurement.
    pub name: MeasurementName,
}

/// Which measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum MeasurementName {
    /// This one.
    Exact(String),
    /// All that match.
    Regex(String),
    /// The one that the rows come from: `INTO policy.:MEASUREMENT`.
    OfSource,
}

/// What empty windows show.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Fill {
    /// Null.
    #[default]
    Null,
    /// They are left out.
    None,
    /// What the window before shows.
    Previous,
    /// The straight line between their neighbours.
    Linear,
    /// An integer.
    Integer(i64),
    /// A float.
    Float(f64),
}

/// `ORDER BY [time] [ASC|DESC]`
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Whether a field was named, which is time in a SELECT. InfluxDB prints what was written.
    pub field: Option<String>,
    /// The earliest first.
    pub ascending: bool,
}

/// The clauses that the `SHOW` statements share. Which of them a statement may have, the parser knows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Listing {
    /// `ON database`, else the request's.
    pub database: Option<String>,
    /// `FROM …`; all when empty. No subqueries.
    pub sources: Vec<Source>,
    /// `WHERE …`
    pub condition: Option<Expr>,
    /// `ORDER BY …`
    pub order: Option<Order>,
    /// `LIMIT n`, 0 for all.
    pub limit: u64,
    /// `OFFSET n`
    pub offset: u64,
    /// `SLIMIT n`, 0 for all.
    pub slimit: u64,
    /// `SOFFSET n`
    pub soffset: u64,
}

/// `WITH KEY …`: the tags asked for.
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
pub enum Counted {
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
