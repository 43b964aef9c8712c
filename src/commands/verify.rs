//! `hourglass verify`: opens the store, checks it, and closes it.

use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::Settings;
use crate::telemetry::logs;
use crate::verify::{self, VerifyOptions, unflushed_records};

/// Exit status if the check was completed and found differences.
const EXIT_DIFFERENT: u8 = 1;
/// Exit status if the check was not completed.
const EXIT_INCOMPLETE: u8 = 2;

/// Checks everything in the store. With `repair`, repairs what it can.
#[must_use]
pub fn verify(settings: &Settings, repair: bool) -> ExitCode {
    logs::start(&settings.telemetry.log_level, &settings.telemetry);
    match crate::app::run_to_end(check(settings, repair)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DIFFERENT),
        Err(error) => {
            eprintln!("hourglass: {error:#}; the check was not completed");
            ExitCode::from(EXIT_INCOMPLETE)
        }
    }
}

async fn check(settings: &Settings, repair: bool) -> anyhow::Result<bool> {
    crate::app::data_folder::must_have_store(settings)?;
    let log = unflushed_records(&settings.wal_dir()).context("reading the WAL")?;
    let (store, _, _) = crate::app::open::open_store(settings).await?;
    store.check().await?;
    let options = VerifyOptions { bounds: settings.caps(), recent: settings.sensors.recent, repair };
    let mut out = std::io::stdout();
    let progress = ProgressBar::no_length();
    let style = ProgressStyle::with_template("[{bar:30}] {percent:>3} %  {pos} of {len} pages  {msg}");
    progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("##."));
    let checked = verify::run(&*store, &options, log.as_ref(), &progress, &mut out).await;
    store.close().await;
    Ok(checked?)
}
