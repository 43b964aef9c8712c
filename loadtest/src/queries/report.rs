//! Times gathered, and shown as a table and as JSON.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Times of one question, by server.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    question: String,
    server: &'static str,
    times: Vec<Duration>,
}

impl Report {
    /// Adds a time.
    pub fn add(&mut self, question: &str, server: &'static str, took: Duration) {
        match self.rows.iter_mut().find(|row| row.question == question && row.server == server) {
            Some(row) => row.times.push(took),
            None => self.rows.push(Row { question: question.to_owned(), server, times: vec![took] }),
        }
    }

    /// A row per question and server, milliseconds.
    pub fn table(&self) -> String {
        let mut table = "| question | server | runs | p50 ms | p99 ms |\n|---|---|---|---|---|\n".to_owned();
        for row in self.sorted() {
            let (p50, p99) = (row.percentile(50), row.percentile(99));
            table += &format!("| {} | {} | {} | {p50:.2} | {p99:.2} |\n", row.question, row.server, row.times.len());
        }
        table
    }

    /// The same with what it was measured on.
    pub fn json(&self, machine: &Value, data: &Value) -> Value {
        let rounded = |ms: f64| (ms * 1000.0).round() / 1000.0;
        let row = |row: &Row| {
            let (p50, p99) = (rounded(row.percentile(50)), rounded(row.percentile(99)));
            json!({"question": row.question, "server": row.server, "runs": row.times.len(), "p50_ms": p50, "p99_ms": p99})
        };
        json!({"machine": machine, "data": data, "results": self.sorted().into_iter().map(row).collect::<Vec<_>>()})
    }

    /// Question by question, in the order in which they came first.
    fn sorted(&self) -> Vec<&Row> {
        let place = |question: &str| self.rows.iter().position(|row| row.question == question);
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| place(&row.question));
        rows
    }
}

impl Row {
    /// The least time in milliseconds that so many of a hundred runs do not exceed.
    fn percentile(&self, percent: usize) -> f64 {
        let mut times = self.times.clone();
        times.sort_unstable();
        times[(times.len() * percent).div_ceil(100).max(1) - 1].as_secs_f64() * 1000.0
    }
}

/// Cores and memory, and the versions that programs say they are.
pub fn machine(programs: &[(&Path, &str)]) -> Result<Value> {
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kib = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).context("no MemTotal")?;
    let gib = kib.trim().trim_end_matches(" kB").trim().parse::<u64>()? >> 20;
    let mut versions = serde_json::Map::new();
    for (program, flag) in programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        versions.insert(name, version(program, flag)?.into());
    }
    Ok(json!({"cores": std::thread::available_parallelism()?.get(), "memory_gib": gib, "versions": versions}))
}

/// The first word that looks like a version; some builds say none.
fn version(program: &Path, flag: &str) -> Result<String> {
    let said = Command::new(program).arg(flag).output().with_context(|| format!("running {}", program.display()))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let is_version = |word: &&str| word.contains('.') && word.chars().any(|c| c.is_ascii_digit());
    Ok(said.split_whitespace().find(is_version).unwrap_or("not told").to_owned())
}
