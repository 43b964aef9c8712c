//! `hourglass migrate`: has a running service rewrite documents of older forms.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::post::{PostAnswer, Service, Target, escaped};

/// Asks the service, and prints what it has looked at and rewritten until it is done.
#[must_use]
pub fn migrate(service: &Service) -> ExitCode {
    match Target::of(service).and_then(|target| ask(&target)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// The number of documents of older forms that are left.
fn ask(target: &Target) -> anyhow::Result<u64> {
    let mut path = "/api/v1/migrate".to_owned();
    loop {
        let answer = target.post(&path, b"")?;
        let PostAnswer { status: status @ (200 | 202), text } = &answer else { bail!("{answer}") };
        let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        let number = |name: &str| body[name].as_u64().unwrap_or_default();
        let [examined, rewritten, left] = ["examined", "rewritten", "left"].map(number);
        println!("{examined} documents looked at, {rewritten} rewritten, {left} of older forms left");
        if *status == 200 {
            if let Some(error) = body["error"].as_str() {
                bail!("the service could not rewrite all documents: {error}");
            }
            if number("newer") > 0 {
                println!(
                    "{} documents were written by a newer version of hourglass, and stay as they are",
                    number("newer")
                );
            }
            return Ok(left);
        }
        let round = body["round"].as_str().context("the answer has no round")?;
        path = format!("/api/v1/migrate?round={}", escaped(round));
    }
}
