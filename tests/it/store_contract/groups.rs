//! Group documents in MongoDB under concurrent changes: each sensor is in one document of its group at every moment.

use hourglass::bucket::store::{Coordination, GroupUpdateStep, MongoExtras, SensorFilter, SensorStore, WriteOutcome};
use hourglass::bucket::{GroupRule, GroupRules, GroupUpdateProgress, Meta, SensorDocument};
use hourglass::reading::{Family, Sensor};
use hourglass::store::{MongoOptions, MongoStore};

use crate::support::prelude::*;

use super::test_store::{DB, sensor};

const SENSORS: i64 = 5;
const ROUNDS: u64 = 400;

fn described_sensor(sensor: &Arc<Sensor>, stamp: u64, site: &str) -> SensorDocument {
    let value: Arc<str> = serde_json::Value::from(site).to_string().into();
    SensorDocument {
        fields: vec![(Arc::from("v"), Family::Number)],
        meta: Meta::change(stamp, true, [("site".into(), Some(value))]),
        ..SensorDocument::new(sensor.clone())
    }
}

#[tokio::test]
async fn without_declared_groups_nothing_changes() {
    let store = MongoStore::open(&mongod().uri(&fresh_database_name()), MongoOptions::default()).await;
    let store = store.expect("a good URI");
    let document = described_sensor(&sensor("m", &[("s", "1")]), 1, "lab");
    assert_eq!(store.write_sensors(DB, &[document]).await, [WriteOutcome::Applied]);
    assert!(!store.keeps_groups());
    assert_eq!(store.regroup(10).await, Ok(GroupUpdateProgress::default()));
    assert_eq!(store.regroup_after(DB, "", 10).await, Ok(GroupUpdateStep::default()));
    store.close().await;
}

async fn open(database: &str) -> MongoStore {
    let rule = GroupRule { name: "site".into(), source: "meta.site".into(), database: None };
    let options = MongoOptions {
        command_timeout: Duration::from_secs(60),
        groups: GroupRules::new([rule]),
        ..MongoOptions::default()
    };
    MongoStore::open(&mongod().uri(database), options).await.expect("a good URI")
}

/// Changes and removes sensors at random, by compare-and-set.
async fn change(store: &MongoStore, writer: u64) {
    let mut random = Random::new(41 + writer);
    for round in 1..=ROUNDS {
        let sensor = sensor("m", &[("s", &random.below(SENSORS).to_string())]);
        let site = format!("site {}", random.below(3));
        let is_removed = random.once_in(2);
        loop {
            let stored = store.read_sensors(DB, &[&sensor.key]).await.expect("it can be read").pop();
            let rev = stored.map_or(0, |stored| stored.rev);
            if is_removed {
                store.remove_sensors(DB, &[(&sensor.key, Some(rev))]).await.expect("it can be removed");
                break;
            }
            let document = SensorDocument { rev, ..described_sensor(&sensor, 2 * round + writer, &site) };
            match store.write_sensors(DB, &[document]).await.pop() {
                Some(WriteOutcome::Applied) => break,
                Some(WriteOutcome::Conflict) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Returns the site of each sensor by its own document.
async fn sites(store: &MongoStore) -> BTreeMap<String, String> {
    let all = SensorFilter { limit: 1000, ..SensorFilter::default() };
    let key_and_site = |document: SensorDocument| {
        let site = serde_json::from_str(document.meta.get("site").unwrap()).unwrap();
        (document.sensor.key.to_string(), site)
    };
    store.list_sensors(DB, &all).await.expect("sensors").into_iter().map(key_and_site).collect()
}

/// Updates group documents until `is_over` is set and nothing is left.
async fn update_groups(store: &MongoStore, is_over: &AtomicBool) {
    loop {
        let was_over = is_over.load(Ordering::SeqCst);
        match store.regroup(7).await {
            Ok(done) if done.sensors == 0 && was_over => return,
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
}

/// Returns the members in one snapshot; panics if a sensor is in two documents.
async fn members(database: &str) -> BTreeMap<String, String> {
    let client = mongodb::Client::with_uri_str(mongod().uri(database)).await.expect("a good URI");
    let groups = client.database(database).collection::<Document>(&format!("{DB}.groups"));
    let mut session = client.start_session().snapshot(true).await.expect("a session");
    let mut found = groups.find(doc! {}).session(&mut session).await.expect("groups");
    let mut members = BTreeMap::new();
    while found.advance(&mut session).await.expect("groups") {
        let page = found.deserialize_current().expect("a document");
        for member in page.get_array("members").unwrap() {
            let key = member.as_document().unwrap().get_str("sensor").unwrap().to_owned();
            let before = members.insert(key, page.get_str("value").unwrap().to_owned());
            assert!(before.is_none(), "a sensor is in two documents: {page}");
        }
    }
    members
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_stores_leave_each_sensor_in_one_group() {
    let database = fresh_database_name();
    let stores = [open(&database).await, open(&database).await];
    // Creates the collection, because earlier snapshots could not be read.
    let first = described_sensor(&sensor("n", &[]), 1, "site 0");
    assert_eq!(stores[0].write_sensors(DB, &[first]).await, [WriteOutcome::Applied]);
    assert_eq!(stores[0].regroup(7).await.map(|done| done.sensors), Ok(1));
    let is_over = AtomicBool::new(false);
    let changes = async {
        tokio::join!(change(&stores[0], 0), change(&stores[1], 1));
        is_over.store(true, Ordering::SeqCst);
    };
    let looks = async {
        while !is_over.load(Ordering::SeqCst) {
            members(&database).await;
        }
    };
    let keepers = async { tokio::join!(update_groups(&stores[0], &is_over), update_groups(&stores[1], &is_over)) };
    tokio::join!(changes, looks, keepers);
    let expected = sites(&stores[0]).await;
    assert!(expected.len() > 1, "{expected:?}");
    assert_eq!(members(&database).await, expected);
    // A walk finds nothing to change.
    let step = stores[0].regroup_after(DB, "", 1000).await.expect("a walk");
    assert_eq!((step.progress.documents, step.last_key), (0, None));
}
