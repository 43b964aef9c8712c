//! Tests pages that outgrow the hard size, and the order in which their parts are stored.

use super::*;

#[test]
fn a_page_splits_only_beyond_the_hard_size() {
    let small: Vec<TestRow> = (0..8).map(|i| text(i * MILLI_NS, 0)).collect();
    let size: usize = small.iter().map(row_bytes).sum();
    for (more, split) in [(99, false), (100, false), (101, true)] {
        for stored in [false, true] {
            let caps = Caps { hard_bytes: size + 100, ..roomy() };
            let mut store = SimulatedStore::new(caps);
            let (mut bucket, _) = merge_all(std::slice::from_ref(&small), &caps);
            if stored {
                store_all(&mut store, &mut bucket);
            }
            apply(&mut bucket, &[text(7 * MILLI_NS, more)], &caps, origin(2));
            let found: Vec<usize> = bucket.pages().iter().map(|page| page.readings.len()).collect();
            assert_eq!(found, if split { vec![4, 4] } else { vec![8] }, "{more} bytes more, stored: {stored}");
            if stored && split {
                assert_eq!(bucket.next_writes(), [[0, 1]], "both halves in one write");
            }
            store_all(&mut store, &mut bucket);
            assert!(bucket.pages().iter().all(|page| page.closed == split), "a split page takes nothing new");
        }
    }
}

/// Regression: a deletion emptied page 0, the readings of page 1 moved to page 0, and new readings went to page 1. The
/// pages were written separately, so for a moment, or permanently after a kill, readings were on both pages or on
/// neither.
#[test]
fn readings_that_took_a_deleted_pages_place_are_written_with_it() {
    let (caps, _, mut bucket) = four_per_page(2);
    assert_eq!(bucket.delete(&(0..4 * MILLI_NS), 2), 4);
    let rows: Vec<TestRow> = (0..9).map(|i| text((20 + i) * MILLI_NS, 1)).collect();
    apply(&mut bucket, &rows, &caps, origin(3));
    assert_eq!(bucket.next_writes(), [[0, 1, 2, 3]], "page 0 too, as further pages are made");
    bucket.mark_written(&[0, 1, 2, 3]);
    assert!(bucket.next_writes().is_empty() && union(&bucket).len() == 13);
}

/// A stored bucket of full pages, each with four readings of 41 bytes; the last page is open.
fn four_per_page(pages: i64) -> (Caps, SimulatedStore, Bucket) {
    let caps = Caps { max_readings: 4, max_bytes: 400, hard_bytes: 600 };
    let (mut bucket, _) = merge_all(&[(0..4 * pages).map(|i| text(i * MILLI_NS, 1)).collect()], &caps);
    let mut store = SimulatedStore::new(caps);
    store_all(&mut store, &mut bucket);
    (caps, store, bucket)
}

#[test]
fn one_merge_may_split_a_page_again_and_again() {
    let (caps, mut store, mut bucket) = four_per_page(2);
    let rows: Vec<TestRow> = (0..4).map(|i| text(i * MILLI_NS, 500)).collect();
    apply(&mut bucket, &rows, &caps, origin(2));
    let found: Vec<usize> = bucket.pages().iter().map(|page| page.readings.len()).collect();
    assert_eq!(found, [1, 4, 1, 1, 1]);
    assert_eq!(bucket.next_writes(), [[0, 2, 3, 4]]);
    store_all(&mut store, &mut bucket);
    assert_eq!(union(&store.load()).len(), 8);
}

/// Regression: a merge filled page 0, opened page 1 and split page 0; the part split off became page 2. The split was
/// written first, as it must be, and left a gap: a second writer read pages 0 and 2 and opened page 3, while the first
/// writer's page 1 was inserted too. Two pages were open, and a timestamp that both writers had received was on both.
/// Now parts split off are numbered before new pages, and a page's number is the count of stored pages before it.
#[test]
fn a_split_leaves_no_gap_for_a_late_page() {
    let (caps, mut store, mut first) = four_per_page(1);
    let rows: Vec<TestRow> = (0..5).map(|i| text(i * MILLI_NS, 120)).collect();
    apply(&mut first, &rows, &caps, origin(2));
    for group in first.next_writes() {
        assert!(store.write(&first, &group));
        first.mark_written(&group);
    }
    let mut second = store.load();
    apply(&mut second, &[text(4 * MILLI_NS, 7)], &caps, origin(1));
    store_all(&mut store, &mut second);
    let next = first.next_writes();
    assert!(!next.iter().any(|group| store.write(&first, group)), "the first writer must see a conflict");
    union(&store.load());
}

/// Regression: two pages split in one merge were two writes. If only the second succeeded, the store had a gap in its
/// page numbers: a writer with an outdated view could open the missing page, and one with a current view another page
/// after the last. Now all pages split in one merge are one write.
#[test]
fn pages_split_together_are_written_together() {
    let (caps, mut store, mut bucket) = four_per_page(3);
    let rows: Vec<TestRow> = (0..8).map(|i| text(i * MILLI_NS, 130)).collect();
    apply(&mut bucket, &rows, &caps, origin(2));
    assert_eq!(bucket.next_writes(), [[0, 1, 3, 4]]);
    store_all(&mut store, &mut bucket);
    assert_eq!(store.pages(), 5);
}

/// Regression: a merge that opened a page and split one that was not stored yet numbered the part split off after the
/// open page. The open page was stored, but no page may be inserted while one is open, so the part after it never was;
/// without a pending write it counted as stored. Now the open page is the last.
#[test]
fn pages_split_before_they_were_stored_are_stored() {
    let caps = Caps { max_readings: 4, max_bytes: 400, hard_bytes: 600 };
    let mut rows: Vec<TestRow> = (0..5).map(|i| text(i * MILLI_NS, 1)).collect();
    let mut store = SimulatedStore::new(caps);
    let (mut bucket, _) = merge_all(&[rows.clone(), (0..4).map(|i| text(i * MILLI_NS, 150)).collect()], &caps);
    store_all(&mut store, &mut bucket);
    assert_eq!(union(&store.load()).len(), 5);
    // The same within one merge: each time occurs twice.
    rows.extend((0..4).map(|i| text(i * MILLI_NS, 150)));
    let mut store = SimulatedStore::new(caps);
    let (mut bucket, _) = merge_all(&[rows], &caps);
    store_all(&mut store, &mut bucket);
    assert_eq!(union(&store.load()).len(), 5);
}

/// Regression: the last stored time was taken from the pages in memory. After a first merge had split page 0, which was
/// not stored yet, a second merge appended a reading to page 1 although the stored page 0 had later readings.
#[test]
fn only_readings_after_all_stored_ones_are_appended() {
    let caps = Caps { max_readings: 4, max_bytes: 400, hard_bytes: 600 };
    let mut store = SimulatedStore::new(caps);
    let rows = [0, 1, 20, 30, 2].map(|ms| text(ms * MILLI_NS, 1));
    let (mut bucket, _) = merge_all(&[rows[..4].to_vec(), rows[4..].to_vec()], &caps);
    store_all(&mut store, &mut bucket);
    apply(&mut bucket, &[20, 30].map(|ms| text(ms * MILLI_NS, 300)), &caps, origin(3));
    apply(&mut bucket, &[text(10 * MILLI_NS, 1)], &caps, origin(4));
    assert_eq!(bucket.pages()[1].pending(), Some(WriteKind::Replace));
    store_all(&mut store, &mut bucket);
}

/// Readings that are appended and grown in one merge can cause a split although no stored reading is overwritten.
#[test]
fn a_page_splits_where_only_new_readings_grew() {
    for stored in 1..6 {
        let caps = Caps { max_readings: 10, max_bytes: 1000, hard_bytes: 1200 };
        let mut store = SimulatedStore::new(caps);
        let (mut bucket, _) = merge_all(&[(0..stored).map(|i| text(i * MILLI_NS, 1)).collect()], &caps);
        store_all(&mut store, &mut bucket);
        let mut rows: Vec<TestRow> = (stored..7).map(|i| text(i * MILLI_NS, 1)).collect();
        rows.push(text(6 * MILLI_NS, 1100));
        apply(&mut bucket, &rows, &caps, origin(2));
        assert!(bucket.pages().len() > 1);
        store_all(&mut store, &mut bucket);
        assert_eq!(union(&store.load()).len(), 7);
    }
}

#[test]
fn stamps_move_with_split_readings() {
    let (caps, mut store, mut first) = four_per_page(1);
    let rows: Vec<TestRow> = (0..4).map(|i| text(i * MILLI_NS, 200)).collect();
    apply(&mut first, &rows, &caps, origin(2));
    assert!(store.write(&first, &first.next_writes()[0]), "the write is applied, but the answer is lost");
    let mut second = store.load();
    apply(&mut second, &[text(3 * MILLI_NS, 7)], &caps, origin(3));
    store_all(&mut store, &mut second);
    let mut reloaded = store.load();
    apply(&mut reloaded, &rows, &caps, origin(2));
    assert!(reloaded.next_writes().is_empty(), "the second writer's correction is kept");
}
