//! Bounds the length of log lines, so that long error chains and keys do not fill a disk or break a collector.

use std::io;

use serde_json::{Map, Value};

/// The fields that are never dropped.
const REQUIRED_FIELDS: [&str; 4] = ["timestamp", "level", "message", "target"];
/// Number of the first [`REQUIRED_FIELDS`] that are never cut.
const UNCUT_FIELDS: usize = 2;
/// Minimum length in bytes of a cut text while other fields can be dropped.
const TEXT_BYTES_MIN: usize = 40;
/// Marks the end of a cut text.
const ELLIPSIS: char = '…';
/// Resets colours that a cut may have left on.
const RESET: &str = "\x1b[0m";

/// A writer that shortens each line to less than `limit` bytes. It expects one complete line per call, as
/// `tracing_subscriber` writes them.
#[derive(Debug)]
pub struct BoundedWriter<W> {
    pub inner: W,
    pub limit: usize,
    pub is_json: bool,
}

impl<W: io::Write> io::Write for BoundedWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if line.len() < self.limit {
            self.inner.write_all(line)?;
        } else {
            let text = String::from_utf8_lossy(line);
            let fields = if self.is_json { serde_json::from_str(&text).ok() } else { None };
            let short = match fields {
                Some(fields) => shorten(fields, self.limit - 2),
                None if text.contains('\x1b') => cut(text.trim_end(), self.limit - 2 - RESET.len()) + RESET,
                None => cut(text.trim_end(), self.limit - 2),
            };
            self.inner.write_all(format!("{short}\n").as_bytes())?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Serialises an object in at max `max` bytes. Cuts its longest texts first, and then drops its last fields. A
/// shortened object has its fields in the order of their names.
fn shorten(mut fields: Map<String, Value>, max: usize) -> String {
    let mut text_bytes = max / 2;
    loop {
        let line = serde_json::to_string(&fields).unwrap_or_default();
        if line.len() <= max {
            return line;
        }
        let dropped = fields.keys().rev().find(|name| !REQUIRED_FIELDS.contains(&name.as_str())).cloned();
        match dropped {
            Some(name) if text_bytes < TEXT_BYTES_MIN => drop(fields.remove(&name)),
            None if text_bytes == 0 => return line,
            _ => {
                text_bytes = text_bytes * 3 / 4;
                let cut =
                    fields.iter_mut().filter(|(name, _)| !REQUIRED_FIELDS[..UNCUT_FIELDS].contains(&name.as_str()));
                cut.for_each(|(_, value)| cut_texts(value, text_bytes));
            }
        }
    }
}

/// Cuts all texts in a value whose JSON has more than `max` bytes.
fn cut_texts(value: &mut Value, max: usize) {
    match value {
        Value::String(text) => {
            // A character has up to six bytes in JSON.
            let mut kept = max;
            while serde_json::to_string(text).map_or(0, |json| json.len()) > max + 2 && kept > 0 {
                *text = cut(text, kept);
                kept /= 2;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| cut_texts(value, max)),
        Value::Object(values) => values.values_mut().for_each(|value| cut_texts(value, max)),
        _ => {}
    }
}

/// Cuts a text to at max `max` bytes, at the boundary of a character.
fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(ELLIPSIS.len_utf8());
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let whole = text[..end].trim_end_matches(ELLIPSIS);
    format!("{whole}{ELLIPSIS}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn write_bounded(line: &str, limit: usize, is_json: bool) -> String {
        let mut out = Vec::new();
        let mut writer = BoundedWriter { inner: &mut out, limit, is_json };
        writer.write_all(format!("{line}\n").as_bytes()).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(line.len() < limit && line.ends_with('\n') && line.lines().count() == 1, "{}: {line}", line.len());
        line.trim_end().to_owned()
    }

    #[test]
    fn short_lines_are_left_alone() {
        let line = r#"{"timestamp":"2026-01-15T14:00:00Z","level":"INFO","message":"flushed","pages":3}"#;
        assert_eq!(write_bounded(line, 500, true), line);
        assert_eq!(write_bounded("flushed pages=3", 500, false), "flushed pages=3");
    }

    #[test]
    fn long_texts_are_cut_and_the_rest_stays() {
        let chain = "writing the page failed: ".repeat(200);
        let line = serde_json::json!({ "error": chain, "pages": 3, "span": { "id": "r-7", "name": "request" } });
        let line = format!(
            r#"{{"timestamp":"2026-01-15T14:00:00Z","level":"WARN","message":"flush failed",{}"#,
            &line.to_string()[1..]
        );
        let cut: Value = serde_json::from_str(&write_bounded(&line, 500, true)).unwrap();
        let error = cut["error"].as_str().unwrap();
        assert!(error.ends_with('…') && error.len() > 150 && chain.starts_with(error.trim_end_matches('…')), "{cut}");
        assert_eq!((&cut["pages"], &cut["message"]), (&Value::from(3), &Value::from("flush failed")));
        assert_eq!(cut["span"]["id"], "r-7");
    }

    /// The key of a sensor can have 64 KiB of characters that take two to six bytes in JSON.
    #[test]
    fn lines_with_any_text_are_short_and_json() {
        for hostile in ["\u{1}", "\"", "\\", "é", "𝄞", "a\u{301}", "…", "{\"a\":"] {
            for times in [1, 7, 60, 99, 500, 20_000] {
                let key = hostile.repeat(times);
                let many: Vec<(String, Value)> =
                    (0..40).map(|number| (format!("field_{number}"), Value::from(key.clone()))).collect();
                let head = [("timestamp", "2026-01-15T14:00:00.123456Z"), ("level", "ERROR"), ("message", &key)];
                let head = head.map(|(name, value)| (name.to_owned(), Value::from(value)));
                for tail in [1, 3, 40] {
                    let fields: Map<String, Value> = [&head[..], &many[..tail]].concat().into_iter().collect();
                    let line = serde_json::to_string(&fields).unwrap();
                    for limit in [256, 500] {
                        let cut: Value = serde_json::from_str(&write_bounded(&line, limit, true)).unwrap();
                        assert_eq!(cut["timestamp"], "2026-01-15T14:00:00.123456Z");
                        assert_eq!(cut["level"], "ERROR");
                        assert!(cut["message"].as_str().is_some_and(|text| !text.is_empty()));
                    }
                    write_bounded(&line, 500, false);
                }
            }
        }
    }
}
