//! Writes statement results in the formats of InfluxDB 1.x: JSON, as one document or in chunks, and CSV.

use std::fmt::Write;

use crate::http::render::format::Format;
use crate::http::render::guard::Guard;
use crate::http::render::json;
use crate::http::render::text::Text;
use crate::query::influx::{ResultCell, ResultSeries, StatementAnswer, zone_offset};
use crate::query::{Budget, QueryError};
use crate::reading::Value;
use crate::reading::time::write_rfc3339;

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

/// Writes the results of statements one after the other, each in one or more parts.
pub struct Renderer {
    style: RenderStyle,
    /// The number of the statement whose result comes next, or is being written.
    id: usize,
    /// The time zone of `tz()`.
    zone: Option<String>,
    /// The series of a whole JSON document to which rows can be added.
    open: Option<OpenSeries>,
    /// In chunks, true if a line must follow.
    is_line_due: bool,
    /// The columns of the current table of CSV.
    columns: Option<Vec<String>>,
    is_first_table: bool,
}

struct OpenSeries {
    name: Option<String>,
    tags: Vec<(String, String)>,
    has_rows: bool,
}

/// A range of a series' rows.
struct SeriesPiece<'a> {
    series: &'a ResultSeries,
    rows: &'a [Vec<ResultCell>],
    is_last: bool,
}

impl Renderer {
    pub fn new(style: RenderStyle) -> Self {
        Self { style, id: 0, zone: None, open: None, is_line_due: false, columns: None, is_first_table: true }
    }

    /// Makes the text to write to.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub fn text(&self, budget: &Budget) -> Result<Text, QueryError> {
        if self.style.is_pretty && self.style.format == Format::Json {
            let mut indents = Indents::default();
            return Text::with_style(budget, move |piece| indents.indent(piece));
        }
        Text::new(budget)
    }

    fn is_whole_json(&self) -> bool {
        self.style.chunk.is_none() && self.style.format == Format::Json
    }

    /// Begins the result of the next statement.
    pub fn begin(&mut self, text: &mut Text, zone: Option<&str>) {
        self.zone = zone.map(str::to_owned);
        self.is_line_due = true;
        if self.is_whole_json() {
            text.out.push_str(if self.id == 0 { "{\"results\":[" } else { "," });
            let _ = write!(text.out, "{{\"statement_id\":{}", self.id);
        }
    }

    /// Writes series of the statement. If the answer has another part, its first series may go on with this one's last.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub async fn part(&mut self, text: &mut Text, answer: &StatementAnswer) -> Result<(), QueryError> {
        let StatementAnswer { series, next, .. } = answer;
        match (self.style.format, self.style.chunk) {
            (Format::Csv(guard), _) => self.csv_part(text, series, guard).await,
            (_, None) => self.whole_part(text, series).await,
            (_, Some(rows)) => {
                let goes_on = next.as_ref().is_some_and(|position| position.within.is_some());
                for (number, one) in series.iter().enumerate() {
                    let is_last_series = number + 1 == series.len();
                    for mut piece in pieces(one, rows) {
                        let is_partial = !piece.is_last || !is_last_series || next.is_some();
                        piece.is_last = piece.is_last && !(is_last_series && goes_on);
                        self.line(text, Some(&piece), is_partial, None).await?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Ends the result of the statement.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub async fn end(&mut self, text: &mut Text, error: Option<&str>) -> Result<(), QueryError> {
        match (self.style.format, self.style.chunk) {
            (Format::Csv(guard), _) => {
                if let Some(error) = error {
                    text.out.push_str(if self.is_first_table { "error\n" } else { "\nerror\n" });
                    csv_text(&mut text.out, error, guard);
                    text.out.push('\n');
                    self.columns = None;
                    self.is_first_table = false;
                }
            }
            (_, None) => {
                if self.close_series(text) {
                    text.out.push(']');
                }
                write_error(&mut text.out, error);
                text.out.push('}');
            }
            (_, Some(_)) => {
                if self.is_line_due || error.is_some() {
                    self.line(text, None, false, error).await?;
                }
            }
        }
        self.id += 1;
        text.row().await
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// If the budget of the query is used up.
    pub async fn finish(self, text: &mut Text) -> Result<(), QueryError> {
        if self.is_whole_json() {
            text.out.push_str(if self.id == 0 { "{}\n" } else { "]}\n" });
        }
        text.row().await
    }

    /// Ends the open series. Returns true if there was one.
    fn close_series(&mut self, text: &mut Text) -> bool {
        let Some(open) = self.open.take() else { return false };
        text.out.push_str(if open.has_rows { "]}" } else { "}" });
        true
    }

    async fn whole_part(&mut self, text: &mut Text, series: &[ResultSeries]) -> Result<(), QueryError> {
        for (number, one) in series.iter().enumerate() {
            let goes_on = |open: &OpenSeries| number == 0 && open.name == one.name && open.tags == one.tags;
            if !self.open.as_ref().is_some_and(goes_on) {
                let separator = if self.close_series(text) { "," } else { ",\"series\":[" };
                text.out.push_str(separator);
                series_head(&mut text.out, one);
                self.open = Some(OpenSeries { name: one.name.clone(), tags: one.tags.clone(), has_rows: false });
            }
            if let Some(open) = self.open.as_mut().filter(|_| !one.rows.is_empty()) {
                let is_first = !std::mem::replace(&mut open.has_rows, true);
                text.out.push_str(if is_first { ",\"values\":[" } else { "," });
            }
            self.rows(text, &one.rows).await?;
        }
        Ok(())
    }

    /// Writes one line of chunked JSON, with rows of at most one series.
    async fn line(
        &mut self,
        text: &mut Text,
        piece: Option<&SeriesPiece<'_>>,
        is_partial: bool,
        error: Option<&str>,
    ) -> Result<(), QueryError> {
        let _ = write!(text.out, "{{\"results\":[{{\"statement_id\":{}", self.id);
        if let Some(piece) = piece {
            text.out.push_str(",\"series\":[");
            series_head(&mut text.out, piece.series);
            if !piece.rows.is_empty() {
                text.out.push_str(",\"values\":[");
                self.rows(text, piece.rows).await?;
                text.out.push(']');
            }
            text.out.push_str(if piece.is_last { "}]" } else { ",\"partial\":true}]" });
        }
        if is_partial {
            text.out.push_str(",\"partial\":true");
        }
        write_error(&mut text.out, error);
        text.out.push_str("}]}\n");
        self.is_line_due = is_partial;
        Ok(())
    }

    /// Writes rows of JSON, with commas between them.
    async fn rows(&self, text: &mut Text, rows: &[Vec<ResultCell>]) -> Result<(), QueryError> {
        for (number, row) in rows.iter().enumerate() {
            json::comma(&mut text.out, number);
            text.out.push('[');
            json::list(&mut text.out, row, |out, cell| write_cell(out, cell, self.zone.as_deref(), &self.style));
            text.out.push(']');
            text.row().await?;
        }
        Ok(())
    }

    async fn csv_part(&mut self, text: &mut Text, series: &[ResultSeries], guard: Guard) -> Result<(), QueryError> {
        for series in series {
            if self.columns.as_ref() != Some(&series.columns) {
                // An empty line precedes each table and each error but the first.
                text.out.push_str(if self.is_first_table { "name,tags" } else { "\nname,tags" });
                for column in &series.columns {
                    text.out.push(',');
                    csv_text(&mut text.out, column, guard);
                }
                text.out.push('\n');
                self.columns = Some(series.columns.clone());
                self.is_first_table = false;
            }
            let tags = series.tags.iter().filter(|(_, value)| !value.is_empty());
            let tags: Vec<String> = tags.map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
            for row in &series.rows {
                csv_text(&mut text.out, series.name.as_deref().unwrap_or_default(), guard);
                text.out.push(',');
                csv_text(&mut text.out, &tags.join(","), guard);
                for cell in row {
                    text.out.push(',');
                    csv_cell(&mut text.out, cell, guard, &self.style);
                }
                text.out.push('\n');
                text.row().await?;
            }
        }
        Ok(())
    }
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

fn write_error(out: &mut String, error: Option<&str>) {
    if let Some(error) = error {
        out.push(',');
        json::pair(out, "error", error);
    }
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
