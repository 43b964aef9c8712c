//! `hourglass sensors`: sends the metadata of many sensors to a running service, or prints what it has.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::post::{PostAnswer, Service, Target, escaped};
use super::progress::Progress;

/// Lines that are sent together.
const LINES: usize = 2000;

/// What `hourglass sensors` was asked for.
#[derive(Debug)]
pub struct SensorsRequest {
    pub database: String,
    pub service: Service,
    pub what: SensorsTask,
}

#[derive(Debug)]
pub enum SensorsTask {
    /// NDJSON, or CSV where the file's name ends with `.csv`; `None` for NDJSON from the standard input.
    Import { file: Option<PathBuf>, is_dry: bool },
    /// NDJSON to the standard output.
    Export,
}

/// Does what was asked for. Exit status: 0 if nothing was refused.
#[must_use]
pub fn sensors(request: &SensorsRequest) -> ExitCode {
    let done = Target::of(&request.service).and_then(|target| match &request.what {
        SensorsTask::Import { file, is_dry } => import(&target, &request.database, file.as_deref(), *is_dry),
        SensorsTask::Export => export(&target, &request.database).map(|()| 0),
    });
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

/// Sends a file in batches; returns the number of lines that were refused.
fn import(target: &Target, database: &str, file: Option<&Path>, is_dry: bool) -> anyhow::Result<u64> {
    let is_csv = file.is_some_and(|file| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv")));
    let lines: Box<dyn BufRead> = match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            Box::new(BufReader::new(File::open(file).with_context(|| format!("opening {}", file.display()))?))
        }
        None => Box::new(io::stdin().lock()),
    };
    let path = format!("/api/v1/meta?db={}&dry_run={is_dry}", escaped(database));
    let (mut totals, mut progress) = ([0_u64; 4], Progress::new("sensors"));
    let mut send = |before: usize, batch: &str| {
        let kind = if is_csv { "text/csv" } else { "application/x-ndjson" };
        let answer = target.post_as(&path, kind, batch.as_bytes())?;
        let PostAnswer { status: 200 | 400, text } = &answer else { bail!("{answer}") };
        let told: Value = serde_json::from_str(text).with_context(|| format!("the answer {text}"))?;
        let Some(reasons) = told["reasons"].as_array() else { bail!("{answer}") };
        for (total, name) in totals.iter_mut().zip(["changed", "new", "unchanged", "rejected"]) {
            *total += told[name].as_u64().unwrap_or_default();
        }
        for reason in reasons {
            let line = reason["line"].as_u64().unwrap_or_default() + before as u64;
            println!("line {line}: {}", reason["error"].as_str().unwrap_or_default());
        }
        progress.tell(|| format!("{} sensors", totals.iter().sum::<u64>() - totals[1]));
        Ok(())
    };
    // A record of CSV may take several lines: its batches end where all quotes are closed, and begin with the header.
    let (mut header, mut batch, mut count, mut before, mut quotes) = (String::new(), String::new(), 0, 0, 0);
    for (number, line) in lines.lines().enumerate() {
        let line = line.context("reading the lines")?;
        if is_csv && header.is_empty() {
            header = line + "\n";
            before = 0;
            continue;
        }
        quotes += line.matches('"').count();
        batch.push_str(&line);
        batch.push('\n');
        count += 1;
        if count >= LINES && (!is_csv || quotes % 2 == 0) {
            send(before, &format!("{header}{batch}"))?;
            before = if is_csv { number } else { number + 1 };
            (batch, count) = (String::new(), 0);
        }
    }
    if count > 0 {
        send(before, &format!("{header}{batch}"))?;
    }
    let [changed, new, unchanged, rejected] = totals;
    let verb = if is_dry { "would change" } else { "changed" };
    println!("{changed} sensors {verb} ({new} of them new), {unchanged} are as they were, {rejected} lines refused");
    Ok(rejected)
}

fn export(target: &Target, database: &str) -> anyhow::Result<()> {
    let (mut cursor, mut out) = (String::new(), io::stdout().lock());
    loop {
        let answer = target.get(&format!("/api/v1/meta?db={}&cursor={}", escaped(database), escaped(&cursor)))?;
        let status = answer.status;
        if status != 200 {
            bail!("the service answered {status}: {}", answer.text()?.trim());
        }
        let page: Value = serde_json::from_reader(answer.body).context("reading the answer")?;
        for of in page["sensors"].as_array().into_iter().flatten() {
            writeln!(out, "{}", json!({ "sensor": of["sensor"], "meta": of["meta"] }))?;
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Ok(()),
        }
    }
}
