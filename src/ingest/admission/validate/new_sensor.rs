//! Determines the reason for which a request may not write or add a sensor.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use super::{ValidatedBody, Validator};
use crate::access::Caller;
use crate::catalog::SensorsRead;
use crate::ingest::admission::write_policy::pin_violation;
use crate::reading::{Reason, Sensor};

/// Maximum number of measurements per request for which a rejection names the widest tag.
const WIDEST_TAGS_MAX: usize = 8;

impl Validator<'_> {
    /// Returns the reason to reject a new sensor.
    pub(super) fn rejection_reason(&mut self, new: &Sensor) -> Reason {
        let stored = self.renames.as_ref().and_then(|renames| renames.stored_candidates(new).pop());
        if let Some(reason) = pin_violation(self.caller, self.renames.as_ref(), stored.as_ref().unwrap_or(new)) {
            return reason;
        }
        let is_for_measurement = |reason: &&Reason| matches!(reason, Reason::TooManySensors { measurement, .. } if **measurement == *new.measurement);
        if let Some(reason) = self.full.iter().find(is_for_measurement) {
            return reason.clone();
        }
        let now = Instant::now();
        let database = self.database;
        // Check the quotas again instead of remembering the result of the lookup, so that the response reports the
        // present state.
        let exhausted =
            database.usage.too_many(database.sensor_count()).or_else(|| database.usage.new_sensors_left(now).err());
        let exhausted = exhausted.or_else(|| {
            let allowance = self.caller.allowance()?;
            allowance.sensors_left().err().or_else(|| allowance.new_sensors_left(now).err())
        });
        let full = self.catalog.limit_for_sensor(Some(database), self.caller.allowance().map(|usage| &**usage), new);
        let bound = match (&full, &exhausted) {
            (Some(limit), _) => limit.clone(),
            (None, Some(exhausted)) => exhausted.bound(),
            // Another sensor was deleted in the meantime, so the limit is no longer reached.
            (None, None) => format!("the limit of {} sensors (limits.sensors)", self.options.limits.sensors),
        };
        self.validated.exhausted = exhausted.filter(|_| full.is_none());
        let is_copy = !std::ptr::eq(database.original(), &**database);
        let original_sensors = is_copy.then(|| database.original().sensors());
        let sensors = match &original_sensors {
            Some(sensors) => sensors,
            None => &*self.sensors.get_or_insert_with(|| database.sensors()),
        };
        let measurement = new.measurement.to_string();
        // `widest_tag` visits many sensors, so limit the number of calls per request.
        if self.full.len() >= WIDEST_TAGS_MAX {
            return Reason::TooManySensors { measurement, widest_tag: None, bound };
        }
        let widest_tag = widest_tag(sensors, self.caller, new);
        let reason = Reason::TooManySensors { measurement, widest_tag, bound };
        self.full.push(reason.clone());
        reason
    }
}

/// Returns the reason to reject a known sensor that exceeds the caller's quota of sensors, and notes the quota.
pub(super) fn sensor_quota_violation(
    caller: &Caller,
    sensor: &Sensor,
    validated: &mut ValidatedBody,
) -> Option<Reason> {
    let exhausted = caller.allowance()?.admit_sensor(&sensor.key).err()?;
    let measurement = sensor.measurement.to_string();
    let bound = exhausted.bound();
    validated.exhausted = Some(exhausted);
    Some(Reason::TooManySensors { measurement, widest_tag: None, bound })
}

/// Returns the tag of the measurement with the most values in a sample of sensors. It is usually the tag that should be
/// a field.
fn widest_tag(sensors: &SensorsRead<'_>, caller: &Caller, new: &Sensor) -> Option<String> {
    const SAMPLE_SENSORS: usize = 2000;
    let mut values: HashMap<&str, HashSet<&str>> = HashMap::new();
    let visible = sensors.values().take(SAMPLE_SENSORS).filter(|known| {
        // Do not reveal sensors that the caller may not write.
        known.sensor.measurement == new.measurement && pin_violation(caller, None, &known.sensor).is_none()
    });
    let tags = visible.flat_map(|known| known.sensor.tags.iter()).chain(new.tags.iter());
    for (key, value) in tags {
        values.entry(&**key).or_default().insert(&**value);
    }
    let widest = values.into_iter().max_by_key(|(key, values)| (values.len(), std::cmp::Reverse(*key)));
    widest.map(|(key, _)| key.to_owned())
}
