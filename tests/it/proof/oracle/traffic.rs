//! Readings of a request, computed from seed, connection and number only, so they can be recomputed at any time.

use std::fmt::Write;

use crate::support::random::Random;
use crate::support::{SECOND, START};

/// Sensors with one reading per request, at a unique time, which show that the request is there.
pub const MARKERS: usize = 3;
/// Sensors with a normal rate.
const STEADY: usize = 3;
/// In-order readings of a steady sensor per request; the interval follows.
const STEADY_RUN: i64 = 3;
const STEADY_STEP: i64 = 60 * SECOND;
/// The same for the outlier, whose hours take many pages.
const OUTLIER_RUN: i64 = 15;
const OUTLIER_STEP: i64 = 11 * SECOND;
const MARKER_STEP: i64 = 47 * SECOND;
/// Late, repeated or overwriting readings.
const OTHERS: i64 = 12;
const UNDATED: i64 = 2;
const LINES_MAX: i64 = 1000;
const REQUESTS_MAX: i64 = 1_000_000;

/// Sensors of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Normal rate.
    Steady(usize),
    /// More than a page holds.
    Outlier,
    /// One reading a request.
    Marker(usize),
    /// Without timestamps.
    Undated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    Both,
    Whole,
    Double,
}

#[derive(Debug, Clone)]
pub struct Line {
    pub kind: Kind,
    /// Time; `None` for the server's.
    pub time: Option<i64>,
    /// Unique, except in repetitions of this line.
    pub value: i64,
    pub fields: Fields,
}

#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    pub seed: u64,
    pub connection: usize,
    /// True if some requests use the store's ack.
    pub asks_for_store: bool,
}

impl Kind {
    pub fn all() -> Vec<Kind> {
        let steady = (0..STEADY).map(Kind::Steady);
        let markers = (0..MARKERS).map(Kind::Marker);
        steady.chain([Kind::Outlier]).chain(markers).chain([Kind::Undated]).collect()
    }
}

impl Line {
    #[allow(clippy::cast_precision_loss, reason = "the numbers are below 2^53")]
    pub fn values(&self) -> Vec<(&'static str, f64)> {
        let whole = ("v", self.value as f64);
        let double = ("f", self.value as f64 / 7.0);
        match self.fields {
            Fields::Both => vec![whole, double],
            Fields::Whole => vec![whole],
            Fields::Double => vec![double],
        }
    }
}

impl Traffic {
    pub fn sensor(&self, kind: Kind) -> String {
        let connection = self.connection;
        match kind {
            Kind::Steady(n) => format!("proof,conn=c{connection},kind=steady,n=n{n}"),
            Kind::Outlier => format!("proof,conn=c{connection},kind=outlier"),
            Kind::Marker(n) => format!("proof,conn=c{connection},kind=marker,n=n{n}"),
            Kind::Undated => format!("proof,conn=c{connection},kind=undated"),
        }
    }

    pub fn marker_time(request: i64) -> i64 {
        START + request * MARKER_STEP
    }

    /// Returns true if a failed request is resent.
    pub fn sends_again(&self, request: i64) -> bool {
        !self.random(request, 1).once_in(4)
    }

    pub fn waits_for_store(&self, request: i64) -> bool {
        self.asks_for_store && self.random(request, 2).once_in(8)
    }

    /// Returns all lines of a request, in order.
    pub fn lines(&self, request: i64) -> Vec<Line> {
        let mut lines = self.in_order(request);
        let mut random = self.random(request, 3);
        for _ in 0..OTHERS {
            let number = i64::try_from(lines.len()).expect("few");
            lines.push(self.other(request, number, &mut random));
        }
        let undated = |number| {
            let value = self.value(request, LINES_MAX - 1 - number);
            Line { kind: Kind::Undated, time: None, value, fields: Fields::Whole }
        };
        lines.extend((0..UNDATED).map(undated));
        let time = Some(Traffic::marker_time(request));
        let marker = |n| Line { kind: Kind::Marker(n), time, value: request, fields: Fields::Whole };
        // One at either end and one in the middle.
        let half = lines.len() / 2;
        lines.insert(half, marker(1));
        lines.insert(0, marker(0));
        lines.push(marker(2));
        lines
    }

    /// Returns the new readings in order.
    fn in_order(&self, request: i64) -> Vec<Line> {
        let mut lines = Vec::new();
        for kind in (0..STEADY).map(Kind::Steady).chain([Kind::Outlier]) {
            let (run, _) = pace(kind);
            for place in request * run..(request + 1) * run {
                let value = self.value(request, i64::try_from(lines.len()).expect("few"));
                lines.push(Line { kind, time: Some(time(kind, place)), value, fields: Fields::Both });
            }
        }
        lines
    }

    /// Returns a late, repeated or overwriting reading, of this request or an earlier one.
    fn other(&self, request: i64, number: i64, random: &mut Random) -> Line {
        let kinds = [Kind::Steady(0), Kind::Steady(1), Kind::Outlier, Kind::Outlier];
        let kind = random.pick(&kinds);
        let (run, step) = pace(kind);
        let place = random.below((request + 1) * run);
        let value = self.value(request, number);
        match random.below(5) {
            // Repeated.
            0 | 1 => {
                let lines = self.in_order(random.below(request + 1));
                random.pick(&lines)
            }
            // Overwritten, whole or in a field.
            2 | 3 => {
                let fields = random.pick(&[Fields::Both, Fields::Whole, Fields::Double]);
                Line { kind, time: Some(time(kind, place)), value, fields }
            }
            // Between two existing readings.
            _ => {
                let between = random.pick(&[1, 999_999, step / 2]);
                Line { kind, time: Some(time(kind, place) + between), value, fields: Fields::Both }
            }
        }
    }

    fn value(&self, request: i64, line: i64) -> i64 {
        let connection = i64::try_from(self.connection).expect("small");
        (connection * REQUESTS_MAX + request) * LINES_MAX + line
    }

    fn random(&self, request: i64, salt: u64) -> Random {
        let connection = u64::try_from(self.connection).expect("small");
        let request = u64::try_from(request).expect("a number of a request");
        let seed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (connection << 48) ^ (request << 8) ^ salt;
        let mut random = Random::new(seed);
        // Similar seeds start alike.
        Random::new(seed ^ u64::try_from(random.below(i64::MAX)).expect("not negative"))
    }
}

/// Returns the in-order readings of a sensor per request, and their interval.
fn pace(kind: Kind) -> (i64, i64) {
    if kind == Kind::Outlier { (OUTLIER_RUN, OUTLIER_STEP) } else { (STEADY_RUN, STEADY_STEP) }
}

fn time(kind: Kind, place: i64) -> i64 {
    START + place * pace(kind).1
}

pub fn body(traffic: &Traffic, lines: &[Line]) -> String {
    let mut body = String::new();
    for line in lines {
        let fields = match line.fields {
            Fields::Both => format!("v={}i,f={}", line.value, line.values()[1].1),
            Fields::Whole => format!("v={}i", line.value),
            Fields::Double => format!("f={}", line.values()[0].1),
        };
        let time = line.time.map(|time| format!(" {time}")).unwrap_or_default();
        writeln!(body, "{} {fields}{time}", traffic.sensor(line.kind)).expect("writing to a String succeeds");
    }
    body
}
