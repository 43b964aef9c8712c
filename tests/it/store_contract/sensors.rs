//! Sensor documents and databases.

use std::sync::Arc;

use hourglass::bucket::store::{Extent, Order, Outlier, Projection, SensorFilter, WriteOutcome};
use hourglass::bucket::{Lifetime, Meta, SensorDocument, Store, Summary};
use hourglass::reading::{Family, Hour, Sensor, Value};

use super::test_store::{
    CAPS, DB, TestStore, assert_stored, bucket_id, bucket_of, read, reading, seconds, sensor, write_through,
};

const MILLI: i64 = 1_000_000;
const OUTLIER: Outlier =
    Outlier { since: 1_768_485_600_123 * MILLI, seen: 1_768_489_200_000 * MILLI, last_hour: Hour(491_246), pages: 3 };

fn fresh(sensor: &Arc<Sensor>) -> SensorDocument {
    SensorDocument {
        sensor: sensor.clone(),
        rev: 0,
        fields: vec![(Arc::from("temp"), Family::Number)],
        first_seen: None,
        last_seen: None,
        recent: Vec::new(),
        outlier: None,
        lifetime: None,
        meta: Meta::default(),
    }
}

async fn write(store: &dyn Store, document: &SensorDocument) -> WriteOutcome {
    let outcomes = store.write_sensors(DB, std::slice::from_ref(document)).await;
    assert_eq!(outcomes.len(), 1);
    outcomes[0].clone()
}

async fn read_one(store: &dyn Store, key: &str) -> Option<SensorDocument> {
    let mut found = store.read_sensors(DB, &[key]).await.expect("the sensor can be read");
    assert!(found.len() <= 1);
    found.pop()
}

pub async fn a_sensor_document_round_trips(target: &mut impl TestStore) {
    let odd = sensor("my climate", &[("a.b", "1"), ("$x", "2"), ("ts", "3"), ("room", "ü, =")]);
    let mut document = SensorDocument {
        fields: [("temp", Family::Number), ("a.b", Family::Boolean), ("ns", Family::String), ("$", Family::Number)]
            .map(|(name, family)| (Arc::from(name), family))
            .to_vec(),
        first_seen: Some(-MILLI),
        last_seen: Some(1_768_485_600_001 * MILLI),
        recent: vec![
            reading(-1, &[("temp", Value::Float(-0.5)), ("ns", Value::String("x".into()))]),
            reading(1_768_485_600_000_000_001, &[("a.b", Value::Boolean(false)), ("$", Value::Unsigned(u64::MAX))]),
        ],
        outlier: Some(OUTLIER),
        lifetime: Some(Box::new(Lifetime {
            as_of: 1_768_489_200_001 * MILLI,
            hours: Hour(-1)..Hour(491_246),
            fields: vec![
                (
                    Arc::from("$"),
                    Summary::fold([Value::Unsigned(u64::MAX), Value::Integer(-1)].iter()).expect("numbers"),
                ),
                (Arc::from("temp"), Summary::fold([Value::Float(0.1), Value::Float(1e300)].iter()).expect("numbers")),
            ],
        })),
        ..fresh(&odd)
    };
    assert_eq!(write(target.store(), &document).await, WriteOutcome::Applied);
    document.rev = 1;
    assert_eq!(read_one(target.store(), &odd.key).await.as_ref(), Some(&document));

    // Every field can change, and optional ones can be removed.
    let latest = document.recent.remove(1);
    document = SensorDocument {
        recent: vec![latest],
        outlier: None,
        lifetime: None,
        first_seen: Some(-2 * MILLI),
        ..document
    };
    document.fields.push((Arc::from("more"), Family::Boolean));
    assert_eq!(write(target.store(), &document).await, WriteOutcome::Applied);
    document.rev = 2;
    assert_eq!(read_one(target.store(), &odd.key).await.as_ref(), Some(&document));
    target.reopen().await;
    assert_eq!(read_one(target.store(), &odd.key).await.as_ref(), Some(&document));

    let bare = fresh(&sensor("bare", &[]));
    assert_eq!(write(target.store(), &bare).await, WriteOutcome::Applied);
    assert_eq!(read_one(target.store(), "bare").await, Some(SensorDocument { rev: 1, ..bare }));
    assert_eq!(read_one(target.store(), "unknown").await, None);
}

pub async fn a_sensor_document_needs_the_current_rev(target: &mut impl TestStore) {
    let documents: Vec<SensorDocument> = (0..9).map(|n| fresh(&sensor(&format!("s{n}"), &[]))).collect();
    assert_eq!(write(target.store(), &documents[4]).await, WriteOutcome::Applied);
    let mut expected = vec![WriteOutcome::Applied; 9];
    expected[4] = WriteOutcome::Conflict;
    let seen =
        |document: &SensorDocument, time: i64| SensorDocument { last_seen: Some(time * MILLI), ..document.clone() };
    let second: Vec<_> = documents.iter().map(|document| seen(document, 5)).collect();
    assert_eq!(target.store().write_sensors(DB, &second).await, expected);
    assert_eq!(read_one(target.store(), "s4").await.expect("it is there").last_seen, None, "nothing was written");

    let at_rev = |rev| SensorDocument { rev, ..seen(&documents[4], 7) };
    for (rev, outcome) in [
        (2, WriteOutcome::Conflict),
        (0, WriteOutcome::Conflict),
        (1, WriteOutcome::Applied),
        (1, WriteOutcome::Conflict),
    ] {
        assert_eq!(write(target.store(), &at_rev(rev)).await, outcome, "rev {rev}");
    }
    assert_eq!(read_one(target.store(), "s4").await, Some(at_rev(2)));
    let gone = SensorDocument { rev: 3, ..fresh(&sensor("never stored", &[])) };
    assert_eq!(write(target.store(), &gone).await, WriteOutcome::Conflict);
    assert_eq!(read_one(target.store(), "never\\ stored").await, None, "no torso");

    let keys = ["s0", "unknown", "s8", "s3"];
    let found = target.store().read_sensors(DB, &keys).await.expect("the sensors");
    let mut found: Vec<&str> = found.iter().map(|document| &*document.sensor.key).collect();
    found.sort_unstable();
    assert_eq!(found, ["s0", "s3", "s8"]);
    assert!(target.store().read_sensors(DB, &[]).await.expect("an answer").is_empty());
    assert_eq!(target.store().write_sensors(DB, &[]).await, []);
}

async fn list(store: &dyn Store, after: Option<&str>, outliers: bool, limit: usize) -> Vec<String> {
    let filter = SensorFilter { after: after.map(str::to_owned), outliers, limit };
    let found = store.list_sensors(DB, &filter).await.expect("a list");
    found.iter().map(|document| document.sensor.key.to_string()).collect()
}

pub async fn sensors_are_listed_in_key_order(target: &mut impl TestStore) {
    assert!(list(target.store(), None, false, 10).await.is_empty());
    let sensors = [
        sensor("ab", &[]),
        sensor("ü", &[]),
        sensor("a", &[("b", "c")]),
        sensor("a b", &[]),
        sensor("Z", &[]),
        sensor("a", &[]),
        sensor("a", &[("b", "c"), ("d", "e")]),
    ];
    let documents: Vec<SensorDocument> = sensors.iter().map(fresh).collect();
    assert_eq!(target.store().write_sensors(DB, &documents).await, vec![WriteOutcome::Applied; 7]);
    let other = fresh(&sensor("b", &[]));
    assert_eq!(target.store().write_sensors("other", &[other]).await, [WriteOutcome::Applied]);

    let all = ["Z", "a", "a,b=c", "a,b=c,d=e", "a\\ b", "ab", "ü"];
    assert_eq!(list(target.store(), None, false, 100).await, all);
    assert_eq!(list(target.store(), None, false, 7).await, all);
    assert_eq!(list(target.store(), None, false, 3).await, all[..3]);
    for (n, after) in all.iter().enumerate() {
        assert_eq!(list(target.store(), Some(after), false, 2).await, all[n + 1..(n + 3).min(7)], "after {after}");
    }
    assert_eq!(list(target.store(), Some("a,"), false, 1).await, ["a,b=c"], "after a key that is not there");
    assert!(list(target.store(), None, true, 100).await.is_empty());
}

pub async fn marked_outliers_are_listed(target: &mut impl TestStore) {
    let marked = |n: usize| n % 4 == 1;
    let document = |n: usize| {
        let outlier = marked(n).then_some(OUTLIER);
        SensorDocument { outlier, ..fresh(&sensor(&format!("s{n:02}"), &[])) }
    };
    let documents: Vec<SensorDocument> = (0..20).map(document).collect();
    assert_eq!(target.store().write_sensors(DB, &documents).await, vec![WriteOutcome::Applied; 20]);
    assert_eq!(list(target.store(), None, true, 100).await, ["s01", "s05", "s09", "s13", "s17"]);
    assert_eq!(list(target.store(), Some("s05"), true, 2).await, ["s09", "s13"]);
    assert_eq!(list(target.store(), Some("s06"), true, 2).await, ["s09", "s13"]);

    // One is cleared, one is new, one stays, and one was changed by another writer.
    let change = |n: usize, outlier, rev| SensorDocument { rev, outlier, ..document(n) };
    let later = Outlier { pages: 4, ..OUTLIER };
    let changes = [change(5, None, 1), change(6, Some(later), 1), change(9, Some(later), 1), change(13, None, 2)];
    let outcomes = target.store().write_sensors(DB, &changes).await;
    assert_eq!(outcomes, [WriteOutcome::Applied, WriteOutcome::Applied, WriteOutcome::Applied, WriteOutcome::Conflict]);
    assert_eq!(list(target.store(), None, true, 100).await, ["s01", "s06", "s09", "s13", "s17"]);
    assert_eq!(read_one(target.store(), "s09").await.and_then(|document| document.outlier), Some(later));
    assert_eq!(list(target.store(), None, false, 100).await.len(), 20);
}

pub async fn databases_are_listed_by_name(target: &mut impl TestStore) {
    assert!(target.store().databases().await.expect("the databases").is_empty());
    for name in ["plant", "a.b", "ü", "system", "Z", "a", "a.b"] {
        target.store().create_database(name).await.expect("created");
        target.store().create_database(name).await.expect("doing it twice changes nothing");
    }
    // A write of a page or a sensor registers its database.
    let id = bucket_id(&sensor("climate", &[]), Hour(0));
    let mut bucket = bucket_of(&seconds(Hour(0), 0, &[1]), &CAPS);
    assert!(write_through(target.store(), "by page", &id, &mut bucket).await);
    assert_eq!(target.store().write_sensors("by sensor", &[fresh(&id.sensor)]).await, [WriteOutcome::Applied]);
    let names = ["Z", "a", "a.b", "by page", "by sensor", "plant", "system", "ü"];
    assert_eq!(target.store().databases().await.expect("the databases"), names);
    target.reopen().await;
    assert_eq!(target.store().databases().await.expect("the databases"), names);
}

pub async fn databases_are_separate(target: &mut impl TestStore) {
    let id = bucket_id(&sensor("climate", &[]), Hour(0));
    let names = ["a", "a.b", "a%2Eb", "A", "aa", "system"];
    let mut buckets = Vec::new();
    for (n, name) in (0..).zip(names) {
        let mut bucket = bucket_of(&seconds(Hour(0), 0, &[n]), &CAPS);
        assert!(write_through(target.store(), name, &id, &mut bucket).await, "{name} has no such bucket yet");
        let document = SensorDocument { last_seen: Some(n * MILLI), ..fresh(&id.sensor) };
        assert_eq!(target.store().write_sensors(name, &[document]).await, [WriteOutcome::Applied]);
        buckets.push(bucket);
    }
    let everything = SensorFilter { limit: 100, ..SensorFilter::default() };
    for (n, name) in (0..).zip(names) {
        let stored = read(target.store(), name, &id).await;
        assert_stored(&buckets[usize::try_from(n).expect("small")], &stored);
        let scanned = target
            .store()
            .scan(name, "climate", Hour(-9)..Hour(9), Order::Ascending, &Projection::SUMMARIES, Extent::pages(100))
            .await
            .expect("a scan")
            .pages;
        assert_eq!(scanned.len(), 1, "{name}");
        let sensors = target.store().list_sensors(name, &everything).await.expect("a list");
        assert_eq!(sensors.iter().map(|s| s.last_seen).collect::<Vec<_>>(), [Some(n * MILLI)], "{name}");
    }
}

pub async fn a_store_that_answers_passes_its_check(target: &mut impl TestStore) {
    assert_eq!(target.store().check().await, Ok(()));
    target.reopen().await;
    assert_eq!(target.store().check().await, Ok(()));
}
