//! Units of fields: those in the metadata of a sensor, or else those of its kind.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Kind;
use crate::bucket::Meta;
use crate::reading::Family;

/// The metadata key of an object with units by field.
const UNITS: &str = "units";
/// The metadata key of the unit of a sensor that has only one field with numbers.
const UNIT: &str = "unit";

/// Returns the units of a sensor by field. `units` of the metadata wins over those of the kind, and these over `unit`.
#[must_use]
pub fn units_of<'a>(
    kind: Option<&Kind>,
    meta: &Meta,
    fields: impl Iterator<Item = (&'a str, Family)>,
) -> BTreeMap<String, String> {
    let mut units = BTreeMap::new();
    if let Some(Value::String(unit)) = value(meta, UNIT) {
        let mut numbers = fields.filter(|(_, family)| *family == Family::Number);
        if let (Some((field, _)), None) = (numbers.next(), numbers.next()) {
            units.insert(field.to_owned(), unit);
        }
    }
    if let Some(kind) = kind {
        units.extend(kind.units.clone());
    }
    if let Some(Value::Object(by_field)) = value(meta, UNITS) {
        units.extend(texts(by_field));
    }
    units
}

fn value(meta: &Meta, name: &str) -> Option<Value> {
    serde_json::from_str(meta.get(name)?).ok()
}

fn texts(values: Map<String, Value>) -> impl Iterator<Item = (String, String)> {
    values.into_iter().filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, text)),
        _ => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::reading::Stamp;

    fn meta(values: &Value) -> Meta {
        let values = values.as_object().unwrap().iter();
        let values = values.map(|(name, value)| (name.as_str().into(), Some(value.to_string().into())));
        Meta::change(Stamp::MAX, false, values)
    }

    fn units(kind: Option<&Kind>, values: &Value, fields: &[(&str, Family)]) -> Value {
        json!(units_of(kind, &meta(values), fields.iter().copied()))
    }

    #[test]
    fn the_unit_of_a_sensor_belongs_to_its_only_number() {
        let unit = json!({ "unit": "°C" });
        let text = ("mode", Family::String);
        assert_eq!(units(None, &unit, &[text, ("temp", Family::Number)]), json!({ "temp": "°C" }));
        assert_eq!(units(None, &unit, &[("dew", Family::Number), ("temp", Family::Number)]), json!({}));
        assert_eq!(units(None, &json!({ "unit": 5 }), &[("temp", Family::Number)]), json!({}));
    }

    #[test]
    fn metadata_wins_over_the_kind() {
        let kind: Kind =
            serde_json::from_value(json!({ "name": "k", "units": { "temp": "°C", "humidity": "%" } })).unwrap();
        let values = json!({ "unit": "K", "units": { "temp": "°F", "load": 3 } });
        let found = units(Some(&kind), &values, &[("load", Family::Number)]);
        assert_eq!(found, json!({ "temp": "°F", "humidity": "%", "load": "K" }));
    }
}
