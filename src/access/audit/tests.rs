use std::fs;
use std::sync::Arc;

use super::*;
use crate::access::caller::Holder;
use crate::access::quota::Usage;
use crate::access::token::Token;

/// Returns the holder of a token with this admin scope.
fn holder(admin: &str) -> Caller {
    let scopes = Scopes { admin: vec![admin.to_owned()], ..Scopes::default() };
    let quota = Quota::default();
    let token = Token {
        name: "a".to_owned(),
        scopes,
        secrets: Vec::new(),
        certificates: Vec::new(),
        quota,
        created: 1,
        expires: None,
        revoked: None,
        rev: 1,
    };
    Caller::Holder(Arc::new(Holder {
        token,
        usage: Arc::new(Usage::new("token", "a", quota)),
        last_use: Arc::default(),
    }))
}

fn note(audit: &Audit, database: &str) {
    audit.note(&change(&holder("db_*"), database));
}

fn change<'a>(caller: &'a Caller, database: &'a str) -> Event<'a> {
    Event::Change { caller, address: None, statement: database.to_owned(), database, outcome: "done".to_owned() }
}

#[test]
fn other_callers_do_not_rotate_the_log_of_administrators() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::new(folder.path(), 10_000);
    audit.note(&change(&holder("*"), "first"));
    audit.note(&change(&Caller::Anybody, "without a token"));
    (0..1000).for_each(|_| note(&audit, "x"));
    let text = |path: PathBuf| fs::read_to_string(path).unwrap();
    let files: Vec<String> = Audit::files(folder.path()).into_iter().map(text).collect();
    assert!(files.len() == 5 && files[0].contains("first") && files[0].lines().count() == 1, "{files:?}");
}

#[test]
fn texts_of_clients_cannot_forge_lines() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "x\n{\"event\":\"token\",\"action\":\"created\"}\u{1b}[2J\u{2028}\0\u{9b}2J\u{202e}\u{2066}\u{7f}";
    note(&Audit::new(folder.path(), 1 << 20), evil);
    let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert!(!text.trim_end().chars().any(is_control_or_invisible), "{text}");
    let line: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((line["event"].as_str(), line["database"].as_str()), (Some("change"), Some(evil)));
}

/// Regression: a record had up to 192 KiB of settings, so a few of them rotated a log away.
#[test]
fn records_have_a_maximum_size() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::new(folder.path(), 1 << 20);
    let texts = ["x", &"x".repeat(1 << 20), &"\u{e0041}\u{1b}\"\\".repeat(10_000), &"é".repeat(200), " "];
    for text in texts {
        let caller = holder("db_*");
        let outcome = text.to_owned();
        audit.note(&Event::Change {
            caller: &caller,
            address: None,
            statement: outcome.clone(),
            database: text,
            outcome,
        });
    }
    let scopes = Scopes { read: vec!["\u{9b}".repeat(64); 10_000], ..Scopes::default() };
    let [name, user] = ["n"; 2].map(|name| name.repeat(1000));
    audit.note(&Event::Token {
        action: "created",
        name: &name,
        scopes: &scopes,
        quota: &Quota::default(),
        expires: None,
        user: OsUser { user: Some(user), ..OsUser::default() },
        by: None,
        address: None,
    });
    let mut lines = 0;
    for file in Audit::files(folder.path()) {
        for line in fs::read_to_string(file).unwrap().lines() {
            assert!(line.len() <= trail::RECORD_BYTES_MAX + 100, "{} bytes: {line}", line.len());
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let is_cut = record["statement"].as_str().is_none_or(|text| text.starts_with('"'));
            assert_eq!(record["cut"]["bytes"].is_u64() && record["cut"]["sha256"].is_string(), is_cut, "{line}");
            lines += 1;
        }
    }
    assert_eq!(lines, 6);
    assert_eq!(faults(folder.path()), "");
}

/// Regression: files could be removed from the start of a trail with a changed head, and rotations were not shown.
#[test]
fn removed_files_and_rotations_are_told_apart() {
    let rotated = || {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), 8_000);
        (0..100).for_each(|number| note(&audit, &format!("x{number}")));
        folder
    };
    let report = |folder: &Path| Audit::check(folder).unwrap().remove(1).1;
    let folder = rotated();
    let whole = report(folder.path());
    assert!(whole.faulty == 0 && whole.removed > 0 && whole.records + whole.removed > 100, "{whole:?}");
    for file in ["audit.log.3", "audit.log.2", "audit.log.1"] {
        let folder = rotated();
        fs::remove_file(folder.path().join(file)).unwrap();
        let found = report(folder.path());
        assert!(found.faulty == 1 && found.faults[0].contains("are missing"), "{file}: {found:?}");
        // Neither later records, nor a new head, nor a later rotation hides that.
        fs::remove_file(folder.path().join("audit.head")).unwrap();
        let audit = Audit::new(folder.path(), 8_000);
        note(&audit, "later");
        assert_eq!(report(folder.path()).faulty, 1, "{file}");
        (0..15).for_each(|_| note(&audit, "later"));
        assert!(file == "audit.log.3" || report(folder.path()).faulty > 0, "{file}: {:?}", report(folder.path()));
    }
}

#[test]
fn refusals_are_limited_per_reason_and_all_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::new(folder.path(), 1 << 20);
    let start = Instant::now();
    let failing = holder("db_*");
    for number in 0..10_000 {
        let reason = if number % 100 == 0 { "forbidden" } else { "unknown" };
        let denied = Event::Denied { reason, address: None, route: "/write", token: None };
        audit.note_denied(&denied, start + Duration::from_millis(number * 12));
        audit.note_denied(&change(&failing, "x"), start + Duration::from_millis(number * 12));
    }
    // Those of administrators are all written, and into their own log.
    let administrator = holder("*");
    (0..50).for_each(|_| audit.note_denied(&change(&administrator, "x"), start));
    let text = fs::read_to_string(folder.path().join("audit.log")).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // Many wrong tokens must not hide refusals for other reasons.
    for (reason, suppressed) in [("unknown", 4_930), ("forbidden", 30), ("failed", 4_980)] {
        let with_reason = lines.iter().filter(|line| line["reason"] == reason);
        let counted: u64 = with_reason.filter_map(|line| line["denials"].as_u64()).sum();
        assert_eq!(counted, suppressed, "{reason}");
    }
    assert_eq!(lines.len(), 3 * 2 * 20 + 3);
    assert_eq!(fs::read_to_string(folder.path().join("admin.log")).unwrap().lines().count(), 50);
}

/// All processes append under one lock, so numbers are consecutive across rotations.
#[test]
fn concurrent_writers_make_one_chain() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            // Each thread opens the files itself, as another process does.
            scope.spawn(|| {
                let audit = Audit::new(folder.path(), 40_000);
                (0..100).for_each(|_| note(&audit, "x"));
            });
        }
    });
    let reports = Audit::check(folder.path()).unwrap();
    let [_, ("audit.log", report)] = &*reports else { panic!("{reports:?}") };
    assert_eq!(report.faults, [""; 0]);
    // The records of rotations have numbers, too.
    assert!(report.records < 400 && report.records + report.removed > 400, "{report:?}");
    let files = trail::files(&folder.path().join("audit.log"));
    assert_eq!(files.len(), 4);
    assert!(files.iter().all(|file| fs::metadata(file).unwrap().len() < 10_500));
}

fn faults(folder: &Path) -> String {
    let reports = Audit::check(folder).unwrap();
    reports.into_iter().flat_map(|(_, report)| report.faults).collect::<Vec<_>>().join("; ")
}

#[test]
fn changes_of_a_file_are_detected() {
    type Edit = fn(&Path, Vec<&str>) -> String;
    let cases: &[(&str, Edit, &str)] = &[
        ("nothing", |_, lines| lines.concat(), ""),
        ("a line gone", |_, lines| [&lines[..4], &lines[5..]].concat().concat(), "records 5 to 5 are missing"),
        ("the first gone", |_, lines| lines[1..].concat(), "records 1 to 1 are missing at the start"),
        ("the end gone", |_, lines| lines[..8].concat(), "records 9 to 10 are missing at the end"),
        ("all gone", |_, _| String::new(), "records 1 to 10 are missing at the end"),
        ("one changed", |_, lines| lines.concat().replace("x4", "y4"), "record 5, or the one before it, was changed"),
        (
            "two swapped",
            |_, mut lines| {
                lines.swap(2, 3);
                lines.concat()
            },
            "records 3 to 3 are missing",
        ),
        ("one twice", |_, lines| [&lines[..3], &lines[2..]].concat().concat(), "record 3 is in the place of record 4"),
        ("one added", |_, lines| lines.concat() + "{\"event\":\"change\"}\n", "not a record"),
        ("one cut", |_, lines| lines.concat().trim_end_matches("\"}\n").to_owned(), "not a record"),
        (
            "no head",
            |file, lines| {
                fs::remove_file(trail::head_path(file)).unwrap();
                lines.concat()
            },
            ".head",
        ),
    ];
    for (what, edit, fault) in cases {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::new(folder.path(), 1 << 20);
        let file = folder.path().join("audit.log");
        (0..10).for_each(|number| note(&audit, &format!("x{number}")));
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, edit(&file, text.split_inclusive('\n').collect())).unwrap();
        let found = faults(folder.path());
        assert!(found.contains(fault) && found.is_empty() == fault.is_empty(), "{what}: {found}");
        if *what == "no head" {
            continue;
        }
        // Later records do not hide the fault.
        note(&audit, "later");
        let later = faults(folder.path());
        assert_eq!(later.is_empty(), fault.is_empty(), "{what}: {later}");
    }
}

/// A crash between writing a record and its head leaves a valid chain.
#[test]
fn the_chain_continues_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let audit = Audit::new(folder.path(), 1 << 20);
    let file = folder.path().join("audit.log");
    note(&audit, "one");
    let head = fs::read_to_string(trail::head_path(&file)).unwrap();
    note(&audit, "two");
    fs::write(trail::head_path(&file), head).unwrap();
    note(&audit, "three");
    let reports = Audit::check(folder.path()).unwrap();
    assert_eq!((reports[1].1.records, reports[1].1.faulty), (3, 0), "{reports:?}");
}
