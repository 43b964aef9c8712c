use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn sensor(key: &str) -> Arc<Sensor> {
    Arc::new(Sensor::of_key(key).expect("a key"))
}

fn rule(id: u64, renaming: Renaming, since: Option<i64>) -> Relabel {
    Relabel { id, renaming, since, made: 0, stamp: id, by: "t".to_owned(), is_final: false }
}

fn value(tag: &str, from: &str, to: &str) -> Renaming {
    Renaming::TagValue { measurement: None, tag: tag.into(), from: from.into(), to: to.into() }
}

#[test]
fn a_name_is_what_the_rules_make_of_it_one_after_the_other() {
    let moved = Renaming::Sensor { from: sensor("m,room=a,s=1"), to: sensor("m,room=b,s=2") };
    let key = Renaming::TagKey { measurement: Some("m".into()), from: "room".into(), to: "area".into() };
    let measurement = Renaming::Measurement { from: "m".into(), to: "w x".into() };
    let rules = vec![
        rule(1, moved, Some(100)),
        rule(2, value("room", "b", "c"), None),
        rule(3, key, Some(200)),
        rule(4, measurement, None),
    ];
    let relabels = Relabels::new(rules);
    let shown = |key: &str| {
        let names = relabels.names_of(&sensor(key));
        names.into_iter().map(|(times, name)| (times.start, name.key.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(
        shown("m,room=a,s=1"),
        [(i64::MIN, r"w\ x,room=a,s=1"), (100, r"w\ x,room=c,s=2"), (200, r"w\ x,area=c,s=2")]
            .map(|(start, name)| (start, name.to_owned()))
    );
    assert_eq!(shown("n,room=a"), [(i64::MIN, "n,room=a".to_owned())]);
    // A sensor that has both keys keeps them.
    assert_eq!(shown("m,area=x,room=b").last().map(|(_, name)| &**name), Some(r"w\ x,area=x,room=c"));
    let parts = relabels.parts_of(&sensor(r"w\ x,area=c,s=2")).expect("it unites several");
    let parts: Vec<(&str, &[Range<i64>])> = parts.iter().map(|part| (&*part.sensor.key, &*part.times)).collect();
    let all = |start: i64| std::iter::once(start..i64::MAX).collect::<Vec<_>>();
    assert_eq!(
        parts,
        [
            (r"w\ x,area=c,s=2", &*all(i64::MIN)),
            ("m,area=c,s=2", &*all(i64::MIN)),
            ("m,room=a,s=1", &*all(200)),
            ("m,room=b,s=2", &*all(200)),
            ("m,room=c,s=2", &*all(200)),
        ]
    );
    assert!(relabels.parts_of(&sensor("n,room=a")).is_none());
}

#[test]
fn rules_that_are_taken_back_leave_no_trace_and_fields_make_the_rule_again() {
    let moved = Renaming::Sensor { from: sensor("m,s=1"), to: sensor(r"m,s=2\ 3") };
    let both = Relabels::new(vec![rule(1, value("s", "9", "1"), Some(-5)), rule(7, moved, None)]);
    for rule in both.rules() {
        let fields: BTreeMap<&str, String> = rule.fields().into_iter().collect();
        assert_eq!(Relabel::of_fields(|name| fields.get(name).cloned()).as_ref(), Some(rule));
    }
    assert_eq!(both.name_at(&sensor("m,s=9"), 0).map(|name| name.key), Some(r"m,s=2\ 3".into()));
    assert_eq!(both.name_at(&sensor("m,s=9"), -6), None);
    let first_gone = both.changed(1, |_| None);
    assert_eq!((first_gone.name_at(&sensor("m,s=9"), 0), first_gone.rules().len()), (None, 1));
    let back = Relabels::new(vec![rule(1, value("s", "1", "2"), None), rule(2, value("s", "2", "1"), None)]);
    assert_eq!(back.name_at(&sensor("m,s=1"), 0), None);
    assert_eq!(back.name_at(&sensor("m,s=2"), 0).map(|name| name.key), Some("m,s=1".into()));
}

#[test]
fn old_and_present_names_are_about_the_same_metadata() {
    let moved = Renaming::Sensor { from: sensor("m,s=1"), to: sensor("m,s=2") };
    let rules = vec![rule(1, moved, None), rule(2, value("s", "2", "3"), None), rule(3, value("s", "7", "8"), Some(5))];
    let relabels = Relabels::new(rules);
    let about = |key: &str| {
        let (name, stored) = relabels.described_by(&sensor(key));
        (name.key.to_string(), stored.iter().map(|of| of.key.to_string()).collect::<Vec<_>>())
    };
    let is = |name: &str, stored: &[&str]| (name.to_owned(), stored.iter().map(|key| (*key).to_owned()).collect());
    for name in ["m,s=1", "m,s=2", "m,s=3"] {
        assert_eq!(about(name), is("m,s=3", &["m,s=3", "m,s=1", "m,s=2"]), "{name}");
    }
    // What is earlier is still shown under the old name.
    assert_eq!(about("m,s=7"), is("m,s=7", &["m,s=7"]));
    assert_eq!(about("m,s=8"), is("m,s=8", &["m,s=8", "m,s=7"]));
    assert_eq!(about("n"), is("n", &["n"]));
}

/// Regression: the old name of a sensor that had moved counted in conditions, too: `room=a` meant what it measured in its new room, and a
/// deletion of the old room took that along.
#[test]
fn a_name_of_before_is_no_spelling_of_the_one_since() {
    let moved = |since| rule(1, Renaming::Sensor { from: sensor("m,room=a,s=1"), to: sensor("m,room=b,s=1") }, since);
    let others = |rules: &[Relabel], name: &str, at: Option<i64>| {
        let (relabels, name) = (Relabels::new(rules.to_vec()), sensor(name));
        let others = at.map_or_else(|| relabels.other_names(&name), |at| relabels.other_names_at(&name, at));
        others.into_iter().map(|other| (other.sensor.key.to_string(), other.is_spelling)).collect::<BTreeMap<_, _>>()
    };
    let is = |all: &[(&str, bool)]| all.iter().map(|(key, is)| ((*key).to_owned(), *is)).collect::<BTreeMap<_, _>>();
    assert_eq!(others(&[moved(None)], "m,room=b,s=1", None), is(&[("m,room=a,s=1", true)]));
    assert_eq!(others(&[moved(Some(5))], "m,room=b,s=1", None), is(&[("m,room=a,s=1", false)]));
    assert_eq!(others(&[moved(Some(5))], "m,room=b,s=1", Some(4)), is(&[]));
    assert_eq!(others(&[moved(Some(5))], "m,room=b,s=1", Some(5)), is(&[("m,room=a,s=1", false)]));
    // What is corrected before or behind a move is a spelling of what it was corrected to, and of nothing else.
    let rules = [rule(2, value("room", "x", "a"), None), moved(Some(5)), rule(3, value("room", "b", "c"), None)];
    assert_eq!(others(&rules, "m,room=a,s=1", None), is(&[("m,room=x,s=1", true)]));
    let late = [("m,room=b,s=1", true), ("m,room=a,s=1", false), ("m,room=x,s=1", false)];
    assert_eq!(others(&rules, "m,room=c,s=1", None), is(&late));
    // A key says nothing of where a sensor is.
    let key = Renaming::TagKey { measurement: None, from: "room".into(), to: "zone".into() };
    assert_eq!(others(&[rule(1, key, Some(5))], "m,s=1,zone=a", Some(5)), is(&[("m,room=a,s=1", true)]));
}

#[test]
fn an_old_key_means_what_its_tags_are_called_by_now() {
    let key = |id, measurement: Option<&str>, from: &str, to: &str| {
        rule(id, Renaming::TagKey { measurement: measurement.map(Box::from), from: from.into(), to: to.into() }, None)
    };
    let measurement = rule(9, Renaming::Measurement { from: "m".into(), to: "w".into() }, None);
    let rules = [key(1, None, "room", "zone"), key(2, Some("m"), "zone", "area"), measurement, key(3, None, "x", "y")];
    let relabels = Relabels::new(rules.to_vec());
    let is = |key: &str, name: &str| relabels.later_keys(key).value(&sensor(name)).map(str::to_owned);
    assert_eq!(is("room", "n,zone=a").as_deref(), Some("a"));
    assert_eq!(is("room", "w,area=a").as_deref(), Some("a"));
    assert_eq!(is("zone", "w,area=a").as_deref(), Some("a"));
    assert_eq!(is("room", "n,area=a"), None, "another measurement has a key of its own");
    assert_eq!((is("area", "w,area=a"), is("s", "w,s=1")), (None, None), "never renamed");
    assert!(relabels.later_keys("y").is_empty() && !relabels.later_keys("x").is_empty());
    // Regression: a renaming in another measurement counted as the next step of this one's.
    let relabels = Relabels::new(vec![key(1, Some("m"), "room", "zone"), key(2, Some("n"), "zone", "area")]);
    let is = |name: &str| relabels.later_keys("room").value(&sensor(name)).map(str::to_owned);
    assert_eq!((is("m,zone=a").as_deref(), is("n,area=a"), is("m,area=a")), (Some("a"), None, None));
}

/// Regression: sensors that a renaming of tags unites and those that are renamed one by one were not added up: a name stood for more than
/// it may, and what was more was shown under no name.
#[test]
fn what_stands_for_a_name_by_several_kinds_of_rules_is_added_up() {
    let to = |from: String, to: &str| Renaming::Sensor { from: sensor(&from), to: sensor(to) };
    let mut rules: Vec<Renaming> = (0..30).map(|n| to(format!("m,s=a{n}"), "m,s=1")).collect();
    rules.extend((0..30).map(|n| to(format!("m,s=b{n}"), "m,s=2")));
    rules.extend([value("s", "1", "3"), value("s", "2", "3")]);
    rules.extend((0..30).map(|n| to(format!("m,s=c{n}"), &format!("m,s=d{n}"))));
    let rules = rules.into_iter().enumerate().map(|(id, renaming)| rule(id as u64, renaming, None)).collect();
    let relabels = Relabels::new(rules);
    let most = relabels.sources_of(&sensor("m,s=3")).len();
    assert_eq!((most, relabels.united_most()), (63, 63));
}

#[test]
fn what_is_no_renaming_is_refused() {
    for (renaming, why) in [
        (value("s", "a", "a"), NoRenaming::Same),
        (value("s", "a", ""), NoRenaming::Empty),
        (value("", "a", "b"), NoRenaming::Empty),
        (value("s", "a", "b\\"), NoRenaming::Backslash),
    ] {
        assert_eq!(renaming.check(), Err(why));
    }
    assert_eq!(value("s", "a", "b").check(), Ok(()));
}

fn renaming() -> impl Strategy<Value = Renaming> {
    let names = || prop::sample::select(vec!["a", "b", "c"]);
    let sensors = || (names(), names()).prop_map(|(room, s)| sensor(&format!("m,room={room},s={s}")));
    let measurement = || prop::option::of(prop::sample::select(vec!["m", "n"]).prop_map(Box::from));
    prop_oneof![
        (sensors(), sensors()).prop_map(|(from, to)| Renaming::Sensor { from, to }),
        (measurement(), prop::sample::select(vec!["room", "s", "area"]), names(), names()).prop_map(
            |(measurement, tag, from, to)| Renaming::TagValue {
                measurement,
                tag: tag.into(),
                from: from.into(),
                to: to.into()
            }
        ),
        (measurement(), prop::sample::select(vec![("room", "area"), ("area", "room"), ("s", "area")]))
            .prop_map(|(measurement, (from, to))| Renaming::TagKey { measurement, from: from.into(), to: to.into() }),
        prop::sample::select(vec![("m", "n"), ("n", "m")])
            .prop_map(|(from, to)| Renaming::Measurement { from: from.into(), to: to.into() }),
    ]
}

/// All names that the rules of [`renaming`] make of each other, with those that no rule concerns.
fn all_names() -> Vec<Arc<Sensor>> {
    let (values, mut names) = (["a", "b", "c"], Vec::new());
    for measurement in ["m", "n"] {
        for (one, other) in [("room", "s"), ("area", "s"), ("area", "room")] {
            for (first, second) in values.iter().flat_map(|first| values.map(|second| (first, second))) {
                names.push(sensor(&format!("{measurement},{one}={first},{other}={second}")));
            }
        }
    }
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is read under a name is, at every time, exactly what is shown as it is: each stored sensor under one name.
    #[test]
    fn parts_are_what_the_rules_show(rules in prop::collection::vec((renaming(), prop::option::of(0..4_i64)), 0..7)) {
        let rules = rules.into_iter().filter(|(renaming, _)| renaming.check().is_ok());
        let rules: Vec<Relabel> = rules.enumerate().map(|(id, (renaming, since))| rule(id as u64, renaming, since)).collect();
        let (relabels, names) = (Relabels::new(rules), all_names());
        let most = names.iter().map(|name| relabels.sources_of(name).len()).max();
        prop_assert!(most <= Some(relabels.united_most()), "{:?} of {}", most, relabels.united_most());
        for time in -1..5 {
            let shown = |sensor: &Arc<Sensor>| relabels.name_at(sensor, time).map_or(sensor.key.clone(), |name| name.key);
            for asked in &names {
                let expected: BTreeSet<&str> =
                    names.iter().filter(|stored| shown(stored) == asked.key).map(|stored| &*stored.key).collect();
                let parts = relabels.parts_of(asked);
                let read: BTreeSet<&str> = match &parts {
                    None => [&*asked.key].into(),
                    Some(parts) => {
                        let valid = parts.iter().filter(|part| part.times.iter().any(|times| times.contains(&time)));
                        valid.map(|part| &*part.sensor.key).collect()
                    }
                };
                prop_assert_eq!(&read, &expected, "{} at {}", asked.key, time);
                let others = relabels.other_names_at(asked, time);
                let expected: BTreeSet<Box<str>> =
                    expected.iter().filter(|stored| **stored != &*asked.key).map(|stored| (*stored).into()).collect();
                prop_assert_eq!(others.iter().map(|other| other.sensor.key.clone()).collect::<BTreeSet<_>>(), expected);
            }
        }
    }
}

#[test]
fn a_relabel_is_shown_from_its_time_on_and_in_expired_hours_from_the_next_one() {
    let (hour, gone) = (Hour(7).start_ns(), Hour(24).start_ns());
    assert_eq!(shown_from(hour + 1, i64::MIN), hour + 1);
    assert_eq!(shown_from(gone + 1, gone), gone + 1);
    assert_eq!(shown_from(hour, gone), hour);
    assert_eq!(shown_from(hour + 1, gone), Hour(8).start_ns());
    assert_eq!(shown_from(i64::MIN, gone), i64::MIN);
}
