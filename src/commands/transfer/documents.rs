//! Makes rows of MongoDB's documents: one reading per document, or several in an array of documents or in parallel arrays.
//! A sample completes the flags that say what the members are.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, bail, ensure};
use serde_json::Value as Json;

use super::batch::Batch;
use super::columns::{FieldType, Role, RowFlags, RowParts, TIME_COLUMNS, describe_row, parse_time};
use super::lines::push_line;
use super::objects::add_member;
use crate::reading::Precision;
use crate::reading::time::rfc3339;

/// Significant digits of a decimal number that a double keeps.
const DOUBLE_DIGITS: usize = 15;
/// Readings in the description.
const SHOWN_READINGS: usize = 3;

/// The scalars and arrays of a document with their dotted paths.
type Members<'a> = Vec<(String, &'a Json)>;

pub struct DocumentRows {
    /// The flags of the user, completed.
    flags: RowFlags,
    shape: Shape,
    /// The start of the paths of readings: empty, or with a dot at its end.
    prefix: String,
    precision: Precision,
    /// The roles of paths that were read.
    roles: HashMap<String, Role>,
    description: String,
}

/// The place of readings in a document.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// A document is a reading.
    Single,
    /// An array has a document per reading.
    Array,
    /// Several arrays have a value per reading.
    Parallel,
}

/// The collection of the documents.
pub struct DocumentSource<'a> {
    pub name: &'a str,
    /// The member with the time and that with the metadata, of a native time-series collection.
    pub time_series: Option<&'a (String, Option<String>)>,
    /// The path of the array of readings, if the user names one.
    pub readings: Option<&'a str>,
}

impl DocumentRows {
    /// Completes the flags by a sample of documents.
    pub fn new(flags: &RowFlags, source: &DocumentSource<'_>, sample: &[Json]) -> anyhow::Result<Self> {
        ensure!(!sample.is_empty(), "collection {} has no documents", source.name);
        let sample: Vec<Members<'_>> = sample.iter().map(members).collect();
        let precision = flags.precision(Precision::Auto)?;
        let mut rows = Self {
            flags: flags.clone(),
            shape: Shape::Single,
            prefix: String::new(),
            precision,
            roles: HashMap::new(),
            description: String::new(),
        };
        let mut title = format!("collection {}", source.name);
        let guessed = if source.time_series.is_none() { guess_array(&sample) } else { None };
        if let Some(path) = source.readings.map(str::to_owned).or(guessed) {
            let is_array = |(known, value): &(String, &Json)| *known == path && value.is_array();
            ensure!(sample.iter().flatten().any(is_array), "--readings {path}: there is no such array");
            title = format!("{title}, array {path},");
            rows.shape = Shape::Array;
            rows.prefix = path + ".";
        }
        let mut columns = rows.columns(&sample);
        check_flags(flags, &columns)?;
        if let Some((time, meta)) = source.time_series {
            title = format!("time-series {title}");
            rows.flags.time.get_or_insert(time.clone());
            if flags.tags.is_empty() {
                rows.flags.tags.extend(meta.clone());
            }
        }
        let time = match rows.flags.time.take() {
            Some(time) => time,
            None => rows.guess_time(&columns)?,
        };
        let is_parallel = columns.get(&time).is_some_and(|times| times[0].is_array());
        rows.flags.time = Some(time.clone());
        if is_parallel {
            title += ", parallel arrays,";
            rows.shape = Shape::Parallel;
            rows.prefix = time[..time.rfind('.').map_or(0, |dot| dot + 1)].to_owned();
            columns = rows.columns(&sample);
        }
        rows.guess_roles(&columns)?;
        let has_measurement = columns.keys().any(|path| rows.role(path).is_ok_and(|role| role == Role::Measurement));
        if !has_measurement {
            rows.flags.measurement.get_or_insert(source.name.to_owned());
        }
        rows.describe(&title, &columns, &sample);
        Ok(rows)
    }

    pub fn description(&self) -> &str {
        &self.description
    }

    /// Appends the readings of a document to a batch, and counts them.
    pub fn read(&mut self, json: &str, number: &mut u64, batch: &mut Batch) -> anyhow::Result<()> {
        let document: Json = serde_json::from_str(json).context("a document of MongoDB")?;
        let readings = match self.readings(members(&document)) {
            Ok(readings) => readings,
            Err(reason) => {
                *number += 1;
                batch.refuse(*number, reason, json.as_bytes());
                return Ok(());
            }
        };
        for reading in readings {
            *number += 1;
            match self.line(&reading) {
                Ok(line) => push_line(batch, *number, Ok(line.clone()), line.as_bytes()),
                Err(reason) => {
                    let text: serde_json::Map<String, Json> =
                        reading.into_iter().map(|(path, value)| (path, value.clone())).collect();
                    batch.refuse(*number, reason, Json::Object(text).to_string().as_bytes());
                }
            }
        }
        Ok(())
    }

    /// Returns the members of each reading of a document, with those beside the readings.
    fn readings<'a>(&self, members: Members<'a>) -> Result<Vec<Members<'a>>, String> {
        let is_reading = |path: &str, value: &Json| match self.shape {
            Shape::Single => false,
            Shape::Array => path == self.prefix.trim_end_matches('.'),
            Shape::Parallel => {
                let is_skipped = self.flags.role(path).is_ok_and(|role| role == Role::Skip);
                value.is_array() && self.name(path).is_some() && !is_skipped
            }
        };
        let (arrays, common): (Members<'_>, Members<'_>) =
            members.into_iter().partition(|(path, value)| is_reading(path, value));
        let expected = match self.shape {
            Shape::Single => return Ok(vec![common]),
            Shape::Array => self.prefix.trim_end_matches('.'),
            Shape::Parallel => self.flags.time.as_deref().unwrap_or_default(),
        };
        let first = arrays.iter().find(|(path, _)| path == expected).and_then(|(_, value)| value.as_array());
        let count = first.ok_or_else(|| format!("{expected}: expected an array"))?.len();
        let mut readings = vec![common; count];
        for (path, values) in &arrays {
            let values = values.as_array().map_or(&[][..], Vec::as_slice);
            if values.len() != count {
                return Err(format!("{path} has {} values, but {expected} has {count}", values.len()));
            }
            for (reading, value) in readings.iter_mut().zip(values) {
                flatten(path, value, reading);
            }
        }
        Ok(readings)
    }

    /// Formats a reading as line protocol.
    fn line(&mut self, reading: &Members<'_>) -> Result<String, String> {
        let mut parts = RowParts::default();
        for (path, value) in reading {
            if !self.roles.contains_key(path) {
                let role = self.role(path).map_err(|error| error.to_string())?;
                self.roles.insert(path.clone(), role);
            }
            let role = &self.roles[path];
            if *role == Role::Skip {
                continue;
            }
            let is_text = matches!(role, Role::Field(_, Some(FieldType::String)));
            if matches!(role, Role::Field(..)) && is_date(value) && !is_text {
                return Err(format!("{path} is a date: leave it out with --types {path}=skip"));
            }
            let value = plain(value).map_err(|reason| format!("{path}: {reason}"))?;
            add_member(role, path, &value, self.precision, &mut parts)?;
        }
        if parts.time.is_none() {
            return Err(format!("no time at {}", self.flags.time.as_deref().unwrap_or_default()));
        }
        parts.to_line(&self.flags)
    }

    /// Returns the meaning of a path.
    fn role(&self, path: &str) -> anyhow::Result<Role> {
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        Ok(match self.flags.role(path)? {
            Role::Tag(_) => Role::Tag(last(path)),
            Role::Field(_, field_type) => {
                let below = |tag: &String| Some(path.strip_prefix(&**tag)?.strip_prefix('.')?.replace('.', "_"));
                if let Some(name) = self.flags.tags.iter().find_map(below) {
                    return Ok(Role::Tag(name));
                }
                if field_type.is_none() && self.is_beside(path) {
                    return Ok(Role::Skip);
                }
                Role::Field(self.name(path).unwrap_or(path).replace('.', "_"), field_type)
            }
            role => role,
        })
    }

    /// Returns the path within a reading, unless it is beside the readings of its document.
    fn name<'a>(&self, path: &'a str) -> Option<&'a str> {
        let name = path.strip_prefix(&*self.prefix)?;
        (self.shape != Shape::Parallel || !name.contains('.')).then_some(name)
    }

    /// Returns true if a path is that of an identifier, or beside the readings of its document.
    fn is_beside(&self, path: &str) -> bool {
        self.name(path).is_none() || path == "_id" || path.starts_with("_id.")
    }

    /// Returns the values of the readings of a sample by path.
    fn columns<'a>(&self, sample: &[Members<'a>]) -> BTreeMap<String, Vec<&'a Json>> {
        let mut columns = BTreeMap::<String, Vec<&Json>>::new();
        let readings = sample.iter().filter_map(|document| self.readings(document.clone()).ok());
        for (path, value) in readings.flatten().flatten() {
            columns.entry(path).or_default().push(value);
        }
        columns
    }

    fn guess_time(&self, columns: &BTreeMap<String, Vec<&Json>>) -> anyhow::Result<String> {
        let is_inside = |path: &str| self.name(path).is_some() && path != "_id";
        let inside: Vec<&str> = columns.keys().map(String::as_str).filter(|path| is_inside(path)).collect();
        let has_dates = |path: &str| columns[path].iter().all(|value| is_date(first(value)));
        let tests: [&dyn Fn(&str) -> bool; 3] =
            [&|path| is_time_name(path) && has_dates(path), &is_time_name, &has_dates];
        for is_time in tests {
            match &*inside.iter().copied().filter(|path| is_time(path)).collect::<Vec<_>>() {
                [] => {}
                [time] => return Ok((*time).to_owned()),
                several => bail!("several members may be the time: name one with --time, of {several:?}"),
            }
        }
        bail!("no member is the time: name one with --time, of {inside:?}")
    }

    /// Completes the tags and types.
    fn guess_roles(&mut self, columns: &BTreeMap<String, Vec<&Json>>) -> anyhow::Result<()> {
        let has_tags = !self.flags.tags.is_empty();
        let mut tags = Vec::new();
        let mut types = Vec::new();
        for (path, values) in columns {
            let is_named = !matches!(self.flags.role(path)?, Role::Field(_, None));
            if is_named || matches!(self.role(path)?, Role::Tag(_)) {
                continue;
            }
            let all = |is_kind: fn(&Json) -> bool| values.iter().all(|value| is_kind(value));
            let is_beside = self.is_beside(path);
            let is_identifier = all(is_object_id) || (all(Json::is_number) && is_identifier_name(path));
            let is_label = all(is_label) && (is_beside || has_repetitions(values));
            if !has_tags && path != "_id" && (is_identifier || is_label) {
                tags.push(path.clone());
                continue;
            }
            let plain: Vec<Cow<'_, Json>> =
                values.iter().filter(|value| !is_date(value)).filter_map(|value| plain(value).ok()).collect();
            let texts: Vec<String> = plain.iter().map(|value| text(value)).collect();
            let field_type = if is_beside || plain.is_empty() {
                "skip"
            } else if plain.iter().all(|value| value.is_string()) {
                FieldType::String.name()
            } else {
                FieldType::guess(texts.iter().map(String::as_str)).name()
            };
            types.push(format!("{path}={field_type}"));
        }
        self.flags.tags.extend(tags);
        self.flags.types.extend(types);
        Ok(())
    }

    fn describe(&mut self, title: &str, columns: &BTreeMap<String, Vec<&Json>>, sample: &[Members<'_>]) {
        let roles = columns.keys().filter_map(|path| Some((path.clone(), self.role(path).ok()?)));
        let roles: Vec<(String, Role)> = roles.collect();
        let mut shown = Vec::new();
        for document in sample.iter().step_by(sample.len().div_ceil(SHOWN_READINGS)) {
            let readings = self.readings(document.clone()).unwrap_or_default();
            shown.extend(readings.first().and_then(|reading| self.line(reading).ok()));
        }
        let shown = shown.join(&format!("\n{:15}", ""));
        let shown = (!shown.is_empty()).then_some(&*shown);
        self.description = describe_row(title, &roles, &self.flags, shown);
    }
}

/// Checks that the flags name members of the sample. Rare members can be left out with --types.
fn check_flags(flags: &RowFlags, columns: &BTreeMap<String, Vec<&Json>>) -> anyhow::Result<()> {
    let types = flags.types.iter().filter(|item| !item.ends_with("=skip"));
    let types = types.map(|item| item.rsplit_once('=').map_or(&**item, |(path, _)| path));
    let named = flags.time.iter().chain(&flags.measurement_column).chain(&flags.tags);
    for path in named.map(String::as_str).chain(types) {
        let is_member = |known: &String| known == path || known.starts_with(&format!("{path}."));
        ensure!(columns.keys().any(is_member), "there is no member {path:?}, only {:?}", columns.keys());
    }
    Ok(())
}

/// Returns the path of the array of documents with times that has the most elements.
fn guess_array(sample: &[Members<'_>]) -> Option<String> {
    let mut sizes = BTreeMap::<&str, usize>::new();
    for (path, value) in sample.iter().flatten() {
        let items = value.as_array().map_or(&[][..], Vec::as_slice);
        let first = items.first().map(members).unwrap_or_default();
        if first.iter().any(|(name, value)| !name.is_empty() && (is_date(value) || is_time_name(name))) {
            *sizes.entry(path).or_default() += items.len();
        }
    }
    sizes.into_iter().max_by_key(|(_, size)| *size).map(|(path, _)| path.to_owned())
}

fn members(document: &Json) -> Members<'_> {
    let mut members = Vec::new();
    flatten("", document, &mut members);
    members
}

/// Appends the scalars and arrays below a value.
fn flatten<'a>(path: &str, value: &'a Json, members: &mut Members<'a>) {
    match value {
        Json::Null => {}
        Json::Object(object) if extended(value).is_none() => {
            for (name, value) in object {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, members);
            }
        }
        _ => members.push((path.to_owned(), value)),
    }
}

/// Returns the type and content of a scalar that JSON lacks.
fn extended(value: &Json) -> Option<(&str, &Json)> {
    let first = value.as_object()?.iter().next()?;
    first.0.starts_with('$').then_some((first.0, first.1))
}

fn is_date(value: &Json) -> bool {
    extended(value).is_some_and(|(kind, _)| kind == "$date")
}

/// Returns the first element of an array, or another value.
fn first(value: &Json) -> &Json {
    value.as_array().and_then(|items| items.first()).unwrap_or(value)
}

fn is_object_id(value: &Json) -> bool {
    extended(value).is_some_and(|(kind, _)| kind == "$oid")
}

/// Returns true for a string that is no date.
fn is_label(value: &Json) -> bool {
    value.as_str().is_some_and(|text| text.parse::<f64>().is_ok() || parse_time(text, Precision::Auto).is_err())
}

fn is_time_name(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    TIME_COLUMNS.contains(&&*name.to_ascii_lowercase())
}

fn is_identifier_name(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    let is_identifier = name.ends_with("_id") || name.ends_with("Id") || name.ends_with("ID");
    is_identifier || ["id", "sensor", "device"].contains(&name)
}

/// Returns true if at least a quarter of the values came before.
fn has_repetitions(values: &[&Json]) -> bool {
    let distinct: BTreeSet<&str> = values.iter().filter_map(|value| value.as_str()).collect();
    4 * distinct.len() <= 3 * values.len()
}

fn text(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the string, number or boolean for a scalar.
fn plain(value: &Json) -> Result<Cow<'_, Json>, String> {
    let Some((kind, content)) = extended(value) else {
        return if value.is_array() { Err("an array".to_owned()) } else { Ok(Cow::Borrowed(value)) };
    };
    let number = || content["$numberLong"].as_str()?.parse::<i64>().ok()?.checked_mul(1_000_000);
    let content = match (kind, content) {
        ("$date" | "$oid", Json::String(text)) => text.clone(),
        ("$date", _) => rfc3339(number().ok_or("a date out of range")?),
        ("$numberDecimal", Json::String(text)) => return decimal(text).map(Cow::Owned),
        ("$numberDouble", Json::String(text)) => return Err(format!("{text} is no number")),
        _ => return Err(format!("a value of type {kind}")),
    };
    Ok(Cow::Owned(Json::String(content)))
}

/// Returns the double for a decimal number.
fn decimal(text: &str) -> Result<Json, String> {
    let digits = text.split(['e', 'E']).next().unwrap_or_default().replace(['.', '-', '+'], "");
    if digits.trim_matches('0').len() > DOUBLE_DIGITS {
        return Err(format!("the decimal number {text} has more than {DOUBLE_DIGITS} digits"));
    }
    let number = text.parse().ok().and_then(serde_json::Number::from_f64);
    number.map(Json::Number).ok_or_else(|| format!("{text} is no number"))
}
