//! Validators of MongoDB from the schemas of kinds.

use bson::{Bson, Document, doc};
use serde_json::Value;

use super::EXEMPT;
use crate::bucket::{KindRule, KindRules};
use crate::document::{SENSOR_KIND, to_bson};
use crate::names::key;

/// Parts of patterns that PCRE may understand in another way than RE2. Such patterns are checked at admission only.
const UNPORTABLE: [&str; 6] = ["\\", "(?", "[[", "&&", "--", "~~"];

/// Returns the validator of sensors: the documents conform to `base`, and their metadata to the schema of their kind.
pub fn of_sensors(base: Document, kinds: &KindRules) -> Document {
    combine(base, kinds, |rule| Some(doc! { "meta": translate(rule.checks.meta.as_ref()?) }))
}

/// Returns the validator of pages: the documents conform to `base`, and the summaries to the schema of their kind.
pub fn of_pages(base: Document, kinds: &KindRules) -> Document {
    combine(base, kinds, |rule| Some(doc! { "summary": summary_schema(rule.checks.fields.as_ref()?) }))
}

/// Adds the schema of each kind that rejects. `properties` returns the schemas of fields of its documents.
fn combine(base: Document, kinds: &KindRules, properties: impl Fn(&KindRule) -> Option<Document>) -> Document {
    let base = doc! { "$jsonSchema": base };
    let rejecting = kinds.all().filter(|rule| rule.checks.rejects);
    let clause = |rule: &KindRule| {
        let schema = doc! { "$jsonSchema": { "properties": properties(rule)? } };
        Some(doc! { "$or": [{ EXEMPT: true }, { SENSOR_KIND: { "$ne": &*rule.name } }, schema] })
    };
    let clauses: Vec<Document> = rejecting.filter_map(clause).collect();
    if clauses.is_empty() {
        return base;
    }
    doc! { "$and": std::iter::once(base).chain(clauses).collect::<Vec<_>>() }
}

/// Returns the schema of a page's summaries. Summaries exist for numeric fields only.
fn summary_schema(fields: &Value) -> Document {
    let members = fields["properties"].as_object().into_iter().flatten();
    let properties: Document = members
        .map(|(name, schema)| {
            let value = translate(schema);
            let figures: Document = ["min", "max", "first", "last"]
                .map(|name| (name.to_owned(), value.clone().into()))
                .into_iter()
                .collect();
            (key(name).into_owned(), doc! { "properties": figures }.into())
        })
        .collect();
    let is_numeric = |name: &str| matches!(fields["properties"][name]["type"].as_str(), Some("number" | "integer"));
    let mut schema = doc! { "properties": properties };
    put_required(&mut schema, names(fields).filter(|name| is_numeric(name)));
    schema
}

/// Returns the required names of a schema.
fn names(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn put_required<'a>(schema: &mut Document, names: impl Iterator<Item = &'a str>) {
    let names: std::collections::BTreeSet<_> = names.map(|name| key(name).into_owned()).collect();
    // MongoDB refuses an empty list.
    if !names.is_empty() {
        schema.insert("required", names.into_iter().collect::<Vec<_>>());
    }
}

/// Translates a schema of a kind.
fn translate(schema: &Value) -> Document {
    let mut translated = Document::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        match keyword.as_str() {
            "type" => {
                let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let types: Vec<Document> = names.iter().filter_map(Value::as_str).map(of_type).collect();
                translated.insert("anyOf", types);
            }
            "enum" => {
                let mut allowed: Vec<Bson> = Vec::new();
                for value in value.as_array().into_iter().flatten().filter_map(|value| to_bson("enum", value).ok()) {
                    // MongoDB refuses equal values, and 1 is equal to 1.0.
                    if !allowed.iter().any(|known| is_equal(known, &value)) {
                        allowed.push(value);
                    }
                }
                translated.insert("enum", allowed);
            }
            "minimum" | "maximum" => drop(translated.insert(keyword, value.as_f64().unwrap_or_default())),
            "pattern" => {
                let pattern = value.as_str().unwrap_or_default();
                if !UNPORTABLE.iter().any(|part| pattern.contains(part)) {
                    translated.insert("pattern", pattern);
                }
            }
            "required" => put_required(&mut translated, names(schema)),
            "properties" => {
                let members = value.as_object().into_iter().flatten();
                let properties: Document =
                    members.map(|(name, schema)| (key(name).into_owned(), translate(schema).into())).collect();
                translated.insert("properties", properties);
            }
            _ => {}
        }
    }
    translated
}

fn of_type(name: &str) -> Document {
    match name {
        "integer" => doc! { "bsonType": "number", "multipleOf": 1 },
        "boolean" => doc! { "bsonType": "bool" },
        other => doc! { "bsonType": other },
    }
}

#[expect(clippy::cast_precision_loss, reason = "values that are equal as doubles are rare")]
fn is_equal(one: &Bson, other: &Bson) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int64(whole) => Some(*whole as f64),
        Bson::Double(number) => Some(*number),
        _ => None,
    };
    one == other || number(one).is_some() && number(one) == number(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bucket::KindChecks;

    #[test]
    fn schemas_are_translated() {
        let schema = json!({
            "required": ["a.b", "a.b"],
            "properties": {
                "a.b": { "type": ["integer", "null"], "minimum": 1 },
                "c": { "enum": [1, 1.0, "x"], "pattern": "^[a-z]+$" },
                "d": { "pattern": "\\d" },
            },
        });
        let properties = doc! {
            "a%2Eb": { "anyOf": [{ "bsonType": "number", "multipleOf": 1 }, { "bsonType": "null" }], "minimum": 1.0 },
            "c": { "enum": [1_i64, "x"], "pattern": "^[a-z]+$" },
            "d": {},
        };
        assert_eq!(translate(&schema), doc! { "required": ["a%2Eb"], "properties": properties });
    }

    #[test]
    fn only_rejecting_kinds_add_clauses() {
        let rule = |name: &str, rejects: bool| {
            let meta = Some(json!({ "required": ["site"] }));
            let fields = Some(json!({ "required": ["v", "text"], "properties": { "v": { "type": "number" } } }));
            let checks = KindChecks { rejects, meta, fields, unique: Vec::new() };
            KindRule { name: name.into(), measurement: None, has_index: false, checks }
        };
        let kinds = KindRules::new([rule("loose", false), rule("strict", true)]);
        let base = doc! { "required": ["rev"] };
        let schema = doc! { "$jsonSchema": { "properties": { "meta": { "required": ["site"] } } } };
        let clause = doc! { "$or": [{ "exempt": true }, { "kind": { "$ne": "strict" } }, schema] };
        let first = doc! { "$jsonSchema": base.clone() };
        assert_eq!(of_sensors(base.clone(), &kinds), doc! { "$and": [first.clone(), clause] });
        let pages = of_pages(base.clone(), &kinds);
        assert!(pages.to_string().contains("\"required\": [\"v\"]"), "text has no summary: {pages}");
        assert_eq!(of_pages(base, &KindRules::new([rule("loose", false)])), first);
    }
}
