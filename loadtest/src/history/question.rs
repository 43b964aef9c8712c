//! The questions, and their expected answers.

use serde::{Deserialize, Serialize};

use super::fleet::{DAY_S, Fleet, SITES, START_S, sensor_name, site_name};
use crate::queries::data::Answer;

/// Windows of a chart, three hours long.
pub const CHART_S: i64 = 10_800;
pub const HOUR_S: i64 = 3600;

/// A question about the temperature, over all days if its name does not say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    SensorHourly,
    SensorDaily,
    /// One day in the middle, both fields.
    SensorRawDay,
    /// Least and greatest value of each three hours.
    SensorChart,
    SitesHourly,
    SitesDaily,
    SitesLastDay,
    OneNumber,
    LatestOfAll,
    LatestOfOne,
}

/// A question with what it is asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub question: Question,
    /// The sensor, for questions about one.
    pub sensor: i64,
    pub fleet: Fleet,
}

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

    /// The name in tables.
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

    /// Whether it is about one sensor.
    pub fn is_of_one(self) -> bool {
        use Question as Q;
        matches!(self, Q::SensorHourly | Q::SensorDaily | Q::SensorRawDay | Q::SensorChart | Q::LatestOfOne)
    }
}

impl Asked {
    /// Its range, in seconds.
    pub fn range_s(&self) -> (i64, i64) {
        let (start, end) = (START_S, self.fleet.end_s());
        match self.question {
            Question::SensorRawDay => {
                let day = start + self.fleet.days / 2 * DAY_S;
                (day, day + DAY_S)
            }
            Question::SitesLastDay => (end - DAY_S, end),
            _ => (start, end),
        }
    }

    /// The length of its windows, in seconds.
    pub fn step_s(&self) -> i64 {
        match self.question {
            Question::SensorHourly | Question::SitesHourly | Question::SitesLastDay => HOUR_S,
            Question::SensorDaily | Question::SitesDaily => DAY_S,
            Question::SensorChart => CHART_S,
            _ => self.fleet.days * DAY_S,
        }
    }

    /// The expected answer. Series of means by site are named by it, others by their field or sensor; times are starts of
    /// windows, or 0 where there is one value.
    pub fn expected(&self) -> Answer {
        let (from, to) = self.range_s();
        let ticks = (from - START_S) / self.fleet.interval_s..(to - START_S) / self.fleet.interval_s;
        let readings = |sensor: i64| ticks.clone().map(move |tick| self.fleet.reading(sensor, tick));
        let one = [self.sensor];
        let mut answer = Answer::new();
        match self.question {
            Question::SensorHourly | Question::SensorDaily => {
                answer.insert("temp".to_owned(), self.means(&one));
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
                let of = |value: fn(&super::fleet::Reading) -> f64| {
                    readings(self.sensor).map(|reading| (reading.time, value(&reading))).collect()
                };
                answer.insert("temp".to_owned(), of(|reading| float(reading.temp_hundredths) / 100.0));
                answer.insert("humidity".to_owned(), of(|reading| float(reading.humidity)));
            }
            Question::SensorChart => {
                let mut all: Vec<_> =
                    readings(self.sensor).map(|reading| (reading.time, reading.temp_hundredths)).collect();
                all.sort_unstable();
                let windows: Vec<&[(i64, i64)]> =
                    all.chunk_by(|(a, _), (b, _)| (a - from) / CHART_S == (b - from) / CHART_S).collect();
                for (name, pick) in [("min", i64::min as fn(i64, i64) -> i64), ("max", i64::max)] {
                    let of = |window: &&[(i64, i64)]| {
                        let value = window.iter().map(|(_, value)| *value).reduce(pick).unwrap_or_default();
                        (from + (window[0].0 - from) / CHART_S * CHART_S, float(value) / 100.0)
                    };
                    answer.insert(name.to_owned(), windows.iter().map(of).collect());
                }
            }
            Question::LatestOfAll | Question::LatestOfOne => {
                let all: Vec<i64> = (0..self.fleet.sensors).collect();
                for sensor in if self.question.is_of_one() { &one[..] } else { &all } {
                    let last = self.fleet.reading(*sensor, self.fleet.ticks() - 1);
                    answer.insert(sensor_name(*sensor), vec![(0, float(last.temp_hundredths) / 100.0)]);
                }
            }
        }
        answer
    }

    /// Means by window, from exact sums.
    fn means(&self, sensors: &[i64]) -> Vec<(i64, f64)> {
        let ((from, to), step) = (self.range_s(), self.step_s());
        let mut windows = vec![(0_i64, 0_i64); usize::try_from((to - from) / step).unwrap_or_default()];
        for tick in (from - START_S) / self.fleet.interval_s..(to - START_S) / self.fleet.interval_s {
            for sensor in sensors {
                let reading = self.fleet.reading(*sensor, tick);
                let window = &mut windows[usize::try_from((reading.time - from) / step).unwrap_or_default()];
                *window = (window.0 + reading.temp_hundredths, window.1 + 1);
            }
        }
        (from..).step_by(usize::try_from(step).unwrap_or(1)).zip(windows).map(mean).collect()
    }
}

fn mean((start, (hundredths, count)): (i64, (i64, i64))) -> (i64, f64) {
    (start, float(hundredths) / float(count) / 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "sums stay below 2^53")]
fn float(whole: i64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Values;
    use super::*;

    #[test]
    fn answers_are_of_the_size_that_their_names_say() {
        let fleet = Fleet { days: 2, sensors: 12, interval_s: 60, values: Values::Noise };
        let sizes = Question::ALL.map(|question| {
            let answer = Asked { question, sensor: 5, fleet }.expected();
            (answer.len(), answer.values().map(Vec::len).max().unwrap())
        });
        let expected = [(1, 48), (1, 2), (2, 1440), (2, 16), (10, 48), (10, 2), (10, 24), (1, 1), (12, 1), (1, 1)];
        assert_eq!(sizes, expected);
    }
}
