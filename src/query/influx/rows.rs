//! What a statement comes to: series of rows.

use crate::query::engine::choose::CHOOSE;
use crate::query::engine::evaluate::text_bytes;
use crate::query::{Held, QueryError};
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

/// Rows as they are wanted.
pub type Rows<'a> = Box<dyn Iterator<Item = Vec<Cell>> + Send + 'a>;

impl Answer {
    /// Adds a series without a time, if it has rows.
    ///
    /// # Errors
    /// When the budget is spent.
    pub async fn list(&mut self, name: Option<&str>, columns: &[&str], rows: Rows<'_>) -> Result<(), QueryError> {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let mut series = Series { name: name.map(str::to_owned), tags: Vec::new(), columns, rows: Vec::new() };
        for (number, row) in rows.enumerate() {
            self.held.grow(row_bytes(&row))?;
            series.rows.push(row);
            if number % CHOOSE == 0 {
                self.held.budget().pause().await?;
            }
        }
        if !series.rows.is_empty() {
            self.held.grow(size_of::<Series>() + name.map_or(0, str::len))?;
            self.series.push(series);
        }
        Ok(())
    }
}
