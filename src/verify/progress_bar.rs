//! A progress bar on stderr.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const BAR: usize = 30;
/// Minimum time between two redraws of the progress bar.
const REDRAWN_AFTER: Duration = Duration::from_millis(100);

/// A progress bar on stderr, if that is a terminal.
#[derive(Debug)]
pub struct ProgressBar {
    is_shown: bool,
    all: u64,
    /// Pages of the databases that are completely checked.
    done: u64,
    drawn: Option<Instant>,
}

impl Default for ProgressBar {
    fn default() -> Self {
        Self { is_shown: std::io::stderr().is_terminal(), all: 0, done: 0, drawn: None }
    }
}

impl ProgressBar {
    pub(super) fn begin(&mut self, all: u64) {
        self.all = all;
    }

    pub(super) fn pages(&mut self, database: &str, pages: u64) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < REDRAWN_AFTER) {
            return;
        }
        self.drawn = Some(Instant::now());
        let (read, all) = (self.done + pages, self.all.max(self.done + pages).max(1));
        let full = usize::try_from(read * BAR as u64 / all).unwrap_or(BAR);
        let percent = read * 100 / all;
        // `\x1b[K` clears the rest of a longer line before.
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        draw(&format!("\r[{bar}] {percent:3} %  {read} of {all} pages  {database}\x1b[K"));
    }

    pub(super) fn database_done(&mut self, pages: u64) {
        self.done += pages;
    }

    pub(super) fn end(&mut self) {
        if self.drawn.take().is_some() {
            draw("\r\x1b[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr();
    // If stderr is closed, there is nowhere to report it.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
