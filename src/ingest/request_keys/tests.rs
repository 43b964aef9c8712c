use super::*;

const SECOND: i64 = 1_000_000_000;

fn options(folder: &tempfile::TempDir, count_max: usize) -> KeyOptions {
    KeyOptions { file: folder.path().join("request-keys.log"), window: Duration::from_secs(10), count_max }
}

fn begin(keys: &RequestKeys, key: &str, now: i64) -> Result<KeyInFlight, IngestError> {
    keys.begin(RequestKey { key, body_hash: 7 }, ("t", "d"), now)
}

async fn remember(keys: &RequestKeys, key: &str, base: i64, now: i64) {
    begin(keys, key, now).unwrap().remember(base, now).await.unwrap();
}

fn base(keys: &RequestKeys, key: &str, now: i64) -> Option<i64> {
    begin(keys, key, now).unwrap().base
}

#[tokio::test]
async fn a_key_is_remembered_for_its_window_over_restarts_and_by_whom_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let keys = RequestKeys::open(options(&folder, 100), 0);
    remember(&keys, "a", 5, SECOND).await;
    remember(&keys, "b", 6, 2 * SECOND).await;
    for keys in [&keys, &RequestKeys::open(options(&folder, 100), 2 * SECOND)] {
        assert_eq!((base(keys, "a", 3 * SECOND), base(keys, "b", 3 * SECOND)), (Some(5), Some(6)));
        assert_eq!(base(keys, "c", 3 * SECOND), None);
        let of = |token, database| {
            keys.begin(RequestKey { key: "a", body_hash: 7 }, (token, database), 3 * SECOND).unwrap().base
        };
        assert_eq!((of("t", "d"), of("u", "d"), of("t", "e")), (Some(5), None, None));
        let other = keys.begin(RequestKey { key: "a", body_hash: 8 }, ("t", "d"), 3 * SECOND);
        assert!(matches!(other, Err(IngestError::KeyOfOtherBody)));
        assert_eq!((base(keys, "a", 12 * SECOND), base(keys, "b", 12 * SECOND)), (None, Some(6)));
    }
    let first = begin(&keys, "x", 0).unwrap();
    assert!(matches!(begin(&keys, "x", 0), Err(IngestError::KeyInFlight)));
    drop(first);
    begin(&keys, "x", 0).unwrap();
}

#[tokio::test]
async fn the_oldest_go_first_and_the_file_stays_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let keys = RequestKeys::open(options(&folder, 10), 0);
    for number in 0..100 {
        remember(&keys, &number.to_string(), number, number).await;
        assert!(std::fs::metadata(&keys.0.options.file).unwrap().len() <= 21 * 48);
    }
    drop(keys);
    let keys = RequestKeys::open(options(&folder, 10), 100);
    let kept: Vec<i64> = (0..100).filter_map(|number| base(&keys, &number.to_string(), 100)).collect();
    assert_eq!(kept, (90..100).collect::<Vec<_>>());
    assert_eq!(keys.known().by_hash.len(), 10);
}

/// What a crash leaves of the last entry is no entry, and what is added later is not read as if it were part of it.
#[tokio::test]
async fn a_torn_end_is_dropped_and_later_entries_are_not_lost_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(&folder, 100);
    let keys = RequestKeys::open(options.clone(), 0);
    remember(&keys, "a", 1, 0).await;
    remember(&keys, "b", 2, 0).await;
    let whole = std::fs::read(&options.file).unwrap();
    for cut in 49..whole.len() {
        std::fs::write(&options.file, &whole[..cut]).unwrap();
        let keys = RequestKeys::open(options.clone(), 0);
        assert_eq!((base(&keys, "a", 0), base(&keys, "b", 0)), (Some(1), None), "{cut}");
        remember(&keys, "c", 3, 0).await;
        let keys = RequestKeys::open(options.clone(), 0);
        assert_eq!((base(&keys, "a", 0), base(&keys, "c", 0)), (Some(1), Some(3)), "{cut}");
    }
}

/// Requests that come together share a write, and a write that fails is told to each of them.
#[tokio::test(flavor = "multi_thread")]
async fn no_request_is_told_that_its_key_is_on_disk_when_it_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(&folder, 1000);
    let keys = RequestKeys::open(options.clone(), 0);
    let all: Vec<_> = (0..50)
        .map(|number| {
            let keys = keys.clone();
            tokio::spawn(async move { remember(&keys, &number.to_string(), number, 0).await })
        })
        .collect();
    for one in all {
        one.await.unwrap();
    }
    let again = RequestKeys::open(options.clone(), 0);
    assert!((0..50).all(|number| base(&again, &number.to_string(), 0) == Some(number)));
    options.file = folder.path().join("nowhere").join("request-keys.log");
    let keys = RequestKeys::open(options.clone(), 0);
    let mut failed = Vec::new();
    for number in 0..10 {
        let keys = keys.clone();
        failed.push(tokio::spawn(async move { begin(&keys, &number.to_string(), 0).unwrap().remember(1, 0).await }));
    }
    for one in failed {
        assert!(matches!(one.await.unwrap(), Err(IngestError::KeyUnwritten { .. })));
    }
    std::fs::create_dir(folder.path().join("nowhere")).unwrap();
    remember(&keys, "a", 1, 0).await;
    assert_eq!(base(&RequestKeys::open(options, 0), "a", 0), Some(1));
}
