//! Schemas of readings and metadata: a subset of [JSON Schema](https://json-schema.org) with the keywords `type`,
//! `required`, `enum`, `minimum`, `maximum`, `pattern` and `properties`. There are no references, so a schema is a
//! tree. Patterns have the syntax of RE2, and match in linear time.

use std::collections::BTreeMap;
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::reading::value::RawValue;

/// Maximum number of levels of a schema.
const DEPTH_MAX: usize = 8;
/// Maximum number of names and of alternatives in one level.
const NAMES_MAX: usize = 256;
/// Maximum bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 256;
/// Maximum bytes of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 64 << 10;
/// Maximum number of characters of a value that a fault shows.
const SHOWN_CHARS_MAX: usize = 60;

/// A schema of a value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct Schema {
    /// The JSON of the schema.
    source: Value,
    types: Vec<&'static str>,
    one_of: Option<Vec<Value>>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    pattern: Option<Regex>,
    required: Vec<String>,
    properties: BTreeMap<String, Schema>,
}

/// The types of JSON Schema.
const TYPES: [&str; 7] = ["null", "boolean", "integer", "number", "string", "array", "object"];

/// A value of a reading or of metadata.
#[derive(Debug, Clone, Copy, PartialEq)]
enum AnyValue<'a> {
    Null,
    Boolean(bool),
    /// A signed or unsigned integer of 64 bits.
    Integer(i128),
    Float(f64),
    Text(&'a str),
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
}

/// A violation of a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the value, with dots between levels. Empty for the outermost value.
    pub name: String,
    /// The value and the violated rule, such as `is 61, above the maximum 60`.
    pub description: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.name.is_empty() { "the value" } else { &self.name }, self.description)
    }
}

/// Schemas are equal if their JSON is.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Schema {}

impl TryFrom<Value> for Schema {
    type Error = String;

    fn try_from(json: Value) -> Result<Self, String> {
        Self::parse(&json)
    }
}

impl Schema {
    /// Parses a schema from JSON.
    ///
    /// # Errors
    /// The fault, and its place in the schema.
    pub fn parse(json: &Value) -> Result<Self, String> {
        Self::parse_level("the schema", json, DEPTH_MAX)
    }

    /// Returns the JSON of the schema.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.source
    }

    /// Parses a level of at most `depth` levels. `location` is its name in errors.
    fn parse_level(location: &str, json: &Value, depth: usize) -> Result<Self, String> {
        let object = json.as_object().ok_or_else(|| format!("{location} is not a table"))?;
        if depth == 0 {
            return Err(format!("{location} nests deeper than {DEPTH_MAX} levels"));
        }
        let mut schema = Self { source: json.clone(), ..Self::default() };
        for (keyword, value) in object {
            let wrong = |expected: &str| format!("{location}: {keyword} is not {expected}");
            match keyword.as_str() {
                "type" => {
                    schema.types = types(value).ok_or_else(|| wrong("a type of JSON Schema, or a list of them"))?
                }
                "enum" => {
                    let values = value.as_array().filter(|values| (1..=NAMES_MAX).contains(&values.len()));
                    schema.one_of = Some(values.ok_or_else(|| wrong("a list of 1 to 256 values"))?.clone());
                }
                "minimum" => schema.minimum = Some(value.as_f64().ok_or_else(|| wrong("a number"))?),
                "maximum" => schema.maximum = Some(value.as_f64().ok_or_else(|| wrong("a number"))?),
                "pattern" => {
                    let text = value.as_str().filter(|text| text.len() <= PATTERN_BYTES_MAX);
                    let text = text.ok_or_else(|| wrong("a text of at most 256 bytes"))?;
                    let pattern = RegexBuilder::new(text)
                        .size_limit(COMPILED_BYTES_MAX)
                        .dfa_size_limit(COMPILED_BYTES_MAX)
                        .build();
                    schema.pattern = Some(pattern.map_err(|error| format!("{location}: pattern: {error}"))?);
                }
                "required" => {
                    let names = value.as_array().filter(|names| names.len() <= NAMES_MAX);
                    let names =
                        names.and_then(|names| names.iter().map(|name| Some(name.as_str()?.to_owned())).collect());
                    schema.required = names.ok_or_else(|| wrong("a list of at most 256 names"))?;
                }
                "properties" => {
                    let properties = value.as_object().filter(|properties| properties.len() <= NAMES_MAX);
                    for (name, property) in properties.ok_or_else(|| wrong("a table of at most 256 names"))? {
                        let location = format!("{location}.properties.{name}");
                        schema.properties.insert(name.clone(), Self::parse_level(&location, property, depth - 1)?);
                    }
                }
                _ => {
                    return Err(format!(
                        "{location}: {keyword} is not supported; only type, required, enum, minimum, maximum, pattern and properties are"
                    ));
                }
            }
        }
        Ok(schema)
    }

    /// Returns the first violation in metadata, if there is one.
    #[must_use]
    pub fn fault_of_meta(&self, values: &Map<String, Value>) -> Option<Fault> {
        self.fault("", AnyValue::Object(values))
    }

    /// Returns the first violation in a reading, if there is one.
    pub fn fault_of_reading<'v, 'a: 'v>(
        &self,
        mut fields: impl Iterator<Item = (&'v str, &'v RawValue<'a>)> + Clone,
    ) -> Option<Fault> {
        let has_field = |wanted: &String| fields.clone().any(|(name, _)| name == wanted);
        if let Some(name) = self.required.iter().find(|name| !has_field(name)) {
            return Some(missing(name.clone()));
        }
        fields.find_map(|(name, value)| self.properties.get(name)?.fault(name, value.into()))
    }

    fn fault(&self, name: &str, value: AnyValue<'_>) -> Option<Fault> {
        let fault = |description: String| Some(Fault { name: name.to_owned(), description });
        if !self.types.is_empty() && !self.types.iter().any(|type_name| value.has_type(type_name)) {
            return fault(format!("is {value}, not of the type {}", self.types.join(" or ")));
        }
        if self.one_of.as_ref().is_some_and(|allowed| !allowed.iter().any(|allowed| value.equals(allowed))) {
            return fault(format!("is {value}, none of the allowed values"));
        }
        if let Some(number) = value.number() {
            if let Some(minimum) = self.minimum.filter(|minimum| number < *minimum) {
                return fault(format!("is {value}, below the minimum {minimum}"));
            }
            if let Some(maximum) = self.maximum.filter(|maximum| number > *maximum) {
                return fault(format!("is {value}, above the maximum {maximum}"));
            }
        }
        if let (AnyValue::Text(text), Some(pattern)) = (value, &self.pattern)
            && !pattern.is_match(text)
        {
            return fault(format!("is {value}, which does not match {}", pattern.as_str()));
        }
        let AnyValue::Object(object) = value else { return None };
        let full_name = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}.{inner}") };
        if let Some(inner) = self.required.iter().find(|inner| !object.contains_key(*inner)) {
            return Some(missing(full_name(inner)));
        }
        self.properties.iter().find_map(|(inner, schema)| schema.fault(&full_name(inner), object.get(inner)?.into()))
    }
}

fn missing(name: String) -> Fault {
    Fault { name, description: "is missing".to_owned() }
}

fn types(value: &Value) -> Option<Vec<&'static str>> {
    let known = |name: &Value| TYPES.into_iter().find(|known| name == known);
    match value {
        Value::String(_) => Some(vec![known(value)?]),
        Value::Array(names) if !names.is_empty() => names.iter().map(known).collect(),
        _ => None,
    }
}

impl<'v> From<&'v RawValue<'_>> for AnyValue<'v> {
    fn from(value: &'v RawValue<'_>) -> Self {
        match value {
            RawValue::Float(number) => Self::Float(*number),
            RawValue::Integer(number) => Self::Integer(i128::from(*number)),
            RawValue::Unsigned(number) => Self::Integer(i128::from(*number)),
            RawValue::Boolean(is_true) => Self::Boolean(*is_true),
            RawValue::String(text) => Self::Text(text),
        }
    }
}

impl<'v> From<&'v Value> for AnyValue<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(is_true) => Self::Boolean(*is_true),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => Self::Integer(i128::from(whole)),
                None => Self::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Self::Text(text),
            Value::Array(values) => Self::Array(values),
            Value::Object(object) => Self::Object(object),
        }
    }
}

impl AnyValue<'_> {
    /// Returns true if the value has a type of JSON Schema. A float without a fraction is an integer too.
    fn has_type(self, name: &str) -> bool {
        match self {
            Self::Null => name == "null",
            Self::Boolean(_) => name == "boolean",
            Self::Integer(_) => matches!(name, "integer" | "number"),
            Self::Float(number) => name == "number" || name == "integer" && number.fract() == 0.0,
            Self::Text(_) => name == "string",
            Self::Array(_) => name == "array",
            Self::Object(_) => name == "object",
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "bounds are doubles")]
    fn number(self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            _ => None,
        }
    }

    fn equals(self, other: &Value) -> bool {
        let other = AnyValue::from(other);
        match (self, other) {
            (Self::Integer(_), AnyValue::Float(_)) | (Self::Float(_), AnyValue::Integer(_)) => {
                self.number() == other.number()
            }
            _ => self == other,
        }
    }
}

impl fmt::Display for AnyValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(is_true) => write!(f, "{is_true}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => {
                let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
                write!(f, "{shown:?}{}", if shown.len() < text.len() { "…" } else { "" })
            }
            Self::Array(_) => f.write_str("a list"),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(schema: &Value, values: &Value) -> Option<String> {
        let schema = Schema::parse(schema).unwrap();
        schema.fault_of_meta(values.as_object().unwrap()).map(|fault| fault.to_string())
    }

    #[test]
    fn keywords_work_as_in_json_schema() {
        let schema_of_x = |schema: Value| json!({"properties": {"x": schema}});
        for (schema, good, bad, why) in [
            (json!({"type": "number"}), json!(1.5), json!("1"), r#"x is "1", not of the type number"#),
            (json!({"type": ["integer", "null"]}), json!(2.0), json!(2.5), "x is 2.5, not of the type integer or null"),
            (json!({"enum": ["a", 1]}), json!(1.0), json!("b"), r#"x is "b", none of the allowed values"#),
            (json!({"minimum": -1}), json!(-1), json!(-1.5), "x is -1.5, below the minimum -1"),
            (json!({"maximum": 60}), json!("a text"), json!(61), "x is 61, above the maximum 60"),
            (json!({"pattern": "^[a-z]+$"}), json!(7), json!("A"), r#"x is "A", which does not match ^[a-z]+$"#),
            (json!({"required": ["y"]}), json!({"y": null}), json!({}), "x.y is missing"),
        ] {
            let with_x = schema_of_x(schema.clone());
            assert_eq!(fault(&with_x, &json!({"x": good})), None, "{schema}");
            assert_eq!(fault(&with_x, &json!({"x": bad})).as_deref(), Some(why), "{schema}");
            assert_eq!(fault(&with_x, &json!({"other": bad})), None, "{schema}");
        }
        assert_eq!(fault(&json!({"required": ["site"]}), &json!({})).as_deref(), Some("site is missing"));
    }

    #[test]
    fn readings_are_checked_by_their_fields() {
        let schema = json!({"required": ["temp"], "properties": {"temp": {"type": "number", "maximum": 60}}});
        let schema = Schema::parse(&schema).unwrap();
        let fault = |fields: &[(&str, RawValue<'_>)]| {
            schema.fault_of_reading(fields.iter().map(|(name, value)| (*name, value))).map(|fault| fault.to_string())
        };
        assert_eq!(fault(&[("temp", RawValue::Integer(60)), ("other", RawValue::Boolean(true))]), None);
        assert_eq!(
            fault(&[("temp", RawValue::Unsigned(u64::MAX))]).as_deref(),
            Some("temp is 18446744073709551615, above the maximum 60")
        );
        assert_eq!(fault(&[("other", RawValue::Float(1.0))]).as_deref(), Some("temp is missing"));
    }

    #[test]
    fn unsupported_schemas_are_rejected() {
        for (schema, why) in [
            (json!({"$ref": "#/x"}), "$ref is not supported"),
            (json!({"properties": {"x": {"format": "date"}}}), "the schema.properties.x: format is not supported"),
            (json!({"type": "text"}), "type is not a type"),
            (json!({"properties": {"x": {"pattern": "("}}}), "pattern"),
            (json!({"pattern": "x".repeat(300)}), "at most 256 bytes"),
            (json!({"pattern": "(\\w{100}){100}"}), "pattern"),
            (json!([]), "not a table"),
        ] {
            let refused = Schema::parse(&schema).unwrap_err();
            assert!(refused.contains(why), "{schema}: {refused}");
        }
        let mut deep = json!({"type": "number"});
        for _ in 0..9 {
            deep = json!({"properties": {"x": deep}});
        }
        assert!(Schema::parse(&deep).unwrap_err().contains("deeper than 8"));
    }
}
