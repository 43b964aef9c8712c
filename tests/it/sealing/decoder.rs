//! docs/explanation/sealed_days.py, written from docs/reference/stored-forms.md alone, reads `<db>.days` exactly.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::support::prelude::*;

use super::START;

/// Cells by sensor, time and field: floats as bits, others as line protocol.
type Cells = BTreeMap<(String, i64, String), String>;

/// A day is sealed once no log has its readings, so sensor documents must be written soon.
const CONFIG: &str = r#"
[seal]
after = "1s"
interval = "50ms"
quiet = "0s"
[flush]
interval = "100ms"
quiet = "50ms"
[sensors]
write_interval = "100ms"
"#;
const ROWS: i64 = 600;
/// Floats with and without a decimal of nine places.
const FLOATS: [f64; 11] = [
    0.1 + 0.2,
    -0.0,
    0.0,
    5e-324,
    f64::MAX,
    -1.0 / 3.0,
    1e21,
    -1e-7,
    9_007_199_254_740_993.0,
    123_456_789.123_456_79,
    2.5,
];
const INTEGERS: [i64; 6] = [i64::MAX, i64::MIN, (1 << 53) + 1, -(1 << 53) - 1, 0, -1];
const UNSIGNED: [u64; 4] = [u64::MAX, 1 << 63, (1 << 53) + 1, 0];
const TEXTS: [&str; 6] = ["", r#"a "b"\c"#, "naïve ☃ 🌡", "a,b=c d", "two\nlines", "01234567"];

/// Sensor keys and intervals in nanoseconds; each needs another unit of time.
const SENSORS: [(&str, i64); 4] = [
    ("climate,s=seconds", 60_000_000_000),
    (r"climate,s=a\,b\ c\=d", 123_456_000_000),
    (r"plain\ name", 77_777_001_000),
    ("climate,s=ns,site=☃", 98_765_432_109),
];

fn literals(row: i64) -> Vec<(&'static str, String)> {
    let row_index = usize::try_from(row).expect("no row below 0");
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let all = [
        ("temp", format!("{}", f64::from(i32::try_from(row * 7 % 4001 - 2000).expect("small")) / 100.0)),
        ("awkward", format!("{:?}", FLOATS[row_index / 3 % FLOATS.len()])),
        (r"whole\ number", format!("{}i", INTEGERS[row_index / 2 % INTEGERS.len()])),
        ("größe", format!("{}u", UNSIGNED[row_index % UNSIGNED.len()])),
        (r"o\,k\=", (row % 7 < 3).to_string()),
        ("note", quoted(TEXTS[row_index % TEXTS.len()])),
    ];
    // Each is missing in some rows, with different periods; never all of them.
    let is_here = |(number, _): &(usize, _)| (row_index / (number + 1)) % (number + 3) != 0 || *number == row_index % 6;
    all.into_iter().enumerate().filter(is_here).map(|(_, cell)| cell).collect()
}

fn canonical(literal: &str) -> String {
    // `5u` and `5i` are the same value.
    if let Some(number) = literal.strip_suffix('u').filter(|number| number.parse::<i64>().is_ok()) {
        return format!("{number}i");
    }
    let is_float = !literal.starts_with('"') && !literal.ends_with(['i', 'u', 'e']);
    if !is_float {
        return literal.to_owned();
    }
    let float: f64 = literal.parse().unwrap_or_else(|error| panic!("{literal}: {error}"));
    format!("{:016x}", float.to_bits())
}

/// Splits line protocol at separators that are neither quoted nor escaped.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut quoted = false;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        if c == separator && !quoted && !escaped {
            parts.push(&text[from..index]);
            from = index + c.len_utf8();
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    parts.push(&text[from..]);
    parts
}

/// Parses line protocol, as written and as printed by the decoder.
fn cells(lines: &str) -> Cells {
    let mut cells = Cells::new();
    for line in split(lines.trim_end_matches('\n'), '\n') {
        let parts = split(line, ' ');
        let [sensor, fields, time] = &*parts else { panic!("{line}") };
        for field in split(fields, ',') {
            let parts = split(field, '=');
            let [name, literal] = &*parts else { panic!("{field}") };
            let time = time.parse().unwrap_or_else(|error| panic!("{line}: {error}"));
            let before = cells.insert(((*sensor).to_owned(), time, (*name).to_owned()), canonical(literal));
            assert_eq!(before, None, "twice: {line}");
        }
    }
    cells
}

fn decoder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/sealed_days.py")
}

fn run_decoder(python: &Path, arguments: &[&Path]) -> String {
    let output = Command::new(python).arg(decoder()).args(arguments).env("PYTHONUTF8", "1").output();
    let output = output.expect("Python can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub fn documents(mongo_database: &str, collection: &str) -> Vec<Document> {
    find(&mongod().uri(mongo_database), collection, doc! {})
}

/// Returns the lines of all sensors, in one day.
fn sent_lines() -> String {
    let start = i64::try_from(START).expect("a time") * 1_000_000_000;
    let mut lines = String::new();
    for (sensor, interval) in SENSORS {
        for row in 0..ROWS {
            let fields: Vec<String> = literals(row).iter().map(|(name, value)| format!("{name}={value}")).collect();
            lines += &format!("{sensor} {} {}\n", fields.join(","), start + row * interval);
        }
    }
    lines
}

fn packed_bytes(day: &Document) -> &[u8] {
    day.get_binary_generic("sealed").expect("packed readings")
}

#[test]
fn the_documented_decoder_reads_stored_days() {
    let Some(python) = require(Package::Zstandard) else { return };
    let database = fresh_database_name();
    let server = Launch::with_store(mongod().uri(&database)).config(CONFIG).start();
    let lines = sent_lines();
    post(&server.url("/write?db=d&precision=ns"), &lines, &[]).expect(204);
    flush(&server);
    seal(&server);

    let days = documents(&database, "d.days");
    assert_eq!(days.len(), SENSORS.len());
    let folder = Folder::new("decoder");
    let exported: String = days
        .iter()
        .map(|day| {
            let packed = json!({"$binary": {"base64": STANDARD.encode(packed_bytes(day)), "subType": "00"}});
            json!({"sensor": day.get_str("sensor").unwrap(), "form": day.get_str("form").unwrap(), "sealed": packed})
        })
        .map(|day| format!("{day}\n"))
        .collect();
    std::fs::write(folder.file("days.json"), exported).expect("the disk has room");
    let found = cells(&run_decoder(&python, &[&folder.file("days.json")]));
    let written = cells(&lines);
    assert_eq!(found.len(), written.len());
    for ((found, value), (cell, expected)) in found.iter().zip(&written) {
        assert_eq!((found, value), (cell, expected));
    }

    let seconds = days.iter().find(|day| day.get_str("sensor").ok() == Some(SENSORS[0].0)).expect("its day");
    std::fs::write(folder.file("readings"), packed_bytes(seconds)).expect("the disk has room");
    let alone = cells(&run_decoder(&python, &[&folder.file("readings")]));
    assert!(alone.keys().all(|(sensor, ..)| sensor == "readings"));
    assert!(alone.values().eq(written.iter().filter(|((s, ..), _)| s == SENSORS[0].0).map(|(_, value)| value)));
    let json = run_decoder(&python, &[Path::new("--json"), &folder.file("readings")]);
    let rows: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), usize::try_from(ROWS).expect("few"));
    let greatest = |row: &Value| row["fields"]["größe"] == json!(u64::MAX) && row["fields"]["whole number"].is_i64();
    assert!(rows.iter().any(greatest), "{json}");
}

/// Regression: an expired day stopped the decoder, and no other day was printed.
#[test]
fn an_empty_day_hides_no_other() {
    let Some(python) = require(Package::Zstandard) else { return };
    let folder = Folder::new("decoder");
    let at = json!({"$date": "1970-01-01T00:00:01Z"});
    let expired = json!({"sensor": "m", "form": "expired"});
    let columns = json!({"sensor": "m", "form": "columns", "columns": {"at": [at], "fields": {"v": [1.5]}}});
    let plain = json!({"sensor": "m", "form": "plain", "readings": [{"ts": at, "ns": 7, "w%2Ew": 2}]});
    let days = format!("{expired}\n{columns}\n{expired}\n{plain}\n");
    std::fs::write(folder.file("days.json"), days).expect("the disk has room");
    assert_eq!(run_decoder(&python, &[&folder.file("days.json")]), "m v=1.5 1000000000\nm w.w=2i 1000000007\n");
}

/// Formats a value as mongoexport does.
fn extended(value: &Bson, is_canonical: bool) -> Value {
    match value {
        Bson::Document(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), extended(value, is_canonical))).collect()
        }
        Bson::Array(items) => items.iter().map(|item| extended(item, is_canonical)).collect(),
        Bson::Null => Value::Null,
        Bson::Boolean(truth) => json!(truth),
        Bson::String(text) => json!(text),
        Bson::Decimal128(number) => json!({"$numberDecimal": number.to_string()}),
        Bson::Double(number) if is_canonical => json!({"$numberDouble": format!("{number:?}")}),
        Bson::Double(number) => json!(number),
        Bson::Int64(number) if is_canonical => json!({"$numberLong": number.to_string()}),
        Bson::Int64(number) => json!(number),
        Bson::Int32(number) if is_canonical => json!({"$numberInt": number.to_string()}),
        Bson::Int32(number) => json!(number),
        Bson::DateTime(date) if is_canonical => {
            json!({"$date": {"$numberLong": date.timestamp_millis().to_string()}})
        }
        Bson::DateTime(date) => {
            json!({"$date": date.try_to_rfc3339_string().expect("a year of four digits")})
        }
        other => panic!("{other}"),
    }
}

/// Exact numbers in columns, in both forms of Extended JSON.
#[test]
fn the_decoder_reads_columns() {
    let Some(python) = require(Package::Zstandard) else { return };
    let database = fresh_database_name();
    let config = CONFIG.replace("[seal]", "[seal]\nform = \"columns\"");
    let server = Launch::with_store(mongod().uri(&database)).config(config).start();
    let lines = sent_lines();
    post(&server.url("/write?db=d&precision=ns"), &lines, &[]).expect(204);
    flush(&server);
    seal(&server);
    let days = documents(&database, "d.days");
    assert_eq!(days.len(), SENSORS.len());
    assert!(days.iter().all(|day| day.get_document("columns").is_ok()));
    let folder = Folder::new("decoder");
    for is_canonical in [false, true] {
        let shown = |day: &Document| {
            let parts = ["sensor", "form", "columns"].map(|part| (part.to_owned(), extended(&day[part], is_canonical)));
            format!("{}\n", Value::Object(parts.into_iter().collect()))
        };
        let exported = days.iter().map(shown);
        std::fs::write(folder.file("days.json"), exported.collect::<String>()).expect("the disk has room");
        let found = cells(&run_decoder(&python, &[&folder.file("days.json")]));
        let written = cells(&lines);
        assert_eq!(found.len(), written.len());
        for ((found, value), (cell, expected)) in found.iter().zip(&written) {
            assert_eq!((found, value), (cell, expected));
        }
    }
}

#[test]
fn the_decoder_is_short() {
    let lines = std::fs::read_to_string(decoder()).expect("the decoder").lines().count();
    assert!(lines <= 87, "{lines} lines");
}
