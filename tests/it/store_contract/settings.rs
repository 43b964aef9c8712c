//! Settings of databases.

use std::collections::BTreeMap;
use std::sync::Arc;

use hourglass::bucket::settings::{Drift, ExpiredReadings};
use hourglass::bucket::store::WriteOutcome;
use hourglass::bucket::{DatabaseSettings, Keep, Rename, Renames, SealForm, Store};

use super::test_store::TestStore;

fn week(rev: u64) -> DatabaseSettings {
    DatabaseSettings { rev, readings: Some(Keep::For(7 * 86_400_000_000_000)), ..DatabaseSettings::default() }
}

async fn all(store: &dyn Store) -> Vec<(String, DatabaseSettings)> {
    let mut found = store.read_settings().await.expect("settings can be read");
    found.sort_by(|a, b| a.0.cmp(&b.0));
    // Regression: each change decoded the settings of all databases, which are up to 128 KiB each.
    let mut known: BTreeMap<String, DatabaseSettings> = found.iter().cloned().collect();
    if let Some(outdated) = known.values_mut().next() {
        *outdated = DatabaseSettings { rev: outdated.rev + 1, ..DatabaseSettings::default() };
    }
    let mut reread = store.reread_settings(&known).await.expect("settings can be read");
    reread.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(reread, found);
    found
}

pub async fn settings_round_trip(target: &mut impl TestStore) {
    assert_eq!(all(target.store()).await, []);
    let entry = |fields: &[(&str, &'static str)]| {
        let field = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        Rename::from_fields(field).expect("an entry")
    };
    let of_sensor = entry(&[("kind", "sensor"), ("from", "m,s=1"), ("to", r"m,s=2\ 3")]);
    let fields = [("kind", "tag_value"), ("tag", "s"), ("measurement", "m"), ("from", "$a."), ("to", "b")];
    let renames = Renames::new(vec![entry(&fields), of_sensor]);
    let full = DatabaseSettings {
        rev: 3,
        readings: Some(Keep::Forever),
        default: Some("a policy".to_owned()),
        replication: Some(2),
        shard_duration: Some(3_600_000_000_000),
        expired: Some(-5),
        summaries: Some(Keep::Forever),
        expired_readings: Some(ExpiredReadings { before: -1, stamp: 1 << 60, done: -2 }),
        seal_form: Some(SealForm::Off),
        drift: Some(Drift::Keep),
        created: 1 << 61,
        set: (1 << 61) + 1,
        renames,
        mappings: Arc::new([("a.$plug".to_owned(), "name = \"plug\"\n".to_owned())].into()),
    };
    let empty = DatabaseSettings { rev: 1, ..DatabaseSettings::default() };
    let rows = [("a.b$c", empty), ("plant", full), ("plant/week", week(1 << 40))];
    for (name, settings) in &rows {
        assert_eq!(target.store().write_settings(name, 0, Some(settings)).await, WriteOutcome::Applied);
    }
    target.reopen().await;
    assert_eq!(all(target.store()).await, rows.map(|(name, settings)| (name.to_owned(), settings)));
    // Settings create no database.
    assert_eq!(target.store().databases().await, Ok(Vec::new()));
}

pub async fn settings_need_the_current_rev(target: &mut impl TestStore) {
    let store = target.store();
    assert_eq!(store.write_settings("d", 7, Some(&week(8))).await, WriteOutcome::Conflict);
    assert_eq!(store.write_settings("d", 7, None).await, WriteOutcome::Conflict);
    assert_eq!(store.write_settings("d", 0, None).await, WriteOutcome::Applied);
    assert_eq!(store.write_settings("d", 0, Some(&week(5))).await, WriteOutcome::Applied);
    assert_eq!(store.write_settings("d", 0, Some(&week(6))).await, WriteOutcome::Conflict);
    assert_eq!(store.write_settings("d", 0, None).await, WriteOutcome::Conflict);
    assert_eq!(store.write_settings("d", 4, Some(&week(6))).await, WriteOutcome::Conflict);
    assert_eq!(all(store).await, [("d".to_owned(), week(5))]);
    assert_eq!(store.write_settings("d", 5, Some(&week(6))).await, WriteOutcome::Applied);
    assert_eq!(store.write_settings("d", 5, None).await, WriteOutcome::Conflict);
    assert_eq!(all(store).await, [("d".to_owned(), week(6))]);
    assert_eq!(store.write_settings("d", 6, None).await, WriteOutcome::Applied);
    assert_eq!(all(store).await, []);
}
