//! Tables as RFC 4180 has them: a header row, lines that end with CR LF, quotes where they are needed.

use super::json::{self, Times};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

/// Ends a row.
const LINE_END: &str = "\r\n";

/// A row: cells with commas between them.
pub fn row<'a>(out: &mut String, cells: impl IntoIterator<Item = Cell<'a>>, times: Times) {
    for (number, cell) in cells.into_iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        match cell {
            Cell::Nothing => {}
            Cell::Text(text) => string(out, text),
            Cell::Time(time) => match times {
                Times::Text => write_rfc3339(out, time),
                Times::Epoch(unit) => out.push_str(&time.div_euclid(unit).to_string()),
            },
            Cell::Value(Value::String(text)) => string(out, text),
            Cell::Wide(sum) => out.push_str(&sum.to_string()),
            // Sums may overflow: what is not finite is not there.
            Cell::Value(Value::Float(value)) if !value.is_finite() => {}
            Cell::Value(value) => json::value(out, value),
        }
    }
    out.push_str(LINE_END);
}

/// What stands in a row.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    /// Nothing, which is not the same as an empty text.
    Nothing,
    /// A name.
    Text(&'a str),
    /// Nanoseconds, written as the query asks for.
    Time(i64),
    /// A field's value.
    Value(&'a Value),
    /// A sum of many integers.
    Wide(i128),
}

/// Empty text is quoted, so that it is told from nothing.
fn string(out: &mut String, text: &str) {
    if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
        out.push_str(text);
        return;
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut out = String::new();
        let text = Value::String("a \"b\"".into());
        let cells =
            [Cell::Text("a,b"), Cell::Value(&text), Cell::Nothing, Cell::Text(""), Cell::Value(&Value::Boolean(true))];
        row(&mut out, cells, Times::Text);
        row(&mut out, [Cell::Time(1), Cell::Value(&Value::Integer(-3)), Cell::Text("é\n")], Times::Epoch(1));
        assert_eq!(out, "\"a,b\",\"a \"\"b\"\"\",,\"\",true\r\n1,-3,\"é\n\"\r\n");
    }
}
