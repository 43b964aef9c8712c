//! Reads a database of a running InfluxDB 1.x: each retention policy, shard and measurement is a step of its own, so that
//! an interrupted import repeats one step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufReader, Read};

use anyhow::{Context, bail};
use percent_encoding::percent_decode_str;
use serde_json::{Deserializer, Value as Json};

use super::balance::{quote, result_error};
use super::batch::{Batch, Place, Position, Step};
use super::lines::push_line;
use super::reader::BatchSource;
use crate::commands::post::{Service, Target, url_encode};
use crate::reading::time::{TIMESTAMP_MAX, TIMESTAMP_MIN, parse_rfc3339};
use crate::reading::{Sensor, Value};
use crate::wire::line_protocol::write_line;

/// The schemes of a URL of InfluxDB, and those of HTTP.
const SCHEMES: [(&str, &str); 2] = [("influx://", "http://"), ("influxs://", "https://")];
/// Rows of a part of an answer.
const CHUNK_ROWS: usize = 10_000;
/// Size in bytes at which a batch is sent.
const BATCH_BYTES: usize = 1 << 20;

type JsonParts = Box<dyn Iterator<Item = serde_json::Result<Json>> + Send>;

pub struct InfluxSource {
    target: Target,
    /// The parameters of all requests: database and credentials.
    parameters: String,
    database: String,
    /// The database to write to.
    to_database: String,
    /// Statements that create the retention policies in the service.
    statements: Vec<String>,
    /// The steps that are not done, in order.
    steps: VecDeque<(Step, i64)>,
    /// The fields of a policy's measurement with their types.
    fields: BTreeMap<(String, String), Vec<(String, String)>>,
    /// The rest of the answer for the first step.
    answer: Option<JsonParts>,
    position: Position,
}

impl InfluxSource {
    /// Returns true if a source is a URL of InfluxDB.
    pub fn is_url(source: &str) -> bool {
        SCHEMES.iter().any(|(scheme, _)| source.starts_with(scheme))
    }

    /// Asks InfluxDB for the retention policies, shards and fields of `influx://[USER:PASSWORD@]HOST:PORT/DATABASE`.
    pub fn new(url: &str, to_database: Option<&str>) -> anyhow::Result<Self> {
        let scheme = SCHEMES.iter().find_map(|(scheme, http)| Some((http, url.strip_prefix(scheme)?)));
        let (http, rest) = scheme.context("expected influx://")?;
        let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
        let Some((host, database)) = rest.split_once('/').filter(|(_, database)| !database.is_empty()) else {
            bail!("expected influx://HOST:PORT/DATABASE");
        };
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let database = decode(database);
        let mut parameters = format!("db={}&epoch=ns", url_encode(&database));
        if let Some((user, password)) = login.and_then(|login| login.split_once(':')) {
            parameters += &format!("&u={}&p={}", url_encode(&decode(user)), url_encode(&decode(password)));
        }
        let service = Service { url: format!("{http}{host}"), ..Service::default() };
        let mut source = Self {
            target: Target::from_flags(&service)?,
            parameters,
            to_database: to_database.unwrap_or(&database).to_owned(),
            database,
            statements: Vec::new(),
            steps: VecDeque::new(),
            fields: BTreeMap::new(),
            answer: None,
            position: Position::default(),
        };
        source.list()?;
        Ok(source)
    }

    /// Lists the steps.
    fn list(&mut self) -> anyhow::Result<()> {
        let name = quote(&self.database);
        let target_name = quote(&self.to_database);
        self.statements.push(format!("CREATE DATABASE {target_name}"));
        let policies = self.ask(&format!("SHOW RETENTION POLICIES ON {name}"))?;
        // Without the right to list shards, a step has all times.
        let shards = self.ask("SHOW SHARDS").unwrap_or_default();
        for policy in rows(&policies) {
            let policy_name = text(&policy, "name");
            let duration = text(&policy, "duration");
            let duration = if duration == "0s" { "INF".to_owned() } else { duration };
            let quoted = quote(&policy_name);
            let default = if policy["default"] == true { " DEFAULT" } else { "" };
            let verb = if policy_name == "autogen" { "ALTER" } else { "CREATE" };
            let replication = if verb == "CREATE" { " REPLICATION 1" } else { "" };
            self.statements.push(format!(
                "{verb} RETENTION POLICY {quoted} ON {target_name} DURATION {duration}{replication}{default}"
            ));
            let in_policy = |shard: &BTreeMap<String, Json>| {
                text(shard, "database") == self.database && text(shard, "retention_policy") == policy_name
            };
            let bounds = |shard: &BTreeMap<String, Json>| {
                Some((parse_rfc3339(&text(shard, "start_time"))?, parse_rfc3339(&text(shard, "end_time"))?))
            };
            let mut ranges: BTreeSet<(i64, i64)> =
                rows(&shards).into_iter().filter(in_policy).filter_map(|shard| bounds(&shard)).collect();
            if shards.is_null() {
                ranges.insert((TIMESTAMP_MIN, TIMESTAMP_MAX));
            }
            let keys = self.ask(&format!("SHOW FIELD KEYS ON {name} FROM {quoted}./.*/"))?;
            for series in keys["results"][0]["series"].as_array().into_iter().flatten() {
                let measurement = series["name"].as_str().unwrap_or_default().to_owned();
                let pair = |row: &Json| Some((row[0].as_str()?.to_owned(), row[1].as_str()?.to_owned()));
                let fields = series["values"].as_array().into_iter().flatten().filter_map(pair).collect();
                self.fields.insert((policy_name.clone(), measurement.clone()), without_twin_numbers(fields));
                for (start, end) in &ranges {
                    let step = Step { policy: policy_name.clone(), start: *start, measurement: measurement.clone() };
                    self.steps.push_back((step, *end));
                }
            }
        }
        self.steps.make_contiguous().sort();
        Ok(())
    }

    fn ask(&self, statement: &str) -> anyhow::Result<Json> {
        let path = format!("/query?{}&q={}", self.parameters, url_encode(statement));
        let answer = self.target.json("GET", &path, None)?;
        match result_error(&answer) {
            Some(error) => bail!("InfluxDB: {statement}: {error}"),
            None => Ok(answer),
        }
    }

    /// Asks for the readings of a step.
    fn select(&self, step: &Step, end: i64) -> anyhow::Result<JsonParts> {
        let Step { policy, start, measurement } = step;
        let fields = self.fields.get(&(policy.clone(), measurement.clone())).map_or(&[][..], Vec::as_slice);
        let columns = fields.iter().enumerate();
        let columns = columns.map(|(index, (name, field_type))| format!("{}::{field_type} AS f{index}", quote(name)));
        let columns = columns.collect::<Vec<_>>().join(", ");
        let from = [&self.database, policy, measurement].map(|name| quote(name)).join(".");
        let statement = format!("SELECT {columns} FROM {from} WHERE time >= {start} AND time < {end} GROUP BY *");
        let parameters = format!("{}&chunked=true&chunk_size={CHUNK_ROWS}", self.parameters);
        let path = format!("/query?{parameters}&q={}", url_encode(&statement));
        let answer = self.target.get(&path)?.ok()?;
        let body: Box<dyn Read + Send> = Box::new(BufReader::with_capacity(256 << 10, answer.body));
        Ok(Box::new(Deserializer::from_reader(body).into_iter::<Json>()))
    }

    /// Appends the rows of a part of an answer.
    fn take(&mut self, step: &Step, part: &Json, batch: &mut Batch) -> anyhow::Result<()> {
        if let Some(error) = result_error(part).or(part["error"].as_str()) {
            bail!("InfluxDB: measurement {}: {error}", step.measurement);
        }
        let fields = self.fields.get(&(step.policy.clone(), step.measurement.clone())).map_or(&[][..], Vec::as_slice);
        for series in part["results"][0]["series"].as_array().into_iter().flatten() {
            let tags = series["tags"].as_object().into_iter().flatten();
            let tags = tags.filter_map(|(key, value)| Some((&**key, value.as_str().filter(|text| !text.is_empty())?)));
            let sensor = Sensor::new(&step.measurement, tags).map_err(|key| anyhow::anyhow!("two tags {key:?}"))?;
            for row in series["values"].as_array().into_iter().flatten() {
                let values = fields
                    .iter()
                    .enumerate()
                    .filter_map(|(index, (name, field_type))| Some((&**name, value(&row[index + 1], field_type)?)));
                let values: Vec<(&str, Value)> = values.collect();
                self.position.lines += 1;
                let mut line = String::new();
                let fields = values.iter().map(|(name, value)| (*name, value));
                write_line(&mut line, &sensor.key, fields, row[0].as_i64().unwrap_or_default());
                let line = line.trim_end_matches('\n').to_owned();
                push_line(batch, self.position.lines, Ok(line.clone()), line.as_bytes());
            }
        }
        Ok(())
    }
}

impl BatchSource for InfluxSource {
    fn describe(&self) -> Option<String> {
        let names: Vec<String> = self
            .fields
            .iter()
            .map(|((policy, name), fields)| format!("{policy}.{name} ({} fields)", fields.len()))
            .collect();
        let Self { database, steps, .. } = self;
        Some(format!("database {database}: {}, in {} steps\n", names.join(", "), steps.len()))
    }

    fn resume(&mut self, position: Position) -> anyhow::Result<()> {
        self.steps.retain(|(step, _)| Some(step) > position.step.as_ref());
        self.position = position;
        Ok(())
    }

    fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        let Some((step, end)) = self.steps.front().cloned() else { return Ok(None) };
        let mut batch = Batch::default();
        batch.statements.append(&mut self.statements);
        batch.place = Place { database: Some(self.to_database.clone()), policy: Some(step.policy.clone()) };
        let mut answer = match self.answer.take() {
            Some(answer) => answer,
            None => self.select(&step, end)?,
        };
        while batch.lines.len() < BATCH_BYTES {
            let Some(part) = answer.next() else {
                self.steps.pop_front();
                self.position.step = Some(step);
                batch.end = self.position.clone();
                return Ok(Some(batch));
            };
            self.take(&step, &part.context("reading the answer of InfluxDB")?, &mut batch)?;
        }
        self.answer = Some(answer);
        // The position is that before the step, which is repeated as a whole.
        batch.end = self.position.clone();
        Ok(Some(batch))
    }
}

/// Leaves out the integers of a field that also has floats: InfluxDB answers both as floats.
fn without_twin_numbers(fields: Vec<(String, String)>) -> Vec<(String, String)> {
    let floats: BTreeSet<String> =
        fields.iter().filter(|(_, field_type)| field_type == "float").map(|(name, _)| name.clone()).collect();
    fields.into_iter().filter(|(name, field_type)| field_type != "integer" || !floats.contains(name)).collect()
}

/// Returns the rows of the series of an answer as maps of columns.
fn rows(answer: &Json) -> Vec<BTreeMap<String, Json>> {
    let mut found = Vec::new();
    for series in answer["results"][0]["series"].as_array().into_iter().flatten() {
        let columns: Vec<&str> = series["columns"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        for row in series["values"].as_array().into_iter().flatten() {
            let cells = row.as_array().into_iter().flatten().cloned();
            found.push(columns.iter().map(|column| (*column).to_owned()).zip(cells).collect());
        }
    }
    found
}

fn text(row: &BTreeMap<String, Json>, column: &str) -> String {
    row.get(column).and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn value(cell: &Json, field_type: &str) -> Option<Value> {
    match field_type {
        "float" => cell.as_f64().map(Value::Float),
        "integer" => cell.as_i64().map(Value::Integer),
        "boolean" => cell.as_bool().map(Value::Boolean),
        _ => cell.as_str().map(|text| Value::String(text.into())),
    }
}
