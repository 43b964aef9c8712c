//! Collects times, and renders them as a table and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::stats::percentile_ms;

/// The times of one query, by server.
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

    /// A row per query and server, in milliseconds.
    pub fn table(&self) -> String {
        let mut table = "| question | server | runs | p50 ms | p99 ms |\n|---|---|---|---|---|\n".to_owned();
        for row in self.sorted() {
            let (p50, p99) = (percentile_ms(&row.times, 50), percentile_ms(&row.times, 99));
            table += &format!("| {} | {} | {} | {p50:.2} | {p99:.2} |\n", row.question, row.server, row.times.len());
        }
        table
    }

    /// The same as JSON, with the machine and the data.
    pub fn json(&self, machine: &Value, data: &Value) -> Value {
        let rounded = |ms: f64| (ms * 1000.0).round() / 1000.0;
        let row = |row: &Row| {
            let (p50, p99) = (rounded(percentile_ms(&row.times, 50)), rounded(percentile_ms(&row.times, 99)));
            json!({"question": row.question, "server": row.server, "runs": row.times.len(), "p50_ms": p50, "p99_ms": p99})
        };
        json!({"machine": machine, "data": data, "results": self.sorted().into_iter().map(row).collect::<Vec<_>>()})
    }

    /// Rows by query, in the order of their first occurrence.
    fn sorted(&self) -> Vec<&Row> {
        let place = |question: &str| self.rows.iter().position(|row| row.question == question);
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by_key(|row| place(&row.question));
        rows
    }
}
