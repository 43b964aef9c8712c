//! What validation makes of each point, for a dry run.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Validator, seeming_unit};
use crate::catalog::SensorFields;
use crate::kinds::KindFault;
use crate::reading::{Family, Rejection, Sensor, Value};
use crate::wire::Point;

/// Timestamps further ahead of now are worth a warning, in nanoseconds: more than any clock is off, or a zone.
const FAR_AHEAD: i64 = 24 * 3600 * 1_000_000_000;

/// What would become of a line or reading.
#[derive(Debug)]
pub struct ExplainedPoint {
    /// The line in the body, from 1; in a JSON array the element.
    pub number: usize,
    /// The sensor, if it could be parsed.
    pub sensor: Option<Sensor>,
    /// The timestamp that would be stored, in nanoseconds; `None` if nothing would be.
    pub time: Option<i64>,
    /// Whether the line has no timestamp.
    pub undated: bool,
    /// As sent.
    pub fields: Vec<ExplainedField>,
    pub warnings: Vec<String>,
    pub rejections: Vec<Rejection>,
}

/// A field of a line.
#[derive(Debug)]
pub struct ExplainedField {
    pub name: String,
    pub value: Value,
    /// The family of the sensor's field, known before or from an earlier line; `None` for a new field.
    pub known: Option<Family>,
    /// Whether the field would be kept.
    pub kept: bool,
}

/// The line of the body that each (sensor, timestamp) was on.
type Seen = HashMap<(Box<str>, i64), usize>;

impl Validator<'_> {
    /// Validates a point as [`Validator::point`] does, and says what came of it.
    pub fn explain(&mut self, point: &Point<'_, '_>, seen: &mut Seen) -> ExplainedPoint {
        let sensor = point.sensor(&self.limits).ok().map(std::borrow::Cow::into_owned);
        let before = sensor.as_ref().and_then(|sensor| self.fields_of(sensor));
        let (accepted, suspects) = (self.validated.accepted, self.validated.suspects.0);
        let drifted = self.validated.drifted.0;
        // The first fault is that of this point.
        let (unlike, first) = std::mem::take(&mut self.validated.unlike);
        self.point(point);
        let (more, fault) = std::mem::take(&mut self.validated.unlike);
        self.validated.unlike = (unlike + more, first.or_else(|| fault.clone()));
        let rejections = std::mem::take(&mut self.validated.rejected.told);
        let time = (self.validated.accepted > accepted).then(|| self.last_time(sensor.as_ref())).flatten();
        let mut warnings = Vec::new();
        if let (Some(sensor), Some(time)) = (&sensor, time) {
            if let Some(line) = seen.insert((sensor.key.clone(), time), point.number) {
                warnings.push(format!(
                    "line {line} has the same sensor and timestamp: field by field, the later line wins"
                ));
            }
            let ahead = time.saturating_sub(self.pass.received);
            if ahead > FAR_AHEAD {
                warnings.push(format!("the timestamp is {} h ahead of now", ahead / 3_600_000_000_000));
            }
        }
        if self.validated.drifted.0 > drifted {
            let count = self.validated.drifted.0 - drifted;
            warnings.push(format!("{count} values of another type would be kept beside their fields (ingest.drift)"));
        }
        if let Some(KindFault { kind, fault }) = fault {
            warnings.push(format!("it is not as the kind {kind} says, because field {fault}"));
        }
        if self.validated.suspects.0 > suspects {
            let unit = point.timestamp.and_then(|time| seeming_unit(time, self.pass.precision, self.pass.received));
            let (unit, declared) = (unit.unwrap_or_default(), self.pass.precision.name());
            warnings.push(format!("the timestamp looks like {unit}, but {declared} was declared (precision=)"));
        }
        let field = |(name, value): &(std::borrow::Cow<'_, str>, crate::reading::value::RawValue<'_>)| ExplainedField {
            name: name.to_string(),
            value: value.clone().into_value(),
            known: before.as_ref().and_then(|fields| Some(fields.families[fields.find(name, usize::MAX)?])),
            kept: time.is_some() && !rejections.iter().any(|rejection| rejection.reason.field() == Some(name)),
        };
        let (undated, number) = (point.timestamp.is_none(), point.number);
        let fields = point.fields.iter().map(field).collect();
        ExplainedPoint { number, sensor, time, undated, fields, warnings, rejections }
    }

    /// A line that is no point.
    pub fn explain_rejected(&mut self, rejection: Rejection) -> ExplainedPoint {
        let number = rejection.line;
        self.reject(rejection);
        let rejections = std::mem::take(&mut self.validated.rejected.told);
        ExplainedPoint {
            number,
            sensor: None,
            time: None,
            undated: false,
            fields: Vec::new(),
            warnings: Vec::new(),
            rejections,
        }
    }

    /// The fields of a sensor with those that earlier lines brought.
    fn fields_of(&self, sensor: &Sensor) -> Option<Arc<SensorFields>> {
        let known = match &self.sensors {
            Some(sensors) => sensors.get(&sensor.key).cloned(),
            None => self.database.sensors().get(&sensor.key).cloned(),
        }?;
        let local = self.by_id.get(&known.id).map(|local| self.locals[*local].fields.clone());
        Some(local.unwrap_or_else(|| known.fields()))
    }

    /// The timestamp of the last reading of a sensor that was accepted.
    fn last_time(&self, sensor: Option<&Sensor>) -> Option<i64> {
        let known = &self.locals[self.order.last?].known;
        let is_last = sensor.is_some_and(|sensor| sensor.key == known.sensor.key);
        is_last.then(|| self.validated.batches[known.shard].last_time()).flatten()
    }
}
