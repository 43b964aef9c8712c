//! Random renames against a plain model of stored and shown names.

use super::{T, change, delete, influxql, list_sensors, put, readings, sensor, value};
use crate::support::prelude::*;

/// A sensor: measurement, room, s.
type Name = (String, String, String);
type Readings = BTreeMap<(Name, i64), i64>;

/// Renames by kind and stored name.
#[derive(Debug, Default, Clone)]
struct RenameTable(BTreeMap<(&'static str, String), String>);

impl RenameTable {
    fn shown_name(&self, stored: &Name) -> Name {
        if let Some(to) = self.0.get(&("sensor", key(stored))) {
            return parts(to);
        }
        let part = |kind: &'static str, name: &String| self.0.get(&(kind, name.clone())).unwrap_or(name).clone();
        (part("measurement", &stored.0), part("room", &stored.1), part("s", &stored.2))
    }

    /// Returns true if a name stands for two sensors, by their stored and shown names.
    fn is_unclear(&self, known: &BTreeSet<Name>) -> bool {
        let mut owners: BTreeMap<Name, &Name> = known.iter().map(|name| (name.clone(), name)).collect();
        known.iter().any(|name| *owners.entry(self.shown_name(name)).or_insert(name) != name)
    }

    /// Returns the stored sensor of a written name.
    fn stored_name(&self, name: &Name, known: &BTreeSet<Name>) -> Name {
        let find_known = |shown: &Name| known.iter().find(|stored| self.shown_name(stored) == *shown).cloned();
        let all = all_names();
        // Prefers the candidate with the most renames.
        let find_unused = |shown: &Name| {
            let sources = all.iter().filter(|stored| self.shown_name(stored) == *shown);
            sources.max_by_key(|stored| self.distance(stored, shown)).cloned()
        };
        // A name means a stored sensor first, then a shown name, then an unused stored name by its shown name.
        let known_name = known.contains(name).then(|| name.clone());
        let by_shown_name = || find_known(name).or_else(|| find_unused(name));
        let by_own_name = || find_known(&self.shown_name(name)).or_else(|| find_unused(&self.shown_name(name)));
        known_name.or_else(by_shown_name).or_else(by_own_name).unwrap()
    }

    fn distance(&self, stored: &Name, shown: &Name) -> (bool, usize) {
        let parts = [stored.0 != shown.0, stored.1 != shown.1, stored.2 != shown.2];
        (self.0.contains_key(&("sensor", key(stored))), parts.into_iter().filter(|differs| *differs).count())
    }
}

fn key((measurement, room, s): &Name) -> String {
    format!("{measurement},room={room},s={s}")
}

fn parts(key: &str) -> Name {
    let mut parts = key.split([',', '=']).map(str::to_owned);
    let mut next = |skipped: usize| parts.nth(skipped).unwrap();
    (next(0), next(1), next(1))
}

const MEASUREMENTS: [&str; 3] = ["m", "n", "o"];
const ROOMS: [&str; 4] = ["a", "b", "c", "d"];
const S: [&str; 4] = ["1", "2", "3", "4"];

fn all_names() -> Vec<Name> {
    let names =
        MEASUREMENTS.iter().flat_map(|m| ROOMS.iter().flat_map(move |room| S.iter().map(move |s| (m, room, s))));
    names.map(|(m, room, s)| ((*m).to_owned(), (*room).to_owned(), (*s).to_owned())).collect()
}

fn entry((kind, from): &(&'static str, String), to: &str) -> Value {
    match *kind {
        "sensor" => sensor(from, to),
        "measurement" => json!({"kind": kind, "from": from, "to": to}),
        tag => value(tag, from, to),
    }
}

#[test]
fn random_renames_agree_with_a_plain_model() {
    let [embedded, shared] = stores();
    let mut refused = 0;
    let mut edited = 0;
    for (run, (store, steps, kills)) in
        [(embedded.clone(), scaled(120, 1500), 3), (shared, scaled(50, 1000), 3), (embedded, scaled(20, 300), 100)]
            .into_iter()
            .enumerate()
    {
        let mut server = Launch::with_store(store).start();
        let mut random = Random::new(0x5e1a + run as u64);
        change(&server, "CREATE DATABASE d");
        change(&server, "DROP DATABASE d");
        let mut stored = Readings::new();
        let mut known = BTreeSet::new();
        let mut table = RenameTable::default();
        for step in 0..steps {
            let mut pick = |all: &[&str]| random.pick(all).to_string();
            let name = (pick(&MEASUREMENTS[..2]), pick(&ROOMS[..3]), pick(&S[..3]));
            match random.below(100) {
                0..55 => {
                    let time = T + random.below(12) * 900;
                    write(&server, format!("{} v={step}i {time}\n", key(&name)));
                    let stored_name = table.stored_name(&name, &known);
                    known.insert(stored_name.clone());
                    stored.insert((stored_name, time), step);
                }
                55..80 => {
                    let mut pick = |all: &[&str]| random.pick(all).to_string();
                    let (source, to) = match pick(&["sensor", "measurement", "room", "s"]).as_str() {
                        "sensor" => (("sensor", key(&name)), key(&(pick(&MEASUREMENTS), pick(&ROOMS), pick(&S)))),
                        "measurement" => (("measurement", name.0.clone()), pick(&MEASUREMENTS)),
                        "room" => (("room", name.1.clone()), pick(&ROOMS)),
                        _ => (("s", name.2.clone()), pick(&S)),
                    };
                    if source.1 == to {
                        continue;
                    }
                    let answer = put(&server, &entry(&source, &to), "");
                    let is_accepted = answer.status == 200;
                    // A shown name means its stored name.
                    let mut changed = table.clone();
                    let from: Vec<String> = match source.0 {
                        "sensor" => {
                            let shown = known.iter().find(|stored| key(&table.shown_name(stored)) == source.1);
                            vec![shown.map_or(source.1.clone(), key)]
                        }
                        kind => {
                            let shown =
                                table.0.iter().filter(|((entry_kind, _), to)| *entry_kind == kind && **to == source.1);
                            let shown: Vec<String> = shown.map(|((_, from), _)| from.clone()).collect();
                            if shown.is_empty() { vec![source.1.clone()] } else { shown }
                        }
                    };
                    edited += i64::from(from != [source.1.clone()]);
                    // With `m` shown as `n`, an entry from `n` changes that of `m`. The sensor `n,room=a,s=1` may be named
                    // so as well, although no entry of the kind `sensor` made that name.
                    for from in from {
                        changed.0.insert((source.0, from), to.clone());
                    }
                    changed.0.retain(|(_, from), to| from != to);
                    assert_eq!(
                        is_accepted,
                        !changed.is_unclear(&known),
                        "step {step}: {source:?} {to}, {table:?}, {known:?}: {}",
                        answer.text()
                    );
                    refused += i64::from(!is_accepted);
                    if is_accepted {
                        table = changed;
                    }
                }
                80..90 if !table.0.is_empty() => {
                    let sources: Vec<_> = table.0.keys().cloned().collect();
                    let source = &sources[usize::try_from(random.below(sources.len() as i64)).unwrap()];
                    let mut changed = table.clone();
                    changed.0.remove(source);
                    let is_removed = delete(&server, &entry(source, "")).status == 200;
                    assert_eq!(
                        is_removed,
                        !changed.is_unclear(&known),
                        "step {step}: {source:?}, {table:?}, {known:?}"
                    );
                    if is_removed {
                        table = changed;
                    }
                }
                90..95 if !known.is_empty() => {
                    let room = name.1;
                    let from = T + random.below(12) * 900;
                    change(&server, &format!("DELETE FROM /.*/ WHERE room = '{room}' AND time >= {from}s"));
                    stored.retain(|(name, time), _| table.shown_name(name).1 != room || *time < from);
                    known.retain(|name| stored.keys().any(|(sensor, _)| sensor == name));
                }
                95..98 => super::flush(&server),
                _ => {
                    let sealed = ask_job(&server, "seal");
                    assert!(matches!(sealed.status, 200 | 202), "{}", sealed.text());
                }
            }
            if random.below(100) < kills {
                server.kill_and_restart();
            }
            if step % 6 == 5 {
                check(&server, &stored, &table, step);
            }
        }
        server.stop();
    }
    assert!(refused > 0 && edited > 0, "{refused} refused, {edited} edited");
}

fn check(server: &Server, stored: &Readings, table: &RenameTable, step: i64) {
    let mut series: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for ((name, time), value) in stored {
        series.entry(key(&table.shown_name(name))).or_default().push((*time, *value));
    }
    let context = || format!("step {step}, {table:?}, stored {stored:?}");
    assert_eq!(list_sensors(server), series.keys().cloned().collect(), "{}", context());
    for (name, values) in &series {
        assert_eq!(readings(server, name), *values, "{name}: {}", context());
    }
    let end = T + 14_400;
    let sums = influxql(
        server,
        &format!("SELECT sum(v), count(v) FROM /.*/ WHERE time >= {T}s AND time < {end}s GROUP BY time(1h), *"),
    );
    let mut messages = BTreeMap::new();
    for series in sums.as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let name = key(&(text(&series["name"]), text(&series["tags"]["room"]), text(&series["tags"]["s"])));
        for row in series["values"].as_array().unwrap().iter().filter(|row| row[2] != json!(0)) {
            let [hour, sum, count] = [0, 1, 2].map(|cell| row[cell].as_i64().unwrap());
            messages.insert((name.clone(), hour), (sum, count));
        }
    }
    let mut expected: BTreeMap<(String, i64), (i64, i64)> = BTreeMap::new();
    for (name, values) in &series {
        for (time, value) in values {
            let (sum, count) = expected.entry((name.clone(), (time - T) / 3600 * 3600 + T)).or_default();
            *sum += value;
            *count += 1;
        }
    }
    assert_eq!(messages, expected, "{}", context());
}
