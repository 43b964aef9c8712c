//! Values of another type than their field's: rejected, or kept beside it and moved into it later; none is lost, whatever is killed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::accounting::{is_balanced, terms};
use crate::support::http::{get, post, request};
use crate::support::jobs::seal;
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::random::Random;
use crate::support::series::{Seen, await_fed, flush, metric, readings};
use crate::support::server::{Launch, Server, program};
use crate::support::{eventually, poll};

const KEEP: &str = "[ingest]\ndrift = \"keep\"\n";
/// Small pages and parts, and days that are sealed while all goes on.
const CONFIG: &str = r#"
[ingest]
drift = "keep"
[page]
max_readings = 20
[flush]
interval = "100ms"
[seal]
after = "1s"
interval = "50ms"
[wal]
segment_bytes = "64KiB"
budget_bytes = "64MiB"
"#;
const WITHIN: Duration = Duration::from_secs(60);
/// 2024-06-01T00:00:00Z, in seconds.
const START: i64 = 1_717_200_000;

fn write(server: &Server, lines: &str, status: u16) -> Option<String> {
    let answer = post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(status);
    answer.header("x-hourglass-warning").map(str::to_owned)
}

/// The readings of a sensor, texts without quotes.
fn seen(server: &Server, sensor: &str) -> Vec<Seen> {
    let plain = |(name, text): (String, String)| {
        let value = match serde_json::from_str(&text).expect("JSON") {
            Value::String(text) => text,
            Value::Number(number) => format!("{:?}", number.as_f64().expect("a double")),
            other => other.to_string(),
        };
        (name, value)
    };
    let rows = readings(server, "d", sensor, None, 10_000).into_iter();
    rows.map(|(time, fields)| (time, fields.into_iter().map(plain).collect())).collect()
}

fn row(time: i64, fields: &[(&str, &str)]) -> Seen {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    (time * 1_000_000_000, fields)
}

/// What `hourglass drift resolve` asks; the numbers of readings that moved, and that did not.
#[track_caller]
fn resolve(server: &Server, to: &str, dry: bool) -> (u64, u64) {
    let path = format!("/api/v1/drift/resolve?db=d&measurement=m&field=temp&to={to}&dry_run={dry}");
    let told = post(&server.url(&path), "", &[]).expect(200).json();
    assert_eq!(told["dry_run"], dry);
    (told["readings"].as_u64().expect("a count"), told["left"].as_u64().expect("a count"))
}

#[test]
fn values_of_another_type_are_rejected_unless_they_are_to_be_kept() {
    let server = Launch::embedded().start();
    write(&server, "m temp=1 1717200000", 204);
    write(&server, "m temp=\"2\",w=2 1717200001\nm temp@string=3 1717200002", 400);
    let expected =
        [row(START, &[("temp", "1.0")]), row(START + 1, &[("w", "2.0")]), row(START + 2, &[("temp@string", "3.0")])];
    assert_eq!(seen(&server, "m"), expected);
    assert!(metric(&server, "hourglass_ingest_values_drifted_total") < 1.0);
}

#[test]
fn kept_values_stand_beside_their_field_and_are_told_of() {
    let mut server = Launch::embedded().config(KEEP).start();
    assert_eq!(write(&server, "m temp=1 1717200000", 204), None);
    let lines = "m temp=\"2\",w=2 1717200001\nm temp=true 1717200001\nm temp=3 1717200001\nm w=5 1717200001";
    let warning = write(&server, lines, 204).expect("a warning");
    assert!(warning.contains("2 values") && warning.contains("temp@string"), "{warning}");
    let both = [("temp", "3.0"), ("temp@boolean", "true"), ("temp@string", "2"), ("w", "5.0")];
    let expected = vec![row(START, &[("temp", "1.0")]), row(START + 1, &both)];
    assert_eq!(seen(&server, "m"), expected);
    // A name with the suffix means what is kept there, and nothing else can be.
    write(&server, "m temp=\"4\",temp@string=\"5\" 1717200002\nm temp@string=\"6\",temp=\"7\" 1717200003", 204);
    let fields: Vec<_> = seen(&server, "m").into_iter().skip(2).map(|(_, fields)| fields).collect();
    assert_eq!((&fields[0]["temp@string"], &fields[1]["temp@string"]), (&"5".to_owned(), &"7".to_owned()));
    write(&server, "m temp@string=1 1717200004", 400);
    write(&server, "m x@number=\"one\" 1717200004", 400);
    write(&server, "m mail@home=1 1717200004", 204);
    let body = r#"{"measurement":"m","ts":1717200005,"fields":{"temp":"eight"}}"#;
    let answer = post(&server.url("/api/v1/readings?db=d"), body, &[]).expect(200);
    assert!(answer.header("x-hourglass-warning").is_some());
    let told = post(&server.url("/api/v1/explain?db=d"), body, &[]).expect(200).json();
    assert!(told["lines"][0]["warnings"][0].as_str().is_some_and(|text| text.contains("kept beside")), "{told}");
    let notices = |path: &str| get(&server.url(path)).expect(200).json()["notices"].clone();
    for selection in ["sensor=m", "measurement=m"] {
        let told = notices(&format!("/api/v1/readings?db=d&{selection}&fields=temp"));
        assert!(told[0].as_str().is_some_and(|text| text.contains("\"temp@")), "{selection}: {told}");
        assert_eq!(notices(&format!("/api/v1/readings?db=d&{selection}&fields=w")), Value::Null);
    }
    let answer = get(&server.url("/query?db=d&q=SELECT+temp+FROM+m")).expect(200).json();
    let told = answer["results"][0]["messages"][0]["text"].as_str().unwrap_or_default();
    assert!(told.contains("\"temp@"), "{answer}");
    let kept = get(&server.url("/query?db=d&q=SELECT+%22temp@string%22+FROM+m")).expect(200).json();
    assert_eq!(kept["results"][0]["series"][0]["values"].as_array().map(Vec::len), Some(4), "{kept}");
    assert!(metric(&server, "hourglass_ingest_values_drifted_total") >= 5.0);
    // The log, the store and a restart keep it.
    let before = seen(&server, "m");
    server.kill();
    server.restart_as(Launch::embedded().config(KEEP));
    await_fed(&server);
    assert_eq!(seen(&server, "m"), before);
    flush(&server);
    assert_eq!(seen(&server, "m"), before);
}

/// Whether values of other types are kept is said for each database; a policy goes by its database unless it says something else.
#[test]
fn each_database_says_what_becomes_of_its_values_of_other_types() {
    let mut server = Launch::embedded().start();
    let set = |server: &Server, name: &str, body: &str| -> Value {
        let name = name.replace('/', "%2F");
        let url = server.url(&format!("/api/v1/databases/{name}"));
        request("PUT", &url, body.as_bytes(), &[]).unwrap().expect(200).json()
    };
    let kept = |server: &Server, name: &str| {
        let (database, policy) = name.split_once('/').unwrap_or((name, "autogen"));
        let url = server.url(&format!("/write?db={database}&rp={policy}&precision=s"));
        post(&url, "m temp=1 1717200000", &[]).expect(204);
        post(&url, "m temp=\"2\" 1717200001", &[]).status == 204
    };
    let (keep, reject) = (r#"{"drift":"keep"}"#, r#"{"drift":"reject"}"#);
    let told = set(&server, "plant", keep);
    assert_eq!((&told["drift"], &told["drift_as"]), (&json!("keep"), &json!("keep")), "{told}");
    let told = set(&server, "plant/week", r#"{"readings":"inf"}"#);
    assert_eq!((&told["drift"], &told["drift_as"]), (&Value::Null, &json!("keep")), "{told}");
    set(&server, "plant/day", reject);
    let all = ["plant", "plant/week", "plant/day", "other"];
    for _ in 0..2 {
        assert_eq!(all.map(|name| kept(&server, name)), [true, true, false, false]);
        let answer = get(&server.url("/query?db=plant&q=SELECT+temp+FROM+m")).expect(200).json();
        assert!(
            answer["results"][0]["messages"][0]["text"].as_str().is_some_and(|text| text.contains("\"temp@")),
            "{answer}"
        );
        server.kill();
        server.restart("127.0.0.1:0");
        await_fed(&server);
    }
    assert_eq!(set(&server, "plant", "{}")["drift_as"], "keep", "what is not sent stays");
    // What the configuration says holds again. What was kept stays.
    assert_eq!(set(&server, "plant", r#"{"drift":null}"#)["drift_as"], "reject");
    assert_eq!(all.map(|name| kept(&server, name)), [false; 4]);
    let seen = readings(&server, "plant", "m", None, 10);
    assert_eq!(seen[1].1.keys().next().map(String::as_str), Some("temp@string"), "{seen:?}");
    server.stop();
    server.restart_as(Launch::embedded().config(KEEP));
    await_fed(&server);
    assert_eq!(all.map(|name| kept(&server, name)), [true, true, false, true]);
}

#[test]
fn history_is_converted_where_it_says_the_same_in_the_embedded_store() {
    converts(&Launch::embedded().config(CONFIG).start());
}

#[test]
fn history_is_converted_where_it_says_the_same_in_mongodb() {
    converts(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG).start());
}

fn converts(server: &Server) {
    write(server, "m,s=a temp=1,w=1 1717200000\nm,s=b w=1 1717200000", 204);
    write(
        server,
        "m,s=a temp=\" 2.5\",w=2 1717200001\nm,s=a temp=\"warm\" 1717200002\nm,s=a temp=true 1717200003",
        204,
    );
    write(server, "m,s=a temp=4 1717200004\nm,s=a temp=\"5\" 1717200004", 204);
    // Where text came first, the field itself is text.
    write(server, "m,s=c temp=\"6\" 1717200000\nm,s=c temp=7 1717200001", 204);
    assert_eq!(resolve(server, "float", true), (4, 2));
    let url = server.url("");
    let words = ["drift", "resolve", "d", "m", "temp", "--as", "float", "--to", &url];
    let counted = program().args(words).output().expect("it runs");
    let told = String::from_utf8_lossy(&counted.stdout);
    assert!(
        told.starts_with("4 readings of 2 sensors would move; 2 keep") && told.contains("1 sensors would become float"),
        "{told}"
    );
    assert_eq!(counted.status.code(), Some(1), "some are left");
    let before = (seen(server, "m,s=a"), seen(server, "m,s=c"));
    assert_eq!(resolve(server, "float", false), (4, 2));
    let expected = vec![
        row(START, &[("temp", "1.0"), ("w", "1.0")]),
        row(START + 1, &[("temp", "2.5"), ("w", "2.0")]),
        row(START + 2, &[("temp@string", "warm")]),
        row(START + 3, &[("temp", "1.0")]),
        row(START + 4, &[("temp", "4.0"), ("temp@string", "5")]),
    ];
    assert_eq!(seen(server, "m,s=a"), expected, "before: {before:?}");
    let expected = vec![row(START, &[("temp", "6.0")]), row(START + 1, &[("temp", "7.0")])];
    assert_eq!(seen(server, "m,s=c"), expected);
    assert_eq!(resolve(server, "float", false), (0, 2), "it is done");
    let mean = get(&server.url("/query?db=d&q=SELECT+count(temp),sum(temp)+FROM+m+WHERE+s='a'")).expect(200).json();
    let row = &mean["results"][0]["series"][0]["values"][0];
    assert_eq!((&row[1], &row[2]), (&json!(4), &json!(8.5)), "{mean}");
    for query in ["field=temp&to=decimal", "field=&to=float", "to=float"] {
        post(&server.url(&format!("/api/v1/drift/resolve?db=d&measurement=m&{query}")), "", &[]).expect(400);
    }
}

/// Regression: where a sealed day had one value of a reading and an hour page another, each moved into the field, and one was lost.
#[test]
fn of_two_values_in_a_page_and_a_day_one_moves_and_the_other_stays() {
    for store in ["embedded".to_owned(), mongod().uri(&fresh_database_name())] {
        let config = format!(
            "{KEEP}[flush]\ninterval = \"50ms\"\n[sensors]\nwrite_interval = \"50ms\"\n\
             [seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"0s\"\ndirect_min = 1000\n"
        );
        let server = Launch::with_store(store).config(config).start();
        write(&server, "m,s=a temp=1 1717200000\nm,s=a temp=true 1717200001", 204);
        flush(&server);
        seal(&server);
        write(&server, "m,s=a temp=\"2.5\" 1717200001", 204);
        flush(&server);
        assert_eq!(resolve(&server, "float", false), (1, 0));
        let expected =
            vec![row(START, &[("temp", "1.0")]), row(START + 1, &[("temp", "2.5"), ("temp@boolean", "true")])];
        assert_eq!(seen(&server, "m,s=a"), expected);
        assert_eq!(resolve(&server, "float", false), (0, 1));
    }
}

/// A conversion that named no policy looked into the database without one, found nothing there, and said that nothing was
/// left, while writes that name none go to the default policy.
#[test]
fn a_conversion_without_a_policy_means_the_default_one() {
    let server = Launch::embedded().config(KEEP).start();
    assert_eq!(write(&server, "m temp=1 1717200000", 204), None);
    let statement = "CREATE RETENTION POLICY week ON d DURATION INF REPLICATION 1 DEFAULT".replace(' ', "+");
    post(&server.url(&format!("/query?q={statement}")), "", &[]).expect(200);
    assert_eq!(write(&server, "m temp=1 1717200001", 204), None);
    assert!(write(&server, "m temp=\"2\" 1717200002", 204).is_some());
    assert_eq!(resolve(&server, "float", false), (1, 0));
}

#[test]
fn no_drifted_value_is_lost_through_kills_in_the_embedded_store() {
    loses_nothing(&Launch::embedded().config(CONFIG), 5);
}

#[test]
fn no_drifted_value_is_lost_through_kills_in_mongodb() {
    loses_nothing(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG), 6);
}

/// What was acked of a time: a number, a text that says one, a text that does not.
#[derive(Debug, Clone, Default, PartialEq)]
struct Acked {
    number: Option<i64>,
    text: Option<String>,
}

/// A plain map of what was acked, by sensor and time.
type Model = BTreeMap<(&'static str, i64), Acked>;

/// Random writes of numbers and texts, each cell once, kills at every step of a conversion, while days are sealed; in the end every
/// value is where it belongs. At every scrape the account of readings is closed.
fn loses_nothing(launch: &Launch, seed: u64) {
    let mut server = launch.clone().start();
    let (address, metrics) = (server.address(), server.url("/metrics"));
    let (mut random, mut model) = (Random::new(seed), Model::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let mut wrong = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                if let Ok(answer) = request("GET", &metrics, b"", &[]) {
                    let terms = terms(answer.expect(200).text());
                    wrong.extend(Some(terms).filter(|terms| !is_balanced(terms)));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            wrong
        });
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // The field is one of numbers, and of a sensor whose first value says nothing, of text until it is converted. A kill at
            // `family_set` comes when it was told to be one of numbers, and nothing was moved yet.
            write(&server, "m,s=a temp=0 1717100000\nm,s=b temp=0 1717100000\nm,s=c temp=\"err\" 1717100000", 204);
            let points = [
                "family_set:1",
                "marked:1",
                "before_deletion:1",
                "during_deletion:1",
                "part_deleted:1",
                "after_deletion:1",
            ];
            for (round, point) in points.into_iter().enumerate() {
                let round = i64::try_from(round).expect("few");
                fill(&server, &mut random, &mut model, round);
                // So that the next start has nothing to carry out that would meet the kill.
                assert!(server.stop().success());
                server.restart_as(launch.clone().listen(address).env("FAULT_KILL_AT", point));
                await_fed(&server);
                fill(&server, &mut random, &mut model, round);
                let path = "/api/v1/drift/resolve?db=d&measurement=m&field=temp&to=float&dry_run=false";
                assert!(request("POST", &server.url(path), b"", &[]).is_err(), "{point}");
                assert!(poll(WITHIN, || server.exited()).is_some(), "{point}");
                server.restart_as(launch.clone().listen(address));
                await_fed(&server);
                check(&server, &model, false, point);
            }
            resolve(&server, "float", false);
            check(&server, &model, true, "in the end");
        }));
        stop.store(true, Ordering::Relaxed);
        let wrong = scraper.join().expect("no panic");
        if let Err(panicked) = told {
            std::panic::resume_unwind(panicked);
        }
        assert!(wrong.is_empty(), "{} scrapes, such as {:?}", wrong.len(), wrong[0]);
    });
    eventually("nothing is pending", WITHIN, || {
        flush(&server);
        (terms(get(&server.url("/metrics")).expect(200).text())["pending"] == 0).then_some(())
    });
}

/// Writes cells that were not written before.
fn fill(server: &Server, random: &mut Random, model: &mut Model, round: i64) {
    let mut lines = String::new();
    for _ in 0..150 {
        let at = (random.of(&["a", "b", "c"]), START + round * 86_400 + random.below(300) * 60);
        let acked = model.entry(at).or_default();
        let value = match random.below(3) {
            0 if acked.number.is_none() => format!("{}", acked.number.insert(1 + random.below(1000))),
            1 if acked.text.is_none() => format!("{:?}", acked.text.insert(random.below(1000).to_string())),
            2 if acked.text.is_none() => format!("{:?}", acked.text.insert(format!("warm {}", random.below(9)))),
            _ => continue,
        };
        writeln!(lines, "m,s={} temp={value} {}", at.0, at.1).expect("a String takes it");
    }
    write(server, &lines, 204);
}

#[track_caller]
fn check(server: &Server, model: &Model, is_resolved: bool, when: &str) {
    let mut seen_all: BTreeMap<(&str, i64), BTreeMap<String, String>> = BTreeMap::new();
    for tag in ["a", "b", "c"] {
        let rows = seen(server, &format!("m,s={tag}")).into_iter();
        seen_all.extend(rows.map(|(time, fields)| ((tag, time / 1_000_000_000), fields.into_iter().collect())));
    }
    for (at, Acked { number, text }) in model.iter().filter(|(_, acked)| **acked != Acked::default()) {
        let fields = seen_all.get(at).unwrap_or_else(|| panic!("{when}: {at:?} is lost"));
        let (field, beside) = (fields.get("temp"), fields.get("temp@string"));
        let as_number = |number: &i64| format!("{number}.0");
        let parsed = text.as_ref().and_then(|text| text.parse::<i64>().ok());
        if at.0 == "c" {
            // Its field was one of text at first: a text that says a number may have come into the field before the number.
            let (own, numbers) = ([field, beside], [field, fields.get("temp@number")]);
            let has_number = number.is_none_or(|number| numbers.contains(&Some(&as_number(&number))));
            let is_converted = parsed.is_some_and(|number| field == Some(&as_number(&number)));
            let was_replaced = parsed.is_some() && number.is_some();
            let has_text = text.as_ref().is_none_or(|text| own.contains(&Some(text)) || is_converted || was_replaced);
            let is_of_numbers = field.is_none_or(|field| field.parse::<f64>().is_ok());
            let is_done = is_of_numbers && (parsed.is_none() || beside.is_none() || number.is_some());
            assert!(
                has_number && has_text && (is_done || !is_resolved),
                "{when}: {at:?} {number:?} {text:?}: {fields:?}"
            );
            continue;
        }
        match (number, text) {
            // A number stays, whatever is converted meanwhile; the text is beside it, or was moved before the number came.
            (Some(number), _) => {
                assert_eq!(field, Some(&as_number(number)), "{when}: {at:?}");
                assert!(beside.is_none_or(|beside| Some(beside) == text.as_ref()), "{when}: {at:?} {fields:?}");
                assert!(beside.is_some() || text.is_none() || parsed.is_some(), "{when}: {at:?} {fields:?}");
            }
            (None, Some(text)) => match (&parsed, field, beside) {
                (_, None, Some(beside)) if !is_resolved || parsed.is_none() => {
                    assert_eq!(beside, text, "{when}: {at:?}")
                }
                (Some(parsed), Some(field), None) => assert_eq!(*field, as_number(parsed), "{when}: {at:?}"),
                _ => panic!("{when}: {at:?} was {text:?} and is {fields:?}"),
            },
            (None, None) => {}
        }
    }
}

/// Regression: values of a measurement that is shown under another name were found by neither the name of now nor by any notice.
#[test]
fn values_move_by_the_name_that_their_measurement_is_shown_under() {
    let mut server = Launch::embedded().config(KEEP).start();
    write(&server, "m temp=1 1717200000\nm temp=\"2\" 1717200001", 204);
    let body = r#"{"kind":"measurement","from":"m","to":"w"}"#;
    post(&server.url("/api/v1/relabel?db=d"), body, &[]).expect(200);
    let moved = |measurement: &str, dry: bool| {
        let path = format!("/api/v1/drift/resolve?db=d&measurement={measurement}&field=temp&to=float&dry_run={dry}");
        post(&server.url(&path), "", &[]).expect(200).json()["readings"].as_u64().expect("a count")
    };
    assert_eq!((moved("x", true), moved("m", true), moved("w", true)), (0, 1, 1));
    assert_eq!((moved("w", false), moved("w", true)), (1, 0));
    let expected = [row(START, &[("temp", "1.0")]), row(START + 1, &[("temp", "2.0")])];
    assert_eq!(seen(&server, "w"), expected);
    server.stop();
}

/// Regression: asked by a measurement's old name, only the sensors that are stored under it got the new family, and a name that unites them with
/// others had two.
#[test]
fn sensors_that_are_shown_as_one_are_converted_together() {
    let mut server = Launch::embedded().config(KEEP).start();
    write(&server, "m,s=1 temp=1 1717200000\nw,s=1 temp=2 1717200001\nw,s=2 temp=3 1717200002", 204);
    let body = r#"{"kind":"measurement","from":"m","to":"w"}"#;
    post(&server.url("/api/v1/relabel?db=d"), body, &[]).expect(200);
    let resolve = |measurement: &str, dry: bool| {
        let path = format!("/api/v1/drift/resolve?db=d&measurement={measurement}&field=temp&to=string&dry_run={dry}");
        post(&server.url(&path), "", &[]).expect(200).json()
    };
    assert_eq!([&resolve("m", true)["families"], &resolve("w", true)["families"]], [3, 3]);
    assert_eq!(resolve("m", false)["readings"], 3);
    let expected = [row(START, &[("temp", "1")]), row(START + 1, &[("temp", "2")])];
    assert_eq!(seen(&server, "w,s=1"), expected);
    assert_eq!(resolve("w", true)["families"], 0);
    server.stop();
}

/// The first value of a sensor said for good what its field is: after one "err", no number ever got into the field, neither by a conversion
/// nor by a deletion of that value.
#[test]
fn a_sensor_whose_first_value_was_wrong_is_converted_in_the_embedded_store() {
    makes_way(&Launch::embedded().config(CONFIG));
}

#[test]
fn a_sensor_whose_first_value_was_wrong_is_converted_in_mongodb() {
    makes_way(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG));
}

fn makes_way(launch: &Launch) {
    let mut server = launch.clone().start();
    write(&server, "m,s=a temp=1 1717200000", 204);
    write(&server, "m,s=b temp=\"err\" 1717200000\nm,s=b temp=5 1717200001\nm,s=b temp=6 1717200002", 204);
    write(&server, "m,s=b temp=7 1717200003\nm,s=b temp=\"8\" 1717200003", 204);
    let mean = |server: &Server| {
        let answer = get(&server.url("/query?db=d&q=SELECT+mean(temp)+FROM+m+WHERE+s='b'")).expect(200).json();
        answer["results"][0]["series"][0]["values"][0][1].as_f64()
    };
    assert_eq!(resolve(&server, "float", true), (3, 1));
    assert_eq!(mean(&server), None, "a dry run changes nothing");
    assert_eq!(resolve(&server, "float", false), (3, 1));
    let moved = vec![
        row(START, &[("temp@string", "err")]),
        row(START + 1, &[("temp", "5.0")]),
        row(START + 2, &[("temp", "6.0")]),
        // Both say something: the one in the field counts, the other one stays beside it.
        row(START + 3, &[("temp", "8.0"), ("temp@number", "7.0")]),
    ];
    assert_eq!(seen(&server, "m,s=b"), moved);
    assert_eq!(mean(&server), Some(19.0 / 3.0));
    // What comes later goes by the new type, after a restart too.
    write(&server, "m,s=b temp=9 1717200004", 204);
    assert!(write(&server, "m,s=b temp=\"err\" 1717200005", 204).is_some());
    server.kill();
    server.restart_as(launch.clone().listen("127.0.0.1:0"));
    await_fed(&server);
    assert_eq!(write(&server, "m,s=b temp=10 1717200006", 204), None);
    flush(&server);
    let later = [
        row(START + 4, &[("temp", "9.0")]),
        row(START + 5, &[("temp@string", "err")]),
        row(START + 6, &[("temp", "10.0")]),
    ];
    assert_eq!(seen(&server, "m,s=b"), [moved, later.to_vec()].concat());
    assert_eq!(resolve(&server, "float", false), (0, 3));
    // And back: the way of a mistake.
    assert_eq!(resolve(&server, "string", false).1, 0);
    assert_eq!(mean(&server), None);
    assert_eq!(resolve(&server, "float", false).1, 2);
    assert_eq!(mean(&server), Some(38.0 / 5.0));
    server.stop();
}

/// A value in a field that lets no number in is put right where values of other types are rejected, too.
#[test]
fn a_field_gets_another_type_where_other_types_are_rejected() {
    let server = Launch::embedded().start();
    write(&server, "m temp=\"err\" 1717200000", 204);
    write(&server, "m temp=5 1717200001", 400);
    assert_eq!(resolve(&server, "float", false), (0, 1));
    write(&server, "m temp=5 1717200001", 204);
    let expected = [row(START, &[("temp@string", "err")]), row(START + 1, &[("temp", "5.0")])];
    assert_eq!(seen(&server, "m"), expected);
}

/// An instance that knew a sensor before another one converted its field must go by the new type soon.
#[test]
fn another_instance_learns_of_the_new_type() {
    let store = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(store).config(format!("{CONFIG}[sensors]\nwrite_interval = \"50ms\"\n"));
    let (one, other) = (launch.clone().start(), launch.start());
    write(&one, "m temp=\"err\" 1717200000", 204);
    flush(&one);
    write(&other, "m temp=5 1717200001", 204);
    flush(&other);
    assert_eq!(resolve(&one, "float", false), (1, 1));
    let mut time = START + 2;
    eventually("a number is no value of another type there", WITHIN, || {
        time += 1;
        let told = write(&other, &format!("m temp=6 {time}"), 204);
        flush(&other);
        told.is_none().then_some(())
    });
    flush(&one);
    resolve(&one, "float", false);
    let all = seen(&one, "m");
    assert_eq!(all[0], row(START, &[("temp@string", "err")]));
    assert!(all[1..].iter().all(|(_, fields)| fields.keys().eq(["temp"])), "{all:?}");
    eventually("both see the same", WITHIN, || (seen(&other, "m") == all).then_some(()));
}

/// The notice was missing where the answer was empty, counted fields as if they were sensors, and stayed when nothing was left beside the
/// field.
#[test]
fn a_notice_tells_of_what_is_there() {
    let server = Launch::embedded().config(KEEP).start();
    write(&server, "m,s=a temp=1 1717200000\nm,s=b temp=1 1717200000\nm,s=b temp=\"x\" 1717200010", 204);
    write(&server, "m,s=a temp=\"2\" 1717200001\nm,s=a temp=true 1717200002", 204);
    let of_influx = |condition: &str| -> Vec<String> {
        let q = format!("SELECT temp FROM m WHERE {condition}").replace(' ', "%20").replace('>', "%3E");
        let answer = get(&server.url(&format!("/query?db=d&q={q}"))).expect(200).json();
        let told = answer["results"][0]["messages"].as_array().cloned().unwrap_or_default();
        told.iter().map(|one| one["text"].as_str().expect("a text").to_owned()).collect()
    };
    let of_native = |range: &str| -> Vec<String> {
        let path = format!("/api/v1/readings?db=d&measurement=m&fields=temp&{range}");
        let told = get(&server.url(&path)).expect(200).json()["notices"].clone();
        told.as_array().into_iter().flatten().map(|one| one.as_str().expect("a text").to_owned()).collect()
    };
    let both = of_influx("time > 0");
    assert!(both.len() == 1 && both[0].contains("of 2 sensors"), "{both:?}");
    assert_eq!(of_native(""), both);
    // Of the time asked for only; and where there is no answer.
    let one = of_influx("time > 1717200005s");
    assert!(one.len() == 1 && one[0].contains("of 1 sensor ") && one[0].contains("\"temp@string\""), "{one:?}");
    assert_eq!(of_native("from=1717200005"), one);
    assert_eq!(of_influx("time > 1717200020s"), [""; 0]);
    post(&server.url("/query?db=d&q=DELETE+FROM+m+WHERE+time+%3E+1717200005s"), "", &[]).expect(200);
    assert_eq!(resolve(&server, "float", false), (2, 0));
    assert_eq!((of_influx("time > 0"), of_native("")), (vec![], vec![]));
}
