//! Generates the readings of all devices in time order: tick by tick of each measurement, device by device. The
//! readings depend only on the scenario and the seed.

use super::random::Random;
use super::scenario::{Faults, Measurement, Scenario};
use super::values::{Maker, escaped, field_fingerprint, tag_value};

/// The number of a sensor: a device with all its tags, or with one of them missing.
pub type Sensor = u64;

/// The reading of a line, for the later comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    pub sensor: Sensor,
    /// The timestamp, in nanoseconds.
    pub time: i64,
    /// The fingerprint of all fields.
    pub fingerprint: u64,
}

/// An endless sequence of readings.
pub struct Readings {
    seed: u64,
    start: i64,
    field_missing: f64,
    tag_missing: f64,
    fleets: Vec<Fleet>,
}

/// All devices of a measurement.
struct Fleet {
    interval: i64,
    jitter: i64,
    makers: Vec<Maker>,
    devices: Vec<Device>,
    /// The state of each field of each device, ordered by device.
    states: Vec<i64>,
    /// The number of the first sensor.
    first_sensor: Sensor,
    tags: usize,
    /// The tick of the next reading.
    tick: i64,
    device: usize,
}

/// The part of a device's lines before the fields.
struct Device {
    series: Vec<u8>,
    /// The offsets of the tags, each with its comma, and the end of the last one.
    tags: Vec<usize>,
    /// The index of the tag that identifies the device.
    naming: usize,
}

impl Readings {
    /// The readings of a scenario from `start` on, in nanoseconds.
    pub fn new(scenario: &Scenario, seed: u64, start: i64) -> Self {
        let mut fleets: Vec<Fleet> = Vec::new();
        let mut first_sensor = 0;
        for (number, measurement) in scenario.measurements.iter().enumerate() {
            let fleet = Fleet::new(measurement, Random::new(seed, &[u64::try_from(number).unwrap_or(0)]), first_sensor);
            first_sensor += fleet.sensors();
            fleets.push(fleet);
        }
        let Faults { field_missing, tag_missing, .. } = scenario.faults;
        Self { seed, start, field_missing, tag_missing, fleets }
    }

    /// Appends the line of the next reading.
    pub fn next_line(&mut self, line: &mut Vec<u8>) -> Entry {
        let due = |fleet: &Fleet| fleet.tick * fleet.interval;
        let mut number = 0;
        for (other, fleet) in self.fleets.iter().enumerate() {
            if due(fleet) < due(&self.fleets[number]) {
                number = other;
            }
        }
        let fleet = &mut self.fleets[number];
        let sensor = fleet.first_sensor + u64::try_from(fleet.device * (fleet.tags + 1)).unwrap_or(0);
        let mut random = Random::new(self.seed, &[sensor, fleet.tick.unsigned_abs(), 1]);
        fleet.line(self.start, (self.field_missing, self.tag_missing), &mut random, sensor, line)
    }

    /// The server's key of a sensor.
    pub fn key(&self, sensor: Sensor) -> String {
        let Some(fleet) = self.fleets.iter().rev().find(|fleet| fleet.first_sensor <= sensor) else {
            return String::new();
        };
        let place = usize::try_from(sensor - fleet.first_sensor).unwrap_or(0);
        let (device, missing) = (place / (fleet.tags + 1), place % (fleet.tags + 1));
        let mut series = Vec::new();
        fleet.devices[device].write(missing, &mut series);
        String::from_utf8_lossy(&series).into_owned()
    }

    /// The key of a random device of a measurement, with all its tags.
    pub fn any_key(&self, measurement: usize, random: &mut Random) -> String {
        let fleet = &self.fleets[measurement];
        let device = random.below(u64::try_from(fleet.devices.len()).unwrap_or(0));
        self.key(fleet.first_sensor + device * u64::try_from(fleet.tags + 1).unwrap_or(0))
    }
}

impl Fleet {
    fn new(measurement: &Measurement, mut random: Random, first_sensor: Sensor) -> Self {
        let makers: Vec<Maker> = measurement.fields.iter().map(|(key, field)| Maker::new(key, field)).collect();
        let (mut devices, mut states) = (Vec::new(), Vec::new());
        for number in 0..measurement.devices {
            let tag = |(key, tag): (&String, _)| (key.clone(), tag_value(tag, number, &mut random));
            let tags: Vec<(String, String)> = measurement.tags.iter().map(tag).collect();
            states.extend(makers.iter().map(|maker| maker.first_state(&mut random, &tags)));
            devices.push(Device::new(measurement, &tags));
        }
        Self {
            interval: measurement.interval.nanoseconds(),
            jitter: measurement.jitter.nanoseconds(),
            makers,
            devices,
            states,
            first_sensor,
            tags: measurement.tags.len(),
            tick: 0,
            device: 0,
        }
    }

    fn sensors(&self) -> u64 {
        u64::try_from(self.devices.len() * (self.tags + 1)).unwrap_or(0)
    }

    fn line(
        &mut self,
        start: i64,
        (field_missing, tag_missing): (f64, f64),
        random: &mut Random,
        sensor: Sensor,
        line: &mut Vec<u8>,
    ) -> Entry {
        let jitter = if self.jitter > 0 { random.between(0, self.jitter - 1) } else { 0 };
        let time = start + self.tick * self.interval + jitter;
        let missing_tag = self.missing_tag(tag_missing, random);
        let missing_field = self.missing_field(field_missing, random);
        self.devices[self.device].write(missing_tag, line);
        let count = self.makers.len();
        let states = &mut self.states[self.device * count..][..count];
        let (mut fingerprint, mut separator) = (0_u64, b' ');
        for (place, (maker, state)) in self.makers.iter().zip(states).enumerate() {
            let value = maker.next(state, random, time);
            if Some(place) == missing_field {
                continue;
            }
            line.push(separator);
            line.extend_from_slice(&maker.key);
            value.write(line);
            separator = b',';
            fingerprint = fingerprint.wrapping_add(field_fingerprint(maker.key_hash, value.fingerprint()));
        }
        line.push(b' ');
        line.extend_from_slice(time.to_string().as_bytes());
        line.push(b'\n');
        self.device += 1;
        if self.device == self.devices.len() {
            (self.device, self.tick) = (0, self.tick + 1);
        }
        Entry { sensor: sensor + u64::try_from(missing_tag).unwrap_or(0), time, fingerprint }
    }

    /// The number of the missing tag, counted from 1; 0 if none is missing.
    fn missing_tag(&self, share: f64, random: &mut Random) -> usize {
        if self.tags < 2 || !random.is(share) {
            return 0;
        }
        let others = u64::try_from(self.tags - 1).unwrap_or(0);
        let place = usize::try_from(random.below(others)).unwrap_or(0);
        // Skips the tag that identifies the device; without it, several devices would be the same sensor.
        let place = if place >= self.devices[self.device].naming { place + 1 } else { place };
        place + 1
    }

    /// The index of the missing field, if any. At least one field stays.
    fn missing_field(&self, share: f64, random: &mut Random) -> Option<usize> {
        let count = u64::try_from(self.makers.len()).unwrap_or(0);
        (count > 1 && random.is(share)).then(|| usize::try_from(random.below(count)).unwrap_or(0))
    }
}

impl Device {
    fn new(measurement: &Measurement, tags: &[(String, String)]) -> Self {
        let is_naming = |key: &String| matches!(measurement.tags[key], super::scenario::Tag::Numbered { .. });
        let naming = tags.iter().position(|(key, _)| is_naming(key)).unwrap_or(0);
        let mut series = escaped(&measurement.name, b", ");
        let mut begins = Vec::with_capacity(tags.len() + 1);
        for (key, value) in tags {
            begins.push(series.len());
            series.push(b',');
            series.extend(escaped(key, b",= "));
            series.push(b'=');
            series.extend(escaped(value, b",= "));
        }
        begins.push(series.len());
        Self { series, tags: begins, naming }
    }

    fn write(&self, missing_tag: usize, line: &mut Vec<u8>) {
        match missing_tag.checked_sub(1) {
            None => line.extend_from_slice(&self.series),
            Some(tag) => {
                line.extend_from_slice(&self.series[..self.tags[tag]]);
                line.extend_from_slice(&self.series[self.tags[tag + 1]..]);
            }
        }
    }
}
