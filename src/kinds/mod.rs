//! Kinds of sensors: what their readings and their metadata must be, as the configuration says (`[[kinds]]`).
//!
//! A sensor is of the kind that its metadata names (`kind`), else of the one that has its measurement. What is admitted is
//! final, so a kind is asked when readings and metadata come in, and never again.

mod schema;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

pub use self::schema::{Fault, Schema};

use crate::bucket::Meta;
use crate::reading::duration::{DURATION_UNITS, parse_duration};
use crate::reading::value::RawValue;
use crate::reading::{Reason, Sensor};

/// The name of metadata that names a sensor's kind.
pub const KIND: &str = "kind";
/// After so many expected intervals without a reading a sensor is silent.
const INTERVALS: u32 = 3;

/// What happens to what is not as its kind says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KindAction {
    /// It is kept, with a warning.
    #[default]
    Warn,
    /// It is rejected.
    Reject,
}

/// One kind, as the configuration has it.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    pub name: String,
    /// Sensors of this measurement are of this kind if their metadata names none.
    pub measurement: Option<String>,
    #[serde(default)]
    pub action: KindAction,
    /// Of each reading.
    pub fields: Option<Schema>,
    /// Of metadata.
    pub meta: Option<Schema>,
    /// By field.
    #[serde(default)]
    pub units: BTreeMap<String, String>,
    /// The longest time between two readings; `None` if any is right.
    #[serde(default, deserialize_with = "interval")]
    pub interval: Option<Duration>,
    /// Whether the store has indexes of them.
    #[serde(default)]
    pub index: bool,
}

/// Reads an interval such as `1m`.
fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    let from_milliseconds = &DURATION_UNITS[4..];
    match parse_duration(&text, from_milliseconds) {
        Ok(nanoseconds) if nanoseconds > 0 => Ok(Some(Duration::from_nanos(nanoseconds.unsigned_abs()))),
        _ => Err(D::Error::custom(format_args!("interval = {text:?} is no duration such as \"1m\""))),
    }
}

/// All kinds, in the order of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kinds(Arc<[Arc<Kind>]>);

/// What is not as its kind says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindFault {
    pub kind: String,
    pub fault: Fault,
}

impl KindFault {
    /// The same without the value that is wrong.
    #[must_use]
    pub fn without_value(mut self) -> Self {
        "is not as it must be".clone_into(&mut self.fault.what);
        self
    }
}

impl fmt::Display for KindFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (kind {})", self.fault, self.kind)
    }
}

impl From<KindFault> for Reason {
    fn from(KindFault { kind, fault: Fault { name, what } }: KindFault) -> Self {
        Self::Kind { kind: kind.into(), field: name.into(), what: what.into() }
    }
}

impl Kind {
    /// How long a sensor of this kind may send nothing before it counts as silent.
    #[must_use]
    pub fn silent_after(&self) -> Option<Duration> {
        self.interval.map(|interval| interval * INTERVALS)
    }

    /// What is wrong with a reading, if anything.
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

    /// All kinds.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.0.iter()
    }

    /// The place of the kind of a sensor whose metadata has this JSON under [`KIND`]: the one named there, else that of its measurement.
    /// Goes by the stored name of the sensor, whatever it is shown as.
    #[must_use]
    pub fn place(&self, stored: &Sensor, named: Option<&str>) -> Option<usize> {
        let name = named.and_then(|json| serde_json::from_str::<String>(json).ok());
        match name {
            Some(name) => self.0.iter().position(|kind| kind.name == name),
            None => self.0.iter().position(|kind| kind.measurement.as_deref() == Some(&*stored.measurement)),
        }
    }

    /// The kind at a place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Arc<Kind>> {
        self.0.get(place)
    }

    /// Whether sensors of a kind can be silent.
    #[must_use]
    pub fn have_intervals(&self) -> bool {
        self.all().any(|kind| kind.interval.is_some())
    }

    /// The kind of a sensor with this metadata, as [`Kinds::place`] says.
    #[must_use]
    pub fn of(&self, stored: &Sensor, meta: &Meta) -> Option<&Arc<Kind>> {
        if self.is_empty() {
            return None;
        }
        self.at(self.place(stored, meta.get(KIND).map(|json| &**json))?)
    }

    /// What is wrong with metadata as it would be, and what happens then. Nothing, if what there was is wrong already: what is
    /// there stays, and may be mended step by step.
    #[must_use]
    pub fn judge_meta(
        &self,
        stored: &Sensor,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Option<(KindFault, KindAction)> {
        let of = |values: &Map<String, Value>| {
            let named = values.get(KIND).map(Value::to_string);
            self.at(self.place(stored, named.as_deref())?)
        };
        let kind = of(after)?;
        let fault = kind.fault_of_meta(after)?;
        let was_wrong = !before.is_empty() && of(before).is_some_and(|kind| kind.fault_of_meta(before).is_some());
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
            units: BTreeMap::new(),
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
    fn metadata_names_the_kind_or_the_measurement_does() {
        let (kinds, sensor) = (kinds(), Sensor::new("climate", [("s", "1")]).unwrap());
        let name = |sensor: &Sensor, named: Option<&str>| {
            kinds.place(sensor, named).and_then(|place| kinds.at(place)).map(|kind| kind.name.clone())
        };
        assert_eq!(name(&sensor, None).as_deref(), Some("thermometer"));
        assert_eq!(name(&sensor, Some("\"meter\"")).as_deref(), Some("meter"));
        assert_eq!(name(&sensor, Some("\"other\"")), None, "metadata wins, whatever it names");
        assert_eq!(name(&Sensor::new("m", [("s", "1")]).unwrap(), None), None);
    }

    #[test]
    fn what_was_wrong_before_may_stay() {
        let (kinds, sensor) = (kinds(), Sensor::new("climate", [("s", "1")]).unwrap());
        let judged = |before: Value, after: Value| {
            let fault = kinds.judge_meta(&sensor, before.as_object().unwrap(), after.as_object().unwrap());
            fault.map(|(fault, _)| fault.to_string())
        };
        assert_eq!(judged(json!({}), json!({"site": "lab"})), None);
        assert_eq!(judged(json!({}), json!({"x": 1})).as_deref(), Some("site is missing (kind thermometer)"));
        assert_eq!(
            judged(json!({"site": "lab"}), json!({"site": 3})).as_deref().map(|text| &text[..9]),
            Some("site is 3")
        );
        assert_eq!(judged(json!({"x": 1}), json!({"x": 2})), None, "it was wrong before");
        let other_kind = judged(json!({"site": "lab"}), json!({"site": "lab", "kind": "meter"}));
        assert_eq!(other_kind.as_deref(), Some("owner is missing (kind meter)"));
    }
}
