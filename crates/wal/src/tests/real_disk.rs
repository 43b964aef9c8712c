//! The real file system as a disk, and a reader that runs beside the writer.

use std::sync::mpsc;
use std::thread;

use super::history::payload;
use super::{read_all, small};
use crate::{AppendError, Disk, Folder, Wal, WalOptions};

#[test]
fn a_reader_keeps_up_with_four_appenders_and_truncation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("below/log");
    let options = WalOptions { segment_bytes: 64 << 10, compress: true, ..small() };
    let (log, recovery) = Wal::open(Folder::new(&path).unwrap(), options.clone()).unwrap();
    assert_eq!((recovery.last, recovery.unwritable), (0, None));
    const EACH: u64 = 400;
    thread::scope(|scope| {
        for appender in 0..4 {
            let log = &log;
            scope.spawn(move || {
                let (sender, outcomes) = mpsc::channel();
                for number in 0..EACH {
                    let sender = sender.clone();
                    let bytes = payload(appender * EACH + number, 500);
                    log.append(0, 1, bytes, move |result: Result<u64, AppendError>| sender.send(result).unwrap())
                        .unwrap();
                    outcomes.recv().unwrap().unwrap();
                }
            });
        }
        let mut reader = log.reader(1);
        let mut next = [0; 4];
        for expected in 1..=4 * EACH {
            let record = loop {
                match reader.next().unwrap() {
                    Some(record) => break record,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(record.sequence, expected);
            let number = u64::from_le_bytes(record.payload[..8].try_into().unwrap());
            assert_eq!(record.payload, payload(number, 500));
            let own = &mut next[(number / EACH) as usize];
            assert_eq!(number % EACH, *own, "each appender's records are in its order");
            *own += 1;
            if expected % 500 == 0 {
                log.truncate(expected).unwrap();
            }
        }
    });
    log.close();
    let (log, recovery) = Wal::open(Folder::new(&path).unwrap(), options).unwrap();
    assert_eq!((recovery.last, recovery.truncated, recovery.damage.len()), (4 * EACH, 1500, 0));
    assert_eq!(read_all(&log, 1501).len(), 100);
}

#[test]
fn a_folder_implements_the_disk_trait() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Folder::new(folder.path().join("a/b/c")).unwrap();
    let file = disk.create("one").unwrap();
    file.write_at(b"hello", 3).unwrap();
    file.sync().unwrap();
    assert_eq!(file.size().unwrap(), 8);
    assert_eq!(disk.create("one").err().unwrap().kind(), std::io::ErrorKind::AlreadyExists);
    disk.rename("one", "quarantine/two").unwrap();
    disk.sync_dir().unwrap();
    assert_eq!(disk.open("one").err().unwrap().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(disk.list().unwrap(), Vec::<String>::new());
    let again = disk.open("quarantine/two").unwrap();
    let mut bytes = [1; 16];
    assert_eq!(again.read_at(&mut bytes, 2).unwrap(), 6);
    assert_eq!(&bytes[..6], b"\0hello");
    again.set_len(4).unwrap();
    assert_eq!(again.size().unwrap(), 4);
    disk.remove("quarantine/two").unwrap();
    let lock = disk.lock("lock").unwrap();
    assert_eq!(disk.lock("lock").err().unwrap().kind(), std::io::ErrorKind::WouldBlock);
    drop(lock);
    disk.lock("lock").unwrap();
}
