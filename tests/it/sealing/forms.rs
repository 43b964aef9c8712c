//! `seal.form`: packed days, days in columns, and databases that are not sealed.

use super::decoder::documents;
use super::{MINUTES, PAGES, SEALS, START, await_sealed, compare, line};
use crate::support::jobs;
use crate::support::prelude::*;

fn choose(server: &Server, database: &str, form: &str) {
    let body = format!("{{\"seal_form\":\"{form}\"}}");
    let path = server.url(&format!("/api/v1/databases/{database}"));
    let answer = request("PATCH", &path, body.as_bytes(), &[]).expect("an answer").expect(200).json();
    assert_eq!((&answer["seal_form"], &answer["sealed_as"]), (&json!(form), &json!(form)), "{answer}");
}

fn write_to_all(servers: &[&Server], database: &str, lines: &str) {
    for server in servers {
        post(&server.url(&format!("/write?db={database}&precision=s")), lines, &[]).expect(204);
        flush(server);
    }
}

/// Returns the values of `line` at a minute, as stored in a document.
fn stored_values(minute: i64) -> [Bson; 4] {
    let value = minute * 7 % 101;
    let number = |rest: f64| Bson::Double(f64::from(i32::try_from(value).expect("small")) + rest);
    let null = Bson::Null;
    let hum = Bson::Int64(value);
    match value % 4 {
        0 => [number(0.25), null.clone(), null.clone(), null],
        1 => [null.clone(), hum, null.clone(), null],
        2 => [number(0.5), hum, Bson::Boolean(true), null],
        _ => [number(0.0), null.clone(), null, Bson::String(format!("n{value}"))],
    }
}

/// Compares a plain day with the written readings; returns their number.
fn check_plain(day: &Document) -> usize {
    let readings = day.get_array("readings").expect("readings");
    for reading in readings {
        let reading = reading.as_document().expect("a reading");
        let seconds = reading.get_datetime("ts").expect("a time").timestamp_millis() / 1000;
        let found = ["temp", "hum", "ok", "note"].map(|name| reading.get(name).cloned().unwrap_or(Bson::Null));
        assert_eq!(found, stored_values((seconds - i64::try_from(START).expect("a time")) / 60), "{reading}");
    }
    assert!(!day.contains_key("hours") && !day.get_document("day").expect("a summary").is_empty(), "{day}");
    readings.len()
}

/// Compares a day, read as in `mongosh`, with the written readings; returns their number.
fn check_readable(day: &Document) -> usize {
    if day.get_str("form").ok() == Some("plain") {
        return check_plain(day);
    }
    assert_eq!(day.get_str("form").ok(), Some("columns"));
    let readings = day.get_document("columns").expect("columns");
    let offsets = readings.get_array("at").expect("times");
    let fields = readings.get_document("fields").expect("fields");
    for (place, offsets) in offsets.iter().enumerate() {
        let seconds = offsets.as_datetime().expect("a date").timestamp_millis() / 1000;
        let found = ["temp", "hum", "ok", "note"]
            .map(|name| fields.get_array(name).map_or(Bson::Null, |cells| cells[place].clone()));
        assert_eq!(found, stored_values((seconds - i64::try_from(START).expect("a time")) / 60), "{offsets}");
    }
    offsets.len()
}

#[test]
fn column_days_are_set_per_database_and_all_forms_answer_alike() {
    let name = fresh_database_name();
    let sealing = Launch::with_store(mongod().uri(&name)).config(format!("{PAGES}{SEALS}")).start();
    let plain = Launch::embedded().config(PAGES).start();
    choose(&sealing, "d", "columns");
    for sensor in 0..3 {
        let step = if sensor == 2 { 400 } else { 1 };
        let lines = (0..MINUTES).step_by(step).map(|minute| line(sensor, minute, minute * 7 % 101));
        write_to_all(&[&sealing, &plain], "d", &lines.collect::<String>());
    }
    await_sealed(&sealing);
    compare(&sealing, &plain, "in columns");
    let days = documents(&name, "d.days");
    assert_eq!(days.len(), 9);
    let in_all: usize = days.iter().map(check_readable).sum();
    assert_eq!(in_all as u64, 2 * MINUTES + MINUTES.div_ceil(400));

    // New days have the chosen form; the others stay.
    choose(&sealing, "d", "packed");
    write_to_all(&[&sealing, &plain], "d", &line(0, 77, 50));
    let is_packed =
        |day: &&Document| day.get_binary_generic("sealed").is_ok() && day.get_str("form").ok() == Some("packed");
    let packed = || documents(&name, "d.days").iter().filter(is_packed).count();
    wait_until("one is packed", || packed() == 1);
    compare(&sealing, &plain, "one of them packed");
    // A deletion writes days, too.
    choose(&sealing, "d", "columns");
    let statement = format!("DELETE FROM climate WHERE time >= {}s AND time < {}s", START + 4000, START + 9000);
    for server in [&sealing, &plain] {
        execute(server, "d", &statement);
    }
    wait_until("none is packed", || packed() == 0);
    compare(&sealing, &plain, "after a deletion");
    verify(&mongod().uri(&name), &sealing.data_dir(), &[]).expect_success();
}

#[test]
fn an_unsealed_database_keeps_its_hour_pages() {
    let name = fresh_database_name();
    let server = Launch::with_store(mongod().uri(&name)).config(format!("{PAGES}{SEALS}")).start();
    choose(&server, "o", "off");
    let lines: String = (0..1440).map(|minute| line(0, minute, minute * 7 % 101)).collect();
    write_to_all(&[&server], "o", &lines);
    write_to_all(&[&server], "d", &lines);
    let round = jobs::seal(&server);
    let [days, off] = ["days", "databases_off"].map(|figure| &round["progress"][figure]);
    assert_eq!((days, off, &round["left"]), (&json!(1), &json!(1), &json!(0)), "{round}");
    let count = |collection: &str| documents(&name, collection).len();
    assert_eq!((count("d.days"), count("d.buckets"), count("o.days"), count("o.buckets")), (1, 0, 0, 24));
    let output = hourglass(&["job", "run", "seal", "--server", &server.url("")]).expect_success().stdout;
    assert!(output.contains("databases_off 1"), "{output}");
    let ask = |database: &str| server.fetch(&format!("/api/v1/summary?db={database}&sensor=climate,s=0&step=1h"));
    assert_eq!(ask("o"), ask("d"));

    // Off and on again: sealed days stay, and later readings stay beside them.
    choose(&server, "o", "columns");
    let days = || documents(&name, "o.days").iter().filter(|day| day.get_str("form").ok() == Some("columns")).count();
    wait_until("it is sealed", || days() == 1 && count("o.buckets") == 0);
    assert_eq!(ask("o"), ask("d"));
    choose(&server, "o", "off");
    for database in ["o", "d"] {
        write_to_all(&[&server], database, &line(0, 77, 50));
    }
    wait_until("the other one is sealed", || count("d.buckets") == 0);
    ask_job(&server, "seal").expect(200);
    assert_eq!((days(), count("o.days"), count("o.buckets")), (1, 1, 1));
    assert_eq!(ask("o"), ask("d"));
}

/// Regression: summaries covered only numbers, so days of other fields showed nothing in `mongosh`.
#[test]
fn other_fields_have_counts_first_and_last() {
    let name = fresh_database_name();
    let server = Launch::with_store(mongod().uri(&name)).config(format!("{PAGES}{SEALS}")).start();
    let line = |minute: u64| {
        let note = if minute < 10 { String::new() } else { format!(",note=\"m{minute}\"") };
        format!("door temp=1,open={}{note},long=\"{}\" {}\n", minute % 60 > 30, "x".repeat(257), START + minute * 60)
    };
    write_to_all(&[&server], "d", &(0..90).map(line).collect::<String>());
    let sealed = || {
        ask_job(&server, "seal").expect(200);
        documents(&name, "d.days").into_iter().find(|day| !day.contains_key("chunk"))
    };
    let day = poll(TIMEOUT, sealed).unwrap_or_else(|| panic!("{}", server.stderr()));
    let of_day = day.get_document("day").expect("a day");
    assert_eq!(of_day.get_document("open").unwrap(), &doc! { "count": 90, "first": false, "last": false });
    assert_eq!(of_day.get_document("note").unwrap(), &doc! { "count": 80, "first": "m10", "last": "m89" });
    assert_eq!(of_day.get_document("long").unwrap(), &doc! { "count": 90, "first": Bson::Null, "last": Bson::Null });
    let others = day.get_document("hours").unwrap().get_document("others").expect("fields without numbers");
    let open = doc! { "count": [60, 30], "first": [false, false], "last": [true, false] };
    assert_eq!(others.get_document("open").unwrap(), &open);
    let note = doc! { "count": [50, 30], "first": ["m10", "m60"], "last": ["m59", "m89"] };
    assert_eq!(others.get_document("note").unwrap(), &note);
    assert_eq!(others.len(), 3, "{others}");
}
