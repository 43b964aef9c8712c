//! A JSON Pointer (RFC 6901), which may step into the current element of an array.

use serde::{Deserialize, Serialize};

use crate::tree::Node;

/// A JSON Pointer such as `/ENERGY/Power`; the empty text is the whole message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pointer {
    text: String,
    segments: Vec<String>,
}

/// The message, and the current element of its array if the mapping has `each`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'r, 'a> {
    pub root: &'r Node<'a>,
    pub element: Option<(&'r Pointer, &'r Node<'a>)>,
}

impl Pointer {
    /// The text of the pointer.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The last segment; `None` if the pointer is the whole message.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.segments.last().map(String::as_str)
    }

    /// The segments after `EACH/*`, if the pointer begins with them.
    pub(crate) fn within(&self, each: &Self) -> Option<&[String]> {
        let rest = self.segments.strip_prefix(each.segments.as_slice())?;
        rest.split_first().filter(|(star, _)| *star == "*").map(|(_, rest)| rest)
    }

    /// The value at the pointer.
    pub(crate) fn find<'r, 'a>(&self, scope: Scope<'r, 'a>) -> Option<&'r Node<'a>> {
        if let Some((each, element)) = scope.element
            && let Some(segments) = self.within(each)
        {
            return element.descend(segments);
        }
        scope.root.descend(&self.segments)
    }
}

impl TryFrom<String> for Pointer {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if !text.is_empty() && !text.starts_with('/') {
            return Err(format!("path {text:?} must begin with '/' (JSON Pointer), or be empty for the whole message"));
        }
        let segments = text.split('/').skip(1).map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
        Ok(Self { text, segments })
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.text
    }
}
