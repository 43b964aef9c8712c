//! Checks that exactly what was acked is stored: generates the sent readings again from the seed, reads everything back
//! over HTTP, and compares both reading by reading.

mod expected;
mod stored;

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::expected::Expected;
use self::stored::{Range, Reader};
use crate::client::Connection;
use crate::report::results::{Verified, round};
use crate::run::Planned;
use crate::run::asking::encoded;
use crate::run::posts::Posts;
use crate::run::recorder::Outcome;
use crate::run::schedule::Schedule;

/// How far before and after the sent readings to look for others.
const MARGIN_NS: i64 = 3_600_000_000_000;

#[derive(Debug, Clone, Copy)]
pub struct Sent<'a> {
    /// The outcome of each POST.
    pub outcomes: &'a [Outcome],
    /// The latest timestamp sent, in nanoseconds.
    pub reached: i64,
}

/// Fails unless the database has none of the scenario's measurements, because older readings could not be told from
/// readings that are stored twice.
pub async fn ensure_empty(address: &str, planned: &Planned) -> Result<()> {
    let path = format!("/api/v1/measurements?db={}", encoded(&planned.db));
    let (status, said) = Connection::open(address).await?.get(&path).await?;
    if status == 404 {
        return Ok(());
    }
    ensure!(status == 200, "{path} was answered {status}: {said}");
    let said: Value = serde_json::from_str(&said).with_context(|| format!("{path} was answered {said}"))?;
    let text = said.to_string();
    for name in names(planned) {
        let is_there = text.contains(&Value::from(name).to_string());
        ensure!(!is_there, "the database {} has readings of {name} already: name an empty one with --db", planned.db);
    }
    Ok(())
}

/// Reads everything back and compares.
pub async fn verify(address: &str, planned: &Planned, sent: Sent<'_>) -> Result<Verified> {
    let began = Instant::now();
    println!("reading back what was acked");
    let posts = again(planned);
    let mut expected = Expected::replay(posts, sent.outcomes)?;
    let range = Range { from: planned.start - MARGIN_NS, to: sent.reached + MARGIN_NS };
    let mut reader = Reader::new(address, &planned.db, range);
    let mut counts_wrong = Vec::new();
    for name in names(planned) {
        let counted = reader.readings(name, &mut expected).await.with_context(|| format!("reading {name} back"))?;
        let told = reader.counts(name).await.with_context(|| format!("asking for the counts of {name}"))?;
        let differ = |key: &&String| counted.get(*key) != told.get(*key);
        let keys: std::collections::BTreeSet<&String> = counted.keys().chain(told.keys()).collect();
        counts_wrong.extend(keys.into_iter().filter(differ).map(|key| {
            let [counted, told] = [counted.get(key), told.get(key)].map(|count| count.copied().unwrap_or(0));
            format!("{name}, {key}: {counted} values are answered, the summary counts {told}")
        }));
    }
    let mut verified = expected.end();
    verified.counts_wrong = u64::try_from(counts_wrong.len())?;
    verified.first.extend(counts_wrong);
    verified.took_s = round(began.elapsed().as_secs_f64());
    Ok(verified)
}

/// The same POSTs as in the run, without end.
fn again(planned: &Planned) -> Posts {
    let mut scenario = planned.scenario.clone();
    scenario.gzip = false;
    let schedule = Schedule { rate: scenario.rate(), duration: scenario.duration.0 };
    Posts::new(&scenario, schedule, planned.seed, planned.start)
}

fn names(planned: &Planned) -> std::collections::BTreeSet<&str> {
    planned.scenario.measurements.iter().map(|one| one.name.as_str()).collect()
}
