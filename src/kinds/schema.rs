//! What the values of a kind of sensor must be: the keywords `type`, `required`, `enum`, `minimum`, `maximum`, `pattern` and
//! `properties` of JSON Schema, and no others. No references, so that a schema is a tree; patterns in RE2's syntax, which
//! takes linear time.

use std::collections::BTreeMap;
use std::fmt;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::reading::value::RawValue;

/// Most levels of a schema.
const DEPTH_MAX: usize = 8;
/// Most names and most alternatives of one level.
const NAMES_MAX: usize = 256;
/// Most bytes of a pattern, and of what it is compiled to.
const PATTERN_BYTES: usize = 256;
const PATTERN_SIZE: usize = 64 << 10;
/// Characters of a value that a fault shows.
const SHOWN_CHARS: usize = 60;

/// What a value must be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Value")]
pub struct Schema {
    /// As it was written.
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
enum Judged<'a> {
    Null,
    Boolean(bool),
    /// With its nearest double.
    Integer(i128),
    Float(f64),
    Text(&'a str),
    Array(&'a [Value]),
    Object(&'a Map<String, Value>),
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The name of the value, with dots between levels; empty for the whole.
    pub name: String,
    /// What it is, and what it must be.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.name.is_empty() { "the whole" } else { &self.name }, self.what)
    }
}

/// Schemas are equal if they were written alike.
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
    /// A schema out of its JSON.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(json: &Value) -> Result<Self, String> {
        Self::at("the schema", json, DEPTH_MAX)
    }

    fn at(place: &str, json: &Value, depth: usize) -> Result<Self, String> {
        let object = json.as_object().ok_or_else(|| format!("{place} is not a table"))?;
        if depth == 0 {
            return Err(format!("{place} nests deeper than {DEPTH_MAX} levels"));
        }
        let mut schema = Self { source: json.clone(), ..Self::default() };
        for (keyword, value) in object {
            let wrong = |what: &str| format!("{place}: {keyword} is not {what}");
            match keyword.as_str() {
                "type" => {
                    schema.types = types(value).ok_or_else(|| wrong("a type of JSON Schema, or a list of them"))?
                }
                "enum" => {
                    let values = value.as_array().filter(|of| (1..=NAMES_MAX).contains(&of.len()));
                    schema.one_of = Some(values.ok_or_else(|| wrong("a list of 1 to 256 values"))?.clone());
                }
                "minimum" => schema.minimum = Some(value.as_f64().ok_or_else(|| wrong("a number"))?),
                "maximum" => schema.maximum = Some(value.as_f64().ok_or_else(|| wrong("a number"))?),
                "pattern" => {
                    let text = value.as_str().filter(|text| text.len() <= PATTERN_BYTES);
                    let text = text.ok_or_else(|| wrong("a text of at most 256 bytes"))?;
                    let pattern = RegexBuilder::new(text).size_limit(PATTERN_SIZE).dfa_size_limit(PATTERN_SIZE).build();
                    schema.pattern = Some(pattern.map_err(|error| format!("{place}: pattern: {error}"))?);
                }
                "required" => {
                    let names = value.as_array().filter(|names| names.len() <= NAMES_MAX);
                    let names =
                        names.and_then(|names| names.iter().map(|name| Some(name.as_str()?.to_owned())).collect());
                    schema.required = names.ok_or_else(|| wrong("a list of at most 256 names"))?;
                }
                "properties" => {
                    let properties = value.as_object().filter(|of| of.len() <= NAMES_MAX);
                    for (name, of) in properties.ok_or_else(|| wrong("a table of at most 256 names"))? {
                        let place = format!("{place}.properties.{name}");
                        schema.properties.insert(name.clone(), Self::at(&place, of, depth - 1)?);
                    }
                }
                _ => {
                    return Err(format!(
                        "{place}: {keyword} is not supported; only type, required, enum, minimum, maximum, pattern and properties are"
                    ));
                }
            }
        }
        Ok(schema)
    }

    /// What is wrong with metadata, if anything.
    #[must_use]
    pub fn fault_of_meta(&self, values: &Map<String, Value>) -> Option<Fault> {
        self.fault("", Judged::Object(values))
    }

    /// What is wrong with a reading, if anything.
    pub fn fault_of_reading<'v, 'a: 'v>(
        &self,
        mut fields: impl Iterator<Item = (&'v str, &'v RawValue<'a>)> + Clone,
    ) -> Option<Fault> {
        let has = |name: &String| fields.clone().any(|(of, _)| of == name);
        if let Some(name) = self.required.iter().find(|name| !has(name)) {
            return Some(missing(name.clone()));
        }
        fields.find_map(|(name, value)| self.properties.get(name)?.fault(name, judged(value)))
    }

    fn fault(&self, name: &str, value: Judged<'_>) -> Option<Fault> {
        let fault = |what: String| Some(Fault { name: name.to_owned(), what });
        if !self.types.is_empty() && !self.types.iter().any(|of| value.is(of)) {
            return fault(format!("is {value}, not of the type {}", self.types.join(" or ")));
        }
        if self.one_of.as_ref().is_some_and(|values| !values.iter().any(|one| value.equals(one))) {
            return fault(format!("is {value}, none of the values that it may have"));
        }
        if let Some(number) = value.number() {
            if let Some(least) = self.minimum.filter(|least| number < *least) {
                return fault(format!("is {value}, below the minimum {least}"));
            }
            if let Some(most) = self.maximum.filter(|most| number > *most) {
                return fault(format!("is {value}, above the maximum {most}"));
            }
        }
        if let (Judged::Text(text), Some(pattern)) = (value, &self.pattern)
            && !pattern.is_match(text)
        {
            return fault(format!("is {value}, which does not match {}", pattern.as_str()));
        }
        let Judged::Object(object) = value else { return None };
        let within = |inner: &str| if name.is_empty() { inner.to_owned() } else { format!("{name}.{inner}") };
        if let Some(inner) = self.required.iter().find(|inner| !object.contains_key(*inner)) {
            return Some(missing(within(inner)));
        }
        self.properties.iter().find_map(|(inner, schema)| schema.fault(&within(inner), of_json(object.get(inner)?)))
    }
}

fn missing(name: String) -> Fault {
    Fault { name, what: "is missing".to_owned() }
}

fn types(value: &Value) -> Option<Vec<&'static str>> {
    let known = |name: &Value| TYPES.into_iter().find(|of| name == of);
    match value {
        Value::String(_) => Some(vec![known(value)?]),
        Value::Array(names) if !names.is_empty() => names.iter().map(known).collect(),
        _ => None,
    }
}

fn judged<'v>(value: &'v RawValue<'_>) -> Judged<'v> {
    match value {
        RawValue::Float(number) => Judged::Float(*number),
        RawValue::Integer(number) => Judged::Integer(i128::from(*number)),
        RawValue::Unsigned(number) => Judged::Integer(i128::from(*number)),
        RawValue::Boolean(is_true) => Judged::Boolean(*is_true),
        RawValue::String(text) => Judged::Text(text),
    }
}

fn of_json(value: &Value) -> Judged<'_> {
    match value {
        Value::Null => Judged::Null,
        Value::Bool(is_true) => Judged::Boolean(*is_true),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Judged::Integer(i128::from(whole)),
            None => Judged::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Judged::Text(text),
        Value::Array(values) => Judged::Array(values),
        Value::Object(object) => Judged::Object(object),
    }
}

impl Judged<'_> {
    /// As in JSON Schema, a float without a fraction is an integer, too.
    fn is(self, of: &str) -> bool {
        match self {
            Self::Null => of == "null",
            Self::Boolean(_) => of == "boolean",
            Self::Integer(_) => matches!(of, "integer" | "number"),
            Self::Float(number) => of == "number" || of == "integer" && number.fract() == 0.0,
            Self::Text(_) => of == "string",
            Self::Array(_) => of == "array",
            Self::Object(_) => of == "object",
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
        match (self, of_json(other)) {
            (one @ Self::Integer(_), other @ Judged::Float(_)) | (one @ Self::Float(_), other @ Judged::Integer(_)) => {
                one.number() == other.number()
            }
            (one, other) => one == other,
        }
    }
}

impl fmt::Display for Judged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(is_true) => write!(f, "{is_true}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number}"),
            Self::Text(text) => {
                let shown: String = text.chars().take(SHOWN_CHARS).collect();
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
    fn each_keyword_says_what_it_says_in_json_schema() {
        let of = |schema: Value| json!({"properties": {"x": schema}});
        for (schema, good, bad, why) in [
            (json!({"type": "number"}), json!(1.5), json!("1"), r#"x is "1", not of the type number"#),
            (json!({"type": ["integer", "null"]}), json!(2.0), json!(2.5), "x is 2.5, not of the type integer or null"),
            (json!({"enum": ["a", 1]}), json!(1.0), json!("b"), r#"x is "b", none of the values that it may have"#),
            (json!({"minimum": -1}), json!(-1), json!(-1.5), "x is -1.5, below the minimum -1"),
            (json!({"maximum": 60}), json!("a text"), json!(61), "x is 61, above the maximum 60"),
            (json!({"pattern": "^[a-z]+$"}), json!(7), json!("A"), r#"x is "A", which does not match ^[a-z]+$"#),
            (json!({"required": ["y"]}), json!({"y": null}), json!({}), "x.y is missing"),
        ] {
            assert_eq!(fault(&of(schema.clone()), &json!({"x": good})), None, "{schema}");
            assert_eq!(fault(&of(schema.clone()), &json!({"x": bad})).as_deref(), Some(why), "{schema}");
            assert_eq!(fault(&of(schema.clone()), &json!({"other": bad})), None, "{schema}");
        }
        assert_eq!(fault(&json!({"required": ["site"]}), &json!({})).as_deref(), Some("site is missing"));
    }

    #[test]
    fn readings_are_judged_by_their_fields() {
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
    fn a_schema_that_says_more_is_refused() {
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
