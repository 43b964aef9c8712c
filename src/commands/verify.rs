//! `hourglass verify`: opens the store, checks it, and closes it.

use std::process::ExitCode;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use crate::config::Settings;
use crate::store::embedded::FILE_NAME;
use crate::telemetry::logs;
use crate::verify::{self, VerifyOptions, unflushed_records};

/// The check was completed and found differences.
const EXIT_DIFFERENT: u8 = 1;
/// The check was not completed.
const EXIT_INCOMPLETE: u8 = 2;

/// Checks everything in the store. With `repair`, repairs what it can.
#[must_use]
pub fn verify(settings: &Settings, repair: bool) -> ExitCode {
    logs::start(&settings.telemetry.log_level, &settings.telemetry);
    let checked = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let checked = checked.context("starting threads").and_then(|runtime| runtime.block_on(check(settings, repair)));
    match checked {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_DIFFERENT),
        Err(error) => {
            eprintln!("hourglass: {error:#}; the check was not completed");
            ExitCode::from(EXIT_INCOMPLETE)
        }
    }
}

async fn check(settings: &Settings, repair: bool) -> anyhow::Result<bool> {
    let directory = &settings.server.data_dir;
    crate::app::data_folder::must_exist(settings)?;
    if settings.store.uri.is_embedded() {
        // Checked first, because opening the store would create one.
        let file = directory.join(FILE_NAME);
        std::fs::metadata(&file).with_context(|| format!("there is no store: {}", file.display()))?;
    }
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
