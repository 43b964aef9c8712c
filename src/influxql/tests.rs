//! The parser and the checks against InfluxDB. The tables beside this file were answered by InfluxDB v1.6.7~rc0:
//! which statements it takes, and the text of every error to the character. What a statement prints is ours; the
//! printed forms of `printed_as_influxdb_prints` are InfluxDB's, too, as are the column names.

mod limits;
mod names;
mod printed;
mod random;
mod tables;
mod times;

use super::{Clock, Options, Params, ParseError, Statement, check, parse};

/// `now()` of the tests.
const NOW: i64 = 1_700_000_000_000_000_000;

/// Parses without parameters. One zone is unknown, and no regex is bad but the one that says so.
fn parsed(text: &str) -> Result<Vec<Statement>, ParseError> {
    parsed_with(text, &Params::new())
}

fn parsed_with(text: &str, params: &Params) -> Result<Vec<Statement>, ParseError> {
    let known_zone = |zone: &str| !zone.starts_with("Mars");
    let regex_error = |pattern: &str| pattern.contains("bad(").then(|| "missing closing )".to_owned());
    parse(text, &Options { params, known_zone: &known_zone, regex_error: &regex_error })
}

/// Those that InfluxDB has, and the language knows nothing more of.
fn is_aggregate(name: &str) -> bool {
    matches!(name, "median" | "mode")
}

fn utc() -> Clock<'static> {
    Clock { now: NOW, zone: None, resolve: &|_, civil| civil.utc() }
}

/// What would be answered: `400` and a parse error, or for each statement `200` and its error, or its text.
fn answer(text: &str) -> String {
    let statements = match parsed(text) {
        Err(error) => return format!("400 {error}"),
        Ok(statements) => statements,
    };
    let answers = statements.iter().map(|statement| match statement {
        Statement::Select(select) => match check(select, &utc(), &is_aggregate) {
            Ok(_) => format!("ok {statement}"),
            Err(error) => format!("200 {error}"),
        },
        Statement::ShowSeries(listing) => match super::split(listing.condition.as_ref(), &utc()) {
            Ok(_) => format!("ok {statement}"),
            Err(error) => format!("200 {error}"),
        },
        _ => format!("ok {statement}"),
    });
    answers.collect::<Vec<_>>().join(" ;; ")
}

/// The one statement that `text` is.
fn one(text: &str) -> Statement {
    let mut statements = parsed(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0)
}

fn select(text: &str) -> super::Select {
    match one(text) {
        Statement::Select(select) => *select,
        other => panic!("{other} is no SELECT"),
    }
}
