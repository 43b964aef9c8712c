//! Gives two servers the same readings and statements, and keeps their answers.

use super::compare::{Answer, difference};
use super::data::Readings;
use super::statements::{DELETES, Options, Sequence, Statement, Step, all, sequences};
use crate::support::prelude::*;

/// Database of all statements except the sequences.
pub const DATABASE: &str = "conf";
/// Lines per request, few enough for several log records.
const LINES: usize = 500;

pub struct Side {
    base: String,
    /// True if it has the paths of hourglass.
    is_hourglass: bool,
}

/// A statement and both answers.
pub struct Outcome {
    pub topic: String,
    pub key: String,
    pub expected: Answer,
    pub actual: Answer,
    pub difference: Option<String>,
}

/// Loads both servers and runs all statements on them. The answers of the first are kept in the file `name`.
pub fn run(expected: &Side, actual: &Side, name: &str) -> Vec<Outcome> {
    let pick = std::env::var("HOURGLASS_TEST_STATEMENTS").unwrap_or_default();
    let mut outcomes = Vec::new();
    for side in [expected, actual] {
        side.ingest(&Readings::all());
    }
    let mut answers = String::new();
    let mut known = BTreeSet::new();
    for statement in all() {
        assert!(known.insert(statement.key.clone()), "{}: twice: {}", statement.topic, statement.key);
        if statement.key.contains(&pick) {
            outcomes.push(ask_both(expected, actual, DATABASE, &statement, &mut answers));
        }
    }
    // Last, because they create and drop databases. A sequence is selected as a whole.
    for sequence in sequences() {
        if sequence.steps.iter().any(|step| matches!(step, Step::Ask(asked) if asked.key.contains(&pick))) {
            play(expected, actual, &sequence, &mut outcomes, &mut answers);
        }
    }
    assert!(!outcomes.is_empty(), "no statement contains {pick:?}");
    std::fs::write(super::folder().join(name), answers).expect("the answers can be written");
    outcomes
}

/// Loads four sensors, a reading every 20 s, and sends the statements of Grafana's dashboard panels.
pub fn run_dashboards(expected: &Side, actual: &Side) -> Vec<Outcome> {
    const HOUR: i64 = 1_768_485_600;
    // Each at its own times, because the order of sensors at one time is undefined.
    let mut lines = String::new();
    for (sensor, number) in ["temp-01", "temp-02", "temp-03", "attic"].iter().zip(0..) {
        for reading in 0..180 {
            let (value, time) =
                (f64::from((reading * 7 + number * 13) % 50) / 4.0, HOUR + i64::from(reading * 20 + number));
            let _ = writeln!(lines, "climate,sensor={sensor} temp={value},humidity={reading}i {time}000000000");
        }
    }
    for side in [expected, actual] {
        side.create(DATABASE);
        side.write(DATABASE, &lines);
    }
    let options = Options { parameters: vec![("epoch".to_owned(), "ms".to_owned())], ..Options::default() };
    let statements = crate::deploy::dashboard_statements().into_iter();
    let statement =
        |text: String| Statement { topic: "dashboards".to_owned(), key: text.clone(), options: options.clone(), text };
    statements.map(|text| ask_both(expected, actual, DATABASE, &statement(text), &mut String::new())).collect()
}

fn play(expected: &Side, actual: &Side, sequence: &Sequence, outcomes: &mut Vec<Outcome>, answers: &mut String) {
    for side in [expected, actual] {
        side.create(&sequence.database);
    }
    for step in &sequence.steps {
        match step {
            Step::Write { key, lines } => {
                let [expected, actual] = [expected, actual].map(|side| side.try_write(&sequence.database, lines));
                let difference = difference(&expected, &actual);
                outcomes.push(Outcome { topic: DELETES.to_owned(), key: key.clone(), expected, actual, difference });
            }
            Step::Flush => [expected, actual].iter().for_each(|side| side.flush()),
            Step::Ask(statement) => {
                outcomes.push(ask_both(expected, actual, &sequence.database, statement, answers));
            }
        }
    }
}

pub fn ask_both(one: &Side, other: &Side, database: &str, statement: &Statement, answers: &mut String) -> Outcome {
    let expected = one.ask(database, statement);
    let actual = other.ask(database, statement);
    let Statement { topic, key, options, text } = statement;
    let sent = json!({
        "topic": topic, "key": key, "database": database, "statement": text, "post": options.post, "nodb": options.nodb,
        "accept": options.accept, "parameters": options.parameters, "status": expected.status,
        "media": expected.media, "body": expected.body,
    });
    let _ = writeln!(answers, "{sent}");
    let difference = difference(&expected, &actual);
    Outcome { topic: topic.clone(), key: key.clone(), expected, actual, difference }
}

impl Side {
    pub fn influxd(influxd: &Influxd) -> Side {
        Side { base: influxd.url(""), is_hourglass: false }
    }

    pub fn hourglass(server: &Server) -> Side {
        Side { base: server.url(""), is_hourglass: true }
    }

    /// Writes all readings and flushes hourglass after the first part.
    #[track_caller]
    pub fn ingest(&self, readings: &Readings) {
        self.create(DATABASE);
        self.write_all(&readings.first);
        self.flush();
        self.write_all(&readings.second);
    }

    fn write_all(&self, lines: &[String]) {
        for lines in lines.chunks(LINES) {
            self.write(DATABASE, &lines.join("\n"));
        }
    }

    #[track_caller]
    pub fn create(&self, database: &str) {
        let q = encode(&format!("CREATE DATABASE \"{database}\""));
        http::post(&format!("{}/query", self.base), format!("q={q}"), &[FORM]).expect(200);
    }

    #[track_caller]
    pub fn write(&self, database: &str, lines: &str) {
        let answer = self.try_write(database, lines);
        assert_eq!(answer.status, 204, "{lines}");
    }

    /// Returns the status only; other tests check the errors of writes.
    fn try_write(&self, database: &str, lines: &str) -> Answer {
        let answer = http::post(&format!("{}/write?db={}&precision=ns", self.base, encode(database)), lines, &[]);
        Answer { status: answer.status, media: String::new(), body: String::new() }
    }

    fn flush(&self) {
        if self.is_hourglass {
            http::post(&format!("{}/api/v1/flush", self.base), "", &[]).expect(204);
        }
    }

    /// A connection that ends without an answer counts as status 0.
    pub fn ask(&self, database: &str, statement: &Statement) -> Answer {
        let Options { parameters, accept, post, mixed, nodb } = &statement.options;
        let text = format!("q={}", encode(&statement.text));
        let mut query = if *mixed { String::new() } else { text.clone() };
        if !nodb && parameters.iter().all(|(key, _)| key != "db") {
            let _ = write!(query, "&db={}", encode(database));
        }
        for (key, value) in parameters {
            let _ = write!(query, "&{key}={}", encode(value));
        }
        let mut headers: Vec<(&str, &str)> = accept.iter().map(|media| ("accept", media.as_str())).collect();
        let answer = if *post {
            headers.push(FORM);
            let url =
                format!("{}/query{}", self.base, if *mixed { format!("?{}", &query[1..]) } else { String::new() });
            http::request("POST", &url, if *mixed { &text } else { &query }.as_bytes(), &headers)
        } else {
            http::request("GET", &format!("{}/query?{query}", self.base), b"", &headers)
        };
        match answer {
            Ok(answer) => Answer {
                status: answer.status,
                media: answer.header("content-type").unwrap_or_default().to_owned(),
                body: String::from_utf8_lossy(&answer.body).into_owned(),
            },
            Err(error) => Answer { status: 0, media: String::new(), body: error.to_string() },
        }
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
