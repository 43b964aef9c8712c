//! Writes series of readings and of windows in all formats. JSON nests them by series; NDJSON has one line, and CSV one
//! row, per reading or window.

use std::collections::BTreeSet;

use super::csv::{self, CsvCell};
use super::format::Format;
use super::guard::Guard;
use super::json::{self, Times};
use super::text::Text;
use crate::query::QueryError;
use crate::query::native::aggregate::{Aggregates, WindowSeries};
use crate::query::native::functions::NativeAggregate;
use crate::query::native::many::{SensorReadings, Vocabulary};
use crate::reading::Sensor;
use crate::wire::names::field_name;

/// The columns of a CSV table of readings.
#[derive(Debug, Default)]
pub struct TableColumns {
    tags: Vec<String>,
    fields: Vec<String>,
    /// True if the table has begun, with its row of names.
    has_begun: bool,
}

impl TableColumns {
    /// Makes the columns of all selected sensors, so that all parts of an answer have the same ones. Requested fields
    /// keep their order.
    pub fn new(words: Vocabulary, fields: Vec<String>) -> Self {
        let mut seen = BTreeSet::new();
        let requested: Vec<String> = fields.into_iter().filter(|field| seen.insert(field.clone())).collect();
        let fields = if requested.is_empty() { words.fields.into_keys().collect() } else { requested };
        Self { tags: words.tags.into_keys().collect(), fields, has_begun: false }
    }

    /// Adds missing columns of the readings. Another instance may have stored new tags or fields since the columns were
    /// read.
    ///
    /// # Errors
    /// [`QueryError::Changed`] if the table has begun.
    fn add_missing_columns(&mut self, series: &[SensorReadings]) -> Result<(), QueryError> {
        let count = self.tags.len() + self.fields.len();
        let tags = series.iter().flat_map(|series| series.sensor.tags.iter().map(|(key, _)| &**key));
        add_missing(&mut self.tags, tags);
        let fields = series.iter().flat_map(|series| &series.readings).flat_map(|reading| &reading.fields);
        add_missing(&mut self.fields, fields.map(|(name, _)| &**name));
        if self.has_begun && self.tags.len() + self.fields.len() > count {
            return Err(QueryError::Changed);
        }
        Ok(())
    }
}

fn add_missing<'a>(known: &mut Vec<String>, names: impl Iterator<Item = &'a str>) {
    let mut seen: BTreeSet<String> = known.iter().cloned().collect();
    for name in names {
        if !seen.contains(name) {
            seen.insert(name.to_owned());
            known.push(name.to_owned());
        }
    }
}

/// The last members of a JSON answer.
#[derive(Clone, Copy)]
pub struct AnswerEnd<'a> {
    /// The cursor of the next part.
    pub next: Option<&'a str>,
    pub notices: &'a [String],
}

/// Writes the body of an answer with readings.
///
/// # Errors
/// If the budget of the query is used up.
pub async fn readings(
    text: &mut Text,
    format: Format,
    series: &[SensorReadings],
    columns: &mut TableColumns,
    times: Times,
    end: AnswerEnd<'_>,
) -> Result<(), QueryError> {
    match format {
        Format::Csv(guard) => {
            columns.add_missing_columns(series)?;
            table(text, series, columns, times, guard).await?;
            columns.has_begun = true;
        }
        _ => {
            let rows = |series: &SensorReadings| series.readings.len();
            let row = |out: &mut String, series: &SensorReadings, row: usize| {
                json::reading(out, &series.readings[row], times);
            };
            let name = if format == Format::Json { "readings" } else { "reading" };
            write_nested(text, format, name, series, |out, series| head(out, &series.sensor), rows, row).await?;
        }
    }
    write_end(text, format, end).await
}

/// Ends JSON with the cursor and the notices.
async fn write_end(text: &mut Text, format: Format, end: AnswerEnd<'_>) -> Result<(), QueryError> {
    if format == Format::Json {
        json::end_with_next(&mut text.out, end.next, end.notices);
    }
    text.row().await
}

/// Writes the rows of all series: a JSON object without its end, or one line per row. `name` is the member with the
/// rows of a series, or with the row of a line. `rows` returns their number.
async fn write_nested<S>(
    text: &mut Text,
    format: Format,
    name: &str,
    series: &[S],
    head: impl Fn(&mut String, &S),
    rows: impl Fn(&S) -> usize,
    row: impl Fn(&mut String, &S, usize),
) -> Result<(), QueryError> {
    let is_json = format == Format::Json;
    if is_json {
        text.out.push_str("{\"series\":[");
    }
    for (number, series) in series.iter().enumerate() {
        let mut start = String::new();
        head(&mut start, series);
        start.push_str(&format!(",\"{name}\":"));
        if is_json {
            json::comma(&mut text.out, number);
            text.out.push_str(&start);
            text.out.push('[');
        }
        for number in 0..rows(series) {
            if is_json {
                json::comma(&mut text.out, number);
                row(&mut text.out, series, number);
            } else {
                text.out.push_str(&start);
                row(&mut text.out, series, number);
                text.out.push_str("}\n");
            }
            text.row().await?;
        }
        if is_json {
            text.out.push_str("]}");
        }
    }
    Ok(())
}

fn head(out: &mut String, sensor: &Sensor) {
    json::head(out, "sensor", &sensor.key, sensor.tags.iter().map(|(key, value)| (&**key, &**value)));
}

async fn table(
    text: &mut Text,
    series: &[SensorReadings],
    columns: &TableColumns,
    times: Times,
    guard: Guard,
) -> Result<(), QueryError> {
    let mut names = vec!["sensor".to_owned()];
    names.extend(columns.tags.iter().map(|tag| format!("tag.{tag}")));
    names.push("ts".to_owned());
    let is_taken = |name: &str| names.iter().any(|taken| taken == name);
    let fields: Vec<String> = columns.fields.iter().map(|field| field_name(field, is_taken).into_owned()).collect();
    if !columns.has_begun {
        csv::row(&mut text.out, names.iter().chain(&fields).map(|name| CsvCell::Text(name)), times, guard);
    }
    for SensorReadings { sensor, readings } in series {
        let tags: Vec<CsvCell<'_>> =
            columns.tags.iter().map(|key| sensor.tag(key).map_or(CsvCell::Empty, CsvCell::Text)).collect();
        for reading in readings {
            let field = |name: &String| reading.fields.iter().find(|(known, _)| **known == **name);
            let fields =
                columns.fields.iter().map(|name| field(name).map_or(CsvCell::Empty, |(_, v)| CsvCell::Value(v)));
            let start = [CsvCell::Text(&sensor.key)].into_iter().chain(tags.iter().copied());
            csv::row(&mut text.out, start.chain([CsvCell::Time(reading.time)]).chain(fields), times, guard);
            text.row().await?;
        }
    }
    Ok(())
}

/// A field of a window, with JSON texts such as `"temp":`.
struct JsonField {
    name: String,
    columns: Vec<JsonColumn>,
}

/// A function of a field.
struct JsonColumn {
    /// The index of the column.
    index: usize,
    name: String,
}

fn window(out: &mut String, series: &WindowSeries, row: usize, fields: &[JsonField], is_sparse: bool, times: Times) {
    let (span, cells) = &series.windows[row];
    out.push_str("{\"start\":");
    json::time(out, span.start, times);
    out.push_str(",\"end\":");
    json::time(out, span.end, times);
    out.push_str(",\"fields\":{");
    let has_values = |field: &JsonField| field.columns.iter().any(|column| cells[column.index].is_some());
    let shown = fields.iter().filter(|field| !is_sparse || has_values(field));
    json::list(out, shown, |out, JsonField { name, columns }| {
        out.push_str(name);
        out.push('{');
        json::list(out, columns, |out, JsonColumn { index, name }| {
            out.push_str(name);
            match (series.wide_sum(row, *index), &cells[*index]) {
                (Some(sum), _) => out.push_str(&sum.to_string()),
                (None, Some(value)) => json::value(out, value),
                (None, None) => out.push_str("null"),
            }
        });
        out.push('}');
    });
    out.push_str("}}");
}

/// Windows and their format.
pub struct WindowTable {
    pub found: Aggregates,
    /// True to omit fields without a value from windows.
    pub is_sparse: bool,
    /// The member with the name of a series: `sensor`, or `measurement` if sensors are grouped.
    pub series_member: &'static str,
}

impl WindowTable {
    /// Writes the body of an answer with windows.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub async fn write(
        &self,
        text: &mut Text,
        format: Format,
        times: Times,
        end: AnswerEnd<'_>,
    ) -> Result<(), QueryError> {
        match format {
            Format::Csv(guard) => self.table(text, times, guard).await?,
            _ => {
                let fields = self.fields();
                let rows = |series: &WindowSeries| series.windows.len();
                let row = |out: &mut String, series: &WindowSeries, row: usize| {
                    window(out, series, row, &fields, self.is_sparse, times);
                };
                let name = if format == Format::Json { "windows" } else { "window" };
                let head = |out: &mut String, series: &WindowSeries| self.head(out, series);
                write_nested(text, format, name, &self.found.series, head, rows, row).await?;
            }
        }
        write_end(text, format, end).await
    }

    fn head(&self, out: &mut String, series: &WindowSeries) {
        let tags = series.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        json::head(out, self.series_member, series.sensor.as_deref().unwrap_or(&series.measurement), tags);
    }

    /// Groups the columns by field.
    fn fields(&self) -> Vec<JsonField> {
        let member = |name: &str| {
            let mut member = String::new();
            json::string(&mut member, name);
            member.push(':');
            member
        };
        let mut fields: Vec<JsonField> = Vec::new();
        let mut last_field = None;
        for (index, (field, function)) in self.found.columns.iter().enumerate() {
            let column = JsonColumn { index, name: member(&function.name) };
            match fields.last_mut() {
                Some(last) if last_field == Some(field) => last.columns.push(column),
                _ => fields.push(JsonField { name: member(field), columns: vec![column] }),
            }
            last_field = Some(field);
        }
        fields
    }

    /// Writes a row per window, with a column per field and function, such as `temp.max`.
    async fn table(&self, text: &mut Text, times: Times, guard: Guard) -> Result<(), QueryError> {
        let Aggregates { columns, series, tags, .. } = &self.found;
        let mut names = vec![self.series_member.to_owned()];
        names.extend(tags.iter().map(|tag| format!("tag.{tag}")));
        names.extend(["start".to_owned(), "end".to_owned()]);
        let is_taken = |name: &str| names.iter().any(|taken| taken == name);
        let name = |(field, function): &(String, NativeAggregate)| {
            field_name(&format!("{field}.{}", function.name), is_taken).into_owned()
        };
        let named: Vec<String> = columns.iter().map(name).collect();
        csv::row(&mut text.out, names.iter().chain(&named).map(|name| CsvCell::Text(name)), times, guard);
        for series in series {
            let tag = |tag: &String| series.tags.iter().find(|(key, _)| key == tag);
            let tags: Vec<CsvCell<'_>> =
                tags.iter().map(|key| tag(key).map_or(CsvCell::Empty, |(_, value)| CsvCell::Text(value))).collect();
            let name = series.sensor.as_deref().unwrap_or(&series.measurement);
            for (row, (span, cells)) in series.windows.iter().enumerate() {
                let cells = cells.iter().enumerate().map(|(column, cell)| match series.wide_sum(row, column) {
                    Some(sum) => CsvCell::Wide(sum),
                    None => cell.as_ref().map_or(CsvCell::Empty, CsvCell::Value),
                });
                let start = [CsvCell::Text(name)].into_iter().chain(tags.iter().copied());
                let start = start.chain([CsvCell::Time(span.start), CsvCell::Time(span.end)]);
                csv::row(&mut text.out, start.chain(cells), times, guard);
                text.row().await?;
            }
        }
        Ok(())
    }
}
