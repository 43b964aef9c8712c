//! Kinds of sensors: configured schemas of readings and metadata (`[[kinds]]`).
//!
//! The kind of a sensor is the one that its metadata names (`kind`), or else the one of its measurement. Readings and
//! metadata are checked when they are admitted, and never again.

mod schema;
mod unique;
mod units;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

pub use self::schema::{Fault, Schema};
pub use self::unique::{UniqueValue, UniqueValues};
pub use self::units::units_of;

use crate::bucket::Meta;
use crate::bucket::summary::distribution::{BOUNDS_MAX, FieldBounds, are_bounds};
use crate::reading::duration::{DURATION_UNITS, parse_duration};
use crate::reading::value::RawValue;
use crate::reading::{Reason, Sensor};

/// The metadata key that names a sensor's kind.
pub const KIND: &str = "kind";
/// The number of expected intervals without a reading after which a sensor is silent.
pub const SILENT_INTERVALS: u32 = 3;
/// The maximum number of fields with bounds of a kind.
const BUCKET_FIELDS_MAX: usize = 16;

/// The treatment of readings and metadata that violate their kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindAction {
    /// Keep them, with a warning.
    #[default]
    Warn,
    /// Reject them.
    Reject,
}

/// A configured kind.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    pub name: String,
    /// The measurement whose sensors have this kind, unless their metadata names another one.
    pub measurement: Option<String>,
    #[serde(default)]
    pub action: KindAction,
    /// The schema of each reading.
    pub fields: Option<Schema>,
    /// The schema of metadata.
    pub meta: Option<Schema>,
    /// Metadata paths whose value at most one sensor of the kind has in a database.
    #[serde(default)]
    pub unique: Vec<String>,
    /// Units by field.
    #[serde(default)]
    pub units: BTreeMap<String, String>,
    /// Ascending bounds by field, by which summaries count the field's numbers.
    #[serde(default, deserialize_with = "buckets")]
    pub buckets: FieldBounds,
    /// The expected maximum time between two readings. `None` is unlimited.
    #[serde(default, deserialize_with = "interval")]
    pub interval: Option<Duration>,
    /// Create indexes on the kind's metadata in the store.
    #[serde(default)]
    pub index: bool,
}

/// Deserializes an interval such as `1m`.
fn interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let from_milliseconds = &DURATION_UNITS[4..];
    match parse_duration(&text, from_milliseconds) {
        Ok(nanoseconds) if nanoseconds > 0 => Ok(Some(Duration::from_nanos(nanoseconds.unsigned_abs()))),
        _ => Err(D::Error::custom(format_args!("interval = {text:?} is not a duration such as \"1m\""))),
    }
}

/// Deserializes bounds by field.
fn buckets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FieldBounds, D::Error> {
    let fields = BTreeMap::<String, Vec<f64>>::deserialize(deserializer)?;
    if fields.len() > BUCKET_FIELDS_MAX {
        return Err(D::Error::custom(format_args!("buckets has more than {BUCKET_FIELDS_MAX} fields")));
    }
    if let Some((name, _)) = fields.iter().find(|(_, bounds)| !are_bounds(bounds)) {
        return Err(D::Error::custom(format_args!(
            "buckets.{name} is not a list of 1 to {BOUNDS_MAX} finite, ascending numbers"
        )));
    }
    Ok(FieldBounds::new(fields.into_iter().map(|(name, bounds)| (name.into(), bounds.into()))))
}

/// All kinds, in the order of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds(Arc<[Arc<Kind>]>);

/// A violation of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindFault {
    pub kind: String,
    pub fault: Fault,
}

impl KindFault {
    /// Hides the invalid value.
    #[must_use]
    pub fn without_value(mut self) -> Self {
        "is not as it must be".clone_into(&mut self.fault.description);
        self
    }
}

impl fmt::Display for KindFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (kind {})", self.fault, self.kind)
    }
}

impl From<KindFault> for Reason {
    fn from(KindFault { kind, fault: Fault { name, description } }: KindFault) -> Self {
        Self::Kind { kind: kind.into(), field: name.into(), what: description.into() }
    }
}

impl Kind {
    /// Returns the time without readings after which a sensor of this kind counts as silent.
    #[must_use]
    pub fn silent_after(&self) -> Option<Duration> {
        self.interval.map(|interval| interval * SILENT_INTERVALS)
    }

    /// Returns true if MongoDB has validators or indexes for this kind.
    #[must_use]
    pub fn is_checked_in_store(&self) -> bool {
        let has_schema = self.fields.is_some() || self.meta.is_some();
        has_schema && self.action == KindAction::Reject || !self.unique.is_empty()
    }

    /// Returns the violation of a reading, if there is one.
    pub fn fault_of_reading<'v, 'a: 'v>(
        &self,
        fields: impl Iterator<Item = (&'v str, &'v RawValue<'a>)> + Clone,
    ) -> Option<KindFault> {
        let fault = self.fields.as_ref()?.fault_of_reading(fields)?;
        Some(KindFault { kind: self.name.clone(), fault })
    }

    fn fault_of_meta(&self, values: &Map<String, Value>) -> Option<KindFault> {
        let fault = self.meta.as_ref()?.fault_of_meta(values)?;
        Some(KindFault { kind: self.name.clone(), fault })
    }
}

impl Kinds {
    #[must_use]
    pub fn new(kinds: Vec<Kind>) -> Self {
        Self(kinds.into_iter().map(Arc::new).collect())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over all kinds.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter()
    }

    /// Returns the index of a sensor's kind. `json` is the sensor's metadata value of [`KIND`]. Without it, the
    /// measurement decides. `stored` is the stored name of the sensor, not the shown one.
    #[must_use]
    pub fn index_of(&self, stored: &Sensor, json: Option<&str>) -> Option<usize> {
        let name = json.and_then(|json| serde_json::from_str::<String>(json).ok());
        match name {
            Some(name) => self.0.iter().position(|kind| kind.name == name),
            None => self.0.iter().position(|kind| kind.measurement.as_deref() == Some(&*stored.measurement)),
        }
    }

    /// Returns the kind at an index of [`Kinds::index_of`].
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<Kind>> {
        self.0.get(index)
    }

    /// Returns true if some kind has an interval, so that its sensors can be silent.
    #[must_use]
    pub fn have_intervals(&self) -> bool {
        self.all().any(|kind| kind.interval.is_some())
    }

    /// Returns the kind of a sensor with this metadata.
    #[must_use]
    pub fn kind_of(&self, stored: &Sensor, meta: &Meta) -> Option<&Arc<Kind>> {
        if self.is_empty() {
            return None;
        }
        self.get(self.index_of(stored, meta.get(KIND).map(|json| &**json))?)
    }

    /// Returns the kind of a sensor with these metadata values.
    fn kind_of_values(&self, stored: &Sensor, values: &Map<String, Value>) -> Option<&Arc<Kind>> {
        let json = values.get(KIND).map(Value::to_string);
        self.get(self.index_of(stored, json.as_deref())?)
    }

    /// Checks metadata after an update. Returns the violation and its treatment. Accepts everything if the metadata
    /// before the update was invalid too, so that it can be fixed step by step.
    #[must_use]
    pub fn check_meta(
        &self,
        stored: &Sensor,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Option<(KindFault, KindAction)> {
        let kind = self.kind_of_values(stored, after)?;
        let fault = kind.fault_of_meta(after)?;
        let fault_before = self.kind_of_values(stored, before).and_then(|kind| kind.fault_of_meta(before));
        let was_wrong = !before.is_empty() && fault_before.is_some();
        (!was_wrong).then_some((fault, kind.action))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds() -> Kinds {
        let kind = |name: &str, measurement: Option<&str>, meta: Value| Kind {
            name: name.to_owned(),
            measurement: measurement.map(str::to_owned),
            action: KindAction::Reject,
            fields: None,
            meta: Some(Schema::parse(&meta).unwrap()),
            unique: Vec::new(),
            units: BTreeMap::new(),
            buckets: FieldBounds::default(),
            interval: Some(Duration::from_secs(60)),
            index: false,
        };
        let site = json!({"required": ["site"], "properties": {"site": {"type": "string"}}});
        Kinds::new(vec![
            kind("thermometer", Some("climate"), site),
            kind("meter", None, json!({"required": ["owner"]})),
        ])
    }

    #[test]
    fn metadata_or_the_measurement_determines_the_kind() {
        let kinds = kinds();
        let sensor = Sensor::new("climate", [("s", "1")]).unwrap();
        let name = |sensor: &Sensor, json: Option<&str>| {
            kinds.index_of(sensor, json).and_then(|index| kinds.get(index)).map(|kind| kind.name.clone())
        };
        assert_eq!(name(&sensor, None).as_deref(), Some("thermometer"));
        assert_eq!(name(&sensor, Some("\"meter\"")).as_deref(), Some("meter"));
        assert_eq!(name(&sensor, Some("\"other\"")), None, "an unknown kind in metadata wins too");
        assert_eq!(name(&Sensor::new("m", [("s", "1")]).unwrap(), None), None);
    }

    #[test]
    fn metadata_that_was_invalid_before_is_accepted() {
        let kinds = kinds();
        let sensor = Sensor::new("climate", [("s", "1")]).unwrap();
        let fault = |before: Value, after: Value| {
            let fault = kinds.check_meta(&sensor, before.as_object().unwrap(), after.as_object().unwrap());
            fault.map(|(fault, _)| fault.to_string())
        };
        assert_eq!(fault(json!({}), json!({"site": "lab"})), None);
        assert_eq!(fault(json!({}), json!({"x": 1})).as_deref(), Some("site is missing (kind thermometer)"));
        assert_eq!(
            fault(json!({"site": "lab"}), json!({"site": 3})).as_deref().map(|text| &text[..9]),
            Some("site is 3")
        );
        assert_eq!(fault(json!({"x": 1}), json!({"x": 2})), None, "it was invalid before");
        let other_kind = fault(json!({"site": "lab"}), json!({"site": "lab", "kind": "meter"}));
        assert_eq!(other_kind.as_deref(), Some("owner is missing (kind meter)"));
    }
}
