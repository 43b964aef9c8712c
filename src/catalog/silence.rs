//! Counts the silent sensors: known sensors without a recent reading.

use std::sync::Arc;
use std::time::Duration;

use super::{Catalog, KnownSensor};
use crate::clock::now_seconds;
use crate::kinds::Kinds;
use crate::telemetry::Metrics;

/// The number of sensors checked under one read lock.
const BATCH_SENSORS: usize = 4096;
/// The time between two counts, unless `sensors.silent_after` is short.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Updates the metric until the task is aborted. A count of a million sensors takes about 31 ms, and no request waits
/// longer than one batch.
///
/// `silent_after` applies to sensors whose kind has no interval; zero disables it.
pub async fn watch(catalog: Arc<Catalog>, silent_after: Duration, kinds: Kinds, metrics: Metrics) {
    let bounds = kinds.all().filter_map(|kind| kind.silent_after()).chain([silent_after]);
    let shortest = bounds.filter(|bound| !bound.is_zero()).min().unwrap_or(COUNT_INTERVAL);
    let interval = (shortest / 4).clamp(Duration::from_secs(1), COUNT_INTERVAL);
    loop {
        metrics.sensors_silent(count(&catalog, now_seconds(), silent_after).await);
        tokio::time::sleep(interval).await;
    }
}

/// Counts the sensors that are silent at `now`, in seconds since the epoch.
async fn count(catalog: &Catalog, now: i64, silent_after: Duration) -> usize {
    let is_silent = |known: &KnownSensor| {
        let after = known.kind().and_then(|kind| kind.silent_after()).unwrap_or(silent_after);
        let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        !after.is_zero() && known.is_silent(now.saturating_sub(seconds))
    };
    let mut silent = 0;
    for database in catalog.databases() {
        let mut start = 0;
        loop {
            let end = start + BATCH_SENSORS;
            {
                let sensors = database.sensors();
                silent += sensors.range(start..end).filter(|known| is_silent(known)).count();
                if end >= sensors.slots() {
                    break;
                }
            }
            start = end;
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
    use crate::bucket::SensorDocument;
    use crate::catalog::LookupResult;
    use crate::catalog::WantedSensor;
    use crate::reading::Sensor;
    use crate::scale::scaled;

    /// Prints the duration of a count. A long run has a million sensors.
    #[tokio::test]
    async fn sensors_are_silent_until_they_send_again() {
        let sensors = scaled(10_000, 1_000_000);
        let mut options = crate::config::small();
        options.limits.sensors = sensors;
        options.catalog.max_bytes = 4 << 30;
        let catalog = Catalog::new(&options);
        let database = catalog.enlist_database("plant");
        let sensor = |number: usize| Sensor::new("m", [("s".to_owned(), number.to_string())]).expect("distinct keys");
        let wanted = |number| WantedSensor { sensor: sensor(number), allowance: Allowance::default() };
        catalog.add_sensors(&database, (0..sensors).map(wanted).collect(), LookupResult::default(), usize::MAX);
        let now = now_seconds();
        let none = Duration::from_nanos(1);
        assert_eq!(count(&catalog, now + 100, none).await, 0, "no sensor has sent a reading");
        for number in 0..sensors {
            database.sensors().get(&sensor(number).key).expect("known").note_reading(now * 1_000_000_000);
        }
        assert_eq!(count(&catalog, now - 100, none).await, 0, "they have just sent");
        let started = Instant::now();
        assert_eq!(count(&catalog, now + 100, none).await, sensors);
        assert_eq!(count(&catalog, now + 100, Duration::ZERO).await, 0, "disabled");
        eprintln!("{sensors} sensors were counted in {:?}", started.elapsed());
        for number in 0..10 {
            let known = database.sensors().get(&sensor(number).key).expect("known").clone();
            known.note_reading((now + 200) * 1_000_000_000);
            known.note_reading(now * 1_000_000_000);
        }
        assert_eq!(count(&catalog, now + 100, none).await, sensors - 10);
    }

    /// Regression: a sensor with metadata but no reading counted as silent, although no list of silent sensors had it.
    /// After a restart, a sensor counted as seen when its document was found.
    #[test]
    fn only_readings_update_the_last_seen_time() {
        let catalog = Catalog::new(&crate::config::small());
        let database = catalog.enlist_database("plant");
        let sensor = Sensor::new("m", [("s", "1")]).expect("a sensor");
        let wanted = WantedSensor { sensor: sensor.clone(), allowance: Allowance::default() };
        catalog.add_sensors(&database, vec![wanted], LookupResult::default(), usize::MAX);
        let known = database.sensors().get(&sensor.key).expect("known").clone();
        assert!(!known.is_silent(i64::MAX));
        let last_seen = Some(1_000_000_000_000);
        known.adopt(&SensorDocument { last_seen, ..SensorDocument::new(known.sensor.clone()) });
        assert!(known.is_silent(1001) && !known.is_silent(1000));
    }
}
