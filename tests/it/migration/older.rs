use std::time::Duration;

use mongodb::bson::{Document, doc};
use redb::{Database, ReadableDatabase, TableDefinition};
use serde_json::Value;

use super::golden::{CONFIG, answers, load_file, load_mongo};
use super::{found, update};
use crate::support::http::{get, post};
use crate::support::jobs::{job, progress};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::pages::{Kind, Stored};
use crate::support::process::Folder;
use crate::support::random::Random;
use crate::support::series::await_fed;
use crate::support::server::{Launch, Server, program};
use crate::support::{cycles, eventually, poll};

const ANSWERS: &str = include_str!("golden/answers.txt");
const PATIENCE: Duration = Duration::from_secs(30);

/// A store with the golden documents, and how to serve it.
struct Golden {
    store: String,
    /// The folder of the embedded file.
    folder: Folder,
    stored: Stored,
    uri: Option<String>,
}

/// The golden documents whose table or collection is wanted, in both stores.
fn both(wanted: impl Fn(&str) -> bool) -> [Golden; 2] {
    let of = |text: &str| text.lines().filter(|line| wanted(line)).map(|line| format!("{line}\n")).collect::<String>();
    let folder = Folder::new("golden");
    load_file(&folder.file("data"), &of(include_str!("golden/embedded.txt")));
    let stored = Stored::in_file(folder.file("data"), "factory");
    let embedded = Golden { store: "embedded".to_owned(), folder, stored, uri: None };
    let name = fresh_database_name();
    let uri = mongod().uri(&name);
    load_mongo(&uri, &of(include_str!("golden/mongodb.txt")));
    let stored = Stored::in_mongo(mongod(), &name, "factory");
    let folder = Folder::new("golden");
    load_file(&folder.file("data"), "meta format 3");
    [embedded, Golden { store: uri.clone(), folder, stored, uri: Some(uri) }]
}

/// Without sealed days, which the version before stamps does not know: what it writes beside one counts as older.
fn without_days(line: &str) -> bool {
    !line.starts_with("days ") && !line.contains(".days ")
}

/// Answers, whatever the order of an object's fields.
fn parsed(answers: &str) -> Vec<Value> {
    answers.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| Value::from(line))).collect()
}

/// What is answered of the golden pages alone, by this version's own form of them.
fn answers_of_pages() -> Vec<Value> {
    let [golden, _] = both(without_days);
    let mut server = golden.start();
    let answers = parsed(&answers(&server));
    assert!(server.stop().success());
    answers
}

impl Golden {
    fn launch(&self) -> Launch {
        Launch::with_store(self.store.clone()).config(CONFIG).listen("127.0.0.1:0")
    }

    /// A server that does not run yet; its data folder has the embedded file.
    fn prepare(&self) -> Server {
        let mut server = Launch::embedded().config(CONFIG).start();
        assert!(server.stop().success());
        let file = "hourglass.redb";
        std::fs::copy(self.folder.file("data").join(file), server.data_dir().join(file)).expect("copied");
        server
    }

    fn start(&self) -> Server {
        let mut server = self.prepare();
        server.restart_as(self.launch());
        await_fed(&server);
        server
    }

    /// Has all pages as the version before stamps wrote them, and returns how many there are.
    fn age(&self) -> u64 {
        let mut pages = Vec::new();
        for kind in [Kind::Buckets, Kind::Overflow] {
            self.stored.each_document(kind, |page| pages.push((kind, page.get_str("_id").expect("an id").to_owned())));
        }
        for (kind, id) in &pages {
            self.stored.change(*kind, id, |page| {
                drop(page.remove("order"));
                let summaries = page.get_document_mut("summary").expect("summaries");
                let fields: Vec<String> = summaries.keys().cloned().collect();
                for field in fields {
                    drop(summaries.get_document_mut(field).expect("a summary").remove("rest"));
                }
                page.insert("applied", doc! { "0123456789abcdef": 7_i64 });
                if self.uri.is_none() {
                    page.insert("schemaVersion", 0);
                }
            });
        }
        pages.len() as u64
    }
}

fn migrate(server: &Server) -> String {
    let mut command = program();
    let output =
        command.args(["job", "run", "migrate", "--to", &server.url("")]).output().expect("hourglass can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Stops the server, and has all of its store checked.
fn verify(golden: &Golden, server: &mut Server) {
    assert!(server.stop().success(), "{}", server.stderr());
    let mut command = program();
    command.args(["verify", "--store", &golden.store, "--data-dir"]).arg(server.data_dir());
    let output = command.output().expect("hourglass can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains("older version"), "{said}");
}

#[test]
fn what_the_released_form_has_is_read_migrated_and_clean() {
    for golden in both(|_| true) {
        let mut server = golden.start();
        assert_eq!(parsed(&answers(&server)), parsed(ANSWERS), "{}", golden.store);
        let said = migrate(&server);
        assert!(said.contains("left 0"), "{said}");
        assert_eq!(parsed(&answers(&server)), parsed(ANSWERS), "{}", golden.store);
        // Sealing, corrections and late readings work on it as on any other.
        post(&server.url("/write?db=factory"), "climate,room=lab,s=1 temp=1 1768435200000000007", &[]).expect(204);
        post(&server.url("/api/v1/flush"), "", &[]).expect(204);
        let first = "/api/v1/readings?db=factory&sensor=climate,room%3Dlab,s%3D1&epoch=ns&limit=2";
        let read = get(&server.url(first)).expect(200).text().to_owned();
        assert!(read.contains("1768435200000000007") && read.contains("1768435200000000000"), "{read}");
        verify(&golden, &mut server);
    }
}

/// Pages without stamps and with inexact sums stayed as they were until somebody happened to write to their hours, and
/// nobody could see how many of them were left.
#[test]
fn pages_of_the_version_before_stamps_are_rewritten_in_the_background() {
    let expected = answers_of_pages();
    for golden in both(without_days) {
        let pages = golden.age();
        assert!(pages >= 3, "{pages} pages");
        let mut server = golden.start();
        let done = eventually("pages are rewritten", PATIENCE, || {
            let done = job(&server, "migrate");
            (done["progress"]["rewritten"] == pages && done["left"] == 0 && !done["last_success"].is_null())
                .then_some(done)
        });
        assert_eq!((&done["progress"]["newer"], &done["last_error"]), (&Value::from(0), &Value::Null), "{done}");
        assert_eq!(parsed(&answers(&server)), expected, "{}", golden.store);
        verify(&golden, &mut server);
        let stored = match &golden.uri {
            None => &Stored::in_file(server.data_dir(), "factory"),
            Some(_) => &golden.stored,
        };
        let mut seen = 0;
        for kind in [Kind::Buckets, Kind::Overflow] {
            stored.each_document(kind, |page: &Document| {
                let order = page.get_document("order").expect("stamps");
                assert_eq!(
                    ["floor", "last"].map(|name| order.get_i64(name).ok()),
                    [Some(0); 2],
                    "older than every stamp"
                );
                assert_eq!(
                    page.get_document("applied").ok().map(Document::len),
                    Some(1),
                    "WALs of that version need it"
                );
                seen += 1;
            });
        }
        assert_eq!(seen, pages);
        // A store that is known to be current is not walked again.
        server.restart("127.0.0.1:0");
        eventually("the round after the start", PATIENCE, || {
            assert_eq!(progress(&server, "migrate", "examined"), 0);
            let done = job(&server, "migrate");
            (done["left"] == 0 && !done["last_success"].is_null()).then_some(())
        });
        let noted = match &golden.uri {
            Some(uri) => {
                found(uri, "databases", doc! { "_id": "factory", "migrated": 1_i64, "forms": 1_i64 }).is_some()
            }
            None => {
                assert!(server.stop().success());
                let file = Database::open(server.data_dir().join("hourglass.redb")).expect("a file");
                let meta: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
                let meta = file.begin_read().expect("a read").open_table(meta).expect("the table");
                meta.get("migrated factory").expect("a row").is_some_and(|forms| forms.value() == 1)
            }
        };
        assert!(noted, "{}", golden.store);
    }
}

/// Once at the point, and as often as `HOURGLASS_TEST_CYCLES` says at a random moment after the start.
#[test]
fn a_kill_in_the_middle_of_rewriting_loses_nothing() {
    let expected = answers_of_pages();
    let mut random = Random::new(31);
    for cycle in 0..cycles(1) {
        let [_, golden] = both(without_days);
        golden.age();
        let mut server = golden.prepare();
        let at_point = cycle == 0;
        if at_point {
            server.relaunch(golden.launch().env("FAULT_KILL_AT", "rewritten:1"));
            assert!(poll(PATIENCE, || server.exited()).is_some(), "{}", server.stderr());
        } else {
            server.relaunch(golden.launch());
            // A moment is a length of time by its nature; nothing is waited for here.
            std::thread::sleep(Duration::from_millis(random.below(120).unsigned_abs()));
            server.kill();
        }
        server.restart_as(golden.launch());
        await_fed(&server);
        eventually("the rest is rewritten", PATIENCE, || {
            let done = job(&server, "migrate");
            let is_counted = !at_point || done["progress"]["rewritten"] == 1;
            (is_counted && done["left"] == 0 && !done["last_success"].is_null()).then_some(())
        });
        assert_eq!(parsed(&answers(&server)), expected, "cycle {cycle}");
        verify(&golden, &mut server);
    }
}

/// One that is asked about everything looks at everything, whatever was noted before.
#[test]
fn a_walk_on_request_finds_what_an_older_version_wrote_since() {
    let expected = answers_of_pages();
    let [_, golden] = both(without_days);
    let uri = golden.uri.as_deref().expect("in MongoDB");
    let server = golden.start();
    migrate(&server);
    let which = doc! { "sensor": "climate,room=lab,s=1" };
    // As that version does: it knows no stamps, and raises the rev alone.
    update(uri, "factory.buckets", which.clone(), doc! { "$inc": { "rev": 1_i64 } });
    assert_eq!(progress(&server, "migrate", "rewritten"), 0);
    let said = migrate(&server);
    assert!(said.contains("rewritten 1, left 0"), "{said}");
    let page = found(uri, "factory.buckets", which).expect("the page");
    assert_eq!(page.get_document("order").expect("stamps").get_i64("rev").ok(), page.get_i64("rev").ok());
    assert_eq!(parsed(&answers(&server)), expected);
}
