//! Which readings a request carries: a function of the seed, the connection and the request's number, and of nothing
//! that happens, so that what was sent can be told again at any time without having been kept.

use std::fmt::Write;

use crate::support::random::Random;
use crate::support::{SECOND, START};

/// Every request has one reading in each of these sensors, at a time of its own. They tell whether the request is there.
pub const MARKERS: usize = 3;
/// Sensors that send at a usual pace.
const STEADY: usize = 3;
/// In order readings of a steady sensor in a request, and the time between two.
const STEADY_RUN: i64 = 3;
const STEADY_STEP: i64 = 60 * SECOND;
/// The same for the outlier, whose hours take many pages.
const OUTLIER_RUN: i64 = 15;
const OUTLIER_STEP: i64 = 11 * SECOND;
const MARKER_STEP: i64 = 47 * SECOND;
/// Readings that are late, sent again or overwritten.
const OTHERS: i64 = 12;
const UNDATED: i64 = 2;
const LINES_MAX: i64 = 1000;
const REQUESTS_MAX: i64 = 1_000_000;

/// The sensors of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// At a usual pace.
    Steady(usize),
    /// More than a page holds.
    Outlier,
    /// One reading a request.
    Marker(usize),
    /// Without timestamps.
    Undated,
}

/// Which of its two fields a reading has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fields {
    /// Both.
    Both,
    /// The integer alone.
    Whole,
    /// The float alone.
    Double,
}

/// A reading on its way.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where.
    pub kind: Kind,
    /// None: the server shall say.
    pub time: Option<i64>,
    /// No other line has it, unless it is that line again.
    pub value: i64,
    /// What it carries.
    pub fields: Fields,
}

/// One connection's traffic.
#[derive(Debug, Clone, Copy)]
pub struct Traffic {
    /// What all is a function of.
    pub seed: u64,
    /// The connection's number.
    pub connection: usize,
    /// Whether some requests ask for the ack that waits for the store.
    pub asks_for_store: bool,
}

impl Kind {
    /// All sensors of a connection.
    pub fn all() -> Vec<Kind> {
        let steady = (0..STEADY).map(Kind::Steady);
        let markers = (0..MARKERS).map(Kind::Marker);
        steady.chain([Kind::Outlier]).chain(markers).chain([Kind::Undated]).collect()
    }
}

impl Line {
    /// The values by field name.
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
    /// The key of one of its sensors.
    pub fn sensor(&self, kind: Kind) -> String {
        let connection = self.connection;
        match kind {
            Kind::Steady(n) => format!("proof,conn=c{connection},kind=steady,n=n{n}"),
            Kind::Outlier => format!("proof,conn=c{connection},kind=outlier"),
            Kind::Marker(n) => format!("proof,conn=c{connection},kind=marker,n=n{n}"),
            Kind::Undated => format!("proof,conn=c{connection},kind=undated"),
        }
    }

    /// The time of a request's markers.
    pub fn marker_time(request: i64) -> i64 {
        START + request * MARKER_STEP
    }

    /// Whether a request that failed is sent again, as agents do, or given up.
    pub fn sends_again(&self, request: i64) -> bool {
        !self.random(request, 1).once_in(4)
    }

    /// Whether a request asks for the ack that waits for the store.
    pub fn waits_for_store(&self, request: i64) -> bool {
        self.asks_for_store && self.random(request, 2).once_in(8)
    }

    /// All lines of a request, in their order.
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
        // One at either end and one in the midst.
        let half = lines.len() / 2;
        lines.insert(half, marker(1));
        lines.insert(0, marker(0));
        lines.push(marker(2));
        lines
    }

    /// The readings that are new and in order.
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

    /// A reading that is late, again, or over another one, of this request or of one before it.
    fn other(&self, request: i64, number: i64, random: &mut Random) -> Line {
        let kinds = [Kind::Steady(0), Kind::Steady(1), Kind::Outlier, Kind::Outlier];
        let kind = random.of(&kinds);
        let (run, step) = pace(kind);
        let place = random.below((request + 1) * run);
        let value = self.value(request, number);
        match random.below(5) {
            // Sent again as it was.
            0 | 1 => {
                let lines = self.in_order(random.below(request + 1));
                random.of(&lines)
            }
            // Overwritten, whole or in a field.
            2 | 3 => {
                let fields = random.of(&[Fields::Both, Fields::Whole, Fields::Double]);
                Line { kind, time: Some(time(kind, place)), value, fields }
            }
            // Between two that are there.
            _ => {
                let between = random.of(&[1, 999_999, step / 2]);
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
        // Seeds that are near each other begin alike.
        Random::new(seed ^ u64::try_from(random.below(i64::MAX)).expect("not negative"))
    }
}

/// How many readings in order a request has of a sensor, and how far they are apart.
fn pace(kind: Kind) -> (i64, i64) {
    if kind == Kind::Outlier { (OUTLIER_RUN, OUTLIER_STEP) } else { (STEADY_RUN, STEADY_STEP) }
}

fn time(kind: Kind, place: i64) -> i64 {
    START + place * pace(kind).1
}

/// A request's body.
pub fn body(traffic: &Traffic, lines: &[Line]) -> String {
    let mut body = String::new();
    for line in lines {
        let fields = match line.fields {
            Fields::Both => format!("v={}i,f={}", line.value, line.values()[1].1),
            Fields::Whole => format!("v={}i", line.value),
            Fields::Double => format!("f={}", line.values()[0].1),
        };
        let time = line.time.map(|time| format!(" {time}")).unwrap_or_default();
        writeln!(body, "{} {fields}{time}", traffic.sensor(line.kind)).expect("a String takes it");
    }
    body
}
