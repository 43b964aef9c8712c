//! Answers that were wrong once, on both stores.

use crate::support::prelude::*;

const DAYS: &str = "from=2026-10-24T22:00:00Z&to=2026-11-24T23:00:00Z&step=1d&tz=Europe/Berlin";

/// Starts a server for each store, writes these lines and flushes half of them.
fn servers(lines: &str) -> [Server; 2] {
    stores().map(|store| {
        let server = Launch::with_store(store).start();
        let all: Vec<&str> = lines.lines().collect();
        let (first, second) = all.split_at(all.len() / 2);
        write_to(&server, "db=d&precision=ns", first.join("\n"));
        flush(&server);
        write_to(&server, "db=d&precision=ns", second.join("\n"));
        server
    })
}

/// Returns the rows of each series of a statement's answer.
fn rows(server: &Server, statement: &str) -> Vec<Value> {
    let series = execute(server, "d", statement)["series"].as_array().cloned().unwrap_or_default();
    series.into_iter().map(|series| series["values"].clone()).collect()
}

/// Returns the cells of a column of the first series of a summary, window by window.
fn cells(server: &Server, parameters: &str, field: &str, function: &str) -> Vec<Value> {
    let answer = server.fetch(&format!("/api/v1/summary?db=d&measurement=m&{parameters}"));
    let windows = answer["series"][0]["windows"].as_array().unwrap_or_else(|| panic!("{answer}"));
    windows.iter().map(|window| window["fields"][field][function].clone()).collect()
}

/// The distance of two windows was counted in lengths of the first window, which has 25 hours where clocks change.
#[test]
fn a_linear_fill_counts_days_of_any_length() {
    let at = |text: &str| text.parse::<jiff::Timestamp>().expect("a time").as_nanosecond();
    let lines = format!("m t=0 {}\nm t=30 {}", at("2026-10-24T23:00:00Z"), at("2026-11-24T00:00:00Z"));
    for server in servers(&lines) {
        let expected: Vec<f64> = (0..=30).map(f64::from).collect();
        let near = |found: Vec<Value>| {
            let found: Vec<f64> = found.iter().map(|value| value.as_f64().expect("a number")).collect();
            let is_near = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-9);
            assert!(is_near && found.len() == expected.len(), "{found:?}");
        };
        near(cells(&server, &format!("{DAYS}&fill=linear&agg=avg"), "t", "avg"));
        let statement = "SELECT mean(t) FROM m WHERE time >= '2026-10-24T22:00:00Z' AND time < '2026-11-24T23:00:00Z' \
             GROUP BY time(1d) fill(linear) tz('Europe/Berlin')";
        near(rows(&server, statement)[0].as_array().expect("rows").iter().map(|row| row[1].clone()).collect());
    }
}

/// An absent tag was taken for a field without values as soon as a column named it, and a column of a subquery was not
/// found by `::tag`.
#[test]
fn conditions_name_absent_tags_and_columns_of_subqueries() {
    for server in servers("n c=1 1000000000\nn c=2 2000000000\nm,h=h1 i=1 1000000000\nm,h=h2 i=2 2000000000") {
        for condition in ["r != 'r1'", "r = ''", "r !~ /r1/", "r =~ /^$/"] {
            for source in ["n", "(SELECT c FROM n)"] {
                let found = rows(&server, &format!("SELECT c, r FROM {source} WHERE {condition}"));
                assert_eq!(found.len(), 1, "{source} {condition}");
                assert_eq!(found[0].as_array().map(Vec::len), Some(2), "{source} {condition}");
            }
        }
        assert!(rows(&server, "SELECT c, r FROM n WHERE r = 'r1'").is_empty());
        for condition in ["h::tag = 'h2'", "h = 'h2'", "h::tag =~ /2/"] {
            let found = rows(&server, &format!("SELECT i FROM (SELECT i, h FROM m) WHERE {condition}"));
            assert_eq!(found.len(), 1, "{condition}");
            assert_eq!(found[0][0][1], 2, "{condition}");
        }
    }
}

/// Cursors of CSV and NDJSON had the sensor key as UTF-8 in a header. Clients that read headers as Latin-1 sent another
/// key back, and got readings again.
#[test]
fn cursors_in_headers_are_ascii() {
    let lines = "n,dev=ü\\= v=1 1000000000\nn,dev=ü\\= v=2 2000000000\nn,dev=z v=3 3000000000";
    for server in servers(lines) {
        for path in ["/api/v1/readings", "/api/v1/latest"] {
            for format in ["csv", "ndjson"] {
                let mut cursor = String::new();
                let mut parts = Vec::new();
                while parts.len() < 4 {
                    let url = format!("{path}?db=d&measurement=n&limit=1&epoch=ns&format={format}{cursor}");
                    let answer = get(&server.url(&url)).expect(200);
                    parts.push(answer.text().lines().last().expect("a line").to_owned());
                    let Some(next) = answer.header("x-next-cursor") else { break };
                    assert!(next.is_ascii(), "{next}");
                    cursor = format!("&cursor={}", encode(next));
                }
                let distinct: BTreeSet<_> = parts.iter().collect();
                let expected = if path == "/api/v1/latest" { 2 } else { 3 };
                assert_eq!((parts.len(), distinct.len()), (expected, expected), "{path} {format}: {parts:?}");
            }
        }
        get(&server.url("/api/v1/readings?db=d&measurement=n&cursor=1.ü")).expect(400);
    }
}

/// `mode` and `distinct` compared the types and bits of numbers, and `max` compared integers as doubles.
#[test]
fn numbers_are_compared_by_their_amount() {
    let lines = "m,s=a f=1i 1000000000\nm,s=b f=1 2000000000\nm,s=a g=0 3000000000\nm,s=a g=-0.0 4000000000\n\
         m,s=a big=9007199254740993i 5000000000\nm,s=b big=1.5 6000000000";
    for server in servers(lines) {
        assert_eq!(rows(&server, "SELECT count(distinct(f)) FROM m")[0][0][1], 1);
        assert_eq!(rows(&server, "SELECT distinct(f) FROM m")[0].as_array().map(Vec::len), Some(1));
        assert_eq!(rows(&server, "SELECT count(distinct(g)) FROM m")[0][0][1], 1);
        let exact = 9_007_199_254_740_993_i64;
        assert_eq!(rows(&server, "SELECT max(big) FROM m")[0][0][1], exact);
        assert_eq!(cells(&server, "agg=max&group_by=*&step=1h", "big", "max"), [exact]);
        assert_eq!(rows(&server, "SELECT max(big) FROM m GROUP BY time(1h) fill(none)")[0][0][1], exact);
    }
}

/// A line between distant integers wrapped around. Without `from`, each column was filled from its own first window, and
/// a number was put into texts.
#[test]
fn fills_do_not_wrap_and_start_together() {
    let hour = |hour: i64| (1_768_485_600 + hour * 3600) * 1_000_000_000;
    let lines = format!(
        "m i={}i,a=1 {}\nm i={}i,b=2,t=\"x\" {}\nm a=3,b=4,t=\"y\" {}",
        -(1_i64 << 62),
        hour(0),
        i64::MAX,
        hour(2),
        hour(4)
    );
    for server in servers(&lines) {
        let filled = cells(&server, "agg=first&fields=i&fill=linear&step=1h&to=2026-01-15T19:00:00Z", "i", "first");
        assert_eq!(filled[1], 1_i64 << 61);
        let filled = |fill: &str, field: &str, function: &str| {
            cells(
                &server,
                &format!("agg=first,count&fields=a,b,t&step=1h&fill={fill}&to=2026-01-15T19:00:00Z"),
                field,
                function,
            )
        };
        assert_eq!(filled("0", "b", "first"), [json!(0), json!(0), json!(2), json!(0), json!(4)]);
        assert_eq!(filled("null", "b", "count"), [0, 0, 1, 0, 1]);
        assert_eq!(filled("0", "t", "first"), [json!(null), json!(null), json!("x"), json!(null), json!("y")]);
        assert_eq!(filled("previous", "b", "first"), [json!(null), json!(null), json!(2), json!(2), json!(4)]);
    }
}

/// A field called like a column of the answer was shown under another name, by which it could not be asked for.
#[test]
fn a_field_is_found_by_the_name_that_is_shown() {
    for server in servers("m ts=7,v=1 1000000000\nm ts=8,v=2 2000000000") {
        for name in ["ts", "%2574s"] {
            let answer = server.fetch(&format!("/api/v1/readings?db=d&sensor=m&epoch=s&fields={name}"));
            let readings = json!([{"ts": 1, "%74s": 7}, {"ts": 2, "%74s": 8}]);
            assert_eq!(answer["series"][0]["readings"], readings, "{name}: {answer}");
        }
        assert_eq!(cells(&server, "fields=%2574s&agg=sum&step=1h", "ts", "sum"), [15]);
    }
}

/// A sum beyond the range of doubles was null without a word.
#[test]
fn an_overflow_has_a_notice() {
    for server in servers("m v=1e308 1000000000\nm v=1e308 2000000000") {
        let notice = "a result is beyond the range of doubles and shown as null";
        let answer = server.fetch("/api/v1/summary?db=d&measurement=m&agg=sum,max");
        assert_eq!(answer["notices"], json!([notice]), "{answer}");
        let answer = get(&server.url("/query?db=d&q=SELECT+sum(v)+FROM+m")).expect(200);
        assert_eq!(answer.header("x-hourglass-notice"), Some(notice));
        let answer = server.fetch("/api/v1/summary?db=d&measurement=m&agg=max");
        assert_eq!(answer.get("notices"), None);
    }
}

/// Ordinary questions about many sensors were refused, because all windows of all sensors were in memory at once.
#[test]
fn many_series_fit_into_a_small_memory() {
    let config = "[query]\nbytes = \"16MiB\"\n";
    let server = Launch::embedded().config(config).start();
    let (sensors, hours) = (300, 48);
    for hour in 0..hours {
        let time = START + hour * HOUR;
        let line = |sensor: i64| {
            format!("m,s={sensor:03} v={sensor},w={hour} {time}\nm,s={sensor:03} v={hour} {}\n", time + MINUTE)
        };
        write_to(&server, "db=d&precision=ns", (0..sensors).map(line).collect::<String>());
    }
    let range = format!("from={START}&to={}", START + hours * HOUR);
    for question in [
        "step=1h&agg=avg",
        "step=1h&agg=count,min,max,sum,avg,first,last&fields=v",
        "step=1h&agg=avg,p95&fields=v",
        "step=1d&agg=p50,median,mode,stddev&fields=v",
    ] {
        let answer = get(&server.url(&format!("/api/v1/summary?db=d&measurement=m&format=csv&{range}&{question}")));
        let windows = if question.contains("1h") { hours } else { 3 };
        let text = answer.expect(200);
        assert_eq!(text.text().lines().count(), usize::try_from(1 + sensors * windows).unwrap(), "{question}");
    }
    let found =
        rows(&server, &format!("SELECT percentile(v, 50), integral(v, 1h) FROM m WHERE time >= {START} GROUP BY s"));
    assert_eq!(found.len(), usize::try_from(sensors).unwrap());
}

/// `LIMIT` and `last` read everything. They end where the first sensor has enough, so the others' readings must lie
/// wherever they like: earlier, later, in gaps, unflushed, beyond a condition.
#[test]
fn the_first_and_last_readings_are_those_of_all_sensors() {
    let mut random = Random::new(7);
    for store in stores() {
        let server = Launch::with_store(store).config("[page]\nmax_readings = 7\n").start();
        let mut model: Vec<(i64, i64, i64)> = Vec::new();
        for part in 0..3 {
            let mut lines = String::new();
            for sensor in 0..6_i64 {
                for _ in 0..40 {
                    // Sensor 3 begins days before the first one, sensor 4 ends long after it, sensor 5 is far away.
                    let far = [0, 0, 0, -50, 70, 4000][usize::try_from(sensor).unwrap()];
                    let hour = far + random.below(30) * random.below(4);
                    let time = START + hour * HOUR + random.below(3600) * SECOND + sensor;
                    let value = random.below(100);
                    model.retain(|(other, at, _)| (*other, *at) != (sensor, time));
                    model.push((sensor, time, value));
                    writeln!(lines, "m,s={sensor} v={value}i {time}").unwrap();
                }
            }
            write_to(&server, "db=d&precision=ns", &lines);
            if part < 2 {
                flush(&server);
            }
        }
        model.sort_by_key(|(_, time, _)| *time);
        for condition in ["v >= 0", "v > 50", "v > 90 AND s != '0'", "s =~ /[345]/", "time > 1768500000s AND v < 50"] {
            let holds = |(sensor, time, value): &&(i64, i64, i64)| match condition {
                "v >= 0" => true,
                "v > 50" => *value > 50,
                "v > 90 AND s != '0'" => *value > 90 && *sensor != 0,
                "s =~ /[345]/" => *sensor >= 3,
                _ => *time > 1_768_500_000 * SECOND && *value < 50,
            };
            let chosen: Vec<_> = model.iter().filter(holds).copied().collect();
            for sensor in [None, Some(0), Some(3), Some(5)] {
                let of_group: Vec<_> =
                    chosen.iter().filter(|(of, ..)| sensor.is_none_or(|sensor| *of == sensor)).collect();
                let pairs = |found: Vec<Value>| -> Vec<(i64, i64)> {
                    let rows = found.first().and_then(Value::as_array).cloned().unwrap_or_default();
                    rows.iter()
                        .map(|row| (row[0].as_i64().expect("a time"), row[1].as_i64().expect("a value")))
                        .collect()
                };
                let mut expected: Vec<(i64, i64)> = of_group.iter().map(|(_, time, value)| (*time, *value)).collect();
                let one = sensor.map_or(String::new(), |sensor| format!(" AND s = '{sensor}'"));
                for descending in [false, true] {
                    let order = if descending { "ORDER BY time DESC " } else { "" };
                    let ask = |column: &str, end: &str| {
                        let statement = encode(&format!("SELECT {column} FROM m WHERE {condition}{one} {end}"));
                        let answer = server.fetch(&format!("/query?db=d&epoch=ns&q={statement}"));
                        let series = answer["results"][0]["series"].as_array().cloned().unwrap_or_default();
                        pairs(series.into_iter().map(|series| series["values"].clone()).collect())
                    };
                    if descending {
                        expected.reverse();
                    }
                    let cut: Vec<_> = expected.iter().skip(3).take(9).copied().collect();
                    assert_eq!(ask("v", &format!("{order}LIMIT 9 OFFSET 3")), cut, "{condition}{one} {order}");
                    let end: Vec<_> = expected.first().copied().into_iter().collect();
                    assert_eq!(ask(if descending { "last(v)" } else { "first(v)" }, ""), end, "{condition}{one}");
                    expected.sort_unstable();
                }
            }
        }
    }
}
