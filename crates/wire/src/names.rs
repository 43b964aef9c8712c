//! The rules for measurements, tag keys, tag values and field keys in all formats. Offsets are relative to the name.

use hourglass_model::reading::{Limits, Reason};

/// The kind of a name, with texts for error messages.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    /// The expected item, used if the name is empty.
    pub wanted: &'static str,
    /// The counted item, used if the name is too long.
    pub bytes_name: &'static str,
}

/// A measurement.
pub const MEASUREMENT: Name = Name { wanted: "a measurement", bytes_name: "bytes of the measurement" };
/// A tag key.
pub const TAG_KEY: Name = Name { wanted: "a tag key", bytes_name: "bytes of a tag key" };
/// A tag value.
pub const TAG_VALUE: Name = Name { wanted: "a tag value", bytes_name: "bytes of a tag value" };
/// A field key.
pub const FIELD_KEY: Name = Name { wanted: "a field key", bytes_name: "bytes of a field key" };

impl Name {
    /// Checks a name, given unescaped.
    ///
    /// # Errors
    /// The reason, if the name is invalid or too long.
    pub fn check(self, name: &str, limits: &Limits) -> Result<(), Reason> {
        if name.is_empty() {
            return Err(Reason::Syntax { expected: self.wanted, found: Some('"') });
        }
        if self.starts_a_comment(name) {
            return Err(Reason::Syntax { expected: self.wanted, found: Some('#') });
        }
        if let Some((_, code)) = control_character(name) {
            return Err(Reason::ControlCharacter(code));
        }
        if name.ends_with('\\') {
            return Err(Reason::TrailingBackslash);
        }
        self.check_length(name, limits)
    }

    /// Returns true if the name is a measurement that begins with `#`. A sensor's key is the start of a line, so the
    /// line would be a comment.
    pub(super) fn starts_a_comment(self, name: &str) -> bool {
        self.wanted == MEASUREMENT.wanted && name.starts_with('#')
    }

    /// Checks the length of a name, given unescaped.
    pub(super) fn check_length(self, name: &str, limits: &Limits) -> Result<(), Reason> {
        if name.len() <= limits.name_bytes {
            return Ok(());
        }
        Err(Reason::Limit {
            what: self.bytes_name,
            found: name.len(),
            limit: limits.name_bytes,
            key: "limits.name_bytes",
        })
    }
}

/// The first control character of a name: its offset and code point.
pub(super) fn control_character(name: &str) -> Option<(usize, u32)> {
    name.char_indices().find(|(_, c)| c.is_control()).map(|(at, c)| (at, u32::from(c)))
}

/// Checks the number of tags.
///
/// # Errors
/// The reason, if there are too many.
pub fn check_tags(count: usize, limits: &Limits) -> Result<(), Reason> {
    check_count("tags", count, limits.tags, "limits.tags")
}

/// Checks the number of fields.
///
/// # Errors
/// The reason, if there are too many.
pub fn check_fields(count: usize, limits: &Limits) -> Result<(), Reason> {
    check_count("fields", count, limits.fields, "limits.fields")
}

fn check_count(what: &'static str, found: usize, limit: usize, key: &'static str) -> Result<(), Reason> {
    if found <= limit { Ok(()) } else { Err(Reason::Limit { what, found, limit, key }) }
}

/// Truncates a text for an error message, so that it does not quote a whole body.
#[must_use]
pub fn shorten(text: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 64;
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text.to_owned(),
    }
}
