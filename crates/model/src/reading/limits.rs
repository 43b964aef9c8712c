//! Limits on the shape of one reading. Each is a key in the config section `[limits]`; the error for an exceeded limit
//! names that key.

/// Limits that the parsers enforce. Lengths are in bytes of UTF-8; those of names count after unescaping.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `limits.line_bytes`: maximum length of a line of line protocol, or of a JSON reading.
    pub line_bytes: usize,
    /// `limits.tags`: maximum number of tags of a sensor.
    pub tags: usize,
    /// `limits.fields`: maximum number of fields of a reading.
    pub fields: usize,
    /// `limits.name_bytes`: maximum length of a measurement, tag key, tag value or field key.
    pub name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024, tags: 32, fields: 256, name_bytes: 1024 }
    }
}
