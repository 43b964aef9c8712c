//! Series of readings and of windows, in every format: one shape whatever was asked. JSON nests them, NDJSON has a
//! line per reading or window, CSV a row.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::csv::{self, Cell};
use super::format::Format;
use super::json::{self, Times};
use crate::bucket::Reading;
use crate::query::native::aggregate::WindowSeries;
use crate::query::native::many::Vocabulary;
use crate::reading::{Sensor, Value};

/// One sensor's readings.
pub type Readings = (Arc<Sensor>, Vec<Reading>);

/// The columns of a table of readings.
#[derive(Debug, Default)]
pub struct Columns {
    tags: Vec<String>,
    fields: Vec<String>,
}

impl Columns {
    /// Of all sensors chosen, so that every part of an answer has the same; the fields asked for stand in the order in
    /// which they were.
    pub fn of(words: Vocabulary, fields: Vec<String>) -> Self {
        let mut seen = BTreeSet::new();
        let asked: Vec<String> = fields.into_iter().filter(|field| seen.insert(field.clone())).collect();
        let fields = if asked.is_empty() { words.fields.into_keys().collect() } else { asked };
        Self { tags: words.tags.into_keys().collect(), fields }
    }

    /// What another instance has stored a moment ago may have more.
    fn with(mut self, series: &[Readings]) -> Self {
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

/// The body of an answer of readings. In JSON a cursor ends it.
pub fn readings(format: Format, series: &[Readings], columns: Columns, times: Times, next: Option<&str>) -> String {
    let mut out = String::with_capacity(64 + series.iter().map(|(_, readings)| readings.len() * 80).sum::<usize>());
    match format {
        Format::Json => {
            out.push_str("{\"series\":[");
            json::list(&mut out, series, |out, (sensor, readings)| {
                head(out, sensor);
                out.push_str(",\"readings\":[");
                json::list(out, readings, |out, reading| json::reading(out, reading, times));
                out.push_str("]}");
            });
            json::end_with_next(&mut out, next);
        }
        Format::Lines => {
            for (sensor, readings) in series {
                let mut start = String::new();
                head(&mut start, sensor);
                for reading in readings {
                    out.push_str(&start);
                    out.push_str(",\"reading\":");
                    json::reading(&mut out, reading, times);
                    out.push_str("}\n");
                }
            }
        }
        Format::Csv => table(&mut out, series, &columns.with(series), times),
    }
    out
}

fn head(out: &mut String, sensor: &Sensor) {
    json::head(out, "sensor", &sensor.key, sensor.tags.iter().map(|(key, value)| (&**key, &**value)));
}

fn table(out: &mut String, series: &[Readings], columns: &Columns, times: Times) {
    let mut names = vec!["sensor".to_owned()];
    names.extend(columns.tags.iter().map(|tag| format!("tag.{tag}")));
    names.push("ts".to_owned());
    let is_taken = |name: &str| names.iter().any(|taken| taken == name);
    let fields: Vec<String> =
        columns.fields.iter().map(|field| json::field_name(field, is_taken).into_owned()).collect();
    csv::row(out, names.iter().chain(&fields).map(|name| Cell::Text(name)), times);
    for (sensor, readings) in series {
        let tags: Vec<Cell<'_>> =
            columns.tags.iter().map(|key| sensor.tag(key).map_or(Cell::Nothing, Cell::Text)).collect();
        for reading in readings {
            let field = |name: &String| reading.fields.iter().find(|(known, _)| **known == **name);
            let fields = columns.fields.iter().map(|name| field(name).map_or(Cell::Nothing, |(_, v)| Cell::Value(v)));
            let start = [Cell::Text(&sensor.key)].into_iter().chain(tags.iter().copied());
            csv::row(out, start.chain([Cell::Time(reading.time)]).chain(fields), times);
        }
    }
}

/// One series of windows, whatever it was made of.
pub struct Windows {
    /// The sensor's key, or the measurement of those that were grouped.
    pub name: String,
    /// The sensor's tags, or those grouped by.
    pub tags: Vec<(String, String)>,
    /// In time order.
    pub rows: Vec<Row>,
}

/// A window: its span, and per field what each function says.
pub type Row = (Range<i64>, Vec<(Arc<str>, Figures)>);

/// What each function says of a field.
pub type Figures = Vec<(String, Option<Value>)>;

impl Windows {
    /// Of any functions.
    pub fn of_series(series: WindowSeries) -> Self {
        let mut rows = Vec::with_capacity(series.windows.len());
        for window in series.windows {
            let fields = window.fields.into_iter().map(|(name, values)| {
                let figures = values.into_iter().map(|(function, figure)| (function.name(), figure));
                (Arc::from(name), figures.collect())
            });
            rows.push((window.span, fields.collect()));
        }
        Self { name: series.sensor.unwrap_or(series.measurement), tags: series.tags, rows }
    }
}

/// The body of an answer of windows. `by` is what the series are of: `sensor`, or `measurement` where sensors were
/// grouped.
pub fn windows(format: Format, by: &str, series: &[Windows], times: Times) -> String {
    let mut out = String::new();
    match format {
        Format::Json => {
            out.push_str("{\"series\":[");
            json::list(&mut out, series, |out, series| {
                json::head(out, by, &series.name, pairs(series));
                out.push_str(",\"windows\":[");
                json::list(out, &series.rows, |out, (span, fields)| window(out, span, fields, times));
                out.push_str("]}");
            });
            json::end_with_next(&mut out, None);
        }
        Format::Lines => {
            for series in series {
                for (span, fields) in &series.rows {
                    json::head(&mut out, by, &series.name, pairs(series));
                    out.push_str(",\"window\":");
                    window(&mut out, span, fields, times);
                    out.push_str("}\n");
                }
            }
        }
        Format::Csv => window_table(&mut out, by, series, times),
    }
    out
}

fn pairs(series: &Windows) -> impl Iterator<Item = (&str, &str)> {
    series.tags.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

fn window(out: &mut String, span: &Range<i64>, fields: &[(Arc<str>, Figures)], times: Times) {
    out.push_str("{\"start\":");
    json::time(out, span.start, times);
    out.push_str(",\"end\":");
    json::time(out, span.end, times);
    out.push_str(",\"fields\":{");
    json::list(out, fields, |out, (name, figures)| {
        json::string(out, name);
        out.push_str(":{");
        json::list(out, figures, |out, (function, figure)| {
            json::string(out, function);
            out.push(':');
            match figure {
                None => out.push_str("null"),
                Some(value) => json::value(out, value),
            }
        });
        out.push('}');
    });
    out.push_str("}}");
}

/// A row per window; of each field a column per function, `temp.max`.
fn window_table(out: &mut String, by: &str, series: &[Windows], times: Times) {
    let mut tags = Vec::new();
    add_missing(&mut tags, series.iter().flat_map(|series| &series.tags).map(|(key, _)| key.as_str()));
    tags.sort();
    let rows = || series.iter().flat_map(|series| &series.rows);
    let figures = rows()
        .flat_map(|(_, fields)| fields)
        .flat_map(|(field, figures)| figures.iter().map(move |(function, _)| (&**field, function.as_str())));
    let mut seen = BTreeSet::new();
    let mut columns: Vec<(&str, &str)> = figures.filter(|column| seen.insert(*column)).collect();
    columns.sort_by(|a, b| a.0.cmp(b.0));
    let mut names = vec![by.to_owned()];
    names.extend(tags.iter().map(|tag| format!("tag.{tag}")));
    names.extend(["start".to_owned(), "end".to_owned()]);
    let is_taken = |name: &str| names.iter().any(|taken| taken == name);
    let named: Vec<String> = columns
        .iter()
        .map(|(field, function)| json::field_name(&format!("{field}.{function}"), is_taken).into_owned())
        .collect();
    csv::row(out, names.iter().chain(&named).map(|name| Cell::Text(name)), times);
    for series in series {
        let tag = |tag: &String| series.tags.iter().find(|(key, _)| key == tag);
        let tags: Vec<Cell<'_>> =
            tags.iter().map(|key| tag(key).map_or(Cell::Nothing, |(_, value)| Cell::Text(value))).collect();
        for (span, fields) in &series.rows {
            let cell = |(field, function): &(&str, &str)| {
                let (_, figures) = fields.iter().find(|(name, _)| **name == **field)?;
                let (_, figure) = figures.iter().find(|(name, _)| name == function)?;
                figure.as_ref().map(Cell::Value)
            };
            let start = [Cell::Text(&series.name)].into_iter().chain(tags.iter().copied());
            let figures = columns.iter().map(|column| cell(column).unwrap_or(Cell::Nothing));
            csv::row(out, start.chain([Cell::Time(span.start), Cell::Time(span.end)]).chain(figures), times);
        }
    }
}
