//! Random sparse readings with unique times and values (except `k`, `b` and `s`), so no order is ambiguous.

use std::collections::HashSet;

use super::super::data::{BASE, MINUTE, Readings, SECOND};
use crate::support::random::Random;

/// A measurement with the tags of its series and its fields.
pub struct Measurement {
    pub name: &'static str,
    pub series: &'static [&'static str],
    pub tags: &'static [&'static str],
    pub fields: &'static [&'static str],
}

pub const MEASUREMENTS: [Measurement; 3] = [
    Measurement {
        name: "alpha",
        series: &["host=a,region=eu", "host=b,region=us", "host=c", "host=d,region=eu", "region=ap"],
        tags: &["host", "region"],
        fields: &["f", "g", "i", "n", "k", "b", "s"],
    },
    Measurement {
        name: "beta",
        series: &["host=a,unit=x", "host=a,unit=y", "host=b,unit=x"],
        tags: &["host", "unit"],
        fields: &["f", "i", "k", "b"],
    },
    Measurement { name: "gamma", series: &[""], tags: &[], fields: &["f", "g", "i", "s"] },
];
/// A measurement with equal times and values in all its series.
pub const TIES: Measurement =
    Measurement { name: "same", series: &["host=a", "host=b", "host=c"], tags: &["host"], fields: &["f", "i", "b"] };
/// Readings of a measurement, minutes apart except for gaps: about six hours.
const READINGS: usize = 280;

/// Generates readings in two parts, like the fixed data set.
pub fn readings(seed: u64) -> Readings {
    let mut maker = Maker { random: Random::new(seed), times: HashSet::new(), numbers: HashSet::new() };
    let mut lines = Vec::new();
    for measurement in &MEASUREMENTS {
        maker.measurement(measurement, &mut lines);
    }
    maker.ties(&mut lines);
    let mut readings = Readings::default();
    for line in lines {
        let part = if maker.random.once_in(3) { &mut readings.second } else { &mut readings.first };
        part.push(line);
    }
    readings
}

struct Maker {
    random: Random,
    times: HashSet<i64>,
    numbers: HashSet<(&'static str, i64)>,
}

impl Maker {
    fn measurement(&mut self, measurement: &Measurement, lines: &mut Vec<String>) {
        let mut time = BASE;
        for _ in 0..READINGS {
            let gap =
                if self.random.once_in(25) { self.random.below(40 * MINUTE) } else { self.random.below(2 * MINUTE) };
            time += gap;
            // Some at whole seconds, and so at window borders.
            if self.random.once_in(4) {
                time -= time % (10 * SECOND);
            }
            while !self.times.insert(time) {
                time += SECOND;
            }
            let series = self.random.pick(measurement.series);
            let fields: Vec<String> = measurement.fields.iter().filter_map(|field| self.field(field)).collect();
            let comma = if series.is_empty() { "" } else { "," };
            if !fields.is_empty() {
                lines.push(format!("{}{comma}{series} {} {time}", measurement.name, fields.join(",")));
            }
        }
    }

    fn ties(&mut self, lines: &mut Vec<String>) {
        for number in 0..120 {
            let time = BASE + number * 3 * MINUTE + self.random.below(4) * SECOND;
            for series in TIES.series {
                let f = self.random.below(9) - 4;
                let i = self.random.below(5) - 2;
                let b = self.random.once_in(2);
                lines.push(format!("{},{series} f={f}.5,i={i}i,b={b} {time}", TIES.name));
            }
        }
    }

    /// Returns a field with its value, if this reading has it.
    fn field(&mut self, name: &'static str) -> Option<String> {
        let (of_ten, span) = match name {
            "f" => (9, 16_000),
            "g" => (3, 80_000_000_000),
            "i" => (8, 10_000),
            "n" => (3, 200_000_000_000),
            "k" => (7, 1_000),
            "b" => (5, 2),
            _ => (3, 1_000),
        };
        if self.random.below(10) >= of_ten {
            return None;
        }
        let is_usual = self.random.below(10) < 6;
        let number = self.number(name, span);
        #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
        let eighths = number as f64 / 8.0;
        Some(match name {
            "f" | "g" => format!("{name}={eighths}"),
            "k" if is_usual => format!("{name}=7i"),
            "s" if is_usual => format!("{name}=\"usual\""),
            "s" => format!("{name}=\"a \\\"{number}\\\", or\""),
            "b" => format!("{name}={}", is_usual),
            _ => format!("{name}={number}i"),
        })
    }

    /// Returns an unused number of either sign for this field.
    fn number(&mut self, field: &'static str, span: i64) -> i64 {
        loop {
            let number = self.random.below(span) - span / 2;
            if field == "b" || self.numbers.insert((field, number)) {
                return number;
            }
        }
    }
}
