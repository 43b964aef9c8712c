//! Reads NDJSON: objects with fields and tags side by side, or as `hourglass export` and the HTTP API have them, in
//! `fields` and `tags`.

use std::collections::HashMap;

use memchr::memchr;
use serde_json::{Map, Value as Json};

use super::batch::{Batch, Position};
use super::columns::{FieldType, Role, RowFlags, RowParts, parse_time};
use super::lines::push_line;
use super::reader::{ROW_BYTES_MAX, RowFormat};
use crate::reading::{Precision, Value};

pub struct ObjectRows {
    flags: RowFlags,
    precision: Precision,
    /// The roles of members that were read.
    roles: HashMap<String, Role>,
}

impl ObjectRows {
    pub fn new(flags: &RowFlags) -> anyhow::Result<Self> {
        let precision = flags.precision(Precision::Auto)?;
        for item in &flags.types {
            flags.role(item.rsplit_once('=').map_or(item, |(column, _)| column))?;
        }
        Ok(Self { flags: flags.clone(), precision, roles: HashMap::new() })
    }

    fn parts(&mut self, line: &[u8]) -> Result<RowParts, String> {
        let object: Map<String, Json> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let mut parts = RowParts::default();
        let is_nested = object.get("fields").is_some_and(Json::is_object);
        for (name, value) in object {
            match (value, &*name) {
                (Json::Null, _) => {}
                (Json::Object(tags), "tags") => {
                    for (key, value) in tags {
                        let value = value.as_str().ok_or_else(|| format!("tag {key}: expected a string"))?;
                        parts.tags.push((key, value.to_owned()));
                    }
                }
                (Json::Object(fields), "fields") => {
                    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_null()) {
                        let value = field(&name, &value, None)?;
                        parts.fields.push((name, value));
                    }
                }
                (value, _) => self.member(&name, &value, is_nested, &mut parts)?,
            }
        }
        Ok(parts)
    }

    /// Adds a member of an object to the parts of its row.
    fn member(&mut self, name: &str, value: &Json, is_nested: bool, parts: &mut RowParts) -> Result<(), String> {
        if !self.roles.contains_key(name) {
            let role = self.flags.role(name).map_err(|error| error.to_string())?;
            self.roles.insert(name.to_owned(), role);
        }
        let role = &self.roles[name];
        if is_nested && matches!(role, Role::Field(..)) {
            return Err(format!("{name} is beside fields"));
        }
        add_member(role, name, value, self.precision, parts)
    }
}

/// Adds a member of an object to the parts of its row.
pub fn add_member(
    role: &Role,
    name: &str,
    value: &Json,
    precision: Precision,
    parts: &mut RowParts,
) -> Result<(), String> {
    let text = || match value {
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(is_true) => Ok(is_true.to_string()),
        _ => Err(format!("{name}: expected a string, number or boolean")),
    };
    match role {
        Role::Measurement => parts.measurement = Some(text()?),
        Role::Time if parts.time.is_some() => return Err("two times: name one with --time".to_owned()),
        Role::Time => parts.time = Some(parse_time(&text()?, precision)?),
        Role::Tag(_) if value.as_str() == Some("") => {}
        Role::Tag(key) => parts.tags.push((key.clone(), text()?)),
        Role::Field(key, field_type) => parts.fields.push((key.clone(), field(name, value, *field_type)?)),
        Role::Skip => {}
    }
    Ok(())
}

/// Returns the value of a field. Numbers are integers without a point, and floats with one.
fn field(name: &str, value: &Json, field_type: Option<FieldType>) -> Result<Value, String> {
    let (text, natural) = match value {
        Json::String(text) => (text.clone(), FieldType::String),
        Json::Number(number) => (number.to_string(), FieldType::Number),
        Json::Bool(is_true) => (is_true.to_string(), FieldType::Boolean),
        _ => return Err(format!("field {name}: expected a string, number or boolean")),
    };
    let field_type = field_type.unwrap_or(natural);
    field_type.parse(&text).ok_or_else(|| format!("field {name}: {text:?} is no {}", field_type.name()))
}

impl RowFormat for ObjectRows {
    fn read(&mut self, chunk: &[u8], is_end: bool, position: &mut Position, batch: &mut Batch) -> usize {
        let mut number = position.lines + 1;
        let mut end = 0;
        while end < chunk.len() {
            let rest = &chunk[end..];
            let size = match memchr(b'\n', rest) {
                Some(newline) => newline + 1,
                None if is_end || rest.len() > ROW_BYTES_MAX => rest.len(),
                None => break,
            };
            let text = rest[..size].trim_ascii();
            if !text.is_empty() {
                let line = self.parts(text).and_then(|parts| parts.to_line(&self.flags));
                push_line(batch, number, line, text);
            }
            number += 1;
            end += size;
        }
        end
    }
}
