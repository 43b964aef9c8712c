//! The flags that say how the rows of a source are read, and the parts of a row of CSV or NDJSON.

use std::fmt::Write;
use std::path::Path;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};

use super::lines::NO_TIME;
use crate::reading::time::{as_if_in_utc, parse_rfc3339};
use crate::reading::{Precision, Sensor, Value};
use crate::wire::line_protocol::write_line;

/// The columns that have the time, if no flag names one.
pub const TIME_COLUMNS: [&str; 5] = ["ts", "time", "timestamp", "date", "datetime"];
/// The column that has the measurement, if no flag names one.
const MEASUREMENT_COLUMN: &str = "measurement";
/// The prefix of columns that are tags.
const TAG_PREFIX: &str = "tag.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowsFormat {
    /// Line protocol.
    Lp,
    /// Comma-separated values with a header.
    Csv,
    /// A JSON object per line.
    Ndjson,
}

/// The flags that say how rows are read.
#[derive(Debug, Clone, Default, Args)]
pub struct RowFlags {
    /// The format of the rows [default: by the name of the file, else lp].
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Rows")]
    pub format: Option<RowsFormat>,
    /// The unit of integer times: ns, us, ms, s, m, h or auto [default: ns for line protocol, else auto].
    #[arg(long, value_name = "UNIT", help_heading = "Rows")]
    pub precision: Option<String>,
    /// CSV and NDJSON: the measurement of all rows [default: the column `measurement`].
    #[arg(long, value_name = "NAME", help_heading = "Rows")]
    pub measurement: Option<String>,
    /// CSV and NDJSON: the column that has the measurement [default: measurement].
    #[arg(long, value_name = "COLUMN", conflicts_with = "measurement", help_heading = "Rows")]
    pub measurement_column: Option<String>,
    /// CSV and NDJSON: the column of the time [default: ts, time, timestamp, date or datetime].
    #[arg(long, value_name = "COLUMN", help_heading = "Rows")]
    pub time: Option<String>,
    /// CSV and NDJSON: the columns that are tags. Those called tag.NAME always are.
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', help_heading = "Rows")]
    pub tags: Vec<String>,
    /// CSV and NDJSON: the types of columns, such as zip=string. Types are number, integer, float, boolean, string and
    /// skip.
    #[arg(long, value_name = "COLUMN=TYPE,…", value_delimiter = ',', help_heading = "Rows")]
    pub types: Vec<String>,
    /// CSV: the character between cells.
    #[arg(long, value_name = "CHARACTER", default_value = ",", help_heading = "Rows")]
    pub delimiter: String,
    /// True to refuse rows without a time, because they cannot be sent again.
    #[arg(skip)]
    pub needs_time: bool,
}

impl RowFlags {
    /// Returns the format of a file.
    pub fn format(&self, file: Option<&Path>) -> RowsFormat {
        let name = file.map(|file| file.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
        self.format.unwrap_or(match name.rsplit('.').next() {
            Some("csv" | "tsv") => RowsFormat::Csv,
            Some("ndjson" | "jsonl" | "json") => RowsFormat::Ndjson,
            _ => RowsFormat::Lp,
        })
    }

    pub fn precision(&self, default: Precision) -> anyhow::Result<Precision> {
        let Some(name) = &self.precision else { return Ok(default) };
        let Some(precision) = Precision::from_name(name) else {
            bail!("--precision {name:?}: expected ns, us, ms, s, m, h or auto");
        };
        Ok(precision)
    }

    /// Returns the meaning of a column.
    pub fn role(&self, column: &str) -> anyhow::Result<Role> {
        let typed = self.types.iter().find_map(|item| item.strip_prefix(column)?.strip_prefix('='));
        if self.time.as_ref().map_or(TIME_COLUMNS.contains(&&*column.to_ascii_lowercase()), |time| time == column) {
            return Ok(Role::Time);
        }
        let measurement = self.measurement_column.as_deref().unwrap_or(MEASUREMENT_COLUMN);
        if self.measurement.is_none() && column == measurement {
            return Ok(Role::Measurement);
        }
        if let Some(name) = column.strip_prefix(TAG_PREFIX) {
            return Ok(Role::Tag(name.to_owned()));
        }
        if self.tags.iter().any(|tag| tag == column) {
            return Ok(Role::Tag(column.to_owned()));
        }
        match typed {
            Some("skip") => Ok(Role::Skip),
            Some(name) => match FieldType::from_name(name) {
                Some(field_type) => Ok(Role::Field(column.to_owned(), Some(field_type))),
                None => bail!("--types {column}={name}: expected number, integer, float, boolean, string or skip"),
            },
            None => Ok(match column.rsplit_once(':') {
                // As `hourglass export` writes it.
                Some((name, suffix)) if FieldType::from_name(suffix).is_some() => {
                    Role::Field(name.to_owned(), FieldType::from_name(suffix))
                }
                _ => Role::Field(column.to_owned(), None),
            }),
        }
    }

    /// Checks that each flag names a column that exists.
    pub fn check_columns(&self, columns: &[String]) -> anyhow::Result<()> {
        let types = self.types.iter().map(|item| item.rsplit_once('=').map_or(&**item, |(column, _)| column));
        let named = self.time.iter().chain(&self.measurement_column).chain(&self.tags);
        for column in named.map(String::as_str).chain(types) {
            ensure!(columns.iter().any(|known| known == column), "there is no column {column:?}, only {columns:?}");
        }
        Ok(())
    }
}

/// The meaning of a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Role {
    Measurement,
    Time,
    Tag(String),
    /// A field, and its type if that is known.
    Field(String, Option<FieldType>),
    Skip,
}

/// The type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldType {
    /// Integers without a point, and floats with one.
    Number,
    Integer,
    Float,
    Boolean,
    String,
}

impl FieldType {
    const ALL: [(&'static str, Self); 5] = [
        ("number", Self::Number),
        ("integer", Self::Integer),
        ("float", Self::Float),
        ("boolean", Self::Boolean),
        ("string", Self::String),
    ];

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, field_type)| *field_type)
    }

    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Parses a text as this type; `None` if it has another one.
    pub fn parse(self, text: &str) -> Option<Value> {
        let integer = || {
            let small = text.parse().map(Value::Integer).ok();
            small.or_else(|| text.parse().map(Value::Unsigned).ok())
        };
        let float = || text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::Float);
        match self {
            Self::Number => integer().or_else(float),
            Self::Integer => integer(),
            Self::Float => float(),
            Self::Boolean => match text {
                "true" | "True" | "TRUE" => Some(Value::Boolean(true)),
                "false" | "False" | "FALSE" => Some(Value::Boolean(false)),
                _ => None,
            },
            Self::String => Some(Value::String(text.into())),
        }
    }

    /// Guesses the type of these values.
    pub fn guess<'a>(values: impl Iterator<Item = &'a str> + Clone) -> Self {
        let fits = |guess: &Self| values.clone().all(|text| guess.parse(text).is_some());
        [Self::Number, Self::Boolean].into_iter().find(fits).unwrap_or(Self::String)
    }
}

/// The parts of a row.
#[derive(Debug, Default)]
pub struct RowParts {
    pub measurement: Option<String>,
    pub tags: Vec<(String, String)>,
    pub fields: Vec<(String, Value)>,
    pub time: Option<i64>,
}

impl RowParts {
    /// Formats the row as line protocol, with the time in nanoseconds.
    pub fn to_line(&self, flags: &RowFlags) -> Result<String, String> {
        let Some(measurement) = self.measurement.as_ref().or(flags.measurement.as_ref()) else {
            return Err("no measurement: name it with --measurement".to_owned());
        };
        if self.fields.is_empty() {
            return Err("no fields".to_owned());
        }
        if flags.needs_time && self.time.is_none() {
            return Err(NO_TIME.to_owned());
        }
        let tags = self.tags.iter().map(|(key, value)| (&**key, &**value));
        let sensor = Sensor::new(measurement, tags).map_err(|key| format!("two tags {key:?}"))?;
        let mut line = String::new();
        let fields = self.fields.iter().map(|(name, value)| (&**name, value));
        write_line(&mut line, &sensor.key, fields, self.time.unwrap_or_default());
        // Without a time, the service chooses one.
        let end = if self.time.is_some() { line.len() - 1 } else { line.rfind(' ').unwrap_or_default() };
        line.truncate(end);
        Ok(line)
    }
}

/// Parses a time: a number of this unit, RFC 3339, or a date with or without a time, which is taken as UTC.
pub fn parse_time(text: &str, precision: Precision) -> Result<i64, String> {
    if let Ok(number) = text.parse() {
        return precision.to_ns(number).ok_or_else(|| format!("time {text}: out of range"));
    }
    if let Some(number) = text.parse::<f64>().ok().filter(|number| number.is_finite()) {
        let whole = number.trunc() as i64;
        // A double of seconds since 1970 has microseconds.
        let micros = (number.fract() * precision.unit_ns(whole) as f64 / 1000.0).round() as i64;
        let time = precision.to_ns(whole).and_then(|time| time.checked_add(micros * 1000));
        return time.ok_or_else(|| format!("time {text}: out of range"));
    }
    let time = parse_rfc3339(text).or_else(|| parse_rfc3339(&as_if_in_utc(text)?));
    time.ok_or_else(|| format!("time {text:?}: expected RFC 3339, a date or a number"))
}

/// Describes how a row is read, for a person to check.
pub fn describe_row(format: &str, columns: &[(String, Role)], flags: &RowFlags, first: Option<&str>) -> String {
    let mut text = format!("{format} is read as\n");
    let mut line = |name: &str, items: Vec<String>| {
        if !items.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<12} {}", items.join(", "));
        }
    };
    let of_role = |wanted: fn(&Role) -> Option<String>| -> Vec<String> {
        let roles = columns.iter().filter_map(|(column, role)| Some((column, wanted(role)?)));
        roles.map(|(column, text)| format!("{column}{text}")).collect()
    };
    let mut measurement: Vec<String> = flags.measurement.iter().cloned().collect();
    measurement.extend(of_role(|role| (*role == Role::Measurement).then(|| " (column)".to_owned())));
    line("measurement", measurement);
    line("time", of_role(|role| (*role == Role::Time).then(String::new)));
    line("tags", of_role(|role| matches!(role, Role::Tag(_)).then(String::new)));
    let fields = columns.iter().filter_map(|(_, role)| match role {
        Role::Field(name, field_type) => Some(format!("{name} ({})", field_type.map_or("any", FieldType::name))),
        _ => None,
    });
    line("fields", fields.collect());
    line("left out", of_role(|role| (*role == Role::Skip).then(String::new)));
    line("first row", first.map(str::to_owned).into_iter().collect());
    text
}
