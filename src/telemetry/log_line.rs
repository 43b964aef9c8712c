//! Bounds the length of log lines, so that no long error chain and no client's key fills a disk or breaks a collector.

use std::io;

use serde_json::{Map, Value};

/// The fields without which a line says nothing; they are never dropped, and the first two never cut.
const KEPT: [&str; 4] = ["timestamp", "level", "message", "target"];
const WHOLE: usize = 2;
/// Texts are not cut below this as long as other fields can be dropped.
const TEXT_BYTES: usize = 40;
/// Stands where a text was cut.
const CUT: char = '…';
/// Ends the colours that a cut may have left on.
const PLAIN: &str = "\x1b[0m";

/// Shortens each line to less than `limit` bytes. Takes one whole line per call, as `tracing_subscriber` writes them.
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
                None if text.contains('\x1b') => cut(text.trim_end(), self.limit - 2 - PLAIN.len()) + PLAIN,
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

/// The object in at most `most` bytes: its longest texts are cut, and if there are too many fields, the last ones are
/// dropped. A shortened object has its fields in the order of their names.
fn shorten(mut fields: Map<String, Value>, most: usize) -> String {
    let mut text_bytes = most / 2;
    loop {
        let line = serde_json::to_string(&fields).unwrap_or_default();
        if line.len() <= most {
            return line;
        }
        let dropped = fields.keys().rev().find(|name| !KEPT.contains(&name.as_str())).cloned();
        match dropped {
            Some(name) if text_bytes < TEXT_BYTES => drop(fields.remove(&name)),
            None if text_bytes == 0 => return line,
            _ => {
                text_bytes = text_bytes * 3 / 4;
                let cut = fields.iter_mut().filter(|(name, _)| !KEPT[..WHOLE].contains(&name.as_str()));
                cut.for_each(|(_, value)| cut_texts(value, text_bytes));
            }
        }
    }
}

/// Cuts all texts in the value whose JSON takes more than `most` bytes.
fn cut_texts(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => {
            // A character takes up to six bytes as JSON.
            let mut kept = most;
            while serde_json::to_string(text).map_or(0, |json| json.len()) > most + 2 && kept > 0 {
                *text = cut(text, kept);
                kept /= 2;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| cut_texts(value, most)),
        Value::Object(values) => values.values_mut().for_each(|value| cut_texts(value, most)),
        _ => {}
    }
}

/// The text in at most `most` bytes, cut between two characters.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(CUT.len_utf8());
    let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    let whole = text[..end].trim_end_matches(CUT);
    format!("{whole}{CUT}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;

    fn bounded(line: &str, limit: usize, is_json: bool) -> String {
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
        assert_eq!(bounded(line, 500, true), line);
        assert_eq!(bounded("flushed pages=3", 500, false), "flushed pages=3");
    }

    #[test]
    fn long_texts_are_cut_and_the_rest_stays() {
        let chain = "writing the page failed: ".repeat(200);
        let line = serde_json::json!({ "error": chain, "pages": 3, "span": { "id": "r-7", "name": "request" } });
        let line = format!(
            r#"{{"timestamp":"2026-01-15T14:00:00Z","level":"WARN","message":"flush failed",{}"#,
            &line.to_string()[1..]
        );
        let cut: Value = serde_json::from_str(&bounded(&line, 500, true)).unwrap();
        let error = cut["error"].as_str().unwrap();
        assert!(error.ends_with('…') && error.len() > 150 && chain.starts_with(error.trim_end_matches('…')), "{cut}");
        assert_eq!((&cut["pages"], &cut["message"]), (&Value::from(3), &Value::from("flush failed")));
        assert_eq!(cut["span"]["id"], "r-7");
    }

    /// A key of a sensor may have 64 KiB of characters that take two to six bytes as JSON.
    #[test]
    fn whatever_a_text_has_the_line_is_short_and_json() {
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
                        let cut: Value = serde_json::from_str(&bounded(&line, limit, true)).unwrap();
                        assert_eq!(cut["timestamp"], "2026-01-15T14:00:00.123456Z");
                        assert_eq!(cut["level"], "ERROR");
                        assert!(cut["message"].as_str().is_some_and(|text| !text.is_empty()));
                    }
                    bounded(&line, 500, false);
                }
            }
        }
    }
}
