//! InfluxQL: no text breaks the parser or the checks, and what parses prints to something that parses to the same.

use hourglass::influxql::{Clock, Options, Params, Statement, check as check_select, parse, split};

/// `now()` of the checks.
const NOW: i64 = 1_700_000_000_000_000_000;

/// The data is the query.
///
/// # Panics
/// Where a statement does not print to itself.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for statement in parsed(&text).unwrap_or_default() {
        let clock = Clock { now: NOW, zone: None, resolve: &|_, civil| civil.utc() };
        match &statement {
            Statement::Select(select) => drop(check_select(select, &clock, &|name| name == "median")),
            Statement::Delete { condition, .. } => drop(split(condition.as_ref(), &clock)),
            Statement::Unsupported { .. } => continue,
            _ => {}
        }
        let printed = statement.to_string();
        assert_eq!(parsed(&printed), Ok(vec![statement]), "prints {printed:?}");
    }
}

fn parsed(text: &str) -> Result<Vec<Statement>, String> {
    let params = Params::new();
    let options = Options {
        params: &params,
        known_zone: &|zone| !zone.starts_with("Mars"),
        regex_error: &|pattern| pattern.contains("bad(").then(|| "missing closing )".to_owned()),
    };
    parse(text, &options).map_err(|error| error.to_string())
}
