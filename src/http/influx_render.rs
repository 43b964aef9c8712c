//! Results of statements as InfluxDB 1.x writes them: JSON, whole or in chunks, and CSV.

use std::fmt::Write;

use super::json;
use crate::query::influx::{Cell, Series, zone_offset};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

/// What one statement came to.
pub struct Outcome {
    /// Its series, or why there is no result.
    pub series: Result<Vec<Series>, String>,
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
pub fn render(outcomes: &[Outcome], style: &Style) -> String {
    match style.format {
        Format::Csv => csv(outcomes, style),
        Format::Json { pretty } => {
            let text = if style.chunk.is_some() { chunks(outcomes, style) } else { whole(outcomes, style) };
            if pretty { indented(&text) } else { text }
        }
    }
}

/// A part of a series: its rows from one number on and before another.
struct Piece<'a> {
    series: &'a Series,
    rows: std::ops::Range<usize>,
    is_last: bool,
}

fn whole(outcomes: &[Outcome], style: &Style) -> String {
    if outcomes.is_empty() {
        return "{}\n".to_owned();
    }
    let mut out = String::from("{\"results\":[");
    json::list(&mut out, outcomes.iter().enumerate(), |out, (id, outcome)| {
        let pieces: Vec<Piece<'_>> = match &outcome.series {
            Ok(series) => {
                series.iter().map(|series| Piece { series, rows: 0..series.rows.len(), is_last: true }).collect()
            }
            Err(_) => Vec::new(),
        };
        result(out, id, outcome, &pieces, false, style);
    });
    out.push_str("]}\n");
    out
}

/// A line for each chunk; a chunk is of one series.
fn chunks(outcomes: &[Outcome], style: &Style) -> String {
    let size = style.chunk.unwrap_or(usize::MAX);
    let mut out = String::new();
    for (id, outcome) in outcomes.iter().enumerate() {
        let mut pieces: Vec<Piece<'_>> = Vec::new();
        for series in outcome.series.iter().flatten() {
            // A list is one piece, however long.
            let is_list = series.columns.first().is_none_or(|column| column != "time");
            let size = if is_list { usize::MAX } else { size };
            let all = series.rows.len();
            let from = (0..all.max(1)).step_by(size.min(all.max(1)));
            pieces.extend(from.map(|from| {
                let to = from.saturating_add(size).min(all);
                Piece { series, rows: from..to, is_last: to == all }
            }));
        }
        if pieces.is_empty() {
            line(&mut out, id, outcome, &[], false, style);
        }
        let count = pieces.len();
        for (number, piece) in pieces.into_iter().enumerate() {
            line(&mut out, id, outcome, &[piece], number + 1 < count, style);
        }
    }
    out
}

fn line(out: &mut String, id: usize, outcome: &Outcome, pieces: &[Piece<'_>], partial: bool, style: &Style) {
    out.push_str("{\"results\":[");
    result(out, id, outcome, pieces, partial, style);
    out.push_str("]}\n");
}

fn result(out: &mut String, id: usize, outcome: &Outcome, pieces: &[Piece<'_>], partial: bool, style: &Style) {
    let _ = write!(out, "{{\"statement_id\":{id}");
    if !pieces.is_empty() {
        out.push_str(",\"series\":[");
        json::list(out, pieces, |out, piece| series(out, piece, outcome.zone.as_deref(), style));
        out.push(']');
    }
    if partial {
        out.push_str(",\"partial\":true");
    }
    if let Err(error) = &outcome.series {
        out.push_str(",\"error\":");
        json::string(out, error);
    }
    out.push('}');
}

fn series(out: &mut String, piece: &Piece<'_>, zone: Option<&str>, style: &Style) {
    out.push('{');
    if let Some(name) = &piece.series.name {
        out.push_str("\"name\":");
        json::string(out, name);
        out.push(',');
    }
    if !piece.series.tags.is_empty() {
        out.push_str("\"tags\":{");
        json::list(out, &piece.series.tags, |out, (key, value)| {
            json::string(out, key);
            out.push(':');
            json::string(out, value);
        });
        out.push_str("},");
    }
    out.push_str("\"columns\":[");
    json::list(out, &piece.series.columns, |out, column| json::string(out, column));
    out.push(']');
    let rows = &piece.series.rows[piece.rows.clone()];
    if !rows.is_empty() {
        out.push_str(",\"values\":[");
        json::list(out, rows, |out, row| {
            out.push('[');
            json::list(out, row, |out, cell| write_cell(out, cell, zone, style));
            out.push(']');
        });
        out.push(']');
    }
    if !piece.is_last {
        out.push_str(",\"partial\":true");
    }
    out.push('}');
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

fn csv(outcomes: &[Outcome], style: &Style) -> String {
    let mut out = String::new();
    let mut columns: Option<&[String]> = None;
    for outcome in outcomes {
        let all = match &outcome.series {
            Ok(series) => series,
            Err(error) => {
                if !out.is_empty() {
                    out.push('\n');
                }
                out.push_str("error\n");
                csv_text(&mut out, error);
                out.push('\n');
                columns = None;
                continue;
            }
        };
        for series in all {
            if columns != Some(&series.columns) {
                if !out.is_empty() {
                    out.push('\n');
                }
                out.push_str("name,tags");
                for column in &series.columns {
                    out.push(',');
                    csv_text(&mut out, column);
                }
                out.push('\n');
                columns = Some(&series.columns);
            }
            let tags = series.tags.iter().filter(|(_, value)| !value.is_empty());
            let tags: Vec<String> = tags.map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
            for row in &series.rows {
                csv_text(&mut out, series.name.as_deref().unwrap_or_default());
                out.push(',');
                csv_text(&mut out, &tags.join(","));
                for cell in row {
                    out.push(',');
                    csv_cell(&mut out, cell, style);
                }
                out.push('\n');
            }
        }
    }
    out
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
                out = indented(&out);
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

/// The same JSON for people.
fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
        let mut characters = line.chars().peekable();
        while let Some(c) = characters.next() {
            if in_text {
                out.push(c);
                in_text = escaped || c != '"';
                escaped = !escaped && c == '\\';
                continue;
            }
            let next = characters.peek().copied();
            match c {
                '{' | '[' if next == Some(if c == '{' { '}' } else { ']' }) => out.push(c),
                '{' | '[' => {
                    depth += 1;
                    out.push(c);
                    break_line(&mut out, depth);
                }
                '}' | ']' if out.ends_with(['{', '[']) => out.push(c),
                '}' | ']' => {
                    depth = depth.saturating_sub(1);
                    break_line(&mut out, depth);
                    out.push(c);
                }
                ',' => {
                    out.push(c);
                    break_line(&mut out, depth);
                }
                ':' => out.push_str(": "),
                '"' => {
                    in_text = true;
                    out.push(c);
                }
                c => out.push(c),
            }
        }
        out.push('\n');
    }
    out
}

fn break_line(out: &mut String, depth: usize) {
    out.push('\n');
    (0..depth).for_each(|_| out.push_str("    "));
}
