//! The line-protocol corpus (6,615 decode cases of Influx's codecs and fuzzers), if its file lies beside the project.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision};
use hourglass::wire::Points;
use hourglass::wire::line_protocol::Lines;
use serde::Deserialize;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/corpus/influx-lp-corpus.json");

/// Cases where we deviate, with the reason.
const DEVIATIONS: &[(&str, &str)] = &[
    ("d2968e6b9b0b309f305736677940b36c", "a control character in a tag value: refused, as in every other name"),
    ("dfa6432a639651d02910c4527badb15c", "control characters in a comment: comments are passed over unread"),
];

#[derive(Deserialize)]
struct Corpus {
    decode: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    input: Input,
    output: Output,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct Input {
    text: Bytes,
    default_time: i64,
    precision: String,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
enum Output {
    Result(Vec<Point>),
    Error(serde::de::IgnoredAny),
}

#[derive(Deserialize, Debug, PartialEq)]
struct Point {
    name: Bytes,
    #[serde(default)]
    tags: Vec<Tag>,
    fields: Vec<Field>,
    time: i64,
}

#[derive(Deserialize, Debug, PartialEq)]
struct Tag {
    key: Bytes,
    value: Bytes,
}

#[derive(Deserialize, Debug, PartialEq)]
struct Field {
    key: Bytes,
    value: FieldValue,
}

#[derive(Deserialize, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
enum FieldValue {
    Float(Float),
    Int(i64),
    Uint(u64),
    Bool(bool),
    #[serde(alias = "binary")]
    String(Bytes),
}

/// Parsed by the standard library, because `serde_json` rounds some floats to a neighbour.
#[derive(Deserialize, Debug, PartialEq)]
#[serde(from = "Box<serde_json::value::RawValue>")]
struct Float(f64);

impl From<Box<serde_json::value::RawValue>> for Float {
    fn from(text: Box<serde_json::value::RawValue>) -> Self {
        Self(text.get().parse().expect("a float"))
    }
}

/// Text, or `{"binary": base64}` if it is not UTF-8.
#[derive(Deserialize, Debug, PartialEq)]
#[serde(from = "Encoded")]
struct Bytes(Vec<u8>);

#[derive(Deserialize)]
#[serde(untagged)]
enum Encoded {
    Text(String),
    Binary { binary: String },
}

impl From<Encoded> for Bytes {
    fn from(encoded: Encoded) -> Self {
        Self(match encoded {
            Encoded::Text(text) => text.into_bytes(),
            Encoded::Binary { binary } => STANDARD.decode(binary).expect("base64"),
        })
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

#[test]
fn the_corpus_parses_as_recorded() {
    let Ok(file) = std::fs::read(FILE) else {
        let _ = writeln!(std::io::stderr(), "did not run: the line-protocol corpus (shared/corpus is not there)");
        return;
    };
    let cases = serde_json::from_slice::<Corpus>(&file).expect("the corpus has its form").decode;
    let reasons: BTreeMap<&str, &str> = DEVIATIONS.iter().copied().collect();
    let mut accepted = 0;
    let mut refused = 0;
    let mut surprises = Vec::new();
    for (key, case) in &cases {
        let got = read(&case.input);
        let agrees = match (&case.output, &got) {
            (Output::Result(wanted), Ok(got)) => wanted == got,
            (Output::Error(_), Err(_)) => true,
            _ => false,
        };
        match (agrees, reasons.get(key.as_str())) {
            (true, None) | (false, Some(_)) => {}
            (false, None) => surprises.push(format!("{key} deviates: {:?}\n{:?}\n{got:?}", case.input, case.output)),
            (true, Some(reason)) => surprises.push(format!("{key} no longer deviates: {reason}")),
        }
        match case.output {
            Output::Result(_) => accepted += 1,
            Output::Error(_) => refused += 1,
        }
    }
    let deviations = DEVIATIONS.len();
    let _ = writeln!(
        std::io::stderr(),
        "line-protocol corpus: {accepted} cases to accept, {refused} to refuse, {deviations} decided otherwise"
    );
    assert!(surprises.is_empty(), "{} of {}:\n{}", surprises.len(), cases.len(), surprises.join("\n"));
    assert!(accepted > 0 && refused > 0, "an empty corpus says nothing");
    assert!(reasons.keys().all(|key| cases.contains_key(*key)), "a deviation from no case");
}

/// Returns the points of a body, or the first error, in the form of the corpus.
fn read(input: &Input) -> Result<Vec<Point>, String> {
    // The corpus is about the grammar; one of its cases has 255 tags.
    let limits = Limits { tags: 255, ..Limits::default() };
    let precision = match &*input.precision {
        "1µs" => Precision::Microseconds,
        name => Precision::from_name(&name[1..]).expect("a precision"),
    };
    let received = input.default_time - input.default_time.rem_euclid(precision.unit_ns(0));
    let mut lines = Lines::new(&input.text.0, precision, limits);
    let mut points = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.map_err(|rejection| rejection.message())?;
        let sensor = line.sensor(&limits).map_err(|rejection| rejection.message())?;
        points.push(Point {
            name: Bytes::from(&*sensor.measurement),
            tags: sensor
                .tags
                .iter()
                .map(|(key, value)| Tag { key: (&**key).into(), value: (&**value).into() })
                .collect(),
            fields: line.fields.iter().map(|(key, v)| Field { key: (&**key).into(), value: value(v) }).collect(),
            time: line.timestamp.unwrap_or(received),
        });
    }
    Ok(points)
}

fn value(value: &RawValue<'_>) -> FieldValue {
    match value {
        RawValue::Float(v) => FieldValue::Float(Float(*v)),
        RawValue::Integer(v) => FieldValue::Int(*v),
        RawValue::Unsigned(v) => FieldValue::Uint(*v),
        RawValue::Boolean(v) => FieldValue::Bool(*v),
        RawValue::String(v) => FieldValue::String((&**v).into()),
    }
}
