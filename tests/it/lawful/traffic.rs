//! Random bodies for a few sensors, and a connection that sends each body until it is acked.

use hourglass::reading::Value;

use crate::support::prelude::*;

use super::model::{Model, Tally};

const SENSORS: usize = 6;
/// Around the epoch, long before it, and recent.
const HOURS: [i64; 9] = [-350_640, -2, -1, 0, 1, 491_149, 491_150, 491_151, 491_152];

/// A client with its own sensors.
pub struct Writer {
    /// All acked readings.
    pub model: Model,
    /// Their outcomes.
    pub tally: Tally,
    random: Random,
    keys: Vec<String>,
    /// Time of the last in-order reading, by sensor.
    clocks: BTreeMap<String, i64>,
    last_body: Vec<Line>,
}

#[derive(Debug, Clone)]
struct Line {
    sensor: String,
    time: i64,
    fields: Vec<(&'static str, Value)>,
}

impl Writer {
    /// Creates a writer whose bodies depend only on the seed and its number.
    pub fn new(number: usize, seed: u64) -> Writer {
        let mut keys: Vec<String> = (1..SENSORS).map(|n| format!("climate,sensor=w{number}s{n}")).collect();
        keys.push(format!(r"odd\ one,place=a\ b\,c\=d,sensor=w{number}"));
        let clocks = keys.iter().map(|key| (key.clone(), 491_150 * HOUR)).collect();
        let random = Random::new(seed + u64::try_from(number).expect("small") * 1_000_003);
        Writer { model: Model::default(), tally: Tally::default(), random, keys, clocks, last_body: Vec::new() }
    }

    /// Sends one more body until it is acked, and merges it into the model.
    pub fn send_one(&mut self, url: &str) {
        let lines = self.body();
        let body = text(&lines);
        eventually("a body is acked", || match request("POST", url, body.as_bytes(), &[]) {
            Ok(answer) if answer.status == 503 => None,
            Ok(answer) => Some(answer.expect(204)),
            // The server is restarting.
            Err(_) => None,
        });
        for line in &lines {
            self.model.merge(&line.sensor, line.time, &line.fields, &mut self.tally);
        }
        self.last_body = lines;
    }

    fn body(&mut self) -> Vec<Line> {
        match self.random.below(6) {
            0 => self.last_body.clone(),
            1 | 2 => self.in_order(),
            3 => self.corrections(),
            _ => (0..=self.random.below(60)).map(|_| self.anywhere()).collect(),
        }
    }

    /// Generates readings of one sensor, each later than all before in its run of hours.
    fn in_order(&mut self) -> Vec<Line> {
        let sensor = self.random.pick(&self.keys);
        let mut lines = Vec::new();
        for _ in 0..=self.random.below(50) {
            let step = self.random.pick(&[1, 999_999, SECOND, 60 * SECOND, 600 * SECOND]);
            let clock = self.clocks.get_mut(&sensor).expect("every sensor has its clock");
            *clock += step;
            let time = *clock;
            lines.push(Line { sensor: sensor.clone(), time, fields: self.fields() });
        }
        lines
    }

    /// Generates single fields of existing readings.
    fn corrections(&mut self) -> Vec<Line> {
        let sensor = self.random.pick(&self.keys);
        let times = self.model.times(&sensor);
        if times.is_empty() {
            return vec![self.anywhere()];
        }
        let mut correct = || {
            let time = self.random.pick(&times);
            let field = self.field();
            Line { sensor: sensor.clone(), time, fields: vec![field] }
        };
        (0..8).map(|_| correct()).collect()
    }

    /// Generates a time out of few, so that many repeat; some are at hour borders.
    fn anywhere(&mut self) -> Line {
        let sensor = self.random.pick(&self.keys);
        let start = self.random.pick(&HOURS) * HOUR;
        let time = match self.random.below(12) {
            0 => start,
            1 => start + HOUR - 1,
            _ => start + self.random.below(60) * 59 * SECOND + self.random.pick(&[0, 1, 250, 999_999, 1_000_000]),
        };
        Line { sensor, time, fields: self.fields() }
    }

    fn fields(&mut self) -> Vec<(&'static str, Value)> {
        let mut fields: BTreeMap<&'static str, Value> = BTreeMap::new();
        for _ in 0..=self.random.below(3) {
            let (name, value) = self.field();
            fields.insert(name, value);
        }
        fields.into_iter().collect()
    }

    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    fn field(&mut self) -> (&'static str, Value) {
        let number = self.random.below(2000) - 1000;
        match self.random.below(9) {
            0..=2 => ("temp", Value::Float(number as f64 / 7.0)),
            // Integers, with some floats among them.
            3 | 4 if self.random.once_in(20) => ("mixed", Value::Float(number as f64 + 0.5)),
            3 | 4 => ("mixed", Value::Integer(number)),
            5 => ("x.y", Value::Integer(number * 1_000_000_007)),
            6 => ("ok", Value::Boolean(number % 2 == 0)),
            7 => ("total", Value::Unsigned(u64::MAX - number.unsigned_abs())),
            _ => {
                let times = usize::try_from(self.random.below(40)).expect("small");
                ("note", Value::String(format!("{number} \"{}\"", "long, ".repeat(times)).into()))
            }
        }
    }
}

fn text(lines: &[Line]) -> String {
    let mut body = String::new();
    for line in lines {
        let fields: Vec<String> =
            line.fields.iter().map(|(name, value)| format!("{name}={}", format_value(value))).collect();
        writeln!(body, "{} {} {}", line.sensor, fields.join(","), line.time).expect("writing to a String succeeds");
    }
    body
}

/// Formats a value for line protocol.
fn format_value(value: &Value) -> String {
    match value {
        Value::Float(v) => v.to_string(),
        Value::Integer(v) => format!("{v}i"),
        Value::Unsigned(v) => format!("{v}u"),
        Value::Boolean(v) => v.to_string(),
        Value::String(v) => format!("\"{}\"", v.replace('\\', r"\\").replace('"', "\\\"")),
    }
}
