//! Tests the page writes that follow from a merge, and their groups.

use super::*;

fn stored_page(closed: bool, readings: Readings) -> StoredPage {
    StoredPage { number: 0, rev: 3, closed, has_overflow: false, readings, cut: false, left_out: None }
}

#[test]
fn appends_are_decided_in_whole_milliseconds() {
    for hour in [-1, 0, 3] {
        let start = hour * HOUR_NS;
        for (stored, next, append) in [
            (start, start + 1, false),
            (start, start + MILLI_NS - 1, false),
            (start + MILLI_NS - 1, start + MILLI_NS, true),
            (start + 5 * MILLI_NS, start + 4 * MILLI_NS, false),
            (start + HOUR_NS - 1 - MILLI_NS, start + HOUR_NS - 1, true),
        ] {
            let mut store = SimulatedStore::new(roomy());
            let (mut bucket, _) = merge_all(&[vec![float(stored, 1.0)]], &roomy());
            store_all(&mut store, &mut bucket);
            apply(&mut bucket, &[float(next, 2.0)], &roomy(), origin(2));
            let kind = if append { WriteKind::Append { start: 1 } } else { WriteKind::Replace };
            assert_eq!(bucket.pages()[0].pending(), Some(kind), "{next} after {stored}");
            store_all(&mut store, &mut bucket);
            assert_eq!(store.appends, usize::from(append));
        }
    }
}

/// Regression: a page was inserted by a separate write, after the write that closed the page before it. If another
/// instance deleted the bucket between the two, the store had a page without page 0, which no query found.
#[test]
fn a_new_page_goes_with_a_compare_and_set_on_page_0() {
    let readings: Readings = [Reading { time: 0, fields: vec![("v".into(), Value::Float(1.0))] }].into_iter().collect();
    let mut bucket = Bucket::from_stored([stored_page(true, readings)]);
    apply(&mut bucket, &[float(1, 1.0)], &roomy(), origin(1));
    assert_eq!(bucket.next_writes(), [[0, 1]]);
    assert_eq!(bucket.pages()[0].pending(), Some(WriteKind::Append { start: 1 }), "only its marks change");
    let first_rev = bucket.pages()[1].next_rev();
    bucket.mark_written(&[0, 1]);
    assert_eq!((bucket.pages()[0].rev(), bucket.pages()[1].rev()), (4, first_rev));
    assert!(bucket.next_writes().is_empty());

    // Also if page 0 itself does not change, and beside an independent write of another page.
    let caps = Caps { max_readings: 1, ..roomy() };
    let mut store = SimulatedStore::new(caps);
    let (mut bucket, _) = merge_all(&[(0..3).map(|i| float(i, 1.0)).collect()], &caps);
    assert_eq!(bucket.next_writes(), [[0, 1, 2]], "a new bucket is inserted as one group");
    store_all(&mut store, &mut bucket);
    let rev = bucket.pages()[0].rev();
    apply(&mut bucket, &[float(1, 2.0), float(3, 1.0)], &caps, origin(2));
    assert_eq!(bucket.next_writes(), [vec![1], vec![0, 2, 3]]);
    assert_eq!(bucket.pages()[0].pending(), None);
    store_all(&mut store, &mut bucket);
    assert_eq!((bucket.pages()[0].rev(), union(&store.load()).len()), (rev + 1, 4));
}

/// A large backlog of one hour must not become one transaction that cannot finish within the deadline.
#[test]
fn many_new_pages_are_inserted_in_groups_of_a_bounded_size() {
    let caps = Caps { max_readings: 1, ..roomy() };
    let (bucket, _) = merge_all(&[(0..40).map(|i| text(i, 1 << 20)).collect()], &caps);
    assert_eq!(bucket.next_writes(), [(0..7).collect::<Vec<_>>()]);
    let mut bucket = bucket;
    let mut writes = 0;
    let mut store = SimulatedStore::new(caps);
    while let Some(group) = bucket.next_writes().pop() {
        assert!(store.write(&bucket, &group));
        bucket.mark_written(&group);
        writes += 1;
    }
    assert_eq!((writes, union(&store.load()).len()), (6, 40));
}

#[test]
fn an_empty_open_page_takes_a_reading_of_any_size() {
    let mut bucket = Bucket::from_stored([stored_page(false, Readings::default())]);
    let caps = Caps { max_bytes: 100, hard_bytes: 200, ..roomy() };
    apply(&mut bucket, &[text(0, 1000)], &caps, origin(1));
    assert_eq!((bucket.pages().len(), bucket.pages()[0].pending()), (1, Some(WriteKind::Append { start: 0 })));
}
