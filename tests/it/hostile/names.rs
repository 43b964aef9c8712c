//! Special names of databases, languages and terminals, everywhere and on both stores, round-trip or are refused.

use crate::support::prelude::*;

use super::with_good_client;

/// Places of a name.
const PLACES: [&str; 4] = ["measurement", "tag key", "tag value", "field key"];

fn names() -> Vec<String> {
    let plain = "$ $where $set . .. a.b .a a. % %24 %2 _id __proto__ constructor ts ns %74s time sensor value \
                 system.buckets 🌡 e\u{301} \u{202e}rtl \u{feff}bom a,b a=b \"quoted\" ' a\\b <script> {{x}} \
                 ../../etc/passwd null 0 -1";
    let spaced = ["a b", "''; drop database"];
    let refused = ["", "\0", "nul\0inside", "a\nb", "a\rb", "\u{1b}[31m", "\u{7f}", "\u{85}", "ends in a backslash\\"];
    // Comments and measurements start a line.
    let plain = plain.split(' ').chain(spaced).chain(refused).chain(["#comment"]);
    let long = ["x".repeat(1024), "é".repeat(512), "x".repeat(1025), "🌡".repeat(1024)];
    plain.map(str::to_owned).chain(long).collect()
}

/// Returns true if the limits and the grammar allow a name in a place.
fn is_valid_name(name: &str, place: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= 1024 && !name.contains(char::is_control) && !name.ends_with('\\');
    fits && !(place == "measurement" && name.starts_with('#'))
}

tests! {
    fn names_round_trip_or_are_refused_in_the_embedded_store() => round_trips(&Launch::embedded().start());
    fn names_round_trip_or_are_refused_in_mongodb() =>
        round_trips(&Server::start(&mongod().uri(&fresh_database_name())));
}

#[track_caller]
fn round_trips(server: &Server) {
    let cases: Vec<(String, &str)> =
        names().into_iter().flat_map(|name| PLACES.map(|place| (name.clone(), place))).collect();
    with_good_client(server, "names", || {
        for (name, place) in &cases {
            let answer = post(&server.url("/api/v1/readings?db=n"), reading(name, place).to_string(), &[]);
            let expected = if is_valid_name(name, place) { 200 } else { 400 };
            assert_eq!(answer.status, expected, "{name:?} as {place}: {}", answer.text());
        }
    });
    flush(server);
    let kept = cases.iter().filter(|(name, place)| is_valid_name(name, place));
    for (name, place) in kept.clone() {
        let found = readings(server, "n", &key(name, place), None, 10);
        assert_eq!(found.len(), 1, "{name:?} as {place}");
        let field = match (*place, &**name) {
            // The time is returned under the same name.
            ("field key", "ts") => "%74s",
            ("field key", "%74s") => "%2574s",
            ("field key", name) => name,
            _ => "v",
        };
        let fields: Vec<(&str, &str)> = found[0].1.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(fields, [(field, "1.5")], "{name:?} as {place}");
    }
    let sensors = server.fetch("/api/v1/sensors?db=n&limit=1000");
    let listed = sensors["sensors"].as_array().map_or(0, Vec::len);
    assert_eq!(listed, kept.count(), "{sensors}");
}

fn reading(name: &str, place: &str) -> Value {
    let (measurement, tags, field) = parts(name, place);
    json!({"measurement": measurement, "tags": {tags.0: tags.1}, "ts": START, "fields": {field: 1.5}})
}

/// Each case has its own sensor.
fn parts<'a>(name: &'a str, place: &str) -> (&'a str, (&'a str, String), &'a str) {
    let unique = format!("{}-{}", name.len(), name.chars().filter(|c| c.is_alphanumeric()).count());
    match place {
        "measurement" => (name, ("as", "measurement".to_owned()), "v"),
        "tag key" => ("m", (name, unique), "v"),
        "tag value" => ("m", ("as", name.to_owned()), "v"),
        _ => ("fields", ("of", name.escape_unicode().take(200).collect()), name),
    }
}

/// Returns the documented sensor key, with a backslash before each separator.
fn key(name: &str, place: &str) -> String {
    let (measurement, (tag, value), _) = parts(name, place);
    let escaped = |name: &str| name.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
    let measurement = measurement.replace(',', "\\,").replace(' ', "\\ ");
    format!("{measurement},{}={}", escaped(tag), escaped(&value))
}
