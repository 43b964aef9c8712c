//! Tests for rejected lines: limits, retention and export.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::senders::{RejectionSenders, SENDERS_MAX};
use super::text::parse_measurement;
use super::*;
use crate::access::is_control_or_invisible;
use crate::clock::now_ns;
use crate::reading::{Precision, Reason, Rejection};

const SETTINGS: RejectionsSettings =
    RejectionsSettings { max_bytes: 1 << 20, keep: Duration::from_secs(3600), addresses: ShownAddresses::Full };

#[test]
fn a_sender_is_logged_once_a_minute() {
    let mut senders = RejectionSenders::default();
    let start = Instant::now();
    let mut warned = Vec::new();
    for number in 0..100_000_u64 {
        let count = senders.note("a\nb", 3, start + Duration::from_millis(number));
        warned.extend(count.map(|count| (number, count)));
    }
    assert_eq!(warned, [(0, 3), (60_000, 180_000)]);
    assert_eq!(senders.note("a\nc", 1, start), Some(1), "another sender");
}

/// A sender with many addresses takes no more memory than [`SENDERS_MAX`] senders.
#[test]
fn the_number_of_distinct_senders_is_bounded() {
    let mut senders = RejectionSenders::default();
    let start = Instant::now();
    let warned = (0..10 * SENDERS_MAX).filter_map(|number| senders.note(&format!("t\n{number}"), 1, start)).count();
    assert_eq!(warned, SENDERS_MAX + 1);
    assert_eq!(senders.note("t\nlater", 1, start + Duration::from_secs(121)), Some(1));
}

fn rejected(text: &str, reason: Reason) -> RejectionSummary {
    let mut rejected = RejectionSummary::default();
    rejected.note(Rejection::new(1, 0, text.as_bytes(), reason), true);
    rejected
}

fn arrival_from<'a>(address: &str) -> Arrival<'a> {
    Arrival {
        database: "plant",
        precision: Precision::Nanoseconds,
        is_precision_declared: true,
        received: now_ns(),
        is_partial: true,
        ack: None,
        is_patient: false,
        turn: None,
        retry: None,
        caller: &Caller::Anybody,
        address: Some(address.parse().unwrap()),
        mapping: None,
        topic: None,
    }
}

fn all(lines: &KeptLines) -> Vec<KeptLine> {
    let mut found = Vec::new();
    lines
        .read(0, |_, line| {
            found.push(line);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn texts(lines: &KeptLines) -> Vec<String> {
    all(lines).into_iter().map(|line| line.text).collect()
}

/// Lines survive a restart. Only the owner of the files can read them, and they do not contain tokens.
#[tokio::test]
async fn lines_survive_a_restart() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rejections");
    let rejections = Rejections::open(path.clone(), &SETTINGS);
    let evil = "evil\u{9b}2J\u{202e}\u{1b}[2J\n v=1";
    let hidden = Reason::InvalidTimestamp("hg_0123456789ab_00ff".to_owned());
    for (address, text, reason) in [
        ("192.0.2.7", evil, Reason::NotUtf8),
        ("2001:db8::1", "AUTH hg_0123456789ab_00ff more", Reason::MissingFields),
        ("2001:db8::1", "m v=1 hg_0123456789ab_00ff", hidden),
    ] {
        rejections.note(&arrival_from(address), &mut rejected(text, reason));
    }
    rejections.save().await;
    let expected = all(rejections.lines());
    assert_eq!(texts(rejections.lines()), [evil, "auth ***", "m v=1 hg_***"]);
    assert!(expected.iter().all(|line| !line.reason.contains("00ff")), "{expected:?}");
    for entry in std::fs::read_dir(&path).unwrap() {
        let path = entry.unwrap().path();
        assert!(!std::fs::read_to_string(&path).unwrap().contains("00ff"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = Rejections::open(path, &SETTINGS);
    assert_eq!(all(again.lines()), expected);
    assert_eq!((expected[0].address.as_deref(), &*expected[0].code), (Some("192.0.2.7"), "encoding"));
    let exported = expected[0].to_line_protocol();
    assert!(!exported.lines().next().unwrap().chars().any(is_control_or_invisible), "{exported}");
    again.forget("plant").await;
    assert!(all(again.lines()).is_empty());
}

#[test]
fn addresses_are_shown_as_configured() {
    for (address, full, masked) in [
        ("192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
    ] {
        let address = address.parse().unwrap();
        assert_eq!(format_address(address, ShownAddresses::Full).as_deref(), Some(full));
        assert_eq!(format_address(address, ShownAddresses::Masked).as_deref(), Some(masked));
        assert_eq!(format_address(address, ShownAddresses::Off), None);
    }
}

#[test]
fn the_measurement_of_a_line_is_found() {
    let cases = [
        ("climate,sensor=a temp=", "climate"),
        (r"a\ b\,c\d v=x", r"a b,c\d"),
        ("alone", "alone"),
        (r#"{"measurement" : "a \"b\"","fields":{"v":[1]}}"#, r#"a "b""#),
        (r#"{"measurement":"cut o…"#, ""),
        (r#"{"measurement":7}"#, ""),
        (r#"{"sensor":"s"}"#, ""),
        // Line protocol that looks like JSON.
        ("{m},s=a v=\"x\"", "{m}"),
        ("[0] v=\"x\"", "[0]"),
    ];
    for (text, measurement) in cases {
        assert_eq!(parse_measurement(text), measurement, "{text}");
    }
}

fn line(token: &str, text: &str) -> KeptLine {
    KeptLine {
        received: now_ns(),
        database: "plant".to_owned(),
        token: Some(token.to_owned()),
        address: None,
        number: 3,
        column: 0,
        text: text.to_owned(),
        field: None,
        time: None,
        precision: "ns".to_owned(),
        code: "syntax".to_owned(),
        reason: "bad".to_owned(),
        mapping: None,
        topic: None,
    }
}

/// An exported line has the time that it had or would have had, and only the fields that are not stored.
#[test]
fn lines_are_exported_as_line_protocol_in_nanoseconds() {
    let body = |line: KeptLine| line.to_line_protocol().lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let seconds = |text: &str| KeptLine { precision: "s".to_owned(), ..line("t", text) };
    assert_eq!(body(seconds("m,b=1,a=2 v=\"x\",w=1i 7")), ["m,a=2,b=1 v=\"x\",w=1i 7000000000"]);
    let field = |text: &str| KeptLine { field: Some("v".to_owned()), ..seconds(text) };
    assert_eq!(body(field("m v=\"x\",w=1i 7")), ["m v=\"x\" 7000000000"]);
    assert_eq!(body(KeptLine { time: Some(5), ..field("m v=\"x\",w=1i") }), ["m v=\"x\" 5"]);
    assert_eq!(body(KeptLine { received: 1000, ..line("t", "m v=1") }), ["m v=1.0 997"]);
    assert_eq!(body(line("t", "m v=")), ["m v="], "as it was sent");
    let json = r#"{"measurement":"m","tags":{"a":"b c"},"fields":{"v":"x"},"ts":7}"#;
    assert_eq!(body(seconds(json)), ["m,a=b\\ c v=\"x\" 7000000000"]);
    assert_eq!(body(line("t", r#"{"measurement":7}"#)), [r#"# {"measurement":7}"#]);
    let comment = KeptLine { received: 0, reason: "a\nb".to_owned(), ..line("t", "m v=1 1") }.to_line_protocol();
    assert_eq!(comment, "# 1970-01-01T00:00:00Z, line 3 of token t: syntax: a\\u{a}b\nm v=1.0 1\n");
}

#[test]
fn removed_lines_stay_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rejections");
    let lines = KeptLines::open(path.clone(), &SETTINGS);
    lines.add((0..5).map(|number| line("a", &format!("m v={number}"))));
    assert_eq!(lines.remove(|_, line| line.text.ends_with(['1', '3'])).unwrap(), 2);
    lines.add(std::iter::once(line("a", "m v=9")));
    for lines in [&lines, &KeptLines::open(path, &SETTINGS)] {
        assert_eq!(texts(lines), ["m v=0", "m v=2", "m v=4", "m v=9"]);
    }
}

#[test]
fn lines_are_bounded_by_bytes_and_age_and_one_token_to_half() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rejections");
    let settings = RejectionsSettings { max_bytes: 64 << 10, ..SETTINGS };
    let lines = KeptLines::open(path.clone(), &settings);
    let on_disk = || -> u64 {
        let entries = std::fs::read_dir(&path).unwrap();
        entries.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    lines.add(std::iter::once(line("quiet", "m v=0")));
    for number in 0..2000 {
        lines.add(std::iter::once(line("loud", &format!("loud v={number}"))));
        lines.save().unwrap();
        assert!(on_disk() <= (64 << 10) + 1024, "{}", on_disk());
    }
    assert!(texts(&lines).contains(&"m v=0".to_owned()), "a loud sender must not displace a quiet one");
    let of_loud = texts(&lines).iter().filter(|text| text.starts_with("loud")).count();
    assert!((50..1000).contains(&of_loud), "{of_loud} of loud");
    // The queue has room for several senders.
    lines.add((0..5000).map(|number| line("loud", &format!("loud v={number}"))));
    lines.add(std::iter::once(line("other", "m v=1")));
    assert!(texts(&lines).contains(&"m v=1".to_owned()));
    for sender in 0..8 {
        lines.add((0..200).map(|number| line(&format!("t{sender}"), &format!("late{sender} v={number}"))));
        lines.save().unwrap();
    }
    assert!(on_disk() <= (64 << 10) + 40_000, "{}", on_disk());
    assert!(!texts(&lines).contains(&"m v=0".to_owned()), "the oldest line is removed");
    assert!(texts(&lines).contains(&"late7 v=0".to_owned()));
    let short = KeptLines::open(path.clone(), &RejectionsSettings { keep: Duration::from_nanos(1), ..settings });
    assert!(texts(&short).is_empty());
    assert_eq!(on_disk(), 0);
    let off = KeptLines::open(path.clone(), &RejectionsSettings { max_bytes: 0, ..SETTINGS });
    off.add(std::iter::once(line("a", "m v=1")));
    assert!(texts(&off).is_empty());
}
