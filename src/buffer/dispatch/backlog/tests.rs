//! Tests of open hours, listed sensors and the bound of the backlog.

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

/// Notes an hour of a sensor. Returns true if something new was noted.
fn note(backlog: &Backlog, database: &str, sequence: Sequence, key: &str, hour: i64) -> bool {
    let mut note = backlog.begin_note(database, sequence);
    note.add_sensor(key, hours(hour..hour + 1), NotedFields::Scanned(&fields(&["v"])), || sensor(key));
    note.finish()
}

fn scanned_backlog(sensors_max: usize) -> Backlog {
    let backlog = Backlog::new(0, 0, sensors_max);
    backlog.note_scanned();
    backlog
}

#[test]
fn an_unscanned_backlog_may_have_anything() {
    let backlog = Backlog::new(3, 9, 10);
    assert!(backlog.has("d", &["m"], &hours(0..1)) && backlog.has_any("d", |_| false));
    assert!(backlog.is_unlisted(None) && backlog.is_unlisted(Some("d")));
    backlog.note_scanned();
    assert!(!backlog.has("d", &["m"], &hours(0..1)) && !backlog.is_unlisted(Some("d")));
    // After everything was dispatched, no scan is needed.
    let backlog = Backlog::new(3, 9, 10);
    backlog.note_dispatched(8);
    assert!(backlog.is_unlisted(None));
    backlog.note_dispatched(9);
    assert!(!backlog.is_unlisted(None) && !backlog.has("d", &["m"], &hours(0..1)));
}

#[test]
fn only_undispatched_sensors_and_hours_are_open() {
    let backlog = scanned_backlog(10);
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
    backlog.note_dispatched(2);
    assert!(!backlog.has("d", &["m"], &hours(5..6)) && backlog.has("d", &["m"], &hours(7..8)));
    assert!(!backlog.has("d", &["n"], &hours(5..6)));
    let sensors: Vec<String> =
        backlog.catalog_sensors("d", |_| true).iter().map(|sensors| sensors.sensor.key.to_string()).collect();
    assert_eq!((sensors, backlog.databases()), (vec!["m".to_owned()], vec!["d".to_owned()]));
    backlog.forget_dispatched(3);
    assert!(
        backlog.databases().is_empty()
            && backlog.state.lock().databases.is_empty()
            && backlog.state.lock().sensors == 0
    );
}

#[test]
fn fields_of_records_are_listed_and_new_ones_are_reported() {
    let backlog = scanned_backlog(10);
    note(&backlog, "d", 1, "m", 5);
    let mut note = backlog.begin_note("d", 2);
    note.add_sensor("m", hours(5..6), NotedFields::Scanned(&fields(&["v", "w"])), || sensor("m"));
    assert!(note.finish());
    let known = Arc::new(SensorFields {
        names: vec!["w".into(), "x".into()],
        families: vec![Family::String; 2],
        firm: 2,
        saved: 0,
        is_stored: false,
        ..SensorFields::default()
    });
    for is_new in [true, false] {
        let mut note = backlog.begin_note("d", 3);
        note.add_sensor("m", hours(5..6), NotedFields::Known(&known), || sensor("m"));
        assert_eq!(note.finish(), is_new);
    }
    let sensors = backlog.catalog_sensors("d", |_| true);
    let names: Vec<&str> = sensors[0].fields.iter().map(|(name, _)| &**name).collect();
    assert_eq!((sensors.len(), names), (1, vec!["v", "w", "x"]));
}

/// A deletion changes the known sensors, so earlier notes do not apply to later records.
#[test]
fn after_a_deletion_the_whole_database_is_open() {
    let backlog = scanned_backlog(10);
    note(&backlog, "d", 1, "m", 5);
    note(&backlog, "e", 1, "m", 5);
    backlog.note_change("d", 2);
    assert!(!note(&backlog, "d", 3, "n", 5));
    assert!(backlog.has("d", &["o"], &hours(0..1)) && backlog.is_unlisted(Some("d")));
    assert!(!backlog.has("e", &["o"], &hours(0..1)) && !backlog.is_unlisted(Some("e")) && !backlog.is_unlisted(None));
    backlog.note_dispatched(2);
    assert!(backlog.has("d", &["o"], &hours(0..1)), "a later record");
    backlog.note_dispatched(3);
    assert!(!backlog.has("d", &["n"], &hours(5..6)));
    assert!(note(&backlog, "d", 4, "n", 6), "its sensors are tracked again");
    assert!(backlog.has("d", &["n"], &hours(6..7)) && !backlog.has("d", &["o"], &hours(6..7)));
}

#[test]
fn beyond_the_bound_the_database_with_most_sensors_is_not_tracked() {
    let backlog = scanned_backlog(8);
    note(&backlog, "small", 1, "m", 5);
    for number in 0..20 {
        note(&backlog, "wide", 2 + number, &format!("m{number}"), 5);
        assert!(backlog.state.lock().sensors <= 8);
    }
    assert!(backlog.has("wide", &["never"], &hours(90..91)) && backlog.has("small", &["m"], &hours(5..6)));
    assert!(!backlog.has("small", &["never"], &hours(5..6)));
    backlog.note_dispatched(21);
    assert!(!backlog.has("wide", &["never", "m0", "m19"], &hours(5..6)));
    // Dispatched entries are removed first.
    let backlog = scanned_backlog(8);
    for number in 0..100 {
        note(&backlog, "d", 1 + number, &format!("m{number}"), 5);
        backlog.note_dispatched(number.saturating_sub(3));
    }
    assert!(!backlog.has("d", &["never"], &hours(5..6)) && backlog.has("d", &["m99"], &hours(5..6)));
}
