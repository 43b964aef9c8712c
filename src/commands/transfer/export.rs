//! `hourglass export`: writes readings of a running service to a file or the standard output. An interrupted export to a
//! file continues after its last complete part.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::columns::RowsFormat;
use super::state::StateFile;
use crate::commands::post::{ServiceDatabase, Target, url_encode};
use crate::commands::progress::Progress;
use crate::reading::time::rfc3339;
use crate::reading::value::RawValue;
use crate::reading::{Limits, Precision, Sensor};
use crate::wire::line_protocol::Lines;
use crate::wire::{Point, Points};

/// The comment that ends a part, and has the cursor of the next one.
const NEXT: &str = "# next ";
/// The comment that ends an export.
const END: &str = "# end";
/// The limits of stored readings are those of the service.
const LIMITS: Limits = Limits { line_bytes: usize::MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };

/// The flags that select sensors and a range of times.
#[derive(Debug, Clone, Default, Args)]
pub struct SelectorFlags {
    /// One sensor by its key, such as climate,sensor=temp-01.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["measurement", "tag"], help_heading = "Selection")]
    pub sensor: Option<String>,
    /// The sensors of this measurement.
    #[arg(long, value_name = "NAME", help_heading = "Selection")]
    pub measurement: Option<String>,
    /// The sensors with this tag: site=lab, site!=lab, room=~^r[0-9]+$ or room!~^r.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Selection")]
    pub tag: Vec<String>,
    /// The first time, such as 2026-01-15 or -24h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Selection")]
    pub from: Option<String>,
    /// The end of the times, which is not included.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, help_heading = "Selection")]
    pub to: Option<String>,
    /// The fields.
    #[arg(long, value_name = "NAME,…", help_heading = "Selection")]
    pub fields: Option<String>,
}

impl SelectorFlags {
    /// Returns the parameters of a request, each after `&`.
    pub fn parameters(&self) -> anyhow::Result<String> {
        let mut text = self.sensors()?;
        for (name, value) in [("from", &self.from), ("to", &self.to), ("fields", &self.fields)] {
            if let Some(value) = value {
                text += &format!("&{name}={}", url_encode(value));
            }
        }
        Ok(text)
    }

    /// Returns the parameters that select sensors.
    pub fn sensors(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        for (name, value) in [("sensor", &self.sensor), ("measurement", &self.measurement)] {
            if let Some(value) = value {
                text += &format!("&{name}={}", url_encode(value));
            }
        }
        for tag in &self.tag {
            let operator = tag.find(['=', '!']).with_context(|| format!("--tag {tag:?}: expected KEY=VALUE"))?;
            let (key, test) = tag.split_at(operator);
            let name = format!("tag.{key}{}", if test.starts_with('!') { "!" } else { "" });
            let value = test.trim_start_matches('!');
            let value = value.strip_prefix('=').unwrap_or(value);
            text += &format!("&{}={}", url_encode(&name), url_encode(value));
        }
        Ok(text)
    }
}

/// The flags of `export`.
#[derive(Debug, Args)]
pub struct ExportFlags {
    /// The file; `-` or nothing for the standard output. A name that ends with .gz or .zst is compressed.
    pub file: Option<PathBuf>,
    /// The format of the rows [default: by the name of the file, else lp].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<RowsFormat>,
    #[command(flatten)]
    pub selector: SelectorFlags,
    /// Print no progress.
    #[arg(long)]
    pub quiet: bool,
    #[command(flatten)]
    pub database: ServiceDatabase,
}

/// The state of an export.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct State {
    /// The cursor of the next part.
    cursor: Option<String>,
    /// The size of the file after the last complete part.
    bytes: u64,
    rows: u64,
    columns: Columns,
}

/// Runs the command.
pub fn export(flags: &ExportFlags) -> anyhow::Result<()> {
    let target = Target::from_flags(&flags.database.service)?;
    let rows = super::RowFlags { format: flags.format, ..super::RowFlags::default() };
    let format = rows.format(flags.file.as_deref());
    let parameters = format!("db={}{}", url_encode(&flags.database.db), flags.selector.parameters()?);
    let request = format!("{format:?} of {parameters} of {}", target.url());
    let file = flags.file.as_deref().filter(|file| *file != Path::new("-"));
    let state_file = file.map(|file| StateFile::new(None, file));
    let earlier: Option<State> = state_file.as_ref().map(|file| file.read(&request)).transpose()?.flatten();
    if let (None, Some(state_file), Some(file)) = (&earlier, &state_file, file) {
        ensure!(!file.exists(), "{} exists: remove it, or name another file", file.display());
        // From now on, the file is that of this export.
        state_file.write(&request, &State::default())?;
    }
    let mut state = earlier.unwrap_or_default();
    if state.cursor.is_none() && format == RowsFormat::Csv {
        state.columns = Columns::read(&target, &flags.database.db, &flags.selector)?;
    }
    let mut output = Output::open(file, &state)?;
    if state.cursor.is_none() && format == RowsFormat::Csv {
        output.part.write_all(state.columns.header().as_bytes())?;
    }
    let mut progress = (!flags.quiet && file.is_some()).then(|| Progress::new("export"));
    let cursor = state.cursor.as_ref().map(|cursor| format!("&cursor={}", url_encode(cursor))).unwrap_or_default();
    let answer = target.get(&format!("/api/v1/export?{parameters}{cursor}"))?.ok()?;
    let mut lines = BufReader::with_capacity(256 << 10, answer.body);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = read_row(&mut lines, &mut line).context("reading the answer: run the command again to continue")?;
        ensure!(read > 0, "the answer ended early: run the command again to continue");
        let cursor = line.strip_prefix(NEXT.as_bytes());
        let is_end = line.starts_with(END.as_bytes());
        if cursor.is_none() && !is_end {
            state.rows += 1;
            output.write_row(&line, format, &state.columns)?;
            continue;
        }
        state.cursor = cursor.map(|cursor| String::from_utf8_lossy(cursor).trim().to_owned());
        state.bytes = output.end_part()?;
        if let Some(progress) = &mut progress {
            progress.show(|| format!("{} rows, {} MB", state.rows, state.bytes / 1_000_000));
        }
        match &state_file {
            Some(file) if is_end => file.remove()?,
            Some(file) => file.write(&request, &state)?,
            None => {}
        }
        if is_end {
            eprintln!("{} rows exported", state.rows);
            return Ok(());
        }
    }
}

/// Reads a line of line protocol, whose strings may have newlines.
fn read_row(lines: &mut impl BufRead, row: &mut Vec<u8>) -> io::Result<usize> {
    let mut size = lines.read_until(b'\n', row)?;
    while row.last() == Some(&b'\n') && !row.starts_with(b"#") && memchr::memchr(b'"', row).is_some() {
        if matches!(Lines::new(row, Precision::Nanoseconds, LIMITS).next(), Some(Ok(_))) {
            break;
        }
        match lines.read_until(b'\n', row)? {
            0 => break,
            more => size += more,
        }
    }
    Ok(size)
}

/// The output, in parts. A compressed file has a member or frame per part.
struct Output {
    part: Vec<u8>,
    file: Option<File>,
    compression: Compression,
}

#[derive(Debug, Clone, Copy)]
enum Compression {
    None,
    Gzip,
    Zstd,
}

/// Size of a part in memory at which it is written to the standard output.
const STREAM_BYTES: usize = 256 << 10;

impl Output {
    fn open(path: Option<&Path>, state: &State) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self { part: Vec::new(), file: None, compression: Compression::None });
        };
        let open = || {
            let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
            file.set_len(state.bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok::<_, io::Error>(file)
        };
        let file = open().with_context(|| format!("creating {}", path.display()))?;
        let compression = match path.extension().and_then(|end| end.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            _ => Compression::None,
        };
        Ok(Self { part: Vec::new(), file: Some(file), compression })
    }

    /// Writes a line of line protocol in a format.
    fn write_row(&mut self, line: &[u8], format: RowsFormat, columns: &Columns) -> anyhow::Result<()> {
        if format == RowsFormat::Lp {
            self.part.extend_from_slice(line);
        } else {
            let parse = || anyhow::anyhow!("the service answered with {:?}", String::from_utf8_lossy(line));
            let mut lines = Lines::new(line, Precision::Nanoseconds, LIMITS);
            let point = lines.next().and_then(Result::ok).with_context(parse)?;
            let sensor = point.sensor(&LIMITS).ok().with_context(parse)?;
            if format == RowsFormat::Csv {
                columns.write_row(&mut self.part, &sensor, &point)?;
            } else {
                write_object(&mut self.part, &sensor, &point)?;
            }
        }
        if self.file.is_none() && self.part.len() >= STREAM_BYTES {
            self.end_part()?;
        }
        Ok(())
    }

    /// Writes the part, durably if it goes to a file. Returns the size of the file.
    fn end_part(&mut self) -> anyhow::Result<u64> {
        let part = std::mem::take(&mut self.part);
        let Some(file) = &mut self.file else {
            let mut output = io::stdout().lock();
            output.write_all(&part)?;
            output.flush()?;
            return Ok(0);
        };
        match self.compression {
            Compression::None => file.write_all(&part)?,
            Compression::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(BufWriter::new(&*file), flate2::Compression::default());
                encoder.write_all(&part)?;
                encoder.finish()?.flush()?;
            }
            Compression::Zstd => file.write_all(&zstd::encode_all(&*part, 0)?)?,
        }
        file.sync_data()?;
        Ok(file.stream_position()?)
    }
}

/// Writes `{"measurement":…,"tags":{…},"ts":…,"fields":{…}}`. Only floats have a point.
fn write_object(out: &mut Vec<u8>, sensor: &Sensor, point: &Point<'_, '_>) -> anyhow::Result<()> {
    let tags = sensor.tags.iter().map(|(key, value)| (key.to_string(), Json::from(&**value)));
    let fields = point.fields.iter().map(|(name, value)| (name.to_string(), json_value(value)));
    let mut row = Map::new();
    row.insert("measurement".to_owned(), (&*sensor.measurement).into());
    row.insert("tags".to_owned(), tags.collect::<Map<_, _>>().into());
    row.insert("ts".to_owned(), rfc3339(point.timestamp.unwrap_or_default()).into());
    row.insert("fields".to_owned(), fields.collect::<Map<_, _>>().into());
    serde_json::to_writer(&mut *out, &row)?;
    out.push(b'\n');
    Ok(())
}

fn json_value(value: &RawValue<'_>) -> Json {
    match value {
        RawValue::Float(number) => (*number).into(),
        RawValue::Integer(number) => (*number).into(),
        RawValue::Unsigned(number) => (*number).into(),
        RawValue::Boolean(is_true) => (*is_true).into(),
        RawValue::String(text) => (&**text).into(),
    }
}

/// The columns of CSV: `measurement`, `tag.KEY`, `ts`, and `FIELD:TYPE`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Columns {
    tags: Vec<String>,
    fields: Vec<(String, String)>,
}

impl Columns {
    /// Asks the service for the tags and fields of the selected sensors.
    fn read(target: &Target, database: &str, selector: &SelectorFlags) -> anyhow::Result<Self> {
        let parameters = format!("db={}{}", url_encode(database), selector.sensors()?);
        let list = |name: &str| target.json("GET", &format!("/api/v1/{name}?{parameters}"), None);
        let text = |item: &Json, name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let tags = list("tags")?;
        let tags = tags["tags"].as_array().into_iter().flatten().map(|item| text(item, "tag")).collect();
        let named = list("fields")?;
        let named: BTreeSet<String> =
            named["fields"].as_array().into_iter().flatten().map(|item| text(item, "field")).collect();
        // Sensors may have different types in one field. Only InfluxQL lists all of them.
        let (database, policy) = database.split_once('/').unwrap_or((database, ""));
        let place = format!("db={}&rp={}", url_encode(database), url_encode(policy));
        let answer = target.json("GET", &format!("/query?{place}&q=SHOW%20FIELD%20KEYS"), None)?;
        let mut fields = BTreeSet::new();
        for series in answer["results"][0]["series"].as_array().into_iter().flatten() {
            for row in series["values"].as_array().into_iter().flatten() {
                let name = row[0].as_str().unwrap_or_default().to_owned();
                let family = match row[1].as_str() {
                    Some("boolean") => "boolean",
                    Some("string") => "string",
                    _ => "number",
                };
                let is_wanted =
                    selector.fields.as_ref().is_none_or(|wanted| wanted.split(',').any(|wanted| wanted == name));
                if is_wanted && named.contains(&name) {
                    fields.insert((name, family.to_owned()));
                }
            }
        }
        let fields = fields.into_iter().collect();
        Ok(Self { tags, fields })
    }

    fn header(&self) -> String {
        let mut cells = vec!["measurement".to_owned()];
        cells.extend(self.tags.iter().map(|tag| format!("tag.{tag}")));
        cells.push("ts".to_owned());
        cells.extend(self.fields.iter().map(|(name, family)| format!("{name}:{family}")));
        let mut out = Vec::new();
        for cell in &cells {
            write_cell(&mut out, cell);
        }
        end_record(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn write_row(&self, out: &mut Vec<u8>, sensor: &Sensor, point: &Point<'_, '_>) -> anyhow::Result<()> {
        write_cell(out, &sensor.measurement);
        let mut count = sensor.tags.len() + point.fields.len();
        for tag in &self.tags {
            match sensor.tag(tag) {
                Some(value) => {
                    count -= 1;
                    write_cell(out, value);
                }
                None => out.push(b','),
            }
        }
        write_cell(out, &rfc3339(point.timestamp.unwrap_or_default()));
        let values: BTreeMap<&str, &RawValue<'_>> = point.fields.iter().map(|(name, value)| (&**name, value)).collect();
        for (name, family) in &self.fields {
            match values.get(&**name).filter(|value| value.family().name() == family) {
                Some(value) => {
                    count -= 1;
                    write_value(out, value);
                }
                None => out.push(b','),
            }
        }
        ensure!(count == 0, "a tag or field was added during the export: remove the file and export again");
        end_record(out);
        Ok(())
    }
}

fn write_value(out: &mut Vec<u8>, value: &RawValue<'_>) {
    match value {
        RawValue::Float(number) => write_cell(out, &format!("{number:?}")),
        RawValue::Integer(number) => write_cell(out, &number.to_string()),
        RawValue::Unsigned(number) => write_cell(out, &number.to_string()),
        RawValue::Boolean(is_true) => write_cell(out, if *is_true { "true" } else { "false" }),
        // An empty cell has no value, so an empty string has quotes.
        RawValue::String(text) if text.is_empty() => out.extend_from_slice(b"\"\","),
        RawValue::String(text) => write_cell(out, text),
    }
}

/// Writes a cell and a comma.
fn write_cell(out: &mut Vec<u8>, text: &str) {
    if text.contains([',', '"', '\n', '\r']) {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(b',');
}

/// Replaces the last comma by the end of the record.
fn end_record(out: &mut Vec<u8>) {
    out.pop();
    out.extend_from_slice(b"\r\n");
}
