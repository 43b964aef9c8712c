//! Results of statements as InfluxDB 1.x writes them: JSON, whole or in chunks, and CSV.

use std::fmt::Write;

use super::json;
use super::text::Text;
use crate::query::influx::{Answer, Cell, Series, zone_offset};
use crate::query::{Budget, QueryError};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

/// What one statement came to.
pub struct Outcome {
    /// Its series, if it has any to show, or why there is no result.
    pub series: Result<Option<Answer>, String>,
    /// The zone of its `tz()`.
    pub zone: Option<String>,
}

/// How results are written.
pub struct Style {
    /// Nanoseconds of a unit of time; RFC 3339 without one.
    pub unit: Option<i64>,
    /// JSON or CSV.
    pub format: Format,
    /// Rows of a chunk, if it is to be chunks.
    pub chunk: Option<usize>,
}

/// JSON or CSV.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// With line breaks and indentation for people.
    Json {
        /// Whether it is for people.
        pretty: bool,
    },
    /// A header and a line per row.
    Csv,
}

impl Format {
    /// As the header has it.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json { .. } => "application/json",
            Self::Csv => "text/csv",
        }
    }
}

/// All results.
///
/// # Errors
/// When the budget is spent.
pub async fn render(budget: &Budget, outcomes: &[Outcome], style: &Style) -> Result<Text, QueryError> {
    let mut text = match style.format {
        Format::Json { pretty: true } => {
            let mut indents = Indents::default();
            Text::styled(budget, move |piece| indents.of(piece))?
        }
        _ => Text::new(budget)?,
    };
    match (style.format, style.chunk) {
        (Format::Csv, _) => csv(&mut text, outcomes, style).await?,
        (Format::Json { .. }, Some(rows)) => chunks(&mut text, outcomes, rows, style).await?,
        (Format::Json { .. }, None) => whole(&mut text, outcomes, style).await?,
    }
    text.row().await?;
    Ok(text)
}

/// A part of a series: its rows from one number on and before another.
struct Piece<'a> {
    series: &'a Series,
    rows: std::ops::Range<usize>,
    is_last: bool,
}

impl Outcome {
    fn all(&self) -> &[Series] {
        self.series.as_ref().ok().and_then(Option::as_ref).map_or(&[], |answer| &answer.series)
    }
}

async fn whole(text: &mut Text, outcomes: &[Outcome], style: &Style) -> Result<(), QueryError> {
    if outcomes.is_empty() {
        text.out.push_str("{}\n");
        return Ok(());
    }
    text.out.push_str("{\"results\":[");
    for (id, outcome) in outcomes.iter().enumerate() {
        json::comma(&mut text.out, id);
        let all = outcome.all().iter();
        let pieces: Vec<Piece<'_>> =
            all.map(|series| Piece { series, rows: 0..series.rows.len(), is_last: true }).collect();
        result(text, id, outcome, &pieces, false, style).await?;
    }
    text.out.push_str("]}\n");
    Ok(())
}

/// A line for each chunk of so many rows; a chunk is of one series.
async fn chunks(text: &mut Text, outcomes: &[Outcome], rows: usize, style: &Style) -> Result<(), QueryError> {
    for (id, outcome) in outcomes.iter().enumerate() {
        let mut left = outcome.all().len();
        if left == 0 {
            line(text, id, outcome, &[], false, style).await?;
        }
        for series in outcome.all() {
            left -= 1;
            // A list is one piece, however long.
            let is_list = series.columns.first().is_none_or(|column| column != "time");
            let all = series.rows.len();
            let size = if is_list { all } else { rows }.clamp(1, all.max(1));
            for from in (0..all.max(1)).step_by(size) {
                let to = from.saturating_add(size).min(all);
                let piece = Piece { series, rows: from..to, is_last: to == all };
                let partial = left > 0 || to < all;
                line(text, id, outcome, &[piece], partial, style).await?;
            }
        }
    }
    Ok(())
}

async fn line(
    text: &mut Text,
    id: usize,
    outcome: &Outcome,
    pieces: &[Piece<'_>],
    partial: bool,
    style: &Style,
) -> Result<(), QueryError> {
    text.out.push_str("{\"results\":[");
    result(text, id, outcome, pieces, partial, style).await?;
    text.out.push_str("]}\n");
    Ok(())
}

async fn result(
    text: &mut Text,
    id: usize,
    outcome: &Outcome,
    pieces: &[Piece<'_>],
    partial: bool,
    style: &Style,
) -> Result<(), QueryError> {
    let _ = write!(text.out, "{{\"statement_id\":{id}");
    if !pieces.is_empty() {
        text.out.push_str(",\"series\":[");
        for (number, piece) in pieces.iter().enumerate() {
            json::comma(&mut text.out, number);
            series(text, piece, outcome.zone.as_deref(), style).await?;
        }
        text.out.push(']');
    }
    if partial {
        text.out.push_str(",\"partial\":true");
    }
    if let Err(error) = &outcome.series {
        text.out.push_str(",\"error\":");
        json::string(&mut text.out, error);
    }
    text.out.push('}');
    Ok(())
}

async fn series(text: &mut Text, piece: &Piece<'_>, zone: Option<&str>, style: &Style) -> Result<(), QueryError> {
    series_head(&mut text.out, piece.series);
    let rows = &piece.series.rows[piece.rows.clone()];
    if !rows.is_empty() {
        text.out.push_str(",\"values\":[");
        for (number, row) in rows.iter().enumerate() {
            json::comma(&mut text.out, number);
            text.out.push('[');
            json::list(&mut text.out, row, |out, cell| write_cell(out, cell, zone, style));
            text.out.push(']');
            text.row().await?;
        }
        text.out.push(']');
    }
    if !piece.is_last {
        text.out.push_str(",\"partial\":true");
    }
    text.out.push('}');
    Ok(())
}

fn series_head(out: &mut String, series: &Series) {
    out.push('{');
    if let Some(name) = &series.name {
        out.push_str("\"name\":");
        json::string(out, name);
        out.push(',');
    }
    if !series.tags.is_empty() {
        out.push_str("\"tags\":{");
        json::list(out, &series.tags, |out, (key, value)| {
            json::string(out, key);
            out.push(':');
            json::string(out, value);
        });
        out.push_str("},");
    }
    out.push_str("\"columns\":[");
    json::list(out, &series.columns, |out, column| json::string(out, column));
    out.push(']');
}

fn write_cell(out: &mut String, cell: &Cell, zone: Option<&str>, style: &Style) {
    match (cell, style.unit) {
        (Cell::Null, _) => out.push_str("null"),
        (Cell::Value(Value::Float(value)), _) => float(out, *value),
        (Cell::Value(value), _) => json::value(out, value),
        // Towards zero, as InfluxDB has it.
        (Cell::Time(time), Some(unit)) => drop(write!(out, "{}", time / unit)),
        (Cell::Time(time), None) => {
            out.push('"');
            write_time(out, *time, zone);
            out.push('"');
        }
    }
}

/// A float as InfluxDB writes it: very large and very small ones with a signed exponent of two digits or more.
fn float(out: &mut String, value: f64) {
    let size = value.abs();
    if !value.is_finite() {
        out.push_str("null");
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    } else {
        let _ = write!(out, "{value}");
    }
}

/// RFC 3339, with the offset of the zone where there is one.
fn write_time(out: &mut String, time: i64, zone: Option<&str>) {
    let offset = zone.map_or(0, |zone| zone_offset(zone, time));
    write_rfc3339(out, time.saturating_add(offset));
    // As many digits of a second as it takes, and no more.
    out.pop();
    if time.rem_euclid(1_000_000_000) != 0 {
        out.truncate(out.trim_end_matches('0').len());
    }
    if offset == 0 {
        out.push('Z');
        return;
    }
    let minutes = offset.abs() / 60_000_000_000;
    let sign = if offset < 0 { '-' } else { '+' };
    let _ = write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
}

async fn csv(text: &mut Text, outcomes: &[Outcome], style: &Style) -> Result<(), QueryError> {
    let mut columns: Option<&[String]> = None;
    // Between tables, and before an error, is an empty line.
    let mut is_first = true;
    for outcome in outcomes {
        if let Err(error) = &outcome.series {
            text.out.push_str(if is_first { "error\n" } else { "\nerror\n" });
            csv_text(&mut text.out, error);
            text.out.push('\n');
            (columns, is_first) = (None, false);
        }
        for series in outcome.all() {
            if columns != Some(&series.columns) {
                text.out.push_str(if is_first { "name,tags" } else { "\nname,tags" });
                for column in &series.columns {
                    text.out.push(',');
                    csv_text(&mut text.out, column);
                }
                text.out.push('\n');
                (columns, is_first) = (Some(&series.columns[..]), false);
            }
            let tags = series.tags.iter().filter(|(_, value)| !value.is_empty());
            let tags: Vec<String> = tags.map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
            for row in &series.rows {
                csv_text(&mut text.out, series.name.as_deref().unwrap_or_default());
                text.out.push(',');
                csv_text(&mut text.out, &tags.join(","));
                for cell in row {
                    text.out.push(',');
                    csv_cell(&mut text.out, cell, style);
                }
                text.out.push('\n');
                text.row().await?;
            }
        }
    }
    Ok(())
}

fn csv_cell(out: &mut String, cell: &Cell, style: &Style) {
    match cell {
        Cell::Null => {}
        Cell::Time(time) => drop(write!(out, "{}", time / style.unit.unwrap_or(1))),
        Cell::Value(Value::String(text)) => csv_text(out, text),
        Cell::Value(Value::Float(value)) => drop(write!(out, "{value}")),
        Cell::Value(value) => json::value(out, value),
    }
}

/// A tag's key or value as in line protocol.
fn escaped(text: &str) -> String {
    text.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ")
}

/// A request that has no results at all.
pub fn refusal(error: &str, style: &Style) -> String {
    let mut out = String::new();
    match style.format {
        Format::Csv => {
            out.push_str("error\n");
            csv_text(&mut out, error);
            out.push('\n');
        }
        Format::Json { pretty } => {
            out.push_str("{\"error\":");
            json::string(&mut out, error);
            out.push_str("}\n");
            if pretty {
                out = Indents::default().of(&out);
            }
        }
    }
    out
}

/// Quoted where it must be, by RFC 4180.
fn csv_text(out: &mut String, text: &str) {
    if !text.contains([',', '"', '\n', '\r']) && !text.starts_with(' ') {
        out.push_str(text);
        return;
    }
    out.push('"');
    out.push_str(&text.replace('"', "\"\""));
    out.push('"');
}

/// JSON for people, made of JSON that comes piece by piece; a piece ends behind a bracket.
#[derive(Default)]
struct Indents {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

impl Indents {
    fn of(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len() * 2);
        let mut characters = piece.chars().peekable();
        while let Some(c) = characters.next() {
            if self.in_text {
                out.push(c);
                self.in_text = self.escaped || c != '"';
                self.escaped = !self.escaped && c == '\\';
                continue;
            }
            let next = characters.peek().copied();
            match c {
                '{' | '[' if next == Some(if c == '{' { '}' } else { ']' }) => out.push(c),
                '{' | '[' => {
                    self.depth += 1;
                    out.push(c);
                    self.break_line(&mut out);
                }
                '}' | ']' if out.ends_with(['{', '[']) => out.push(c),
                '}' | ']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.break_line(&mut out);
                    out.push(c);
                }
                ',' => {
                    out.push(c);
                    self.break_line(&mut out);
                }
                ':' => out.push_str(": "),
                '"' => {
                    self.in_text = true;
                    out.push(c);
                }
                c => out.push(c),
            }
        }
        out
    }

    fn break_line(&self, out: &mut String) {
        out.push('\n');
        (0..self.depth).for_each(|_| out.push_str("    "));
    }
}
