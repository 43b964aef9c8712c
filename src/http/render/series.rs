//! Writes series of readings and of windows in every format: JSON nests them, NDJSON has a line per reading or window,
//! CSV a row.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::csv::{self, CsvCell};
use super::format::Format;
use super::guard::Guard;
use super::json::{self, Times};
use super::text::Text;
use crate::bucket::Reading;
use crate::query::QueryError;
use crate::query::native::aggregate::{Aggregated, NativeAggregate, WindowSeries};
use crate::query::native::many::Vocabulary;
use crate::reading::Sensor;

/// One sensor's readings.
pub type SensorReadings = (Arc<Sensor>, Vec<Reading>);

/// The columns of a table of readings.
#[derive(Debug, Default)]
pub struct TableColumns {
    tags: Vec<String>,
    fields: Vec<String>,
}

impl TableColumns {
    /// The columns of all selected sensors, so that every part of an answer has the same ones. Requested fields keep
    /// their order.
    pub fn of(words: Vocabulary, fields: Vec<String>) -> Self {
        let mut seen = BTreeSet::new();
        let asked: Vec<String> = fields.into_iter().filter(|field| seen.insert(field.clone())).collect();
        let fields = if asked.is_empty() { words.fields.into_keys().collect() } else { asked };
        Self { tags: words.tags.into_keys().collect(), fields }
    }

    /// Adds columns that only the readings have: another instance may have stored new tags or fields since the columns
    /// were read.
    fn with(mut self, series: &[SensorReadings]) -> Self {
        let tags = series.iter().flat_map(|(sensor, _)| sensor.tags.iter().map(|(key, _)| &**key));
        add_missing(&mut self.tags, tags);
        let fields = series.iter().flat_map(|(_, readings)| readings).flat_map(|reading| &reading.fields);
        add_missing(&mut self.fields, fields.map(|(name, _)| &**name));
        self
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

/// Writes the body of an answer with readings. JSON ends with the cursor `next` and the notices.
///
/// # Errors
/// When the query's budget is used up.
pub async fn readings(
    text: &mut Text,
    format: Format,
    series: &[SensorReadings],
    columns: TableColumns,
    times: Times,
    (next, notices): (Option<&str>, &[String]),
) -> Result<(), QueryError> {
    match format {
        Format::Csv(guard) => table(text, series, &columns.with(series), (times, guard)).await?,
        _ => {
            let rows = |(_, readings): &SensorReadings| readings.len();
            let row = |out: &mut String, (_, readings): &SensorReadings, row: usize| {
                json::reading(out, &readings[row], times);
            };
            let names = ["readings", "reading"];
            nested(text, format, names, series, |out, (sensor, _)| head(out, sensor), rows, row).await?;
        }
    }
    end(text, format, next, notices).await
}

/// Ends JSON with the cursor `next` and the notices.
async fn end(text: &mut Text, format: Format, next: Option<&str>, notices: &[String]) -> Result<(), QueryError> {
    if format == Format::Json {
        json::end_with_next(&mut text.out, next, notices);
    }
    text.row().await
}

/// Writes rows by series: one JSON object without its end, or a line for each row. The names are those of all rows of a
/// series, and of one; `rows` tells their number.
async fn nested<S>(
    text: &mut Text,
    format: Format,
    [all, one]: [&str; 2],
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
        start.push_str(&format!(",\"{}\":", if is_json { all } else { one }));
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
    (times, guard): (Times, Guard),
) -> Result<(), QueryError> {
    let mut names = vec!["sensor".to_owned()];
    names.extend(columns.tags.iter().map(|tag| format!("tag.{tag}")));
    names.push("ts".to_owned());
    let is_taken = |name: &str| names.iter().any(|taken| taken == name);
    let fields: Vec<String> =
        columns.fields.iter().map(|field| json::field_name(field, is_taken).into_owned()).collect();
    csv::row(&mut text.out, names.iter().chain(&fields).map(|name| CsvCell::Text(name)), times, guard);
    for (sensor, readings) in series {
        let tags: Vec<CsvCell<'_>> =
            columns.tags.iter().map(|key| sensor.tag(key).map_or(CsvCell::Nothing, CsvCell::Text)).collect();
        for reading in readings {
            let field = |name: &String| reading.fields.iter().find(|(known, _)| **known == **name);
            let fields =
                columns.fields.iter().map(|name| field(name).map_or(CsvCell::Nothing, |(_, v)| CsvCell::Value(v)));
            let start = [CsvCell::Text(&sensor.key)].into_iter().chain(tags.iter().copied());
            csv::row(&mut text.out, start.chain([CsvCell::Time(reading.time)]).chain(fields), times, guard);
            text.row().await?;
        }
    }
    Ok(())
}

/// A field's name as JSON text, and its columns, each with its function's name as JSON text.
type JsonField = (String, Vec<(usize, String)>);

fn window(out: &mut String, (series, row): (&WindowSeries, usize), fields: &[JsonField], sparse: bool, times: Times) {
    let (span, cells) = &series.windows[row];
    out.push_str("{\"start\":");
    json::time(out, span.start, times);
    out.push_str(",\"end\":");
    json::time(out, span.end, times);
    out.push_str(",\"fields\":{");
    let is_shown = |(_, columns): &&JsonField| !sparse || columns.iter().any(|(column, _)| cells[*column].is_some());
    json::list(out, fields.iter().filter(is_shown), |out, (name, columns)| {
        out.push_str(name);
        out.push('{');
        json::list(out, columns, |out, (column, name)| {
            out.push_str(name);
            match (series.wide_sum(row, *column), &cells[*column]) {
                (Some(sum), _) => out.push_str(&sum.to_string()),
                (None, Some(value)) => json::value(out, value),
                (None, None) => out.push_str("null"),
            }
        });
        out.push('}');
    });
    out.push_str("}}");
}

/// Windows, and how to write them.
pub struct WindowTable {
    pub found: Aggregated,
    /// Whether a window leaves out fields without a value.
    pub sparse: bool,
    /// The key of a series' name: `sensor`, or `measurement` if sensors are grouped.
    pub by: &'static str,
}

impl WindowTable {
    /// Writes the body of an answer with windows. JSON ends with the notices.
    ///
    /// # Errors
    /// When the query's budget is used up.
    pub async fn write(
        &self,
        text: &mut Text,
        format: Format,
        times: Times,
        notices: &[String],
    ) -> Result<(), QueryError> {
        match format {
            Format::Csv(guard) => self.table(text, times, guard).await?,
            _ => {
                let fields = self.fields();
                let rows = |series: &WindowSeries| series.windows.len();
                let row = |out: &mut String, series: &WindowSeries, row: usize| {
                    window(out, (series, row), &fields, self.sparse, times);
                };
                let names = ["windows", "window"];
                nested(text, format, names, &self.found.series, |out, of| self.head(out, of), rows, row).await?;
            }
        }
        end(text, format, None, notices).await
    }

    fn head(&self, out: &mut String, series: &WindowSeries) {
        let tags = series.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        json::head(out, self.by, series.sensor.as_deref().unwrap_or(&series.measurement), tags);
    }

    /// The fields with their columns.
    fn fields(&self) -> Vec<JsonField> {
        let word = |name: &str| {
            let mut word = String::new();
            json::string(&mut word, name);
            word.push(':');
            word
        };
        let columns: Vec<_> = self.found.columns.iter().enumerate().collect();
        let of_one_field = columns.chunk_by(|(_, a), (_, b)| a.0 == b.0);
        let columns = |field: &[(usize, &(String, NativeAggregate))]| {
            field.iter().map(|(column, (_, function))| (*column, word(&function.name))).collect()
        };
        of_one_field.map(|field| (word(&field[0].1.0), columns(field))).collect()
    }

    /// Writes a row per window, with a column per field and function, such as `temp.max`.
    async fn table(&self, text: &mut Text, times: Times, guard: Guard) -> Result<(), QueryError> {
        let Aggregated { columns, series, .. } = &self.found;
        let tags: BTreeSet<&str> = series.iter().flat_map(|series| &series.tags).map(|(key, _)| key.as_str()).collect();
        let mut names = vec![self.by.to_owned()];
        names.extend(tags.iter().map(|tag| format!("tag.{tag}")));
        names.extend(["start".to_owned(), "end".to_owned()]);
        let is_taken = |name: &str| names.iter().any(|taken| taken == name);
        let name = |(field, function): &(String, NativeAggregate)| {
            json::field_name(&format!("{field}.{}", function.name), is_taken).into_owned()
        };
        let named: Vec<String> = columns.iter().map(name).collect();
        csv::row(&mut text.out, names.iter().chain(&named).map(|name| CsvCell::Text(name)), times, guard);
        for series in series {
            let tag = |tag: &&str| series.tags.iter().find(|(key, _)| key == tag);
            let tags: Vec<CsvCell<'_>> =
                tags.iter().map(|key| tag(key).map_or(CsvCell::Nothing, |(_, value)| CsvCell::Text(value))).collect();
            let name = series.sensor.as_deref().unwrap_or(&series.measurement);
            for (row, (span, cells)) in series.windows.iter().enumerate() {
                let cells = cells.iter().enumerate().map(|(column, cell)| match series.wide_sum(row, column) {
                    Some(sum) => CsvCell::Wide(sum),
                    None => cell.as_ref().map_or(CsvCell::Nothing, CsvCell::Value),
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
