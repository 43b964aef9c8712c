//! InfluxQL: no text may make the parser or the checks panic, and a statement that changes something must print to a text
//! that parses to the same statement.

use hourglass::influxql::{Clock, Params, ParseOptions, Statement, check as check_select, parse, split};

/// The value of `now()`.
const NOW_NS: i64 = 1_700_000_000_000_000_000;

/// The data is the query.
///
/// # Panics
/// If a statement does not print to an equal one.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for statement in parse_text(&text).unwrap_or_default() {
        let clock = Clock { now: NOW_NS, zone: None, resolve: &|_, civil| hourglass::influxql::utc(civil) };
        match &statement {
            Statement::Select(select) | Statement::Explain { select, .. } => {
                let _ = check_select(select, &clock);
                continue;
            }
            Statement::Delete { condition, .. } => drop(split(condition.as_ref(), &clock)),
            Statement::ShowDatabases | Statement::ShowRetentionPolicies { .. } | Statement::Show(_) => continue,
            Statement::Unsupported { .. } => continue,
            _ => {}
        }
        let printed = statement.to_string();
        assert_eq!(parse_text(&printed), Ok(vec![statement]), "prints {printed:?}");
    }
}

fn parse_text(text: &str) -> Result<Vec<Statement>, String> {
    let params = Params::new();
    let options = ParseOptions {
        params: &params,
        is_known_zone: &|zone| !zone.starts_with("Mars"),
        regex_error: &|pattern| pattern.contains("bad(").then(|| "missing closing )".to_owned()),
    };
    parse(text, &options).map_err(|error| error.to_string())
}
