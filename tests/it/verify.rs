//! `hourglass verify` on both stores: clean volumes pass, every damage is named, and `--repair` changes no reading.

use mongodb::bson::{Bson, DateTime};

use crate::support::prelude::*;

const CONFIG: &str = "[page]\nmax_readings = 60\n";
/// 2026-01-15T14:00:00Z.
const HOUR: i64 = 1_768_485_600;

struct Volume {
    server: Server,
    stored: Stored,
}

/// A stopped volume: twenty sensors with one page in each of two hours, six with overflow, and another database.
fn volume(store: String) -> Volume {
    let mut server = Launch::with_store(&store).config(CONFIG).start();
    let mut lines = String::new();
    for sensor in 0..20 {
        for minute in 0..90 {
            let time = HOUR + minute * 60;
            let value = minute * 3 - 70;
            writeln!(lines, "m,s=s{sensor:02} f={}.{sensor},n={value}i,on=true {time}", value.abs()).unwrap();
        }
    }
    for sensor in 0..6 {
        for second in 0..150 {
            writeln!(lines, "m,s=fast{sensor} n={second}i,t=\"x\" {}", HOUR + second).unwrap();
        }
    }
    post(&server.url("/write?db=plant&precision=s"), lines, &[]).expect(204);
    post(&server.url("/write?db=other&precision=s"), format!("m v=1 {HOUR}"), &[]).expect(204);
    assert!(server.stop().success());
    let stored = Stored::from_server(&server, "plant");
    Volume { server, stored }
}

impl Volume {
    fn verify(&self, flags: &[&str]) -> (i32, String) {
        verify(self.server.store(), &self.server.data_dir(), flags)
    }

    /// Runs verify to completion; returns success and the documents named under `word`.
    #[track_caller]
    fn find_named(&self, flags: &[&str], word: &str) -> (bool, BTreeSet<String>, String) {
        let (code, report) = self.verify(flags);
        assert!(code == 0 || code == 1, "{code}: {report}");
        let lines = report.lines().filter_map(|line| line.strip_prefix(&format!("{word}: ")));
        (code == 0, lines.map(|line| line.replacen(": plant", "", 1)).collect(), report)
    }
}

fn verify(store: &str, data: &std::path::Path, flags: &[&str]) -> (i32, String) {
    let mut command = program();
    command.args(["verify", "--store", store, "--data-dir"]).arg(data).args(flags);
    command.env("HOURGLASS_PAGE_MAX_READINGS", "60").env("HOURGLASS_TELEMETRY_LOG_LEVEL", "warn");
    let ran = run_program(&mut command);
    (ran.status.expect("it ends by itself"), ran.output())
}

fn page(sensor: &str, number: u32) -> String {
    format!("2026-01-15T14 m,s={sensor} {number}")
}

fn set(items: &[(&str, String)]) -> BTreeSet<String> {
    items.iter().map(|(what, document)| format!("{what}: {document}")).collect()
}

fn reading(page: &mut Document, index: usize) -> &mut Document {
    page.get_array_mut("readings").unwrap()[index].as_document_mut().unwrap()
}

fn a_clean_volume_has_no_difference(volume: &Volume) {
    let before = volume.stored.fingerprints();
    for flags in [&[][..], &["--repair"]] {
        let (clean, differences, report) = volume.find_named(flags, "difference");
        assert!(clean && differences.is_empty(), "{report}");
        let row: Vec<&str> =
            report.lines().find(|line| line.starts_with("plant")).unwrap().split_whitespace().collect();
        // The stop has updated the sensor documents, so there is no note, either.
        assert_eq!(row[1..6], ["58", "0", "2700", "26", "0"], "{report}");
        assert!(
            report.ends_with("WAL: 0 records that may not be in the store yet, 0 bytes\nno difference\n"),
            "{report}"
        );
    }
    assert!(volume.stored.fingerprints() == before, "nothing was written");
}

/// Derivable data, and allowed deviations.
fn derivable_damage_is_found_and_repaired(volume: &Volume) {
    let clean = readings_of(volume);
    let change = |kind, id: String, change: fn(&mut Document)| volume.stored.change(kind, &id, change);
    change(Kind::Buckets, page("s00", 0), |d| _ = d.insert("count", 61));
    change(Kind::Buckets, page("s01", 0), |d| _ = d.insert("first", DateTime::from_millis(0)));
    change(Kind::Buckets, page("s02", 0), |d| _ = d.remove("last"));
    change(Kind::Buckets, page("s03", 0), |d| {
        // The last bit of one sum.
        let f = d.get_document_mut("summary").unwrap().get_document_mut("f").unwrap();
        let sum = f.get_f64("sum").unwrap();
        f.insert("sum", f64::from_bits(sum.to_bits() + 1));
    });
    change(Kind::Buckets, page("s04", 0), |d| _ = d.get_document_mut("summary").unwrap().remove("n"));
    change(Kind::Buckets, page("s05", 0), |d| {
        let summary = d.get_document_mut("summary").unwrap();
        let n = summary.get("n").unwrap().clone();
        summary.insert("on", n);
    });
    change(Kind::Buckets, page("s06", 0), |d| _ = d.insert("summary", 7));
    change(Kind::Buckets, page("s07", 0), |d| {
        // Equal, but no longer an integer.
        let n = d.get_document_mut("summary").unwrap().get_document_mut("n").unwrap();
        n.insert("max", 107.0);
    });
    change(Kind::Buckets, page("fast0", 0), |d| _ = d.insert("hasOverflow", false));
    change(Kind::Overflow, page("fast1", 1), |d| _ = d.insert("hasOverflow", true));
    volume.stored.delete(Kind::Sensors, "m,s=s08");
    change(Kind::Sensors, "m,s=s09".into(), |d| _ = d.get_document_mut("fields").unwrap().remove("on"));
    change(Kind::Buckets, page("s13", 0), |d| {
        let order = d.get_document_mut("order").unwrap();
        order.insert("last", order.get_i64("last").unwrap() + 1);
    });
    change(Kind::Buckets, page("s10", 0), |d| _ = d.insert("hasOverflow", true));
    change(Kind::Sensors, "m,s=s11".into(), |d| _ = d.insert("lastSeen", DateTime::from_millis(HOUR * 1000)));
    change(Kind::Sensors, "m,s=s12".into(), |d| _ = d.get_array_mut("recent").unwrap().pop());

    let expected = set(&[
        ("count", page("s00", 0)),
        ("count", page("s01", 0)),
        ("count", page("s02", 0)),
        ("summary", page("s03", 0)),
        ("summary", page("s04", 0)),
        ("summary", page("s05", 0)),
        ("summary", page("s06", 0)),
        ("summary", page("s07", 0)),
        ("hasOverflow", page("fast0", 0)),
        ("hasOverflow", page("fast1", 1)),
        ("sensor document", "m,s=s08".into()),
        ("sensor's fields", "m,s=s09".into()),
        ("stamps", page("s13", 0)),
    ]);
    let (clean_now, found, report) = volume.find_named(&[], "difference");
    assert_eq!((clean_now, &found), (false, &expected), "{report}");
    let notes: Vec<&str> = report.lines().filter_map(|line| line.strip_prefix("note: plant: ")).collect();
    assert_eq!(notes.len(), 3, "{report}");
    for (note, document) in notes.iter().zip([page("s10", 0), "m,s=s11".into(), "m,s=s12".into()]) {
        assert!(note.starts_with("1 × ") && note.ends_with(&format!("; the first: {document}")), "{report}");
    }
    // Expected and found figures.
    assert!(report.contains("    expected count 60\n    found    61\n"), "{report}");
    assert!(
        report.contains("    expected n: count 60, min -70, max 107, sum 1110, avg 18.5, first -70, last 107\n"),
        "{report}"
    );

    let (mended, repaired, report) = volume.find_named(&["--repair"], "repaired");
    assert_eq!((mended, &repaired), (true, &expected), "{report}");
    assert!(report.ends_with("14 repaired, no difference\n"), "{report}");
    let (clean_now, found, report) = volume.find_named(&[], "difference");
    assert!(clean_now && found.is_empty(), "{report}");
    assert_eq!(readings_of(volume), clean, "no reading was changed");
}

/// Damage that needs a person is named, also after a repair of other damage.
fn other_damage_is_named_and_left_alone(volume: &Volume) {
    let change = |kind, id: String, change: fn(&mut Document)| volume.stored.change(kind, &id, change);
    let identities = break_identities(volume);
    change(Kind::Buckets, page("s04", 0), |d| {
        let later = DateTime::from_millis((HOUR + 3600) * 1000);
        reading(d, 59).insert("ts", later);
        d.insert("last", later);
    });
    change(Kind::Buckets, page("s05", 0), |d| d.get_array_mut("readings").unwrap().swap(7, 8));
    change(Kind::Buckets, page("s06", 0), |d| {
        let readings = d.get_array_mut("readings").unwrap();
        readings[8] = readings[7].clone();
    });
    change(Kind::Buckets, page("s07", 0), |d| _ = d.insert("schemaVersion", 2));
    change(Kind::Buckets, page("s08", 0), |d| _ = d.insert("readings", Bson::Null));
    change(Kind::Buckets, page("s09", 0), |d| {
        d.insert("readings", Vec::<Bson>::new());
    });
    change(Kind::Sensors, "m,s=s10".into(), |d| _ = d.insert("schemaVersion", 2));
    change(Kind::Overflow, page("fast0", 2), |d| {
        // The time of the first reading on page 0.
        let first = DateTime::from_millis(HOUR * 1000);
        reading(d, 0).insert("ts", first);
        d.insert("first", first);
    });
    change(Kind::Buckets, page("fast1", 0), |d| _ = d.insert("closed", false));
    volume.stored.delete(Kind::Overflow, &page("fast2", 1));
    change(Kind::Overflow, page("fast2", 2), |d| _ = d.insert("count", 1));

    let mut left = set(&[
        ("hour", page("s04", 0)),
        ("order", page("s05", 0)),
        ("order", page("s06", 0)),
        ("unreadable", page("s07", 0)),
        ("unreadable", page("s08", 0)),
        ("no readings", page("s09", 0)),
        ("unreadable", "m,s=s10".into()),
        ("two pages", page("fast0", 2)),
        ("open pages", page("fast1", 0)),
        ("page numbers", page("fast2", 0)),
    ]);
    left.extend(identities);
    let also = set(&[("count", page("fast2", 2))]);
    let (clean, found, report) = volume.find_named(&[], "difference");
    assert_eq!((clean, &found), (false, &left.union(&also).cloned().collect()), "{report}");
    let before = volume.stored.fingerprints();
    let (clean, found, report) = volume.find_named(&["--repair"], "difference");
    assert_eq!((clean, &found), (false, &left), "{report}");
    assert!(report.contains(&format!("repaired: count: plant: {}\n", page("fast2", 2))), "{report}");
    let after = volume.stored.fingerprints();
    let changed: Vec<&String> =
        before.iter().filter(|(key, print)| after.get(key) != Some(print)).map(|(k, _)| &k.1).collect();
    assert_eq!(changed, [&page("fast2", 2)], "nothing else was written");
    assert_eq!(after.len(), before.len());
}

/// Damages the identity of pages; returns the expected differences. In the embedded file it is only in the key.
fn break_identities(volume: &Volume) -> BTreeSet<String> {
    if volume.stored.is_embedded() {
        volume.stored.take_tags(&page("s02", 0));
        volume.stored.renumber(&page("fast3", 2), 4);
        return set(&[("identity", page("s02", 0)), ("page numbers", page("fast3", 0))]);
    }
    let change = |id: String, change: fn(&mut Document)| volume.stored.change(Kind::Buckets, &id, change);
    change(page("s00", 0), |d| _ = d.insert("end", DateTime::from_millis(HOUR * 1000)));
    change(page("s01", 0), |d| _ = d.insert("sensor", "m,s=another"));
    change(page("s02", 0), |d| _ = d.get_document_mut("tags").unwrap().insert("s", "another"));
    change(page("s03", 0), |d| _ = d.insert("page", 3));
    set(&[
        ("identity", page("s00", 0)),
        ("identity", page("s01", 0)),
        ("identity", page("s02", 0)),
        ("identity", page("s03", 0)),
        ("no page 0", page("s03", 0)),
    ])
}

/// Regression: pages without a page 0, left by a race with a deletion, were named, but never repaired.
fn pages_without_a_page_0_are_found_and_repaired(volume: &Volume) {
    volume.stored.delete(Kind::Buckets, &page("fast3", 0));
    volume.stored.delete(Kind::Buckets, &page("fast4", 0));
    volume.stored.delete(Kind::Overflow, &page("fast4", 1));
    let expected = set(&[("no page 0", page("fast3", 1)), ("no page 0", page("fast4", 2))]);
    let (_, found, report) = volume.find_named(&[], "difference");
    assert_eq!(found, expected, "{report}");
    let before = volume.stored.fingerprints().len();
    let (mended, repaired, report) = volume.find_named(&["--repair"], "repaired");
    assert_eq!((mended, &repaired), (true, &expected), "{report}");
    assert_eq!(volume.stored.fingerprints().len(), before, "as many pages");
    let (clean, found, report) = volume.find_named(&[], "difference");
    assert!(clean && found.is_empty(), "{report}");
}

/// Returns all readings as text, by page and in order.
fn readings_of(volume: &Volume) -> Vec<String> {
    let mut all = Vec::new();
    for kind in [Kind::Buckets, Kind::Overflow] {
        volume.stored.each_document(kind, |document| {
            all.push(format!("{} {:?}", document.get_str("_id").unwrap(), document.get_array("readings").unwrap()));
        });
    }
    all.sort_unstable();
    all
}

macro_rules! on_both_stores {
    ($($case:ident,)*) => {
        mod in_the_embedded_store {
            $(#[test] fn $case() { super::$case(&super::volume("embedded".to_owned())); })*
        }

        mod in_mongodb {
            $(#[test] fn $case() { super::$case(&super::volume(super::mongod().uri(&super::fresh_database_name()))); })*
        }
    };
}

on_both_stores! {
    a_clean_volume_has_no_difference,
    derivable_damage_is_found_and_repaired,
    pages_without_a_page_0_are_found_and_repaired,
    other_damage_is_named_and_left_alone,
}

#[test]
fn an_incomplete_check_exits_with_two() {
    let mut server = Server::start("embedded");
    let (code, report) = verify("embedded", &server.data_dir(), &[]);
    assert_eq!(code, 2, "{report}");
    assert!(report.contains("another process has ") && report.ends_with("; the check was not completed\n"), "{report}");
    assert!(server.stop().success());
    assert_eq!(verify("embedded", &server.data_dir(), &[]).0, 0);
    let nowhere = server.data_dir().join("nowhere");
    let (code, report) = verify("embedded", &nowhere, &[]);
    assert_eq!(code, 2, "{report}");
    assert!(!nowhere.exists(), "nothing was made");
    let (code, report) = verify("mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=200", &nowhere, &[]);
    assert_eq!(code, 2, "{report}");
}

/// On MongoDB the service may run, and concurrent writes are no difference.
#[test]
fn writes_during_a_check_are_no_difference() {
    let store = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&store).config(CONFIG).start();
    let url = server.url("/write?db=plant&precision=s");
    post(&url, format!("m,s=s0 n=1i {HOUR}"), &[]).expect(204);
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut second = 0;
            while !stopped.load(Ordering::Relaxed) {
                pause_client();
                let mut lines = String::new();
                for sensor in 0..20 {
                    writeln!(lines, "m,s=s{sensor} n={second}i {}", HOUR + second % 3600).unwrap();
                }
                post(&url, lines, &[]).expect(204);
                second += 7;
            }
        });
        let checks: Vec<(i32, String)> = (0..4).map(|_| verify(&store, &server.data_dir(), &["--repair"])).collect();
        stopped.store(true, Ordering::Relaxed);
        for (code, report) in checks {
            assert_eq!(code, 0, "{report}");
            assert!(report.ends_with("\nno difference\n"), "{report}");
        }
    });
}

#[test]
fn unreleased_log_records_are_counted() {
    use hourglass::wal::{Folder, Wal, WalOptions};
    let mut server = Server::start("embedded");
    assert!(server.stop().success());
    let folder = server.data_dir().join("log");
    let (log, _) = Wal::open(Folder::new(&folder).unwrap(), WalOptions::new("embedded")).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    for _ in 0..5 {
        let tell = tell.clone();
        log.append(0, 1, vec![7; 100], move |appended| tell.send(appended.unwrap()).unwrap()).unwrap();
    }
    let sequences: Vec<u64> = told.iter().take(5).collect();
    log.truncate(sequences[1]).unwrap();
    // The log is still open.
    let (code, report) = verify("embedded", &server.data_dir(), &[]);
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("WAL: 3 records that may not be in the store yet, "), "{report}");
}

/// Returns a stopped server with two sealed days of two sensors.
fn start_sealed(store: String) -> Server {
    let mut server =
        Launch::with_store(store).config("[seal]\nafter = \"0s\"\n[sensors]\nwrite_interval = \"100ms\"\n").start();
    let mut lines = String::new();
    for minute in 0..2 * 1440 {
        for sensor in ["a", "b"] {
            writeln!(lines, "m,s={sensor} f={minute}.25,n={minute}i {}", HOUR + minute * 60).unwrap();
        }
    }
    post(&server.url("/write?db=plant&precision=s"), lines, &[]).expect(204);
    flush(&server);
    let report = hourglass(&["job", "run", "seal", "--server", &server.url("")]).expect_success().output();
    assert!(report.contains("days 6,") && report.contains("large 0,") && report.contains("readings 5760"), "{report}");
    assert!(server.stop().success());
    server
}

#[test]
fn sealed_days_are_checked_in_the_file() {
    let server = start_sealed("embedded".to_owned());
    let (code, report) = verify("embedded", &server.data_dir(), &[]);
    assert_eq!(code, 0, "{report}");
    let row: Vec<&str> =
        report.lines().find(|line| line.starts_with("plant ")).expect("a row").split_whitespace().collect();
    assert_eq!(row[..5], ["plant", "0", "6", "5760", "2"], "{report}");
}

#[test]
fn wrong_sealed_days_are_found_and_repaired() {
    let mongod = mongod();
    let name = fresh_database_name();
    let server = start_sealed(mongod.uri(&name));
    let change = |id: &str, update: Document| {
        let updates = [doc! { "q": { "_id": id }, "u": update }];
        let changed =
            run_command(&mongod.uri(&name), None, doc! { "update": "plant.days", "updates": updates.to_vec() });
        assert_eq!(changed.get_i32("nModified").ok(), Some(1), "{id}: {changed}");
    };
    let verified = |flags: &[&str]| verify(&mongod.uri(&name), &server.data_dir(), flags);
    assert_eq!(verified(&[]).0, 0, "{}", verified(&[]).1);
    // Validation would refuse these changes, but can be bypassed.
    let ids = ["2026-01-15 m,s=a", "2026-01-16 m,s=a", "2026-01-17 m,s=b", "2026-01-15 m,s=b"];
    change(ids[0], doc! { "$set": { "day.f.max": 7.5 } });
    change(ids[1], doc! { "$set": { "hours.fields.n.count.3": 59 } });
    change(ids[2], doc! { "$set": { "count": 1 } });
    let wrong = |report: &str| -> BTreeSet<String> {
        report.lines().filter_map(|line| line.strip_prefix("difference: ")).map(str::to_owned).collect()
    };
    let expected = set(&[
        ("summary: plant", ids[0].to_owned()),
        ("summary: plant", ids[1].to_owned()),
        ("count: plant", ids[2].to_owned()),
        // Derived from the hours.
        ("totals of a month: plant", "2026-01 m,s=a".to_owned()),
    ]);
    let (code, report) = verified(&[]);
    assert_eq!((code, wrong(&report)), (1, expected), "{report}");
    let (code, report) = verified(&["--repair"]);
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("3 repaired, no difference"), "{report}");
    // Parts that its readings do not determine stay.
    change(
        ids[3],
        doc! { "$set": { "sealed": Bson::Binary(mongodb::bson::Binary { subtype: mongodb::bson::spec::BinarySubtype::Generic, bytes: vec![1, 9] }) } },
    );
    change(ids[0], doc! { "$set": { "start": DateTime::from_millis(HOUR * 1000 - 20 * 86_400_000) } });
    let (code, report) = verified(&["--repair"]);
    assert_eq!(code, 1, "{report}");
    assert!(wrong(&report).contains(&format!("unreadable: plant: {}", ids[3])), "{report}");
    assert!(wrong(&report).contains(&format!("identity: plant: {}", ids[0])), "{report}");
}
