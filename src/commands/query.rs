//! `hourglass query`: asks a running service in InfluxQL, or for readings and aggregates of chosen sensors.

use std::collections::BTreeMap;
use std::io::{self, BufReader, IsTerminal, Write};

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::post::{ServiceDatabase, Target, url_encode};
use super::transfer::SelectorFlags;

/// Rows of a table from which the widths of its columns follow.
const WIDTH_ROWS: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QueryOutput {
    /// A table for people, with units.
    Table,
    /// JSON, as the service answers.
    Json,
    /// CSV, as the service answers.
    Csv,
}

/// The flags of `query`.
#[derive(Debug, Args)]
pub struct QueryFlags {
    /// InfluxQL, such as 'SELECT mean(temp) FROM climate WHERE time > now() - 1h GROUP BY time(10m)'. Without it, the
    /// flags select readings.
    #[arg(conflicts_with_all = ["sensor", "measurement", "tag", "from", "to", "fields", "agg", "limit"])]
    pub statement: Option<String>,
    #[command(flatten)]
    pub selector: SelectorFlags,
    /// Aggregates in place of readings, such as min,max,avg or p95.
    #[arg(long, value_name = "FUNCTION,…", help_heading = "Aggregates")]
    pub agg: Option<String>,
    /// The length of the windows [default: 1h].
    #[arg(long, value_name = "DURATION", requires = "agg", help_heading = "Aggregates")]
    pub step: Option<String>,
    /// none for a series per sensor, * for one per measurement, or a tag [default: none].
    #[arg(long, value_name = "TAG", requires = "agg", help_heading = "Aggregates")]
    pub group_by: Option<String>,
    /// Maximum number of readings.
    #[arg(long, value_name = "NUMBER", conflicts_with = "agg")]
    pub limit: Option<u64>,
    /// The format of the output [default: table on a terminal, else csv].
    #[arg(long, value_enum, value_name = "FORMAT", env = "HOURGLASS_OUTPUT")]
    pub output: Option<QueryOutput>,
    #[command(flatten)]
    pub database: ServiceDatabase,
}

/// Runs the command. Returns true if no statement failed.
pub fn query(flags: &QueryFlags) -> anyhow::Result<bool> {
    let target = Target::from_flags(&flags.database.service)?;
    let default = if io::stdout().is_terminal() { QueryOutput::Table } else { QueryOutput::Csv };
    let output = flags.output.unwrap_or(default);
    match &flags.statement {
        Some(statement) => run_statement(&target, &flags.database.db, statement, output),
        None => select(&target, flags, output).map(|()| true),
    }
}

fn run_statement(target: &Target, database: &str, statement: &str, output: QueryOutput) -> anyhow::Result<bool> {
    let chunks = if output == QueryOutput::Table { "&chunked=true&chunk_size=1000" } else { "" };
    let path = format!("/query?db={}{chunks}", url_encode(database));
    let form = format!("q={}", url_encode(statement));
    let accept = if output == QueryOutput::Csv { "text/csv" } else { "application/json" };
    let body = Some(("application/x-www-form-urlencoded", form.as_bytes()));
    let answer = target.open("POST", &path, body, &[("accept", accept)])?.ok()?;
    let mut out = io::stdout().lock();
    let mut errors = Vec::new();
    match output {
        QueryOutput::Table => {
            let mut units = Units::new(target, database);
            let mut table = Table::default();
            // A chunk goes on with the series of the one before if both have the same name, tags and columns.
            let mut series_before = Value::Null;
            for chunk in serde_json::Deserializer::from_reader(BufReader::new(answer.body)).into_iter::<Value>() {
                let chunk = chunk.context("reading the answer")?;
                let results = chunk["results"].as_array().into_iter().flatten();
                for result in results {
                    errors.extend(result["error"].as_str().map(str::to_owned));
                    for series in result["series"].as_array().into_iter().flatten() {
                        let mut head = series.clone();
                        let values = head["values"].take();
                        if head != series_before {
                            table.end(&mut out)?;
                            begin_series(&mut table, &head, &mut units, &mut out)?;
                            series_before = head;
                        }
                        for row in values.as_array().into_iter().flatten() {
                            table.row(row.as_array().into_iter().flatten().map(cell).collect(), &mut out)?;
                        }
                    }
                }
            }
            table.end(&mut out)?;
        }
        QueryOutput::Csv | QueryOutput::Json => {
            // The errors of statements are in the answer, and make its status 1.
            let text = io::read_to_string(answer.body).context("reading the answer")?;
            out.write_all(text.as_bytes())?;
            let json: Value = serde_json::from_str(&text).unwrap_or_default();
            let results = json["results"].as_array().into_iter().flatten();
            errors.extend(results.filter_map(|result| result["error"].as_str().map(str::to_owned)));
            let is_failed = output == QueryOutput::Csv && (text.starts_with("error\n") || text.contains("\n\nerror\n"));
            errors.extend(is_failed.then(|| "a statement failed".to_owned()));
        }
    }
    for error in &errors {
        eprintln!("hourglass: {error}");
    }
    Ok(errors.is_empty())
}

/// Prints the name and the tags of a series, and begins its table.
fn begin_series(table: &mut Table, head: &Value, units: &mut Units<'_>, out: &mut impl Write) -> io::Result<()> {
    let name = head["name"].as_str().unwrap_or_default();
    let tags = head["tags"].as_object().into_iter().flatten();
    let tags: Vec<String> = tags.map(|(key, value)| format!("{key}={}", cell(value))).collect();
    writeln!(out, "{}", [&[name.to_owned()], &*tags].concat().join(" ").trim())?;
    let columns = head["columns"].as_array().into_iter().flatten();
    table.begin(columns.map(|column| units.title(name, &cell(column))).collect());
    Ok(())
}

/// Prints readings or aggregates of the selected sensors.
fn select(target: &Target, flags: &QueryFlags, output: QueryOutput) -> anyhow::Result<()> {
    let SelectorFlags { sensor, measurement, tag, .. } = &flags.selector;
    ensure!(
        sensor.is_some() || measurement.is_some() || !tag.is_empty(),
        "name a statement, or select sensors with --measurement, --sensor or --tag"
    );
    let mut path = format!(
        "/api/v1/{}?db={}{}",
        if flags.agg.is_some() { "summary" } else { "readings" },
        url_encode(&flags.database.db),
        flags.selector.parameters()?
    );
    let limit = flags.limit.map(|limit| limit.to_string());
    let parameters = [("agg", &flags.agg), ("step", &flags.step), ("group_by", &flags.group_by), ("limit", &limit)];
    for (name, value) in parameters {
        if let Some(value) = value {
            path += &format!("&{name}={}", url_encode(value));
        }
    }
    path += if output == QueryOutput::Json { "&format=ndjson" } else { "&format=csv" };
    let mut answer = target.get(&path)?.ok()?;
    let mut out = io::stdout().lock();
    if output != QueryOutput::Table {
        io::copy(&mut answer.body, &mut out).context("reading the answer")?;
        return Ok(());
    }
    let mut rows = csv::Reader::from_reader(answer.body);
    let mut units = Units::new(target, &flags.database.db);
    let sensor = sensor.as_deref().and_then(|key| key.split(',').next());
    let measurement = measurement.as_deref().or(sensor).unwrap_or_default();
    let mut table = Table::default();
    table.begin(rows.headers()?.iter().map(|column| units.title(measurement, column)).collect());
    for row in rows.records() {
        table.row(row.context("reading the answer")?.iter().map(str::to_owned).collect(), &mut out)?;
    }
    Ok(table.end(&mut out)?)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The units of fields, which metadata or kinds of sensors declare.
struct Units<'a> {
    target: &'a Target,
    database: &'a str,
    /// The units by measurement and field.
    known: BTreeMap<String, BTreeMap<String, String>>,
}

impl<'a> Units<'a> {
    fn new(target: &'a Target, database: &'a str) -> Self {
        Self { target, database, known: BTreeMap::new() }
    }

    /// Returns the title of a column: its name, and the unit of its field.
    fn title(&mut self, measurement: &str, column: &str) -> String {
        if !self.known.contains_key(measurement) {
            // Without units, the table is still right.
            let units = self.read(measurement).unwrap_or_default();
            self.known.insert(measurement.to_owned(), units);
        }
        let field = column.split('.').next().unwrap_or(column);
        match self.known.get(measurement).and_then(|units| units.get(field)) {
            Some(unit) => format!("{column} ({unit})"),
            None => column.to_owned(),
        }
    }

    fn read(&self, measurement: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let database = url_encode(self.database);
        let path = format!("/api/v1/fields?db={database}&measurement={}", url_encode(measurement));
        let answer = self.target.json("GET", &path, None)?;
        let fields = answer["fields"].as_array().into_iter().flatten();
        let with_units = fields.filter(|field| field["unit"].is_string());
        Ok(with_units.map(|field| (cell(&field["field"]), cell(&field["unit"]))).collect())
    }
}

/// A table whose columns are as wide as its first rows need.
#[derive(Default)]
struct Table {
    /// The first rows, whose widths are not known yet.
    first: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Table {
    fn begin(&mut self, titles: Vec<String>) {
        self.first = vec![titles];
        self.widths.clear();
    }

    fn row(&mut self, cells: Vec<String>, out: &mut impl Write) -> io::Result<()> {
        if self.widths.is_empty() {
            self.first.push(cells);
            return if self.first.len() > WIDTH_ROWS { self.print_first(out) } else { Ok(()) };
        }
        self.print(&cells, out)
    }

    fn end(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.widths.is_empty() { self.print_first(out) } else { Ok(()) }
    }

    fn print_first(&mut self, out: &mut impl Write) -> io::Result<()> {
        let rows = std::mem::take(&mut self.first);
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max();
        self.widths = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
        rows.iter().try_for_each(|row| self.print(row, out))
    }

    fn print(&self, cells: &[String], out: &mut impl Write) -> io::Result<()> {
        let padded = cells.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
        // Control characters of stored texts must not reach a terminal.
        let line = padded.collect::<Vec<_>>().join("  ").replace(char::is_control, " ");
        writeln!(out, "{}", line.trim_end())
    }
}
