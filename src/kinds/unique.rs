//! Metadata whose value at most one sensor of a kind has (`unique`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Fault, Kind, KindFault, Kinds};
use crate::reading::Sensor;

/// One value of `unique` metadata: equal for values that a unique index of MongoDB takes as equal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UniqueValue {
    pub path: String,
    /// The canonical JSON of the value.
    json: String,
}

/// The `unique` values of one sensor.
#[derive(Debug)]
pub struct UniqueValues {
    pub kind: Arc<Kind>,
    pub values: BTreeMap<UniqueValue, Value>,
}

impl UniqueValues {
    /// Returns the values of `self` at those paths whose values differ from `before`.
    #[must_use]
    pub fn changed(&self, before: Option<&Self>) -> Vec<(&UniqueValue, &Value)> {
        let before = before.filter(|before| before.kind.name == self.kind.name);
        let at_path = |values: Option<&Self>, path: &str| -> Vec<UniqueValue> {
            let values = values.into_iter().flat_map(|values| values.values.keys());
            values.filter(|value| value.path == path).cloned().collect()
        };
        let is_changed = |path: &str| at_path(Some(self), path) != at_path(before, path);
        self.values.iter().filter(|(value, _)| is_changed(&value.path)).collect()
    }

    /// Returns the violation of a value that another sensor has. `owner` is its key, or `None` if the caller must not
    /// learn it.
    #[must_use]
    pub fn fault(&self, path: &str, owner: Option<&str>) -> KindFault {
        let description = match owner {
            Some(owner) => format!("is the same as that of {owner}, but it is unique"),
            None => "is the same as that of another sensor, but it is unique".to_owned(),
        };
        KindFault { kind: self.kind.name.clone(), fault: Fault { name: path.to_owned(), description } }
    }
}

impl Kinds {
    /// Returns the `unique` values in the metadata of a sensor, or `None` if its kind has none. Each element of an array
    /// counts.
    #[must_use]
    pub fn unique_values(&self, stored: &Sensor, meta: &Map<String, Value>) -> Option<UniqueValues> {
        if self.all().all(|kind| kind.unique.is_empty()) {
            return None;
        }
        let kind = self.kind_of_values(stored, meta).filter(|kind| !kind.unique.is_empty())?.clone();
        let mut values = BTreeMap::new();
        for path in &kind.unique {
            let parts: Vec<&str> = path.split('.').collect();
            let Some(value) = meta.get(parts[0]) else { continue };
            collect(value, &parts[1..], &mut |value| {
                let json = canonical(value).to_string();
                values.insert(UniqueValue { path: path.clone(), json }, value.clone());
            });
        }
        Some(UniqueValues { kind, values })
    }
}

/// Passes the values at a path to `add`, in the same way as an index of MongoDB: elements of arrays, and the empty array
/// itself.
fn collect<'v>(value: &'v Value, path: &[&str], add: &mut impl FnMut(&'v Value)) {
    match (value, path) {
        (Value::Array(elements), []) if !elements.is_empty() => elements.iter().for_each(add),
        (value, []) => add(value),
        (Value::Object(object), [name, rest @ ..]) => {
            if let Some(inner) = object.get(*name) {
                collect(inner, rest, add);
            }
        }
        (Value::Array(elements), path) => {
            elements.iter().filter(|element| element.is_object()).for_each(|element| collect(element, path, add));
        }
        _ => {}
    }
}

/// Makes equal values the same: 3 and 3.0, 0.0 and -0.0.
fn canonical(value: &Value) -> Value {
    match value {
        // Without an exponent.
        Value::Number(number) if number.as_i64().is_none() => {
            let digits = (number.as_f64().unwrap_or_default() + 0.0).to_string();
            digits.parse().map_or_else(|_| value.clone(), |whole: i64| Value::from(whole))
        }
        Value::Array(elements) => Value::Array(elements.iter().map(canonical).collect()),
        Value::Object(object) => {
            Value::Object(object.iter().map(|(name, value)| (name.clone(), canonical(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_an_index() {
        let toml = "name = \"press\"\nmeasurement = \"m\"\nunique = [\"serial\", \"site.code\"]";
        let kinds = Kinds::new(vec![toml::from_str(toml).unwrap()]);
        let sensor = Sensor::new("m", [("s", "1")]).unwrap();
        let values = |meta: Value| -> Vec<(String, String)> {
            let found = kinds.unique_values(&sensor, meta.as_object().unwrap()).unwrap();
            found.values.into_keys().map(|value| (value.path, value.json)).collect()
        };
        let serial = |json: &str| vec![("serial".to_owned(), json.to_owned())];
        assert_eq!(values(json!({})), []);
        assert_eq!(values(json!({"serial": "A7", "site": "x"})), serial("\"A7\""));
        assert_eq!(values(json!({"serial": 3.0})), values(json!({"serial": [3, 3.0]})));
        assert_eq!(values(json!({"serial": -0.0})), serial("0"));
        assert_eq!(values(json!({"serial": []})), serial("[]"));
        assert_eq!(values(json!({"serial": {"a": [1.0]}})), serial("{\"a\":[1]}"));
        let codes = values(json!({"site": [{"code": 1}, {"code": "1"}, 7]}));
        assert_eq!(codes, [("site.code".to_owned(), "\"1\"".to_owned()), ("site.code".to_owned(), "1".to_owned())]);
        assert!(kinds.unique_values(&Sensor::new("n", [("s", "1")]).unwrap(), &Map::new()).is_none());
    }
}
