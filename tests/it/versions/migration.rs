//! Days of schema version 1 beside those of version 2: read, changed, and rewritten by the job `migrate`.

use mongodb::bson::{Binary, spec::BinarySubtype};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::update;
use crate::support::jobs;
use crate::support::prelude::*;

/// 2026-01-15T00:00:00Z, in seconds.
const START: u64 = 1_768_435_200;
const SENSORS: u64 = 80;
/// Sensors below have days of version 2.
const CURRENT: u64 = 5;
const CONFIG: &str =
    "[seal]\nafter = \"0s\"\ninterval = \"24h\"\nquiet = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n";
const DAYS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("days");
/// A row of the embedded file as version 1 wrote it, with the readings of [`lines`].
const ROW: &str = include_str!("../../../crates/store/src/embedded/days/version_1.hex");

fn lines(sensor: u64) -> String {
    let line =
        |hour: u64| format!("m,s={sensor:03} v={}.{},n={hour}i {}\n", hour / 2, hour % 2 * 5, START + hour * 3600);
    (0..24).map(line).collect()
}

fn row() -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&ROW[at..at + 2], 16).expect("hex");
    (0..ROW.trim().len()).step_by(2).map(byte).collect()
}

/// Splits the row before the checksum of its head: version, kind, and the head with its length.
fn split_row(row: &[u8]) -> (&[u8], &[u8]) {
    let bytes = 1 + row[2..].iter().position(|byte| *byte < 0x80).expect("a length");
    let length = row[2..2 + bytes].iter().rev().fold(0, |length, byte| length << 7 | usize::from(byte & 0x7F));
    let (head, rest) = row.split_at(2 + bytes + length);
    (head, &rest[4..])
}

fn with_checksum(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let bytes = parts.concat();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(&bytes);
    [&*bytes, &hasher.finalize().to_le_bytes()].concat()
}

/// Returns the document as version 1 wrote it.
fn version_1(mut day: Document) -> Document {
    day.insert("schemaVersion", 1_i64);
    let binary = |bytes: &[u8]| Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
    let form = day.remove("form").expect("a form");
    day.insert("kind", &form);
    match form.as_str().expect("a text") {
        "plain" => {
            let numbers: Vec<i32> = (0..24).collect();
            let ones = vec![1; 24];
            let integers: Vec<i64> = (0..24).collect();
            let floats: Vec<f64> = (0..24).map(|hour| f64::from(hour) / 2.0).collect();
            let figures = |values: Bson, rest: Bson| {
                let [min, max, sum, first, last] = std::array::from_fn(|_| values.clone());
                doc! { "count": &ones, "min": min, "max": max, "sum": sum, "first": first, "last": last, "rest": rest }
            };
            let fields = doc! {
                "v": figures(floats.into(), vec![0.0; 24].into()),
                "n": figures(integers.into(), vec![Bson::Null; 24].into()),
            };
            day.insert("kind", "packed");
            day.insert("hours", doc! { "hour": numbers, "count": &ones, "fields": fields });
            day.insert("readings", binary(split_row(&row()).1));
        }
        form => {
            let readings = day.remove(if form == "packed" { "sealed" } else { "columns" }).expect("readings");
            day.insert("readings", readings);
        }
    }
    day
}

/// The stored days of a stopped server.
enum Days {
    Mongo(String),
    Embedded(PathBuf),
}

impl Days {
    fn of(server: &Server) -> Self {
        match server.store() {
            "embedded" => Self::Embedded(server.data_dir().join("hourglass.redb")),
            uri => Self::Mongo(uri.to_owned()),
        }
    }

    fn rows(file: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
        let file = Database::open(file).expect("a file");
        let days = file.begin_read().expect("a snapshot").open_table(DAYS).expect("the table");
        let rows = days.iter().expect("rows").map(|row| {
            let (key, value) = row.expect("a row");
            (key.value().to_vec(), value.value().to_vec())
        });
        rows.collect()
    }

    fn put_row(file: &Path, key: &[u8], value: &[u8]) {
        let file = Database::open(file).expect("a file");
        let transaction = file.begin_write().expect("a transaction");
        transaction.open_table(DAYS).expect("the table").insert(key, value).expect("inserted");
        transaction.commit().expect("committed");
    }

    fn replace(uri: &str, collection: &str, days: Vec<Document>) {
        let updates: Vec<Document> =
            days.into_iter().map(|day| doc! { "q": { "_id": day.get_str("_id").unwrap() }, "u": day }).collect();
        let command = doc! { "update": collection, "updates": updates, "bypassDocumentValidation": true };
        run_command(uri, None, command);
    }

    /// Turns the days of all sensors from [`CURRENT`] on into version 1.
    fn make_old(&self) {
        match self {
            Self::Mongo(uri) => {
                let current: Vec<String> = (0..CURRENT).map(|s| format!("m,s={s:03}")).collect();
                let is_current = |day: &Document| current.iter().any(|key| day.get_str("sensor").unwrap() == key);
                for collection in ["d.days", "e.days"] {
                    let days = find(uri, collection, doc! {}).into_iter().filter(|day| !is_current(day));
                    Self::replace(uri, collection, days.map(version_1).collect());
                    // The validator of version 1.
                    let schema = doc! { "required": ["kind", "day", "hours", "readings"] };
                    run_command(uri, None, doc! { "collMod": collection, "validator": { "$jsonSchema": schema } });
                }
            }
            Self::Embedded(file) => {
                let (head, sealed) = (split_row(&row()).0.to_vec(), split_row(&row()).1.to_vec());
                for (key, _) in Self::rows(file) {
                    if sensor(&key) >= CURRENT {
                        let whole = with_checksum(&key, &[&head]);
                        Self::put_row(file, &key, &with_checksum(&key, &[&whole, &sealed]));
                    }
                }
            }
        }
    }

    /// Returns the numbers of the sensors in `d` whose day has version 1.
    fn old(&self) -> BTreeSet<u64> {
        match self {
            Self::Mongo(uri) => {
                let days = find(uri, "d.days", doc! { "schemaVersion": 1 });
                days.iter().map(|day| day.get_str("sensor").unwrap()[4..].parse().unwrap()).collect()
            }
            Self::Embedded(file) => {
                let rows = Self::rows(file).into_iter();
                rows.filter(|(_, value)| value[0] == 1).map(|(key, _)| sensor(&key)).collect()
            }
        }
    }

    /// Damages the day of one sensor and gives that of another a later version. Returns what puts them back.
    fn spoil(&self, damaged: u64, newer: u64) -> Box<dyn FnOnce()> {
        match self {
            Self::Mongo(uri) => {
                let names = [damaged, newer].map(|s| format!("m,s={s:03}"));
                let before = find(uri, "d.days", doc! { "sensor": { "$in": names.to_vec() } });
                assert_eq!(before.len(), 2);
                let [damaged, newer] = names;
                update(uri, "d.days", doc! { "sensor": damaged }, doc! { "$unset": { "floor": 1 } });
                update(uri, "d.days", doc! { "sensor": newer }, doc! { "$set": { "schemaVersion": 3 } });
                let uri = uri.clone();
                Box::new(move || Self::replace(&uri, "d.days", before))
            }
            Self::Embedded(file) => {
                let mut rows = Self::rows(file);
                rows.retain(|(key, _)| [damaged, newer].contains(&sensor(key)));
                for (key, value) in &rows {
                    let mut bytes = value[..value.len() - 4].to_vec();
                    bytes[0] = if sensor(key) == newer { 9 } else { 1 };
                    bytes.truncate(if sensor(key) == newer { bytes.len() } else { 40 });
                    Self::put_row(file, key, &with_checksum(key, &[&bytes]));
                }
                let file = file.clone();
                Box::new(move || rows.iter().for_each(|(key, value)| Self::put_row(&file, key, value)))
            }
        }
    }
}

/// Returns the number of the sensor of a row.
fn sensor(key: &[u8]) -> u64 {
    let at = key.windows(4).position(|bytes| bytes == b"m,s=").expect("a sensor");
    std::str::from_utf8(&key[at + 4..at + 7]).unwrap().parse().unwrap()
}

fn compare(server: &Server, reference: &Server, databases: &[&str], when: &str) {
    for database in databases {
        for path in [
            "/api/v1/readings?measurement=m&limit=100000".to_owned(),
            format!("/api/v1/summary?measurement=m&step=1h&from={START}&to={}", START + 86_400),
            format!(
                "/query?epoch=s&q={}",
                encode("SELECT count(v),sum(n),min(v),max(n),first(v),last(n) FROM m GROUP BY s")
            ),
            format!("/query?epoch=s&q={}", encode("SELECT mean(v) FROM m WHERE s =~ /^0[01]/ GROUP BY time(6h),s")),
        ] {
            let [ours, theirs] = [server, reference].map(|server| server.fetch(&format!("{path}&db={database}")));
            assert_eq!(ours, theirs, "{when}: {path}");
        }
    }
}

/// Returns the problem of the job in `/health`.
fn problem(server: &Server) -> Option<String> {
    let health = server.fetch("/health");
    let checks = health["checks"].as_array().expect("checks");
    let check = checks.iter().find(|check| check["name"] == "job migrate")?;
    Some(check["message"].as_str().expect("text").to_owned())
}

#[test]
fn days_of_version_1_answer_change_and_migrate() {
    for store in stores() {
        let launch = Launch::with_store(&store).config(CONFIG);
        let mut server = launch.clone().start();
        let reference = Launch::embedded().config("[seal]\ninterval = \"24h\"\n").start();
        let both = |server: &Server, database: &str, lines: &str| {
            for server in [server, &reference] {
                write_to(server, &format!("db={database}&precision=s"), lines);
                flush(server);
            }
        };
        both(&server, "d", &(0..SENSORS).map(lines).collect::<String>());
        let mut databases = vec!["d"];
        let days = Days::of(&server);
        if matches!(days, Days::Mongo(_)) {
            // Days with more readings, packed and in columns.
            databases.push("e");
            let many = |sensor: &str| {
                (0..1440).map(|n| format!("m,s={sensor} v={n},n={n}i {}\n", START + n * 60)).collect::<String>()
            };
            both(&server, "e", &many("packed"));
            jobs::seal(&server);
            request("PATCH", &server.url("/api/v1/databases/e"), br#"{"seal_form":"columns"}"#, &[])
                .unwrap()
                .expect(200);
            both(&server, "e", &many("columns"));
        }
        jobs::seal(&server);
        server.stop();
        days.make_old();
        assert_eq!(days.old(), (CURRENT..SENSORS).collect());
        server.restart_as(launch.clone());
        compare(&server, &reference, &databases, "side by side");

        // A late reading, and a deletion.
        both(&server, "d", &format!("m,s=010 v=-1 {}\n", START + 1800));
        for server in [&server, &reference] {
            execute(server, "d", &format!("DELETE FROM m WHERE s='011' AND time < {}s", START + 7200));
        }
        jobs::seal(&server);
        server.stop();
        assert_eq!(days.old(), (CURRENT..SENSORS).filter(|s| ![10, 11].contains(s)).collect());

        // A kill in the middle: nothing is lost, and the rest is left.
        server.restart_as(launch.clone().env("FAULT_KILL_AT", "migrated:1"));
        compare(&server, &reference, &databases, "changed");
        let _ = request("POST", &run_url(&server, "migrate"), b"", &[]);
        eventually("it dies after the first step", || server.exited());
        let left = days.old();
        assert!(!left.is_empty() && (left.len() as u64) < SENSORS - CURRENT - 2, "{left:?}");
        let damaged = *left.last().unwrap();
        let newer = damaged - 1;
        server.restart_as(launch.clone());
        compare(&server, &reference, &databases, "partly migrated");
        server.stop();

        // An unreadable day and one of a later version stop no other.
        let put_back = days.spoil(damaged, newer);
        server.restart_as(launch.clone());
        let done = run_job(&server, "migrate");
        let of_others = if databases.len() > 1 { 2 } else { 0 };
        assert_eq!(done["progress"]["days"], json!(left.len() - 2 + of_others), "only the rest: {done}");
        let named = problem(&server).expect("a problem");
        assert!(named.contains(&format!("m,s={damaged:03}")), "{named}");
        // In MongoDB, the index does not have days of later versions.
        let is_seen = databases.len() == 1;
        assert_eq!(named.contains(&format!("m,s={newer:03}")) && named.contains("newer version"), is_seen, "{named}");
        assert_eq!(done["left"], json!(1 + u64::from(is_seen)), "{done}");
        server.stop();
        put_back();
        assert_eq!(days.old(), BTreeSet::from([newer, damaged]));

        server.restart_as(launch.clone());
        let done = run_job(&server, "migrate");
        assert_eq!(
            (&done["progress"]["days"], &done["left"], problem(&server)),
            (&json!(2), &json!(0), None),
            "{done}"
        );
        // Once all is done, a run reads no day.
        let again = run_job(&server, "migrate");
        assert_eq!((&again["progress"]["days"], &again["left"]), (&json!(2), &json!(0)), "{again}");
        compare(&server, &reference, &databases, "migrated");
        jobs::seal(&server);
        compare(&server, &reference, &databases, "sealed again");
        server.stop();
        assert_eq!(days.old(), BTreeSet::new());
        verify(&store, &server.data_dir(), &[]).expect_success();
    }
}

/// A deletion between the read and the write of the job wins.
#[test]
fn a_deletion_wins_over_a_migration() {
    for store in stores() {
        let launch = Launch::with_store(&store).config(CONFIG);
        let mut server = launch.clone().start();
        write_to(&server, "db=d&precision=s", lines(7));
        write_to(&server, "db=e&precision=s", lines(7));
        flush(&server);
        jobs::seal(&server);
        server.stop();
        let days = Days::of(&server);
        days.make_old();
        let halt = Halt::already_set();
        server.restart_as(halt.launch(launch, "migrating"));
        let url = run_url(&server, "migrate");
        let run = std::thread::spawn(move || post(&url, "", &[]));
        halt.await_met("the job has read the day");
        execute(&server, "d", &format!("DELETE FROM m WHERE time < {}s", START + 7200));
        halt.lift();
        run.join().expect("an answer");
        let done = run_job(&server, "migrate");
        assert_eq!((&done["progress"]["days"], &done["left"]), (&json!(1), &json!(0)), "only that of e: {done}");
        assert_eq!(readings(&server, "d", "m,s=007", None, 100).len(), 22);
        server.stop();
        assert_eq!(days.old(), BTreeSet::new());
    }
}

/// The days of a database that a later version uses are left to it.
#[test]
fn a_database_of_a_newer_version_is_not_migrated() {
    let uri = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(&uri).config(CONFIG);
    let mut server = launch.clone().start();
    for database in ["d", "e"] {
        write_to(&server, &format!("db={database}&precision=s"), lines(7));
    }
    flush(&server);
    jobs::seal(&server);
    server.stop();
    Days::of(&server).make_old();
    update(&uri, "databases", doc! { "_id": "d" }, doc! { "$set": { "schemaVersion": 3_i64 } });
    server.restart_as(launch);
    let done = run_job(&server, "migrate");
    assert_eq!((&done["progress"]["days"], &done["left"]), (&json!(1), &json!(1)), "{done}");
    let named = problem(&server).expect("a problem");
    assert!(named.contains("d of databases") && named.contains("schema version 3"), "{named}");
    assert_eq!(Days::of(&server).old(), BTreeSet::from([7]));
}
