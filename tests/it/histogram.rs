//! Counts of a field by range: the same by hour pages, sealed days, months and expired days, as from the readings.

use crate::support::prelude::*;

const BOUNDS: [f64; 3] = [10.0, 20.0, 30.0];

/// Small pages, so that some hours have several. Days are sealed on request, and no backfill is in chunks.
const CONFIG: &str = r#"
[page]
max_readings = 4
[flush]
interval = "200ms"
quiet = "50ms"
[sensors]
write_interval = "200ms"
[retention]
interval = "100ms"
[seal]
after = "0s"
direct_min = 0
[clock]
max_offset = "1s"
"#;

fn kinds(buckets: &str) -> String {
    format!("{CONFIG}[[kinds]]\nname = \"thermometer\"\nmeasurement = \"m\"\nbuckets = {{ temp = {buckets} }}\n")
}

/// The readings of a sensor by time.
type Model = BTreeMap<i64, f64>;

fn counts(bounds: &[f64], values: impl Iterator<Item = f64>) -> Vec<u64> {
    let mut counts = vec![0; bounds.len() + 1];
    values.for_each(|value| counts[bounds.iter().filter(|bound| **bound <= value).count()] += 1);
    counts
}

struct Case {
    server: Server,
    model: Model,
    from: i64,
    to: i64,
}

impl Case {
    fn write(&mut self, readings: impl Iterator<Item = (i64, f64)>) {
        let readings: Vec<(i64, f64)> = readings.collect();
        let lines: String =
            readings.iter().map(|(time, value)| format!("m,s=0 temp={value},note=\"x\" {time}\n")).collect();
        post(&self.server.url("/write?db=w"), lines, &[]).expect(204);
        self.model.extend(readings);
    }

    fn delete(&mut self, from: i64, to: i64) {
        execute(&self.server, "w", &format!("DELETE FROM m WHERE time >= {from} AND time < {to}"));
        self.model.retain(|time, _| !(from..to).contains(time));
    }

    fn ask(&self, more: &str) -> Value {
        let Self { from, to, .. } = self;
        self.server.fetch(&format!("/api/v1/histogram?db=w&sensor=m,s=0&field=temp&from={from}&to={to}&epoch=ns{more}"))
    }

    /// Compares the counts of the whole range, of days and of hours with those of the readings.
    #[track_caller]
    fn check(&self, bounds: &[f64], more: &str, when: &str) {
        for (step, length) in
            [("", self.to - self.from), ("&step=1d", DAY), ("&step=1h", HOUR), ("&step=90m", HOUR * 3 / 2)]
        {
            let answer = self.ask(&format!("{step}{more}"));
            assert_eq!(answer["bounds"], json!(bounds.iter().map(|bound| *bound as i64).collect::<Vec<_>>()), "{when}");
            let windows = answer["series"][0]["windows"].as_array().expect("windows");
            let mut left = self.model.len();
            for window in windows {
                let start = window["start"].as_i64().expect("a time");
                let start = if step.is_empty() { start } else { start.div_euclid(length) * length };
                let values: Vec<f64> = self.model.range(start..start + length).map(|(_, value)| *value).collect();
                let of_window = (&window["counts"], &window["unplaced"], &window["count"]);
                let expected = json!(counts(bounds, values.iter().copied()));
                assert_eq!(of_window, (&expected, &json!(0), &json!(values.len())), "{when}, {step}: {window}");
                left -= values.len();
            }
            assert_eq!(left, 0, "{when}, {step}");
        }
    }

    fn totals(&self) -> f64 {
        metric(&self.server, "hourglass_query_daily_totals_total")
    }

    fn documents(&self) -> String {
        let path = format!("/api/v1/documents?db=w&sensor=m,s=0&from={}&to={}&limit=100", self.from, self.to);
        get(&self.server.url(&path)).expect(200).text().to_owned()
    }
}

tests! {
    fn counts_stay_those_of_the_readings_embedded() => life_of_a_histogram("embedded".to_owned(), mongod().uri(&fresh_database_name()));
    fn counts_stay_those_of_the_readings_in_mongodb() => life_of_a_histogram(mongod().uri(&fresh_database_name()), "embedded".to_owned());
}

fn life_of_a_histogram(store: String, other_store: String) {
    let launch = |buckets: &str| Launch::with_store(store.clone()).config(kinds(buckets));
    // In months that are over.
    let from = (now().div_euclid(DAY) - 46) * DAY;
    let server = launch("[10, 20, 30]").start();
    let mut case = Case { server, model: Model::new(), from, to: from + 5 * DAY };
    let value = |number: i64| (number * 7 % 500) as f64 / 10.0 - 5.0;
    // Two dense days with hourly summaries, two days of few readings, and gaps.
    case.write((0..2 * 1440).filter(|n| n % 7 != 0).map(|n| (from + n * HOUR / 60, value(n))));
    case.write((0..48).map(|n| (from + 2 * DAY + n * HOUR + 5, value(n * 3))));
    case.check(&BOUNDS, "", "unflushed");
    flush(&case.server);
    case.check(&BOUNDS, "", "in pages");
    assert!(case.documents().contains("distribution"), "{}", case.documents());
    // Late readings, corrections and deletions.
    case.write((0..40).map(|n| (from + n * HOUR + 7, value(n * 11))));
    case.write((0..30).map(|n| (from + (n * 61 + 1) * HOUR / 60, value(n * 17))));
    flush(&case.server);
    case.check(&BOUNDS, "", "late");
    case.delete(from + 5 * HOUR + HOUR / 2, from + 7 * HOUR + HOUR / 4);
    case.check(&BOUNDS, "", "deleted");
    seal(&case.server);
    case.check(&BOUNDS, "", "sealed");
    wait_until("months answer", || {
        seal(&case.server);
        let before = case.totals();
        case.ask("&step=1d");
        case.totals() - before >= 4.0
    });
    case.check(&BOUNDS, "", "in months");
    assert!(case.documents().contains("distribution"), "{}", case.documents());
    // The same changes of sealed days.
    case.write((0..20).map(|n| (from + n * 2 * HOUR + 9, value(n * 13))));
    case.write((0..5).map(|n| (from + n * DAY / 2 + HOUR / 60, value(n * 19))));
    case.check(&BOUNDS, "", "late for sealed days");
    flush(&case.server);
    case.delete(from + DAY + HOUR, from + DAY + 2 * HOUR + HOUR / 2);
    seal(&case.server);
    case.check(&BOUNDS, "", "sealed again");
    // The same in chunks of days.
    case.server.kill();
    let chunks =
        kinds("[10, 20, 30]").replace("after = \"0s\"\ndirect_min = 0\n", "after = \"1s\"\ninterval = \"1h\"\n");
    case.server.restart_with(Launch::with_store(store.clone()).config(chunks));
    case.check(&BOUNDS, "", "after a kill");
    case.write((0..30).map(|n| (from + n * 2 * HOUR + 11, value(n * 23))));
    case.write((0..30).map(|n| (from + 4 * DAY + n * HOUR / 2, value(n * 29))));
    flush(&case.server);
    case.check(&BOUNDS, "", "in chunks");
    seal(&case.server);
    case.check(&BOUNDS, "", "sealed chunks");
    let [half, most] =
        ["50", "90"].map(|name| case.ask("&percentiles=50,90")["series"][0]["windows"][0]["percentiles"][name].clone());
    assert_eq!(half, json!({"approximate": true, "from": 10, "to": 20}));
    assert!(most["from"].as_i64() >= Some(30) && most["to"].is_null(), "{most}");
    // Other bounds count from the readings, and leave what is stored.
    let other = [0.0, 25.0];
    case.check(&other, "&bounds=0,25", "bounds of the request");
    assert!(case.server.stop().success());
    case.server.restart_as(launch("[0, 25]"));
    case.check(&other, "", "changed bounds");
    case.check(&BOUNDS, "&bounds=10,20,30", "the stored bounds");
    // The readings of the first days expire; their counts stay.
    case.server.set("w", r#"{"readings":"43d","summaries":"inf"}"#).expect(200);
    wait_until("the readings are gone", || {
        let shown = case.server.fetch("/api/v1/databases/w");
        !shown["expired_before"].is_null() && shown["expired_before"] == shown["removed_before"]
    });
    let expired = |case: &Case| {
        let Case { model, from, .. } = case;
        let values: Vec<f64> = model.range(*from..from + 2 * DAY).map(|(_, value)| *value).collect();
        let ask = |server: &Server, bounds: &str| {
            let path = format!("/api/v1/histogram?db=w&sensor=m,s=0&field=temp&from={from}&to={}", from + 2 * DAY);
            let mut answer = server.fetch(&format!("{path}{bounds}"));
            answer["series"][0]["windows"][0].take()
        };
        let kept = ask(&case.server, "&bounds=10,20,30");
        let expected = json!(counts(&BOUNDS, values.iter().copied()));
        assert_eq!((&kept["counts"], &kept["unplaced"]), (&expected, &json!(0)));
        let unplaced = ask(&case.server, "");
        assert_eq!((&unplaced["counts"], &unplaced["unplaced"]), (&json!([0, 0, 0]), &json!(values.len())));
    };
    expired(&case);
    // Regression: the notice about a part of an hour said that everything but count, sum and so on was without an answer.
    let part = format!("/api/v1/histogram?db=w&sensor=m,s=0&field=temp&from={}&to={}", case.from + 1, case.from + DAY);
    let answer = case.server.fetch(&part);
    assert!(answer["notices"].to_string().contains("for histograms, count"), "{answer}");
    case.server.kill_and_restart();
    expired(&case);
    // A copy in the other kind of store has them, too, and the same digest.
    assert!(case.server.stop().success());
    verify(&store, &case.server.data_dir(), &[]).expect_success();
    let folder = Folder::new("copied");
    let there = folder.file("there");
    let data = case.server.data_dir();
    let is_embedded = store == "embedded";
    let source = if is_embedded { path(&data) } else { &store };
    let target = if is_embedded { &*other_store } else { path(&there) };
    let mut arguments = vec!["backup", "copy", "--source", source, "--target", target];
    if !is_embedded {
        arguments.extend(["--data-dir", path(&data)]);
    }
    hourglass(&arguments).expect_success();
    let original = digest(&store, &data);
    let copied = digest(&other_store, if is_embedded { folder.path() } else { &there });
    assert_eq!(copied, original);
    let mut server = Launch::with_store(&other_store).config(kinds("[0, 25]")).start();
    if !is_embedded {
        assert!(server.stop().success());
        std::fs::remove_dir_all(server.data_dir()).expect("the folder exists");
        std::fs::rename(&there, server.data_dir()).expect("a folder can be moved");
        server.restart();
    }
    case.server = server;
    expired(&case);
}

#[test]
fn a_request_is_checked_and_needs_bounds() {
    let server = Launch::embedded().config(kinds("[10, 20]")).start();
    let lines =
        "m,s=0 temp=5,hum=1 1768435200000000000\nm,s=1 temp=15 1768435200000000000\nn,s=2 temp=5 1768435200000000000\n";
    post(&server.url("/write?db=w"), lines, &[]).expect(204);
    let ask = |query: &str| get(&server.url(&format!("/api/v1/histogram?db=w&{query}")));
    let all = ask("measurement=m&field=temp&group_by=*").expect(200).json();
    assert_eq!(all["series"][0]["windows"][0]["counts"], json!([1, 1, 0]), "{all}");
    let by_sensor = ask("measurement=m&field=temp").expect(200).json();
    assert_eq!(by_sensor["series"].as_array().map(Vec::len), Some(2), "{by_sensor}");
    for (query, why) in [
        ("measurement=m", "field is missing"),
        ("measurement=m&field=hum", "declares buckets"),
        ("measurement=n&field=temp", "declares buckets"),
        ("measurement=m&field=temp&bounds=2,1", "ascending"),
        ("measurement=m&field=temp&bounds=x", "not a number"),
        ("measurement=m&field=temp&percentiles=101", "0 to 100"),
        ("field=temp", "no sensors selected"),
    ] {
        let refused = ask(query).expect(400).text().to_owned();
        assert!(refused.contains(why), "{query}: {refused}");
    }
}

/// Regression: the range of a histogram's percentile was another one than that of the exact percentile, because one rank
/// was rounded up and the other one to the nearest.
#[test]
fn a_percentile_is_in_the_range_of_the_exact_one() {
    let server = Launch::embedded().start();
    // With 263 values, the 5th percentile is the 13th.
    write(&server, (0..263).map(|n| format!("m v={n} {}\n", START / SECOND + n)).collect::<String>());
    let exact = server.fetch("/api/v1/summary?db=d&measurement=m&agg=p5&step=7d");
    let counted = server.fetch("/api/v1/histogram?db=d&measurement=m&field=v&bounds=13,14&percentiles=5");
    assert_eq!(exact["series"][0]["windows"][0]["fields"]["v"]["p5"], 12, "{exact}");
    assert_eq!(counted["series"][0]["windows"][0]["percentiles"]["5"]["to"], 13, "{counted}");
}
