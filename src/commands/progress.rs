//! Progress of a command on stderr: a line that is drawn again on a terminal, and a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The least time between two lines on a terminal, and elsewhere.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

pub struct Progress {
    what: &'static str,
    on_terminal: bool,
    told: Instant,
    drawn: bool,
}

impl Progress {
    pub fn new(what: &'static str) -> Self {
        Self { what, on_terminal: std::io::stderr().is_terminal(), told: Instant::now(), drawn: false }
    }

    pub fn tell(&mut self, progress: impl FnOnce() -> String) {
        if self.told.elapsed() < if self.on_terminal { AGAIN.0 } else { AGAIN.1 } {
            return;
        }
        self.told = Instant::now();
        let line = format!("{}: {}", self.what, progress());
        match self.on_terminal {
            // `\x1b[K` clears the rest of a longer line before.
            true => draw(&format!("\r{line}\x1b[K")),
            false => draw(&format!("{line}\n")),
        }
        self.drawn = self.on_terminal;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            draw("\r\x1b[K");
        }
    }
}

fn draw(text: &str) {
    let mut err = std::io::stderr();
    // If stderr is closed, there is nowhere to report it.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
