//! CSV rows by RFC 4180: lines that end with CR LF, quotes where needed.

use super::guard::Guard;
use super::json::{self, Times};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

const LINE_END: &str = "\r\n";

pub fn row<'a>(out: &mut String, cells: impl IntoIterator<Item = CsvCell<'a>>, times: Times, guard: Guard) {
    for (number, cell) in cells.into_iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        match cell {
            CsvCell::Nothing => {}
            CsvCell::Text(text) => string(out, text, guard),
            CsvCell::Time(time) => match times {
                Times::Text => write_rfc3339(out, time),
                Times::Epoch(unit) => out.push_str(&time.div_euclid(unit).to_string()),
            },
            CsvCell::Value(Value::String(text)) => string(out, text, guard),
            CsvCell::Wide(sum) => out.push_str(&sum.to_string()),
            // A sum may overflow: a value that is not finite is an empty cell.
            CsvCell::Value(Value::Float(value)) if !value.is_finite() => {}
            CsvCell::Value(value) => json::value(out, value),
        }
    }
    out.push_str(LINE_END);
}

#[derive(Debug, Clone, Copy)]
pub enum CsvCell<'a> {
    /// An absent value, written differently from an empty text.
    Nothing,
    Text(&'a str),
    /// Nanoseconds since the epoch.
    Time(i64),
    Value(&'a Value),
    /// A sum of integers that may exceed 64 bits.
    Wide(i128),
}

/// Empty text is quoted, to distinguish it from an absent value.
fn string(out: &mut String, text: &str, guard: Guard) {
    guard.text(out, text, text.is_empty() || text.contains([',', '"', '\n', '\r']));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        let mut out = String::new();
        let text = Value::String("a \"b\"".into());
        let cells = [
            CsvCell::Text("a,b"),
            CsvCell::Value(&text),
            CsvCell::Nothing,
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
        let (text, number) = (Value::String("=1".into()), Value::Float(-1.5));
        let cells = [
            CsvCell::Text("-a"),
            CsvCell::Value(&text),
            CsvCell::Value(&number),
            CsvCell::Wide(-1),
            CsvCell::Time(-1),
            CsvCell::Nothing,
            CsvCell::Text(""),
        ];
        row(&mut out, cells, Times::Epoch(1), Guard::Spreadsheet);
        assert_eq!(out, "\"'-a\",\"'=1\",-1.5,-1,-1,,\"\"\r\n");
    }
}
