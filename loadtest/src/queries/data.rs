//! The data for every server, the queries, and the expected answers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// The first hour: 2026-01-15T00:00:00Z.
const START_S: i64 = 1_768_435_200;
/// Readings are in the middle of each minute, so that it does not matter which end of an hour belongs to it.
const WITHIN_MINUTE_S: i64 = 30;
const HOURS: i64 = 26;
const MINUTES_PER_HOUR: i64 = 60;

pub const SENSORS: i64 = 1000;
/// Number of sites of the sensors.
pub const SITES: i64 = 10;
/// The sensor of queries for a single sensor.
pub const SENSOR: i64 = 500;
/// Minutes of data, each with a reading of every sensor.
pub const MINUTES: i64 = HOURS * MINUTES_PER_HOUR;
/// The queried range: one day.
pub const ASKED_S: Range<i64> = START_S + 3600..START_S + 25 * 3600;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// Hourly means of one sensor's temperature.
    Windows,
    /// One sensor's readings, both fields.
    Raw,
    /// Hourly means of all sensors' temperature by site.
    BySite,
}

impl Question {
    pub const ALL: [Self; 3] = [Self::Windows, Self::Raw, Self::BySite];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Windows => "24 hourly means of one sensor",
            Self::Raw => "1,440 readings of one sensor",
            Self::BySite => "24 hourly means of 1,000 sensors by site",
        }
    }
}

/// Series by name, times in seconds: windows by their start.
pub type Answer = BTreeMap<String, Vec<(i64, f64)>>;

/// A reading.
pub struct Reading {
    /// The value of the tag `sensor`.
    pub sensor: String,
    /// The value of the tag `site`.
    pub site: String,
    /// In seconds since the epoch.
    pub time: i64,
    /// Two decimals.
    pub temp: f64,
    /// A whole number.
    pub humidity: f64,
}

/// A sensor's tag.
pub fn sensor_name(sensor: i64) -> String {
    format!("s{sensor:06}")
}

fn site_name(sensor: i64) -> String {
    format!("site{}", sensor % SITES)
}

#[expect(clippy::cast_precision_loss, reason = "small whole numbers")]
fn float(whole: i64) -> f64 {
    whole as f64
}

/// The readings of a minute, one of each sensor.
pub fn minute(minute: i64) -> impl Iterator<Item = Reading> {
    (0..SENSORS).map(move |sensor| Reading {
        sensor: sensor_name(sensor),
        site: site_name(sensor),
        time: START_S + minute * 60 + WITHIN_MINUTE_S,
        temp: float(2000 + (sensor * 7 + minute * 3) % 900) / 100.0,
        humidity: float(30 + (sensor + minute) % 60),
    })
}

/// Those of several minutes as line protocol, timestamps in seconds.
pub fn lines(minutes: Range<i64>) -> String {
    let mut body = String::new();
    for Reading { sensor, site, time, temp, humidity } in minutes.flat_map(minute) {
        // Writing to a String cannot fail.
        let _ = writeln!(body, "climate,sensor={sensor},site={site} temp={temp},humidity={humidity} {time}");
    }
    body
}

/// The expected answer.
pub fn expected(question: Question) -> Answer {
    let mut gathered: BTreeMap<(String, i64), (f64, f64)> = BTreeMap::new();
    let is_asked = |reading: &Reading| {
        ASKED_S.contains(&reading.time) && (question == Question::BySite || reading.sensor == sensor_name(SENSOR))
    };
    for reading in (0..MINUTES).flat_map(minute).filter(is_asked) {
        let hour = reading.time.div_euclid(3600) * 3600;
        let mut add = |series: &str, time: i64, value: f64| {
            let (sum, count) = gathered.entry((series.to_owned(), time)).or_default();
            *sum += value;
            *count += 1.0;
        };
        match question {
            Question::Windows => add("temp", hour, reading.temp),
            Question::BySite => add(&reading.site, hour, reading.temp),
            Question::Raw => {
                add("temp", reading.time, reading.temp);
                add("humidity", reading.time, reading.humidity);
            }
        }
    }
    let mut answer = Answer::new();
    for ((series, time), (sum, count)) in gathered {
        answer.entry(series).or_default().push((time, sum / count));
    }
    answer
}

/// The difference between two answers, if there is one.
pub fn difference(expected: &Answer, found: &Answer) -> Option<String> {
    if !expected.keys().eq(found.keys()) {
        return Some(format!("series {:?} instead of {:?}", found.keys(), expected.keys()));
    }
    for (series, values) in expected {
        let said = &found[series];
        if said.len() != values.len() {
            return Some(format!("{series}: {} values instead of {}", said.len(), values.len()));
        }
        for ((time, value), (said_time, said_value)) in values.iter().zip(said) {
            if time != said_time || (value - said_value).abs() > 1e-9 * value.abs().max(1.0) {
                return Some(format!("{series}: {said_value} at {said_time} instead of {value} at {time}"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_of_the_size_that_their_names_say() {
        let sizes: [Vec<usize>; 3] =
            Question::ALL.map(|question| expected(question).into_values().map(|values| values.len()).collect());
        assert_eq!(sizes, [vec![24], vec![1440; 2], vec![24; 10]]);
    }

    #[test]
    fn a_wrong_answer_is_told() {
        let right = expected(Question::Windows);
        assert_eq!(difference(&right, &right), None);
        let changed = |change: fn(&mut Vec<(i64, f64)>)| {
            let mut wrong = right.clone();
            wrong.values_mut().for_each(change);
            difference(&right, &wrong)
        };
        assert!(changed(|values| values[3].1 += 1e-7).is_some());
        assert!(changed(|values| values[3].0 += 1).is_some());
        assert!(changed(|values| values.truncate(23)).is_some());
        assert!(difference(&right, &Answer::new()).is_some());
    }
}
