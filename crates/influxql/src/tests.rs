//! Compares the parser and the checks with InfluxDB. The tables beside this file hold the answers of InfluxDB
//! v1.6.7~rc0: which statements it accepts, and the exact text of every error. Printed statements are ours, except that
//! those in `printed_as_influxdb_prints`, like the column names, are InfluxDB's.

mod display;
mod limits;
mod names;
mod printed;
mod random;
mod tables;
mod times;

use self::display::Printed;
use super::{Clock, Listing, ListingKind, Params, ParseError, ParseOptions, Statement, check, parse};

/// `now()` of the tests.
const NOW: i64 = 1_700_000_000_000_000_000;

/// Parses without parameters. Zones that start with `Mars` are unknown, and a regex is bad if it contains `bad(`.
fn parsed(text: &str) -> Result<Vec<Statement>, ParseError> {
    parsed_with(text, &Params::new())
}

fn parsed_with(text: &str, params: &Params) -> Result<Vec<Statement>, ParseError> {
    let is_known_zone = |zone: &str| !zone.starts_with("Mars");
    let regex_error = |pattern: &str| pattern.contains("bad(").then(|| "missing closing )".to_owned());
    parse(text, &ParseOptions { params, is_known_zone: &is_known_zone, regex_error: &regex_error })
}

fn utc() -> Clock<'static> {
    Clock { now: NOW, zone: None, resolve: &|_, civil| super::utc(civil) }
}

/// The expected answer: `400` and a parse error, or per statement `200` and its error, or `ok` and its text.
fn answer(text: &str) -> String {
    let statements = match parsed(text) {
        Err(error) => return format!("400 {error}"),
        Ok(statements) => statements,
    };
    let answers = statements.iter().map(|statement| match statement {
        Statement::Select(select) => match check(select, &utc()) {
            Ok(_) => format!("ok {}", Printed(statement)),
            Err(error) => format!("200 {error}"),
        },
        Statement::Show(Listing { kind: ListingKind::Series, cardinality: None, condition, .. }) => {
            match super::split(condition.as_ref(), &utc()) {
                Ok(_) => format!("ok {}", Printed(statement)),
                Err(error) => format!("200 {error}"),
            }
        }
        _ => format!("ok {}", Printed(statement)),
    });
    answers.collect::<Vec<_>>().join(" ;; ")
}

/// The only statement of `text`.
fn one(text: &str) -> Statement {
    let mut statements = parsed(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(statements.len(), 1, "{text}");
    statements.remove(0)
}

fn select(text: &str) -> super::Select {
    match one(text) {
        Statement::Select(select) => *select,
        other => panic!("{} is not a SELECT", Printed(&other)),
    }
}
