//! Parts of summaries add up to the whole answer; `top` and `bottom` choose series by a plain model.

use super::{SUMMARY, start, summary};
use crate::support::prelude::*;

const FROM: i64 = START - START % DAY;

/// Readings by sensor key. Sensors have different tags, so that the order of keys is not that of series.
fn readings() -> BTreeMap<&'static str, Vec<(i64, f64)>> {
    let mut random = Random::new(seed());
    let keys =
        ["m", "m,a=1", "m,a=1,b=x", "m,a=1\\,0", "m,b=x", "m,b=y", "m2,b=y", "m,a=2,c=\u{fc}", "late,b=x", "empty,b=x"];
    let mut readings = BTreeMap::new();
    for (place, key) in keys.into_iter().enumerate() {
        let mut of_sensor = Vec::new();
        let mut time = FROM + if place == 8 { 20 * HOUR } else { place as i64 };
        while time < FROM + DAY && place < 9 {
            of_sensor.push((time, random.below(1_000) as f64 / 4.0));
            time += (1 + random.below(40)) * MINUTE + if random.once_in(15) { 3 * HOUR } else { 0 };
        }
        readings.insert(key, of_sensor);
    }
    readings.insert("empty,b=x", vec![(FROM - 40 * DAY, 1.0)]);
    readings
}

/// Returns the windows of all series in the order of the answer.
fn rows(answer: &Value) -> Vec<(Value, Value)> {
    let series = answer["series"].as_array().expect("series").iter();
    let of_series = |one: &Value| {
        let name = json!([one["sensor"], one["measurement"], one["tags"]]);
        one["windows"]
            .as_array()
            .expect("windows")
            .iter()
            .map(|window| (name.clone(), window.clone()))
            .collect::<Vec<_>>()
    };
    series.flat_map(of_series).collect()
}

fn fetch(server: &Server, asked: &str) -> Value {
    server.fetch(&format!("{SUMMARY}{asked}"))
}

/// Returns the parts of an answer.
fn parts(server: &Server, asked: &str, limit: usize) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut cursor = String::new();
    loop {
        let part = fetch(server, &format!("{asked}&limit={limit}{cursor}"));
        let next = part["next"].as_str().map(str::to_owned);
        parts.push(part);
        let Some(next) = next else { return parts };
        cursor = format!("&cursor={next}");
        assert!(parts.len() < 2_000, "{asked}: no end");
    }
}

tests! {
    fn parts_add_up_to_the_whole_embedded() => parts_add_up_to_the_whole(&stores()[0]);
    fn parts_add_up_to_the_whole_in_mongodb() => parts_add_up_to_the_whole(&stores()[1]);
}

fn parts_add_up_to_the_whole(store: &str) {
    let server = Launch::with_store(store).start();
    let readings = readings();
    let line = |key: &str, (time, value): &(i64, f64)| format!("{key} v={value},w={}i {time}\n", i64::MAX - 5);
    let lines = readings.iter().flat_map(|(key, readings)| readings.iter().map(move |reading| line(key, reading)));
    write_to(&server, "db=d&precision=ns", lines.collect::<String>());
    flush(&server);
    let range = format!("from={FROM}&to={}", FROM + DAY);
    let late = format!("from={}&to={}", FROM + 5 * HOUR + 3, FROM + DAY - 1);
    for (asked, limits) in [
        (format!("measurement=m&step=10m&{range}"), &[3, 50, 100_000][..]),
        (format!("measurement=m&step=1h&{late}&agg=count,sum,rate,moving_average(avg,3)"), &[1, 17]),
        (format!("tag.b=~.&step=1h&{range}&fill=previous"), &[7, 24, 25]),
        (format!("tag.b=~.&step=10m&{range}&fill=null&agg=max"), &[100]),
        ("measurement=m&step=1h&agg=last,sum".to_owned(), &[9]),
        ("tag.b=~.&step=1h&group_by=b".to_owned(), &[9]),
        (format!("measurement=m&step=1h&{range}&group_by=c,a&agg=sum"), &[5]),
        (format!("measurement=m&step=1d&{range}&group_by=*"), &[1]),
        (format!("measurement=m&step=1s&{range}&agg=avg"), &[10]),
        (format!("sensor=m,a=1&step=1h&{late}"), &[4]),
        ("measurement=empty&step=1h".to_owned(), &[4]),
    ] {
        let whole = fetch(&server, &asked);
        assert_eq!(whole["next"], Value::Null);
        for limit in limits {
            let parts = parts(&server, &asked, *limit);
            let added: Vec<(Value, Value)> = parts.iter().flat_map(rows).collect();
            assert_eq!(added, rows(&whole), "{asked}, {limit}");
            for part in &parts[..parts.len() - 1] {
                assert_eq!(rows(part).len(), *limit, "{asked}: only the last part is short");
            }
        }
    }
    tables_have_the_same_columns(&server, &range);
    cursors_are_checked(&server, &range);
    best_series_come_first(&server, &readings, &range);
}

fn tables_have_the_same_columns(server: &Server, range: &str) {
    let url = |more: &str| server.url(&format!("{SUMMARY}measurement=m&step=1h&{range}&format=csv{more}"));
    let whole = get(&url("")).expect(200).text().to_owned();
    let mut added = String::new();
    let mut cursor = String::new();
    loop {
        let part = get(&url(&format!("&limit=10{cursor}"))).expect(200);
        let (head, rest) = part.text().split_once("\r\n").expect("a head");
        if added.is_empty() {
            added = format!("{head}\r\n");
        }
        assert!(added.starts_with(&format!("{head}\r\n")), "{head}");
        added.push_str(rest);
        let Some(next) = part.header("x-next-cursor") else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(added, whole);
}

fn cursors_are_checked(server: &Server, range: &str) {
    let asked = format!("{SUMMARY}measurement=m&step=1h&{range}");
    for bad in ["1", "zz", "0.bQ", "-1"] {
        let answer = get(&server.url(&format!("{asked}&cursor={bad}"))).expect(400);
        assert!(answer.text().contains("parameter cursor"), "{}", answer.text());
    }
    get(&server.url(&format!("{asked}&limit=0"))).expect(400);
    get(&server.url(&format!("{asked}&limit=1&top=1&fields=v&agg=max"))).expect(400);
    get(&server.url(&format!("{asked}&top=1"))).expect(400);
    get(&server.url(&format!("{asked}&top=1&bottom=1&fields=v&agg=max"))).expect(400);
    // The series of a cursor may have gone: the next one follows.
    let first = fetch(server, &format!("measurement=m&step=1d&{range}&limit=2"));
    let next = first["next"].as_str().expect("a cursor");
    let before = fetch(server, &format!("measurement=m&step=1d&{range}&limit=2&cursor={next}"));
    let gone = before["series"][0]["sensor"].as_str().expect("a sensor").to_owned();
    let (measurement, tags) = gone.split_once(',').expect("tags");
    let tags: Vec<String> = tags.split(',').map(|tag| tag.replace('=', "='") + "'").collect();
    execute(server, "d", &format!("DROP SERIES FROM {measurement} WHERE {}", tags.join(" AND ")));
    let after = fetch(server, &format!("measurement=m&step=1d&{range}&cursor={next}"));
    assert!(!rows(&after).is_empty() && !after.to_string().contains(&format!("\"{gone}\"")), "{after}");
    let known: BTreeSet<String> = rows(&first).iter().map(|(name, _)| name.to_string()).collect();
    assert!(rows(&after).iter().all(|(name, _)| !known.contains(&name.to_string())), "{after}");
}

fn best_series_come_first(server: &Server, readings: &BTreeMap<&'static str, Vec<(i64, f64)>>, range: &str) {
    let whole = fetch(server, &format!("tag.b=~.&step=1d&{range}&fields=v&agg=count"));
    let present: BTreeSet<String> =
        rows(&whole).iter().map(|(name, _)| name[0].as_str().expect("a key").to_owned()).collect();
    for (name, is_top, count) in
        [("max", true, 2), ("max", false, 2), ("count", true, 3), ("last", false, 1), ("max", true, 9)]
    {
        let value = |readings: &Vec<(i64, f64)>| match name {
            "max" => readings.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max),
            "count" => readings.len() as f64,
            _ => readings[readings.len() - 1].1,
        };
        let mut ranked: Vec<(f64, &str)> = readings
            .iter()
            .filter(|(key, of_sensor)| present.contains(**key) && of_sensor[0].0 >= FROM)
            .map(|(key, of_sensor)| (value(of_sensor), *key))
            .collect();
        ranked.sort_by(|a, b| if is_top { b.0.total_cmp(&a.0) } else { a.0.total_cmp(&b.0) });
        ranked.truncate(count);
        let parameter = if is_top { "top" } else { "bottom" };
        let function = if name == "last" { "difference(last)" } else { name };
        let answer =
            fetch(server, &format!("tag.b=~.&step=1h&{range}&fields=v&agg={function},avg&{parameter}={count}"));
        let found: Vec<&str> = answer["series"]
            .as_array()
            .expect("series")
            .iter()
            .map(|one| one["sensor"].as_str().expect("a key"))
            .collect();
        let expected: Vec<&str> = ranked.iter().map(|(_, key)| *key).collect();
        assert_eq!(found, expected, "{name} {parameter}");
        // The windows are those of the whole answer.
        let all = summary(server, &format!("tag.b=~.&step=1h&{range}&fields=v&agg={function},avg"));
        for series in answer["series"].as_array().expect("series") {
            assert_eq!(series["windows"].as_array(), Some(&all[series["sensor"].as_str().expect("a key")]));
        }
    }
    // Groups are ranked, too.
    let answer = fetch(server, &format!("tag.b=~.&step=1d&{range}&fields=v&agg=count&group_by=b&top=1"));
    let counts = fetch(server, &format!("tag.b=~.&step=1d&{range}&fields=v&agg=count&group_by=b"));
    let best =
        rows(&counts).into_iter().max_by_key(|(_, window)| window["fields"]["v"]["count"].as_i64()).expect("a row");
    assert_eq!(rows(&answer), [best]);
    assert_eq!(start(&rows(&answer)[0].1), FROM);
}
