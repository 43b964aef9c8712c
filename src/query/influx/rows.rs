//! What a statement comes to: series of rows.

use crate::query::Held;
use crate::query::engine::evaluate::text_bytes;
use crate::reading::Value;

/// What a statement came to, and what it takes.
#[derive(Debug)]
pub struct Answer {
    /// In order.
    pub series: Vec<Series>,
    /// Given back when the answer has left.
    pub held: Held,
}

/// One series of an answer, as InfluxDB's JSON has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// The measurement, or what is listed; some lists have no name.
    pub name: Option<String>,
    /// The tags that it is grouped by, in key order; empty without a grouping.
    pub tags: Vec<(String, String)>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows; each has a cell per column.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing.
    Null,
    /// A time in nanoseconds.
    Time(i64),
    /// A value.
    Value(Value),
}

/// The memory that a row takes.
pub fn row_bytes(row: &[Cell]) -> usize {
    let text = |cell: &Cell| if let Cell::Value(value) = cell { text_bytes(value) } else { 0 };
    size_of::<Vec<Cell>>() + size_of_val(row) + row.iter().map(text).sum::<usize>()
}

impl Cell {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Value(Value::String(text.into().into_boxed_str()))
    }
}

impl From<Option<Value>> for Cell {
    fn from(value: Option<Value>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

/// A list of one series without a time.
pub fn list(name: Option<&str>, columns: &[&str], rows: Vec<Vec<Cell>>) -> Series {
    let columns = columns.iter().map(|column| (*column).to_owned()).collect();
    Series { name: name.map(str::to_owned), tags: Vec::new(), columns, rows }
}
