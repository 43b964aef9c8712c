//! The two kinds of error. A [`ParseError`] rejects the whole query (InfluxDB answers HTTP 400), a [`StatementError`]
//! one statement of it (HTTP 200, with the error in that statement's result).

use thiserror::Error;

use super::token::Position;

/// Why a query does not parse. The text is InfluxDB's without its prefix: the caller adds `error parsing query: ` once.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParseError {
    /// A token that cannot follow the tokens before it.
    #[error("found {found}, expected {} at {at}", expected.join(", "))]
    Unexpected {
        /// The token's text.
        found: String,
        /// The tokens that could follow.
        expected: Vec<&'static str>,
        /// The token's position.
        at: Position,
    },
    /// A token with an invalid value.
    #[error("{message} at {at}")]
    Invalid {
        /// What is wrong with it.
        message: String,
        /// The token's position.
        at: Position,
    },
    /// A comparison in a column of a SELECT.
    #[error("invalid operator {operator} in SELECT clause at {at}; operator is intended for WHERE clause")]
    Operator {
        /// The operator.
        operator: &'static str,
        /// The position where the column starts.
        at: Position,
    },
    /// An impossible clause; InfluxDB gives no position for these.
    #[error("{0}")]
    Clause(String),
    /// A bound parameter without a value in the request.
    #[error("missing parameter: {name}")]
    MissingParameter {
        /// Its name, without the dollar sign.
        name: String,
    },
    /// An unknown time zone.
    #[error("unable to find time zone {name}")]
    UnknownZone {
        /// The zone as written.
        name: String,
    },
    /// A limit that InfluxDB does not have; it keeps recursion from overflowing the stack.
    #[error("{what} of the query is over the limit of {limit}")]
    Limit {
        /// The quantity that is limited.
        what: &'static str,
        /// Its maximum.
        limit: usize,
    },
}

/// Why a statement that parsed cannot run. The texts are InfluxDB's.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum StatementError {
    /// An unknown function.
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
        /// The number of arguments it takes, as text.
        expected: String,
        /// The number of arguments given.
        got: usize,
    },
    /// An argument of a kind that the function does not accept.
    #[error("{0}")]
    Argument(String),
    /// A function that needs windows, in a statement without windows.
    #[error("{name} aggregate requires a GROUP BY interval")]
    NeedsInterval {
        /// The function.
        name: String,
    },
    /// A function over windows whose argument is a plain field.
    #[error("aggregate function required inside the call to {name}")]
    NeedsAggregate {
        /// The function.
        name: String,
    },
    /// `top()` or `bottom()` together with another function.
    #[error("selector function {name}() cannot be combined with other functions")]
    NotCombinable {
        /// `top` or `bottom`.
        name: String,
    },
    /// Columns, dimensions or fills that cannot be combined.
    #[error("{0}")]
    Combination(&'static str),
    /// An expression that cannot be a condition.
    #[error("invalid condition expression: {expression}")]
    Condition {
        /// The expression.
        expression: String,
    },
    /// A function in a condition, where there is nothing to aggregate.
    #[error("invalid function call in condition: {call}")]
    CallInCondition {
        /// The call.
        call: String,
    },
    /// `time` compared to something that is not a time.
    #[error("invalid operation: time and *influxql.{kind} are not compatible")]
    NotATime {
        /// InfluxDB's name for the kind of expression.
        kind: &'static str,
    },
    /// `time` compared by an operator that does not define a range.
    #[error("invalid time comparison operator: {operator}")]
    TimeOperator {
        /// The operator.
        operator: &'static str,
    },
    /// A text that looks like a time but is not one.
    #[error("invalid timestamp string")]
    Timestamp,
    /// A time outside the range of 64-bit nanoseconds.
    #[error("time {time} {direction} time literal")]
    TimeRange {
        /// The time.
        time: String,
        /// `overflows` or `underflows`.
        direction: &'static str,
    },
}
