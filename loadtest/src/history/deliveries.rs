//! In which order readings are delivered, and when they are of: the bodies of numbered POSTs.

use std::fmt::Write;

use anyhow::Result;
use bytes::Bytes;

use super::fleet::{DAY_S, Fleet, Reading, SITES, START_S};
use crate::client::Connection;
use crate::sending::Sender;

const HOUR_S: i64 = 3600;

/// What is delivered.
#[derive(Debug, Clone, Copy)]
pub enum Delivery {
    /// Whole days of one sensor after the other, day by day: what a gateway has kept.
    DayByDay(Fleet),
    /// For each hour those of all sensors, one sensor after the other.
    HourByHour(Fleet),
    /// The same in time order and moved so that the last reading is of this time, in seconds: live data.
    Until(Fleet, i64),
    /// One sensor with so many readings per second, from the first day on.
    Fast { hertz: i64, hours: i64 },
}

impl Delivery {
    pub fn readings(&self) -> i64 {
        match self {
            Self::DayByDay(fleet) | Self::HourByHour(fleet) | Self::Until(fleet, _) => fleet.readings(),
            Self::Fast { hertz, hours } => hertz * hours * HOUR_S,
        }
    }

    /// The parameter `precision` of the bodies.
    pub fn precision(&self) -> &'static str {
        if matches!(self, Self::Fast { .. }) { "ms" } else { "s" }
    }

    /// How many POSTs of so many lines there are.
    pub fn posts(&self, lines: i64) -> Result<usize> {
        Ok(usize::try_from(self.readings())?.div_ceil(usize::try_from(lines)?))
    }

    /// The body of a POST of so many lines.
    pub fn body(&self, number: usize, lines: i64) -> Bytes {
        let first = i64::try_from(number).unwrap_or_default() * lines;
        let numbers = first..self.readings().min(first + lines);
        let mut body = String::with_capacity(usize::try_from(lines).unwrap_or_default() * 80);
        for number in numbers {
            self.line(&mut body, number);
        }
        Bytes::from(body)
    }

    fn line(&self, body: &mut String, number: i64) {
        match self {
            Self::DayByDay(fleet) => of_period(fleet, DAY_S, number).write(body),
            Self::HourByHour(fleet) => of_period(fleet, HOUR_S, number).write(body),
            Self::Until(fleet, end) => {
                let reading = fleet.reading(number % fleet.sensors, number / fleet.sensors);
                Reading { time: reading.time + end - fleet.end_s(), ..reading }.write(body);
            }
            Self::Fast { hertz, .. } => {
                let (ms, value) = (START_S * 1000 + number * 1000 / hertz, 2000 + number * 3 % 900);
                // Writing to a String cannot fail.
                let _ = writeln!(body, "climate,sensor=fast,site=site0 temp={}.{:02} {ms}", value / 100, value % 100);
            }
        }
    }
}

/// A reading by its number, where each period has all readings of the first sensor, then those of the second.
fn of_period(fleet: &Fleet, period_s: i64, number: i64) -> Reading {
    let each = period_s / fleet.interval_s;
    let (period, within) = (number / (each * fleet.sensors), number % (each * fleet.sensors));
    fleet.reading(within / each, period * each + within % each)
}

impl Reading {
    fn write(&self, body: &mut String) {
        let Self { sensor, time, temp_hundredths, humidity } = self;
        // Writing to a String cannot fail.
        let _ = writeln!(
            body,
            "climate,sensor=s{sensor:06},site=site{} temp={}.{:02},humidity={humidity}i {time}",
            sensor % SITES,
            temp_hundredths / 100,
            temp_hundredths % 100,
        );
    }
}

/// Delivers over one connection.
pub struct Deliverer {
    pub connection: Connection,
    pub delivery: Delivery,
    /// Per POST.
    pub lines: i64,
    /// Between two POSTs of it; zero for as fast as they are acked.
    pub pace: std::time::Duration,
}

impl Sender for Deliverer {
    async fn send(&mut self, number: usize) -> Result<usize> {
        let path = format!("/write?db=bench&precision={}", self.delivery.precision());
        self.connection.deliver(&path, self.delivery.body(number, self.lines)).await
    }

    async fn rest(&mut self) {
        if !self.pace.is_zero() {
            tokio::time::sleep(self.pace).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Values;
    use super::*;

    #[test]
    fn every_order_delivers_every_reading_once() {
        let fleet = Fleet { days: 2, sensors: 3, interval_s: 600, values: Values::Noise };
        let sorted = |delivery: &Delivery| {
            let bodies = (0..delivery.posts(100).unwrap()).map(|number| delivery.body(number, 100));
            let text: String = bodies.map(|body| String::from_utf8(body.to_vec()).unwrap()).collect();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let expected = sorted(&Delivery::Until(fleet, fleet.end_s()));
        assert_eq!(expected.len(), 2 * 3 * 144);
        assert_eq!(sorted(&Delivery::DayByDay(fleet)), expected);
        assert_eq!(sorted(&Delivery::HourByHour(fleet)), expected);
        let fast = sorted(&Delivery::Fast { hertz: 100, hours: 1 });
        assert_eq!(fast.len(), 360_000);
        assert!(fast.windows(2).all(|two| two[0] != two[1]));
    }
}
