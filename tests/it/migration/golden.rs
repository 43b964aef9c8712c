//! What a version stored, kept as text in `golden/`: one line per document or row. Later versions must read it.
//!
//! `HOURGLASS_TEST_GOLDEN=FOLDER` has the test of this file write there what this version stores. The files of a version
//! are made before the next one changes a form, and are never made again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use mongodb::bson::{RawDocumentBuf, doc};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::in_mongo;
use crate::support::eventually;
use crate::support::http::{get, post, request};
use crate::support::jobs::ask_job;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::server::{Launch, Server};

/// 2026-01-15T00:00:00Z, in seconds.
const START: i64 = 1_768_435_200;
/// Pages of a few readings, so that some hours have several.
pub const CONFIG: &str = "[page]\nmax_readings = 12\n[seal]\nafter = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n";
/// The tables of the embedded file by the types of their keys and values.
const BYTES: [&str; 3] = ["pages", "days", "sensors"];
const NAMES: [&str; 1] = ["settings"];
const NUMBERS: [&str; 2] = ["databases", "meta"];

type Rows = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Documents = TableDefinition<'static, &'static str, &'static [u8]>;
type Numbers = TableDefinition<'static, &'static str, u64>;
type Marks = TableDefinition<'static, &'static [u8], ()>;

/// The environment variable that names the folder to write to.
const WRITE: &str = "HOURGLASS_TEST_GOLDEN";

/// What clients ask of the stored data: everything.
const QUESTIONS: [&str; 8] = [
    "/api/v1/readings?db=factory&sensor=climate,room%3Dlab,s%3D1&epoch=ns&limit=1000",
    "/api/v1/readings?db=factory&sensor=climate,room%3Dlab,s%3D2&epoch=ns&limit=1000",
    "/api/v1/readings?db=factory&measurement=odd&epoch=ns&limit=1000",
    "/api/v1/summary?db=factory&measurement=climate&step=1h&epoch=ns",
    "/api/v1/summary?db=factory&measurement=climate&step=1d&epoch=ns",
    "/api/v1/summary?db=factory&measurement=odd&step=1h&epoch=ns",
    "/query?db=factory&epoch=ns&q=SELECT+sum(temp),count(note)+FROM+climate",
    "/api/v1/readings?db=other&measurement=m&epoch=ns&limit=1000",
];

/// Fills a store with every kind of document: sealed days, pages beside them, overflow pages, an outlier, a database with
/// settings, and names and values of every kind.
fn fill(server: &Server) {
    let write = |db: &str, lines: &str| post(&server.url(&format!("/write?db={db}")), lines, &[]).expect(204);
    let mut lines = String::new();
    // Two days of one reading an hour, and an hour of one every two minutes, which takes several pages.
    for number in 0..48_i64 {
        let (time, value) = ((START + number * 3600) * 1_000_000_000, number * 7 % 101);
        _ = writeln!(lines, "climate,room=lab,s=1 temp={value}.25,hum={value}i {time}");
        if number % 8 == 0 {
            _ = writeln!(lines, "climate,room=lab,s=2 temp={value},ok=true,note=\"n{value}\" {time}");
        }
    }
    for minute in (0..60_i64).step_by(2) {
        let time = (START + 6 * 3600 + minute * 60) * 1_000_000_000 + 1;
        _ = writeln!(lines, "climate,room=lab,s=1 temp=0.1,hum=-1i {time}");
    }
    write("factory", &lines);
    let odd = |time: i64| {
        format!(
            "odd,name.with\\ dot=a\\,b,$x=é f=1e300,g=-0.0,h=5e-324,big=18446744073709551615u,small=-9223372036854775808i,t=\"a\\\"b\",field.dot=0.1,no=false {time}\n"
        )
    };
    write("factory", &(odd(START * 1_000_000_000 + 123_456_789) + &odd(START * 1_000_000_000 + 999_999_999_999)));
    write("other", &format!("m v=1 {0}\nm v=2.5 {1}\n", START * 1_000_000_000, (START + 1) * 1_000_000_000));
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
    eventually("days are sealed", std::time::Duration::from_secs(60), || {
        (ask_job(&server, "seal").json()["progress"]["days"].as_u64() >= Some(6)).then_some(())
    });
    let settings = br#"{"readings": "36500d"}"#;
    request("PUT", &server.url("/api/v1/databases/other"), settings, &[]).expect("an answer").expect(200);
    // Beside the sealed days: corrections, late readings, and an hour of several pages.
    let mut lines = String::new();
    for minute in (0..60_i64).step_by(3) {
        let time = (START + 20 * 3600 + minute * 60) * 1_000_000_000;
        _ = writeln!(lines, "climate,room=lab,s=1 temp=20.5,late={minute}i {time}");
    }
    write("factory", &lines);
    write("factory", &format!("climate,room=lab,s=2 temp=-3 {}\n", START * 1_000_000_000));
    post(&server.url("/api/v1/flush"), "", &[]).expect(204);
}

/// The answers to all questions, as text.
pub fn answers(server: &Server) -> String {
    let mut out = String::new();
    for path in QUESTIONS {
        let answer = get(&server.url(path)).expect(200);
        _ = writeln!(out, "{path}\n{}", answer.text().trim_end());
    }
    out
}

#[test]
fn this_version_stores_what_later_ones_must_read() {
    let Some(folder) = std::env::var_os(WRITE).map(PathBuf::from) else { return };
    let name = fresh_database_name();
    let mut embedded = Launch::embedded().config(CONFIG).start();
    let mut mongo = Launch::with_store(mongod().uri(&name)).config(CONFIG).start();
    let all = [&mut embedded, &mut mongo].map(|server| {
        fill(server);
        let answers = answers(server);
        assert!(server.stop().success());
        answers
    });
    assert_eq!(all[0], all[1]);
    let save = |file: &str, text: &str| std::fs::write(folder.join(file), text).expect("it can be written");
    save("answers.txt", &all[0]);
    save("embedded.txt", &dump_file(&embedded.data_dir().join("hourglass.redb")));
    save("mongodb.txt", &dump_mongo(&mongod().uri(&name)));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        _ = write!(out, "{byte:02x}");
        out
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).expect("hexadecimal digits");
    digits.chunks(2).map(byte).collect()
}

/// The rows of an embedded file, but for the registry, which is about processes of back then.
fn dump_file(path: &Path) -> String {
    let database = Database::open(path).expect("the file is whole, and nobody has it open");
    let transaction = database.begin_read().expect("a read");
    let mut out = String::new();
    for name in BYTES {
        let table = transaction.open_table(Rows::new(name)).expect("the table");
        for row in table.iter().expect("rows") {
            let (key, value) = row.expect("a row");
            _ = writeln!(out, "{name} {} {}", hex(key.value()), hex(value.value()));
        }
    }
    for row in transaction.open_table(Marks::new("outliers")).expect("the table").iter().expect("rows") {
        _ = writeln!(out, "outliers {}", hex(row.expect("a row").0.value()));
    }
    for name in NAMES {
        for row in transaction.open_table(Documents::new(name)).expect("the table").iter().expect("rows") {
            let (key, value) = row.expect("a row");
            _ = writeln!(out, "{name} {} {}", key.value(), hex(value.value()));
        }
    }
    for name in NUMBERS {
        for row in transaction.open_table(Numbers::new(name)).expect("the table").iter().expect("rows") {
            let (key, value) = row.expect("a row");
            _ = writeln!(out, "{name} {} {}", key.value(), value.value());
        }
    }
    out
}

/// Makes the embedded file of a folder from its rows.
pub fn load_file(folder: &Path, text: &str) {
    std::fs::create_dir_all(folder).expect("a folder");
    let database = Database::create(folder.join("hourglass.redb")).expect("a file");
    let transaction = database.begin_write().expect("a transaction");
    for line in text.lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        match parts[..] {
            ["outliers", key] => {
                let mut table = transaction.open_table(Marks::new("outliers")).expect("the table");
                table.insert(&*unhex(key), ()).expect("inserted");
            }
            [name, key, value] if NUMBERS.contains(&name) => {
                let name = NUMBERS.into_iter().find(|known| *known == name).expect("known");
                let mut table = transaction.open_table(Numbers::new(name)).expect("the table");
                table.insert(key, value.parse::<u64>().expect("a number")).expect("inserted");
            }
            [name, key, value] if NAMES.contains(&name) => {
                let name = NAMES.into_iter().find(|known| *known == name).expect("known");
                let mut table = transaction.open_table(Documents::new(name)).expect("the table");
                table.insert(key, &*unhex(value)).expect("inserted");
            }
            [name, key, value] => {
                let name = BYTES.into_iter().find(|known| *known == name).expect("a table");
                let mut table = transaction.open_table(Rows::new(name)).expect("the table");
                table.insert(&*unhex(key), &*unhex(value)).expect("inserted");
            }
            _ => panic!("{line}"),
        }
    }
    transaction.commit().expect("committed");
}

/// All documents but the registry, the BSON of each in a line.
fn dump_mongo(uri: &str) -> String {
    in_mongo(uri, async |mongo| {
        let mut names = mongo.list_collection_names().await.expect("collections");
        names.sort();
        let mut out = String::new();
        for name in names.iter().filter(|name| *name != "registry") {
            let mut cursor = mongo
                .collection::<RawDocumentBuf>(name)
                .find(doc! {})
                .sort(doc! { "_id": 1 })
                .await
                .expect("documents");
            while cursor.advance().await.expect("the next document") {
                _ = writeln!(out, "{name} {}", hex(cursor.current().as_bytes()));
            }
        }
        out
    })
}

/// Stores documents as they were.
pub fn load_mongo(uri: &str, text: &str) {
    in_mongo(uri, async |mongo| {
        for line in text.lines() {
            let (name, bytes) = line.split_once(' ').expect("a collection and a document");
            let document = RawDocumentBuf::from_bytes(unhex(bytes)).expect("BSON");
            mongo.collection::<RawDocumentBuf>(name).insert_one(document).await.expect("inserted");
        }
    });
}
