//! Questions of dashboards to the native API, against plain models on both stores.

mod calendar;
mod functions;
mod parts;
mod thinning;

use crate::support::prelude::*;

const SUMMARY: &str = "/api/v1/summary?db=d&precision=ns&epoch=ns&";

/// Returns the windows of each series by its key.
#[track_caller]
fn summary(server: &Server, parameters: &str) -> BTreeMap<String, Vec<Value>> {
    let answer = server.fetch(&format!("{SUMMARY}{parameters}"));
    let series = answer["series"].as_array().unwrap_or_else(|| panic!("{parameters}: {answer}"));
    let windows = |series: &Value| series["windows"].as_array().expect("windows").clone();
    let name =
        |series: &Value| series["sensor"].as_str().or(series["measurement"].as_str()).expect("a name").to_owned();
    series.iter().map(|series| (name(series), windows(series))).collect()
}

fn start(window: &Value) -> i64 {
    window["start"].as_i64().expect("a time")
}

fn end(window: &Value) -> i64 {
    window["end"].as_i64().expect("a time")
}
