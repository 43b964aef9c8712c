//! Logs each fault of the factory once, when it first occurs, with the view of the page that shows it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::factory::Defect;
use crate::escape_parameter;

/// A permanent or recurring fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A defect of a sensor.
    Sensor(Defect),
    /// A gateway garbles a line.
    Garbled,
}

/// The faults so far.
#[derive(Debug)]
pub struct Faults<'a> {
    /// The URL of the service, without a trailing slash.
    base: &'a str,
    /// True once the banner has announced the faults. Nothing is logged before.
    is_introduced: &'a AtomicBool,
    /// Each fault once, with the sensor or gateway that has it.
    found: Vec<(Fault, String)>,
    /// Number of logged faults.
    logged: usize,
}

impl<'a> Faults<'a> {
    pub fn new(base: &'a str, is_introduced: &'a AtomicBool) -> Self {
        Self { base, is_introduced, found: Vec::new(), logged: 0 }
    }

    /// Records a fault of a sensor, given by its key, or of a gateway.
    pub fn record(&mut self, fault: Fault, place: &str) {
        if self.found.iter().all(|(found, _)| *found != fault) {
            self.found.push((fault, place.to_owned()));
        }
    }

    /// Logs the faults recorded since the last call.
    pub fn log(&mut self) {
        if !self.is_introduced.load(Ordering::Relaxed) {
            return;
        }
        for (fault, place) in &self.found[self.logged..] {
            let message = message(*fault);
            let see = format!("{}/#{}", self.base, view(*fault, place));
            tracing::info!(at = %place, %see, "{message}");
        }
        self.logged = self.found.len();
    }
}

fn message(fault: Fault) -> &'static str {
    match fault {
        Fault::Sensor(Defect::Silent) => "a sensor has been silent for two hours",
        Fault::Sensor(Defect::Outliers) => "a chip was reset, and shows 85 °C",
        Fault::Sensor(Defect::Wear) => "a bearing has been wearing out for ten days",
        Fault::Sensor(Defect::Drift) => "a firmware sent its level as text, which is rejected",
        Fault::Sensor(Defect::Kept) => "humidity was text for an hour of the last day, and is kept beside the field",
        Fault::Sensor(Defect::Fast) => "a sensor sends more in an hour than fits on a page",
        Fault::Garbled => "a gateway garbled a line, which is rejected",
    }
}

/// Returns the fragment of the page's URL that shows a fault.
fn view(fault: Fault, sensor: &str) -> String {
    let chart = |query: &str| format!("explore?{query}&sensor={}", escape_parameter(sensor));
    match fault {
        Fault::Sensor(Defect::Silent) => "sensors?kind=silent".to_owned(),
        Fault::Sensor(Defect::Fast) => "sensors?kind=outlier".to_owned(),
        Fault::Sensor(Defect::Outliers) => chart("m=climate&f=temp&range=1h&fn=max"),
        Fault::Sensor(Defect::Wear) => chart("m=vibration&f=rms&range=30d&fn=max"),
        Fault::Sensor(Defect::Drift) => "rejections?code=family".to_owned(),
        Fault::Sensor(Defect::Kept) => chart("m=climate&f=humidity%40string&range=2d"),
        Fault::Garbled => "rejections?code=syntax".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the banner announced a line for each fault, and most were never logged.
    #[test]
    fn each_fault_is_logged_once_and_only_after_the_introduction() {
        let is_introduced = AtomicBool::new(false);
        let mut faults = Faults::new("http://127.0.0.1:1", &is_introduced);
        faults.record(Fault::Sensor(Defect::Silent), "m,s=1");
        faults.record(Fault::Sensor(Defect::Silent), "m,s=1");
        faults.log();
        assert_eq!((faults.found.len(), faults.logged), (1, 0));
        is_introduced.store(true, Ordering::Relaxed);
        faults.log();
        faults.record(Fault::Garbled, "porto b");
        faults.record(Fault::Sensor(Defect::Silent), "m,s=1");
        assert_eq!((faults.found.len(), faults.logged), (2, 1));
        faults.log();
        assert_eq!(faults.logged, 2);
    }
}
