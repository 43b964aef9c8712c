//! Writes statement results in the formats of InfluxDB 1.x: JSON, whole or in chunks, and CSV.

use std::fmt::Write;

use crate::http::render::format::Format;
use crate::http::render::guard::Guard;
use crate::http::render::json;
use crate::http::render::text::Text;
use crate::query::influx::{ResultCell, ResultSeries, StatementAnswer, zone_offset};
use crate::query::{Budget, QueryError};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

/// The result of one statement.
pub struct StatementResult {
    /// The series (`None` for a statement without a result), or the error text.
    pub series: Result<Option<StatementAnswer>, String>,
    /// The time zone of `tz()`.
    pub zone: Option<String>,
}

/// The requested format of an answer.
pub struct RenderStyle {
    /// The unit of timestamps in nanoseconds; `None` for RFC 3339.
    pub unit: Option<i64>,
    /// JSON or CSV.
    pub format: Format,
    /// True to indent JSON.
    pub is_pretty: bool,
    /// Rows per chunk; `None` for one document.
    pub chunk: Option<usize>,
}

impl RenderStyle {
    /// The content type of the answer.
    pub fn media_type(&self) -> &'static str {
        if matches!(self.format, Format::Csv(_)) { "text/csv" } else { Format::Json.media_type() }
    }
}

/// Writes all results.
///
/// # Errors
/// If the budget of the query is used up.
pub async fn render(budget: &Budget, outcomes: &[StatementResult], style: &RenderStyle) -> Result<Text, QueryError> {
    let mut text = if style.is_pretty && style.format == Format::Json {
        let mut indents = Indents::default();
        Text::with_style(budget, move |piece| indents.indent(piece))?
    } else {
        Text::new(budget)?
    };
    match (style.format, style.chunk) {
        (Format::Csv(guard), _) => csv(&mut text, outcomes, guard, style).await?,
        (_, Some(rows)) => chunks(&mut text, outcomes, rows, style).await?,
        (_, None) => whole(&mut text, outcomes, style).await?,
    }
    text.row().await?;
    Ok(text)
}

/// A range of a series' rows.
struct SeriesPiece<'a> {
    series: &'a ResultSeries,
    rows: &'a [Vec<ResultCell>],
    is_last: bool,
}

impl StatementResult {
    fn all_series(&self) -> &[ResultSeries] {
        self.series.as_ref().ok().and_then(Option::as_ref).map_or(&[], |answer| &answer.series)
    }
}

async fn whole(text: &mut Text, outcomes: &[StatementResult], style: &RenderStyle) -> Result<(), QueryError> {
    if outcomes.is_empty() {
        text.out.push_str("{}\n");
        return Ok(());
    }
    text.out.push_str("{\"results\":[");
    for (id, outcome) in outcomes.iter().enumerate() {
        json::comma(&mut text.out, id);
        let all = outcome.all_series().iter();
        let pieces: Vec<SeriesPiece<'_>> =
            all.map(|series| SeriesPiece { series, rows: &series.rows, is_last: true }).collect();
        result(text, id, outcome, &pieces, false, style).await?;
    }
    text.out.push_str("]}\n");
    Ok(())
}

/// Writes one line per chunk of up to `rows` rows; a chunk holds one series.
async fn chunks(
    text: &mut Text,
    outcomes: &[StatementResult],
    rows: usize,
    style: &RenderStyle,
) -> Result<(), QueryError> {
    for (id, outcome) in outcomes.iter().enumerate() {
        let all = outcome.all_series();
        for (number, series) in all.iter().enumerate() {
            for piece in pieces(series, rows) {
                let is_partial = !piece.is_last || number + 1 < all.len();
                line(text, id, outcome, &[piece], is_partial, style).await?;
            }
        }
        if all.is_empty() {
            line(text, id, outcome, &[], false, style).await?;
        }
    }
    Ok(())
}

async fn line(
    text: &mut Text,
    id: usize,
    outcome: &StatementResult,
    pieces: &[SeriesPiece<'_>],
    is_partial: bool,
    style: &RenderStyle,
) -> Result<(), QueryError> {
    text.out.push_str("{\"results\":[");
    result(text, id, outcome, pieces, is_partial, style).await?;
    text.out.push_str("]}\n");
    Ok(())
}

/// Splits a series into pieces of up to `rows` rows, at least one. A series without times is a list, which is never
/// split.
fn pieces(series: &ResultSeries, rows: usize) -> impl Iterator<Item = SeriesPiece<'_>> {
    let is_list = series.columns.first().is_none_or(|column| column != "time");
    let all = series.rows.len();
    let size = if is_list { all } else { rows }.clamp(1, all.max(1));
    (0..all.max(1)).step_by(size).map(move |start| {
        let end = start.saturating_add(size).min(all);
        SeriesPiece { series, rows: &series.rows[start..end], is_last: end == all }
    })
}

async fn result(
    text: &mut Text,
    id: usize,
    outcome: &StatementResult,
    pieces: &[SeriesPiece<'_>],
    is_partial: bool,
    style: &RenderStyle,
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
    if is_partial {
        text.out.push_str(",\"partial\":true");
    }
    if let Err(error) = &outcome.series {
        text.out.push(',');
        json::pair(&mut text.out, "error", error);
    }
    text.out.push('}');
    Ok(())
}

async fn series(
    text: &mut Text,
    piece: &SeriesPiece<'_>,
    zone: Option<&str>,
    style: &RenderStyle,
) -> Result<(), QueryError> {
    series_head(&mut text.out, piece.series);
    if !piece.rows.is_empty() {
        text.out.push_str(",\"values\":[");
        for (number, row) in piece.rows.iter().enumerate() {
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

fn series_head(out: &mut String, series: &ResultSeries) {
    out.push('{');
    if let Some(name) = &series.name {
        json::pair(out, "name", name);
        out.push(',');
    }
    if !series.tags.is_empty() {
        out.push_str("\"tags\":{");
        json::list(out, &series.tags, |out, (key, value)| json::pair(out, key, value));
        out.push_str("},");
    }
    out.push_str("\"columns\":[");
    json::list(out, &series.columns, |out, column| json::string(out, column));
    out.push(']');
}

fn write_cell(out: &mut String, cell: &ResultCell, zone: Option<&str>, style: &RenderStyle) {
    match (cell, style.unit) {
        (ResultCell::Null, _) => out.push_str("null"),
        (ResultCell::Value(Value::Float(value)), _) => float(out, *value),
        (ResultCell::Value(value), _) => json::value(out, value),
        // Round towards zero, as InfluxDB does.
        (ResultCell::Time(time), Some(unit)) => drop(write!(out, "{}", time / unit)),
        (ResultCell::Time(time), None) => {
            out.push('"');
            write_time(out, *time, zone);
            out.push('"');
        }
    }
}

/// Writes a float as InfluxDB does: very large and very small ones have a signed exponent of at least two digits.
fn float(out: &mut String, value: f64) {
    let magnitude = value.abs();
    if !value.is_finite() {
        out.push_str("null");
    } else if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    } else {
        let _ = write!(out, "{value}");
    }
}

/// Writes a time as RFC 3339, with the offset of the zone.
fn write_time(out: &mut String, time: i64, zone: Option<&str>) {
    let offset = zone.map_or(0, |zone| zone_offset(zone, time));
    write_rfc3339(out, time.saturating_add(offset));
    // Remove the Z and the trailing zeros of the fraction.
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

async fn csv(
    text: &mut Text,
    outcomes: &[StatementResult],
    guard: Guard,
    style: &RenderStyle,
) -> Result<(), QueryError> {
    let mut columns: Option<&[String]> = None;
    // An empty line precedes each table and each error but the first.
    let mut is_first = true;
    for outcome in outcomes {
        if let Err(error) = &outcome.series {
            text.out.push_str(if is_first { "error\n" } else { "\nerror\n" });
            csv_text(&mut text.out, error, guard);
            text.out.push('\n');
            columns = None;
            is_first = false;
        }
        for series in outcome.all_series() {
            if columns != Some(&series.columns) {
                text.out.push_str(if is_first { "name,tags" } else { "\nname,tags" });
                for column in &series.columns {
                    text.out.push(',');
                    csv_text(&mut text.out, column, guard);
                }
                text.out.push('\n');
                columns = Some(&series.columns[..]);
                is_first = false;
            }
            let tags = series.tags.iter().filter(|(_, value)| !value.is_empty());
            let tags: Vec<String> = tags.map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
            for row in &series.rows {
                csv_text(&mut text.out, series.name.as_deref().unwrap_or_default(), guard);
                text.out.push(',');
                csv_text(&mut text.out, &tags.join(","), guard);
                for cell in row {
                    text.out.push(',');
                    csv_cell(&mut text.out, cell, guard, style);
                }
                text.out.push('\n');
                text.row().await?;
            }
        }
    }
    Ok(())
}

fn csv_cell(out: &mut String, cell: &ResultCell, guard: Guard, style: &RenderStyle) {
    match cell {
        ResultCell::Null => {}
        ResultCell::Time(time) => drop(write!(out, "{}", time / style.unit.unwrap_or(1))),
        ResultCell::Value(Value::String(text)) => csv_text(out, text, guard),
        ResultCell::Value(Value::Float(value)) => drop(write!(out, "{value}")),
        ResultCell::Value(value) => json::value(out, value),
    }
}

/// Escapes a tag key or value as in line protocol.
fn escape(text: &str) -> String {
    text.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ")
}

/// Makes the body for a request that fails as a whole.
pub fn refusal(error: &str, style: &RenderStyle) -> String {
    let mut out = String::new();
    match style.format {
        Format::Csv(guard) => {
            out.push_str("error\n");
            csv_text(&mut out, error, guard);
            out.push('\n');
        }
        _ => {
            out.push('{');
            json::pair(&mut out, "error", error);
            out.push_str("}\n");
            if style.is_pretty {
                out = Indents::default().indent(&out);
            }
        }
    }
    out
}

/// Writes a cell, in quotes if RFC 4180 requires them or the text starts with a space.
fn csv_text(out: &mut String, text: &str, guard: Guard) {
    guard.write_text(out, text, text.contains([',', '"', '\n', '\r']) || text.starts_with(' '));
}

/// Indents JSON in pieces. Each piece must end after a bracket.
#[derive(Default)]
struct Indents {
    depth: usize,
    is_in_string: bool,
    is_escaped: bool,
}

impl Indents {
    /// Indents the next piece.
    fn indent(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len() * 2);
        let mut characters = piece.chars().peekable();
        while let Some(c) = characters.next() {
            if self.is_in_string {
                out.push(c);
                self.is_in_string = self.is_escaped || c != '"';
                self.is_escaped = !self.is_escaped && c == '\\';
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
                    self.is_in_string = true;
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
