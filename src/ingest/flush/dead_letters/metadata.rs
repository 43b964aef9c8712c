//! Metadata that the store will never accept: a file of JSON lines beside the dead letters, for people, who correct it, set it
//! again and remove its line.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::bucket::Meta;
use crate::reading::stamp::SETTLED;
use crate::reading::time::write_rfc3339;

/// The file beside that of readings.
pub fn path_beside(dead_letters: &Path) -> PathBuf {
    dead_letters.with_extension("meta.jsonl")
}

/// A line: the sensor, what was set (null where a name was removed), whether that replaces everything older, and why the
/// store refuses it.
pub fn line(database: &str, sensor: &str, change: &Meta, now_ns: i64, reason: &str) -> String {
    let mut kept = String::new();
    write_rfc3339(&mut kept, now_ns);
    let value = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    let meta: Map<String, Value> = change
        .entries()
        .map(|(name, entry)| (name.to_owned(), entry.value.as_deref().map_or(Value::Null, value)))
        .collect();
    let replaces = change.replaced() != SETTLED;
    let line = json!({
        "database": database, "sensor": sensor, "meta": meta, "replaces": replaces, "kept": kept, "reason": reason,
    });
    format!("{line}\n")
}

/// How many changes the file has.
///
/// # Errors
/// If it is there and cannot be read.
pub fn count(path: &Path) -> io::Result<u64> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut changes = 0;
    for line in BufReader::new(file).split(b'\n') {
        changes += u64::from(line?.starts_with(b"{"));
    }
    Ok(changes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_was_set_and_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_beside(&folder.path().join("dead-letters.lp"));
        assert_eq!((path.file_name().unwrap().to_str(), count(&path).unwrap()), (Some("dead-letters.meta.jsonl"), 0));
        let change = Meta::change(7, false, [("site".into(), Some("\"lab\"".into())), ("unit".into(), None)]);
        let line = line("d", "m,s=1", &change, 0, "too\nlarge");
        std::fs::write(&path, format!("{line}# cut off\n{line}")).unwrap();
        assert_eq!(count(&path).unwrap(), 2);
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["meta"], json!({"site": "lab", "unit": null}));
        assert_eq!(
            (&read["sensor"], &read["replaces"], &read["reason"]),
            (&json!("m,s=1"), &json!(false), &json!("too\nlarge"))
        );
    }
}
