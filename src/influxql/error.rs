//! The two kinds of error. A [`ParseError`] refuses the whole query (InfluxDB answers HTTP 400), a
//! [`StatementError`] one statement of it (HTTP 200, the error in that statement's result).

use thiserror::Error;

use super::token::Position;

/// Why a query is none. The text is InfluxDB's without its prefix: whoever answers puts `error parsing query: `
/// before it, once.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParseError {
    /// Another token had to stand there.
    #[error("found {found}, expected {} at {at}", expected.join(", "))]
    Unexpected {
        /// What stands there.
        found: String,
        /// What could stand there.
        expected: Vec<&'static str>,
        /// Where.
        at: Position,
    },
    /// A token that cannot be what it has to be.
    #[error("{message} at {at}")]
    Invalid {
        /// What is wrong with it.
        message: String,
        /// Where it stands.
        at: Position,
    },
    /// A comparison among the columns of a SELECT.
    #[error("invalid operator {operator} in SELECT clause at {at}; operator is intended for WHERE clause")]
    Operator {
        /// The operator.
        operator: &'static str,
        /// Where the column starts.
        at: Position,
    },
    /// A clause that says something impossible; InfluxDB gives no position for these.
    #[error("{0}")]
    Clause(String),
    /// A parameter that the request did not send.
    #[error("missing parameter: {name}")]
    MissingParameter {
        /// Its name, without the dollar sign.
        name: String,
    },
    /// A zone that nobody knows.
    #[error("unable to find time zone {name}")]
    UnknownZone {
        /// The zone as written.
        name: String,
    },
    /// A limit that InfluxDB does not have: it keeps the stack from overflowing.
    #[error("{what} of the query is over the limit of {limit}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// The most there may be.
        limit: usize,
    },
}

/// Why a statement that parsed cannot be run. The texts are InfluxDB's.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StatementError {
    /// No such function.
    #[error("undefined function {name}()")]
    UndefinedFunction {
        /// The name as written, in lower case.
        name: String,
    },
    /// Too few or too many arguments.
    #[error("invalid number of arguments for {name}, expected {expected}, got {got}")]
    ArgumentCount {
        /// The function.
        name: String,
        /// How many it takes.
        expected: String,
        /// How many there are.
        got: usize,
    },
    /// An argument that is not of the kind the function takes.
    #[error("{0}")]
    Argument(String),
    /// A function that needs windows in a statement without them.
    #[error("{name} aggregate requires a GROUP BY interval")]
    NeedsInterval {
        /// The function.
        name: String,
    },
    /// A function over windows whose argument is a bare field.
    #[error("aggregate function required inside the call to {name}")]
    NeedsAggregate {
        /// The function.
        name: String,
    },
    /// `top()` or `bottom()` beside another function.
    #[error("selector function {name}() cannot be combined with other functions")]
    NotCombinable {
        /// `top` or `bottom`.
        name: String,
    },
    /// Columns, dimensions or fills that do not go together.
    #[error("{0}")]
    Combination(&'static str),
    /// A condition that is none.
    #[error("invalid condition expression: {expression}")]
    Condition {
        /// The expression.
        expression: String,
    },
    /// A function where there is nothing to aggregate.
    #[error("invalid function call in condition: {call}")]
    CallInCondition {
        /// The call.
        call: String,
    },
    /// `time` compared to something that is no time.
    #[error("invalid operation: time and *influxql.{kind} are not compatible")]
    NotATime {
        /// InfluxDB's name for the kind of expression.
        kind: &'static str,
    },
    /// `time` compared by an operator that makes no range.
    #[error("invalid time comparison operator: {operator}")]
    TimeOperator {
        /// The operator.
        operator: &'static str,
    },
    /// A text that looks like a time and is none.
    #[error("invalid timestamp string")]
    Timestamp,
    /// A time outside of 64-bit nanoseconds.
    #[error("time {time} {direction} time literal")]
    TimeRange {
        /// The time.
        time: String,
        /// `overflows` or `underflows`.
        direction: &'static str,
    },
}
