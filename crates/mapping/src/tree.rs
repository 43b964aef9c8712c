//! A JSON document as a tree. Unlike `serde_json::Value`, it borrows its texts from the body and keeps the order of keys.

use std::borrow::Cow;
use std::fmt;

use hourglass_model::reading::value::RawValue;
use hourglass_wire::keep_last_of_equal_keys;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Maximum number of keys of one object of a message.
pub const KEYS_MAX: usize = 1_000;

/// A JSON value. The decoder bounds its depth at 127, so functions on it may recurse.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Node<'a> {
    Null,
    Scalar(RawValue<'a>),
    Array(Vec<Node<'a>>),
    /// Keys are distinct: if the document repeats one, the last value wins.
    Object(Entries<'a>),
}

/// The keys and values of an object in the order sent, and their positions by key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entries<'a> {
    list: Vec<(Cow<'a, str>, Node<'a>)>,
    by_key: Vec<u16>,
}

impl<'a> Entries<'a> {
    fn new(list: Vec<(Cow<'a, str>, Node<'a>)>) -> Self {
        let mut by_key: Vec<u16> = (0..).take(list.len()).collect();
        by_key.sort_unstable_by(|&a, &b| list[usize::from(a)].0.cmp(&list[usize::from(b)].0));
        Self { list, by_key }
    }

    fn get(&self, key: &str) -> Option<&Node<'a>> {
        let found = self.by_key.binary_search_by(|&at| (*self.list[usize::from(at)].0).cmp(key)).ok()?;
        Some(&self.list[usize::from(self.by_key[found])].1)
    }
}

impl<'a> Node<'a> {
    /// Parses a document.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))
    }

    /// Parses a payload that is a JSON scalar, or else a text. An empty one is null.
    pub fn parse_plain(text: &'a str) -> Result<Self, String> {
        let text = text.trim();
        match Self::parse(text) {
            Ok(node @ (Self::Null | Self::Scalar(_))) => Ok(node),
            Ok(Self::Array(_) | Self::Object(_)) => Err("expected one value, not an object or array".to_owned()),
            Err(_) if text.is_empty() => Ok(Self::Null),
            Err(_) => Ok(Self::Scalar(RawValue::String(Cow::Borrowed(text)))),
        }
    }

    /// The value below this one at the segments of a pointer.
    pub fn descend(&self, segments: &[String]) -> Option<&Self> {
        segments.iter().try_fold(self, |node, segment| match node {
            Self::Object(entries) => entries.get(segment),
            Self::Array(items) => {
                // RFC 6901 allows no sign and no leading zero.
                let is_index = segment == "0" || !segment.starts_with(['0', '+']);
                items.get(segment.parse::<usize>().ok().filter(|_| is_index)?)
            }
            Self::Null | Self::Scalar(_) => None,
        })
    }

    /// The children of an array or object, with their index or key.
    pub fn children(&self) -> impl Iterator<Item = (Cow<'a, str>, &Self)> {
        let items = if let Self::Array(items) = self { items.as_slice() } else { &[] };
        let entries = if let Self::Object(entries) = self { entries.list.as_slice() } else { &[] };
        let numbered = items.iter().enumerate().map(|(index, node)| (Cow::Owned(index.to_string()), node));
        numbered.chain(entries.iter().map(|(key, node)| (key.clone(), node)))
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

/// A key, which borrows from the JSON if it has no escape.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Scalar(RawValue::Boolean(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Scalar(RawValue::Integer(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Scalar(i64::try_from(value).map_or(RawValue::Unsigned(value), RawValue::Integer)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Scalar(RawValue::Float(value)))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Node::Scalar(RawValue::String(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Node::Scalar(RawValue::String(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((Key(key), node)) = map.next_entry()? {
            if entries.len() == KEYS_MAX {
                return Err(A::Error::custom(format!("an object has more than {KEYS_MAX} keys")));
            }
            entries.push((key, node));
        }
        keep_last_of_equal_keys(&mut entries, &mut Vec::new());
        Ok(Node::Object(Entries::new(entries)))
    }
}
