//! Sends batches of line protocol to the service, again and again while it is busy or away.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::batch::{Batch, BatchRow, Place, Refusal};
use crate::commands::post::{PostAnswer, Target, url_encode};

/// The first pause before a batch is sent again. It doubles.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum number of refused rows in an answer of the service.
const LISTED_MAX: usize = 100;

pub struct Sender<'a> {
    pub target: &'a Target,
    /// The database of rows that name none.
    pub database: &'a str,
    /// The unit of the timestamps.
    pub precision: &'a str,
    /// Maximum time for which the service may be away.
    pub patience: Duration,
    /// True if rows may be sent twice, because all have a timestamp.
    pub is_repeatable: bool,
    /// The prefix of the keys by which the service recognizes a batch that it already has.
    key: String,
    requests: u64,
}

impl<'a> Sender<'a> {
    pub fn new(target: &'a Target, database: &'a str) -> anyhow::Result<Self> {
        let key = format!("{:016x}", getrandom::u64().context("the system has no random numbers")?);
        let patience = Duration::from_secs(300);
        Ok(Self { target, database, precision: "ns", patience, is_repeatable: false, key, requests: 0 })
    }

    /// Sends the rows of a batch. Returns those that the service refused.
    pub fn send(&mut self, batch: &Batch) -> anyhow::Result<Vec<Refusal>> {
        let mut refusals = Vec::new();
        let database = self.database_of(&batch.place);
        let path = format!("/api/v3/write_lp?db={}&precision={}", url_encode(&database), self.precision);
        self.send_rows(&path, &batch.lines, &batch.rows, &mut refusals)?;
        Ok(refusals)
    }

    /// Returns the database of a place, with its retention policy.
    pub fn database_of(&self, place: &Place) -> String {
        let database = place.database.as_deref().unwrap_or(self.database);
        match place.policy.as_deref() {
            None => database.to_owned(),
            Some(policy) => format!("{database}/{policy}"),
        }
    }

    fn send_rows(
        &mut self,
        path: &str,
        lines: &[u8],
        rows: &[BatchRow],
        refusals: &mut Vec<Refusal>,
    ) -> anyhow::Result<()> {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let answer = self.post(path, &lines[first.range.start..last.range.end])?;
        let halve = |sender: &mut Self, refusals: &mut Vec<Refusal>| {
            let (left, right) = rows.split_at(rows.len() / 2);
            sender.send_rows(path, lines, left, refusals)?;
            sender.send_rows(path, lines, right, refusals)
        };
        match answer.status {
            204 => Ok(()),
            413 if rows.len() > 1 => halve(self, refusals),
            400 => {
                let body = answer.json()?;
                let Some(listed) = body["data"].as_array().filter(|listed| !listed.is_empty()) else {
                    bail!("{answer}")
                };
                if listed.len() >= LISTED_MAX && rows.len() > 1 && self.is_repeatable {
                    return halve(self, refusals);
                }
                for item in listed {
                    let line = item["line_number"].as_u64().unwrap_or_default() as usize + first.line - 1;
                    let index = rows.partition_point(|row| row.line <= line).saturating_sub(1);
                    let row = &rows[index];
                    let reason = item["error_message"].as_str().unwrap_or_default();
                    // The service lists each refused field of a row.
                    if let Some(refusal) = refusals.last_mut().filter(|refusal| refusal.number == row.number) {
                        refusal.reason.push_str(&format!("; {reason}"));
                        continue;
                    }
                    refusals.push(Refusal {
                        number: row.number,
                        reason: reason.to_owned(),
                        text: String::from_utf8_lossy(&lines[row.range.clone()]).into_owned(),
                        is_line_protocol: true,
                    });
                }
                Ok(())
            }
            _ => bail!("{answer}"),
        }
    }

    /// Sends a body until the service answers other than that it is busy.
    fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<PostAnswer> {
        self.requests += 1;
        let key = format!("{}-{}", self.key, self.requests);
        let headers = [("idempotency-key", &*key)];
        // Readings with timestamps need no key.
        let headers: &[(&str, &str)] = if self.is_repeatable { &[] } else { &headers };
        let began = Instant::now();
        let mut pause = PAUSE;
        loop {
            let sent = self.target.send_with("POST", path, Some(("text/plain", body)), headers);
            let problem = match sent {
                Ok(answer) if !matches!(answer.status, 429 | 503) => return Ok(answer),
                Ok(answer) if began.elapsed() >= self.patience => bail!("{answer}"),
                Ok(answer) => {
                    pause = pause.max(answer.retry_after.unwrap_or_default().min(PAUSE_MAX));
                    answer.to_string()
                }
                Err(error) if began.elapsed() >= self.patience => return Err(error),
                Err(error) => format!("{error:#}"),
            };
            if pause > PAUSE {
                eprintln!("hourglass: waiting: {problem}");
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}
