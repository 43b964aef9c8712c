use super::*;

const NOW: i64 = 1_768_435_200_000_000_000 + 5 * HOUR + 7;

fn settings() -> Settings {
    let week = DatabaseSettings { readings: Some(Keep::For(7 * DAY)), ..DatabaseSettings::default() };
    let plant = DatabaseSettings { default: Some("week".to_owned()), ..DatabaseSettings::default() };
    let rows = [("plant/week", week.clone()), ("plant/day", week), ("plant", plant), ("plant2", Default::default())];
    let by_database = rows.into_iter().map(|(name, settings)| (name.to_owned(), settings)).collect();
    Settings { by_database, readings: Some(Keep::For(30 * DAY)), summaries: None, ..Settings::default() }
}

#[test]
fn readings_expire_by_days_or_hours_and_only_once_rejected() {
    let midnight = NOW - 5 * HOUR - 7;
    for (kept, from, cutoff) in [
        (7 * DAY, NOW - 7 * DAY, midnight - 7 * DAY),
        (30 * DAY + HOUR, NOW - 30 * DAY - HOUR, midnight - 30 * DAY),
        (30 * DAY + 6 * HOUR, NOW - 30 * DAY - 6 * HOUR, midnight - 31 * DAY),
        (DAY, NOW - DAY, NOW - 7 - DAY),
        (HOUR, NOW - HOUR, NOW - 7 - HOUR),
    ] {
        assert_eq!((Keep::For(kept).start(NOW), Keep::For(kept).cutoff(NOW)), (Some(from), Some(cutoff)), "{kept}");
    }
    assert_eq!((Keep::Forever.start(NOW), Keep::Forever.cutoff(NOW)), (None, None));
    // Longer than there is time.
    let longest = Keep::For(i64::MAX);
    assert!(longest.cutoff(NOW) <= longest.start(NOW) && longest.cutoff(NOW) >= Some(TIMESTAMP_MIN));
}

#[test]
fn a_policy_is_a_database_and_autogen_is_its_owner() {
    let settings = settings();
    let unknown = |name: &str| Err(NoSuchPolicy::Unknown(name.to_owned()));
    for (name, policy, stands_for) in [
        ("plant", None, Ok("plant/week")),
        ("plant", Some(""), Ok("plant/week")),
        ("plant", Some("week"), Ok("plant/week")),
        ("plant", Some("day"), Ok("plant/day")),
        ("plant", Some("autogen"), Ok("plant")),
        ("plant/autogen", None, Ok("plant")),
        ("plant/day", None, Ok("plant/day")),
        ("plant/day", Some("day"), Ok("plant/day")),
        ("plant/", None, Ok("plant/week")),
        ("plant/nope", None, unknown("nope")),
        ("plant", Some("nope"), unknown("nope")),
        ("plant2", None, Ok("plant2")),
        ("plant2", Some("week"), unknown("week")),
        ("other", None, Ok("other")),
        ("other", Some("autogen"), Ok("other")),
        ("plant/day", Some("week"), Err(NoSuchPolicy::Two("day".to_owned(), "week".to_owned()))),
    ] {
        let found = settings.resolve(name, policy);
        assert_eq!(found.as_deref().map_err(Clone::clone), stands_for, "{name} {policy:?}");
    }
    let names: Vec<&str> = settings.policies("plant").map(|(name, _)| name).collect();
    assert_eq!(names, ["day", "week"]);
    assert_eq!(settings.policies("plant2").count() + settings.policies("pla").count(), 0);
}

#[test]
fn configured_defaults_do_not_apply_to_policies() {
    let mut settings = settings();
    assert_eq!(settings.readings_retention("other"), Keep::For(30 * DAY));
    assert_eq!(settings.readings_retention("plant"), Keep::For(30 * DAY));
    assert_eq!(settings.readings_retention("plant/week"), Keep::For(7 * DAY));
    assert_eq!(settings.readings_retention("other/week"), Keep::Forever);
    settings.by_database.entry("plant".to_owned()).or_default().readings = Some(Keep::Forever);
    assert_eq!(settings.readings_retention("plant"), Keep::Forever);
}

#[test]
fn a_drop_keeps_later_settings() {
    let set = DatabaseSettings { rev: 4, readings: Some(Keep::Forever), created: 5, set: 7, ..Default::default() };
    assert_eq!(set.left_by_drop(4).as_ref(), Some(&set));
    assert_eq!(set.left_by_drop(6).as_ref(), Some(&set), "whoever set something expects the database");
    assert_eq!(set.left_by_drop(7), None);
    let anew = DatabaseSettings { created: 9, ..set };
    let bare = DatabaseSettings { rev: 4, created: 9, ..Default::default() };
    assert_eq!((anew.left_by_drop(8), anew.left_by_drop(9)), (Some(bare), None));
    assert_eq!(DatabaseSettings::default().left_by_drop(1), None, "only writes made it");
}

#[test]
fn summaries_are_kept_at_least_as_long_as_readings() {
    let mut settings = settings();
    let midnight = NOW - 5 * HOUR - 7;
    let kept = |settings: &Settings| {
        (
            settings.summaries_retention("other"),
            settings.readings_start("other", NOW),
            settings.accepted_start("other", NOW),
        )
    };
    let from = Some(NOW - 30 * DAY);
    assert_eq!(kept(&settings), (Keep::For(30 * DAY), None, from));
    settings.summaries = Some(Keep::For(7 * DAY));
    assert_eq!(kept(&settings), (Keep::For(30 * DAY), None, from));
    settings.summaries = Some(Keep::Forever);
    assert_eq!(kept(&settings), (Keep::Forever, Some(midnight - 30 * DAY), from));
    assert_eq!(settings.summaries_retention("other/week"), Keep::Forever);
    let gone = ExpiredReadings { before: midnight - 3 * DAY, stamp: 7, done: 0 };
    let own = DatabaseSettings {
        readings: Some(Keep::For(90 * DAY)),
        summaries: Some(Keep::For(365 * DAY)),
        expired_readings: Some(gone),
        ..DatabaseSettings::default()
    };
    settings.by_database.insert("other".to_owned(), own);
    let before = Some(gone.before);
    assert_eq!(kept(&settings), (Keep::For(365 * DAY), before, before));
}

#[test]
fn days_are_not_sealed_until_their_form_is_known() {
    let mut settings = settings();
    settings.by_database.entry("plant".to_owned()).or_default().seal_form = Some(SealForm::Columns);
    let forms = |settings: &Settings| ["plant", "plant/week", "other"].map(|name| settings.seal_form(name));
    assert_eq!(forms(&settings), [SealForm::Columns, SealForm::Off, SealForm::Off]);
    settings.seal_form = Some(SealForm::Packed);
    assert_eq!(forms(&settings), [SealForm::Columns, SealForm::Packed, SealForm::Packed]);
    for form in [SealForm::Packed, SealForm::Columns, SealForm::Off] {
        assert_eq!(SealForm::from_name(form.name()), Some(form));
    }
    assert_eq!(SealForm::from_name("Packed"), None);
}

#[test]
fn drift_falls_back_to_the_database_and_the_default() {
    let mut settings = settings();
    let drifts = |settings: &Settings| ["plant", "plant/week", "other"].map(|name| settings.drift(name));
    assert_eq!(drifts(&settings), [Drift::Reject; 3]);
    settings.by_database.entry("plant".to_owned()).or_default().drift = Some(Drift::Keep);
    assert_eq!(drifts(&settings), [Drift::Keep, Drift::Keep, Drift::Reject]);
    settings.by_database.entry("plant/week".to_owned()).or_default().drift = Some(Drift::Reject);
    settings.drift = Drift::Keep;
    assert_eq!(drifts(&settings), [Drift::Keep, Drift::Reject, Drift::Keep]);
    for drift in [Drift::Reject, Drift::Keep] {
        assert_eq!(Drift::from_name(drift.name()), Some(drift));
    }
}

#[test]
fn shard_groups_have_the_duration_of_influxdb() {
    for (asked, kept, long) in [
        (0, 0, 7 * DAY),
        (0, 200 * DAY, 7 * DAY),
        (0, 9 * DAY, DAY),
        (0, 90 * HOUR / 60, HOUR),
        (2 * HOUR, DAY, 2 * HOUR),
        (1, DAY, HOUR),
    ] {
        assert_eq!(shard_duration(asked, Keep::from_ns(kept)), long, "{asked} {kept}");
    }
}
