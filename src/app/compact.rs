//! `hourglass compact`: gives space that the store does not need any more back to the disk.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::Value;

use super::data_folder;
use super::post::{PostAnswer, Service, Target, escaped};
use super::progress::Progress;
use crate::config::Settings;
use crate::store::EmbeddedStore;
use crate::telemetry::logs;

/// What `hourglass compact` is asked for.
#[derive(Debug)]
pub struct CompactRequest {
    /// A running service; `None` for a stopped one.
    pub service: Option<Service>,
    /// Whether MongoDB's `compact` runs.
    pub runs: bool,
}

/// Compacts the store of a running service, or the file of one that is stopped.
#[must_use]
pub fn compact(settings: &Settings, request: CompactRequest) -> ExitCode {
    logs::start("warn", &settings.telemetry);
    let done = match &request.service {
        Some(service) => Target::of(service).and_then(|target| ask(&target, request.runs)),
        None => stopped(settings, request.runs),
    };
    super::ended(done)
}

fn ask(target: &Target, runs: bool) -> anyhow::Result<()> {
    let mut path = format!("/api/v1/compact?run={runs}");
    let mut progress = Progress::new("compact");
    loop {
        let answer = target.post(&path, b"")?;
        let PostAnswer { status: status @ (200 | 202), text } = &answer else { bail!("{answer}") };
        let body: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        if *status == 202 {
            progress.tell(|| format!("{} rows copied", body["rows"]));
            let round = body["round"].as_str().context("the answer has no round")?;
            path = format!("/api/v1/compact?round={}", escaped(round));
            continue;
        }
        print(body["spaces"].as_array().map_or(&[][..], Vec::as_slice).iter().map(|space| {
            let number = |name: &str| space[name].as_u64().unwrap_or_default();
            (space["name"].as_str().unwrap_or_default(), number("bytes"), number("free_bytes"))
        }));
        println!("{} bytes given back since the start of the service", body["given_back_bytes"]);
        return match body["error"].as_str() {
            Some(error) => bail!("no space came back: {error}"),
            None => Ok(()),
        };
    }
}

fn print<'a>(spaces: impl Iterator<Item = (&'a str, u64, u64)>) {
    for (name, bytes, free) in spaces {
        println!("{name}: {bytes} bytes, of which {free} hold nothing");
    }
}

fn stopped(settings: &Settings, runs: bool) -> anyhow::Result<()> {
    if !settings.store.uri.is_embedded() {
        return super::run_to_end(of_mongo(settings, runs));
    }
    data_folder::must_exist(settings)?;
    let folder = &settings.server.data_dir;
    let (before, after) = EmbeddedStore::compact(folder, settings.embedded.cache_bytes)?;
    println!("{after} bytes, {before} before: {}", data_folder::absolute(folder).display());
    Ok(())
}

/// MongoDB needs no service for it.
async fn of_mongo(settings: &Settings, runs: bool) -> anyhow::Result<()> {
    let store = super::open_mongo(settings).await?;
    let spaces = store.reusable().await?;
    print(spaces.iter().map(|(name, bytes, free)| (&**name, *bytes, *free)));
    if !runs {
        println!("MongoDB gives it back with --run: see docs/sealed-days.md#space");
        return Ok(());
    }
    for (name, ..) in spaces.iter().filter(|(_, _, free)| *free > 0) {
        let freed = store.compact(name).await.with_context(|| format!("compacting {name}"))?;
        println!("{name}: {freed} bytes given back");
    }
    Ok(())
}
