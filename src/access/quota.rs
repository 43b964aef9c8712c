//! Quotas of tokens and databases: readings per second, new sensors per hour, sensors in total. A request is admitted
//! while anything is left of the quota, and is charged afterwards for all it held. So no request is admitted in part;
//! after a large one the balance is negative, and later requests wait until it is positive again.

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rapidhash::fast::RandomState;
use serde::{Deserialize, Serialize};

/// A burst may use this many seconds' worth of readings at once.
const BURST_SECONDS: f64 = 5.0;
/// From this used share on, the sender gets a warning.
const WARN_FROM: f64 = 0.8;
const HOUR: f64 = 3600.0;

/// The limits of a quota; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Readings per second, with bursts of a few seconds' worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readings_per_second: Option<u32>,
    /// Sensors per hour that are new to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_sensors_per_hour: Option<u32>,
    /// Sensors in total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensors: Option<u32>,
    /// Databases in the token's scopes, up to which it may bring new ones into being. A database has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databases: Option<u32>,
}

impl Quota {
    /// Whether it limits nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a limit applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    Readings,
    NewSensors,
    Sensors,
    Databases,
}

impl Rate {
    /// The metric label.
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
    /// The used share; above 1 when the balance is negative.
    pub used: f64,
    /// The time until something is left again.
    pub retry_after: Duration,
}

impl Exhausted {
    /// The quota in words.
    #[must_use]
    pub fn bound(&self) -> String {
        format!("the quota of {} ({} {})", self.owner, self.limit, self.rate.words())
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.used {
            used if used < 1.0 => write!(f, "{} is {:.0} % used", self.bound(), used * 100.0),
            _ => write!(f, "{} is used up", self.bound()),
        }
    }
}

/// The usage of a quota since the process started.
#[derive(Debug)]
pub struct Usage {
    /// For display.
    pub owner: String,
    /// The metric label: `token` or `database`.
    pub scope: &'static str,
    pub quota: Quota,
    readings: Option<Mutex<TokenBucket>>,
    new_sensors: Option<Mutex<TokenBucket>>,
    /// Hashes of the sensors written so far; never more than the quota allows. The seed is random, so that nobody can
    /// compute keys that count as one.
    sensors: Mutex<HashSet<u64, RandomState>>,
}

impl Usage {
    /// Nothing used yet. The scope is a metric label: `token` or `database`.
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
        }
    }

    /// A copy, for a dry run: what is charged to it is charged to nobody.
    #[must_use]
    pub fn copy(&self) -> Self {
        let bucket = |of: &Option<Mutex<TokenBucket>>| of.as_ref().map(|of| Mutex::new(of.lock().clone()));
        Self {
            owner: self.owner.clone(),
            scope: self.scope,
            quota: self.quota,
            readings: bucket(&self.readings),
            new_sensors: bucket(&self.new_sensors),
            sensors: Mutex::new(self.sensors.lock().clone()),
        }
    }

    /// Checks that readings may be admitted now.
    ///
    /// # Errors
    /// When earlier readings have used up the quota.
    pub fn admit(&self, now: Instant) -> Result<(), Exhausted> {
        let (Some(bucket), Some(limit)) = (&self.readings, self.quota.readings_per_second) else { return Ok(()) };
        let mut bucket = bucket.lock();
        bucket.refill(now);
        if bucket.left > 0.0 {
            return Ok(());
        }
        Err(self.exhausted(Rate::Readings, limit, 1.0, bucket.until(0.0)))
    }

    /// Charges for admitted readings; returns a warning when little is left.
    pub fn charge(&self, readings: usize, now: Instant) -> Option<Exhausted> {
        let (bucket, limit) = (self.readings.as_ref()?, self.quota.readings_per_second?);
        let mut bucket = bucket.lock();
        bucket.refill(now);
        bucket.left -= as_f64(readings);
        (bucket.used() >= WARN_FROM).then(|| self.exhausted(Rate::Readings, limit, bucket.used(), bucket.until(0.0)))
    }

    /// Charges for one new sensor.
    ///
    /// # Errors
    /// When the hour's quota is used up.
    pub fn take_new_sensor(&self, now: Instant) -> Result<(), Exhausted> {
        self.new_sensor(now, 1.0)
    }

    /// Checks that a new sensor would be admitted now.
    ///
    /// # Errors
    /// When the hour's quota is used up.
    pub fn new_sensors_left(&self, now: Instant) -> Result<(), Exhausted> {
        self.new_sensor(now, 0.0)
    }

    /// Charges `take` (1 or 0) if at least one new sensor is left.
    fn new_sensor(&self, now: Instant, take: f64) -> Result<(), Exhausted> {
        let (Some(bucket), Some(limit)) = (&self.new_sensors, self.quota.new_sensors_per_hour) else { return Ok(()) };
        let mut bucket = bucket.lock();
        bucket.refill(now);
        if bucket.left < 1.0 {
            return Err(self.exhausted(Rate::NewSensors, limit, 1.0, bucket.until(1.0)));
        }
        bucket.left -= take;
        Ok(())
    }

    /// Refunds one new sensor that was charged but not created.
    pub fn give_back(&self) {
        if let Some(bucket) = &self.new_sensors {
            let mut bucket = bucket.lock();
            bucket.left = (bucket.left + 1.0).min(bucket.size);
        }
    }

    /// Counts this sensor as one of the owner's; those counted first stay admitted.
    ///
    /// # Errors
    /// When the sensor is not counted yet and the limit is reached.
    pub fn admit_sensor(&self, key: &str) -> Result<(), Exhausted> {
        let Some(limit) = self.quota.sensors else { return Ok(()) };
        let mut sensors = self.sensors.lock();
        let hash = sensors.hasher().hash_one(key);
        if sensors.contains(&hash) {
            return Ok(());
        }
        if sensors.len() >= limit as usize {
            return Err(self.exhausted(Rate::Sensors, limit, 1.0, Duration::ZERO));
        }
        sensors.insert(hash);
        Ok(())
    }

    /// Checks that one more sensor can be counted here.
    ///
    /// # Errors
    /// When the limit is reached.
    pub fn sensors_left(&self) -> Result<(), Exhausted> {
        let count = self.sensors.lock().len();
        self.too_many(count).map_or(Ok(()), Err)
    }

    /// A warning when a quota of sensors is nearly used up. `known` is the owner's number of sensors if the caller
    /// counts them; else those counted here apply.
    #[must_use]
    pub fn sensors_warning(&self, known: Option<usize>, now: Instant) -> Option<Exhausted> {
        if let Some(limit) = self.quota.sensors {
            let count = known.unwrap_or_else(|| self.sensors.lock().len());
            let used = as_f64(count) / f64::from(limit.max(1));
            if used >= WARN_FROM {
                return Some(self.exhausted(Rate::Sensors, limit, used, Duration::ZERO));
            }
        }
        let (bucket, limit) = (self.new_sensors.as_ref()?, self.quota.new_sensors_per_hour?);
        let mut bucket = bucket.lock();
        bucket.refill(now);
        (bucket.used() >= WARN_FROM).then(|| self.exhausted(Rate::NewSensors, limit, bucket.used(), bucket.until(1.0)))
    }

    /// An error if `known` sensors, counted by the caller, reach the limit.
    #[must_use]
    pub fn too_many(&self, known: usize) -> Option<Exhausted> {
        let limit = self.quota.sensors?;
        (known >= limit as usize).then(|| self.exhausted(Rate::Sensors, limit, 1.0, Duration::ZERO))
    }

    fn exhausted(&self, rate: Rate, limit: u32, used: f64, retry_after: Duration) -> Exhausted {
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

    fn used(&self) -> f64 {
        if self.size > 0.0 { 1.0 - self.left / self.size } else { 1.0 }
    }

    /// The time until so much is left.
    fn until(&self, wanted: f64) -> Duration {
        let seconds = (wanted - self.left).max(0.0) / self.per_second.max(f64::MIN_POSITIVE);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// The usage that a request is charged to, if its sender has a quota.
pub type Allowance = Option<Arc<Usage>>;

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Parses a rate such as `5000/s` or `100/h`; the unit may be missing.
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
    fn over_time_no_more_comes_in_than_the_rate_says() {
        let usage = Usage::new("token", "t", quota(100, 1, 1));
        let start = Instant::now();
        let mut let_in = 0;
        for millisecond in 0..60_000 {
            let now = start + Duration::from_millis(millisecond);
            if usage.admit(now).is_ok() {
                let_in += 37;
                usage.charge(37, now);
            }
        }
        // A minute's worth, one burst, and the request that made the balance negative.
        assert!((6_000..=6_000 + 500 + 37).contains(&let_in), "{let_in}");
    }

    #[test]
    fn whoever_is_over_is_told_when_to_come_back() {
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
        usage.give_back();
        usage.take_new_sensor(now).unwrap();
    }

    #[test]
    fn the_first_sensors_stay_welcome_when_others_are_refused() {
        let usage = Usage::new("token", "t", quota(1, 1, 2));
        for key in ["m,s=1", "m,s=2", "m,s=1", "m,s=2"] {
            usage.admit_sensor(key).unwrap();
        }
        assert!(usage.admit_sensor("m,s=3").is_err() && usage.sensors_left().is_err());
        usage.admit_sensor("m,s=2").unwrap();
        assert!(usage.sensors_warning(None, Instant::now()).is_some());
    }

    /// The hash had no seed, so anybody could compute keys that a quota of sensors takes for one.
    #[test]
    fn which_keys_count_as_one_cannot_be_computed() {
        let hashes = || {
            let usage = Usage::new("token", "t", quota(1, 1, 1));
            usage.admit_sensor("m,s=1").unwrap();
            usage.sensors.into_inner().into_iter().collect::<Vec<u64>>()
        };
        assert_ne!(hashes(), hashes());
    }

    #[test]
    fn rates_are_read_as_they_are_written() {
        assert_eq!(parse_rate("5000/s", "s"), Ok(5000));
        assert_eq!(parse_rate("100", "h"), Ok(100));
        for wrong in ["0/s", "-1/s", "5000/m", "x/s", "", "/s"] {
            assert!(parse_rate(wrong, "s").is_err(), "{wrong}");
        }
    }
}
