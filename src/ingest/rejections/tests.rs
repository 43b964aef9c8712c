//! What is kept of whom, and for how long, with time as an argument.

use std::time::{Duration, Instant};

use super::kept::Kept;
use super::senders::{SENDERS_MAX, Senders, sender_key};
use super::*;

fn options(folder: &std::path::Path) -> RejectionOptions {
    RejectionOptions {
        file: folder.join("rejections.jsonl"),
        max_count: 1000,
        max_bytes: 64 << 10,
        keep: Duration::from_secs(3600),
        addresses: ShownAddresses::Full,
        lines: line_options(folder, 64 << 10),
    }
}

fn line_options(folder: &std::path::Path, max_bytes: u64) -> LineOptions {
    LineOptions { folder: folder.join("rejected-lines"), max_bytes, keep: Duration::from_secs(3600) }
}

fn rejection(token: &str, address: &str, number: usize) -> KeptRejection {
    KeptRejection {
        time: i64::try_from(number).unwrap(),
        database: "plant".to_owned(),
        token: Some(token.to_owned()),
        address: Some(address.to_owned()),
        line: number,
        column: 0,
        text: "x".repeat(100),
        reason: "bad".to_owned(),
        code: "syntax".to_owned(),
        count: 1,
        replayed: 0,
    }
}

/// One bad sender must not push all others out, neither from one address nor from many.
#[test]
fn a_sender_of_many_bad_lines_pushes_out_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::new(&options(folder.path()));
    for quiet in 0..20 {
        let address = format!("192.0.2.{quiet}");
        kept.push(sender_key(Some("quiet"), &address).into(), rejection("quiet", &address, quiet));
    }
    for number in 0..10_000 {
        // First one address, then many of one token.
        let address =
            if number < 5000 { "10.0.0.1".to_owned() } else { format!("10.1.{}.{}", number / 256, number % 256) };
        kept.push(sender_key(Some("loud"), &address).into(), rejection("loud", &address, number));
    }
    let all = kept.newest(|_| true, usize::MAX);
    let of = |token: &str| all.iter().filter(|rejection| rejection.token.as_deref() == Some(token)).count();
    assert_eq!(of("quiet"), 20);
    let bytes: usize = all.iter().map(|rejection| rejection.text.len() + rejection.reason.len()).sum();
    assert!((50..1000).contains(&of("loud")) && bytes <= 64 << 10, "{} of loud, {bytes} bytes", of("loud"));
    assert_eq!(all[0].line, 9_999, "newest first");
}

#[test]
fn the_count_and_the_age_are_bounded_too() {
    let folder = tempfile::tempdir().unwrap();
    let options = RejectionOptions { max_count: 10, keep: Duration::from_nanos(30), ..options(folder.path()) };
    let mut kept = Kept::new(&options);
    (0..100).for_each(|number| kept.push("a\nb".into(), rejection("a", "b", number)));
    assert!((5..=10).contains(&kept.newest(|_| true, 100).len()));
    assert!(kept.expire(128));
    assert!(kept.newest(|_| true, 100).iter().all(|rejection| rejection.line >= 98));
    assert_eq!(kept.newest(|_| true, 1).len(), 1);
    assert!(kept.newest(|_| false, 100).is_empty());
    assert!(kept.forget("plant") && !kept.forget("plant"));
}

#[test]
fn a_sender_is_sampled_and_warned_of_once_a_minute() {
    let (mut senders, start) = (Senders::default(), Instant::now());
    let at = |millis: u64| start + Duration::from_millis(millis);
    let mut kept = 0;
    let mut warned = Vec::new();
    for number in 0..100_000_u64 {
        let turn = senders.note("a\nb", 3, at(number));
        kept += usize::from(turn.keep);
        warned.extend(turn.warn.map(|count| (number, count)));
    }
    assert!((100..=111).contains(&kept), "{kept} of 100 s");
    assert_eq!(warned, [(0, 3), (60_000, 180_000)]);
    // Another sender has turns of its own.
    let other = senders.note("a\nc", 1, at(100_000));
    assert!(other.keep && other.warn == Some(1));
}

/// Somebody with many addresses takes no more memory than [`SENDERS_MAX`] senders.
#[test]
fn the_senders_that_are_told_apart_are_bounded() {
    let (mut senders, start) = (Senders::default(), Instant::now());
    let mut keys = std::collections::HashSet::new();
    let mut warned = 0;
    for number in 0..10 * SENDERS_MAX {
        let turn = senders.note(&format!("t\n{number}"), 1, start);
        keys.insert(turn.sender);
        warned += usize::from(turn.warn.is_some());
    }
    assert_eq!((keys.len(), warned), (SENDERS_MAX + 1, SENDERS_MAX + 1));
    let later = senders.note("t\nlater", 1, start + Duration::from_secs(121));
    assert_eq!(&*later.sender, "t\nlater");
}

fn rejected(text: &str, reason: crate::reading::Reason) -> Rejected {
    let mut rejected = Rejected { count: 1, lines: 1, ..Rejected::default() };
    rejected.reasons.insert(reason.label(), 1);
    rejected.told.push(Rejection::new(1, 0, text.as_bytes(), reason));
    rejected
}

fn by<'a>(address: &str) -> RejectedBy<'a> {
    let address = Some(address.parse().unwrap());
    let precision = (Precision::Nanoseconds, false);
    RejectedBy { database: "plant", by: &Caller::Anybody, address, received: now_ns(), precision }
}

/// A restart keeps the list, only its owner may read the file, and a torn line takes no other with it.
#[tokio::test]
async fn the_list_outlives_the_process() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path());
    let rejections = Rejections::open(options.clone());
    let evil = "evil\u{9b}2J\u{202e}\u{1b}[2J\n v=1";
    rejections.note(by("192.0.2.7"), &rejected(evil, crate::reading::Reason::NotUtf8));
    rejections
        .note(by("2001:db8::1"), &rejected("auth hg_0123456789ab_00ff more", crate::reading::Reason::MissingFields));
    let hidden = crate::reading::Reason::InvalidTimestamp { text: "hg_0123456789ab_00ff".to_owned() };
    rejections.note(by("2001:db8::1"), &rejected("auth v=1 hg_0123456789ab_00ff", hidden));
    rejections.save().await;
    let text = std::fs::read_to_string(&options.file).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(!text.contains("00ff") && !text.replace('\n', "").chars().any(steers), "{text}");
    assert_eq!(std::fs::metadata(&options.file).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(&options.file, format!("{{\"time\":1}}\n{text}{{\"time\":17")).unwrap();
    let again = Rejections::open(options);
    assert_eq!(again.list(|_| true, 10), rejections.list(|_| true, 10));
    let oldest = again.list(|_| true, 10).pop().unwrap();
    assert_eq!(oldest.text, "evil\\u{9b}2J\\u{202e}\\u{1b}[2J\\u{a} v=1");
    assert_eq!((oldest.address.as_deref(), &*oldest.code, oldest.count), (Some("192.0.2.7"), "encoding", 1));
    again.forget("plant").await;
    assert!(again.list(|_| true, 10).is_empty());
}

#[test]
fn an_address_is_shown_as_the_key_says() {
    for (address, full, masked) in [
        ("192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(shown(address, ShownAddresses::Full).as_deref(), Some(full));
        assert_eq!(shown(address, ShownAddresses::Masked).as_deref(), Some(masked));
        assert_eq!(shown(address, ShownAddresses::Off), None);
    }
}

#[test]
fn the_measurement_of_a_line_is_found_as_far_as_it_tells() {
    let cases = [
        ("climate,sensor=a temp=", "climate"),
        (r"a\ b\,c\d v=x", r"a b,c\d"),
        ("alone", "alone"),
        (r#"{"measurement" : "a \"b\"","fields":{"v":[1]}}"#, r#"a "b""#),
        (r#"{"measurement":"cut o…"#, ""),
        (r#"{"measurement":7}"#, ""),
        (r#"{"sensor":"s"}"#, ""),
        // Taken for JSON, it could not be fixed and written again.
        ("{m},s=a v=\"x\"", "{m}"),
        ("[0] v=\"x\"", "[0]"),
    ];
    for (text, measurement) in cases {
        let rejection = KeptRejection { text: text.to_owned(), ..rejection("t", "a", 1) };
        assert_eq!(rejection.measurement(), measurement, "{text}");
    }
}

fn line(token: &str, text: &str) -> KeptLine {
    KeptLine {
        id: 0,
        received: now_ns(),
        database: "plant".to_owned(),
        token: Some(SenderToken { name: token.to_owned(), created: 7 }),
        address: None,
        number: 3,
        text: text.to_owned(),
        field: None,
        time: None,
        precision: "ns".to_owned(),
        declared: true,
        code: "syntax".to_owned(),
        reason: "bad".to_owned(),
    }
}

fn texts(lines: &KeptLines, after: u64) -> Vec<String> {
    lines.read(after, |_| true, (usize::MAX, usize::MAX)).unwrap().0.into_iter().map(|line| line.text).collect()
}

/// What was replayed stays so after a restart, and torn bytes at the end take nothing with them.
#[test]
fn whole_lines_outlive_the_process_until_they_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let options = line_options(folder.path(), 1 << 20);
    let lines = KeptLines::open(&options);
    lines.add((0..5).map(|number| line("a", &format!("m v={number}"))));
    let (all, more) = lines.read(0, |_| true, (3, usize::MAX)).unwrap();
    assert_eq!((all.len(), more), (3, true));
    assert_eq!(texts(&lines, all[2].id), ["m v=3", "m v=4"]);
    let (one, more) = lines.read(0, |_| true, (9, 1)).unwrap();
    assert_eq!((one.len(), more), (1, true), "at least one");
    lines.mark_done(vec![all[1].id]).unwrap();
    let last = std::fs::read_dir(&options.folder).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
    let mut torn = std::fs::read(&last).unwrap();
    torn.extend(b"{\"line\":{\"id\":7");
    std::fs::write(&last, torn).unwrap();
    let again = KeptLines::open(&options);
    again.add(std::iter::once(line("a", "m v=9")));
    assert_eq!(texts(&again, 0), ["m v=0", "m v=2", "m v=3", "m v=4", "m v=9"]);
    again.mark_done(vec![all[0].id]).unwrap();
    let again = KeptLines::open(&options);
    assert_eq!(texts(&again, 0), ["m v=2", "m v=3", "m v=4", "m v=9"]);
    again.add(std::iter::once(KeptLine { database: "other".to_owned(), ..line("a", "n v=1") }));
    again.save().unwrap();
    again.forget("plant").unwrap();
    assert_eq!(texts(&again, 0), ["n v=1"]);
    assert_eq!(texts(&KeptLines::open(&options), 0), ["n v=1"]);
}

/// The list went on showing lines that had been fixed and written.
#[test]
fn the_list_tells_how_many_of_a_request_were_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::new(&options(folder.path()));
    let of = |token: &str, time: usize, code: &str| KeptRejection {
        code: code.to_owned(),
        count: 2,
        ..rejection(token, "a", time)
    };
    for one in [of("t", 7, "syntax"), of("t", 7, "family"), of("t", 8, "syntax"), of("other", 7, "syntax")] {
        kept.push("key".into(), one);
    }
    let replayed = KeptLine { received: 7, ..line("t", "m v=1") };
    let told = |kept: &Kept| kept.newest(|_| true, 10).iter().rev().map(|one| one.replayed).collect::<Vec<_>>();
    assert!(kept.count_replayed(std::iter::once(&replayed)));
    assert_eq!(told(&kept), [1, 0, 0, 0]);
    // A line that is written once more, after a crash, is none more of the request.
    assert!(kept.count_replayed([&replayed, &replayed].into_iter()));
    assert_eq!(told(&kept), [2, 0, 0, 0]);
    assert!(!kept.count_replayed(std::iter::once(&KeptLine { received: 9, ..replayed.clone() })));
}

#[test]
fn whole_lines_are_bounded_by_bytes_and_age_and_a_token_by_half() {
    let folder = tempfile::tempdir().unwrap();
    let options = line_options(folder.path(), 64 << 10);
    let lines = KeptLines::open(&options);
    let on_disk = || -> u64 {
        let entries = std::fs::read_dir(&options.folder).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    lines.add(std::iter::once(line("quiet", "m v=0")));
    for number in 0..2000 {
        lines.add(std::iter::once(line("loud", &format!("loud v={number}"))));
        lines.save().unwrap();
        assert!(on_disk() <= (64 << 10) + 1024, "{}", on_disk());
    }
    assert!(texts(&lines, 0).contains(&"m v=0".to_owned()), "a loud sender pushes nobody out");
    for sender in 0..8 {
        lines.add((0..200).map(|number| line(&format!("t{sender}"), &format!("late{sender} v={number}"))));
        lines.save().unwrap();
    }
    assert!(on_disk() <= (64 << 10) + 1024, "{}", on_disk());
    assert!(!texts(&lines, 0).contains(&"m v=0".to_owned()), "the oldest goes");
    assert!(texts(&lines, 0).contains(&"late7 v=0".to_owned()));
    let short = KeptLines::open(&LineOptions { keep: Duration::from_nanos(1), ..options.clone() });
    assert!(texts(&short, 0).is_empty());
    assert_eq!(on_disk(), 0);
    let off = KeptLines::open(&LineOptions { max_bytes: 0, ..options });
    off.add(std::iter::once(line("a", "m v=1")));
    assert!(texts(&off, 0).is_empty());
}
