//! Commands that only send one request to a running service and print the answer.

use std::path::PathBuf;

use anyhow::bail;
use clap::ArgMatches;
use serde_json::{Map, Value};

use super::post::{PostAnswer, Service, Target, url_encode};
use super::read_input;
use crate::ingest::plain;

/// The name of the argument for the body: a file, or the standard input for `-` or nothing.
pub const FILE: &str = "FILE";

/// A command that sends one request to a running service and prints its answer.
#[derive(Debug)]
pub struct Row {
    /// The words of the command: an optional group, and a verb.
    pub words: &'static [&'static str],
    pub help: &'static str,
    pub method: &'static str,
    /// The path of the request. Each `{NAME}` in it is an argument of the command.
    pub path: &'static str,
    /// Flags that become parameters of the request.
    pub flags: &'static [Flag],
    /// True if the request has a body: a file, or the standard input.
    pub has_body: bool,
    /// JSON pointer to the rows of the answer. Empty if the whole answer is one row.
    pub rows: &'static str,
    /// The title of each column and the JSON pointer to its value in a row. Without columns, each member of a row is a
    /// line.
    pub columns: &'static [(&'static str, &'static str)],
    /// Returns true if the answer means success.
    pub is_good: fn(&Value) -> bool,
}

/// A flag of a [`Row`].
#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    pub help: &'static str,
    /// The environment variable that also sets the flag.
    pub variable: Option<&'static str>,
}

impl Row {
    /// A row without flags and body that prints the whole answer.
    pub const PLAIN: Self = Self {
        words: &[],
        help: "",
        method: "GET",
        path: "",
        flags: &[],
        has_body: false,
        rows: "",
        columns: &[],
        is_good: |_| true,
    };

    /// Returns the names of the arguments of the command.
    pub fn arguments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('{').skip(1).filter_map(|part| Some(part.split_once('}')?.0))
    }
}

/// The request of a row with its parsed arguments.
#[derive(Debug)]
pub struct Exchange {
    pub row: &'static Row,
    pub service: Service,
    /// True if the answer is printed as JSON.
    pub is_json: bool,
    /// The arguments, flags and file of the command.
    pub matches: ArgMatches,
}

impl Exchange {
    /// Sends the request and prints all pages of the answer. Returns true if the answer means success.
    pub fn run(&self) -> anyhow::Result<bool> {
        let target = Target::from_flags(&self.service)?;
        let mut path = self.path();
        let first = path.clone();
        let file = || self.matches.get_one::<PathBuf>(FILE).map(PathBuf::as_path);
        let content = self.row.has_body.then(|| read_input(file())).transpose()?;
        let sent = content.as_ref().map(|content| ("text/plain", &**content));
        loop {
            let answer = target.send(self.row.method, &path, sent)?;
            let PostAnswer { status: 200 | 202 | 204, text, .. } = &answer else { bail!("{answer}") };
            if text.is_empty() {
                return Ok(true);
            }
            if self.is_json {
                println!("{}", text.trim_end());
            }
            let body = answer.json()?;
            if !self.is_json {
                self.print(&body);
            }
            let Some(next) = body["next"].as_str() else { return Ok((self.row.is_good)(&body)) };
            path = with_parameter(first.clone(), "cursor", next);
        }
    }

    /// Returns the path of the request with its parameters.
    pub fn path(&self) -> String {
        let value = |name: &str| self.matches.get_one::<String>(name);
        let mut path = self.row.path.to_owned();
        for name in self.row.arguments() {
            path = path.replace(&format!("{{{name}}}"), &value(name).map(|text| url_encode(text)).unwrap_or_default());
        }
        let given = self.row.flags.iter().filter_map(|flag| Some((flag.name, value(flag.name)?.as_str())));
        given.fold(path, |path, (name, value)| with_parameter(path, name, value))
    }

    fn print(&self, body: &Value) {
        let whole = std::slice::from_ref(body);
        let rows = match self.row.rows {
            "" => whole,
            pointer => body.pointer(pointer).and_then(Value::as_array).map_or(&[][..], Vec::as_slice),
        };
        if self.row.columns.is_empty() {
            let members = rows.iter().filter_map(Value::as_object).flat_map(Map::iter);
            return members.for_each(|(name, value)| println!("{name}: {}", format_value(value)));
        }
        let titles = self.row.columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let cell = |row: &Value, pointer: &str| row.pointer(pointer).map(format_value).unwrap_or_default();
        let cells = |row: &Value| self.row.columns.iter().map(|(_, pointer)| cell(row, pointer)).collect();
        let mut table: Vec<Vec<String>> = vec![titles];
        table.extend(rows.iter().map(cells));
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..self.row.columns.len()).map(width).collect();
        for row in &table {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
        }
    }
}

fn with_parameter(path: String, name: &str, value: &str) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}{name}={}", url_encode(value))
}

/// Formats a cell for a terminal: texts without quotes, everything else as JSON.
fn format_value(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text, usize::MAX),
        Value::Null => String::new(),
        Value::Array(none) if none.is_empty() => String::new(),
        // The fields of a reading.
        Value::Array(fields) if fields.iter().all(|field| field["name"].is_string() && !field["value"].is_null()) => {
            let field = |field: &Value| format!("{}={}", format_value(&field["name"]), format_value(&field["value"]));
            fields.iter().map(field).collect::<Vec<_>>().join(",")
        }
        other => plain(&other.to_string(), usize::MAX),
    }
}
