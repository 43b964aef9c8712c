//! The queries, and their expected answers.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::fleet::{DAY_S, Fleet, HOUR_S, Reading, SITES, float, sensor_name, site_name};

/// Windows of a chart, three hours long.
pub const CHART_S: i64 = 10_800;

/// A query of the temperature. It covers all days unless its name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    SensorHourly,
    SensorDaily,
    /// One day in the middle, both fields.
    SensorRawDay,
    /// Minimum and maximum of each three hours.
    SensorChart,
    SitesHourly,
    SitesDaily,
    SitesLastDay,
    OneNumber,
    LatestOfAll,
    LatestOfOne,
}

/// A query with its parameters.
#[derive(Debug, Clone, Copy)]
pub struct Query {
    pub question: Question,
    /// The sensor, for queries of one sensor.
    pub sensor: i64,
    pub fleet: Fleet,
    /// The range of its readings, in seconds.
    pub from: i64,
    pub to: i64,
}

/// Series by name, times in seconds: windows by their start, single values by 0.
pub type Answer = BTreeMap<String, Vec<(i64, f64)>>;

impl Question {
    pub const ALL: [Self; 10] = [
        Self::SensorHourly,
        Self::SensorDaily,
        Self::SensorRawDay,
        Self::SensorChart,
        Self::SitesHourly,
        Self::SitesDaily,
        Self::SitesLastDay,
        Self::OneNumber,
        Self::LatestOfAll,
        Self::LatestOfOne,
    ];

    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::SensorHourly => "one sensor, hourly means",
            Self::SensorDaily => "one sensor, daily means",
            Self::SensorRawDay => "one sensor, readings of a day",
            Self::SensorChart => "one sensor, chart (least and greatest of 3 h)",
            Self::SitesHourly => "hourly means by site",
            Self::SitesDaily => "daily means by site",
            Self::SitesLastDay => "hourly means by site, the last day",
            Self::OneNumber => "mean of everything",
            Self::LatestOfAll => "latest of all sensors",
            Self::LatestOfOne => "latest of one sensor",
        }
    }

    /// Returns true if the query covers one sensor.
    pub fn is_single_sensor(self) -> bool {
        use Question as Q;
        matches!(self, Q::SensorHourly | Q::SensorDaily | Q::SensorRawDay | Q::SensorChart | Q::LatestOfOne)
    }
}

impl Query {
    /// Returns a query of all readings, or of the day in its name.
    pub fn new(question: Question, sensor: i64, fleet: Fleet) -> Self {
        let start = fleet.start_s;
        let end = fleet.end_s();
        let middle = start + (end - start) / DAY_S / 2 * DAY_S;
        let (from, to) = match question {
            Question::SensorRawDay => (middle, middle + DAY_S),
            Question::SitesLastDay => (end - DAY_S, end),
            _ => (start, end),
        };
        Self { question, sensor, fleet, from, to }
    }

    /// Returns the length of its windows in seconds.
    pub fn step_s(&self) -> i64 {
        match self.question {
            Question::SensorHourly | Question::SitesHourly | Question::SitesLastDay => HOUR_S,
            Question::SensorDaily | Question::SitesDaily => DAY_S,
            Question::SensorChart => CHART_S,
            _ => self.to - self.from,
        }
    }

    /// Returns the ticks within its range.
    fn ticks(&self) -> Range<i64> {
        self.fleet.ticks_in(self.from - self.fleet.start_s)..self.fleet.ticks_in(self.to - self.fleet.start_s)
    }

    /// Returns the expected answer. Series of means by site have the site's name, others that of their field or sensor.
    /// Times are starts of windows, or 0 for a single value.
    pub fn expected(&self) -> Answer {
        let from = self.from;
        let readings = |sensor: i64| self.ticks().map(move |tick| self.fleet.reading(sensor, tick));
        let sensor = [self.sensor];
        let mut answer = Answer::new();
        match self.question {
            Question::SensorHourly | Question::SensorDaily => {
                answer.insert("temp".to_owned(), self.means(&sensor));
            }
            Question::SitesHourly | Question::SitesDaily | Question::SitesLastDay => {
                for site in 0..SITES.min(self.fleet.sensors) {
                    let sensors: Vec<i64> = (site..self.fleet.sensors).step_by(10).collect();
                    answer.insert(site_name(site), self.means(&sensors));
                }
            }
            Question::OneNumber => {
                let all: Vec<i64> = (0..self.fleet.sensors).collect();
                let mean = self.means(&all).into_iter().map(|(_, mean)| (0, mean)).collect();
                answer.insert("mean".to_owned(), mean);
            }
            Question::SensorRawDay => {
                let series = |value: fn(&Reading) -> f64| {
                    readings(self.sensor).map(|reading| (reading.time_ms / 1000, value(&reading))).collect()
                };
                answer.insert("temp".to_owned(), series(Reading::temp));
                answer.insert("humidity".to_owned(), series(|reading| float(reading.humidity)));
            }
            Question::SensorChart => {
                let mut all: Vec<_> =
                    readings(self.sensor).map(|reading| (reading.time_ms / 1000, reading.temp_hundredths)).collect();
                all.sort_unstable();
                let windows: Vec<&[(i64, i64)]> =
                    all.chunk_by(|(a, _), (b, _)| (a - from) / CHART_S == (b - from) / CHART_S).collect();
                for (name, pick) in [("min", i64::min as fn(i64, i64) -> i64), ("max", i64::max)] {
                    let extreme = |window: &&[(i64, i64)]| {
                        let value = window.iter().map(|(_, value)| *value).reduce(pick).unwrap_or_default();
                        (from + (window[0].0 - from) / CHART_S * CHART_S, float(value) / 100.0)
                    };
                    answer.insert(name.to_owned(), windows.iter().map(extreme).collect());
                }
            }
            Question::LatestOfAll | Question::LatestOfOne => {
                let all: Vec<i64> = (0..self.fleet.sensors).collect();
                for sensor in if self.question.is_single_sensor() { &sensor[..] } else { &all } {
                    let last = self.fleet.reading(*sensor, self.fleet.ticks - 1);
                    answer.insert(sensor_name(*sensor), vec![(0, last.temp())]);
                }
            }
        }
        answer
    }

    /// Means by window, from exact sums.
    fn means(&self, sensors: &[i64]) -> Vec<(i64, f64)> {
        let step = self.step_s();
        let mut windows = vec![(0_i64, 0_i64); usize::try_from((self.to - self.from) / step).unwrap_or_default()];
        for tick in self.ticks() {
            for sensor in sensors {
                let reading = self.fleet.reading(*sensor, tick);
                let window = (reading.time_ms / 1000 - self.from) / step;
                let window = &mut windows[usize::try_from(window).unwrap_or_default()];
                *window = (window.0 + reading.temp_hundredths, window.1 + 1);
            }
        }
        let starts = (self.from..).step_by(usize::try_from(step).unwrap_or(1));
        starts.zip(windows).map(mean).collect()
    }
}

fn mean((start, (hundredths, count)): (i64, (i64, i64))) -> (i64, f64) {
    (start, float(hundredths) / float(count) / 100.0)
}

/// Describes the difference between two answers, if there is one.
pub fn difference(expected: &Answer, found: &Answer) -> Option<String> {
    if !expected.keys().eq(found.keys()) {
        return Some(format!("series {:?} instead of {:?}", found.keys(), expected.keys()));
    }
    for (series, values) in expected {
        let answered = &found[series];
        if answered.len() != values.len() {
            return Some(format!("{series}: {} values instead of {}", answered.len(), values.len()));
        }
        for ((time, value), (found_time, found_value)) in values.iter().zip(answered) {
            if time != found_time || (value - found_value).abs() > 1e-9 * value.abs().max(1.0) {
                return Some(format!("{series}: {found_value} at {found_time} instead of {value} at {time}"));
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
        let fleet = Fleet { values: crate::fleet::Values::Noise, ..Fleet::by_minute(12, 2 * 1440) };
        let sizes = Question::ALL.map(|question| {
            let answer = Query::new(question, 5, fleet).expected();
            (answer.len(), answer.values().map(Vec::len).max().unwrap())
        });
        let expected = [(1, 48), (1, 2), (2, 1440), (2, 16), (10, 48), (10, 2), (10, 24), (1, 1), (12, 1), (1, 1)];
        assert_eq!(sizes, expected);
    }

    #[test]
    fn a_wrong_answer_is_found() {
        let right = Query::new(Question::SensorHourly, 5, Fleet::by_minute(12, 1440)).expected();
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
