//! Queries of many sensors against a plain map: late readings, overwrites, overflow, half flushed; random parameters.
//! Some repeat after each change, to test caches.

mod remembered;

use jiff::tz::TimeZone;

use crate::support::prelude::*;

/// 2026-03-27T00:00:00Z: two days before clocks are set forward in Berlin.
const START: i64 = 1_774_569_600 * SECOND;
const DAYS: i64 = 5;
/// Small pages, so that hours have several.
const CONFIG: &str = "[page]\nmax_readings = 20\n";
/// Site and room; the last sensor has no room.
const SENSORS: [(&str, &str); 6] = [("a", "r1"), ("a", "r2"), ("b", "r1"), ("b", "r17"), ("c", "x"), ("c", "")];
const LINES: i64 = 400;
const QUESTIONS: usize = 40;
/// Queries that are repeated before and after every change.
const KEPT: usize = 15;
/// Aggregates that summaries answer for several sensors, for one sensor only, and that need readings.
const SUMMARIZED: &str = "count,min,max,sum,avg";
const WITH_ENDS: &str = "count,max,avg,first,last";
const ALL: &str = "count,min,max,sum,avg,first,last,stddev,median,p50";

type Fields = BTreeMap<&'static str, f64>;
type Tags = Vec<(String, String)>;
/// Readings by their group tags.
type Groups<'a> = BTreeMap<Tags, Vec<(i64, &'a Fields)>>;

#[derive(Default)]
struct Model {
    /// Readings by time, per sensor.
    readings: Vec<BTreeMap<i64, Fields>>,
}

tests! {
    fn windows_of_many_sensors_agree_with_a_plain_map_in_the_embedded_store() =>
        compare_with_model(&Launch::embedded().config(CONFIG).start(), 1);
    fn windows_of_many_sensors_agree_with_a_plain_map_in_mongodb() =>
        compare_with_model(&Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG).start(), 2);
}

#[track_caller]
fn compare_with_model(server: &Server, seed: u64) {
    let mut random = Random::new(seed);
    let mut model = Model { readings: vec![BTreeMap::new(); SENSORS.len()] };
    let kept: Vec<Question> = (0..KEPT).map(|_| Question::of_summaries(&mut random)).collect();
    let ask_again = |model: &Model| {
        kept.iter().for_each(|question| model.check_windows(server, question));
        model.check_hours_of_each(server);
    };
    for round in 0..scaled(2, 12) {
        post(&server.url("/write?db=many"), model.write(&mut random), &[]).expect(204);
        ask_again(&model);
        if round % 2 == 0 {
            flush(server);
            ask_again(&model);
        }
        for _ in 0..QUESTIONS {
            model.check_windows(server, &Question::any(&mut random));
        }
        model.check_readings(server, &mut random);
        check_charts(&model, server);
    }
}

impl Model {
    /// Generates lines at random times, some of them overwriting readings.
    fn write(&mut self, random: &mut Random) -> String {
        let mut lines = String::new();
        for _ in 0..LINES {
            let number = random.pick(&[0, 1, 2, 3, 4, 5]);
            let time = match self.readings[number].keys().next_back() {
                Some(last) if random.once_in(3) => *last,
                // Many of them in a few hours, so that these have several pages.
                _ if random.once_in(2) => START + random.below(3) * DAY + random.below(2 * HOUR / SECOND) * SECOND,
                _ => START + random.below(DAYS * DAY / SECOND) * SECOND,
            };
            let reading = self.readings[number].entry(time).or_default();
            let mut fields = Vec::new();
            for field in random.pick(&[vec!["v"], vec!["w"], vec!["v", "w"]]) {
                let value = random.below(1000) as f64 / 8.0 - 40.0;
                reading.insert(field, value);
                fields.push(format!("{field}={value}"));
            }
            let _ = writeln!(lines, "{} {} {time}", key(number), fields.join(","));
        }
        lines
    }

    /// Returns the readings of a query's groups, by tags.
    fn groups(&self, question: &Question) -> Groups<'_> {
        let mut groups = Groups::new();
        for (number, readings) in self.readings.iter().enumerate().filter(|(number, _)| question.wants(*number)) {
            let tags = tags(number).into_iter().filter(|(tag, _)| question.groups(tag)).collect();
            let in_range = readings.range(question.range.clone()).map(|(time, fields)| (*time, fields));
            groups.entry(tags).or_default().extend(in_range);
        }
        groups
    }

    #[track_caller]
    fn check_windows(&self, server: &Server, question: &Question) {
        let answer = server.fetch(&question.path());
        let mut found: BTreeMap<Tags, BTreeMap<i64, Value>> = BTreeMap::new();
        for series in answer["series"].as_array().expect("series") {
            let tags = series["tags"].as_object().expect("tags").iter();
            let tags = tags.map(|(key, value)| (key.clone(), value.as_str().expect("text").to_owned())).collect();
            let windows = series["windows"].as_array().expect("windows").iter();
            let windows = windows.map(|window| (window["start"].as_i64().expect("a time"), window["fields"].clone()));
            assert!(found.insert(tags, windows.collect()).is_none(), "a series twice: {answer}");
        }
        let mut expected: BTreeMap<Tags, BTreeMap<i64, Fields>> = BTreeMap::new();
        for (tags, mut readings) in self.groups(question) {
            readings.sort_by_key(|(time, _)| *time);
            let windows = question.windows(&readings);
            if !windows.is_empty() {
                expected.insert(tags, windows);
            }
        }
        let answered: BTreeSet<_> = found.keys().collect();
        assert_eq!(answered, expected.keys().collect(), "{question:?}");
        for (tags, windows) in &expected {
            let answered: Vec<&i64> = found[tags].keys().collect();
            assert_eq!(answered, windows.keys().collect::<Vec<_>>(), "{question:?} {tags:?}");
            for (start, values) in windows {
                for (name, value) in values.iter().filter(|(name, _)| question.agg.split(',').any(|agg| agg == **name))
                {
                    let answered = &found[tags][start]["v"][*name];
                    let near = match answered.as_f64() {
                        Some(answered) => (answered - value).abs() <= 1e-9 * value.abs().max(1.0),
                        None => value.is_nan(),
                    };
                    assert!(near, "{question:?} {tags:?} {start}: {name} is {answered}, not {value}");
                }
            }
        }
    }

    /// Compares windows of one sensor at a time, which are merged in another way.
    #[track_caller]
    fn check_hours_of_each(&self, server: &Server) {
        for (number, readings) in self.readings.iter().enumerate() {
            let key = key(number);
            let found = windows(server, "many", &key, Some((START, START + DAYS * DAY)), "1h");
            let mut hours: BTreeMap<i64, Vec<(i64, f64)>> = BTreeMap::new();
            for (time, fields) in readings {
                if let Some(value) = fields.get("v") {
                    hours.entry(time.div_euclid(HOUR) * HOUR).or_default().push((*time, *value));
                }
            }
            let answered = found.iter().filter_map(|(span, fields)| Some((span.0, fields.get("v")?)));
            let answered: Vec<(i64, u64, f64)> = answered
                .map(|(start, window)| (start, window.count, window.sum.get().parse().expect("a number")))
                .collect();
            // Eighths add up exactly.
            let sum = |values: &[(i64, f64)]| values.iter().map(|(_, value)| value).sum::<f64>();
            let expected = hours.iter().map(|(start, values)| (*start, values.len() as u64, sum(values)));
            assert_eq!(answered, expected.collect::<Vec<_>>(), "{key}");
        }
    }

    /// Compares all readings of a site's sensors, in parts and both orders, and of one sensor by key.
    #[track_caller]
    fn check_readings(&self, server: &Server, random: &mut Random) {
        let site = random.pick(&["a", "b", "c"]);
        let of_site: Vec<usize> = (0..SENSORS.len()).filter(|number| SENSORS[*number].0 == site).collect();
        for order in ["asc", "desc"] {
            let limit = random.pick(&[7, 100, 10_000]);
            let from = START + random.below(DAYS * 24) * HOUR + random.pick(&[0, 17 * SECOND]);
            let range = random.pick(&[i64::MIN..i64::MAX, from..from + DAY + 1]);
            let bounds = match range.start {
                i64::MIN => String::new(),
                from => format!("&precision=n&from={from}&to={}", range.end),
            };
            let chosen = |number: usize| (number, format!("sensor={}", encode(&key(number))));
            let (one, by_key) = chosen(random.pick(&of_site));
            for (numbers, choice) in [(of_site.clone(), format!("measurement=m&tag.site={site}")), (vec![one], by_key)]
            {
                let query = format!("{choice}&order={order}&limit={limit}{bounds}");
                let found = all_parts(server, &query, limit);
                let mut expected = BTreeMap::new();
                for number in numbers {
                    let readings = self.readings[number].range(range.clone());
                    let mut readings: Vec<Value> = readings.map(|(time, fields)| reading(*time, fields)).collect();
                    if order == "desc" {
                        readings.reverse();
                    }
                    if !readings.is_empty() {
                        expected.insert(key(number), readings);
                    }
                }
                assert_eq!(found, expected, "{query}");
            }
        }
    }
}

/// Compares charts of all sensors: few readings, all real, and no peak lost.
#[track_caller]
fn check_charts(model: &Model, server: &Server) {
    for (order, points_max) in [("asc", 10), ("desc", 50), ("asc", 100_000)] {
        let query = format!("measurement=m&max_points={points_max}&order={order}");
        let found = all_parts(server, &query, usize::MAX);
        for (number, readings) in model.readings.iter().enumerate().filter(|(_, readings)| !readings.is_empty()) {
            let mut shown = found[&key(number)].clone();
            if order == "desc" {
                shown.reverse();
            }
            assert!(shown.len() <= points_max, "{} of {points_max}", shown.len());
            let all: Vec<Value> = readings.iter().map(|(time, fields)| reading(*time, fields)).collect();
            if all.len() <= points_max {
                assert_eq!(shown, all, "{query}");
            }
            assert!(shown.is_sorted_by_key(|reading| reading["ts"].as_i64()), "{query}");
            assert!(shown.iter().all(|reading| all.contains(reading)), "{query}");
            for field in ["v", "w"] {
                let extremes = |readings: &[Value]| {
                    let values: Vec<f64> = readings.iter().filter_map(|reading| reading[field].as_f64()).collect();
                    [values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max)]
                };
                assert_eq!(extremes(&shown), extremes(&all), "{query} {field}");
            }
        }
    }
}

/// Returns readings by sensor, in the order of the answer's parts.
#[track_caller]
fn all_parts(server: &Server, query: &str, limit: usize) -> BTreeMap<String, Vec<Value>> {
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let answer = server.fetch(&format!("/api/v1/readings?db=many&epoch=ns&{query}{cursor}"));
        let mut count = 0;
        for series in answer["series"].as_array().expect("series") {
            let readings = series["readings"].as_array().expect("readings");
            count += readings.len();
            let sensor = series["sensor"].as_str().expect("a key").to_owned();
            if !readings.is_empty() {
                found.entry(sensor).or_default().extend(readings.iter().map(as_floats));
            }
        }
        assert!(count <= limit, "{count} readings: {query}");
        let Some(next) = answer["next"].as_str() else { return found };
        cursor = format!("&cursor={}", encode(next));
    }
}

fn reading(time: i64, fields: &Fields) -> Value {
    let mut reading = json!({"ts": time});
    for (name, value) in fields {
        reading[*name] = json!(value);
    }
    reading
}

/// Converts every field to a float, because whole numbers are written without a point.
fn as_floats(reading: &Value) -> Value {
    let field = |(name, value): (&String, &Value)| {
        let value = if name == "ts" { value.clone() } else { json!(value.as_f64()) };
        (name.clone(), value)
    };
    reading.as_object().expect("a reading").iter().map(field).collect()
}

#[derive(Debug)]
struct Question {
    range: Range<i64>,
    step: i64,
    /// Days of this zone; otherwise windows of UTC.
    zone: Option<&'static str>,
    filter: &'static str,
    group_by: &'static str,
    fill: &'static str,
    agg: &'static str,
}

impl Question {
    fn any(random: &mut Random) -> Question {
        let from = START + random.below(DAYS * 24) * HOUR + random.pick(&[0, 0, 17 * SECOND]);
        let span = random.pick(&[HOUR, 7 * HOUR, DAY, 4 * DAY]) + random.pick(&[0, 0, 90 * SECOND]);
        let zone = random.pick(&[None, None, Some("Europe/Berlin"), Some("America/New_York")]);
        let step = if zone.is_some() { DAY } else { random.pick(&[7 * 60 * SECOND, HOUR, 3 * HOUR, DAY]) };
        let filter =
            random.pick(&["", "&tag.site=a", "&tag.site!=a", "&tag.room=~^r1", "&tag.room!~^r1$", "&tag.room="]);
        let group_by = random.pick(&["none", "site", "*", "room,site"]);
        Question {
            range: from..from + span,
            step,
            zone,
            filter,
            group_by,
            fill: random.pick(&["none", "none", "null", "7"]),
            agg: random.pick(&[SUMMARIZED, WITH_ENDS, ALL]),
        }
    }

    /// Generates a query that summaries answer, except at its edges.
    fn of_summaries(random: &mut Random) -> Question {
        let question = Question::any(random);
        let step = question.step.max(HOUR);
        Question { step, agg: random.pick(&[SUMMARIZED, WITH_ENDS]), ..question }
    }

    fn path(&self) -> String {
        let Question { range, step, zone, filter, group_by, fill, agg } = self;
        let zone = zone.map(|zone| format!("&tz={zone}")).unwrap_or_default();
        let group_by = encode(group_by);
        format!(
            "/api/v1/summary?db=many&measurement=m{filter}&fields=v&from={}&to={}&precision=n&step={}s&epoch=ns{zone}\
             &group_by={group_by}&fill={fill}&agg={agg}",
            range.start,
            range.end,
            step / SECOND
        )
    }

    fn wants(&self, number: usize) -> bool {
        let (site, room) = SENSORS[number];
        match self.filter {
            "" => true,
            "&tag.site=a" => site == "a",
            "&tag.site!=a" => site != "a",
            "&tag.room=~^r1" => room.starts_with("r1"),
            "&tag.room!~^r1$" => room != "r1",
            _ => room.is_empty(),
        }
    }

    fn groups(&self, tag: &str) -> bool {
        match self.group_by {
            "none" => true,
            "*" => false,
            names => names.split(',').any(|name| name == tag),
        }
    }

    /// Returns the window of a time, in nanoseconds.
    fn window(&self, time: i64) -> Range<i64> {
        let Some(zone) = self.zone else {
            let start = time.div_euclid(self.step) * self.step;
            return start..start + self.step;
        };
        let instant = jiff::Timestamp::from_nanosecond(i128::from(time)).expect("a time");
        let day = instant.to_zoned(TimeZone::get(zone).expect("a zone")).start_of_day().expect("a day");
        let start_ns = |day: &jiff::Zoned| i64::try_from(day.timestamp().as_nanosecond()).expect("a time");
        start_ns(&day)..start_ns(&day.tomorrow().expect("a day behind"))
    }

    /// Returns the values of each window, by its shown start.
    fn windows(&self, readings: &[(i64, &Fields)]) -> BTreeMap<i64, Fields> {
        let values: Vec<(i64, f64)> =
            readings.iter().filter_map(|(time, fields)| Some((*time, *fields.get("v")?))).collect();
        let mut windows: BTreeMap<i64, Fields> = BTreeMap::new();
        if values.is_empty() {
            return windows;
        }
        let mut window = self.window(self.range.start);
        while window.start < self.range.end {
            let in_window: Vec<(i64, f64)> = values.iter().copied().filter(|(time, _)| window.contains(time)).collect();
            let shown = window.start.max(self.range.start);
            if !in_window.is_empty() {
                windows.insert(shown, figures(&in_window));
            } else if self.fill != "none" {
                let filler = if self.fill == "7" { 7.0 } else { f64::NAN };
                let mut figures: Fields = figures(&[(0, 0.0)]).into_keys().map(|name| (name, filler)).collect();
                if self.fill == "null" {
                    figures.insert("count", 0.0);
                }
                windows.insert(shown, figures);
            }
            window = self.window(window.end);
        }
        windows
    }
}

fn figures(values: &[(i64, f64)]) -> Fields {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let count = values.len();
    let sum: f64 = values.iter().map(|(_, value)| value).sum();
    let mean = sum / count as f64;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    let stddev = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { f64::NAN };
    let median = if count % 2 == 1 { sorted[count / 2] } else { (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0 };
    // Of values of several sensors at one time, the greatest.
    let greatest = |time: i64| values.iter().filter(|(t, _)| *t == time).map(|(_, v)| *v).fold(f64::MIN, f64::max);
    let first = greatest(values[0].0);
    let last = greatest(values[count - 1].0);
    let rank = (count as f64 * 0.5 + 0.5).floor() as usize;
    let figures = [
        ("count", count as f64),
        ("min", sorted[0]),
        ("max", sorted[count - 1]),
        ("sum", sum),
        ("avg", mean),
        ("first", first),
        ("last", last),
        ("stddev", stddev),
        ("median", median),
        ("p50", sorted[rank - 1]),
    ];
    figures.into_iter().collect()
}

fn tags(number: usize) -> Tags {
    let (site, room) = SENSORS[number];
    let tags = [("room", room), ("site", site)];
    tags.into_iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

fn key(number: usize) -> String {
    let tags: Vec<String> = tags(number).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("m,{}", tags.join(","))
}

#[test]
fn the_latest_readings_include_unflushed_ones() {
    let server = Launch::embedded().start();
    let write = |lines: &str| drop(post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204));
    write("m,s=1 v=1 1000\nm,s=2 v=2 9000\nm,s=3 v=3 5\nn,s=1 v=9 7");
    flush(&server);
    // A late one, a later one, and another field of the latest.
    write("m,s=1 v=4 999\nm,s=2 v=5 9001\nm,s=3 w=6 5");
    let latest = |query: &str| server.fetch(&format!("/api/v1/latest?db=d&epoch=s{query}"));
    let series = |key: &str, reading: Value| {
        let number = key.rsplit('=').next().expect("a number");
        json!({"sensor": key, "tags": {"s": number}, "readings": [reading]})
    };
    let [one, two, three] = [
        series("m,s=1", json!({"ts": 1000, "v": 1})),
        series("m,s=2", json!({"ts": 9001, "v": 5})),
        series("m,s=3", json!({"ts": 5, "v": 3, "w": 6})),
    ];
    assert_eq!(latest("&measurement=m"), json!({"series": [one, two, three], "next": null}));
    assert_eq!(latest("&tag.s=~[23]&measurement=m&limit=1"), json!({"series": [two], "next": "bSxzPTI"}));
    assert_eq!(latest("&tag.s=~[23]&measurement=m&limit=1&cursor=bSxzPTI"), json!({"series": [three], "next": null}));
    assert_eq!(latest("")["series"].as_array().expect("series").len(), 4);
}

#[test]
fn names_for_queries_are_listed() {
    let server = Launch::embedded().start();
    post(&server.url("/write?db=d"), "a,x=1,y=2 f=1,g=\"t\" 1\na,x=2 f=2 1\nb,x=1 h=true 1", &[]).expect(204);
    let list = |path: &str| server.fetch(path);
    let measurements = json!([{"measurement": "a", "sensors": 2}, {"measurement": "b", "sensors": 1}]);
    assert_eq!(list("/api/v1/measurements?db=d")["measurements"], measurements);
    let tags = json!([{"tag": "x", "values": 2, "sensors": 2}, {"tag": "y", "values": 1, "sensors": 1}]);
    assert_eq!(list("/api/v1/tags?db=d&measurement=a")["tags"], tags);
    let values = json!([{"value": "1", "sensors": 2}, {"value": "2", "sensors": 1}]);
    assert_eq!(list("/api/v1/tags/x?db=d")["values"], values);
    // Metadata is listed among tags on request; a tag of the same name wins.
    post(&server.url("/write?db=d"), "b,meta.site=tag h=true 1", &[]).expect(204);
    let lines = "{\"sensor\":\"a,x=1,y=2\",\"meta\":{\"site\":\"lab\",\"floor\":3}}\n{\"sensor\":\"a,x=2\",\"meta\":{\"site\":\"lab\"}}\n\
                {\"sensor\":\"b,meta.site=tag\",\"meta\":{\"site\":\"roof\"}}";
    post(&server.url("/api/v1/meta?db=d"), lines, &[("Content-Type", "application/x-ndjson")]).expect(200);
    let described = json!([{"tag": "meta.floor", "values": 1, "sensors": 1}, {"tag": "meta.site", "values": 1, "sensors": 2},
        {"tag": "x", "values": 2, "sensors": 2}, {"tag": "y", "values": 1, "sensors": 1}]);
    assert_eq!(list("/api/v1/tags?db=d&measurement=a&metadata=true")["tags"], described);
    assert_eq!(list("/api/v1/tags?db=d&measurement=a&metadata=false")["tags"], tags);
    let values = json!([{"value": "lab", "sensors": 2}, {"value": "tag", "sensors": 1}]);
    assert_eq!(list("/api/v1/tags/meta.site?db=d")["values"], values);
    assert_eq!(list("/api/v1/tags/meta.floor?db=d")["values"], json!([{"value": "3", "sensors": 1}]));
    let fields =
        json!([{"field": "f", "type": "number", "sensors": 1}, {"field": "g", "type": "string", "sensors": 1}]);
    assert_eq!(list("/api/v1/fields?db=d&tag.y=2")["fields"], fields);
    for (path, latest_rows) in [
        ("/api/v1/tags?tag.x=~[", "parameter tag.x: \"[\" is not a valid regex"),
        ("/api/v1/summary?measurement=a&agg=modus", "parameter agg: \"modus\" is not one of"),
        ("/api/v1/summary?measurement=a&tz=Mars/Olympus", "parameter tz: \"Mars/Olympus\" is not a time zone"),
        ("/api/v1/summary?measurement=a&fill=much", "parameter fill: \"much\" is not one of"),
        ("/api/v1/readings?measurement=a&sensor=a", "parameter sensor names one sensor"),
        ("/api/v1/readings?measurement=a&cursor=x", "parameter cursor: \"x\" is not of this range"),
        ("/api/v1/readings", "no sensors selected"),
    ] {
        let error = get(&server.url(path)).expect(400).json()["error"].as_str().expect("an error").to_owned();
        assert!(error.starts_with(latest_rows), "{path}: {error}");
    }
}
