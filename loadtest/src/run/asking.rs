//! Queries while readings are written: an open loop too, in which each query is due at its own time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

use super::random::Random;
use super::readings::Readings;
use super::recorder::{histogram, microseconds};
use super::scenario::{Queries, Scenario, Template};
use super::schedule::count;
use super::senders::{GRACE, Sending, Shared, with};
use super::trying::{Line, Tried};
use crate::report::results::{Latencies, QueryRow, round};

/// Maximum number of due queries that wait for a connection. At the limit, later queries are held back.
const WAITING: usize = 4096;

/// The results of one template.
struct Seen {
    latencies: Histogram<u64>,
    errors: BTreeMap<String, u64>,
    answers: u64,
    bytes: u64,
}

/// A query to send: the index of its template, when it is due, and its number.
type Due = (usize, Duration, u64);

struct Asker {
    queries: Queries,
    readings: Readings,
    measurements: Vec<String>,
    seed: u64,
    db: String,
    sending: Sending,
    shared: Shared,
    seen: Mutex<Vec<Seen>>,
}

/// Sends every query that is due within the duration, and returns the results.
pub async fn ask_all(
    scenario: Scenario,
    seed: u64,
    db: String,
    sending: Sending,
    shared: Shared,
) -> Result<Vec<QueryRow>> {
    let Some(queries) = scenario.queries.clone() else { return Ok(Vec::new()) };
    let seen = queries.templates.iter().map(|_| Seen {
        latencies: histogram(),
        errors: BTreeMap::new(),
        answers: 0,
        bytes: 0,
    });
    let asker = Arc::new(Asker {
        seen: Mutex::new(seen.collect()),
        readings: Readings::new(&scenario, seed, 0),
        measurements: scenario.measurements.iter().map(|one| one.name.clone()).collect(),
        queries,
        seed,
        db,
        sending,
        shared,
    });
    let due = Arc::new(tokio::sync::Mutex::new(asker.start()));
    let mut tasks = JoinSet::new();
    for _ in 0..asker.queries.connections {
        tasks.spawn(asker.clone().work(due.clone()));
    }
    while let Some(task) = tasks.join_next().await {
        task?;
    }
    Ok(asker.rows())
}

impl Asker {
    /// Starts a thread that sends each query to the channel when it is due.
    fn start(&self) -> Receiver<Due> {
        let (on_time, taken) = channel(WAITING);
        let rates: Vec<f64> = self.queries.templates.iter().map(|template| template.rate).collect();
        let (begin, duration) = (self.sending.begin, self.sending.duration);
        std::thread::spawn(move || {
            for (place, due, number) in all_due(&rates, duration) {
                std::thread::sleep((begin + due).saturating_duration_since(Instant::now()));
                if on_time.blocking_send((place, due, number)).is_err() {
                    return;
                }
            }
        });
        taken
    }

    async fn work(self: Arc<Self>, due: Arc<tokio::sync::Mutex<Receiver<Due>>>) {
        let mut line = Line::new(&self.sending.target);
        let _ = line.ready().await;
        let end = self.sending.begin + self.sending.duration + GRACE;
        while let Some((place, due, number)) = due.lock().await.recv().await {
            if Instant::now() >= end {
                return;
            }
            let path = self.path(&self.queries.templates[place], number);
            let tried = line.ask(&path, self.sending.timeout).await;
            let took = Instant::now().saturating_duration_since(self.sending.begin).saturating_sub(due);
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = &mut seen[place];
            match tried {
                Tried::Answered(answer) if answer.status == 200 => {
                    seen.latencies.saturating_record(microseconds(took));
                    seen.answers += 1;
                    seen.bytes += u64::try_from(answer.body.len()).unwrap_or(0);
                }
                Tried::Answered(answer) => *seen.errors.entry(answer.status.to_string()).or_default() += 1,
                Tried::Broken(how) => *seen.errors.entry(how).or_default() += 1,
            }
        }
    }

    fn path(&self, template: &Template, number: u64) -> String {
        let wanted = template.measurement.as_ref();
        let measurement = self.measurements.iter().position(|name| Some(name) == wanted).unwrap_or(0);
        let mut random = Random::new(self.seed, &[super::random::hash(template.name.as_bytes()), number, 4]);
        let sensor = self.readings.any_key(measurement, &mut random);
        let to = with(&self.shared, |recorder| recorder.reached) + 1;
        let from = to - template.range.nanoseconds();
        let filled = |text: &str, sensor: &str| {
            let text = text.replace("{db}", &self.db).replace("{sensor}", sensor);
            text.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
        };
        let mut path = filled(&template.path, &encoded(&sensor));
        if let Some(statement) = &template.influxql {
            path.push(if path.contains('?') { '&' } else { '?' });
            path += &format!("q={}", encoded(&filled(statement, &sensor)));
        }
        path
    }

    fn rows(&self) -> Vec<QueryRow> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(template, seen): (&Template, &Seen)| QueryRow {
            name: template.name.clone(),
            offered_per_s: template.rate,
            errors: seen.errors.clone(),
            answer_bytes: round(count(seen.bytes) / count(seen.answers.max(1))),
            answer_ms: Latencies::of(&seen.latencies),
        };
        self.queries.templates.iter().zip(seen.iter()).map(row).collect()
    }
}

/// All queries within the duration, ordered by when they are due. Those of one template are evenly spaced.
fn all_due(rates: &[f64], duration: Duration) -> impl Iterator<Item = Due> + use<> {
    let rates = rates.to_vec();
    let mut numbers = vec![0_u64; rates.len()];
    std::iter::from_fn(move || {
        let due = |place: usize, number: u64| Duration::from_secs_f64((count(number) + 0.5) / rates[place]);
        let place = (0..rates.len()).min_by_key(|place| due(*place, numbers[*place]))?;
        let next = due(place, numbers[place]);
        numbers[place] += 1;
        (next < duration).then_some((place, next, numbers[place]))
    })
}

/// Escapes a text for use in a URL's query.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_due_at_their_rates() {
        let due: Vec<Due> = all_due(&[2.0, 1.0], Duration::from_secs(2)).collect();
        let ms: Vec<(usize, u128)> = due.iter().map(|(place, due, _)| (*place, due.as_millis())).collect();
        assert_eq!(ms, [(0, 250), (1, 500), (0, 750), (0, 1250), (1, 1500), (0, 1750)]);
    }
}
