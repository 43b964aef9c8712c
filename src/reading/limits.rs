//! The limits on one reading's shape. Each is a key under `[limits]` in the config, and the
//! error at a limit names that key.

/// Bounds that the parsers enforce. Lengths are in bytes of UTF-8, after unescaping.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// `limits.line_bytes`: one line of line protocol, or one JSON reading.
    pub line_bytes: usize,
    /// `limits.tags`: tags of one sensor.
    pub tags: usize,
    /// `limits.fields`: fields of one reading.
    pub fields: usize,
    /// `limits.name_bytes`: a measurement, tag key, tag value or field key.
    pub name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024, tags: 32, fields: 256, name_bytes: 1024 }
    }
}
