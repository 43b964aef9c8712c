//! A requested metadata update: applies it to present values, and makes the change for the WAL.

use serde_json::{Map, Value};

use crate::buffer::record::meta::MetaChange;
use crate::reading::Sensor;

/// The approximate memory of a JSON value in bytes, without its text.
const VALUE_BYTES: usize = 100;

/// A requested update of a sensor's metadata.
#[derive(Debug, Clone, PartialEq)]
pub enum MetaUpdate {
    /// Replaces all values.
    Put(Map<String, Value>),
    /// Merges a JSON merge patch (RFC 7396) into the present values: `null` removes a key.
    Patch(Map<String, Value>),
}

impl MetaUpdate {
    /// Returns the approximate bytes of memory.
    pub(super) fn memory(&self) -> usize {
        let (Self::Put(values) | Self::Patch(values)) = self;
        VALUE_BYTES + memory(values)
    }

    /// Returns true for an empty patch, which changes nothing.
    pub(super) fn is_empty_patch(&self) -> bool {
        matches!(self, Self::Patch(patch) if patch.is_empty())
    }

    /// Returns the values after the update.
    pub(super) fn apply_to(&self, values: &Map<String, Value>) -> Map<String, Value> {
        match self {
            // As a merge patch into an empty object, because an import file could not restore a null.
            Self::Put(wanted) => {
                let set = wanted.iter().filter(|(_, value)| !value.is_null());
                set.map(|(name, value)| (name.clone(), storable(value))).collect()
            }
            Self::Patch(patch) => {
                let mut after = values.clone();
                merge_patch(&mut after, patch);
                after
            }
        }
    }

    /// Returns the change from `before` to `after`. With `all`, it also names requested keys whose values stay the
    /// same.
    pub(super) fn change(
        &self,
        sensor: &Sensor,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
        all: bool,
    ) -> MetaChange {
        let (Self::Put(wanted) | Self::Patch(wanted)) = self;
        let replaces = matches!(self, Self::Put(_));
        let is_included = |name: &str| replaces || all || before.get(name) != after.get(name);
        let value = |name: &str| after.get(name).map(|value| value.to_string().into());
        let names = wanted.keys().filter(|name| is_included(name));
        let values = names.map(|name| (name.as_str().into(), value(name))).collect();
        MetaChange { sensor: sensor.clone(), replaces, values }
    }
}

/// Applies a JSON merge patch (RFC 7396).
fn merge_patch(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => drop(target.remove(name)),
            Value::Object(inner) => {
                let held = target.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !held.is_object() {
                    *held = Value::Object(Map::new());
                }
                if let Value::Object(held) = held {
                    merge_patch(held, inner);
                }
            }
            other => drop(target.insert(name.clone(), storable(other))),
        }
    }
}

/// Converts a value to the form that stores return: a number outside of the signed 64-bit integers becomes a double.
fn storable(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            number.as_f64().and_then(serde_json::Number::from_f64).map_or(Value::Null, Value::Number)
        }
        Value::Array(values) => Value::Array(values.iter().map(storable).collect()),
        Value::Object(values) => {
            Value::Object(values.iter().map(|(name, value)| (name.clone(), storable(value))).collect())
        }
        other => other.clone(),
    }
}

fn memory(values: &Map<String, Value>) -> usize {
    values.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
}

fn value_bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(value_bytes).sum(),
            Value::Object(values) => memory(values),
            _ => 0,
        }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn map(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    /// The examples of RFC 7396, appendix A, whose targets and patches are objects.
    #[test]
    fn patches_follow_rfc_7396() {
        for (target, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let after = MetaUpdate::Patch(map(patch)).apply_to(&map(target));
            assert_eq!(after, map(expected), "{target} {patch}");
        }
    }

    #[test]
    fn a_patch_logs_differences_and_a_replacement_all_values() {
        let sensor = Sensor::new("m", [("s", "1")]).unwrap();
        let before = map(r#"{"a":1,"b":2,"c":3}"#);
        let patch = MetaUpdate::Patch(map(r#"{"a":1,"b":null,"d":18446744073709551615}"#));
        let after = patch.apply_to(&before);
        let change = patch.change(&sensor, &before, &after, false);
        let values: Vec<(&str, Option<&str>)> =
            change.values.iter().map(|(name, value)| (&**name, value.as_deref())).collect();
        assert_eq!(values, [("b", None), ("d", Some("1.8446744073709552e+19"))]);
        let put = MetaUpdate::Put(map(r#"{"a":{"z":1,"b":2}}"#));
        let change = put.change(&sensor, &before, &put.apply_to(&before), false);
        assert!(change.replaces);
        assert_eq!(change.values[0].1.as_deref(), Some(r#"{"b":2,"z":1}"#), "keys of objects are sorted");
    }
}
