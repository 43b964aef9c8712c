//! Random writes, flushes, kills and deletions against a plain map of readings.

use crate::support::prelude::*;

use super::{CAPS, CONFIG, DATABASE, HOUR, SECOND, START, run, write};

const LINES: i64 = 60;
const HOURS: i64 = 5;
/// Measurement and tag.
const SENSORS: [(&str, &str); 6] = [("m", "a"), ("m", "b"), ("m", ""), ("n", "a"), ("n", "b"), ("other m", "a")];

/// Readings by time, by sensor key.
type Model = BTreeMap<String, BTreeMap<i64, i64>>;

tests! {
    fn random_deletions_agree_with_a_plain_map_in_the_embedded_store() => random_deletions(Launch::embedded(), 1);
    fn random_deletions_agree_with_a_plain_map_in_mongodb() =>
        random_deletions(Launch::with_store(mongod().uri(&fresh_database_name())), 2);
}

fn random_deletions(launch: Launch, seed: u64) {
    let mut server = launch.config(CONFIG).start();
    let model = compare_with_model(&mut server, seed);
    assert!(server.stop().success());
    check_stored(&Stored::from_server(&server, DATABASE), &model);
}

fn key(measurement: &str, tag: &str) -> String {
    let measurement = measurement.replace(' ', "\\ ");
    if tag.is_empty() { measurement } else { format!("{measurement},t={tag}") }
}

#[track_caller]
fn compare_with_model(server: &mut Server, seed: u64) -> Model {
    let mut random = Random::new(seed);
    let mut model = Model::new();
    run(server, &format!("CREATE DATABASE {DATABASE}"));
    let steps = scaled(16, 120);
    for step in 0..steps {
        match random.below(10) {
            0..4 => write(server, &lines(&mut random, &mut model)),
            4 => flush(server),
            5 => {
                server.kill_and_restart();
            }
            _ => {
                let statement = delete(&mut random, &mut model);
                run(server, &statement);
            }
        }
        model.retain(|_, readings| !readings.is_empty());
        check(server, &model, step);
    }
    write(server, &lines(&mut random, &mut model));
    flush(server);
    check(server, &model, steps);
    model
}

/// Generates lines at random times, some of them overwriting readings.
fn lines(random: &mut Random, model: &mut Model) -> String {
    let mut lines = String::new();
    for _ in 0..LINES {
        let (measurement, tag) = random.pick(&SENSORS);
        let key = key(measurement, tag);
        let time = START + random.below(HOURS * 60) * 60 * SECOND;
        let value = random.below(1000);
        model.entry(key.clone()).or_default().insert(time, value);
        writeln!(lines, "{key} v={value}i {time}").expect("a string takes all");
    }
    lines
}

/// Generates a deletion and applies it to the model.
fn delete(random: &mut Random, model: &mut Model) -> String {
    let mut time = || START + random.below(HOURS * 4) * (HOUR / 4) + random.pick(&[0, 0, SECOND]);
    let a = time();
    let b = time();
    let from = a.min(b);
    let to = a.max(b);
    let measurement = random.pick(&["m", "n", "other m"]);
    let is_of = |key: &str, measurement: &str| {
        let escaped = measurement.replace(' ', "\\ ");
        key == escaped || key.starts_with(&format!("{escaped},"))
    };
    let mut remove = |is_chosen: &dyn Fn(&str) -> bool, when: std::ops::Range<i64>| {
        let readings = model.iter_mut().filter(|(key, _)| is_chosen(key));
        readings.for_each(|(_, readings)| readings.retain(|time, _| !when.contains(time)));
    };
    let always = i64::MIN..i64::MAX;
    match random.below(14) {
        0..5 => {
            remove(&|key| is_of(key, measurement), from..to);
            format!("DELETE FROM \"{measurement}\" WHERE time >= {from} AND time < {to}")
        }
        5 | 6 => {
            remove(&|key| key.ends_with("t=a"), from..i64::MAX);
            format!("DELETE WHERE t = 'a' AND time >= {from}")
        }
        7 => {
            remove(&|key| key.ends_with("t=b"), i64::MIN..to);
            format!("DELETE FROM /m|n/ WHERE t =~ /b/ AND time < {to}")
        }
        8 => {
            remove(&|key| is_of(key, measurement) && !key.contains("t="), always);
            format!("DELETE FROM \"{measurement}\" WHERE t = ''")
        }
        9 | 10 => {
            remove(&|key| is_of(key, measurement) && key.ends_with("t=a"), always);
            format!("DROP SERIES FROM \"{measurement}\" WHERE t = 'a'")
        }
        11 | 12 => {
            remove(&|key| is_of(key, measurement), always);
            format!("DROP MEASUREMENT \"{measurement}\"")
        }
        _ => {
            remove(&|_| true, always);
            format!("DROP DATABASE {DATABASE}; CREATE DATABASE {DATABASE}")
        }
    }
}

/// Compares readings, windows, lists and latest readings.
#[track_caller]
fn check(server: &Server, model: &Model, step: usize) {
    for (measurement, tag) in SENSORS {
        let key = key(measurement, tag);
        let seen: BTreeMap<i64, i64> = readings(server, DATABASE, &key, None, 1000)
            .into_iter()
            .map(|(time, fields)| (time, fields["v"].parse().expect("an integer")))
            .collect();
        let expected = model.get(&key).cloned().unwrap_or_default();
        assert_eq!(seen, expected, "step {step}: {key}");
        let mut sums: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        for (time, value) in expected {
            let sum = sums.entry(time.div_euclid(HOUR)).or_default();
            *sum = (sum.0 + 1, sum.1 + value);
        }
        let windows: BTreeMap<i64, (u64, i64)> = windows(server, DATABASE, &key, None, "1h")
            .into_iter()
            .map(|((start, _), fields)| {
                let window = &fields["v"];
                (start.div_euclid(HOUR), (window.count, window.sum.get().parse().expect("a whole sum")))
            })
            .collect();
        assert_eq!(windows, sums, "step {step}: windows of {key}");
    }
    let keys: Vec<&String> = model.keys().collect();
    assert_eq!(super::list_sensors(server).iter().collect::<Vec<_>>(), keys, "step {step}");
    let latest = server.fetch(&format!("/api/v1/latest?db={DATABASE}&epoch=ns"));
    let latest: BTreeMap<String, i64> = latest["series"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| {
            let time = one["readings"][0]["ts"].as_i64().expect("a time");
            (one["sensor"].as_str().expect("a key").to_owned(), time)
        })
        .collect();
    let expected: BTreeMap<String, i64> =
        model.iter().map(|(key, readings)| (key.clone(), *readings.keys().next_back().expect("one"))).collect();
    assert_eq!(latest, expected, "step {step}: latest");
    let shown = server.fetch(&format!("/query?db={DATABASE}&q=SHOW%20SERIES"));
    let shown: BTreeSet<String> = shown["results"][0]["series"][0]["values"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| row[0].as_str().expect("a key").to_owned())
        .collect();
    assert_eq!(shown, model.keys().cloned().collect(), "step {step}: SHOW SERIES");
}

#[track_caller]
fn check_stored(stored: &Stored, model: &Model) {
    let mut found: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
    stored.each_bucket(&CAPS, |pages| {
        for page in pages {
            found.entry(page.sensor.clone()).or_default().extend(page.readings.iter().map(|reading| reading.time));
        }
    });
    let expected: BTreeMap<String, BTreeSet<i64>> =
        model.iter().map(|(key, readings)| (key.clone(), readings.keys().copied().collect())).collect();
    assert_eq!(found, expected);
    let mut sensors = BTreeSet::new();
    stored.each_sensor(|sensor| assert!(sensors.insert(sensor.key)));
    assert_eq!(sensors, model.keys().cloned().collect());
}
