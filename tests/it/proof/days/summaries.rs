//! Compares summaries with an independent fold over the readings.

use crate::support::prelude::*;

use super::super::history::CellKey;
use super::{DAY, SECOND};

/// Count, min, max and sum, all in quarters or all in integers.
type Fold = (i64, i64, i64, i64);

/// Checks a sensor's windows of an hour and of a day against its readings.
#[track_caller]
pub fn check(server: &Server, database: &str, sensor: &str, found: &BTreeMap<CellKey, i64>, when: &str) {
    let difference = difference(server, database, sensor, found, when);
    assert!(difference.is_none(), "{}", difference.unwrap_or_default());
}

/// Returns the first difference between a sensor's windows and its readings.
#[track_caller]
pub fn difference(
    server: &Server,
    database: &str,
    sensor: &str,
    found: &BTreeMap<CellKey, i64>,
    when: &str,
) -> Option<String> {
    for (step, length) in [("1h", 3600 * SECOND), ("1d", DAY)] {
        let mut expected: BTreeMap<(i64, &str), Fold> = BTreeMap::new();
        for (CellKey { sensor: found_sensor, time, field }, value) in found {
            if found_sensor == sensor && field != "t" {
                let fold =
                    expected.entry((time.div_euclid(length) * length, field)).or_insert((0, i64::MAX, i64::MIN, 0));
                *fold = (fold.0 + 1, fold.1.min(*value), fold.2.max(*value), fold.3 + value);
            }
        }
        let key = encode(sensor);
        let path = format!("/api/v1/summary?db={database}&sensor={key}&epoch=ns&step={step}");
        let answer = server.fetch(&path);
        let mut answered: BTreeMap<(i64, &str), Fold> = BTreeMap::new();
        for window in answer["series"][0]["windows"].as_array().into_iter().flatten() {
            let start = window["start"].as_i64().expect("a time");
            for (field, scale) in [("v", 1.0), ("f", 4.0)] {
                let summary = &window["fields"][field];
                if summary.is_null() {
                    continue;
                }
                let number = |name: &str| scaled(&summary[name], scale);
                let count = summary["count"].as_i64().expect("a count");
                let fold = (count, number("min"), number("max"), number("sum"));
                let avg = summary["avg"].as_f64().expect("an average");
                let exact = fold.3 as f64 / scale / count as f64;
                assert!((avg - exact).abs() <= 1e-15 * exact.abs(), "{when}: {sensor} {field}: {summary}");
                answered.insert((start, field), fold);
            }
        }
        if answered != expected {
            return Some(format!(
                "{when}: windows of {step} of {sensor}:\nanswered {answered:?}\nof readings {expected:?}"
            ));
        }
    }
    None
}

fn scaled(value: &Value, scale: f64) -> i64 {
    let number = value.as_f64().unwrap_or_else(|| panic!("no number: {value}")) * scale;
    assert!(number.fract().abs() < f64::EPSILON, "{value} is no sum of what was sent");
    number as i64
}
