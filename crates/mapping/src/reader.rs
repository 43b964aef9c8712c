//! Makes one reading from a message, or from one element of its array.

use std::borrow::Cow;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Reason, Sensor, time};
use hourglass_wire::{keep_last_of_equal_keys, names};

use crate::convert;
use crate::mapping::{FieldRule, Mapping, Source};
use crate::notes::Notes;
use crate::pointer::Scope;
use crate::tree::Node;

/// A valid reading.
#[derive(Debug)]
pub(crate) struct MappedReading<'a> {
    pub sensor: Sensor,
    pub fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
    pub timestamp: Option<i64>,
}

/// The state while one reading is made.
pub(crate) struct Reader<'r, 'a> {
    pub mapping: &'r Mapping,
    pub topic: Option<&'r str>,
    pub scope: Scope<'r, 'a>,
    pub limits: &'r Limits,
    pub arrival_ns: i64,
    pub notes: &'r mut Notes,
    pub fields: Vec<(Cow<'a, str>, RawValue<'a>)>,
    /// The values at the paths of `ignore`.
    pub ignored: Vec<&'r Node<'a>>,
    /// The values that became a name, a tag, the time or a field.
    pub used: Vec<&'r Node<'a>>,
}

impl<'r, 'a> Reader<'r, 'a> {
    /// Makes the reading; `None` if the message lacks a path of `only_with`, or if every field is null or ignored.
    pub fn read(mut self) -> Result<Option<MappedReading<'a>>, Reason> {
        let scope = self.scope;
        if let Some(path) = self.mapping.only_with.iter().find(|path| path.find(scope).is_none()) {
            self.notes.add(|| format!("no reading: the message has no value at only_with path {:?}", path.as_str()));
            return Ok(None);
        }
        self.ignored = self.mapping.ignore.iter().filter_map(|path| path.find(scope)).collect();
        let sensor = self.sensor()?;
        let timestamp = self.timestamp()?;
        let mut is_found = false;
        for (index, rule) in self.mapping.fields.iter().enumerate() {
            is_found |= self.apply_rule(index, rule)?;
        }
        self.note_unused();
        if !is_found {
            let paths = self.mapping.fields.iter().map(|rule| format!("{:?}", rule.path.as_str()));
            let paths = names::shorten(&paths.collect::<Vec<_>>().join(", "));
            return Err(Reason::Json(format!("no field: the message has none of the paths {paths}")));
        }
        keep_last_of_equal_keys(&mut self.fields, &mut Vec::new());
        if self.fields.is_empty() {
            self.notes.add(|| "no reading: every field is null or ignored".to_owned());
            return Ok(None);
        }
        self.notes.add(|| match timestamp {
            Some(ns) => format!("reading: {} with {} fields at {}", sensor.key, self.fields.len(), time::rfc3339(ns)),
            None => format!("reading: {} with {} fields at its arrival", sensor.key, self.fields.len()),
        });
        Ok(Some(MappedReading { sensor, fields: self.fields, timestamp }))
    }

    fn sensor(&mut self) -> Result<Sensor, Reason> {
        let mapping = self.mapping;
        let measurement = self.resolve("measurement", &mapping.measurement)?;
        names::MEASUREMENT.check(&measurement, self.limits)?;
        names::check_tags(mapping.tags.len(), self.limits)?;
        let mut tags = Vec::with_capacity(mapping.tags.len());
        for (key, source) in &mapping.tags {
            let value = self.resolve(&format!("tag {key}"), source)?;
            names::TAG_KEY.check(key, self.limits)?;
            names::TAG_VALUE.check(&value, self.limits)?;
            tags.push((key.as_str(), value));
        }
        Sensor::new(&measurement, tags.iter().map(|(key, value)| (*key, &**value))).map_err(Reason::DuplicateTag)
    }

    /// The text of a source. `target` is the part of the reading, for messages.
    fn resolve(&mut self, target: &str, source: &'r Source) -> Result<Cow<'r, str>, Reason> {
        let text = match source {
            Source::Text(text) => Some(Cow::Borrowed(text.as_str())),
            Source::Topic(level) => {
                self.topic.and_then(|topic| topic.split('/').nth(level.checked_sub(1)?)).map(Cow::Borrowed)
            }
            Source::Path(path) => match path.find(self.scope) {
                Some(node @ Node::Scalar(value)) => {
                    self.used.push(node);
                    Some(convert::text(value))
                }
                _ => None,
            },
        };
        match text {
            Some(text) => {
                self.notes.add(|| format!("{target} = {text:?}: {source}"));
                Ok(text)
            }
            None if self.topic.is_none() && matches!(source, Source::Topic(_)) => {
                Err(Reason::Json(format!("{target}: the message has no topic, but the mapping uses {source}")))
            }
            None => Err(Reason::Json(format!("{target}: the message has no value at {source}"))),
        }
    }

    fn timestamp(&mut self) -> Result<Option<i64>, Reason> {
        let Some(rule) = &self.mapping.time else {
            self.notes.add(|| "time: arrival".to_owned());
            return Ok(None);
        };
        let path = rule.path.as_str();
        let value = match rule.path.find(self.scope) {
            Some(node @ Node::Scalar(value)) if !self.is_missing(value) => {
                self.used.push(node);
                value
            }
            None | Some(Node::Null | Node::Scalar(_)) => {
                self.notes.add(|| format!("time: arrival, because the message has no value at path {path:?}"));
                return Ok(None);
            }
            Some(_) => return Err(Reason::Json(format!("time: path {path:?} is not a number or text"))),
        };
        let Some(ns) = convert::timestamp(value, rule, self.arrival_ns) else {
            let text = names::shorten(&convert::text(value));
            let format = rule.format.name();
            return Err(Reason::Json(format!("time: {text:?} at path {path:?} is not in the format {format:?}")));
        };
        if rule.not_before.as_deref().and_then(time::parse_rfc3339).is_some_and(|first| ns < first) {
            self.notes.add(|| format!("time: arrival, because {} is before not_before", time::rfc3339(ns)));
            return Ok(None);
        }
        self.notes.add(|| format!("time = {}: path {path:?}", time::rfc3339(ns)));
        Ok(Some(ns))
    }

    /// Adds the fields of a rule. Returns true if the message has its path.
    fn apply_rule(&mut self, index: usize, rule: &'r FieldRule) -> Result<bool, Reason> {
        let Some(node) = rule.path.find(self.scope) else {
            self.notes.add(|| format!("fields[{index}]: the message has no value at path {:?}", rule.path.as_str()));
            return Ok(false);
        };
        let name = match &rule.name {
            Some(name) => Some(self.resolve(&format!("fields[{index}].name"), name)?),
            None => None,
        };
        match node {
            Node::Null => self.notes.add(|| format!("fields[{index}]: null")),
            Node::Scalar(value) => {
                self.used.push(node);
                let key = rule.path.last().filter(|key| *key != "*").unwrap_or("value");
                let name = name.unwrap_or(Cow::Borrowed(key));
                if self.is_missing(value) {
                    self.notes.add(|| format!("left out {name:?}: missing"));
                } else {
                    self.add_field(Cow::Owned(name.into_owned()), value, index)?;
                }
            }
            Node::Array(_) | Node::Object(_) => {
                self.add_below(node, &mut name.unwrap_or_default().into_owned(), index)?;
            }
        }
        Ok(true)
    }

    /// Adds the scalars below an object or array. `prefix` is the name of the object.
    fn add_below(&mut self, node: &'r Node<'a>, prefix: &mut String, index: usize) -> Result<(), Reason> {
        for (key, child) in node.children() {
            if let Some(why) = self.reason_to_leave_out(&key, child) {
                self.notes.add(|| format!("left out {:?}: {why}", join(prefix, &key)));
                continue;
            }
            match child {
                Node::Null => {}
                Node::Scalar(value) => {
                    self.used.push(child);
                    let name = if prefix.is_empty() { key } else { Cow::Owned(join(prefix, &key)) };
                    self.add_field(name, value, index)?;
                }
                Node::Array(_) | Node::Object(_) => {
                    let length = prefix.len();
                    if length > 0 {
                        prefix.push('_');
                    }
                    prefix.push_str(&key);
                    self.add_below(child, prefix, index)?;
                    prefix.truncate(length);
                }
            }
        }
        Ok(())
    }

    fn reason_to_leave_out(&self, key: &str, node: &'r Node<'a>) -> Option<&'static str> {
        let contains = |nodes: &[&Node<'a>]| nodes.iter().any(|other| std::ptr::eq(*other, node));
        match node {
            _ if self.mapping.ignore_keys.iter().any(|ignored| ignored == key) => Some("ignore_keys"),
            _ if contains(&self.ignored) => Some("ignore"),
            _ if contains(&self.used) => Some("used by another rule"),
            Node::Null => Some("null"),
            Node::Scalar(value) if self.is_missing(value) => Some("missing"),
            _ => None,
        }
    }

    fn add_field(&mut self, name: Cow<'a, str>, value: &RawValue<'a>, index: usize) -> Result<(), Reason> {
        names::FIELD_KEY.check(&name, self.limits)?;
        names::check_fields(self.fields.len() + 1, self.limits)?;
        let value = match self.mapping.fields[index].field_type {
            None => convert::untyped(value),
            Some(wanted) => convert::typed(value, wanted).ok_or_else(|| {
                let text = names::shorten(&convert::text(value));
                Reason::Json(format!("field {name:?}: {text:?} does not fit the type {}", wanted.name()))
            })?,
        };
        self.notes.add(|| {
            let type_name = value.clone().into_value().type_name();
            format!("field {name} = {} ({type_name}): fields[{index}]", convert::text(&value))
        });
        self.fields.push((name, value));
        Ok(())
    }

    fn is_missing(&self, value: &RawValue<'a>) -> bool {
        match value {
            RawValue::String(text) => {
                self.mapping.missing.iter().any(|missing| missing.eq_ignore_ascii_case(text.trim()))
            }
            _ => false,
        }
    }

    /// Notes the values of the message or element that no rule used.
    fn note_unused(&mut self) {
        if self.notes.is_on() {
            let root = self.scope.element.map_or(self.scope.root, |(_, element)| element);
            self.note_unused_below(root, &mut String::new());
        }
    }

    fn note_unused_below(&mut self, node: &'r Node<'a>, path: &mut String) {
        for (key, child) in node.children() {
            if self.reason_to_leave_out(&key, child).is_some() {
                continue;
            }
            let length = path.len();
            path.push('/');
            path.push_str(&key);
            if matches!(child, Node::Scalar(_)) {
                self.notes.add(|| format!("not used: {path}"));
            }
            self.note_unused_below(child, path);
            path.truncate(length);
        }
    }
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}_{key}") }
}
