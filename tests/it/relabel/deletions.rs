//! Deletions of relabelled sensors: what is shown under the names that a statement selects goes, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Name, Readings, Rule, T, all_names, change, escaped, flush, moments, named, readings, relabel, stores, undo, value,
    write,
};
use crate::support::http::post;
use crate::support::random::Random;
use crate::support::series::await_fed;
use crate::support::server::{Launch, Server};

/// A condition: a measurement and values of tags, each of them or none.
struct Condition {
    measurement: Option<String>,
    room: Option<String>,
    s: Option<String>,
    from: i64,
    to: i64,
}

impl Condition {
    fn random(random: &mut Random) -> Self {
        let mut maybe = |all: &[&str]| (random.below(2) == 0).then(|| random.of(all).to_owned().to_owned());
        let (measurement, room, s) = (maybe(&["m", "n"]), maybe(&["a", "b", "c"]), maybe(&["1", "2", "3"]));
        let from = T + random.below(12) * 900;
        Self { measurement, room, s, from, to: from + random.below(6) * 900 }
    }

    fn statement(&self, more: &str) -> String {
        let source = self.measurement.as_deref().unwrap_or("/m|n/");
        let tag = |key: &str, value: &Option<String>| {
            value.as_ref().map(|value| format!(" AND {key} = '{value}'")).unwrap_or_default()
        };
        let (room, s) = (tag("room", &self.room), tag("s", &self.s));
        format!("DELETE FROM {source} WHERE time >= {}s AND time <= {}s{room}{s}{more}", self.from, self.to)
    }

    /// Whether it selects a stored sensor by its present name at a time.
    fn selects(&self, rules: &[Rule], stored: &Name, time: i64) -> bool {
        self.takes(&[named(rules, stored, time)])
    }

    /// Whether a query would select it, which understands other spellings of that name, too.
    fn means(&self, rules: &[Rule], stored: &Name, time: i64) -> bool {
        let present = named(rules, stored, time);
        let is_spelling = |name: &Name| named(rules, name, time) == present && !is_moved(rules, name, time);
        let names: Vec<Name> = all_names().into_iter().filter(|name| *name == present || is_spelling(name)).collect();
        self.takes(&names)
    }

    fn takes(&self, names: &[Name]) -> bool {
        let is = |wanted: &Option<String>, part: fn(&Name) -> &String| {
            wanted.as_ref().is_none_or(|wanted| names.iter().any(|name| part(name) == wanted))
        };
        is(&self.measurement, |name| &name.0) && is(&self.room, |name| &name.1) && is(&self.s, |name| &name.2)
    }

    /// Whether it must be refused: at a time that it is about it would take something else if it were a query.
    fn names_old_ones(&self, rules: &[Rule], known: &BTreeSet<Name>) -> bool {
        let mut starts = moments(rules);
        starts.sort_unstable();
        let ends: Vec<i64> = starts.iter().skip(1).copied().chain([i64::MAX]).collect();
        starts.iter().zip(ends).any(|(start, end)| {
            let differs = |name: &Name| self.means(rules, name, *start) != self.selects(rules, name, *start);
            *start <= self.to && self.from < end && *start < end && known.iter().any(differs)
        })
    }

    fn has(&self, time: i64) -> bool {
        (self.from..=self.to).contains(&time)
    }
}

/// Whether a rule with a time makes another name of this one.
fn is_moved(rules: &[Rule], name: &Name, time: i64) -> bool {
    let valid: Vec<&Rule> = rules.iter().filter(|rule| rule.since.is_none_or(|since| since <= time)).collect();
    let before = |nth: usize| {
        valid[..nth].iter().fold(name.clone(), |name, rule| named(std::slice::from_ref(*rule), &name, time))
    };
    (0..valid.len()).any(|nth| valid[nth].since.is_some() && before(nth) != before(nth + 1))
}

fn error_of(server: &Server, statement: &str) -> String {
    let answer = post(&server.url(&format!("/query?db=d&q={}", escaped(statement))), "", &[]).expect(200).json();
    answer["results"][0]["error"].as_str().unwrap_or_default().to_owned()
}

/// Deletes a random part of what is shown; returns how many readings went, `None` if it is refused, as it must be by an old name.
pub(super) fn delete_by_time(
    server: &Server,
    random: &mut Random,
    rules: &[Rule],
    (known, stored): (&BTreeSet<Name>, &mut Readings),
) -> Option<usize> {
    let (condition, before) = (Condition::random(random), stored.len());
    let statement = condition.statement("");
    let error = error_of(server, &statement);
    let is_old = condition.names_old_ones(rules, known);
    assert_eq!(error.contains("goes by present names"), is_old, "{statement}: {error}, {rules:#?}, {known:?}");
    if is_old {
        return None;
    }
    assert_eq!(error, "", "{statement}");
    stored.retain(|(name, time), _| !(condition.has(*time) && condition.selects(rules, name, *time)));
    Some(before - stored.len())
}

/// The same of what has a great value; `None` if that is refused, as it must be where several sensors are shown as one, too.
pub(super) fn delete_by_value(
    server: &Server,
    random: &mut Random,
    rules: &[Rule],
    (known, stored): (&BTreeSet<Name>, &mut Readings),
) -> Option<usize> {
    // Where no sensor has the field its name would be that of a tag.
    let mut condition = Condition { measurement: None, ..Condition::random(random) };
    if random.below(2) == 0 {
        (condition.from, condition.to) = (T, T + 12 * 900);
    }
    let (most, before) = (random.below(60), stored.len());
    let mut starts = moments(rules);
    starts.sort_unstable();
    let mut ends = starts.clone();
    ends.push(i64::MAX);
    let is_united = starts.iter().zip(&ends[1..]).any(|(start, end)| {
        let mut shown: BTreeMap<Name, usize> = BTreeMap::new();
        let selected = known.iter().filter(|name| condition.selects(rules, name, *start));
        selected.for_each(|name| *shown.entry(named(rules, name, *start)).or_default() += 1);
        *start <= condition.to && condition.from < *end && shown.values().any(|count| *count > 1)
    });
    let statement = condition.statement(&format!(" AND v > {most}"));
    let error = error_of(server, &statement);
    let is_old = condition.names_old_ones(rules, known);
    let is_refused = error.contains("shown as one") && is_united || error.contains("goes by present names") && is_old;
    assert_eq!(is_refused, is_united || is_old, "{statement}: {error}, {rules:#?}, {known:?}");
    if is_refused {
        return None;
    }
    assert_eq!(error, "", "{statement}");
    let goes = |name: &Name, time: i64, value: i64| {
        value > most && condition.has(time) && condition.selects(rules, name, time)
    };
    stored.retain(|(name, time), value| !goes(name, *time, *value));
    Some(before - stored.len())
}

/// Somebody renamed a measurement and could not remove a sensor's spikes any more.
#[test]
fn a_deletion_by_value_asks_the_names_of_now() {
    for store in stores() {
        let mut server = Launch::with_store(store).start();
        let (early, late) = (T, T + 7200);
        write(
            &server,
            &format!(
                "m,room=a,s=1 v=1i {early}\nm,room=a,s=1 v=900i {}\nm,room=a,s=1 v=901i {late}\nw,room=b,s=2 v=902i {early}\n",
                early + 1
            ),
        );
        flush(&server);
        write(&server, &format!("m,room=a,s=1 v=903i {}\n", late + 1));
        let key = "m,room=a,s=1";
        let before = [(early, 1), (early + 1, 900), (late, 901), (late + 1, 903)];
        // From 16:00 on its measurement is another one, and its room always.
        let since = "2026-01-15T16:00:00Z";
        let measurement = relabel(&server, &json!({"kind": "measurement", "from": "m", "to": "w", "since": since}));
        let room = relabel(&server, &value("room", "a", "c"));
        let preview = |statement: &str| -> Value {
            let url = server.url(&format!("/query?db=d&dry_run=true&q={}", escaped(statement)));
            post(&url, "", &[]).expect(200).json()["results"][0]["series"][0]["values"][0].clone()
        };
        let of_w = "DELETE FROM w WHERE room = 'c' AND v > 100";
        assert_eq!(preview(of_w), json!(["d", 1, 2, 0]));
        assert_eq!(preview("DELETE FROM m WHERE v > 100"), json!(["d", 1, 1, 0]), "what is shown under the old name");
        change(&server, of_w);
        assert_eq!(readings(&server, "m,room=c,s=1"), before[..2]);
        assert_eq!(readings(&server, "w,room=b,s=2"), [(early, 902)], "of the new measurement, in another room");
        // By its old room it is refused.
        let refused = error_of(&server, "DELETE FROM m WHERE room = 'a' AND v > 899");
        assert!(refused.contains("goes by present names") && refused.contains("m,room=c,s=1"), "{refused}");
        change(&server, "DELETE FROM m WHERE room = 'c' AND v > 899");
        server.kill();
        server.restart("127.0.0.1:0");
        await_fed(&server);
        for id in [room, measurement] {
            undo(&server, &id).expect(200);
        }
        assert_eq!(readings(&server, key), before[..1]);
        // Two that are one: a reading has values of both.
        relabel(&server, &json!({"kind": "sensor", "from": key, "to": "w,room=b,s=2"}));
        let url = server.url(&format!("/query?db=d&q={}", escaped("DELETE FROM w WHERE v > 100")));
        let refused = post(&url, "", &[]).expect(200).json();
        let error = refused["results"][0]["error"].as_str().unwrap_or_default();
        assert!(error.contains("shown as one") && error.contains("w,room=b,s=2"), "{refused}");
        assert_eq!(readings(&server, key), [(early, 902)]);
        server.stop();
    }
}
