//! Shows the progress of a run: a bar on a terminal, else a line every few seconds.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::recorder::{Recorder, percentile_of_classes};
use super::schedule::count;

/// Seconds between two lines, without a bar.
const EVERY_S: usize = 5;

pub struct Progress {
    bar: Option<ProgressBar>,
    duration_s: u64,
}

impl Progress {
    pub fn new(duration: Duration) -> Self {
        let duration_s = duration.as_secs().max(1);
        let bar = std::io::stdout().is_terminal().then(|| {
            let bar = ProgressBar::new(duration_s);
            let style = ProgressStyle::with_template("{bar:30.cyan/dim} {pos:>3}/{len} s  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Self { bar, duration_s }
    }

    /// Shows the figures of the second that just ended, counted from 0.
    pub fn second(&self, at: usize, recorder: &Recorder) {
        let Some(second) = recorder.seconds.get(at) else { return };
        let p99 = percentile_of_classes(second.classes.iter(), 0.99);
        let p99 = p99.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        let errors = recorder.error_count();
        let message = format!("{:.0} readings/s acked, p99 {p99}, {errors} tries failed", count(second.readings));
        match &self.bar {
            Some(bar) => {
                bar.set_position(u64::try_from(at + 1).unwrap_or(0).min(self.duration_s));
                bar.set_message(message);
            }
            None if (at + 1).is_multiple_of(EVERY_S) => println!("{:>4} s  {message}", at + 1),
            None => {}
        }
    }

    /// Shows what the program is doing.
    pub fn says(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => println!("{what}"),
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}
