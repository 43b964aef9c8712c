//! Every statement of the tables gets InfluxDB v1.6.7~rc0's answer, and a statement's printed form means the same.

use super::display::Printed;
use super::{answer, parsed};

/// The statements and answers of a table.
fn rows(table: &'static str) -> impl Iterator<Item = (String, String)> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (statement, answer) = line.split_once('\t').unwrap_or_else(|| panic!("no tab: {line}"));
        (statement.replace('⏎', "\n").replace('␍', "\r").replace('⇥', "\t"), answer.replace('⏎', "\n"))
    })
}

/// Checks all rows of a table and returns their number.
fn holds(table: &'static str) -> usize {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (statement, expected) in rows(table) {
        let said = answer(&statement);
        if said != expected {
            wrong.push(format!("{statement:?}\n   expected {expected:?}\n   said     {said:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    count
}

#[test]
fn clauses_of_a_select_are_answered_as_by_influxdb() {
    assert!(holds(include_str!("clauses.txt")) > 250);
}

#[test]
fn functions_and_times_are_answered_as_by_influxdb() {
    assert!(holds(include_str!("functions_and_times.txt")) > 250);
}

#[test]
fn show_and_the_rest_are_answered_as_by_influxdb() {
    assert!(holds(include_str!("show_and_manage.txt")) > 200);
}

#[test]
fn statements_broken_at_random_are_answered_as_by_influxdb() {
    assert!(holds(include_str!("mutated.txt")) > 250);
}

#[test]
fn printed_statements_parse_to_the_same_statement() {
    let tables = [
        include_str!("clauses.txt"),
        include_str!("functions_and_times.txt"),
        include_str!("show_and_manage.txt"),
        include_str!("mutated.txt"),
    ];
    let mut count = 0;
    for (text, _) in tables.into_iter().flat_map(rows) {
        for statement in parsed(&text).unwrap_or_default() {
            if matches!(statement, super::Statement::Unsupported { .. }) {
                continue;
            }
            let printed = Printed(&statement).to_string();
            assert_eq!(parsed(&printed), Ok(vec![statement]), "{text:?} prints {printed:?}");
            count += 1;
        }
    }
    assert!(count > 400, "{count}");
}

/// The statements for which hourglass differs from InfluxDB 1.6, with the reasons.
#[test]
fn the_known_differences_are_these() {
    for (statement, expected) in [
        // 1.8 has it, 1.6 does not.
        ("show tag keys with key = host", "ok SHOW TAG KEYS WITH KEY = host"),
        // Later versions have it, 1.6 does not.
        ("show measurements on db.week limit 1", "ok SHOW MEASUREMENTS ON db.week LIMIT 1"),
        // Documented; 1.6 answers `invalid time dimension offset: '2000-01-01'`.
        (
            "select mean(v) from m group by time(1m, '2000-01-01')",
            "ok SELECT mean(v) FROM m GROUP BY time(1m, '2000-01-01')",
        ),
        // 1.6 panics.
        ("select v from m where a =~ /x/ + 1", "200 invalid condition expression: a =~ /x/ + 1"),
        ("select mean(v) from m group by time(0s, 1s)", "ok SELECT mean(v) FROM m GROUP BY time(0s, 1s)"),
        // 1.6 stops reading at the NUL.
        ("show databases\0", "400 found \0, expected ; at line 1, char 15"),
        // The rest of an unsupported statement is skipped.
        ("create user", "ok CREATE USER"),
        ("create user bob with password 'x'; show databases", "ok CREATE USER ;; ok SHOW DATABASES"),
        ("grant all to bob", "ok GRANT"),
        ("kill query 7", "ok KILL QUERY 7"),
        ("kill query 7 on host", "ok KILL QUERY 7"),
        ("kill query x", "400 found x, expected integer at line 1, char 12"),
        // Functions that hourglass does not support are rejected for any arguments.
        (
            "select sample(value) from cpu",
            "200 not supported: the function sample(); GROUP BY time() with first() thins out readings",
        ),
        (
            "select holt_winters(mean(value), 2, 2) from cpu group by time(1m)",
            "200 not supported: the function holt_winters(); there are no forecasts and no smoothing but moving_average()",
        ),
        ("select v from m where abs(v) > 1", "200 invalid function call in condition: abs(v)"),
        // The tree lacks clauses that have no effect on a listing.
        ("show series order by time", "ok SHOW SERIES"),
        ("show series cardinality group by host", "ok SHOW SERIES CARDINALITY GROUP BY host"),
        ("set password for bob = 'x", "400 found x, expected ; at line 1, char 23"),
    ] {
        assert_eq!(answer(statement), expected, "{statement}");
    }
}
