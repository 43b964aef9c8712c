use std::time::Duration;

use super::*;

fn side_file(folder: &Path, keep_bytes: Option<u64>) -> SideFile<String> {
    SideFile::new(folder.join("side"), SideFileLimits { segment_bytes: 1000, keep_bytes })
}

fn all(side_file: &SideFile<String>) -> Vec<String> {
    let mut found = Vec::new();
    side_file
        .read(0, |_, _, record| {
            found.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

fn text(number: usize) -> String {
    format!("record\n{number} \u{301}")
}

fn append(writer: &mut SideFile<String>, number: usize) {
    writer.append(&[text(number)]).unwrap();
}

#[test]
fn records_are_read_back_in_order_with_rising_ids() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = side_file(folder.path(), None);
    assert!(all(&writer).is_empty());
    writer.append(&[text(0), text(1)]).unwrap();
    let mut writer = side_file(folder.path(), None);
    (2..100).for_each(|number| append(&mut writer, number));
    writer.sync().unwrap();
    assert!(writer.segments().unwrap().len() > 3);
    assert_eq!(all(&writer), (0..100).map(text).collect::<Vec<_>>());
    let mut ids = Vec::new();
    let note = |_: &Segment, id, _| {
        ids.push(id);
        ControlFlow::Continue(())
    };
    writer.read(0, note).unwrap();
    assert!(ids.is_sorted_by(|a, b| a < b));
    // Read one record after each id.
    for (number, id) in ids.iter().enumerate() {
        let mut next = None;
        let first = |_: &Segment, _, record: String| {
            next = Some(record);
            ControlFlow::Break(())
        };
        writer.read(*id, first).unwrap();
        assert_eq!(next, (number < 99).then(|| text(number + 1)));
    }
}

/// Wherever the file is cut off or damaged, records are read completely or not at all, and later records are not lost.
#[test]
fn a_damaged_record_affects_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = side_file(folder.path(), None);
    writer.append(&[text(0), text(1), text(2)]).unwrap();
    let path = writer.segments().unwrap()[0].path.clone();
    let whole = fs::read(&path).unwrap();
    let ends: Vec<usize> = (0..whole.len()).filter(|index| whole[*index] == b'\n').collect();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut writer = side_file(folder.path(), None);
        writer.append(&[text(9)]).unwrap();
        let mut expected: Vec<String> = (0..ends.iter().filter(|end| **end <= cut).count()).map(text).collect();
        expected.push(text(9));
        assert_eq!(all(&writer), expected, "{cut}");
        fs::remove_file(&writer.segments().unwrap().last().unwrap().path).unwrap();
    }
    for index in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[index] ^= 4;
        fs::write(&path, damaged).unwrap();
        let left = all(&side_file(folder.path(), None));
        let lost = ends.iter().position(|end| index <= *end).unwrap();
        assert!(left.iter().all(|record| (0..3).map(text).any(|one| one == *record)), "{index}: {left:?}");
        // A damaged line end joins two records.
        let kept = (0..3).filter(|number| *number != lost && !(ends[lost] == index && *number == lost + 1));
        assert_eq!(left, kept.map(text).collect::<Vec<_>>(), "{index}");
    }
}

#[test]
fn the_oldest_segments_are_removed_beyond_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = side_file(folder.path(), Some(5000));
    for number in 0..1000 {
        writer.append(&[text(number)]).unwrap();
        let bytes: u64 = writer.segments().unwrap().iter().map(|segment| segment.bytes).sum();
        assert!(bytes <= 5000 + 3 * 1100, "{bytes}");
    }
    let left = all(&writer);
    assert!(left.iter().map(String::len).sum::<usize>() > 1000 && left.last() == Some(&text(999)));
    writer.expire(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    assert_eq!(all(&writer), left);
    writer.expire(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    assert!(all(&writer).is_empty());
    // The current segment was removed too.
    writer.append(&[text(7)]).unwrap();
    assert_eq!(all(&writer), [text(7)]);
}

#[test]
fn retain_removes_records_and_keeps_the_ids_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = side_file(folder.path(), None);
    (0..100).for_each(|number| append(&mut writer, number));
    let ids = |writer: &SideFile<String>| {
        let mut ids = Vec::new();
        let note = |_: &Segment, id, record| {
            ids.push((id, record));
            ControlFlow::Continue(())
        };
        writer.read(0, note).unwrap();
        ids
    };
    let before = ids(&writer);
    let last = before[60].0;
    assert_eq!(writer.retain(|id, record| id > last || record.contains("7")).unwrap(), 61 - 6);
    let expected: Vec<_> = before.into_iter().filter(|(id, record)| *id > last || record.contains('7')).collect();
    assert_eq!(ids(&writer), expected);
    writer.append(&[text(100)]).unwrap();
    let now = ids(&side_file(folder.path(), None));
    assert_eq!(now[..now.len() - 1], expected);
    assert!(now[now.len() - 1].0 > expected[expected.len() - 1].0);
    assert_eq!(writer.retain(|_, _| false).unwrap(), 45 + 1);
    assert!(writer.segments().unwrap().is_empty());
}
