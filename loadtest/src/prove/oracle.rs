//! Computes the right answers: sums are the exact sums of the values, rounded once.

use std::collections::BTreeMap;

use super::reading::{FIELDS, HOUR_MS, Reading, Window, sensor_name};

/// Values are integers in units of 2^-60, which is exact for those of the tests: the last bit of 16 is 2^-48.
const SCALE: f64 = (1_u64 << 60) as f64;
/// A sum or mean with a greater relative error is wrong, not only rounded differently.
const ROUNDING: f64 = 1e-9;

/// The number of answers, and of those that differ from the right ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AnswerCounts {
    /// Expected counts, sums and means.
    pub aggregates: u64,
    /// Of these, missing or wrong beyond rounding.
    pub wrong: u64,
    /// Of these, right except for the last bits.
    pub rounded: u64,
}

/// Count and exact sum by sensor, hour and field.
#[derive(Debug, Default)]
pub struct Oracle(BTreeMap<(String, i64, &'static str), (u32, i128)>);

impl Oracle {
    /// Adds readings, each timestamp once.
    pub fn add(&mut self, readings: &[Reading]) {
        for reading in readings {
            let start = reading.time - reading.time.rem_euclid(HOUR_MS);
            for (field, value) in reading.values() {
                let (count, sum) = self.0.entry((sensor_name(reading.sensor), start, field)).or_default();
                *count += 1;
                *sum += fixed(value);
            }
        }
    }

    /// Compares a system's answers with the right ones.
    pub fn judge(&self, windows: &[Window]) -> AnswerCounts {
        let mut returned: BTreeMap<(&str, i64, &str), &Window> = BTreeMap::new();
        let mut counts = AnswerCounts::default();
        for window in windows.iter().filter(|window| window.count > 0.0) {
            // An hour must not be returned twice, and must have readings.
            let key = (window.sensor.as_str(), window.start, window.field.as_str());
            let is_known =
                FIELDS.iter().any(|field| *field == key.2 && self.0.contains_key(&(key.0.to_owned(), key.1, *field)));
            if returned.insert(key, window).is_some() || !is_known {
                counts.wrong += 1;
            }
        }
        for ((sensor, start, field), (count, sum)) in &self.0 {
            let sum = rounded(*sum);
            let right = [f64::from(*count), sum, sum / f64::from(*count)];
            let window = returned.get(&(sensor.as_str(), *start, *field));
            let found = window.map(|window| [window.count, window.sum, window.mean]);
            for (index, right) in right.iter().enumerate() {
                counts.aggregates += 1;
                match found.map(|found| found[index]) {
                    Some(found) if found.to_bits() == right.to_bits() => {}
                    Some(found) if index > 0 && (found - right).abs() <= right.abs() * ROUNDING => counts.rounded += 1,
                    _ => counts.wrong += 1,
                }
            }
        }
        counts
    }
}

#[expect(clippy::cast_possible_truncation, reason = "values are small, and whole at this scale")]
fn fixed(value: f64) -> i128 {
    (value * SCALE) as i128
}

#[expect(clippy::cast_precision_loss, reason = "this is where the sum is rounded, to the nearest")]
fn rounded(sum: i128) -> f64 {
    sum as f64 / SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings() -> Vec<Reading> {
        let reading = |number: i32| Reading {
            sensor: 1,
            time: i64::from(number) * 1000,
            temp: f64::from(1600 + number) / 100.0,
            humidity: Some(f64::from(number)),
        };
        (0..10).map(reading).collect()
    }

    fn window(field: &str, count: f64, sum: f64) -> Window {
        Window { sensor: "s0001".to_owned(), start: 0, field: field.to_owned(), count, sum, mean: sum / count }
    }

    #[test]
    fn a_sum_is_right_rounded_otherwise_or_wrong() {
        let mut oracle = Oracle::default();
        oracle.add(&readings());
        // Python: float(sum(Fraction(number / 100) for number in range(1600, 1610)))
        let right = [window("temp", 10.0, 160.45), window("humidity", 10.0, 45.0)];
        assert_eq!(oracle.judge(&right), AnswerCounts { aggregates: 6, wrong: 0, rounded: 0 });
        let rounded = [window("temp", 10.0, 160.450_000_000_000_1), right[1].clone()];
        assert_eq!(oracle.judge(&rounded), AnswerCounts { aggregates: 6, wrong: 0, rounded: 2 });
        let one_twice = [window("temp", 11.0, 176.45), right[1].clone()];
        assert_eq!(oracle.judge(&one_twice), AnswerCounts { aggregates: 6, wrong: 3, rounded: 0 });
        assert_eq!(oracle.judge(&right[..1]), AnswerCounts { aggregates: 6, wrong: 3, rounded: 0 });
        let of_nobody = [right[0].clone(), right[1].clone(), Window { start: HOUR_MS, ..right[0].clone() }];
        assert_eq!(oracle.judge(&of_nobody), AnswerCounts { aggregates: 6, wrong: 1, rounded: 0 });
    }
}
