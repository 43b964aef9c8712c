//! The result of a statement: series of rows.

use crate::query::engine::evaluate::Position;
use crate::query::engine::memory::CHOOSE;
use crate::query::engine::memory::text_bytes;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::Value;

/// The series of a statement, or of a part of its answer, and their memory.
#[derive(Debug)]
pub struct StatementAnswer {
    pub series: Vec<ResultSeries>,
    /// Where the next part of the answer begins; `None` if this is the last one.
    pub next: Option<Position>,
    /// The memory of the series; keep it until the answer is sent.
    pub held: HeldBytes,
}

/// One series of an answer, as in InfluxDB's JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResultSeries {
    /// The measurement, or the name of a listing. Some listings have none.
    pub name: Option<String>,
    /// The tags of the grouping in key order; empty without one.
    pub tags: Vec<(String, String)>,
    pub columns: Vec<String>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<ResultCell>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ResultCell {
    Null,
    /// A time in nanoseconds.
    Time(i64),
    Value(Value),
}

/// Returns the bytes of memory of a row.
pub fn row_bytes(row: &[ResultCell]) -> usize {
    let text = |cell: &ResultCell| if let ResultCell::Value(value) = cell { text_bytes(value) } else { 0 };
    size_of::<Vec<ResultCell>>() + size_of_val(row) + row.iter().map(text).sum::<usize>()
}

impl ResultCell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Value(Value::String(text.into().into_boxed_str()))
    }
}

impl From<Option<Value>> for ResultCell {
    fn from(value: Option<Value>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

/// Rows that are built on demand.
pub type Rows<'a> = Box<dyn Iterator<Item = Vec<ResultCell>> + Send + 'a>;

impl StatementAnswer {
    /// An answer without series.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn empty(budget: &Budget) -> Result<Self, QueryError> {
        Ok(Self { series: Vec::new(), next: None, held: budget.hold(0)? })
    }

    /// Adds a series without a time column, if it has rows.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn list(&mut self, name: Option<&str>, columns: &[&str], rows: Rows<'_>) -> Result<(), QueryError> {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        let mut series = ResultSeries { name: name.map(str::to_owned), tags: Vec::new(), columns, rows: Vec::new() };
        for (number, row) in rows.enumerate() {
            self.held.grow(row_bytes(&row))?;
            series.rows.push(row);
            if number % CHOOSE == 0 {
                self.held.budget().pause().await?;
            }
        }
        if !series.rows.is_empty() {
            self.held.grow(size_of::<ResultSeries>() + name.map_or(0, str::len))?;
            self.series.push(series);
        }
        Ok(())
    }
}
