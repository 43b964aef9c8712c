//! Checks that exactly the acked readings are stored: generates the sent readings again, reads everything back over
//! HTTP, and compares both reading by reading.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use super::Posts;
use crate::client::{Connection, url_encode};
use crate::fleet::{Reading, float, sensor_key};
use crate::load::open::Outcome;

/// Readings per answer, which is the default maximum of the server.
const LIMIT: usize = 100_000;
/// Maximum number of attempts of a query that is answered with 503.
const ATTEMPTS_MAX: usize = 30;
/// Time before and after the sent readings that is searched for others.
const MARGIN_MS: i64 = 3_600_000;
/// Maximum number of differences that are described.
const DESCRIBED_MAX: usize = 10;

/// The sent readings of each sensor by time. The flag is true if one of their POSTs was acked.
struct Expected(BTreeMap<String, BTreeMap<i64, (Reading, bool)>>);

/// A line of NDJSON.
#[derive(Deserialize)]
struct Line {
    sensor: String,
    reading: StoredReading,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredReading {
    ts: i64,
    temp: f64,
    humidity: f64,
}

/// Checks that the database is empty, because existing readings would look like duplicates.
pub async fn ensure_empty(address: &str) -> Result<()> {
    let answer = Connection::open(address).await?.ask("/api/v1/measurements?db=bench").await?;
    let text = String::from_utf8_lossy(&answer.body);
    let is_empty = answer.status == 404 || answer.status == 200 && !text.contains("climate");
    ensure!(is_empty, "the database bench has readings of climate already: {text}");
    Ok(())
}

/// Reads everything back, and returns the differences.
pub async fn verify(address: &str, posts: Posts, outcomes: &[Outcome]) -> Result<Vec<String>> {
    let mut expected = Expected::new(posts, outcomes);
    let times = || expected.0.values().flat_map(BTreeMap::keys);
    let from = times().min().context("nothing was sent")? - MARGIN_MS;
    let to = times().max().context("nothing was sent")? + MARGIN_MS;
    let range = format!("db=bench&measurement=climate&from={from}&to={to}&precision=ms&epoch=ms");
    let acked = expected.acked_count();
    let mut differences = Vec::new();
    let mut stored = 0;
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/readings?{range}&format=ndjson&limit={LIMIT}{cursor}");
        let (body, next) = ask(address, &path).await?;
        for line in body.lines() {
            let Line { sensor, reading } = serde_json::from_str(line).with_context(|| format!("the line {line}"))?;
            stored += 1;
            differences.extend(expected.compare(&sensor, &reading));
        }
        match next {
            Some(next) => cursor = format!("&cursor={}", url_encode(&next)),
            None => break,
        }
    }
    let summary_counts = summary_counts(address, &range).await?;
    if summary_counts != [stored, stored] {
        differences.push(format!("{stored} readings are answered, summaries count {summary_counts:?} values"));
    }
    differences.extend(expected.missing_readings());
    if differences.is_empty() {
        println!("verified: acked = stored, {acked} acked readings, {stored} stored");
    }
    let count = differences.len();
    differences.truncate(DESCRIBED_MAX);
    if count > DESCRIBED_MAX {
        differences.push(format!("and {} more differences", count - DESCRIBED_MAX));
    }
    Ok(differences)
}

impl Expected {
    fn new(posts: Posts, outcomes: &[Outcome]) -> Self {
        let mut expected = Self(BTreeMap::new());
        for (outcome, first) in outcomes.iter().zip(posts.first_lines()) {
            if *outcome != Outcome::Unsent {
                let readings = (first..first + posts.lines).map(|number| posts.delivery.reading(number));
                readings.for_each(|reading| expected.add(reading, *outcome == Outcome::Acked));
            }
        }
        expected
    }

    fn add(&mut self, reading: Reading, is_acked: bool) {
        let readings = self.0.entry(sensor_key(reading.sensor)).or_default();
        // A reading that was acked once counts as acked.
        readings.entry(reading.time_ms).or_insert((reading, is_acked)).1 |= is_acked;
    }

    /// Returns the number of acked readings.
    fn acked_count(&self) -> usize {
        self.0.values().flat_map(BTreeMap::values).filter(|(_, is_acked)| *is_acked).count()
    }

    /// Removes a stored reading, and describes its difference if there is one.
    fn compare(&mut self, sensor: &str, stored: &StoredReading) -> Option<String> {
        let sent = self.0.get_mut(sensor).and_then(|readings| readings.remove(&stored.ts));
        let Some((sent, _)) = sent else {
            return Some(format!("{sensor} at {} ms is stored twice, or was never sent", stored.ts));
        };
        let is_equal = stored.temp == sent.temp() && stored.humidity == float(sent.humidity);
        (!is_equal).then(|| format!("{sensor} at {} ms is stored with other values: {stored:?}", stored.ts))
    }

    /// Describes the acked readings that are not stored. Call it after comparing all stored ones.
    fn missing_readings(&self) -> Vec<String> {
        let mut lost = Vec::new();
        for (sensor, readings) in &self.0 {
            for (time, _) in readings.iter().filter(|(_, (_, is_acked))| *is_acked) {
                lost.push(format!("{sensor} at {time} ms was acked and is not stored"));
            }
        }
        lost
    }
}

/// Returns the numbers of values of temp and humidity in the summaries of the server.
async fn summary_counts(address: &str, range: &str) -> Result<[u64; 2]> {
    let (body, _) = ask(address, &format!("/api/v1/summary?{range}&agg=count&group_by=*")).await?;
    let answer: Value = serde_json::from_str(&body)?;
    let mut counted = [0; 2];
    for series in answer["series"].as_array().into_iter().flatten() {
        for window in series["windows"].as_array().into_iter().flatten() {
            for (count, field) in counted.iter_mut().zip(["temp", "humidity"]) {
                *count += window["fields"][field]["count"].as_u64().with_context(|| format!("no count in {window}"))?;
            }
        }
    }
    Ok(counted)
}

/// Returns the body of an answer, and the cursor of the next one.
async fn ask(address: &str, path: &str) -> Result<(String, Option<String>)> {
    for _ in 0..ATTEMPTS_MAX {
        let answer = Connection::open(address).await?.ask(path).await?;
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status != 503 {
            ensure!(answer.status == 200, "{path} was answered {}: {body:.500}", answer.status);
            return Ok((body, answer.header("x-next-cursor").map(str::to_owned)));
        }
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    anyhow::bail!("{path} was answered 503 {ATTEMPTS_MAX} times")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Delivery, Fleet};

    /// Two POSTs of two readings of a sensor: the first was acked and sent twice, the second was not acked.
    fn expected() -> (Expected, Vec<Reading>) {
        let delivery = Delivery::in_time_order(Fleet::by_minute(1, 4));
        let mut expected = Expected(BTreeMap::new());
        let readings: Vec<Reading> = (0..4).map(|number| delivery.reading(number)).collect();
        for (index, is_acked) in [(0, false), (0, true), (1, true), (2, false), (3, false)] {
            expected.add(readings[index], is_acked);
        }
        (expected, readings)
    }

    fn differences(stored: &[Reading]) -> Vec<String> {
        let (mut expected, _) = expected();
        let mut differences = Vec::new();
        for reading in stored {
            let stored = StoredReading { ts: reading.time_ms, temp: reading.temp(), humidity: float(reading.humidity) };
            differences.extend(expected.compare("climate,sensor=s000000,site=site0", &stored));
        }
        differences.extend(expected.missing_readings());
        differences
    }

    #[test]
    fn acked_and_stored_is_exact_whatever_became_of_the_rest() {
        let (expected, readings) = expected();
        assert_eq!(expected.acked_count(), 2);
        assert_eq!(differences(&readings[..2]), Vec::<String>::new());
        assert_eq!(differences(&readings), Vec::<String>::new());
    }

    #[test]
    fn lost_doubled_changed_and_foreign_readings_are_found() {
        let (_, readings) = expected();
        let changed = Reading { humidity: 99, ..readings[1] };
        let foreign = Reading { time_ms: 5, ..readings[1] };
        for (stored, expected) in [
            (vec![readings[0]], "was acked and is not stored"),
            (vec![readings[0], readings[0], readings[1]], "is stored twice"),
            (vec![readings[0], changed], "with other values"),
            (vec![readings[0], readings[1], foreign], "was never sent"),
        ] {
            let found = differences(&stored);
            assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        }
    }
}
