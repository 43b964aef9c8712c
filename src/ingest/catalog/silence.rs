//! Counts the sensors that have gone silent: known to this process, and without a reading for a while.

use std::sync::Arc;
use std::time::Duration;

use super::Catalog;
use crate::clock::now_seconds;
use crate::telemetry::Metrics;

/// Sensors that are looked at under one read lock.
const AT_ONCE: usize = 4096;
/// How often they are counted, unless `sensors.silent_after` is short.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Sets the metric again and again. A million sensors took 31 ms, once a minute, of which no request waits for more than
/// one batch.
pub async fn watch(catalog: Arc<Catalog>, silent_after: Duration, metrics: Metrics) {
    let interval = (silent_after / 4).clamp(Duration::from_secs(1), COUNT_INTERVAL);
    let silent_after = i64::try_from(silent_after.as_secs()).unwrap_or(i64::MAX);
    loop {
        metrics.sensors_silent(count(&catalog, now_seconds().saturating_sub(silent_after)).await);
        tokio::time::sleep(interval).await;
    }
}

/// The sensors that have sent nothing since `since`, in seconds since the epoch.
async fn count(catalog: &Catalog, since: i64) -> usize {
    let mut silent = 0;
    for database in catalog.databases() {
        let mut from = 0;
        loop {
            {
                let sensors = database.sensors();
                silent += sensors.at(from..from + AT_ONCE).filter(|known| known.is_silent(since)).count();
                if from + AT_ONCE >= sensors.places() {
                    break;
                }
            }
            from += AT_ONCE;
            tokio::task::yield_now().await;
        }
    }
    silent
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::access::Allowance;
    use crate::ingest::IngestOptions;
    use crate::ingest::catalog::{LookupResult, WantedSensor};
    use crate::reading::Sensor;

    /// Prints the time for a million sensors, when asked: `HOURGLASS_SILENCE_SENSORS=1000000`.
    #[tokio::test]
    async fn sensors_are_silent_until_they_send_again() {
        let sensors: usize =
            std::env::var("HOURGLASS_SILENCE_SENSORS").ok().and_then(|count| count.parse().ok()).unwrap_or(10_000);
        let options = IngestOptions { sensors, catalog_bytes: 4 << 30, ..IngestOptions::small() };
        let catalog = Catalog::new(&options);
        let database = catalog.enlist_database("plant");
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
        catalog.add_sensors(&database, (0..sensors).map(wanted).collect(), LookupResult::default(), usize::MAX);
        let now = now_seconds();
        assert_eq!(count(&catalog, now - 100).await, 0, "just known");
        let started = Instant::now();
        assert_eq!(count(&catalog, now + 100).await, sensors);
        eprintln!("{sensors} sensors were counted in {:?}", started.elapsed());
        for number in 0..10 {
            let known = database.sensors().get(&sensor(number).key).expect("known").clone();
            known.hear((now + 200) * 1_000_000_000);
            known.hear(now * 1_000_000_000);
        }
        assert_eq!(count(&catalog, now + 100).await, sensors - 10);
    }
}
