//! A parser and checker of InfluxQL, the query language of InfluxDB 1.x. It does not depend on storage, HTTP or a
//! clock.
//!
//! Start with [`parse`], which returns [`Statement`]s, and [`Select`], the statement that reads data.
//!
//! ```
//! use hourglass_influxql::{Params, ParseOptions, Statement, parse};
//!
//! let options = ParseOptions { params: &Params::new(), is_known_zone: &|_| false, regex_error: &|_| None };
//! let statements = parse("SELECT mean(temp) FROM climate WHERE time > now() - 1h GROUP BY time(5m)", &options)?;
//! let [Statement::Select(select)] = statements.as_slice() else { panic!("one SELECT") };
//! assert_eq!(select.columns[0].name(), "mean");
//!
//! let error = parse("SELECT FROM", &options).unwrap_err();
//! assert!(error.to_string().starts_with("found FROM, expected"));
//! # Ok::<(), hourglass_influxql::ParseError>(())
//! ```
//!
//! # Steps
//!
//! ```text
//! text ──parse──→ Statement ──check──→ CheckedSelect: time range, condition without time, windows and tags
//! ```
//!
//! * [`parse`] returns statements or a [`ParseError`], whose message lacks the prefix `error parsing query: `.
//! * [`check()`] finds the errors in a SELECT that InfluxDB reports before it reads data, as a [`StatementError`].
//! * [`split`] separates the condition of any other statement into its time range and the rest.
//! * [`column_names`] returns the names of the columns of a result.
//!
//! `now()` stays a call, and a text such as `'2024-01-01 12:00:00'` stays a text, until a [`Clock`] resolves them. The
//! clock has the current time, and converts local times of a `tz()` zone to UTC.

#![warn(missing_docs)]

mod ast;
mod check;
mod civil;
mod conditions;
mod duration;
mod error;
mod fold;
mod lexer;
mod names;
mod parser;
mod token;

#[cfg(test)]
mod tests;

pub use ast::{
    Cardinality, Expr, Fill, FromSource, KeyFilter, Listing, ListingKind, Literal, Measurement, MeasurementName,
    NewPolicy, Operator, PolicyStatement, ReferenceKind, Select, SelectColumn, Statement, WildcardKind,
};
pub use check::{CheckedSelect, Grouping, check, math_arguments};
pub use civil::{CivilTime, MAX_TIME, MIN_TIME, utc};
pub use conditions::{TimeRange, split};
pub use error::{ParseError, StatementError};
pub use fold::{Clock, fold};
pub use names::column_names;
pub use parser::{MAX_HEIGHT, MAX_NESTING, MAX_QUERY_BYTES, Params, ParseOptions, parse};
