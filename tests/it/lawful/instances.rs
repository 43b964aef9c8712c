//! Two instances write the same sensors: a correction after an ack wins.

use crate::support::prelude::*;

use super::{CAPS, CONFIG, DATABASE};

fn two_instances() -> (Server, Server, Stored) {
    let name = fresh_database_name();
    let instance = || Launch::with_store(mongod().uri(&name)).config(CONFIG).start();
    (instance(), instance(), Stored::in_mongo(mongod(), &name, DATABASE))
}

/// Regression: an instance compared a reading with its own outdated page and took a correction for a duplicate.
#[test]
fn a_correction_after_an_ack_wins_on_every_instance() {
    let (a, b, _stored) = two_instances();
    for (case, (first, second)) in [(&a, &b), (&b, &a)].into_iter().enumerate() {
        // Alone, among others on an open page, and on a closed page.
        for others in [0, 5, 50] {
            let sensor = format!("corrected,case=c{case},others=o{others}");
            let time = |second: i64| START + second * SECOND;
            let write = |server: &Server, body: &[(&str, i64)]| {
                let line = |(fields, time): &(&str, i64)| format!("{sensor} {fields} {time}\n");
                let lines: String = body.iter().map(line).collect();
                post(&server.url(&format!("/write?precision=ns&ack=store&db={DATABASE}")), lines, &[]).expect(204);
            };
            let assert_stored = |what: &str, expected: [&str; 2]| {
                for server in [first, second] {
                    let found = readings(server, DATABASE, &sensor, Some((time(0), time(1))), 10);
                    assert_eq!(found.len(), 1, "{sensor}: {what}");
                    let fields = &found[0].1;
                    assert_eq!([&*fields["x"], &*fields["y"]], expected, "{sensor}: {what}");
                }
            };
            write(first, &[("x=1i,y=1i", time(0))]);
            for other in 1..=others {
                write(first, &[("x=0i", time(other))]);
            }
            write(second, &[("x=2i", time(0))]);
            assert_stored("a correction by the other instance", ["2", "1"]);
            write(first, &[("x=1i,y=1i", time(0))]);
            assert_stored("what the first instance remembers, sent again", ["1", "1"]);
            write(second, &[("x=3i,y=3i", time(0))]);
            write(first, &[("y=1i", time(0))]);
            assert_stored("a single field of it", ["3", "1"]);
            write(second, &[("x=4i", time(0))]);
            write(first, &[("x=3i", time(0)), ("x=5i", time(1000)), ("y=6i", time(1000))]);
            assert_stored("together with a new reading", ["3", "1"]);
            write(second, &[("x=7i", time(0))]);
            write(first, &[("x=8i", time(1001))]);
            assert_stored("a new reading alone corrects nothing", ["7", "1"]);
        }
    }
}

/// A sensor document has the latest readings of the pages, even if its last writer has an older page in memory.
#[test]
fn recent_readings_match_the_pages() {
    let (mut a, mut b, stored) = two_instances();
    let write = |server: &Server, line: &str| {
        post(&server.url(&format!("/write?precision=ns&ack=store&db={DATABASE}")), line, &[]).expect(204);
    };
    write(&a, &format!("seen x=1i,y=1i {START}"));
    write(&b, &format!("seen x=2i {START}"));
    write(&b, &format!("seen x=3i {}", START + SECOND));
    assert!(b.stop().success());
    assert!(a.stop().success());
    let mut documents = Vec::new();
    stored.each_sensor(|sensor| documents.push(sensor));
    let mut in_pages = Vec::new();
    stored.each_bucket(&CAPS, |pages| in_pages.extend(pages[0].readings.clone()));
    assert_eq!(documents.len(), 1);
    assert_eq!(documents[0].recent, in_pages);
    assert_eq!(documents[0].last_seen, Some((START + SECOND) / 1_000_000));
}
