//! `hourglass seal`: has a running service seal every day that is over.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// Asks the service, and prints what it has sealed, and what it waits for, until it is done.
#[must_use]
pub fn seal(service: &Service) -> ExitCode {
    match Target::of(service).and_then(|target| ask(&target)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// The number of days that have yet to be sealed.
fn ask(target: &Target) -> anyhow::Result<u64> {
    let (mut path, mut said, mut unflushed) = ("/api/v1/seal".to_owned(), String::new(), 0);
    loop {
        let answer = target.post(&path, b"")?;
        let PostAnswer { status: status @ (200 | 202), text } = &answer else { bail!("{answer}") };
        let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        let number = |name: &str| body[name].as_u64().unwrap_or_default();
        if let Some(why) = body["unflushed"].as_str() {
            println!("not all that was acknowledged is stored, and what is not cannot be sealed: {why}");
            unflushed = 1;
        }
        let days = number("days");
        let mut line =
            format!("{days} days with {} readings sealed since the start of the service", number("readings"));
        let [unsettled, large, failed, off] =
            ["unsettled", "large", "failed", "databases_off"].map(|why| body["left"][why].as_u64().unwrap_or_default());
        if *status == 202 && unsettled > 0 {
            line += &format!("; waiting for {unsettled} more, for which a log may still have older values");
        }
        // What is as it was is not said again.
        if line != said {
            println!("{line}");
            said = line;
        }
        if *status == 200 {
            if let Some(error) = body["error"].as_str() {
                bail!("the service could not seal all days: {error}");
            }
            if unsettled > 0 {
                println!("{unsettled} days stay in hour pages for now: a log may still have older values for them");
            }
            if large > 0 {
                println!("{large} days stay in hour pages: they are larger than a sealed day may be");
            }
            if failed > 0 {
                println!(
                    "{failed} days stay in hour pages: they can be neither read nor written; see the log and `hourglass verify`"
                );
            }
            if off > 0 {
                println!("not sealed, as seal_form says: {off} databases");
            }
            return Ok(unsettled + failed + unflushed);
        }
        path = format!("/api/v1/seal?round={}", escaped(body["round"].as_str().context("the answer has no round")?));
    }
}
