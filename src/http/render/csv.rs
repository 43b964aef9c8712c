//! CSV rows as in RFC 4180: lines end with CR LF, and cells are quoted if necessary. A text field that looks like a number
//! or boolean is quoted, too, so that rows can be written back.

use super::guard::Guard;
use super::json::{self, Times};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;
use crate::wire::csv::parse_bare;

const LINE_END: &str = "\r\n";

/// Appends a row.
pub fn row<'a>(out: &mut String, cells: impl IntoIterator<Item = CsvCell<'a>>, times: Times, guard: Guard) {
    for (number, cell) in cells.into_iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        match cell {
            CsvCell::Empty => {}
            CsvCell::Text(text) => string(out, text, guard, false),
            CsvCell::Time(time) => match times {
                Times::Text => write_rfc3339(out, time),
                Times::Epoch(unit) => out.push_str(&time.div_euclid(unit).to_string()),
            },
            CsvCell::Value(Value::String(text)) => string(out, text, guard, parse_bare(text).is_some()),
            CsvCell::Wide(sum) => out.push_str(&sum.to_string()),
            // A sum may overflow. Values that are not finite are empty cells.
            CsvCell::Value(Value::Float(value)) if !value.is_finite() => {}
            CsvCell::Value(value) => json::value(out, value),
        }
    }
    out.push_str(LINE_END);
}

/// A cell of a row.
#[derive(Debug, Clone, Copy)]
pub enum CsvCell<'a> {
    /// A missing value, written differently from an empty string.
    Empty,
    Text(&'a str),
    /// Nanoseconds since the epoch.
    Time(i64),
    Value(&'a Value),
    /// A sum of integers that may exceed 64 bits.
    Wide(i128),
}

/// Writes a string. An empty one is quoted, to distinguish it from a missing value.
fn string(out: &mut String, text: &str, guard: Guard, is_ambiguous: bool) {
    guard.write_text(out, text, is_ambiguous || text.is_empty() || text.contains([',', '"', '\n', '\r']));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_if_necessary() {
        let mut out = String::new();
        let text = Value::String("a \"b\"".into());
        let cells = [
            CsvCell::Text("a,b"),
            CsvCell::Value(&text),
            CsvCell::Empty,
            CsvCell::Text(""),
            CsvCell::Value(&Value::Boolean(true)),
        ];
        row(&mut out, cells, Times::Text, Guard::Off);
        row(
            &mut out,
            [CsvCell::Time(1), CsvCell::Value(&Value::Integer(-3)), CsvCell::Text("é\n")],
            Times::Epoch(1),
            Guard::Off,
        );
        assert_eq!(out, "\"a,b\",\"a \"\"b\"\"\",,\"\",true\r\n1,-3,\"é\n\"\r\n");
    }

    #[test]
    fn only_text_is_guarded() {
        let mut out = String::new();
        let text = Value::String("=1".into());
        let number = Value::Float(-1.5);
        let cells = [
            CsvCell::Text("-a"),
            CsvCell::Value(&text),
            CsvCell::Value(&number),
            CsvCell::Wide(-1),
            CsvCell::Time(-1),
            CsvCell::Empty,
            CsvCell::Text(""),
        ];
        row(&mut out, cells, Times::Epoch(1), Guard::Spreadsheet);
        assert_eq!(out, "\"'-a\",\"'=1\",-1.5,-1,-1,,\"\"\r\n");
    }
}
