//! Determines why a request may not write a sensor or make it known.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::{ValidatedBody, Validator};
use crate::access::Caller;
use crate::catalog::SensorsRead;
use crate::ingest::admission::write_policy::barred;
use crate::reading::{Reason, Sensor};

/// Most measurements of a request for which the widest tag is determined when their sensors are refused.
const FULL_MAX: usize = 8;

impl Validator<'_> {
    /// Why a sensor may not become known.
    pub(super) fn refusal(&mut self, new: &Sensor) -> Reason {
        let stored = self.renames.as_ref().and_then(|renames| renames.written(new).pop());
        if let Some(reason) = barred(self.by, self.renames.as_ref(), stored.as_ref().unwrap_or(new)) {
            return reason;
        }
        let is_of = |reason: &&Reason| matches!(reason, Reason::TooManySensors { measurement, .. } if **measurement == *new.measurement);
        if let Some(reason) = self.full.iter().find(is_of) {
            return reason.clone();
        }
        let (now, database) = (Instant::now(), self.database);
        // Ask the quotas again instead of remembering why the lookup left the sensor out: the answer reports the
        // present state.
        let exhausted =
            database.usage.too_many(database.known()).or_else(|| database.usage.new_sensors_left(now).err());
        let by = self.by;
        let senders = || by.allowance()?.sensors_left().err().or_else(|| by.allowance()?.new_sensors_left(now).err());
        let exhausted = exhausted.or_else(senders);
        let full = self.catalog.limit_for_sensor(new);
        let bound = match (&full, &exhausted) {
            (Some(limit), _) => limit.clone(),
            (None, Some(exhausted)) => exhausted.bound(),
            // Another sensor was deleted meanwhile, and the limit is not reached any more.
            (None, None) => format!("the limit of {} sensors (limits.sensors)", self.options.limits.sensors),
        };
        self.validated.exhausted = exhausted.filter(|_| full.is_none());
        let original = std::ptr::eq(database.original(), &**database);
        let sensors_of_original = (!original).then(|| database.original().sensors());
        let sensors = match &sensors_of_original {
            Some(sensors) => sensors,
            None => &*self.sensors.get_or_insert_with(|| database.sensors()),
        };
        // `widest_tag` walks many sensors, so it is done for few measurements per request.
        let widest_tag = (self.full.len() < FULL_MAX).then(|| widest_tag(sensors, self.by, new)).flatten();
        let reason = Reason::TooManySensors { measurement: new.measurement.to_string(), widest_tag, bound };
        if self.full.len() < FULL_MAX {
            self.full.push(reason.clone());
        }
        reason
    }
}

/// Why a known sensor exceeds the sender's quota of sensors, if it does.
pub(super) fn one_too_many(by: &Caller, sensor: &Sensor, validated: &mut ValidatedBody) -> Option<Reason> {
    let exhausted = by.allowance()?.admit_sensor(&sensor.key).err()?;
    let (measurement, bound) = (sensor.measurement.to_string(), exhausted.bound());
    validated.exhausted = Some(exhausted);
    Some(Reason::TooManySensors { measurement, widest_tag: None, bound })
}

/// The tag of a measurement with the most values, among a sample of its sensors: usually the one that should be a
/// field.
fn widest_tag(sensors: &SensorsRead<'_>, by: &Caller, new: &Sensor) -> Option<String> {
    const LOOKED_AT: usize = 2000;
    let mut values: HashMap<&str, HashSet<&str>> = HashMap::new();
    let of_measurement = sensors.values().take(LOOKED_AT).filter(|known| {
        // Sensors that the sender may not write are not revealed.
        known.sensor.measurement == new.measurement && barred(by, None, &known.sensor).is_none()
    });
    let tags = of_measurement.flat_map(|known| known.sensor.tags.iter()).chain(new.tags.iter());
    for (key, value) in tags {
        values.entry(&**key).or_default().insert(&**value);
    }
    let widest = values.into_iter().max_by_key(|(key, values)| (values.len(), std::cmp::Reverse(*key)));
    widest.map(|(key, _)| key.to_owned())
}
