//! Random statements over random readings against InfluxDB; differences must be faults in `rules`.
//! `HOURGLASS_TEST_SEED` sets the seed; `target/tmp/influxql/generated.txt` has the differences.

pub mod data;
mod rules;
pub mod statements;

use self::rules::{RULES, Rule, series};
use super::compare::{Answer, difference};
use super::run::{DATABASE, Outcome, Side, ask_both};
use super::statements::{Options, Statement};
use super::{CONFIG, SHOWN, describe_differences, folder};
use crate::support::prelude::*;

#[test]
fn influxdb_and_hourglass_answer_generated_statements_alike() {
    let Some(influxd) = Influxd::start() else { return };
    let server = Launch::embedded().config(CONFIG).start();
    let seed = seed();
    let cases = scaled(1000, 40_000);
    let expected = Side::influxd(&influxd);
    let actual = Side::hourglass(&server);
    for side in [&expected, &actual] {
        side.ingest(&data::readings(seed));
    }
    let mut needed = [0; RULES.len()];
    let mut surprising = Vec::new();
    let mut empty = 0;
    let mut left = String::new();
    for text in statements::statements(seed, cases) {
        let outcome = ask_both(&expected, &actual, DATABASE, &statement(text), &mut String::new());
        assert!(!outcome.expected.body.contains("\"error\""), "{}: {}", outcome.key, outcome.expected.body);
        empty += usize::from(!outcome.expected.body.contains("\"values\""));
        if outcome.difference.is_none() {
            continue;
        }
        let _ = writeln!(left, "{}", describe_differences("hourglass", &[&outcome], 1));
        match excuse(&expected, &outcome) {
            Some(rule) => needed[rule] += 1,
            None => surprising.push(outcome),
        }
    }
    std::fs::write(folder().join("generated.txt"), left).expect("the differences can be written");
    let different = surprising.len() + needed.iter().sum::<usize>();
    let mut summary = format!(
        "{cases} generated statements of seed {seed}, {empty} without an answer, {different} answered otherwise:"
    );
    for (rule, count) in RULES.iter().zip(needed) {
        let _ = write!(summary, "\n  {count}: {}", rule.reason);
    }
    eprintln!("{summary}");
    let shown: Vec<&Outcome> = surprising.iter().collect();
    assert!(shown.is_empty(), "{}\n{summary}", describe_differences("hourglass", &shown, SHOWN));
    assert!(different * 50 < cases, "2 % or more differ: {summary}");
    assert!(empty * 5 < cases, "too few that show anything: {summary}");
    if seed == 1 && cases >= 4000 {
        assert!(needed.iter().all(|count| *count > 0), "a rule that nothing needs: {summary}");
    }
}

fn statement(text: String) -> Statement {
    Statement { topic: "generated".to_owned(), key: text.clone(), options: Options::default(), text }
}

/// Returns the rule that explains a difference: alone, or the first of several.
fn excuse(influxd: &Side, outcome: &Outcome) -> Option<usize> {
    let concerned: Vec<usize> =
        (0..RULES.len()).filter(|rule| (RULES[*rule].instead)(&outcome.key).is_some()).collect();
    let alone = concerned.iter().copied().find(|rule| is_alike(influxd, outcome, &[&RULES[*rule]]));
    let all: Vec<&Rule> = concerned.iter().map(|rule| &RULES[*rule]).collect();
    alone.or_else(|| concerned.first().copied().filter(|_| is_alike(influxd, outcome, &all)))
}

/// Returns true if InfluxDB, asked as these rules say, answers as hourglass did.
fn is_alike(influxd: &Side, outcome: &Outcome, rules: &[&Rule]) -> bool {
    let ask = |text: String, rule: &&Rule| (rule.instead)(&text).unwrap_or(text);
    let instead = rules.iter().fold(outcome.key.clone(), ask);
    let answer = influxd.ask(DATABASE, &statement(instead));
    let parsed = |answer: &Answer| serde_json::from_str::<Value>(&answer.body).expect("JSON");
    if [&answer, &outcome.actual].iter().any(|answer| answer.status != 200) {
        return false;
    }
    let mut both = [parsed(&answer), parsed(&outcome.actual)];
    for answer in &mut both {
        series(answer);
    }
    rules.iter().for_each(|rule| (rule.adapt)(&outcome.key, &mut both));
    let [expected, actual] = both.map(|body| Answer { body: body.to_string(), ..Answer::default() });
    difference(&expected, &actual).is_none()
}
