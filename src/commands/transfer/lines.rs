//! Reads line protocol, with the comments of exports of InfluxDB that name the database and the retention policy.

use memchr::memchr;

use super::RowFlags;
use super::batch::{Batch, Position};
use super::reader::{ROW_BYTES_MAX, RowFormat};
use crate::reading::{Limits, Precision};
use crate::wire::Points;
use crate::wire::line_protocol::Lines;

pub struct LineRows {
    precision: Precision,
    needs_time: bool,
}

impl LineRows {
    pub fn new(flags: &RowFlags) -> anyhow::Result<Self> {
        Ok(Self { precision: flags.precision(Precision::Nanoseconds)?, needs_time: flags.needs_time })
    }
}

/// The reason of a refusal of a row without a time.
pub const NO_TIME: &str = "no time: send such rows with hourglass write";

/// The limits of a service are its own, except for the size of a row.
const LIMITS: Limits =
    Limits { line_bytes: ROW_BYTES_MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };

impl RowFormat for LineRows {
    fn read(&mut self, chunk: &[u8], is_end: bool, position: &mut Position, batch: &mut Batch) -> usize {
        let first_number = position.lines;
        let mut lines = Lines::new(chunk, self.precision, LIMITS);
        let mut cursor = LineCursor { chunk, offset: 0, number: 1 };
        let mut end = 0;
        while let Some(item) = lines.next() {
            let number = match &item {
                Ok(point) => point.number,
                Err(rejection) => rejection.line,
            };
            let start = cursor.seek(number);
            let stop = match &item {
                Ok(point) => start + point.text.len(),
                Err(rejection) => start + rejection.whole.as_ref().map_or(rejection.text.len(), |whole| whole.0.len()),
            };
            // A row that touches the end of the chunk may be incomplete, and so may a string that does not end.
            let is_cut = match &item {
                Ok(_) => stop >= chunk.len(),
                Err(_) => {
                    let text = &chunk[start..];
                    stop >= chunk.len()
                        || (text.len() < ROW_BYTES_MAX
                            && memchr(b'"', text.get(..stop - start).unwrap_or(text)).is_some())
                }
            };
            if is_cut && !is_end {
                return end;
            }
            // Rows of another place make another batch.
            let mut next = position.clone();
            read_comments(&chunk[end..start], &mut next);
            if next.place != position.place && !batch.is_empty() {
                return end;
            }
            *position = next;
            let source_number = first_number + number as u64;
            match item {
                _ if position.is_in_statements => {
                    let statement = chunk[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
                    batch.statements.push(String::from_utf8_lossy(statement).trim().to_owned());
                }
                Ok(point) if self.needs_time && point.timestamp.is_none() => {
                    batch.refuse(source_number, NO_TIME.to_owned(), point.text);
                }
                Ok(point) => {
                    batch.place.clone_from(&position.place);
                    batch.totals.add(&point);
                    batch.push(source_number, point.text);
                }
                Err(rejection) => {
                    let text = rejection.whole.as_ref().map_or(&*rejection.text, |whole| &*whole.0);
                    batch.refuse(source_number, rejection.reason.to_string(), text.as_bytes());
                }
            }
            end = stop;
        }
        let stop = if is_end { chunk.len() } else { end.max(whole_lines(chunk)) };
        let mut next = position.clone();
        read_comments(&chunk[end..stop], &mut next);
        if next.place != position.place && !batch.is_empty() {
            return end;
        }
        *position = next;
        stop
    }
}

/// Returns the length of the complete lines.
fn whole_lines(chunk: &[u8]) -> usize {
    memchr::memrchr(b'\n', chunk).map_or(0, |newline| newline + 1)
}

/// Finds the offsets of lines by ascending numbers.
struct LineCursor<'a> {
    chunk: &'a [u8],
    offset: usize,
    number: usize,
}

impl LineCursor<'_> {
    fn seek(&mut self, number: usize) -> usize {
        while self.number < number {
            let Some(newline) = memchr(b'\n', &self.chunk[self.offset..]) else { break };
            self.offset += newline + 1;
            self.number += 1;
        }
        self.offset
    }
}

/// Applies the comments between two rows that name a place or begin a part of an export.
fn read_comments(text: &[u8], position: &mut Position) {
    if memchr(b'#', text).is_none() {
        return;
    }
    for line in String::from_utf8_lossy(text).lines() {
        let Some(comment) = line.trim().strip_prefix('#').map(str::trim) else { continue };
        let name = |prefix| comment.strip_prefix(prefix).map(|name: &str| name.trim().to_owned());
        if let Some(database) = name("CONTEXT-DATABASE:") {
            position.place.database = Some(database);
            position.place.policy = None;
        } else if let Some(policy) = name("CONTEXT-RETENTION-POLICY:") {
            position.place.policy = Some(policy);
        } else if comment == "DDL" {
            position.is_in_statements = true;
        } else if comment == "DML" {
            position.is_in_statements = false;
        }
    }
}

/// Appends a row that was converted to line protocol, or refuses it. `original` is its text in the source.
pub fn push_line(batch: &mut Batch, number: u64, line: Result<String, String>, original: &[u8]) {
    let line = match line {
        Ok(line) => line,
        Err(reason) => return batch.refuse(number, reason, original),
    };
    // The parser counts the values, and finds what only the service would refuse.
    match Lines::new(line.as_bytes(), Precision::Nanoseconds, LIMITS).next() {
        Some(Ok(point)) => {
            batch.totals.add(&point);
            batch.push(number, point.text);
        }
        Some(Err(rejection)) => batch.refuse(number, rejection.reason.to_string(), original),
        None => batch.refuse(number, "a row without content".to_owned(), original),
    }
}
