//! The simulated factory: two sites of three lines, their sensors, and the defects of some sensors.

use serde_json::{Value, json};

use super::noise::{derive_seed, hash};
use super::signals::{Kind, Moment, Signal};

/// Site and line of each gateway. The sensors of a line send through one gateway.
pub const GATEWAYS: [(&str, &str); 6] =
    [("bremen", "a"), ("bremen", "b"), ("bremen", "c"), ("porto", "a"), ("porto", "b"), ("porto", "c")];
/// Seconds before the demo at which a sensor fell silent.
const SILENT_S: i64 = 2 * 3600;
/// Seconds before the demo at which a bearing began to wear out.
const WEAR_S: i64 = 10 * 86_400;
/// The hour of the factory's own clock in which the demo begins. It is on a Wednesday, so that machines always work
/// during the demo.
const FIRST_HOUR_S: i64 = 1_768_384_800;
const HOUR_S: i64 = 3600;
/// Seconds before the demo at which a sensor began to send a number as text.
const KEPT_S: i64 = 20 * 3600;
/// Seconds for which it did so.
const KEPT_DURATION_S: i64 = 3600;
/// Seconds before the demo at which the fast sensor began to send [`FAST_RATE`] readings per second. It has outgrown a
/// page when the demo begins, even across the border of two hours.
const FAST_S: i64 = 15 * 60;
const FAST_RATE: i64 = 10;
/// Seconds between two texts that a drifting firmware sends instead of a number.
const DRIFT_EVERY_S: i64 = 45;

/// A defect of a sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    /// It occasionally sends the value of its chip after a reset.
    Outliers,
    /// It has sent nothing for two hours.
    Silent,
    /// Its bearing has been wearing out for ten days.
    Wear,
    /// Since an update, it occasionally sends its number as text, which is rejected.
    Drift,
    /// For an hour of the last day, it sent a number as text, while the database still kept such values.
    Kept,
    /// It sends more readings per hour than fit on a page.
    Fast,
}

/// A sensor of the factory.
#[derive(Debug)]
pub struct SimulatedSensor {
    /// Measurement and tags, in the order of a sensor key.
    pub key: String,
    /// Index in [`GATEWAYS`].
    pub gateway: usize,
    pub defect: Option<Defect>,
    name: String,
    signal: Signal,
}

/// The sensors, and the start of the demo.
#[derive(Debug)]
pub struct Factory {
    pub sensors: Vec<SimulatedSensor>,
    /// Start of the demo in seconds since the epoch. The times of defects are relative to it.
    pub began: i64,
}

impl Factory {
    /// Builds the factory of a seed. The same seed gives the same values at the same time after the start.
    pub fn new(seed: u64, began: i64) -> Self {
        let sensors = GATEWAYS.iter().enumerate().flat_map(|(gateway, _)| line(seed, gateway)).collect();
        Self { sensors, began }
    }

    /// Appends the lines of a sensor for a second since the epoch, with times in milliseconds. A silent sensor has
    /// none.
    pub fn write_lines(&self, sensor: &SimulatedSensor, time_s: i64, out: &mut String) {
        let active = self.active_defect(sensor, time_s);
        if active == Some(Defect::Silent) {
            return;
        }
        let since = time_s - self.began;
        let mut wear = 0.0;
        if active == Some(Defect::Wear) {
            wear = ((since + WEAR_S) as f64 / WEAR_S as f64).min(1.1);
        }
        let is_reset = active == Some(Defect::Outliers);
        let is_text = matches!(active, Some(Defect::Drift | Defect::Kept));
        let readings = if active == Some(Defect::Fast) { FAST_RATE } else { 1 };
        for tenth in 0..readings {
            out.push_str(&sensor.key);
            out.push(' ');
            sensor.signal.write(self.own_time(time_s), Moment { wear, is_reset, is_text, tenth }, out);
            out.push(' ');
            out.push_str(&(time_s * 1000 + tenth * 1000 / FAST_RATE).to_string());
            out.push('\n');
        }
    }

    /// Returns the defect of a sensor if it affects the readings of a second.
    pub fn active_defect(&self, sensor: &SimulatedSensor, time_s: i64) -> Option<Defect> {
        let since = time_s - self.began;
        sensor.defect.filter(|defect| match defect {
            Defect::Silent => since > -SILENT_S,
            Defect::Wear => since > -WEAR_S,
            Defect::Outliers => sensor.signal.is_reset(self.own_time(time_s), since),
            Defect::Drift => since > 0 && since % DRIFT_EVERY_S == 5,
            Defect::Kept => (0..KEPT_DURATION_S).contains(&(since + KEPT_S)),
            Defect::Fast => since > -FAST_S,
        })
    }

    /// Returns the seconds between two readings of a sensor in the history. Most sensors send every `usual` seconds.
    pub fn step(&self, sensor: &SimulatedSensor, time_s: i64, usual: i64) -> i64 {
        if self.active_defect(sensor, time_s) == Some(Defect::Fast) { 1 } else { usual }
    }

    /// Converts a time to the factory's own clock.
    fn own_time(&self, time_s: i64) -> i64 {
        time_s - self.began.div_euclid(HOUR_S) * HOUR_S + FIRST_HOUR_S
    }

    /// Returns the metadata of the sensors as lines of JSON for `POST /api/v1/meta`.
    pub fn metadata(&self) -> String {
        self.sensors.iter().map(|sensor| format!("{}\n", sensor.metadata())).collect()
    }
}

impl SimulatedSensor {
    fn metadata(&self) -> Value {
        let (site, line) = GATEWAYS[self.gateway];
        let (unit, owner, model) = match self.signal.kind {
            Kind::Climate => ("°C", "facility", "SHT-35"),
            Kind::Vibration => ("mm/s", "maintenance", "VB-200"),
            Kind::Energy => ("kW", "energy", "PM-5100"),
            Kind::Tank => ("%", "maintenance", "LT-40"),
            Kind::Machine => ("", "production", "PLC-1200"),
        };
        let place = match site {
            "bremen" => "Bremen, hall 2",
            _ => "Porto, hall 1",
        };
        let mut meta = json!({
            "name": format!("{}, line {}", self.name, line.to_uppercase()), "site": place, "owner": owner, "model": model,
        });
        // A sensor serves its line, and together with others its hall.
        meta["serves"] = json!([format!("{site}, line {line}"), place]);
        if !unit.is_empty() {
            meta["unit"] = json!(unit);
        }
        if self.signal.kind == Kind::Energy {
            meta["serial"] = json!(format!("{model}-{:08x}", self.signal.own_seed >> 32));
        }
        json!({ "sensor": self.key, "meta": meta })
    }
}

/// Returns the sensors of a line. The first line of each site also has the meter of the whole site.
fn line(seed: u64, gateway: usize) -> Vec<SimulatedSensor> {
    let (site, line) = GATEWAYS[gateway];
    let mut sensors = vec![
        ("hall", "Hall", Kind::Climate, 0.0),
        ("cabinet", "Control cabinet", Kind::Climate, 9.0),
        ("press", "Press", Kind::Vibration, 2.4),
        ("mill", "Mill", Kind::Vibration, 1.6),
        ("line", "Line", Kind::Energy, 46.0),
        ("coolant", "Coolant tank", Kind::Tank, 6.0),
        ("press", "Press", Kind::Machine, 14.0),
        ("mill", "Mill", Kind::Machine, 52.0),
    ];
    if line == "a" {
        sensors.push(("site", "Site", Kind::Energy, 210.0));
    }
    let simulated = |(sensor, name, kind, scale): (&str, &str, Kind, f64)| {
        let defect = match (kind, site, line, sensor) {
            (Kind::Climate, "porto", "b", "hall") => Some(Defect::Outliers),
            (Kind::Climate, "bremen", "c", "cabinet") => Some(Defect::Silent),
            (Kind::Vibration, "bremen", "a", "mill") => Some(Defect::Wear),
            (Kind::Tank, "porto", "c", _) => Some(Defect::Drift),
            (Kind::Climate, "porto", "a", "cabinet") => Some(Defect::Kept),
            (Kind::Vibration, "porto", "c", "press") => Some(Defect::Fast),
            _ => None,
        };
        // The vibration and the state of a machine share a seed.
        let machine_seed = derive_seed(seed, &format!("{site} {line} {sensor}"));
        SimulatedSensor {
            key: format!("{},line={line},sensor={sensor},site={site}", kind.measurement()),
            gateway,
            defect,
            name: name.to_owned(),
            signal: Signal { kind, machine_seed, own_seed: hash(machine_seed, kind as i64), scale },
        }
    };
    sensors.into_iter().map(simulated).collect()
}

#[cfg(test)]
mod tests {
    use hourglass_model::reading::{Limits, Precision};
    use hourglass_wire::Points;
    use hourglass_wire::line_protocol::Lines;

    use super::*;

    const BEGAN: i64 = 1_768_485_600;

    fn lines(seed: u64, time_s: i64) -> Vec<String> {
        let factory = Factory::new(seed, BEGAN);
        let line = |sensor: &SimulatedSensor| {
            let mut line = String::new();
            factory.write_lines(sensor, time_s, &mut line);
            line
        };
        factory.sensors.iter().map(line).collect()
    }

    /// Returns the line of the sensor with this defect.
    fn line_with(defect: Defect, time_s: i64) -> String {
        let factory = Factory::new(1, BEGAN);
        let index = factory.sensors.iter().position(|sensor| sensor.defect == Some(defect)).expect("there is one");
        lines(1, time_s).swap_remove(index)
    }

    #[test]
    fn there_are_fifty_sensors_of_five_kinds_and_each_has_metadata() {
        let factory = Factory::new(1, BEGAN);
        assert_eq!(factory.sensors.len(), 50);
        let mut keys: Vec<&str> = factory.sensors.iter().map(|sensor| &*sensor.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 50);
        let kinds = ["climate", "vibration", "energy", "tank", "machine"];
        assert!(kinds.iter().all(|kind| keys.iter().any(|key| key.starts_with(&format!("{kind},")))), "{keys:?}");
        for line in factory.metadata().lines() {
            let row: Value = serde_json::from_str(line).expect("JSON");
            assert!(keys.contains(&row["sensor"].as_str().expect("a key")), "{row}");
            assert!(["name", "site", "owner"].iter().all(|name| row["meta"][name].is_string()), "{row}");
        }
    }

    #[test]
    fn a_seed_repeats_itself_and_another_one_differs() {
        let time_s = BEGAN - 86_400;
        assert_eq!(lines(1, time_s), lines(1, time_s));
        assert_ne!(lines(1, time_s), lines(2, time_s));
        assert_ne!(lines(1, time_s), lines(1, time_s + 1));
    }

    #[test]
    fn machines_work_when_the_demo_begins_whenever_that_is() {
        for began in (0..7 * 24).map(|hour| BEGAN + hour * HOUR_S) {
            let factory = Factory::new(1, began);
            let mut lines = String::new();
            factory.sensors.iter().for_each(|sensor| factory.write_lines(sensor, began, &mut lines));
            let running = lines.matches("state=\"running\"").count();
            assert!(running >= 8 && !lines.contains("state=\"off\""), "{running}");
        }
    }

    /// Regression: the text of the firmware was `"19.3 %"`, which no rule converts to a number, so the fix that the
    /// page offers had no effect.
    #[test]
    fn a_drifting_sensor_sends_numbers_as_text() {
        for (defect, field, time_s) in
            [(Defect::Drift, "level=\"", BEGAN + 5), (Defect::Kept, "humidity=\"", BEGAN - 20 * HOUR_S)]
        {
            let line = line_with(defect, time_s);
            let text = line.split(field).nth(1).and_then(|rest| rest.split('"').next()).expect("a text");
            assert!(text.parse::<f64>().is_ok(), "{line}");
        }
    }

    #[test]
    fn each_defect_shows_when_it_is_due() {
        assert!(line_with(Defect::Silent, BEGAN - SILENT_S).ends_with(&format!(" {}\n", (BEGAN - SILENT_S) * 1000)));
        assert_eq!(line_with(Defect::Silent, BEGAN - SILENT_S + 1), "");
        assert!(line_with(Defect::Drift, BEGAN + 5).contains("level=\""), "{}", line_with(Defect::Drift, BEGAN + 5));
        assert!(!line_with(Defect::Drift, BEGAN + 6).contains("level=\""));
        assert!((-3000..=0).all(|before| !line_with(Defect::Drift, BEGAN + before).contains("level=\"")));
        let kept =
            (-48 * 60..0).filter(|minute| line_with(Defect::Kept, BEGAN + minute * 60).contains("humidity=\"")).count();
        assert_eq!(kept, 60);
        assert_eq!(line_with(Defect::Fast, BEGAN - FAST_S).lines().count(), 1);
        assert_eq!(line_with(Defect::Fast, BEGAN).lines().count(), 10);
        let resets =
            (1..=600).filter(|second| line_with(Defect::Outliers, BEGAN + second).contains("temp=85.0")).count();
        assert!((2..=6).contains(&resets), "{resets}");
        let rms = |time_s: i64| -> f64 {
            let line = line_with(Defect::Wear, time_s);
            line.split("rms=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok()).expect("a number")
        };
        let day = |before: i64| (0..1440).map(|minute| rms(BEGAN - before * 86_400 + minute * 60)).fold(0.0, f64::max);
        assert!(day(1) > 1.8 * day(14), "{} and {}", day(1), day(14));
    }

    #[test]
    fn every_line_is_line_protocol() {
        for time_s in [BEGAN - 30 * 86_400, BEGAN - 86_400 + 13, BEGAN, BEGAN + 86_400] {
            let body = lines(1, time_s).concat();
            let mut parsed = Lines::new(body.as_bytes(), Precision::Milliseconds, Limits::default());
            let mut count = 0;
            while let Some(point) = parsed.next() {
                assert!(point.is_ok(), "{point:?} in {body}");
                count += 1;
            }
            assert_eq!(count, body.lines().count());
        }
    }
}
