//! The rules for measurements, tag keys, tag values and field keys in all formats. Offsets are relative to the name.

use std::borrow::Cow;

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

/// Returns a field name for an object with reserved names. A reserved name gets its first byte percent-encoded, such as
/// `%74s` for `ts`. A name that looks like such an escape gets its `%` encoded as `%25`, so that names stay unique.
#[must_use]
pub fn field_name(name: &str, is_taken: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let Some(escape) = name.strip_prefix('%') else {
        return match name.chars().next() {
            Some(first) if first.is_ascii() && is_taken(name) => {
                format!("%{:02x}{}", u32::from(first), &name[1..]).into()
            }
            _ => name.into(),
        };
    };
    // Only the first byte of a name is ever escaped.
    let unescape = || {
        let (first, rest) = escape.trim_start_matches("25").split_at_checked(2)?;
        let first = u8::from_str_radix(first, 16).ok().filter(u8::is_ascii)?;
        Some(format!("{}{rest}", char::from(first)))
    };
    match unescape() {
        Some(original) if is_taken(&original) => format!("%25{escape}").into(),
        _ => name.into(),
    }
}

/// Returns the field that [`field_name`] shows by this name.
#[must_use]
pub fn named_field(shown: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let first = shown.strip_prefix('%').and_then(|escape| escape.split_at_checked(2));
    let original = first.and_then(|(first, rest)| {
        let first = u8::from_str_radix(first, 16).ok().filter(u8::is_ascii)?;
        Some(format!("{}{rest}", char::from(first)))
    });
    original.filter(|original| field_name(original, is_taken) == shown).unwrap_or_else(|| shown.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: fields `ts` and `%74s` of one reading were both written as `%74s`.
    #[test]
    fn field_names_stay_unique_beside_reserved_names() {
        let named = |name| field_name(name, |taken| ["sensor", "ts", "tag.%41"].contains(&taken)).into_owned();
        for (name, shown) in [
            ("temp", "temp"),
            ("ts", "%74s"),
            ("%74s", "%2574s"),
            ("%2574s", "%252574s"),
            ("sensor", "%73ensor"),
            ("%73ensor", "%2573ensor"),
            ("tag.%41", "%74ag.%41"),
            ("%74ag.%41", "%2574ag.%41"),
            ("", ""),
            ("%", "%"),
            ("%25", "%25"),
            ("%humidity", "%humidity"),
            ("%ff", "%ff"),
            ("%🌡", "%🌡"),
        ] {
            assert_eq!(named(name), shown);
            assert_eq!(named_field(shown, |taken| ["sensor", "ts", "tag.%41"].contains(&taken)), name);
        }
    }
}
