//! Counts the sensors that have gone silent: known to this process, and without a reading for a while.

use std::sync::Arc;
use std::time::Duration;

use super::{Catalog, KnownSensor};
use crate::clock::now_seconds;
use crate::kinds::Kinds;
use crate::telemetry::Metrics;

/// Sensors that are looked at under one read lock.
const AT_ONCE: usize = 4096;
/// How often they are counted, unless `sensors.silent_after` is short.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Sets the metric again and again. A million sensors took 31 ms, once a minute, of which no request waits for more than
/// one batch.
///
/// `silent_after` is that of sensors whose kind has no interval; zero for never.
pub async fn watch(catalog: Arc<Catalog>, silent_after: Duration, kinds: Kinds, metrics: Metrics) {
    let bounds = kinds.all().filter_map(|kind| kind.silent_after()).chain([silent_after]);
    let shortest = bounds.filter(|bound| !bound.is_zero()).min().unwrap_or(COUNT_INTERVAL);
    let interval = (shortest / 4).clamp(Duration::from_secs(1), COUNT_INTERVAL);
    loop {
        metrics.sensors_silent(count(&catalog, now_seconds(), silent_after).await);
        tokio::time::sleep(interval).await;
    }
}

/// The sensors that have sent nothing for so long; `now` in seconds since the epoch.
async fn count(catalog: &Catalog, now: i64, silent_after: Duration) -> usize {
    let is_silent = |known: &KnownSensor| {
        let after = known.kind().and_then(|kind| kind.silent_after()).unwrap_or(silent_after);
        let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        !after.is_zero() && known.is_silent(now.saturating_sub(seconds))
    };
    let mut silent = 0;
    for database in catalog.databases() {
        let mut from = 0;
        loop {
            {
                let sensors = database.sensors();
                silent += sensors.at(from..from + AT_ONCE).filter(|known| is_silent(known)).count();
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
    use crate::bucket::SensorDocument;
    use crate::catalog::LookupResult;
    use crate::catalog::WantedSensor;
    use crate::reading::Sensor;
    use crate::scale::scaled;

    /// Prints the time; a long run has a million sensors.
    #[tokio::test]
    async fn sensors_are_silent_until_they_send_again() {
        let sensors = scaled([10_000, 10_000, 1_000_000]);
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
        assert_eq!(count(&catalog, now + 100, none).await, 0, "nothing came of any");
        for number in 0..sensors {
            database.sensors().get(&sensor(number).key).expect("known").hear(now * 1_000_000_000);
        }
        assert_eq!(count(&catalog, now - 100, none).await, 0, "they have just sent");
        let started = Instant::now();
        assert_eq!(count(&catalog, now + 100, none).await, sensors);
        assert_eq!(count(&catalog, now + 100, Duration::ZERO).await, 0, "never");
        eprintln!("{sensors} sensors were counted in {:?}", started.elapsed());
        for number in 0..10 {
            let known = database.sensors().get(&sensor(number).key).expect("known").clone();
            known.hear((now + 200) * 1_000_000_000);
            known.hear(now * 1_000_000_000);
        }
        assert_eq!(count(&catalog, now + 100, none).await, sensors - 10);
    }

    /// A sensor that had metadata but never a reading counted as silent, though no list of silent sensors had it; and one whose document was
    /// found after a restart counted as heard at that moment.
    #[test]
    fn a_sensor_is_heard_by_its_readings_only() {
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
