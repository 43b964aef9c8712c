//! Stored documents of both stores, decoded and checked byte by byte by independent code, according to the design.

mod change;
mod order;
mod packed;
mod summary;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;

use bson::raw::{RawArray, RawBsonRef, RawDocument};
use hourglass::bucket::Caps;
use hourglass::reading::Value;
use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::runtime::Runtime;

use super::mongod::Mongod;
use super::server::Server;

/// Location of a database's documents.
pub struct Stored {
    location: Location,
    database: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Nanoseconds since the epoch.
    pub time: i64,
    /// Fields by name, in the order of the document.
    pub fields: Vec<(String, Value)>,
}

/// A page that passed all checks of single pages.
#[derive(Debug)]
pub struct Page {
    pub id: String,
    pub sensor: String,
    /// Start of its hour, in milliseconds.
    pub start: i64,
    pub number: i64,
    pub closed: bool,
    pub has_overflow: bool,
    /// The number of closed pages after this one, and of their readings. Only documents of MongoDB have it.
    overflow: Option<(i64, i64)>,
    pub readings: Vec<Reading>,
}

/// A sensor document that passed all checks of single documents.
#[derive(Debug)]
pub struct Sensor {
    pub key: String,
    /// Type by field.
    pub fields: BTreeMap<String, String>,
    /// Milliseconds.
    pub first_seen: Option<i64>,
    /// Milliseconds.
    pub last_seen: Option<i64>,
    /// In time order.
    pub recent: Vec<Reading>,
    /// Start of its latest overflowing hour in milliseconds, and the pages of that hour.
    pub outlier: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Pages 0.
    Buckets,
    /// Further pages.
    Overflow,
    Sensors,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Buckets => "buckets",
            Kind::Overflow => "overflow",
            Kind::Sensors => "sensors",
        }
    }
}

enum Location {
    Mongo { runtime: Runtime, mongo: mongodb::Database },
    Embedded { file: PathBuf },
}

const PAGES: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("pages");
const SENSORS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("sensors");
/// A checksum follows each page and document in the embedded file.
const CHECKSUM_BYTES: usize = 4;
const HOUR_MS: i64 = 3_600_000;
const PAGE_KEYS: &str = "_id schemaVersion sensor measurement tags start end page rev closed count first \
                         last hasOverflow readings summary order";

impl Stored {
    /// Returns the location that a server was started with.
    pub fn from_server(server: &Server, database: &str) -> Stored {
        match server.store() {
            "embedded" => Stored::in_file(server.data_dir(), database),
            uri => Stored::from_uri(uri, uri.split(['/', '?']).nth(3).expect("a database"), database),
        }
    }

    /// In MongoDB: `mongo_database` is the URI's database, `database` the one that clients name.
    pub fn in_mongo(mongod: &Mongod, mongo_database: &str, database: &str) -> Stored {
        Stored::from_uri(&mongod.uri(mongo_database), mongo_database, database)
    }

    /// In the MongoDB of this connection string.
    pub fn from_uri(uri: &str, mongo_database: &str, database: &str) -> Stored {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a tokio runtime can be built");
        let client = runtime.block_on(Client::with_uri_str(uri)).expect("a good URI");
        let mongo = client.database(mongo_database);
        Stored { location: Location::Mongo { runtime, mongo }, database: database.to_owned() }
    }

    /// In the embedded file of a stopped server.
    fn in_file(data_dir: PathBuf, database: &str) -> Stored {
        let file = data_dir.join(hourglass::store::embedded::FILE_NAME);
        Stored { location: Location::Embedded { file }, database: database.to_owned() }
    }

    /// Checks every page and bucket, and visits the buckets as pages in order.
    #[track_caller]
    pub fn each_bucket(&self, caps: &Caps, mut visit: impl FnMut(&[Page])) {
        let mut overflow: BTreeMap<(String, i64), Vec<Page>> = BTreeMap::new();
        self.each(Kind::Overflow, |document| {
            let page = Page::checked(document, caps);
            assert!(page.number > 0, "{}: in overflow", page.id);
            overflow.entry((page.sensor.clone(), page.start)).or_default().push(page);
        });
        self.each(Kind::Buckets, |document| {
            let first = Page::checked(document, caps);
            assert_eq!(first.number, 0, "{}: in buckets", first.id);
            let mut further = overflow.remove(&(first.sensor.clone(), first.start)).unwrap_or_default();
            further.sort_by_key(|page| page.number);
            let mut pages = vec![first];
            pages.append(&mut further);
            check_bucket(&pages, matches!(self.location, Location::Mongo { .. }));
            visit(&pages);
        });
        assert!(overflow.is_empty(), "overflow without a page 0: {:?}", overflow.keys());
    }

    /// Returns the number of readings; checks each page.
    #[track_caller]
    pub fn count(&self, caps: &Caps) -> usize {
        let mut count = 0;
        self.each_bucket(caps, |pages| count += pages.iter().map(|page| page.readings.len()).sum::<usize>());
        count
    }

    /// Checks and visits every sensor document.
    #[track_caller]
    pub fn each_sensor(&self, mut visit: impl FnMut(Sensor)) {
        self.each(Kind::Sensors, |document| visit(Sensor::checked(document)));
    }

    /// Returns the rev and a hash over all bytes of every document, by kind and id, even if damaged.
    pub fn fingerprints(&self) -> BTreeMap<(u8, String), (i64, u64)> {
        let mut prints = BTreeMap::new();
        let mut print = |kind: Kind, id: &str, rev: i64, bytes: &[u8]| {
            let mut hasher = DefaultHasher::new();
            hasher.write(bytes);
            prints.insert((kind as u8, id.to_owned()), (rev, hasher.finish()));
        };
        let of_document = |document: &RawDocument| (text(document, "_id").to_owned(), whole(document, "rev"));
        for kind in [Kind::Buckets, Kind::Overflow, Kind::Sensors] {
            let in_file = matches!(self.location, Location::Embedded { .. });
            if in_file && kind != Kind::Sensors {
                self.each_row(kind, |key, bytes| {
                    let page = packed::Key::parse(key, &self.database);
                    let rev = match packed::rev(bytes) {
                        Some(rev) => rev,
                        None => of_document(RawDocument::from_bytes(bytes).expect("BSON")).1,
                    };
                    print(kind, &page.id(), rev, bytes);
                });
                continue;
            }
            self.each(kind, |document| {
                let (id, rev) = of_document(document);
                print(kind, &id, rev, document.as_bytes());
            });
        }
        prints
    }

    /// Returns the registry document; panics for an embedded file.
    #[track_caller]
    pub fn registry(&self) -> Document {
        let Location::Mongo { runtime, mongo } = &self.location else {
            panic!("the registry of a file is not looked at")
        };
        let registry = mongo.collection::<Document>("registry");
        runtime.block_on(async { registry.find_one(doc! {}).await }).expect("an answer").expect("a registry")
    }

    /// Checks the options of MongoDB's collections and the list of databases; panics for an embedded file.
    #[track_caller]
    pub fn check_collections(&self) {
        self.check_validators();
        let Location::Mongo { runtime, mongo } = &self.location else { panic!("a file has no collections") };
        runtime.block_on(async {
            for kind in ["buckets", "overflow", "sensors"] {
                let name = format!("{}.{kind}", self.database);
                let stats = mongo.run_command(doc! { "collStats": &name }).await.expect("statistics");
                let engine = stats.get_document("wiredTiger").and_then(|engine| engine.get_str("creationString"));
                assert!(engine.expect("an engine").contains("block_compressor=zstd"), "{name}");
            }
        });
    }

    /// Checks validators and indexes of the collections, and that the database is listed.
    pub fn check_validators(&self) {
        let Location::Mongo { runtime, mongo } = &self.location else { panic!("a file has no collections") };
        runtime.block_on(async {
            for kind in ["buckets", "overflow", "sensors"] {
                let name = format!("{}.{kind}", self.database);
                let listed = mongo.run_command(doc! { "listCollections": 1, "filter": { "name": &name } }).await;
                let listed = listed.expect("collections are listed");
                let batch = listed.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
                let options = batch.expect("a batch")[0].as_document().expect("a collection").get_document("options");
                let options = options.expect("options");
                let schema = options.get_document("validator").and_then(|v| v.get_document("$jsonSchema"));
                let required = schema.and_then(|schema| schema.get_array("required")).expect("a validator");
                assert!(required.contains(&Bson::from("rev")), "{name}: {required:?}");
                assert_eq!(options.get_str("validationLevel").ok(), Some("moderate"), "{name}");
                let indexes: Vec<Document> = list_indexes(mongo, &name).await;
                if kind != "sensors" {
                    assert!(indexes.contains(&doc! { "sensor": 1, "start": 1 }), "{name}: {indexes:?}");
                }
            }
            let databases = mongo.collection::<Document>("databases");
            let listed = databases.find_one(doc! { "_id": &self.database }).await.expect("an answer");
            assert!(listed.expect("the database is listed").contains_key("schemaVersion"));
        });
    }

    fn each(&self, kind: Kind, mut visit: impl FnMut(&RawDocument)) {
        match &self.location {
            Location::Mongo { runtime, mongo } => runtime.block_on(async {
                let collection = mongo.collection::<RawDocumentBuf>(&format!("{}.{}", self.database, kind.name()));
                let mut cursor = collection.find(doc! {}).await.expect("documents");
                while cursor.advance().await.expect("the next document") {
                    visit(cursor.current());
                }
            }),
            Location::Embedded { .. } => self.each_row(kind, |key, bytes| {
                let document = match kind {
                    Kind::Sensors => RawDocumentBuf::from_bytes(bytes.to_vec()),
                    Kind::Buckets | Kind::Overflow => {
                        RawDocumentBuf::try_from(&packed::document(key, &self.database, bytes))
                    }
                };
                visit(&document.expect("BSON"));
            }),
        }
    }

    /// Visits the rows of this database in the embedded file, without checksums.
    fn each_row(&self, kind: Kind, mut visit: impl FnMut(&[u8], &[u8])) {
        let Location::Embedded { file } = &self.location else { panic!("rows are in a file") };
        let database = Database::open(file).expect("the file is intact and not open elsewhere");
        let transaction = database.begin_read().expect("a read");
        let table = if kind == Kind::Sensors { SENSORS } else { PAGES };
        let table = transaction.open_table(table).expect("the table");
        let prefix = [self.database.as_bytes(), &[0, 0]].concat();
        for row in table.iter().expect("rows") {
            let (key, value) = row.expect("a row");
            let key = key.value();
            let bytes = value.value();
            let is_first = || packed::Key::parse(key, &self.database).number == 0;
            if key.starts_with(&prefix) && (kind == Kind::Sensors || is_first() == (kind == Kind::Buckets)) {
                visit(key, &bytes[..bytes.len() - CHECKSUM_BYTES]);
            }
        }
    }
}

async fn list_indexes(mongo: &mongodb::Database, collection: &str) -> Vec<Document> {
    let listed = mongo.run_command(doc! { "listIndexes": collection }).await.expect("indexes are listed");
    let batch = listed.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch")).expect("a batch");
    let key = |index: &Bson| index.as_document().and_then(|index| index.get_document("key").ok()).cloned();
    batch.iter().map(|index| key(index).expect("an index has its key")).collect()
}

fn check_bucket(pages: &[Page], in_mongo: bool) {
    let id = &pages[0].id;
    let numbers: Vec<i64> = pages.iter().map(|page| page.number).collect();
    assert!(numbers.iter().zip(0..).all(|(number, place)| *number == place), "{id}: pages {numbers:?}");
    assert_eq!(pages[0].has_overflow, pages.len() > 1, "{id}: hasOverflow of {} pages", pages.len());
    let closed = || pages[1..].iter().filter(|page| page.closed);
    let counted: usize = closed().map(|page| page.readings.len()).sum();
    let overflow = [closed().count(), counted].map(|count| i64::try_from(count).expect("few"));
    let expected = (in_mongo && pages.len() > 1).then_some((overflow[0], overflow[1]));
    assert_eq!(pages[0].overflow, expected, "{id}: overflow");
    for page in &pages[..pages.len() - 1] {
        assert!(page.closed, "{}: open, and not the last of {}", page.id, pages.len());
    }
    for page in &pages[1..] {
        assert!(!page.has_overflow && page.overflow.is_none(), "{}: only page 0 is marked", page.id);
    }
    let times: BTreeSet<i64> = pages.iter().flat_map(|page| &page.readings).map(|reading| reading.time).collect();
    let count: usize = pages.iter().map(|page| page.readings.len()).sum();
    assert_eq!(times.len(), count, "{id}: a timestamp stands on two pages");
}

impl Page {
    fn checked(document: &RawDocument, caps: &Caps) -> Page {
        let id = text(document, "_id").to_owned();
        let overflow = document.get_document("overflow").ok();
        let expected = PAGE_KEYS.split(' ').chain(overflow.map(|_| "overflow")).collect();
        assert_eq!(keys(document), expected, "{id}: fields");
        let overflow = overflow.map(|overflow| (whole(overflow, "pages"), whole(overflow, "count")));
        assert_eq!(get(document, "schemaVersion"), RawBsonRef::Int32(1), "{id}: schemaVersion");
        let start = date(document, "start");
        let number = whole(document, "page");
        let sensor = text(document, "sensor").to_owned();
        assert_eq!(start.rem_euclid(HOUR_MS), 0, "{id}: start");
        assert_eq!(date(document, "end"), start + HOUR_MS, "{id}: end");
        let hour = DateTime::from_millis(start).try_to_rfc3339_string().expect("an hour of a four-digit year");
        assert_eq!(id, format!("{} {sensor} {number}", &hour["".len().."2026-01-15T14".len()]));
        check_identity(document, &sensor);
        let raw = array(document, "readings");
        let readings = readings(raw, &id);
        let (Some(first), Some(last)) = (readings.first(), readings.last()) else { panic!("{id}: empty") };
        assert_eq!(whole(document, "count"), i64::try_from(readings.len()).expect("few"), "{id}: count");
        assert_eq!(date(document, "first"), millis(first.time), "{id}: first");
        assert_eq!(date(document, "last"), millis(last.time), "{id}: last");
        assert!(millis(first.time) >= start && millis(last.time) < start + HOUR_MS, "{id}: a reading of another hour");
        assert!(readings.len() <= caps.max_readings, "{id}: {} readings", readings.len());
        assert!(raw.as_bytes().len() <= caps.hard_bytes || readings.len() == 1, "{id}: {} bytes", raw.as_bytes().len());
        summary::check(document.get_document("summary").expect("a summary"), &readings, &id);
        let rev = whole(document, "rev");
        let closed = boolean(document, "closed");
        assert!(rev >= 1, "{id}: rev {rev}");
        order::check(document.get_document("order").expect("a document"), &readings, &id);
        Page { id, sensor, start, number, closed, has_overflow: boolean(document, "hasOverflow"), overflow, readings }
    }
}

impl Sensor {
    fn checked(document: &RawDocument) -> Sensor {
        let key = text(document, "_id").to_owned();
        let required = ["_id", "schemaVersion", "rev", "measurement", "tags", "fields", "recent"];
        let optional = ["firstSeen", "lastSeen", "latest", "outlier", "lifetime"];
        let keys = keys(document);
        assert!(required.iter().all(|name| keys.contains(name)), "{key}: {keys:?}");
        assert!(keys.iter().all(|name| required.contains(name) || optional.contains(name)), "{key}: {keys:?}");
        assert_eq!(get(document, "schemaVersion"), RawBsonRef::Int32(1), "{key}: schemaVersion");
        assert!(whole(document, "rev") >= 1, "{key}: rev");
        check_identity(document, &key);
        let mut fields = BTreeMap::new();
        for element in document.get_document("fields").expect("a document") {
            let (name, family) = element.expect("a field");
            let family = family.as_str().expect("a family");
            assert!(["number", "boolean", "string"].contains(&family), "{key}: {family}");
            fields.insert(name_of(name.as_str()), family.to_owned());
        }
        let recent = readings(array(document, "recent"), &key);
        let latest = document.get("latest").expect("BSON").map(|latest| reading(latest, &key));
        assert_eq!(latest.as_ref(), recent.last(), "{key}: latest");
        let seen = |name: &str| document.get(name).expect("BSON").map(|seen| seen.as_datetime().expect("a date"));
        let outlier = document.get("outlier").expect("BSON").map(|outlier| {
            let outlier = outlier.as_document().expect("a document");
            assert!(date(outlier, "since") <= date(outlier, "seen"), "{key}: outlier");
            (date(outlier, "lastHour"), whole(outlier, "pages"))
        });
        let first_seen = seen("firstSeen");
        let last_seen = seen("lastSeen");
        let (first_seen, last_seen) =
            (first_seen.map(DateTime::timestamp_millis), last_seen.map(DateTime::timestamp_millis));
        Sensor { key, fields, first_seen, last_seen, recent, outlier }
    }
}

/// Checks that measurement and tags match the key. Keys with escapes are left to the wire format.
fn check_identity(document: &RawDocument, sensor: &str) {
    let mut key = text(document, "measurement").to_owned();
    for element in document.get_document("tags").expect("tags") {
        let (name, value) = element.expect("a tag");
        key.push_str(&format!(",{}={}", name_of(name.as_str()), value.as_str().expect("a tag is text")));
    }
    assert_eq!(key, sensor.replace('\\', ""), "measurement and tags");
}

fn readings(array: &RawArray, id: &str) -> Vec<Reading> {
    let readings: Vec<Reading> = array.into_iter().map(|element| reading(element.expect("BSON"), id)).collect();
    assert!(readings.is_sorted_by(|a, b| a.time < b.time), "{id}: readings in time order, none twice");
    readings
}

fn reading(element: RawBsonRef<'_>, id: &str) -> Reading {
    let document = element.as_document().unwrap_or_else(|| panic!("{id}: a reading is a document"));
    let mut millis = None;
    let mut rest = 0;
    let mut fields = Vec::new();
    for (place, element) in document.into_iter().enumerate() {
        let (name, value) = element.expect("BSON");
        match (place, name.as_str(), value) {
            (0, "ts", RawBsonRef::DateTime(ts)) => millis = Some(ts.timestamp_millis()),
            (1, "ns", RawBsonRef::Int32(ns)) => {
                assert!((1..1_000_000).contains(&ns), "{id}: ns {ns}");
                rest = i64::from(ns);
            }
            (_, name, value) => fields.push((name_of(name), value_of(value, id))),
        }
    }
    let millis = millis.unwrap_or_else(|| panic!("{id}: a reading begins with its ts"));
    assert!(!fields.is_empty(), "{id}: a reading without fields");
    Reading { time: millis.checked_mul(1_000_000).expect("nanoseconds") + rest, fields }
}

fn value_of(value: RawBsonRef<'_>, id: &str) -> Value {
    match value {
        RawBsonRef::Double(v) if v.is_finite() => Value::Float(v),
        RawBsonRef::Int64(v) => Value::Integer(v),
        RawBsonRef::Decimal128(v) => {
            let v: u64 = v.to_string().parse().unwrap_or_else(|_| panic!("{id}: {v} is no unsigned integer"));
            assert!(i64::try_from(v).is_err(), "{id}: {v} is an Int64");
            Value::Unsigned(v)
        }
        RawBsonRef::Boolean(v) => Value::Boolean(v),
        RawBsonRef::String(v) => Value::String(v.into()),
        other => panic!("{id}: {other:?} is no value"),
    }
}

fn name_of(key: &str) -> String {
    assert!(!key.contains(['.', '$', '\0']), "{key:?} would trouble a shell");
    percent_encoding::percent_decode_str(key).decode_utf8().expect("UTF-8").into_owned()
}

/// Returns the milliseconds of a time, rounded down.
pub fn millis(time: i64) -> i64 {
    time.div_euclid(1_000_000)
}

fn keys(document: &RawDocument) -> BTreeSet<&str> {
    document.into_iter().map(|element| element.expect("BSON").0.as_str()).collect()
}

fn get<'a>(document: &'a RawDocument, name: &str) -> RawBsonRef<'a> {
    document.get(name).expect("BSON").unwrap_or_else(|| panic!("{name} is missing: {document:?}"))
}

fn text<'a>(document: &'a RawDocument, name: &str) -> &'a str {
    get(document, name).as_str().unwrap_or_else(|| panic!("{name} is no text"))
}

fn array<'a>(document: &'a RawDocument, name: &str) -> &'a RawArray {
    get(document, name).as_array().unwrap_or_else(|| panic!("{name} is no array"))
}

fn date(document: &RawDocument, name: &str) -> i64 {
    get(document, name).as_datetime().unwrap_or_else(|| panic!("{name} is no date")).timestamp_millis()
}

fn boolean(document: &RawDocument, name: &str) -> bool {
    get(document, name).as_bool().unwrap_or_else(|| panic!("{name} is no boolean"))
}

fn whole(document: &RawDocument, name: &str) -> i64 {
    match get(document, name) {
        RawBsonRef::Int32(v) => i64::from(v),
        RawBsonRef::Int64(v) => v,
        other => panic!("{name} is {other:?}, no whole number"),
    }
}
