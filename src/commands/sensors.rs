//! `hourglass sensor`: imports the metadata of many sensors into a running service, or exports it.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::open_input;
use super::post::{PostAnswer, ServiceDatabase, Target, url_encode};
use super::progress::Progress;
use crate::http::api::meta::format_cell;

/// Maximum number of lines in a batch.
const BATCH_LINES_MAX: usize = 2000;
/// Size in bytes at which a batch is sent, because the memory of a service bounds the size of a request.
const BATCH_BYTES: usize = 256 * 1024;

#[derive(Debug, Subcommand)]
pub enum SensorCommand {
    /// Send lines such as {"sensor":"climate,sensor=s1","meta":{"site":"lab"}}, or CSV with a column `sensor`. A line
    /// changes only the keys that it names. Exit status: 0 if no line was rejected, else 1.
    Import {
        /// The file; `-` or nothing for the standard input.
        file: Option<PathBuf>,
        /// The format of the file [default: CSV if its name ends with .csv, else lines of JSON].
        #[arg(long, value_enum, value_name = "FORMAT")]
        format: Option<SensorsFormat>,
        /// Only count the changes.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// Print the metadata of all sensors that have some, in a format that `import` accepts.
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
    /// A row per sensor, and a column per metadata key.
    Csv,
}

/// Runs a `sensor` command. Returns true if no line was rejected.
pub fn sensors(command: &SensorCommand) -> anyhow::Result<bool> {
    let (SensorCommand::Import { database, .. } | SensorCommand::Export { database, .. }) = command;
    let target = Target::from_flags(&database.service)?;
    match command {
        SensorCommand::Import { file, format, dry_run, .. } => {
            let is_csv_file = |file: &PathBuf| file.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
            let is_csv = match format {
                Some(format) => *format == SensorsFormat::Csv,
                None => file.as_ref().is_some_and(is_csv_file),
            };
            Ok(import(&target, &database.db, file.as_deref(), is_csv, *dry_run)? == 0)
        }
        SensorCommand::Export { format, .. } => {
            export(&target, &database.db, *format == SensorsFormat::Csv).map(|()| true)
        }
    }
}

/// Sends a file in batches. Returns the number of rejected lines.
fn import(target: &Target, database: &str, file: Option<&Path>, is_csv: bool, is_dry: bool) -> anyhow::Result<u64> {
    let lines = open_input(file)?;
    let path = format!("/api/v1/meta?db={}&dry_run={is_dry}", url_encode(database));
    let mut totals = [0_u64; 4];
    let mut progress = Progress::new("sensors");
    let mut send = |first_line: usize, batch: &str| {
        let kind = if is_csv { "text/csv" } else { "application/x-ndjson" };
        let answer = target.send("POST", &path, Some((kind, batch.as_bytes())))?;
        let PostAnswer { status: 200 | 400, .. } = &answer else { bail!("{answer}") };
        let body = answer.json()?;
        let Some(reasons) = body["reasons"].as_array() else { bail!("{answer}") };
        for (total, name) in totals.iter_mut().zip(["changed", "new", "unchanged", "rejected"]) {
            *total += body[name].as_u64().unwrap_or_default();
        }
        for reason in reasons {
            let line = reason["line"].as_u64().unwrap_or_default() + first_line as u64;
            println!("line {line}: {}", reason["error"].as_str().unwrap_or_default());
        }
        progress.show(|| format!("{} sensors", totals.iter().sum::<u64>() - totals[1]));
        Ok(())
    };
    // A CSV record can have several lines. So a batch of CSV ends where all quotes are closed, and begins with the
    // header.
    let mut header = String::new();
    let mut has_header = !is_csv;
    let mut header_lines = 0;
    let mut batch = String::new();
    let mut count = 0;
    let mut first_line = 0;
    let mut quotes = 0;
    // Split at line feeds only, because a CSV cell can contain a carriage return at the end of a line.
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
        if (count >= BATCH_LINES_MAX || batch.len() >= BATCH_BYTES) && is_whole {
            send(first_line, &format!("{header}{batch}"))?;
            first_line = number + 1 - header_lines;
            batch.clear();
            count = 0;
        }
    }
    if count > 0 {
        send(first_line, &format!("{header}{batch}"))?;
    }
    let [changed, new, unchanged, rejected] = totals;
    let verb = if is_dry { "would change" } else { "changed" };
    println!("{changed} sensors {verb} ({new} of them new), {unchanged} unchanged, {rejected} lines rejected");
    Ok(rejected)
}

/// Prints all metadata.
fn export(target: &Target, database: &str, is_csv: bool) -> anyhow::Result<()> {
    let mut progress = (!io::stdout().is_terminal()).then(|| Progress::new("sensors"));
    let mut count = 0_u64;
    let mut on_sensor = || {
        count += 1;
        if let Some(progress) = &mut progress {
            progress.show(|| format!("{count} sensors"));
        }
    };
    if is_csv {
        return export_csv(target, database, &mut on_sensor);
    }
    let mut out = io::stdout().lock();
    each_sensor(target, database, |sensor, meta| {
        on_sensor();
        Ok(writeln!(out, "{}", json!({ "sensor": sensor, "meta": meta }))?)
    })
}

/// Prints a row per sensor. Reads everything twice, first to collect the metadata keys, so that the memory does not
/// grow with the number of sensors.
fn export_csv(target: &Target, database: &str, on_sensor: &mut impl FnMut()) -> anyhow::Result<()> {
    let mut names = BTreeSet::new();
    each_sensor(target, database, |_, meta| {
        names.extend(meta.keys().filter(|name| !names.contains(*name)).cloned().collect::<Vec<_>>());
        Ok(())
    })?;
    let mut out = csv::Writer::from_writer(io::stdout().lock());
    out.write_record(std::iter::once("sensor").chain(names.iter().map(String::as_str)))?;
    each_sensor(target, database, |sensor, meta| {
        on_sensor();
        if let Some(new) = meta.keys().find(|name| !names.contains(*name)) {
            bail!("the metadata key {new:?} was added to {sensor} during the export, and has no column: export again");
        }
        let cells = names.iter().map(|name| meta.get(name).map(format_cell).unwrap_or_default());
        Ok(out.write_record(std::iter::once(sensor.to_owned()).chain(cells))?)
    })?;
    Ok(out.flush()?)
}

/// Calls `on_sensor` with each sensor that has metadata, in key order.
fn each_sensor(
    target: &Target,
    database: &str,
    mut on_sensor: impl FnMut(&str, &Map<String, Value>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/meta?db={}&cursor={}", url_encode(database), url_encode(&cursor));
        let page = target.json("GET", &path, None)?;
        for entry in page["sensors"].as_array().into_iter().flatten() {
            let (Some(sensor), Some(meta)) = (entry["sensor"].as_str(), entry["meta"].as_object()) else {
                bail!("the service answered with an invalid sensor: {entry}");
            };
            on_sensor(sensor, meta)?;
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Ok(()),
        }
    }
}
