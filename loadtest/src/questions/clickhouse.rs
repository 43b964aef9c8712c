//! ClickHouse as a library in a Python process, by PyPI's `chdb`. Its times include no network.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::fleet::{DAY_S, Fleet};

const DRIVER: &str = include_str!("clickhouse.py");

/// A running process. Dropping it kills it.
pub struct ClickHouse {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The version that it reports.
    pub version: String,
}

impl ClickHouse {
    /// Starts a Python that has `chdb`, with the folder `data` inside `folder`.
    pub fn start(python: &Path, folder: &Path) -> Result<Self> {
        let log = File::options().create(true).append(true).open(folder.join("output.log"))?;
        let mut command = Command::new(python);
        command.args(["-c", DRIVER]).arg(folder.join("data")).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().with_context(|| format!("starting {}", python.display()))?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("no pipe")?;
        let mut started = Self { child, input, output: BufReader::new(output), version: String::new() };
        let version = started.answer().with_context(|| format!("does {} have chdb? (--python)", python.display()))?;
        version["text"].as_str().unwrap_or_default().clone_into(&mut started.version);
        Ok(started)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a statement. Returns its duration, without the pipe, and its rows, tab-separated.
    pub fn run(&mut self, statement: &str) -> Result<(Duration, String)> {
        writeln!(self.input.as_mut().context("stopped")?, "{}", json!(statement))?;
        let answer = self.answer()?;
        if let Some(error) = answer["error"].as_str() {
            bail!("{statement}: {error}");
        }
        let seconds = answer["seconds"].as_f64().context("no seconds")?;
        Ok((Duration::from_secs_f64(seconds), answer["text"].as_str().context("no text")?.to_owned()))
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("the process that runs ClickHouse ended");
        }
        Ok(serde_json::from_str(&line)?)
    }

    /// Creates the table and loads all readings, day by day.
    pub async fn load(&mut self, fleet: &Fleet, has_codecs: bool, folder: &Path) -> Result<()> {
        self.run(&format!(
            "CREATE TABLE climate (sensor LowCardinality(String), site LowCardinality(String), time DateTime{}, \
             temp Float64{}, humidity Int32{}) ENGINE = MergeTree ORDER BY (sensor, time)",
            if has_codecs { " CODEC(DoubleDelta, ZSTD(1))" } else { "" },
            if has_codecs { " CODEC(Gorilla, ZSTD(1))" } else { "" },
            if has_codecs { " CODEC(Delta, ZSTD(1))" } else { "" },
        ))?;
        let file = folder.join("day.tsv");
        for day in 0..fleet.ticks / fleet.ticks_in(DAY_S) {
            std::fs::write(&file, fleet.day_table(day)).context("writing a day for ClickHouse")?;
            self.run(&format!(
                "INSERT INTO climate SELECT * FROM file('{}', 'TSV', 'sensor String, site String, time DateTime, \
                 temp Float64, humidity Int32')",
                file.display()
            ))?;
            // Yield, so that a signal is noticed.
            tokio::task::yield_now().await;
        }
        Ok(std::fs::remove_file(&file)?)
    }

    /// Returns the bytes of the columns, and those of everything else in the parts.
    pub fn disk_bytes(&mut self) -> Result<(f64, f64)> {
        let (_, sizes) = self.run(
            "SELECT sum(data_compressed_bytes), sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'climate'",
        )?;
        let mut sizes = sizes.split_whitespace().map(str::parse::<f64>);
        let data = sizes.next().context("no size")??;
        let all = sizes.next().context("no size")??;
        Ok((data, all - data))
    }

    /// Closes its input, and waits until it ends.
    pub fn stop(mut self) -> Result<()> {
        drop(self.input.take());
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for ClickHouse {
    fn drop(&mut self) {
        // Ignore errors, because it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
