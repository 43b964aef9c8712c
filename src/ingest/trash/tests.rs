use std::sync::Arc;

use super::*;
use crate::reading::Value;

fn trash(folder: &std::path::Path, bytes: u64, keep: Duration) -> Trash {
    Trash::new(TrashOptions { folder: folder.join("trash"), bytes, keep })
}

fn head(id: Stamp, at: i64) -> TrashHead {
    TrashHead {
        id,
        database: "d/week".into(),
        statement: "DELETE FROM m WHERE \"v\" > 1".into(),
        by: "anna".into(),
        at,
    }
}

/// Readings with a text of several lines, which looks like a comment.
fn readings(count: i64) -> Readings {
    let mut set = Readings::default();
    let (v, text): (Arc<str>, Arc<str>) = ("v w".into(), "text".into());
    for time in 0..count {
        let values = [
            Value::Float(0.1 + f64::from(u8::try_from(time % 100).expect("small"))),
            Value::String("a\n# \"b\"\n".into()),
        ];
        set.push(time, 5, [&v, &text].into_iter().zip(&values));
    }
    set.settle(true);
    set
}

#[test]
fn what_is_kept_is_read_back_from_the_beginning_or_from_any_chunk_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let trash = trash(folder.path(), 1 << 20, Duration::from_secs(3600));
    let sensor = |tag: &str| Sensor::new("my m", [("t", tag)]).expect("one tag");
    let readings = readings(2500);
    let mut writing = trash.begin(head(7, now_ns())).expect("it begins");
    let all: Vec<usize> = (0..2500).collect();
    writing.keep(&sensor("a,b\\"), &readings, &all, 6).expect("there is room");
    writing.keep(&sensor("c"), &readings, &[1, 7], 6).expect("there is room");
    assert_eq!(trash.list().expect("a list"), [], "it is not finished");
    assert_eq!(writing.finish().expect("it is written"), (2, 2502));
    let listed = trash.list().expect("a list");
    assert_eq!((listed[0].sensors, listed[0].readings, &*listed[0].head.by), (2, 2502, "anna"));
    let (entry, mut reading) = trash.open("0000000000000007").expect("it is there");
    assert_eq!(entry, listed[0]);
    let (mut chunks, mut places) = (Vec::new(), Vec::new());
    while let Some(chunk) = reading.next_chunk().expect("it is whole") {
        chunks.push(chunk);
        places.push(reading.at());
    }
    let times = |tag: &str| {
        chunks.iter().filter(|of| of.sensor == sensor(tag)).flat_map(|of| of.times.clone()).collect::<Vec<_>>()
    };
    assert_eq!((times("a,b\\"), times("c")), ((0..2500).collect(), vec![1, 7]));
    for (number, place) in places.iter().enumerate() {
        let (_, mut reading) = trash.open("0000000000000007").expect("it is there");
        reading.seek(*place).expect("it can be sought");
        assert_eq!(reading.next_chunk().expect("it is whole").as_ref(), chunks.get(number + 1));
    }
    let mode = std::fs::metadata(folder.path().join("trash/0000000000000007.lp")).expect("a file");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[test]
fn the_trash_is_bounded_and_gets_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let trash = trash(folder.path(), 70_000, Duration::from_secs(3600));
    let sensor = Sensor::new("m", [("t", "a")]).expect("one tag");
    let (readings, all): (_, Vec<usize>) = (readings(1000), (0..1000).collect());
    let keep = |id, at| {
        let mut writing = trash.begin(head(id, at))?;
        writing.keep(&sensor, &readings, &all, 6)?;
        writing.finish()
    };
    keep(1, now_ns()).expect("there is room");
    assert!(matches!(keep(2, now_ns()), Err(TrashError::Full { limit: 70_000 })));
    assert_eq!(trash.list().expect("a list").len(), 1);
    assert_eq!(
        std::fs::read_dir(folder.path().join("trash")).expect("a folder").count(),
        1,
        "nothing of the second is left"
    );
    let old = self::trash(folder.path(), 70_000, Duration::from_nanos(1));
    assert_eq!(old.list().expect("a list"), []);
    keep(3, now_ns()).expect("there is room again");
}

/// A file that was cut short, by a disk that lost its end, is not listed, and nothing is removed.
#[test]
fn a_damaged_file_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let trash = trash(folder.path(), 1 << 20, Duration::from_secs(3600));
    let sensor = Sensor::new("m", [("t", "a")]).expect("one tag");
    let mut writing = trash.begin(head(1, now_ns())).expect("it begins");
    writing.keep(&sensor, &readings(10), &[0, 9], 6).expect("there is room");
    writing.finish().expect("it is written");
    let path = folder.path().join("trash/0000000000000001.lp");
    let whole = std::fs::read(&path).expect("a file");
    for length in (0..whole.len() - 1).step_by(7) {
        std::fs::write(&path, &whole[..length]).expect("it is written");
        assert_eq!(trash.list().expect("a list"), [], "{length}");
        assert!(path.exists());
    }
}
