//! The values of each kind of sensor as a function of the factory's own time: shifts, weather, stops, wear, and noise.

use std::f64::consts::TAU;
use std::fmt::Write;

use super::noise::{hash, jitter, unit, wander};
use super::shifts::{machine_warmth, work_share, worked_hours};

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// The value of a certain temperature chip after a reset.
const RESET_CELSIUS: f64 = 85.0;
/// Average number of minutes between two random resets.
const RESET_MINUTES: u64 = 480;
/// Seconds between two additional resets during the demo.
const RESET_EVERY_S: i64 = 150;
/// The time at which the meters were new: 2020.
const NEW_METERS: i64 = 1_577_836_800;

/// A kind of sensor. Each has a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Temperature and humidity.
    Climate,
    /// The vibration of a machine, and the temperature of its bearing.
    Vibration,
    /// Power, and a counter of energy.
    Energy,
    /// A level that falls while the line works, and is refilled.
    Tank,
    /// The state of a machine as text and boolean, and its cycle time.
    Machine,
}

impl Kind {
    pub fn measurement(self) -> &'static str {
        match self {
            Self::Climate => "climate",
            Self::Vibration => "vibration",
            Self::Energy => "energy",
            Self::Tank => "tank",
            Self::Machine => "machine",
        }
    }
}

/// The circumstances of one reading.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moment {
    /// Wear of the bearing, from 0 for a new one to 1 for a worn-out one.
    pub wear: f64,
    /// True if the chip has just been reset.
    pub is_reset: bool,
    /// True if a number is sent as text.
    pub is_text: bool,
    /// Tenth of the second, for sensors with several readings per second.
    pub tenth: i64,
}

/// The signal of a sensor.
#[derive(Debug)]
pub struct Signal {
    pub kind: Kind,
    /// The seed of the machine that the sensor is fixed to.
    pub machine_seed: u64,
    /// The seed of the sensor.
    pub own_seed: u64,
    /// Scale of the signal among its kind: temperature, strength, or cycle time.
    pub scale: f64,
}

impl Signal {
    /// Returns true if the chip is reset at a time, which is `demo_s` seconds after the start of the demo.
    pub fn is_reset(&self, time_s: i64, demo_s: i64) -> bool {
        let is_random = time_s % 60 == 0 && hash(self.own_seed ^ 1, time_s / 60).is_multiple_of(RESET_MINUTES);
        is_random || demo_s > 0 && demo_s % RESET_EVERY_S == RESET_EVERY_S / 5
    }

    /// Appends the fields at a time, in seconds since the epoch.
    pub fn write(&self, time_s: i64, moment: Moment, out: &mut String) {
        let Moment { wear, is_reset, is_text, tenth } = moment;
        // Writing to a String cannot fail.
        let _ = match self.kind {
            Kind::Climate => {
                let (temp, humidity) = self.climate(time_s);
                let temp = if is_reset { RESET_CELSIUS } else { temp };
                let quote = if is_text { "\"" } else { "" };
                write!(out, "temp={temp:.1},humidity={quote}{humidity:.1}{quote}")
            }
            Kind::Vibration => {
                let (rms, bearing) = self.vibration(time_s, tenth, wear);
                write!(
                    out,
                    "rms={rms:.2},peak={:.2},bearing_temp={bearing:.1}",
                    rms * (2.9 + 0.2 * jitter(self.own_seed ^ 2, time_s))
                )
            }
            Kind::Energy => {
                let (power, energy) = self.energy(time_s);
                write!(out, "power_kw={power:.2},energy_kwh={energy:.2}")
            }
            Kind::Tank => {
                let level = self.level(time_s);
                let low = level < 20.0;
                let quote = if is_text { "\"" } else { "" };
                write!(out, "level={quote}{level:.1}{quote},low={low}")
            }
            Kind::Machine => {
                let state = self.state(time_s);
                let running = state == "running";
                let cycle = self.scale
                    * (1.0 + 0.06 * wander(self.own_seed, time_s, HOUR) + 0.02 * jitter(self.own_seed, time_s));
                // A stopped machine has no cycles.
                let cycle = if running { format!(",cycle_s={cycle:.2}") } else { String::new() };
                write!(out, "state=\"{state}\",running={running}{cycle}")
            }
        };
    }

    /// Returns temperature and humidity.
    fn climate(&self, time_s: i64) -> (f64, f64) {
        let outside = 3.0 * ((time_s - 9 * HOUR) as f64 / DAY as f64 * TAU).sin() + 2.5 * wander(7, time_s, 2 * DAY);
        let warmed = machine_warmth(time_s, 3) * (2.0 + 0.4 * self.scale);
        let temp = 18.5 + 0.6 * self.scale + warmed + 0.4 * outside + 0.3 * wander(self.own_seed, time_s, 5 * HOUR);
        let humidity = 47.0 - 1.6 * (temp - 21.0) + 4.0 * wander(self.own_seed ^ 1, time_s, 9 * HOUR);
        (
            temp + 0.06 * jitter(self.own_seed, time_s),
            (humidity + 0.3 * jitter(self.own_seed ^ 1, time_s)).clamp(5.0, 95.0),
        )
    }

    /// Returns the vibration and the temperature of the bearing.
    fn vibration(&self, time_s: i64, tenth: i64, wear: f64) -> (f64, f64) {
        let is_running = self.state(time_s) == "running";
        let strength = if is_running { self.scale * (1.0 + 1.6 * wear * wear) } else { 0.12 };
        let rms = strength
            * (1.0
                + 0.12 * wander(self.own_seed, time_s, 2 * HOUR)
                + 0.05 * jitter(self.own_seed, time_s * 10 + tenth));
        let bearing = 24.0
            + machine_warmth(time_s, 2) * (21.0 + 14.0 * wear * wear)
            + 1.2 * wander(self.own_seed ^ 1, time_s, HOUR);
        (rms, bearing)
    }

    /// Returns the power, and the counter of energy, which never falls.
    fn energy(&self, time_s: i64) -> (f64, f64) {
        const STANDBY: f64 = 0.12;
        let full_hours = |time_s: i64| STANDBY * time_s as f64 / HOUR as f64 + 0.8 * worked_hours(time_s);
        let power = self.scale * (STANDBY + work_share(time_s) * (0.8 + 0.1 * wander(self.own_seed, time_s, 20 * 60)));
        (
            power * (1.0 + 0.01 * jitter(self.own_seed, time_s)),
            self.scale * (full_hours(time_s) - full_hours(NEW_METERS)),
        )
    }

    /// Returns the level in percent. It falls during work, and is refilled to 96 at about 14.
    fn level(&self, time_s: i64) -> f64 {
        const FULL: f64 = 96.0;
        const USED: f64 = 82.0;
        let used = worked_hours(time_s) * (0.9 + 0.2 * unit(self.own_seed, 0)) * 0.25 * self.scale
            + USED * unit(self.own_seed, 1);
        FULL - used % USED + 0.15 * jitter(self.own_seed, time_s)
    }

    /// Returns the state of the machine: `off` outside the shifts, occasionally `down` or `setup` within them, else
    /// `running`.
    fn state(&self, time_s: i64) -> &'static str {
        const STOPS: i64 = 90 * 60;
        const SETUPS: i64 = 20 * 60;
        let stop = time_s.div_euclid(STOPS);
        let setup = time_s.div_euclid(SETUPS);
        let seed = self.machine_seed;
        // Some machines have no work on Saturday and in the evening.
        if work_share(time_s) <= unit(seed, time_s.div_euclid(DAY)) * 0.95 {
            "off"
        } else if unit(seed ^ 1, stop) < 0.06 && time_s.rem_euclid(STOPS) < 600 + (unit(seed ^ 2, stop) * 2400.0) as i64
        {
            "down"
        } else if unit(seed ^ 3, setup) < 0.12 && time_s.rem_euclid(SETUPS) < 420 {
            "setup"
        } else {
            "running"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Monday, 2026-01-12 00:00 UTC.
    const MONDAY: i64 = 1_768_176_000;

    fn signal(kind: Kind, scale: f64) -> Signal {
        Signal { kind, machine_seed: 5, own_seed: 6, scale }
    }

    fn minutes() -> impl Iterator<Item = i64> {
        (MONDAY..MONDAY + 7 * DAY).step_by(60)
    }

    #[test]
    fn values_are_within_the_range_of_such_sensors() {
        for time_s in minutes() {
            let (temp, humidity) = signal(Kind::Climate, 9.0).climate(time_s);
            assert!((10.0..45.0).contains(&temp) && (5.0..=95.0).contains(&humidity), "{time_s}: {temp} {humidity}");
            let (rms, bearing) = signal(Kind::Vibration, 2.4).vibration(time_s, 0, 0.0);
            assert!((0.05..4.0).contains(&rms) && (20.0..50.0).contains(&bearing), "{time_s}: {rms} {bearing}");
            let level = signal(Kind::Tank, 6.0).level(time_s);
            assert!((10.0..100.0).contains(&level), "{time_s}: {level}");
        }
    }

    #[test]
    fn the_meter_counts_up_at_about_the_power_it_shows() {
        let meter = signal(Kind::Energy, 46.0);
        let first = meter.energy(MONDAY).1;
        let mut before = first;
        let mut used = 0.0;
        assert!(first > 0.0);
        for time_s in minutes().skip(1) {
            let (power, energy) = meter.energy(time_s);
            assert!(energy >= before, "{time_s}");
            before = energy;
            used += power / 60.0;
        }
        let counted = before - first;
        assert!((counted / used - 1.0).abs() < 0.05, "{counted} and {used}");
    }

    #[test]
    fn machines_work_in_shifts_and_stop_at_times() {
        let machine = signal(Kind::Machine, 14.0);
        assert_eq!(machine.state(MONDAY + 2 * HOUR), "off");
        assert_eq!(machine.state(MONDAY + 6 * DAY + 12 * HOUR), "off", "Sunday");
        for state in ["running", "down", "setup", "off"] {
            let times = (0..60 * 24 * 40).filter(|minute| machine.state(MONDAY + minute * 60) == state).count();
            assert!(times > 100, "{state}: {times} minutes");
        }
    }
}
