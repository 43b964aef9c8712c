//! The page writes that a bucket needs, in groups that must succeed or fail as a whole.

use super::Bucket;

/// Maximum bytes of readings on the new pages that one group inserts, except pages split off a stored page: the
/// transaction must finish well before the command's deadline.
const INSERT_BYTES: usize = 8 << 20;

impl Bucket {
    /// The writes that can go to the store now: groups of page indexes, each of which must succeed or fail as a whole.
    /// Empty if everything is stored. The indexes are valid until the next [`Bucket::apply`].
    ///
    /// A new page other than page 0 is inserted in one group with page 0, whose rev therefore grows with every new
    /// page. So the insert conflicts with any writer that has an outdated view of the bucket or deletes it. The page
    /// that the new one replaces as the open page is in the same group, so that no other writer can add a timestamp to
    /// it that the new page also has.
    ///
    /// The group also has all split pages and the pages split off them. Otherwise one of these writes could fail and
    /// leave a gap in the numbers.
    ///
    /// If a deletion removed or refilled pages, all pending writes form one group, because readings moved between
    /// pages.
    #[must_use]
    pub fn next_writes(&self) -> Vec<Vec<usize>> {
        let pending = (0..self.pages.len()).filter(|p| self.pages[*p].pending().is_some());
        if self.pages.iter().any(|page| page.is_displaced) {
            let has_new = self.pages.iter().any(|page| page.stored.is_none());
            let is_written = |p: &usize| self.pages[*p].pending().is_some() || (has_new && self.pages[*p].number == 0);
            return vec![(0..self.pages.len()).filter(is_written).collect()];
        }
        let new = self.next_inserts();
        if new.is_empty() {
            return pending.map(|p| vec![p]).collect();
        }
        let is_split = |number: u32| self.pages.iter().any(|page| page.moved_from == Some(number));
        let is_in_group = |p: &usize| {
            let page = &self.pages[*p];
            page.number == 0 || is_split(page.number) || page.stored.as_ref().is_some_and(|s| s.closed != page.closed)
        };
        let stored = (0..self.pages.len()).filter(|p| self.pages[*p].stored.is_some());
        let (grouped, single): (Vec<usize>, Vec<usize>) = stored.partition(is_in_group);
        let single = single.into_iter().filter(|p| self.pages[*p].pending().is_some());
        let mut groups: Vec<Vec<usize>> = single.map(|p| vec![p]).collect();
        groups.push(grouped.into_iter().chain(new).collect());
        groups
    }

    /// The pages to insert next; empty unless a page other than page 0 is new. They are all pages split off stored
    /// pages, and as many others, in order, as [`INSERT_BYTES`] allows.
    pub(super) fn next_inserts(&self) -> Vec<usize> {
        let unstored = (0..self.pages.len()).filter(|p| self.pages[*p].stored.is_none());
        if !unstored.clone().any(|p| self.pages[p].number > 0) {
            return Vec::new();
        }
        let mut bytes = 0;
        let fits = |p: &usize| {
            let page = &self.pages[*p];
            let fits = bytes == 0 || page.moved_from.is_some() || bytes + page.readings.bytes() <= INSERT_BYTES;
            bytes += page.readings.bytes();
            fits
        };
        unstored.take_while(fits).collect()
    }

    /// Records that the store holds these pages in their current state.
    pub fn mark_written(&mut self, group: &[usize]) {
        for p in group {
            self.pages[*p].mark_written();
        }
        self.pages.retain(|page| !page.is_removed);
        self.note_overflow();
    }
}
