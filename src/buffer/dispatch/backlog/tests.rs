//! The backlog by itself: what is open, what is listed, and its bounds.

use super::*;

fn sensor(key: &str) -> Arc<Sensor> {
    Arc::new(Sensor::new(key, Vec::<(&str, &str)>::new()).expect("no tags"))
}

fn hours(hours: Range<i64>) -> Range<Hour> {
    Hour(hours.start)..Hour(hours.end)
}

fn fields(names: &[&str]) -> Vec<(Arc<str>, Family)> {
    names.iter().map(|name| (Arc::from(*name), Family::Number)).collect()
}

/// Notes an hour of a sensor; returns whether something new was noted.
fn note(backlog: &Backlog, database: &str, sequence: Sequence, key: &str, hour: i64) -> bool {
    let mut noting = backlog.noting(database, sequence);
    noting.sensor(key, hours(hour..hour + 1), Named::Record(&fields(&["v"])), || sensor(key));
    noting.finish()
}

fn nothing_unknown(sensors_max: usize) -> Backlog {
    let backlog = Backlog::new(0, 0, sensors_max);
    backlog.scanned();
    backlog
}

#[test]
fn until_somebody_has_looked_anything_may_be_still_to_come() {
    let backlog = Backlog::new(3, 9, 10);
    assert!(backlog.has("d", &["m"], &hours(0..1)) && backlog.has_any("d", |_| false));
    assert!(backlog.is_unlisted(None) && backlog.is_unlisted(Some("d")));
    backlog.scanned();
    assert!(!backlog.has("d", &["m"], &hours(0..1)) && !backlog.is_unlisted(Some("d")));
    // The scan is also of no use any more when everything was dispatched.
    let backlog = Backlog::new(3, 9, 10);
    backlog.give(8);
    assert!(backlog.is_unlisted(None));
    backlog.give(9);
    assert!(!backlog.is_unlisted(None) && !backlog.has("d", &["m"], &hours(0..1)));
}

#[test]
fn only_sensors_and_hours_that_are_still_to_come_are_waited_for() {
    let backlog = nothing_unknown(10);
    assert!(note(&backlog, "d", 1, "m", 5) && note(&backlog, "d", 2, "n", 5) && !note(&backlog, "d", 3, "m", 7));
    for (keys, range, open) in [
        (vec!["m"], 5..6, true),
        (vec!["m"], 6..7, false),
        (vec!["m"], 0..100, true),
        (vec!["n"], 7..8, false),
        (vec!["o", "n"], 5..6, true),
        (vec!["o"], 5..6, false),
    ] {
        assert_eq!(backlog.has("d", &keys, &hours(range.clone())), open, "{keys:?} {range:?}");
    }
    assert!(!backlog.has("e", &["m"], &hours(5..6)), "another database");
    assert!(backlog.has_any("d", |key| key == "n") && !backlog.has_any("d", |key| key == "o"));
    backlog.give(2);
    assert!(!backlog.has("d", &["m"], &hours(5..6)) && backlog.has("d", &["m"], &hours(7..8)));
    assert!(!backlog.has("d", &["n"], &hours(5..6)));
    let sensors: Vec<String> =
        backlog.catalog_sensors("d", |_| true).iter().map(|sensors| sensors.sensor.key.to_string()).collect();
    assert_eq!((sensors, backlog.databases()), (vec!["m".to_owned()], vec!["d".to_owned()]));
    backlog.give_all(3);
    assert!(
        backlog.databases().is_empty()
            && backlog.state.lock().databases.is_empty()
            && backlog.state.lock().sensors == 0
    );
}

#[test]
fn fields_that_only_a_record_knows_are_listed_and_each_new_one_finish() {
    let backlog = nothing_unknown(10);
    note(&backlog, "d", 1, "m", 5);
    let mut noting = backlog.noting("d", 2);
    noting.sensor("m", hours(5..6), Named::Record(&fields(&["v", "w"])), || sensor("m"));
    assert!(noting.finish());
    let known = Arc::new(SensorFields {
        names: vec!["w".into(), "x".into()],
        families: vec![Family::String; 2],
        firm: 2,
        saved: 0,
        stored: false,
        ..SensorFields::default()
    });
    for news in [true, false] {
        let mut noting = backlog.noting("d", 3);
        noting.sensor("m", hours(5..6), Named::Known(&known), || sensor("m"));
        assert_eq!(noting.finish(), news);
    }
    let sensors = backlog.catalog_sensors("d", |_| true);
    let names: Vec<&str> = sensors[0].fields.iter().map(|(name, _)| &**name).collect();
    assert_eq!((sensors.len(), names), (1, vec!["v", "w", "x"]));
}

/// A deletion makes sensors known anew: what was noted before it says nothing about the records behind it.
#[test]
fn a_deletion_holds_its_database_back_until_all_behind_it_is_given() {
    let backlog = nothing_unknown(10);
    note(&backlog, "d", 1, "m", 5);
    note(&backlog, "e", 1, "m", 5);
    backlog.note_change("d", 2);
    assert!(!note(&backlog, "d", 3, "n", 5));
    assert!(backlog.has("d", &["o"], &hours(0..1)) && backlog.is_unlisted(Some("d")));
    assert!(!backlog.has("e", &["o"], &hours(0..1)) && !backlog.is_unlisted(Some("e")) && !backlog.is_unlisted(None));
    backlog.give(2);
    assert!(backlog.has("d", &["o"], &hours(0..1)), "a record behind it");
    backlog.give(3);
    assert!(!backlog.has("d", &["n"], &hours(5..6)));
    assert!(note(&backlog, "d", 4, "n", 6), "told apart again");
    assert!(backlog.has("d", &["n"], &hours(6..7)) && !backlog.has("d", &["o"], &hours(6..7)));
}

#[test]
fn beyond_its_bound_the_widest_database_is_held_back_as_one_and_no_other() {
    let backlog = nothing_unknown(8);
    note(&backlog, "small", 1, "m", 5);
    for number in 0..20 {
        note(&backlog, "wide", 2 + number, &format!("m{number}"), 5);
        assert!(backlog.state.lock().sensors <= 8);
    }
    assert!(backlog.has("wide", &["never"], &hours(90..91)) && backlog.has("small", &["m"], &hours(5..6)));
    assert!(!backlog.has("small", &["never"], &hours(5..6)));
    backlog.give(21);
    assert!(!backlog.has("wide", &["never", "m0", "m19"], &hours(5..6)));
    // What was dispatched makes room before any database stops being tracked by sensor.
    let backlog = nothing_unknown(8);
    for number in 0..100 {
        note(&backlog, "d", 1 + number, &format!("m{number}"), 5);
        backlog.give(number.saturating_sub(3));
    }
    assert!(!backlog.has("d", &["never"], &hours(5..6)) && backlog.has("d", &["m99"], &hours(5..6)));
}
