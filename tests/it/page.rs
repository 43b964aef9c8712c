//! The page in a real Chromium: assets, policy, views, hostile names, snippets and streams.

use crate::support::prelude::*;

mod assets;
mod away;
mod charts;
mod copies;
mod exact;
mod figures;
mod filters;
mod first_hour;
mod hostile;
mod keys;
mod listening;
mod readers;
mod rejections;
mod rights;
mod scrolled;
mod sensors;
mod snippets;
mod states;
mod tail;
mod units;
mod views;

/// Starts a server and a browser with its page; `None` without a browser.
fn page() -> Option<(Server, Browser)> {
    let browser = Browser::start()?;
    Some((Launch::embedded().start(), browser))
}

/// Writes lines with times in seconds.
#[track_caller]
fn write(server: &Server, lines: &str) {
    write_to(server, "precision=s", lines);
}

/// Returns the wall clock in seconds.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Writes two sensors of `climate` with a reading a minute for the last three hours.
fn climate(server: &Server) {
    let now = now();
    let line = |at: u64| {
        let [sensor, temp, humidity] = [at % 2, 20 + at % 7, 40 + at % 5];
        format!("climate,sensor=temp-{sensor},site=lab temp={temp}.5,humidity={humidity} {}", now - at * 60)
    };
    write(server, &(0..180).map(line).collect::<Vec<_>>().join("\n"));
}
