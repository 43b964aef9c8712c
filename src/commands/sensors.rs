//! `hourglass sensor`: sends the metadata of many sensors to a running service, or prints what it has.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::open_input;
use super::post::{PostAnswer, ServiceDatabase, Target, escaped};
use super::progress::Progress;
use crate::http::api::meta::cell_of;

/// Lines that are sent together.
const LINES: usize = 2000;
/// Bytes of them from which on no line is added: what a service takes at a time is bounded by its memory, whatever the lines' length.
const BYTES: usize = 256 * 1024;

#[derive(Debug, Subcommand)]
pub enum SensorCommand {
    /// Send lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}, or CSV with a column `sensor`. Each changes what it
    /// names and leaves the rest. Exit status: 0 if no line was refused, else 1.
    Import {
        /// The file; `-` or nothing for the standard input.
        file: Option<PathBuf>,
        /// What it holds; without it, CSV if its name ends with .csv, else lines of JSON.
        #[arg(long, value_enum, value_name = "FORMAT")]
        format: Option<SensorsFormat>,
        /// Only count what would change.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// Print the metadata of all sensors that have some, as `import` takes it.
    Export {
        #[arg(long, value_enum, value_name = "FORMAT", default_value = "ndjson")]
        format: SensorsFormat,
        #[command(flatten)]
        database: ServiceDatabase,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SensorsFormat {
    /// Lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}.
    Ndjson,
    /// A row per sensor, and a column per name.
    Csv,
}

/// Runs the command. Returns whether nothing was refused.
pub fn sensors(command: &SensorCommand) -> anyhow::Result<bool> {
    let (SensorCommand::Import { database, .. } | SensorCommand::Export { database, .. }) = command;
    let target = Target::of(&database.service)?;
    match command {
        SensorCommand::Import { file, format, dry_run, .. } => {
            let is_csv_file = |file: &PathBuf| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            let is_csv = match format {
                Some(format) => *format == SensorsFormat::Csv,
                None => file.as_ref().is_some_and(is_csv_file),
            };
            Ok(import(&target, &database.db, (file.as_deref(), is_csv), *dry_run)? == 0)
        }
        SensorCommand::Export { format, .. } => {
            export(&target, &database.db, *format == SensorsFormat::Csv).map(|()| true)
        }
    }
}

/// Sends a file in batches; returns the number of lines that were refused.
fn import(target: &Target, database: &str, (file, is_csv): (Option<&Path>, bool), is_dry: bool) -> anyhow::Result<u64> {
    let lines = open_input(file)?;
    let path = format!("/api/v1/meta?db={}&dry_run={is_dry}", escaped(database));
    let (mut totals, mut progress) = ([0_u64; 4], Progress::new("sensors"));
    let mut send = |before: usize, batch: &str| {
        let kind = if is_csv { "text/csv" } else { "application/x-ndjson" };
        let answer = target.send("POST", &path, Some((kind, batch.as_bytes())))?;
        let PostAnswer { status: 200 | 400, .. } = &answer else { bail!("{answer}") };
        let told = answer.json()?;
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
    let (mut has_header, mut header_lines) = (!is_csv, 0);
    // A cell may hold a carriage return before a line's end.
    for (number, line) in lines.split(b'\n').enumerate() {
        let line = String::from_utf8(line.context("reading the lines")?);
        let line = line.with_context(|| format!("line {}", number + 1))? + "\n";
        quotes += line.matches('"').count();
        let is_whole = !is_csv || quotes % 2 == 0;
        if !has_header {
            header += &line;
            header_lines += 1;
            has_header = is_whole;
            continue;
        }
        batch += &line;
        count += 1;
        if (count >= LINES || batch.len() >= BYTES) && is_whole {
            send(before, &format!("{header}{batch}"))?;
            before = number + 1 - header_lines;
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

/// Prints all metadata.
fn export(target: &Target, database: &str, is_csv: bool) -> anyhow::Result<()> {
    let mut progress = (!io::stdout().is_terminal()).then(|| Progress::new("sensors"));
    let mut count = 0_u64;
    let mut tell = || {
        count += 1;
        progress.iter_mut().for_each(|progress| progress.tell(|| format!("{count} sensors")));
    };
    if is_csv {
        return export_csv(target, database, &mut tell);
    }
    let mut out = io::stdout().lock();
    each_sensor(target, database, |sensor, meta| {
        tell();
        Ok(writeln!(out, "{}", json!({ "sensor": sensor, "meta": meta }))?)
    })
}

/// Prints a row per sensor. All is asked for twice, first to know the names, so that the memory does not grow with the number of sensors.
fn export_csv(target: &Target, database: &str, tell: &mut impl FnMut()) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    each_sensor(target, database, |_, meta| {
        names.extend(meta.keys().filter(|name| !names.contains(*name)).cloned().collect::<Vec<_>>());
        Ok(())
    })?;
    let mut out = csv::Writer::from_writer(io::stdout().lock());
    out.write_record(std::iter::once("sensor").chain(names.iter().map(String::as_str)))?;
    each_sensor(target, database, |sensor, meta| {
        tell();
        if let Some(new) = meta.keys().find(|name| !names.contains(*name)) {
            bail!("the name {new:?} was given to {sensor} meanwhile, and has no column: export again");
        }
        let cells = names.iter().map(|name| meta.get(name).map(cell_of).unwrap_or_default());
        Ok(out.write_record(std::iter::once(sensor.to_owned()).chain(cells))?)
    })?;
    Ok(out.flush()?)
}

/// Passes every sensor that has metadata, in key order.
fn each_sensor(
    target: &Target,
    database: &str,
    mut take: impl FnMut(&str, &Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/meta?db={}&cursor={}", escaped(database), escaped(&cursor));
        let page = target.json("GET", &path, None)?;
        for of in page["sensors"].as_array().into_iter().flatten() {
            let (Some(sensor), Some(meta)) = (of["sensor"].as_str(), of["meta"].as_object()) else {
                bail!("the service answered with no sensor: {of}");
            };
            take(sensor, meta)?;
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Ok(()),
        }
    }
}
