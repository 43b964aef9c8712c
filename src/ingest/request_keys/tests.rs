use super::*;

const SECOND: i64 = 1_000_000_000;

fn options(folder: &tempfile::TempDir, count_max: usize) -> KeyOptions {
    KeyOptions { folder: folder.path().join("request-keys"), window: Duration::from_secs(10), count_max }
}

fn begin(keys: &RequestKeys, key: &str, now: i64) -> Result<KeyInFlight, IngestError> {
    keys.begin(RequestKey { key, body_hash: 7 }, Some("t"), "d", now)
}

async fn remember(keys: &RequestKeys, key: &str, base: i64, now: i64) {
    begin(keys, key, now).unwrap().remember(base, now).await.unwrap();
}

fn base(keys: &RequestKeys, key: &str, now: i64) -> Option<i64> {
    begin(keys, key, now).unwrap().base
}

#[tokio::test]
async fn a_key_is_remembered_per_token_and_database_for_its_window_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let keys = RequestKeys::open(options(&folder, 100), 0);
    remember(&keys, "a", 5, SECOND).await;
    remember(&keys, "b", 6, 2 * SECOND).await;
    for keys in [&keys, &RequestKeys::open(options(&folder, 100), 2 * SECOND)] {
        assert_eq!((base(keys, "a", 3 * SECOND), base(keys, "b", 3 * SECOND)), (Some(5), Some(6)));
        assert_eq!(base(keys, "c", 3 * SECOND), None);
        let base_for = |token, database| {
            keys.begin(RequestKey { key: "a", body_hash: 7 }, Some(token), database, 3 * SECOND).unwrap().base
        };
        assert_eq!((base_for("t", "d"), base_for("u", "d"), base_for("t", "e")), (Some(5), None, None));
        let other = keys.begin(RequestKey { key: "a", body_hash: 8 }, Some("t"), "d", 3 * SECOND);
        assert!(matches!(other, Err(IngestError::KeyOfOtherBody)));
        assert_eq!((base(keys, "a", 12 * SECOND), base(keys, "b", 12 * SECOND)), (None, Some(6)));
    }
    let first = begin(&keys, "x", 0).unwrap();
    assert!(matches!(begin(&keys, "x", 0), Err(IngestError::KeyInFlight)));
    drop(first);
    begin(&keys, "x", 0).unwrap();
}

#[tokio::test]
async fn the_oldest_keys_are_forgotten_first_and_the_file_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let keys = RequestKeys::open(options(&folder, 10), 0);
    for number in 0..1000 {
        remember(&keys, &number.to_string(), number, number).await;
        let segments = std::fs::read_dir(&keys.0.options.folder).unwrap();
        let bytes: u64 = segments.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= 10 * RECORD_BYTES_MAX + 3 * SEGMENT_BYTES_MIN, "{bytes}");
    }
    drop(keys);
    let keys = RequestKeys::open(options(&folder, 10), 1000);
    let kept: Vec<i64> = (0..1000).filter_map(|number| base(&keys, &number.to_string(), 1000)).collect();
    assert_eq!(kept, (990..1000).collect::<Vec<_>>());
    assert_eq!(keys.0.index.lock().by_hash.len(), 10);
}

/// Regression: 10,200 keys of one sender displaced the key of another one, whose retry was then stored twice.
#[tokio::test]
async fn a_sender_displaces_only_keys_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let keys = RequestKeys::open(options(&folder, 100), 0);
    let remember = async |token: Option<&str>, database: &str, key: &str| {
        let key = keys.begin(RequestKey { key, body_hash: 7 }, token, database, SECOND).unwrap();
        key.remember(5, SECOND).await.unwrap();
    };
    let is_known = |token: Option<&str>, database: &str, key: &str| {
        keys.begin(RequestKey { key, body_hash: 7 }, token, database, SECOND).unwrap().base.is_some()
    };
    for number in 0..45 {
        remember(Some("small"), "d", &number.to_string()).await;
    }
    remember(None, "other", "x").await;
    for number in 0..1000 {
        remember(Some("flood"), &format!("d{}", number % 50), &number.to_string()).await;
    }
    assert!((0..45).all(|number| is_known(Some("small"), "d", &number.to_string())));
    assert!(is_known(None, "other", "x"));
    // Alone, a sender may use all.
    let flood: Vec<usize> =
        (0..1000).filter(|number| is_known(Some("flood"), &format!("d{}", number % 50), &number.to_string())).collect();
    assert_eq!(flood, (1000 - 54..1000).collect::<Vec<_>>());
}

/// Regression: each write with a key visited the keys of all senders. The indexes that replace the visit agree with it.
#[test]
fn the_oldest_and_the_most_keys_are_found_without_a_visit_of_all_senders() {
    let mut index = KeyIndex::default();
    for number in 0..3_000_u32 {
        let owner = number * number % 97 % 31;
        let hash = hash_key([&number.to_string(), "", ""]);
        index.add(StoredKey { hash, owner, body_hash: 7, base: 5, remembered_ns: i64::from(number) });
        // Sometimes the age decides, sometimes the number.
        let start_ns = i64::from(number) - if number % 500 < 250 { 100 } else { 1000 };
        index.prune(start_ns, 150);
        let oldest = index.order.iter().map(|(owner, keys)| (keys[0].1, *owner)).collect::<BTreeSet<_>>();
        let counts = index.order.iter().map(|(owner, keys)| (keys.len(), *owner)).collect::<BTreeSet<_>>();
        assert_eq!((&index.by_age, &index.by_count), (&oldest, &counts));
        assert!(index.count <= 150 && index.by_age.first().is_some_and(|(oldest_ns, _)| *oldest_ns >= start_ns));
        assert_eq!(index.by_hash.len(), index.count);
    }
}

#[test]
fn the_largest_record_is_within_its_limit() {
    let largest =
        StoredKey { hash: [255; 16], owner: u32::MAX, body_hash: u64::MAX, base: i64::MIN, remembered_ns: i64::MIN };
    // Checksum, id and separators.
    let json = serde_json::to_string(&largest).unwrap().len() as u64;
    assert!(8 + 1 + 20 + 1 + json < RECORD_BYTES_MAX, "{json}");
}

/// Concurrent requests share a write, and a failed write fails each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_fails_every_request_that_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder, 1000);
    let keys = RequestKeys::open(options.clone(), 0);
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let keys = keys.clone();
            tokio::spawn(async move { remember(&keys, &number.to_string(), number, 0).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let again = RequestKeys::open(options.clone(), 0);
    assert!((0..50).all(|number| base(&again, &number.to_string(), 0) == Some(number)));
    std::fs::write(folder.path().join("nowhere"), "").unwrap();
    options.folder = folder.path().join("nowhere").join("request-keys");
    let keys = RequestKeys::open(options.clone(), 0);
    let mut failed = Vec::new();
    for number in 0..10 {
        let keys = keys.clone();
        failed.push(tokio::spawn(async move { begin(&keys, &number.to_string(), 0).unwrap().remember(1, 0).await }));
    }
    for task in failed {
        assert!(matches!(task.await.unwrap(), Err(IngestError::KeyUnwritten { .. })));
    }
    std::fs::remove_file(folder.path().join("nowhere")).unwrap();
    remember(&keys, "a", 1, 0).await;
    assert_eq!(base(&RequestKeys::open(options, 0), "a", 0), Some(1));
}
