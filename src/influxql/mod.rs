//! InfluxQL, the language of InfluxDB 1.x: text into [`Statement`]s. By itself: no storage, no HTTP, no clock.
//!
//! ```text
//! text ──parse──→ Statement ──check──→ Checked: time range, condition without time, windows and tags
//! ```
//!
//! * [`parse`] makes statements or a [`ParseError`], whose text has no `error parsing query: ` prefix.
//! * [`check()`] says what InfluxDB would say of a SELECT before it looks at any data, as a [`StatementError`].
//! * [`split`] takes a condition of any other statement apart into its time range and the rest.
//! * [`column_names`] names the columns of an answer.
//!
//! `now()` stays a call and a text like `'2024-01-01 12:00:00'` stays a text until a [`Clock`] is given: it knows
//! the time, and how a civil time in a `tz()` zone becomes UTC.

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
    Column, Counted, Expr, Fill, KeyFilter, Kind, Listing, Literal, Measurement, MeasurementName, NewPolicy, Operator,
    Order, Select, Source, Statement, WildcardKind,
};
pub use check::{Checked, Grouping, check};
pub use civil::CivilTime;
pub use conditions::{MAX_TIME, MIN_TIME, TimeRange, split};
pub use error::{ParseError, StatementError};
pub use fold::{Clock, fold};
pub use names::column_names;
pub use parser::{MAX_HEIGHT, MAX_NESTING, MAX_QUERY_BYTES, Options, Params, parse};
pub use token::Position;
