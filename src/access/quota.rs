//! Quotas of tokens and databases: readings per second, new sensors per hour, and sensors in total. A request is
//! admitted while the balance is positive, and is charged for all its readings afterwards. So no request is admitted in
//! part. After a large request the balance is negative, and later ones are refused until it is positive again.

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rapidhash::fast::RandomState;
use serde::{Deserialize, Serialize};

/// The size of a burst, as the number of seconds whose readings it may contain.
const BURST_SECONDS: f64 = 5.0;
/// The used share from which the sender gets a warning.
const WARN_FROM: f64 = 0.8;
const HOUR: f64 = 3600.0;

/// The part of a bound that is kept for databases and tokens with at most half of it.
const RESERVED_PART: usize = 16;

/// Returns the use of a bound up to which somebody who has `own` of it may add more. With others, the last sixteenth is
/// for those with at most half.
#[must_use]
pub fn share(max: usize, own: usize, has_others: bool) -> usize {
    if has_others && own > max / 2 { max - max / RESERVED_PART } else { max }
}

/// The limits of a quota. `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Readings per second, with bursts of `BURST_SECONDS`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings_per_second: Option<u32>,
    /// New sensors per hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_sensors_per_hour: Option<u32>,
    /// Sensors in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensors: Option<u32>,
    /// Databases in the token's scopes. At this number, the token may not create more. Quotas of databases do not have
    /// this limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databases: Option<u32>,
}

impl Quota {
    /// Returns true if the quota has no limits.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The quantity that a limit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    Readings,
    NewSensors,
    Sensors,
    Databases,
}

impl Rate {
    /// Returns the label in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Readings => "readings",
            Self::NewSensors => "new_sensors",
            Self::Sensors => "sensors",
            Self::Databases => "databases",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Readings => "readings per second",
            Self::NewSensors => "new sensors per hour",
            Self::Sensors => "sensors",
            Self::Databases => "databases",
        }
    }
}

/// A quota that is used up or nearly used up.
#[derive(Debug, Clone, PartialEq)]
pub struct Exhausted {
    pub rate: Rate,
    /// For display: `token plant-7`, `database climate`.
    pub owner: String,
    pub limit: u32,
    /// The used share, which is above 1 if the balance is negative.
    pub used: f64,
    /// The time until the balance is positive again.
    pub retry_after: Duration,
}

impl Exhausted {
    /// Returns the quota in words.
    #[must_use]
    pub fn bound(&self) -> String {
        format!("the quota of {} ({} {})", self.owner, self.limit, self.rate.words())
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.used < 1.0 {
            write!(f, "{} is {:.0} % used", self.bound(), self.used * 100.0)
        } else {
            write!(f, "{} is used up", self.bound())
        }
    }
}

/// The usage of a quota since the start of the process.
#[derive(Debug)]
pub struct Usage {
    /// The owner for display, as in [`Exhausted::owner`].
    pub owner: String,
    /// The label in metrics: `token` or `database`.
    pub scope: &'static str,
    pub quota: Quota,
    readings: Option<Mutex<TokenBucket>>,
    new_sensors: Option<Mutex<TokenBucket>>,
    /// Hashes of the sensors written so far, never more than the quota allows. The seed is random, so that a sender
    /// cannot compute keys with equal hashes.
    sensors: Mutex<HashSet<u64, RandomState>>,
    /// The number of sensors that the owner has created, and the bytes of these and of new fields.
    created: [AtomicUsize; 2],
    /// The bytes of the owner's requests that are being processed.
    pub bytes_in_flight: AtomicUsize,
}

impl Usage {
    /// Returns an unused quota. The scope is the label in metrics: `token` or `database`.
    #[must_use]
    pub fn new(scope: &'static str, name: &str, quota: Quota) -> Self {
        let bucket = |limit: Option<u32>, burst: f64, per_second: f64| {
            limit.map(|limit| Mutex::new(TokenBucket::full(f64::from(limit) * burst, f64::from(limit) * per_second)))
        };
        Self {
            owner: format!("{scope} {name}"),
            scope,
            readings: bucket(quota.readings_per_second, BURST_SECONDS, 1.0),
            new_sensors: bucket(quota.new_sensors_per_hour, 1.0, 1.0 / HOUR),
            quota,
            sensors: Mutex::default(),
            created: Default::default(),
            bytes_in_flight: AtomicUsize::new(0),
        }
    }

    /// Notes new sensors, and the bytes of new sensors or fields.
    pub fn note_created(&self, sensors: usize, bytes: usize) {
        self.created[0].fetch_add(sensors, Ordering::Relaxed);
        self.created[1].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the number of sensors that the owner has created since the start of the process, and their bytes.
    #[must_use]
    pub fn created(&self) -> (usize, usize) {
        let [sensors, bytes] = &self.created;
        (sensors.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed))
    }

    /// Returns a copy for a dry run, which is charged without effect on the original.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = |bucket: &Option<Mutex<TokenBucket>>| {
            let bucket = bucket.as_ref()?.lock().clone();
            Some(Mutex::new(bucket))
        };
        Self {
            owner: self.owner.clone(),
            scope: self.scope,
            quota: self.quota,
            readings: copy(&self.readings),
            new_sensors: copy(&self.new_sensors),
            sensors: Mutex::new(self.sensors.lock().clone()),
            created: [self.created().0.into(), self.created().1.into()],
            bytes_in_flight: AtomicUsize::new(0),
        }
    }

    /// Checks that readings can be admitted now.
    ///
    /// # Errors
    /// If earlier readings have used up the quota.
    pub fn admit(&self, now: Instant) -> Result<(), Exhausted> {
        let Some(limit) = self.quota.readings_per_second else { return Ok(()) };
        let Some(bucket) = &self.readings else { return Ok(()) };
        let mut bucket = bucket.lock();
        bucket.refill(now);
        if bucket.left > 0.0 {
            return Ok(());
        }
        Err(self.new_exhausted(Rate::Readings, limit, 1.0, bucket.until(0.0)))
    }

    /// Charges admitted readings. Returns a warning if the quota is nearly used up.
    pub fn charge(&self, readings: usize, now: Instant) -> Option<Exhausted> {
        let limit = self.quota.readings_per_second?;
        let mut bucket = self.readings.as_ref()?.lock();
        bucket.refill(now);
        bucket.left -= as_f64(readings);
        (bucket.used_share() >= WARN_FROM)
            .then(|| self.new_exhausted(Rate::Readings, limit, bucket.used_share(), bucket.until(0.0)))
    }

    /// Charges one new sensor.
    ///
    /// # Errors
    /// If the hourly quota is used up.
    pub fn take_new_sensor(&self, now: Instant) -> Result<(), Exhausted> {
        self.new_sensor(now, 1.0)
    }

    /// Checks that a new sensor would be admitted now.
    ///
    /// # Errors
    /// If the hourly quota is used up.
    pub fn new_sensors_left(&self, now: Instant) -> Result<(), Exhausted> {
        self.new_sensor(now, 0.0)
    }

    /// Charges `count` (1 or 0) if at least one new sensor is left.
    fn new_sensor(&self, now: Instant, count: f64) -> Result<(), Exhausted> {
        let Some(limit) = self.quota.new_sensors_per_hour else { return Ok(()) };
        let Some(bucket) = &self.new_sensors else { return Ok(()) };
        let mut bucket = bucket.lock();
        bucket.refill(now);
        if bucket.left < 1.0 {
            return Err(self.new_exhausted(Rate::NewSensors, limit, 1.0, bucket.until(1.0)));
        }
        bucket.left -= count;
        Ok(())
    }

    /// Refunds one new sensor that was charged but not created.
    pub fn refund_new_sensor(&self) {
        if let Some(bucket) = &self.new_sensors {
            let mut bucket = bucket.lock();
            bucket.left = (bucket.left + 1.0).min(bucket.size);
        }
    }

    /// Counts a sensor of the owner. A sensor that was counted once stays admitted.
    ///
    /// # Errors
    /// If the sensor is not counted yet and the limit is reached.
    pub fn admit_sensor(&self, key: &str) -> Result<(), Exhausted> {
        let Some(limit) = self.quota.sensors else { return Ok(()) };
        let mut sensors = self.sensors.lock();
        let hash = sensors.hasher().hash_one(key);
        if sensors.contains(&hash) {
            return Ok(());
        }
        if sensors.len() >= limit as usize {
            return Err(self.new_exhausted(Rate::Sensors, limit, 1.0, Duration::ZERO));
        }
        sensors.insert(hash);
        Ok(())
    }

    /// Checks that one more sensor can be counted.
    ///
    /// # Errors
    /// If the limit is reached.
    pub fn sensors_left(&self) -> Result<(), Exhausted> {
        let count = self.sensors.lock().len();
        self.too_many(count).map_or(Ok(()), Err)
    }

    /// Returns a warning if a quota of sensors is nearly used up. `known` is the owner's number of sensors, if the
    /// caller counts them instead of [`Usage::admit_sensor`].
    #[must_use]
    pub fn sensors_warning(&self, known: Option<usize>, now: Instant) -> Option<Exhausted> {
        if let Some(limit) = self.quota.sensors {
            let count = known.unwrap_or_else(|| self.sensors.lock().len());
            let used = as_f64(count) / f64::from(limit.max(1));
            if used >= WARN_FROM {
                return Some(self.new_exhausted(Rate::Sensors, limit, used, Duration::ZERO));
            }
        }
        let limit = self.quota.new_sensors_per_hour?;
        let mut bucket = self.new_sensors.as_ref()?.lock();
        bucket.refill(now);
        (bucket.used_share() >= WARN_FROM)
            .then(|| self.new_exhausted(Rate::NewSensors, limit, bucket.used_share(), bucket.until(1.0)))
    }

    /// Returns an error if `known` sensors, counted by the caller, reach the limit.
    #[must_use]
    pub fn too_many(&self, known: usize) -> Option<Exhausted> {
        let limit = self.quota.sensors?;
        (known >= limit as usize).then(|| self.new_exhausted(Rate::Sensors, limit, 1.0, Duration::ZERO))
    }

    fn new_exhausted(&self, rate: Rate, limit: u32, used: f64, retry_after: Duration) -> Exhausted {
        Exhausted { rate, owner: self.owner.clone(), limit, used, retry_after }
    }
}

/// A token bucket whose balance may become negative.
#[derive(Debug, Clone)]
struct TokenBucket {
    left: f64,
    size: f64,
    per_second: f64,
    filled: Instant,
}

impl TokenBucket {
    fn full(size: f64, per_second: f64) -> Self {
        Self { left: size, size, per_second, filled: Instant::now() }
    }

    fn refill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * self.per_second).min(self.size);
        self.filled = self.filled.max(now);
    }

    fn used_share(&self) -> f64 {
        if self.size > 0.0 { 1.0 - self.left / self.size } else { 1.0 }
    }

    /// Returns the time until the balance is `wanted`.
    fn until(&self, wanted: f64) -> Duration {
        let seconds = (wanted - self.left).max(0.0) / self.per_second.max(f64::MIN_POSITIVE);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// The usage to which a request is charged, if its sender has a quota.
pub type Allowance = Option<Arc<Usage>>;

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Parses a rate such as `5000/s` or `100/h`. The unit may be omitted.
///
/// # Errors
/// A message with an example.
pub fn parse_rate(text: &str, unit: &str) -> Result<u32, String> {
    let number = text.strip_suffix(unit).and_then(|rest| rest.strip_suffix('/')).unwrap_or(text);
    match number.parse::<u32>() {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err(format!("{text:?} is not a rate such as 5000/{unit}")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn quota(readings: u32, new: u32, sensors: u32) -> Quota {
        Quota {
            readings_per_second: Some(readings),
            new_sensors_per_hour: Some(new),
            sensors: Some(sensors),
            databases: None,
        }
    }

    #[test]
    fn the_rate_limits_readings_over_time() {
        let usage = Usage::new("token", "t", quota(100, 1, 1));
        let start = Instant::now();
        let mut admitted = 0;
        for millisecond in 0..60_000 {
            let now = start + Duration::from_millis(millisecond);
            if usage.admit(now).is_ok() {
                admitted += 37;
                usage.charge(37, now);
            }
        }
        // The readings of a minute, a burst, and the request that made the balance negative.
        assert!((6_000..=6_000 + 500 + 37).contains(&admitted), "{admitted}");
    }

    #[test]
    fn errors_state_the_time_to_retry() {
        let usage = Usage::new("token", "plant-7", quota(100, 2, 2));
        let now = Instant::now();
        assert!(usage.charge(300, now).is_none(), "at 60 %");
        let warned = usage.charge(100, now).unwrap();
        assert!(warned.to_string().contains("token plant-7 (100 readings per second) is 80 % used"), "{warned}");
        usage.charge(1100, now);
        let refused = usage.admit(now).unwrap_err();
        assert!((9..=10).contains(&refused.retry_after.as_secs()), "{:?}", refused.retry_after);
        assert!(usage.admit(now + refused.retry_after + Duration::from_millis(10)).is_ok());
        usage.take_new_sensor(now).unwrap();
        usage.take_new_sensor(now).unwrap();
        let refused = usage.take_new_sensor(now).unwrap_err();
        assert!((1790..=1800).contains(&refused.retry_after.as_secs()), "{:?}", refused.retry_after);
        usage.refund_new_sensor();
        usage.take_new_sensor(now).unwrap();
    }

    #[test]
    fn counted_sensors_stay_admitted_at_the_limit() {
        let usage = Usage::new("token", "t", quota(1, 1, 2));
        for key in ["m,s=1", "m,s=2", "m,s=1", "m,s=2"] {
            usage.admit_sensor(key).unwrap();
        }
        assert!(usage.admit_sensor("m,s=3").is_err() && usage.sensors_left().is_err());
        usage.admit_sensor("m,s=2").unwrap();
        assert!(usage.sensors_warning(None, Instant::now()).is_some());
    }

    /// Regression: without a seed, a sender could compute keys that a quota of sensors counted as one.
    #[test]
    fn hashes_of_sensors_are_seeded() {
        let hashes = || {
            let usage = Usage::new("token", "t", quota(1, 1, 1));
            usage.admit_sensor("m,s=1").unwrap();
            usage.sensors.into_inner().into_iter().collect::<Vec<u64>>()
        };
        assert_ne!(hashes(), hashes());
    }

    #[test]
    fn the_last_part_is_for_those_with_little() {
        assert_eq!([share(160, 80, true), share(160, 81, true), share(160, 160, false)], [160, 150, 160]);
    }

    #[test]
    fn rates_are_parsed() {
        assert_eq!(parse_rate("5000/s", "s"), Ok(5000));
        assert_eq!(parse_rate("100", "h"), Ok(100));
        for wrong in ["0/s", "-1/s", "5000/m", "x/s", "", "/s"] {
            assert!(parse_rate(wrong, "s").is_err(), "{wrong}");
        }
    }
}
