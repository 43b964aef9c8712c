//! Explains the outcome of validation for each point, for dry runs.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Tally, Validator, seeming_unit};
use crate::catalog::SensorFields;
use crate::kinds::KindFault;
use crate::reading::{Family, Rejection, Sensor, Value};
use crate::wire::Point;

/// Timestamps further ahead of now than this, in nanoseconds, are reported with a warning: a day, which is more than a
/// wrong time zone explains.
const AHEAD_MAX: i64 = 24 * 3600 * 1_000_000_000;

/// The expected outcome for one line of line protocol or one reading of a JSON array.
#[derive(Debug)]
pub struct ExplainedPoint {
    /// The line in the body, or the element of a JSON array, from 1.
    pub number: usize,
    /// The sensor, if it could be parsed.
    pub sensor: Option<Sensor>,
    /// The timestamp that would be stored, in nanoseconds. `None` if nothing would be stored.
    pub time: Option<i64>,
    /// True if the line has no timestamp.
    pub is_undated: bool,
    /// The fields as sent.
    pub fields: Vec<ExplainedField>,
    pub warnings: Vec<String>,
    pub rejections: Vec<Rejection>,
}

/// A field of a line.
#[derive(Debug)]
pub struct ExplainedField {
    pub name: String,
    pub value: Value,
    /// The family of the field, as stored or as defined by an earlier line. `None` for a new field.
    pub family: Option<Family>,
    /// True if the field would be kept.
    pub is_kept: bool,
}

/// The last line of each sensor and timestamp.
type LastLines = HashMap<(Box<str>, i64), usize>;

impl Validator<'_> {
    /// Validates a point as [`Validator::validate`] does, and explains the outcome.
    pub fn explain(&mut self, point: &Point<'_, '_>, last_lines: &mut LastLines) -> ExplainedPoint {
        let sensor = point.sensor(&self.limits).ok().map(std::borrow::Cow::into_owned);
        let before = sensor.as_ref().and_then(|sensor| self.current_fields(sensor));
        let accepted = self.validated.accepted;
        let suspect_units = self.validated.suspect_units.count;
        let drifted_values = self.validated.drifted_values.count;
        // Empty the tally, so that its first fault afterwards is the fault of this point.
        let earlier_faults = std::mem::take(&mut self.validated.kind_faults);
        self.validate(point);
        let Tally { count, first: fault } = std::mem::replace(&mut self.validated.kind_faults, earlier_faults);
        self.validated.kind_faults.count += count;
        if self.validated.kind_faults.first.is_none() {
            self.validated.kind_faults.first.clone_from(&fault);
        }
        let rejections = std::mem::take(&mut self.validated.rejected.reported);
        let time = (self.validated.accepted > accepted).then(|| self.last_time(sensor.as_ref())).flatten();
        let mut warnings = Vec::new();
        if let (Some(sensor), Some(time)) = (&sensor, time) {
            if let Some(line) = last_lines.insert((sensor.key.clone(), time), point.number) {
                warnings.push(format!(
                    "line {line} has the same sensor and timestamp: for fields in both, the later line wins"
                ));
            }
            let ahead = time.saturating_sub(self.pass.received);
            if ahead > AHEAD_MAX {
                warnings.push(format!("the timestamp is {} h ahead of now", ahead / 3_600_000_000_000));
            }
        }
        if self.validated.drifted_values.count > drifted_values {
            let count = self.validated.drifted_values.count - drifted_values;
            warnings.push(format!("{count} values of another type would be kept beside their fields (ingest.drift)"));
        }
        if let Some(KindFault { kind, fault }) = fault {
            warnings.push(format!("it is not as the kind {kind} says, because field {fault}"));
        }
        if self.validated.suspect_units.count > suspect_units {
            let unit = point.timestamp.and_then(|time| seeming_unit(time, self.pass.precision, self.pass.received));
            let unit = unit.unwrap_or_default();
            let declared = self.pass.precision.name();
            warnings.push(format!("the timestamp looks like {unit}, but {declared} was declared (precision=)"));
        }
        let field = |(name, value): &(std::borrow::Cow<'_, str>, crate::reading::value::RawValue<'_>)| ExplainedField {
            name: name.to_string(),
            value: value.clone().into_value(),
            family: before.as_ref().and_then(|fields| Some(fields.families[fields.find(name, usize::MAX)?])),
            is_kept: time.is_some() && !rejections.iter().any(|rejection| rejection.reason.field() == Some(name)),
        };
        let fields = point.fields.iter().map(field).collect();
        let is_undated = point.timestamp.is_none();
        ExplainedPoint { number: point.number, sensor, time, is_undated, fields, warnings, rejections }
    }

    /// Explains a line that cannot be parsed.
    pub fn explain_rejected(&mut self, rejection: Rejection) -> ExplainedPoint {
        let number = rejection.line;
        self.reject(rejection);
        let rejections = std::mem::take(&mut self.validated.rejected.reported);
        ExplainedPoint {
            number,
            sensor: None,
            time: None,
            is_undated: false,
            fields: Vec::new(),
            warnings: Vec::new(),
            rejections,
        }
    }

    /// Returns the fields of a known sensor, including those that earlier lines have added.
    fn current_fields(&self, sensor: &Sensor) -> Option<Arc<SensorFields>> {
        let known = match &self.sensors {
            Some(sensors) => sensors.get(&sensor.key).cloned(),
            None => self.database.sensors().get(&sensor.key).cloned(),
        }?;
        let local = self.by_id.get(&known.id).map(|local| self.locals[*local].fields.clone());
        Some(local.unwrap_or_else(|| known.fields()))
    }

    /// Returns the timestamp of the last accepted reading, if the sensor has it.
    fn last_time(&self, sensor: Option<&Sensor>) -> Option<i64> {
        let known = &self.locals[self.order.last?].known;
        let is_last = sensor.is_some_and(|sensor| sensor.key == known.sensor.key);
        is_last.then(|| self.validated.batches[known.shard].last_time()).flatten()
    }
}
