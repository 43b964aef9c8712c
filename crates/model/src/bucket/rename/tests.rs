use super::*;

fn sensor(key: &str) -> Sensor {
    Sensor::from_key(key).expect("a key")
}

fn rename(kind: RenameKind, scope: (&str, &str), from: &str, to: &str) -> Rename {
    Rename { kind, tag: scope.0.into(), measurement: scope.1.into(), from: from.into(), to: to.into() }
}

fn value(from: &str, to: &str) -> Rename {
    rename(RenameKind::TagValue, ("room", ""), from, to)
}

fn table(entries: impl IntoIterator<Item = Rename>) -> Renames {
    entries.into_iter().fold(Renames::default(), |table, entry| table.with(entry).expect("a valid entry"))
}

fn shown(renames: &Renames, key: &str) -> String {
    renames.shown_sensor(&sensor(key)).map_or_else(|| key.to_owned(), |shown| shown.key.to_string())
}

fn keys(sensors: &[Sensor]) -> Vec<&str> {
    sensors.iter().map(|sensor| &*sensor.key).collect()
}

#[test]
fn a_sensors_own_entry_takes_precedence_over_other_kinds() {
    let renames = table([
        rename(RenameKind::Measurement, ("", ""), "climate", "air"),
        rename(RenameKind::TagKey, ("", ""), "room", "place"),
        value("lab", "hall"),
        rename(RenameKind::TagValue, ("room", "climate"), "attic", "roof"),
        rename(RenameKind::Sensor, ("", ""), "climate,room=lab,s=9", "weather,s=9"),
    ]);
    assert_eq!(shown(&renames, "climate,room=lab,s=1"), "air,place=hall,s=1");
    assert_eq!(shown(&renames, "power,room=attic"), "power,place=attic", "it is limited to one measurement");
    assert_eq!(shown(&renames, "climate,room=attic"), "air,place=roof");
    assert_eq!(shown(&renames, "climate,room=lab,s=9"), "weather,s=9");
    assert_eq!(shown(&renames, "m,place=x,room=lab"), "m,place=x,room=lab", "it has a tag of that key");
    assert_eq!(shown(&renames, "m,s=lab"), "m,s=lab");
    assert_eq!(keys(&renames.stored_sensors(&sensor("weather,s=9"))), ["climate,room=lab,s=9", "weather,s=9"]);
    let stored = [
        "air,room=lab,s=9",
        "climate,room=hall,s=9",
        "air,room=hall,s=9",
        "climate,place=hall,s=9",
        "air,place=hall,s=9",
    ];
    assert_eq!(keys(&renames.stored_sensors(&sensor("air,place=hall,s=9"))), stored);
    assert_eq!(renames.stored_sensors(&sensor("climate,room=lab,s=9")), [], "it is shown as weather");
}

#[test]
fn renames_do_not_chain() {
    let swapped = table([value("a", "b"), value("b", "c")]);
    assert_eq!(swapped.entries(), [value("a", "c")], "b was the shown name of a");
    let apart = table([value("b", "c"), value("a", "b")]);
    assert_eq!((shown(&apart, "m,room=a"), shown(&apart, "m,room=b")), ("m,room=b".into(), "m,room=c".into()));
    assert_eq!(table([value("a", "b"), value("a", "c")]).entries(), [value("a", "c")]);
    assert_eq!(table([value("a", "b"), value("b", "a")]).entries(), [], "back to the stored name");
    let both = table([value("Lab", "lab"), value("LAB", "lab"), value("lab", "hall")]);
    assert_eq!(both.entries(), [value("LAB", "hall"), value("Lab", "hall")]);
    // The scope may also be a shown name.
    let scoped = table([
        rename(RenameKind::TagKey, ("", ""), "room", "place"),
        rename(RenameKind::Measurement, ("", ""), "m", "air"),
        value("a", "b"),
        rename(RenameKind::TagValue, ("place", "air"), "b", "c"),
    ]);
    assert_eq!((shown(&scoped, "m,room=a"), shown(&scoped, "x,room=a")), ("air,place=c".into(), "x,place=b".into()));
    assert_eq!(scoped.without(RenameKind::TagValue, "room", "", "b"), None, "that is no stored name of an entry");
    let fewer = scoped.without(RenameKind::TagValue, "room", "m", "a").expect("it is there");
    assert_eq!(shown(&fewer, "m,room=a"), "air,place=b");
}

#[test]
fn a_written_name_refers_to_a_stored_sensor_or_a_new_one() {
    let renames = table([value("lab", "hall")]);
    let written = |key: &str| keys(&renames.stored_candidates(&sensor(key))).join(" ");
    assert_eq!(written("m,room=hall"), "m,room=hall m,room=lab", "a new one is stored as lab");
    assert_eq!(written("m,room=lab"), "m,room=lab m,room=hall m,room=lab", "one stored as hall is shown so");
    assert_eq!(written("m,room=x"), "m,room=x");
    assert_eq!(Renames::default().stored_candidates(&sensor("m,room=x")), [sensor("m,room=x")]);
    let swapped = table([value("c", "x"), value("a", "c"), value("x", "a")]);
    assert_eq!(swapped.entries(), [value("a", "c"), value("c", "a")]);
    assert_eq!(swapped.stored_candidates(&sensor("m,room=a")).last(), Some(&sensor("m,room=c")));
    assert_eq!(swapped.stored_candidates(&sensor("m,room=c")).last(), Some(&sensor("m,room=a")));
}

#[test]
fn invalid_entries_are_rejected() {
    use InvalidRename::{Backslash, Empty, NoKey, Same, Scope, TooMany, TooWide};
    let refusal = |entry: Rename| Renames::default().with(entry).expect_err("it is refused");
    let whole = |from: &str, to: &str| rename(RenameKind::Sensor, ("", ""), from, to);
    assert_eq!(refusal(value("a", "a")), Same);
    assert_eq!(refusal(value("", "a")), Empty);
    assert_eq!(refusal(value("a", "b\\")), Backslash);
    assert_eq!(refusal(whole("m,s=1\\,t=2", "m,s=2")), NoKey("m,s=1\\,t=2".into()));
    assert_eq!(refusal(whole("m,s=1", "m,b=1,a=2")), NoKey("m,b=1,a=2".into()));
    assert_eq!(refusal(rename(RenameKind::TagValue, ("", ""), "a", "b")), Scope);
    assert_eq!(refusal(rename(RenameKind::TagKey, ("", "m"), "a", "b")), Scope);
    let numbered = |number: usize| value(&format!("a{number}"), &format!("b{number}"));
    let full = table((0..RENAMES_MAX).map(numbered));
    assert_eq!(full.with(numbered(RENAMES_MAX)), Err(TooMany));
    assert!(full.with(value("b3", "c")).is_ok(), "an entry can still be edited");
    // Regression: 250 long renames took 348 of 128 MiB, because every change of settings reads all of them.
    let long = |number: usize| value(&format!("{number:030000}"), "b");
    assert_eq!(table((0..2).map(long)).with(long(2)), Err(TooMany));
    let of_tag = |tag: usize| rename(RenameKind::TagValue, (&format!("t{tag}"), ""), "a", "b");
    let wide = table((0..8).map(of_tag));
    assert_eq!(wide.with(of_tag(8)), Err(TooWide));
    let all = (0..8).map(|tag| (format!("t{tag}"), "b".to_owned()));
    assert_eq!(wide.stored_sensors(&Sensor::new("m", all).expect("distinct keys")).len(), SOURCES_MAX);
}

#[test]
fn entries_round_trip_through_their_fields() {
    for entry in [value("a", "b c"), rename(RenameKind::TagValue, ("t", "m"), "a", "b")] {
        let fields: Vec<_> = entry.fields().collect();
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        assert_eq!(Rename::from_fields(field), Some(entry.clone()));
        assert_eq!(Rename::from_fields(|name| field(name).filter(|_| name != "from")), None);
    }
}

proptest::proptest! {
    /// For any entries, a shown name leads back to the sensor, and a new sensor is shown under its written name.
    #[test]
    fn stored_names_are_the_inverse_of_shown_names(
        entries in proptest::collection::vec((0..4_usize, 0..4_usize, 0..4_usize, proptest::bool::ANY), 0..8),
        at in (0..4_usize, 0..4_usize, 0..4_usize),
    ) {
        const NAMES: [&str; 4] = ["a", "b", "c", "d"];
        const KINDS: [RenameKind; 4] =
            [RenameKind::Sensor, RenameKind::Measurement, RenameKind::TagKey, RenameKind::TagValue];
        let mut renames = Renames::default();
        for (kind, from, to, is_scoped) in entries {
            let from = NAMES[from];
            let to = NAMES[to];
            let entry = match KINDS[kind] {
                RenameKind::Sensor => {
                    rename(RenameKind::Sensor, ("", ""), &format!("a,a={from}"), &format!("b,b={to}"))
                }
                RenameKind::TagValue => rename(RenameKind::TagValue, ("a", if is_scoped { "b" } else { "" }), from, to),
                kind => rename(kind, ("", ""), from, to),
            };
            renames = renames.with(entry).unwrap_or(renames);
        }
        let name = Sensor::new(NAMES[at.0], [(NAMES[at.1], NAMES[at.2])]).expect("one tag");
        let shown = renames.shown_sensor(&name).unwrap_or_else(|| name.clone());
        proptest::prop_assert!(renames.stored_sensors(&shown).contains(&name));
        for stored in renames.stored_sensors(&name) {
            proptest::prop_assert_eq!(renames.shown_sensor(&stored).unwrap_or(stored).key, name.key.clone());
        }
        let new = renames.stored_candidates(&name).pop().expect("at least one");
        let new_shown = renames.shown_sensor(&new).unwrap_or(new);
        proptest::prop_assert!(new_shown == name || renames.stored_sensors(&name).is_empty() && new_shown == shown);
    }
}
