//! Tells each fault of the factory once, when it first shows, with the view of the page that shows it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::factory::Defect;
use crate::escaped;

/// A fault that goes on, or comes again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Of a sensor.
    Of(Defect),
    /// A gateway garbles a line.
    Garbled,
}

/// What has shown until now.
#[derive(Debug)]
pub struct Faults<'a> {
    /// The URL of the service, without a slash at its end.
    base: &'a str,
    /// Whether people know by now what is told here: nothing is told before.
    is_introduced: &'a AtomicBool,
    /// Each once, with the place where it shows.
    shown: Vec<(Fault, String)>,
    /// How many of them were told.
    told: usize,
}

impl<'a> Faults<'a> {
    pub fn new(base: &'a str, is_introduced: &'a AtomicBool) -> Self {
        Self { base, is_introduced, shown: Vec::new(), told: 0 }
    }

    /// Takes note of a fault that shows now: at a sensor, by its key, or at a gateway.
    pub fn note(&mut self, fault: Fault, place: &str) {
        if self.shown.iter().all(|(shown, _)| *shown != fault) {
            self.shown.push((fault, place.to_owned()));
        }
    }

    /// Tells what was noted since the last time.
    pub fn tell(&mut self) {
        if !self.is_introduced.load(Ordering::Relaxed) {
            return;
        }
        for (fault, place) in &self.shown[self.told..] {
            let (what, see) = (what(*fault), format!("{}/#{}", self.base, view(*fault, place)));
            tracing::info!(at = %place, %see, "{what}");
        }
        self.told = self.shown.len();
    }
}

fn what(fault: Fault) -> &'static str {
    match fault {
        Fault::Of(Defect::Silent) => "a sensor has been silent for two hours",
        Fault::Of(Defect::Outliers) => "a chip was reset, and shows 85 °C",
        Fault::Of(Defect::Wear) => "a bearing has been wearing out for ten days",
        Fault::Of(Defect::Drift) => "a firmware sent its level as text, which is rejected",
        Fault::Of(Defect::Kept) => "humidity was text for an hour of the last day, and is kept beside the field",
        Fault::Of(Defect::Fast) => "a sensor sends more in an hour than fits on a page",
        Fault::Garbled => "a gateway garbled a line, which is rejected",
    }
}

/// The part of the page's address behind `#`.
fn view(fault: Fault, sensor: &str) -> String {
    let chart = |of: &str| format!("explore?{of}&sensor={}", escaped(sensor));
    match fault {
        Fault::Of(Defect::Silent) => "sensors?kind=silent".to_owned(),
        Fault::Of(Defect::Fast) => "sensors?kind=outlier".to_owned(),
        Fault::Of(Defect::Outliers) => chart("m=climate&f=temp&range=1h&fn=max"),
        Fault::Of(Defect::Wear) => chart("m=vibration&f=rms&range=30d&fn=max"),
        Fault::Of(Defect::Drift) => "rejections?code=family".to_owned(),
        Fault::Of(Defect::Kept) => chart("m=climate&f=humidity%40string&range=2d"),
        Fault::Garbled => "rejections?code=syntax".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The banner promised a line for each thing that goes wrong, and most were never told.
    #[test]
    fn each_fault_is_told_once_and_only_after_the_introduction() {
        let is_introduced = AtomicBool::new(false);
        let mut faults = Faults::new("http://127.0.0.1:1", &is_introduced);
        faults.note(Fault::Of(Defect::Silent), "m,s=1");
        faults.note(Fault::Of(Defect::Silent), "m,s=1");
        faults.tell();
        assert_eq!((faults.shown.len(), faults.told), (1, 0));
        is_introduced.store(true, Ordering::Relaxed);
        faults.tell();
        faults.note(Fault::Garbled, "porto b");
        faults.note(Fault::Of(Defect::Silent), "m,s=1");
        assert_eq!((faults.shown.len(), faults.told), (2, 1));
        faults.tell();
        assert_eq!(faults.told, 2);
    }
}
