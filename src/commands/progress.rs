//! Progress of a command on stderr: one line that is redrawn on a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    pub fn new(what: &'static str) -> Self {
        let style = ProgressStyle::with_template("{prefix}: {msg}");
        let bar = ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar.with_prefix(what))
    }

    pub fn show(&mut self, progress: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(progress());
        }
    }
}
