//! The store on a failing disk: a full one, and one with an error in any of its writes and syncs.

mod power;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use redb::StorageBackend;

use super::*;
use crate::bucket::store::{BucketId, Coordination, DatabaseStore, PageStore, PageWrite};
use crate::bucket::{Bucket, Caps, MergeOptions, Row, StoredPage};
use crate::reading::{Hour, Sensor, Stamp, Value};

const BLOCK: u64 = 4096;
const HOUR: Hour = Hour(491_150);

/// A disk in memory that outlives its file handles.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Blocks>>);

#[derive(Debug, Default)]
struct Blocks {
    bytes: Vec<u8>,
    /// Numbers of the written blocks. Unwritten blocks of a file take no space.
    taken: HashSet<u64>,
    /// True if writing further blocks fails.
    is_full: bool,
    /// The number of changes that succeed before one fails.
    fails_after: Option<u64>,
}

impl Disk {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().expect("no thread panics while it holds the disk")
    }

    fn store(&self) -> EmbeddedStore {
        // The smallest cache, so that reads reach the disk.
        let builder = || {
            let mut builder = Database::builder();
            builder.set_cache_size(0);
            builder
        };
        let database = builder().create_with_backend(self.clone()).expect("a new database");
        let disk = self.clone();
        let reopen = Box::new(move || builder().create_with_backend(disk.clone()));
        EmbeddedStore::from_database(database, reopen, Path::new("disk")).expect("a new store")
    }
}

impl Blocks {
    fn change(&mut self) -> io::Result<()> {
        match &mut self.fails_after {
            Some(0) => {
                self.fails_after = None;
                Err(io::Error::other("this test fails the operation"))
            }
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.blocks().bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        out.copy_from_slice(&self.blocks().bytes[start..start + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut blocks = self.blocks();
        blocks.change()?;
        blocks.bytes.resize(usize::try_from(len).map_err(io::Error::other)?, 0);
        blocks.taken.retain(|block| block * BLOCK < len);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.blocks().change()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut blocks = self.blocks();
        blocks.change()?;
        for block in offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK) {
            if blocks.is_full && !blocks.taken.contains(&block) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            blocks.taken.insert(block);
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        blocks.bytes[start..start + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn id(sensor: &str) -> BucketId {
    BucketId { sensor: Arc::new(Sensor::new(sensor, [] as [(&str, &str); 0]).expect("no tags")), hour: HOUR }
}

/// Returns a bucket of one reading with a text of this many bytes.
fn bucket(text_bytes: usize) -> Bucket {
    let mut bucket = Bucket::default();
    add(&mut bucket, 0, text_bytes);
    bucket
}

fn add(bucket: &mut Bucket, second: i64, text_bytes: usize) {
    let caps = Caps { max_readings: 100, max_bytes: 1 << 20, hard_bytes: 4 << 20 };
    let names = [Arc::from("text")];
    let cells = [(0, Value::String("x".repeat(text_bytes).into()))];
    let stamp = second.unsigned_abs() + 1;
    let row = Row { time: HOUR.start_ns() + second * 1_000_000_000, stamp, names: &names, cells: &cells };
    bucket.apply([row].into_iter(), &MergeOptions { caps: &caps, floor: 0, restamps: false });
}

async fn write(store: &EmbeddedStore, writes: &[(&BucketId, &Bucket)]) -> Vec<WriteOutcome> {
    let writes: Vec<_> = writes.iter().map(|(id, bucket)| PageWrite { id, bucket, group: vec![0] }).collect();
    store.write_pages("db", &writes).await
}

/// The first page of a stored bucket. All zero if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FirstPage {
    readings: usize,
    rev: u64,
}

const NO_PAGE: FirstPage = FirstPage { readings: 0, rev: 0 };

/// Returns the page that the first write of this bucket stores.
fn first(bucket: &Bucket) -> FirstPage {
    FirstPage { readings: 1, rev: bucket.pages()[0].next_rev() }
}

/// Reads the first page of each bucket.
async fn stored(store: &EmbeddedStore, ids: &[BucketId]) -> Vec<FirstPage> {
    let buckets = store.read_buckets("db", ids, usize::MAX).await.expect("the store reads");
    let first_page = |pages: &Vec<StoredPage>| match pages.first() {
        Some(page) => FirstPage { readings: page.readings.len(), rev: page.rev },
        None => NO_PAGE,
    };
    buckets.iter().map(first_page).collect()
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let disk = Disk::default();
    let store = disk.store();
    let ids = [id("small"), id("large")];
    assert_eq!(write(&store, &[(&ids[0], &bucket(10))]).await, [WriteOutcome::Applied]);
    disk.blocks().is_full = true;
    let large = bucket(1 << 20);
    for _ in 0..3 {
        let outcomes = write(&store, &[(&ids[1], &large)]).await;
        assert!(
            matches!(&outcomes[..], [WriteOutcome::Failed(StorageError::Unavailable(_) | StorageError::Unknown(_))]),
            "{outcomes:?}"
        );
        assert_eq!(stored(&store, &ids).await, [first(&bucket(10)), NO_PAGE]);
        assert_eq!(store.check().await, Ok(()));
    }
    disk.blocks().is_full = false;
    assert_eq!(write(&store, &[(&ids[1], &large)]).await, [WriteOutcome::Applied]);
    assert_eq!(stored(&store, &ids).await, [first(&bucket(10)), first(&large)]);
}

/// An I/O error makes redb refuse all work until the file is reopened. Whichever disk operation fails, the reported
/// outcome is correct, no write is partial, and the next write succeeds.
#[tokio::test]
async fn after_an_error_in_any_operation_no_write_is_partial_and_the_next_one_succeeds() {
    let mut outcomes_seen = HashSet::new();
    for moment in 0.. {
        let disk = Disk::default();
        let store = disk.store();
        let ids = [id("old"), id("new")];
        let mut old = bucket(10);
        assert_eq!(write(&store, &[(&ids[0], &old)]).await, [WriteOutcome::Applied]);
        old.mark_written(&[0]);
        add(&mut old, 1, 10_000);
        let new = bucket(20_000);

        disk.blocks().fails_after = Some(moment);
        let outcomes = write(&store, &[(&ids[0], &old), (&ids[1], &new)]).await;
        let has_succeeded = disk.blocks().fails_after.take().is_some();
        let held = stored(&store, &ids).await;
        let first_old = first(&bucket(10));
        let before = [first_old, NO_PAGE];
        let after = [FirstPage { readings: 2, rev: first_old.rev + 1 }, first(&new)];
        match &outcomes[..] {
            [WriteOutcome::Applied, WriteOutcome::Applied] => assert_eq!(held, after, "moment {moment}"),
            [WriteOutcome::Failed(StorageError::Unavailable(_)), _] => assert_eq!(held, before, "moment {moment}"),
            [WriteOutcome::Failed(StorageError::Unknown(_)), _] => {
                assert!(held == before || held == after, "moment {moment}: {held:?}");
            }
            other => panic!("moment {moment}: {other:?}"),
        }
        outcomes_seen.insert(outcomes[0] == WriteOutcome::Applied);
        let third = [(&id("third"), &bucket(30))];
        assert_eq!(write(&store, &third).await, [WriteOutcome::Applied], "moment {moment}");
        if has_succeeded {
            break;
        }
    }
    assert_eq!(outcomes_seen.len(), 2, "some writes fail, and the last one does not");
}

#[tokio::test]
async fn a_panic_has_an_unknown_outcome_and_later_writes_succeed() {
    let store = Disk::default().store();
    let result: Result<()> = store.run(1, |_| panic!("this test panics on purpose")).await;
    assert!(matches!(result, Err(StorageError::Unknown(_))));
    let ids = [id("next")];
    assert_eq!(write(&store, &[(&ids[0], &bucket(10))]).await, [WriteOutcome::Applied]);
    assert_eq!(stored(&store, &ids).await, [first(&bucket(10))]);
}

/// Regression: a power cut while the file was created left a file that every later start refused.
#[tokio::test]
async fn an_unfinished_file_does_not_prevent_the_next_start() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("hourglass.redb.new"), b"half of it").expect("writable");
    let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("a new store");
    assert_eq!(store.databases().await, Ok(Vec::new()));
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("one").file_name()).collect();
    assert_eq!(names, ["hourglass.redb"]);
}

/// A compaction that gives up changes nothing. The next one frees the space and keeps all data.
#[tokio::test]
async fn a_compaction_gives_up_without_harm_and_keeps_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(EmbeddedStore::open(folder.path(), 1 << 20).expect("a new store"));
    let ids: Vec<BucketId> = (0..60).map(|number| id(&format!("s{number}"))).collect();
    for id in &ids {
        assert_eq!(write(&store, &[(id, &bucket(50_000))]).await, [WriteOutcome::Applied]);
    }
    let removed: Vec<&str> = ids.iter().skip(10).map(|id| &*id.sensor.key).collect();
    store.remove_buckets("db", &removed, HOUR..HOUR.next(), Stamp::MAX).await.expect("removed");
    let before = stored(&store, &ids).await;
    let has_temporary_file = || compact::temporary_path(&folder.path().join(FILE_NAME)).exists();

    let file = store.file.clone();
    let given_up = store.compact_in_use(move |_| file.journal().give_up("requested by a test")).await;
    assert!(matches!(given_up, Err(CompactError::GivenUp(_))), "{given_up:?}");
    assert!(!has_temporary_file() && stored(&store, &ids).await == before);

    // The new file has the writes of the meantime.
    let writes = store.clone();
    let late = id("late");
    let taken = store.measure().await.expect("measured").taken;
    let compacted = store.compact_in_use({
        let runtime = tokio::runtime::Handle::current();
        let late = late.clone();
        let is_written = AtomicBool::new(false);
        move |_| {
            if !is_written.swap(true, Ordering::SeqCst) {
                assert_eq!(runtime.block_on(write(&writes, &[(&late, &bucket(100))])), [WriteOutcome::Applied]);
            }
        }
    });
    let after = compacted.await.expect("compacted");
    assert!(after * 2 < taken, "{taken} bytes before, {after} after");
    assert!(!has_temporary_file() && stored(&store, &ids).await == before);
    assert_eq!(stored(&store, &[late]).await, [first(&bucket(100))]);
    assert_eq!(write(&store, &[(&id("next"), &bucket(10))]).await, [WriteOutcome::Applied]);
    drop(store);
    let store = EmbeddedStore::open(folder.path(), 1 << 20).expect("an intact file");
    assert_eq!(stored(&store, &ids).await, before);
    assert_eq!(stored(&store, &[id("next")]).await, [first(&bucket(10))]);

    let unknown = redb::TableDefinition::<u32, u32>::new("of another version");
    let created = store.file.run(move |database| {
        let transaction = database.begin_write()?;
        drop(transaction.open_table(unknown)?);
        Ok(transaction.commit()?)
    });
    created.expect("a table");
    let refused = store.compact_in_use(|_| ()).await;
    assert!(matches!(refused, Err(CompactError::UnknownTable(_))), "{refused:?}");
    assert_eq!(stored(&store, &ids).await, before);
}
