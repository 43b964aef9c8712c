//! Formats readings as line protocol, which [`super::Lines`] parses to the same readings.

use std::fmt::Write;

use super::escape::separates;
use hourglass_model::reading::Value;

/// Appends a line with a sensor's canonical key, the fields, and the time in nanoseconds since the epoch.
pub fn write_line<'a>(out: &mut String, sensor: &str, fields: impl Iterator<Item = (&'a str, &'a Value)>, time: i64) {
    out.push_str(sensor);
    write_fields(out, fields);
    // Writing to a String cannot fail.
    let _ = writeln!(out, " {time}");
}

/// Appends the fields of a line, with the space before them.
pub(crate) fn write_fields<'a>(out: &mut String, fields: impl Iterator<Item = (&'a str, &'a Value)>) {
    let mut separator = ' ';
    for (name, value) in fields {
        out.push(std::mem::replace(&mut separator, ','));
        for c in name.chars() {
            if u8::try_from(c).is_ok_and(separates) {
                out.push('\\');
            }
            out.push(c);
        }
        out.push('=');
        write_value(out, value);
    }
}

fn write_value(out: &mut String, value: &Value) {
    // Writing to a String cannot fail.
    let _ = match value {
        Value::Float(v) => write!(out, "{v:?}"),
        Value::Integer(v) => write!(out, "{v}i"),
        Value::Unsigned(v) => write!(out, "{v}u"),
        Value::Boolean(v) => write!(out, "{v}"),
        Value::String(text) => {
            out.push('"');
            for c in text.chars() {
                if matches!(c, '"' | '\\') {
                    out.push('\\');
                }
                out.push(c);
            }
            out.push('"');
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use super::super::Lines;
    use super::*;
    use crate::Points;
    use hourglass_model::reading::{Limits, Precision};

    #[test]
    fn written_lines_round_trip() {
        let fields = [
            ("a b,c=d", Value::Float(-1.5e-300)),
            ("whole", Value::Float(3.0)),
            ("i", Value::Integer(i64::MIN)),
            ("u", Value::Unsigned(u64::MAX)),
            ("t", Value::Boolean(true)),
            ("s", Value::String("say \"x\\y\" \\ twice".into())),
        ];
        let mut text = String::new();
        write_line(&mut text, r"m,tag\ one=a\,b", fields.iter().map(|(name, value)| (*name, value)), -7);
        let mut lines = Lines::new(text.as_bytes(), Precision::Nanoseconds, Limits::default());
        let line = lines.next().expect("a line").expect("a good one");
        assert_eq!((line.spelling(), line.timestamp), (r"m,tag\ one=a\,b", Some(-7)));
        let read: Vec<(String, Value)> =
            line.fields.iter().map(|(name, value)| (name.to_string(), value.clone().into_value())).collect();
        assert_eq!(read, fields.map(|(name, value)| (name.to_owned(), value)));
    }
}
