//! Equality of answers: status, media type, order and text. Integers are compared exactly, other numbers to 1e-9, and
//! `1` equals `1.0`, because InfluxDB writes whole floats without a fraction.

use serde_json::{Number, Value};

/// The compared parts of an answer.
#[derive(Default)]
pub struct Answer {
    pub status: u16,
    pub media: String,
    pub body: String,
}

const TOLERANCE: f64 = 1e-9;
/// Bytes shown of a body.
const SHOWN: usize = 1500;

impl Answer {
    pub fn summary(&self) -> String {
        let body = self.body.trim_end();
        let end = body.char_indices().map(|(at, _)| at).find(|at| *at >= SHOWN);
        let (shown, more) = end.map_or((body, ""), |end| (&body[..end], " …"));
        format!("{} {shown}{more}", self.status)
    }

    fn is_csv(&self) -> bool {
        kind(&self.media) == "text/csv" || kind(&self.media) == "application/csv"
    }
}

/// Returns the first difference of two answers.
pub fn difference(expected: &Answer, actual: &Answer) -> Option<String> {
    if expected.status != actual.status {
        return Some(format!("status {} instead of {}", actual.status, expected.status));
    }
    if kind(&expected.media) != kind(&actual.media) {
        return Some(format!("media type {:?} instead of {:?}", actual.media, expected.media));
    }
    if expected.is_csv() {
        return cells(&expected.body, &actual.body);
    }
    let (Some(parts), Some(others)) = (parts(&expected.body), parts(&actual.body)) else {
        let is_same = expected.body.trim_end() == actual.body.trim_end();
        return (!is_same).then(|| "another text".to_owned());
    };
    if parts.len() != others.len() {
        return Some(format!("{} parts instead of {}", others.len(), parts.len()));
    }
    let mut pairs = parts.iter().zip(&others).enumerate();
    let found = pairs.find_map(|(number, (part, other))| values(&format!("part {number}"), part, other));
    // With `pretty`, indentation is part of the answer.
    let lines = |body: &str| body.trim_end().lines().count();
    found.or_else(|| (lines(&expected.body) != lines(&actual.body)).then(|| "another number of lines".to_owned()))
}

/// Returns the media type without parameters.
fn kind(media: &str) -> &str {
    media.split(';').next().unwrap_or_default().trim()
}

/// Returns the sequence of JSON values, or `None` for other text.
fn parts(body: &str) -> Option<Vec<Value>> {
    serde_json::Deserializer::from_str(body).into_iter().collect::<Result<_, _>>().ok()
}

fn values(path: &str, expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(one), Value::Object(other)) => {
            let lost = one.keys().find(|key| !other.contains_key(*key)).map(|key| format!("{path}.{key} is missing"));
            let added = other.keys().find(|key| !one.contains_key(*key)).map(|key| format!("{path}.{key} is new"));
            let mut common = one.iter().filter_map(|(key, value)| Some((key, value, other.get(key)?)));
            let difference = common.find_map(|(key, one, other)| values(&format!("{path}.{key}"), one, other));
            lost.or(added).or(difference)
        }
        (Value::Array(one), Value::Array(other)) => {
            let mut pairs = one.iter().zip(other).enumerate();
            let difference = pairs.find_map(|(number, (one, other))| values(&format!("{path}[{number}]"), one, other));
            let lengths = || format!("{path} has {} entries instead of {}", other.len(), one.len());
            difference.or_else(|| (one.len() != other.len()).then(lengths))
        }
        (Value::Number(one), Value::Number(other)) if numbers(one, other) => None,
        (one, other) if one == other => None,
        (one, other) => Some(format!("{path} is {other} instead of {one}")),
    }
}

fn numbers(one: &Number, other: &Number) -> bool {
    if let (Some(one), Some(other)) = (integer(one), integer(other)) {
        return one == other;
    }
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => is_near(one, other),
        _ => one == other,
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

#[allow(clippy::float_cmp, reason = "zero is alike to nothing but zero")]
fn is_near(one: f64, other: f64) -> bool {
    one == other || (one - other).abs() <= TOLERANCE * one.abs().max(other.abs())
}

/// Compares CSV cell by cell, split at commas and line ends; quoted text splits alike on both sides.
fn cells(expected: &str, actual: &str) -> Option<String> {
    let lines: Vec<&str> = expected.split('\n').collect();
    let others: Vec<&str> = actual.split('\n').collect();
    for (number, (line, other)) in lines.iter().zip(&others).enumerate() {
        let cells: Vec<&str> = line.split(',').collect();
        let other_cells: Vec<&str> = other.split(',').collect();
        let is_same =
            cells.len() == other_cells.len() && cells.iter().zip(&other_cells).all(|(a, b)| is_same_cell(a, b));
        if !is_same {
            return Some(format!("line {} is {other:?} instead of {line:?}", number + 1));
        }
    }
    (lines.len() != others.len()).then(|| format!("{} lines instead of {}", others.len(), lines.len()))
}

fn is_same_cell(one: &str, other: &str) -> bool {
    let number = |cell: &str| serde_json::from_str::<Number>(cell).ok();
    one == other || matches!((number(one), number(other)), (Some(one), Some(other)) if numbers(&one, &other))
}
