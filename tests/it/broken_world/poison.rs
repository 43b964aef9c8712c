//! Permanently refused pages: other pages are stored, and their readings become dead letters that can be resent.

use hourglass::bucket::Caps;

use crate::support::prelude::*;

const DATABASE: &str = "default";
const CAPS: Caps = Caps { max_readings: 3600, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
const GOOD: usize = 150;
const BAD: &str = "m,room=a\\ b,s=bad";

/// A server on a MongoDB that can refuse pages.
struct Volume {
    uri: String,
    name: String,
    server: Server,
    validator: Document,
}

impl Volume {
    /// Creates the collections.
    fn new() -> Volume {
        let name = fresh_database_name();
        let uri = mongod().uri(&name);
        let server = Server::start(&uri);
        post(&server.url("/write?ack=store"), format!("m,s=first v=1 {START}"), &[]).expect(204);
        let mut volume = Volume { uri, name, server, validator: Document::new() };
        let listed = volume.run(doc! { "listCollections": 1, "filter": { "name": "default.buckets" } });
        let options = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap()[0].as_document().unwrap();
        volume.validator = options.get_document("options").unwrap().get_document("validator").unwrap().clone();
        volume
    }

    fn run(&self, command: Document) -> Document {
        run_command(&self.uri, None, command)
    }

    /// Makes the store refuse every page of the bad sensor, or none.
    fn refuse(&self, refuse: bool) {
        let of_others = doc! { "sensor": { "$ne": BAD } };
        let validator = if refuse {
            doc! { "$and": [self.validator.clone(), of_others] }
        } else {
            self.validator.clone()
        };
        self.run(doc! { "collMod": "default.buckets", "validator": validator, "validationLevel": "strict" });
    }

    /// Returns the output of `hourglass dead-letters list`.
    fn dead_letters(&self) -> String {
        hourglass(&["dead-letters", "list", "--data-dir", path(&self.server.data_dir())]).stdout
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.server.data_dir().join("dead-letters")).expect("the folder exists");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        let mut segments: Vec<PathBuf> =
            paths.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
        segments.sort();
        segments
    }

    /// Replaces a text in all records and updates their checksums.
    fn edit(&self, from: &str, to: &str) {
        for path in self.segments() {
            let mut edited = String::new();
            for line in std::fs::read_to_string(&path).expect("text").lines() {
                let (_, record) = line.split_once(' ').expect("a checksum");
                let record = record.replace(from, to);
                writeln!(edited, "{:08x} {record}", crc32c::crc32c(record.as_bytes())).unwrap();
            }
            std::fs::write(path, edited).expect("written");
        }
    }

    /// Returns status and output of `hourglass dead-letters send`.
    fn send(&self) -> (i32, String) {
        let mut command = program();
        command.args(["dead-letters", "send", "--data-dir"]).arg(self.server.data_dir());
        let output = command.args(["--server", &self.server.url("")]).output().expect("hourglass can be run");
        let report = [output.stdout, output.stderr].concat();
        (output.status.code().expect("a status"), String::from_utf8(report).expect("UTF-8"))
    }

    fn dead_letters_answer(&self, query: &str) -> Value {
        self.server.fetch(&format!("/api/v1/dead-letters{query}"))
    }

    /// Returns the warning check of `/health`, if any.
    fn warning(&self) -> Option<Value> {
        let health = self.server.fetch("/health");
        assert_eq!(health["status"], "pass", "writes are acked");
        let checks = health["checks"].as_array().expect("checks").clone();
        checks.into_iter().find(|check| check["name"] == "dead_letters")
    }

    /// Returns the stored readings per sensor.
    fn stored(&self) -> Vec<(String, usize)> {
        let mut stored = Vec::new();
        Stored::from_uri(&self.uri, &self.name, DATABASE).each_bucket(&CAPS, |pages| {
            stored.push((pages[0].sensor.clone(), pages.iter().map(|page| page.readings.len()).sum()));
        });
        stored.sort();
        stored
    }

    /// Checks that this many readings are dead letters and all others are stored.
    #[track_caller]
    fn check_account(&self, dead_lettered: f64) {
        let counter = |what: &str| metric(&self.server, &format!("hourglass_ingest_readings_{what}"));
        assert_eq!(counter("dead_lettered_total"), dead_lettered);
        assert_eq!(counter("pending"), 0.0);
        let outcomes = counter("stored_total")
            + counter("duplicate_total")
            + counter("overwritten_total")
            + counter("deleted_total");
        assert_eq!(counter("accepted_total") + counter("replayed_total"), outcomes + dead_lettered);
    }
}

/// Lines of the bad sensor: every type, escaped text, nanosecond times.
fn bad_lines() -> [String; 3] {
    [
        format!("{BAD} n=-5i,on=true,t=\"a \\\"b\\\", c\\\\ #d\",v=0.1 {}", START + 1),
        format!("{BAD} u=18446744073709551615u,v=-1e-300 {}", START + 2),
        format!("{BAD} n=7i {}", START + 3_599_999_999_999),
    ]
}

#[test]
fn a_refused_page_becomes_dead_letters_and_delays_no_other() {
    let mut volume = Volume::new();
    volume.refuse(true);
    let mut body = String::new();
    for number in 0..GOOD {
        if number == GOOD / 3 {
            bad_lines().iter().for_each(|line| writeln!(body, "{line}").unwrap());
        }
        for step in 0..2 {
            writeln!(body, "m,s=good{number:03} v={step} {}", START + step).unwrap();
        }
    }
    post(&volume.server.url("/write"), body, &[]).expect(204);
    let flushed = post(&volume.server.url("/api/v1/flush"), "", &[]).expect(409).json();
    assert_eq!(flushed["dead_letters"], json!({ DATABASE: 3 }), "{flushed}");
    let mut expected: Vec<(String, usize)> = (0..GOOD).map(|number| (format!("m,s=good{number:03}"), 2)).collect();
    expected.insert(0, ("m,s=first".to_owned(), 1));
    assert_eq!(volume.stored(), expected, "the good ones");
    volume.check_account(3.0);

    let kept = volume.dead_letters();
    let (reason, lines) = kept.split_once('\n').unwrap();
    assert!(
        reason.contains(": database \"default\", 3 readings, kept ")
            && reason.contains(": the store refused the document: "),
        "{reason}"
    );
    assert!(reason.contains("121"), "the store's own code: {reason}");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 3, "{kept}");
    assert!(lines.iter().all(|line| line.starts_with(BAD)), "{kept}");

    // Nothing of it is left in the WAL or retried.
    assert!(volume.server.stop().success());
    volume.server.restart();
    assert_eq!(metric(&volume.server, "hourglass_ingest_readings_replayed_total"), 0.0);

    // The file can be sent unchanged once the cause is gone.
    volume.refuse(false);
    post(&volume.server.url("/write?ack=store"), &kept, &[]).expect(204);
    let resent = readings(&volume.server, DATABASE, BAD, None, 100);
    let others = volume.server.url("/write?db=straight");
    post(&others, bad_lines().join("\n"), &[]).expect(204);
    assert_eq!(resent, readings(&volume.server, "straight", BAD, None, 100), "as if it had never been refused");
    assert_eq!(resent.len(), 3);
    // Only the command knows that they were sent.
    post(&volume.server.url("/api/v1/flush"), "", &[]).expect(409);
    volume.check_account(0.0);
    assert_eq!(volume.dead_letters().lines().count(), 4, "nothing was added");
}

#[test]
fn an_ack_from_the_store_reports_its_refusal() {
    let volume = Volume::new();
    volume.refuse(true);
    let write = volume.server.url("/write?ack=store");
    let refused = post(&write, format!("{}\nm,s=good v=1 {START}", bad_lines()[0]), &[]).expect(400);
    let error = refused.json()["error"].as_str().expect("an error").to_owned();
    assert!(error.starts_with("the store refused the document: "), "{error}");
    assert_eq!(refused.header("retry-after"), None, "sending it again mends nothing");
    assert_eq!(refused.header("x-hourglass-ack"), None);
    assert_eq!(readings(&volume.server, DATABASE, "m,s=good", None, 10).len(), 1, "the good one is kept");
    post(&write, format!("m,s=good v=2 {}", START + 1), &[]).expect(204);
    // In the words of each dialect.
    let v2 = post(&volume.server.url("/api/v2/write?ack=store"), &bad_lines()[1], &[]).expect(400).json();
    assert_eq!(v2["code"], "invalid");
    assert!(v2["message"].as_str().is_some_and(|m| m.starts_with("the store refused the document: ")), "{v2}");
    volume.check_account(2.0);
    assert_eq!(volume.dead_letters().lines().count(), 4, "each under its reason");
}

/// MongoDB reports a refused update like a missing page, so it is retried without upsert.
#[test]
fn a_refused_update_becomes_dead_letters() {
    let volume = Volume::new();
    let lines = bad_lines();
    let write = volume.server.url("/write?ack=store");
    post(&write, &lines[0], &[]).expect(204);
    volume.refuse(true);
    let refused = post(&write, format!("{}\nm,s=good v=1 {START}", lines[1]), &[]).expect(400);
    assert!(refused.text().contains("the store refused the document: 121"), "{}", refused.text());
    volume.check_account(1.0);
    let stored = [(BAD.to_owned(), 1), ("m,s=first".to_owned(), 1), ("m,s=good".to_owned(), 1)];
    assert_eq!(volume.stored(), stored, "what was there stays as it was");
    let kept = volume.dead_letters();
    assert_eq!(kept.lines().count(), 2, "{kept}");
    volume.refuse(false);
    post(&write, kept, &[]).expect(204);
    assert_eq!(readings(&volume.server, DATABASE, BAD, None, 10).len(), 2);
}

/// Regression: after a restart, health was green and the counter zero despite dead letters.
#[test]
fn dead_letters_are_reported_until_they_are_resent() {
    let mut volume = Volume::new();
    assert_eq!((volume.warning(), volume.dead_letters_answer("")["letters"].clone()), (None, json!([])));
    volume.refuse(true);
    let lines = bad_lines();
    let write = volume.server.url("/write?ack=store");
    post(&write, &lines[0], &[]).expect(400);
    post(&write, lines[1..].join("\n"), &[]).expect(400);
    for _ in 0..2 {
        assert_eq!(metric(&volume.server, "hourglass_dead_letters_readings"), 3.0);
        let warning = volume.warning().expect("a warning");
        assert_eq!(warning["status"], "warn", "{warning}");
        let flushed = post(&volume.server.url("/api/v1/flush"), "", &[]).expect(409).json();
        assert_eq!(flushed["dead_letters"], json!({ DATABASE: 3 }), "{flushed}");
        assert!(flushed["error"].as_str().is_some_and(|error| error.contains("3 readings")), "{flushed}");
        assert!(volume.server.stop().success(), "nothing of it is left in the WAL");
        volume.server.restart();
    }
    // Batches with reason, time and lines.
    let first = volume.dead_letters_answer("?limit=1");
    assert_eq!((&first["readings"], &first["databases"]), (&json!(3), &json!({ DATABASE: 3 })));
    let second =
        volume.dead_letters_answer(&format!("?limit=1&cursor={}", first["next"].as_str().expect("there is more")));
    assert!(second["next"].is_null(), "{second}");
    for (part, expected) in [(&first, lines[0].clone()), (&second, lines[1..].join("\n"))] {
        let chunk = &part["letters"][0];
        let readings = expected.lines().count();
        assert_eq!(
            (&chunk["database"], &chunk["readings"], &chunk["is_cut"]),
            (&json!(DATABASE), &json!(readings), &json!(false))
        );
        assert!(chunk["reason"].as_str().is_some_and(|reason| reason.starts_with("the store refused")), "{chunk}");
        assert!(chunk["kept"].as_str().is_some_and(|kept| kept.starts_with("20") && kept.ends_with('Z')), "{chunk}");
        assert_eq!(chunk["lines"].as_str().map(|lines| lines.lines().count()), Some(readings), "{chunk}");
    }

    // The first write of a process to a database restores the validator.
    post(&volume.server.url("/write?ack=store"), format!("m,s=first v=1 {START}"), &[]).expect(204);
    volume.refuse(true);
    // The store still refuses them, so they become dead letters again, once each.
    let (code, report) = volume.send();
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("3 readings sent, 0 not accepted") && report.contains("answered 409"), "{report}");
    assert_eq!(metric(&volume.server, "hourglass_dead_letters_readings"), 3.0);

    volume.refuse(false);
    let (code, report) = volume.send();
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("3 readings sent, 0 not accepted\n"), "{report}");
    flush(&volume.server);
    assert_eq!((volume.warning(), metric(&volume.server, "hourglass_dead_letters_readings")), (None, 0.0));
    post(&volume.server.url("/write?db=straight"), lines.join("\n"), &[]).expect(204);
    let resent = readings(&volume.server, DATABASE, BAD, None, 100);
    assert_eq!(resent, readings(&volume.server, "straight", BAD, None, 100), "as if it had never been refused");
    let (code, report) = volume.send();
    assert!(code == 0 && report.contains("0 readings sent"), "{report}");
    assert_eq!(volume.dead_letters(), "");
}

/// A refused batch delays no other and stays for the next attempt.
#[test]
fn a_refused_batch_waits_and_no_other_is_sent_twice() {
    let mut volume = Volume::new();
    volume.refuse(true);
    for line in bad_lines() {
        post(&volume.server.url("/write?ack=store"), line, &[]).expect(400);
    }
    volume.refuse(false);
    // The second was corrected by hand, with a mistake.
    volume.edit("v=-1e-300", "v=--1e-300");
    let (code, report) = volume.send();
    assert_eq!(code, 1, "{report}");
    assert!(report.contains("2 readings sent, 1 not accepted") && report.contains("answered 400"), "{report}");
    // A truncated mark does not count.
    let last = volume.segments().pop().expect("a segment");
    let id = volume.dead_letters_answer("")["letters"][0]["id"].as_str().expect("an id").to_owned();
    std::fs::write(&last, std::fs::read_to_string(&last).unwrap() + &format!("00000000 1 {{\"done\":[{id}")).unwrap();
    volume.server.kill();
    volume.server.restart();
    assert_eq!(volume.dead_letters_answer("")["databases"], json!({ DATABASE: 1 }));
    volume.edit("v=--1e-300", "v=-1e-300");
    let (code, report) = volume.send();
    assert_eq!(code, 0, "{report}");
    assert!(report.contains("1 readings sent, 0 not accepted"), "{report}");
    assert_eq!(readings(&volume.server, DATABASE, BAD, None, 10).len(), 3);
}

/// Batches that were resolved by other means are marked and no longer count.
#[test]
fn a_resolved_dead_letter_is_not_sent() {
    let volume = Volume::new();
    volume.refuse(true);
    post(&volume.server.url("/write?ack=store"), &bad_lines()[0], &[]).expect(400);
    let id = volume.dead_letters_answer("")["letters"][0]["id"].as_str().expect("an id").to_owned();
    let mut command = program();
    command.args(["dead-letters", "done", &id, "--data-dir"]).arg(volume.server.data_dir());
    assert!(command.output().expect("hourglass can be run").status.success());
    assert_eq!((volume.warning(), volume.dead_letters()), (None, String::new()));
    flush(&volume.server);
}
