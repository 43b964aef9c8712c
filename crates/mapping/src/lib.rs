//! Mappings from the topics and messages of devices to points: MQTT payloads and webhooks as devices send them.
//!
//! A mapping is a TOML (or JSON) document. This is a complete one, with every key that most mappings need:
//!
//! ```toml
//! name = "plug"                        # also the endpoint
//! topics = ["tele/+/SENSOR"]           # MQTT filters
//! measurement = "plug"
//! tags = { device = { topic = 2 }, site = "lab", kind = { path = "/Meta/Kind" } }
//! fields = [
//!     { path = "/ENERGY/Power", name = "watts", type = "float" },
//!     { path = "/ENERGY" },            # all others: Total, Today, ...
//! ]
//! ignore = ["/ENERGY/Period"]
//! missing = ["nan"]
//! time = { path = "/Time", format = "local", zone = "Europe/Berlin" }
//! ```
//!
//! * **Paths** are JSON Pointers (RFC 6901). The empty path is the whole message.
//! * **A name or tag value** is a text, a level of the topic (from 1), or a path. A message without a tag's value is
//!   rejected.
//! * **Fields**: a path to a scalar is one field, named after its last key or `name`. A path to an object or array is
//!   one field per scalar below it, named by the keys joined with `_` (and after `name`, if given). Such a rule leaves
//!   out what `ignore`, `ignore_keys`, the tags, the time or an earlier rule took.
//! * **Types** are those of JSON writes: a number is a float unless that would change it. `type` (`float`, `integer`,
//!   `boolean`, `string`) converts a value. A value that does not fit its type rejects the reading.
//! * **Null** and the texts in `missing` are no values. A message with nothing else is skipped, as is one without the
//!   paths in `only_with`. Any other message with none of the fields' paths is rejected.
//! * **Time**: `s`, `ms`, `us`, `ns`, `rfc3339`, or `local` with a `zone`. Without it, or before `not_before` (a clock
//!   that is not set), the arrival counts.
//! * **Arrays**: `each = "/readings"` makes one reading per element, and `/readings/*/temp` is a path in the element.
//! * `body = "plain"` is for payloads that are one value, such as `21.5` or `ON`; its path is empty.
//!
//! A message has at most `limits.line_bytes` bytes, 127 levels, [`KEYS_MAX`] keys per object and [`ELEMENTS_MAX`]
//! elements of `each`. If an object repeats a key, the last value wins.
//!
//! [`apply`] gives points to the ingest path, [`explain`] a trace.

#![warn(missing_docs)]

pub mod builtin;

mod apply;
mod convert;
mod mapping;
mod notes;
mod pointer;
mod reader;
mod topic;
mod tree;

#[cfg(test)]
mod tests;

pub use apply::{ELEMENTS_MAX, MappedPoints, apply, explain};
pub use mapping::{
    BodyFormat, FIELD_RULES_MAX, FieldRule, FieldType, IGNORED_MAX, Mapping, MappingError, NAME_BYTES_MAX, Source,
    TAGS_MAX, TEXT_BYTES_MAX, TOPICS_MAX, TimeFormat, TimeRule,
};
pub use notes::LINES_MAX;
pub use pointer::Pointer;
pub use topic::TopicFilter;
pub use tree::KEYS_MAX;
