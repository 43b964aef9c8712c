//! Reads CSV as in RFC 4180, with a header. An empty cell has no value; `""` is an empty string.

use std::borrow::Cow;

use anyhow::{Context, ensure};
use memchr::memchr;

use super::batch::{Batch, Position};
use super::columns::{FieldType, Role, RowFlags, RowParts, describe_row, parse_time};
use super::lines::push_line;
use super::reader::{ROW_BYTES_MAX, RowFormat};
use crate::reading::Precision;

/// Maximum number of rows from which types are guessed.
const GUESS_ROWS_MAX: usize = 1000;

pub struct TableRows {
    flags: RowFlags,
    delimiter: u8,
    precision: Precision,
    columns: Vec<(String, Role)>,
    first: Option<String>,
}

impl TableRows {
    /// Reads the header at the start of a file, and guesses the types of columns from the rows after it. Returns the
    /// size of the header, too.
    pub fn new(flags: &RowFlags, start: &[u8]) -> anyhow::Result<(Self, usize)> {
        let &[delimiter] = flags.delimiter.replace("\\t", "\t").as_bytes() else {
            anyhow::bail!("--delimiter {:?}: expected one ASCII character", flags.delimiter);
        };
        let mut header = Vec::new();
        let head = read_record(start, delimiter, true, &mut header).context("the file is empty")?;
        let names: Vec<String> = header.iter().map(|cell| String::from_utf8_lossy(&cell.text).into_owned()).collect();
        flags.check_columns(&names)?;
        let roles = names.into_iter().map(|name| Ok((name.clone(), flags.role(&name)?)));
        let columns: Vec<(String, Role)> = roles.collect::<anyhow::Result<_>>()?;
        let times = columns.iter().filter(|(_, role)| *role == Role::Time).count();
        ensure!(times <= 1, "several columns may be the time: name it with --time");
        let precision = flags.precision(Precision::Auto)?;
        let mut table = Self { flags: flags.clone(), delimiter, precision, columns, first: None };
        table.guess(&start[head..]);
        let has_measurement =
            flags.measurement.is_some() || table.columns.iter().any(|(_, role)| *role == Role::Measurement);
        ensure!(has_measurement, "the rows have no measurement: name it with --measurement NAME");
        Ok((table, head))
    }

    /// Guesses the types of the columns without one.
    fn guess(&mut self, mut text: &[u8]) {
        let mut samples: Vec<Vec<String>> = vec![Vec::new(); self.columns.len()];
        let mut cells = Vec::new();
        for _ in 0..GUESS_ROWS_MAX {
            cells.clear();
            let Some(end) = read_record(text, self.delimiter, false, &mut cells) else { break };
            text = &text[end..];
            if self.first.is_none() {
                self.first = self.parts(&cells).and_then(|parts| parts.to_line(&self.flags)).ok();
            }
            for (sample, cell) in samples.iter_mut().zip(&cells) {
                if cell.is_value() {
                    sample.push(String::from_utf8_lossy(&cell.text).into_owned());
                }
            }
        }
        for ((_, role), sample) in self.columns.iter_mut().zip(&samples) {
            if let Role::Field(_, field_type @ None) = role
                && !sample.is_empty()
            {
                *field_type = Some(FieldType::guess(sample.iter().map(String::as_str)));
            }
        }
    }

    fn parts(&self, cells: &[Cell<'_>]) -> Result<RowParts, String> {
        if cells.len() != self.columns.len() {
            return Err(format!("{} cells, but the header has {}", cells.len(), self.columns.len()));
        }
        let mut parts = RowParts::default();
        for (cell, (column, role)) in cells.iter().zip(&self.columns) {
            if !cell.is_value() {
                continue;
            }
            let text = std::str::from_utf8(&cell.text).map_err(|_| format!("column {column}: no UTF-8"))?;
            match role {
                Role::Measurement => parts.measurement = Some(text.to_owned()),
                Role::Time => parts.time = Some(parse_time(text, self.precision)?),
                Role::Tag(_) if text.is_empty() => {}
                Role::Tag(name) => parts.tags.push((name.clone(), text.to_owned())),
                Role::Field(name, field_type) => {
                    // A pipe may have had no value of the column yet.
                    let field_type = field_type.unwrap_or_else(|| FieldType::guess(std::iter::once(text)));
                    let other_type = || format!("column {column}: {text:?} is no {}", field_type.name());
                    let value = field_type.parse(text).ok_or_else(other_type)?;
                    parts.fields.push((name.clone(), value));
                }
                Role::Skip => {}
            }
        }
        Ok(parts)
    }
}

impl RowFormat for TableRows {
    fn read(&mut self, chunk: &[u8], is_end: bool, position: &mut Position, batch: &mut Batch) -> usize {
        let mut number = position.lines + 1;
        let mut end = 0;
        let mut cells = Vec::new();
        while end < chunk.len() {
            cells.clear();
            let rest = &chunk[end..];
            let size = match read_record(rest, self.delimiter, is_end, &mut cells) {
                Some(size) => size,
                None if rest.len() < ROW_BYTES_MAX => break,
                // A quote that opens a cell by mistake hides the rows up to the next one.
                None => {
                    let size = memchr(b'\n', rest).map_or(rest.len(), |newline| newline + 1);
                    batch.refuse(number, "a quote is not closed".to_owned(), &rest[..size]);
                    end += size;
                    number += 1;
                    continue;
                }
            };
            let record = &rest[..size];
            let is_blank = record.iter().all(|byte| byte.is_ascii_whitespace());
            if !is_blank {
                let line = self.parts(&cells).and_then(|parts| parts.to_line(&self.flags));
                push_line(batch, number, line, record.trim_ascii_end());
            }
            number += memchr::memchr_iter(b'\n', record).count() as u64;
            end += size;
        }
        end
    }

    fn describe(&self) -> Option<String> {
        Some(describe_row("CSV", &self.columns, &self.flags, self.first.as_deref()))
    }
}

/// A cell of a record.
#[derive(Debug, PartialEq)]
struct Cell<'a> {
    text: Cow<'a, [u8]>,
    is_quoted: bool,
}

impl Cell<'_> {
    fn is_value(&self) -> bool {
        self.is_quoted || !self.text.is_empty()
    }
}

/// Reads the first record of a text. Returns its size with the end of line, or `None` if it is not complete.
fn read_record<'a>(text: &'a [u8], delimiter: u8, is_end: bool, cells: &mut Vec<Cell<'a>>) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    let mut offset = 0;
    loop {
        let is_quoted = text.get(offset) == Some(&b'"');
        let mut content = Cow::Borrowed(&text[..0]);
        if is_quoted {
            offset += 1;
            loop {
                let quote = memchr(b'"', &text[offset..])?;
                append(&mut content, &text[offset..offset + quote]);
                offset += quote + 1;
                if text.get(offset) != Some(&b'"') {
                    break;
                }
                append(&mut content, b"\"");
                offset += 1;
            }
        }
        let rest = &text[offset..];
        let end = rest.iter().position(|&byte| byte == delimiter || byte == b'\n');
        if end.is_none() && !is_end {
            return None;
        }
        let stop = end.unwrap_or(rest.len());
        let is_last = end.is_none_or(|end| rest[end] == b'\n');
        let tail = &rest[..stop];
        append(&mut content, if is_last { tail.strip_suffix(b"\r").unwrap_or(tail) } else { tail });
        cells.push(Cell { text: content, is_quoted });
        offset += (stop + 1).min(rest.len());
        if is_last {
            return Some(offset);
        }
    }
}

/// Appends to a text, which borrows the first part of it.
fn append<'a>(text: &mut Cow<'a, [u8]>, more: &'a [u8]) {
    if text.is_empty() {
        *text = Cow::Borrowed(more);
    } else if !more.is_empty() {
        text.to_mut().extend_from_slice(more);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cells(text: &str, is_end: bool) -> Option<(usize, Vec<(String, bool)>)> {
        let mut cells = Vec::new();
        let size = read_record(text.as_bytes(), b',', is_end, &mut cells)?;
        let texts = cells.into_iter().map(|cell| (String::from_utf8(cell.text.into_owned()).unwrap(), cell.is_quoted));
        Some((size, texts.collect()))
    }

    #[test]
    fn records_have_quoted_cells_and_line_ends() {
        let cell = |text: &str, is_quoted| (text.to_owned(), is_quoted);
        assert_eq!(
            cells("a,\"b\"\"c\nd\",,\"\"\r\nx", false),
            Some((16, vec![cell("a", false), cell("b\"c\nd", true), cell("", false), cell("", true),]))
        );
        assert_eq!(cells("a,b", false), None);
        assert_eq!(cells("a,b", true), Some((3, vec![cell("a", false), cell("b", false)])));
        assert_eq!(cells("a,\"b\nc", false), None);
        assert_eq!(cells("a,\n", false), Some((3, vec![cell("a", false), cell("", false)])));
    }
}
