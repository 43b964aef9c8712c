//! A sensor's metadata, such as its site or its unit: a map of names to JSON values. Name by name, the value with the
//! greatest stamp wins, so that merging is a union like that of readings.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::reading::Stamp;
use crate::reading::stamp::SETTLED;

/// The prefix of metadata names in tag filters and groupings.
pub const META_PREFIX: &str = "meta.";

/// The metadata of a sensor, or a change of it. Both merge in the same way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// All values with a lower stamp were replaced or deleted.
    replaced: Stamp,
    /// The greatest stamp of the forgotten removals and deletions. Copies in pages with a lower stamp may still have
    /// the removed value.
    dropped: Stamp,
    /// Entries in the order of their names. Sensors have few names, so a list is smaller than a tree and as fast.
    entries: Vec<(Arc<str>, MetaEntry)>,
}

/// One name's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaEntry {
    /// The stamp of the record that set it.
    pub stamp: Stamp,
    /// JSON text, with sorted object keys; `None` if the name was removed.
    pub value: Option<Arc<str>>,
}

impl MetaEntry {
    /// Returns true if this entry wins over another one with its name. The value decides between equal stamps.
    fn wins(&self, other: &Self) -> bool {
        (self.stamp, &self.value) > (other.stamp, &other.value)
    }
}

impl Meta {
    /// Metadata from its stored parts.
    #[must_use]
    pub fn new(replaced: Stamp, dropped: Stamp, entries: BTreeMap<Arc<str>, MetaEntry>) -> Self {
        let mut meta = Self { replaced, dropped, entries: entries.into_iter().collect() };
        meta.drop_replaced();
        meta
    }

    /// A change with this stamp. It replaces all older values if `replaces` is true, or else only the named ones.
    #[must_use]
    pub fn change(
        stamp: Stamp,
        replaces: bool,
        values: impl IntoIterator<Item = (Arc<str>, Option<Arc<str>>)>,
    ) -> Self {
        let entries = values.into_iter().map(|(name, value)| (name, MetaEntry { stamp, value })).collect();
        Self::new(if replaces { stamp } else { SETTLED }, SETTLED, entries)
    }

    /// Merges the metadata of another record or document.
    pub fn merge(&mut self, other: &Self) {
        self.replaced = self.replaced.max(other.replaced);
        self.dropped = self.dropped.max(other.dropped);
        for (name, entry) in &other.entries {
            match self.position(name) {
                Ok(index) if entry.wins(&self.entries[index].1) => self.entries[index].1 = entry.clone(),
                Ok(_) => {}
                Err(index) => self.entries.insert(index, (name.clone(), entry.clone())),
            }
        }
        self.drop_replaced();
    }

    /// The index of a name, or `Err` with the index at which it would be inserted.
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| (**known).cmp(name))
    }

    /// Replaces texts with equal ones from `shared`, and adds new texts to it. Many sensors have equal names and
    /// values.
    pub fn share(&mut self, shared: &mut HashSet<Arc<str>>) {
        let mut share = |text: &mut Arc<str>| match shared.get(&**text) {
            Some(same) => *text = same.clone(),
            None => drop(shared.insert(text.clone())),
        };
        for (name, entry) in &mut self.entries {
            share(name);
            entry.value.iter_mut().for_each(&mut share);
        }
    }

    /// Removes entries with a stamp below `limit`, which is that of a deletion. The registry remembers the deletion for as long as older
    /// changes can arrive.
    pub fn cut(&mut self, limit: Stamp) {
        self.drop_unless(|entry| entry.stamp >= limit);
    }

    /// Keeps the entries for whose stamps `is_kept` is true.
    pub fn retain(&mut self, is_kept: impl Fn(Stamp) -> bool) {
        self.entries.retain(|(_, entry)| is_kept(entry.stamp));
    }

    /// Forgets removals at or below the floor. They are remembered only against older changes, and no change at or
    /// below the floor can arrive any more.
    pub fn settle(&mut self, floor: Stamp) {
        if self.replaced <= floor {
            self.dropped = self.dropped.max(self.replaced);
            self.replaced = SETTLED;
        }
        self.drop_unless(|entry| entry.value.is_some() || entry.stamp > floor);
    }

    fn drop_unless(&mut self, is_kept: impl Fn(&MetaEntry) -> bool) {
        let dropped = self.entries.iter().filter(|(_, entry)| !is_kept(entry)).map(|(_, entry)| entry.stamp);
        self.dropped = self.dropped.max(dropped.max().unwrap_or(SETTLED));
        self.entries.retain(|(_, entry)| is_kept(entry));
    }

    fn drop_replaced(&mut self) {
        self.entries.retain(|(_, entry)| entry.stamp >= self.replaced);
    }

    /// The stamp below which everything was replaced or deleted.
    #[must_use]
    pub fn replaced_before(&self) -> Stamp {
        self.replaced
    }

    /// The greatest stamp of the forgotten values and removals.
    #[must_use]
    pub fn forgotten_stamp(&self) -> Stamp {
        self.dropped
    }

    /// All entries in the order of their names, removed ones included.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &MetaEntry)> {
        self.entries.iter().map(|(name, entry)| (&**name, entry))
    }

    /// Names with their JSON values, in order.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Arc<str>)> {
        self.entries.iter().filter_map(|(name, entry)| Some((&**name, entry.value.as_ref()?)))
    }

    /// The JSON value of a name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<str>> {
        self.entries[self.position(name).ok()?].1.value.as_ref()
    }

    /// The value at a path: of the name that equals it, or else what `site.name` finds in the object `site`.
    #[must_use]
    pub fn at(&self, path: &str) -> Option<Value> {
        let parse = |json: &str| serde_json::from_str::<Value>(json).ok();
        if let Some(json) = self.get(path) {
            return parse(json);
        }
        let mut parts = path.split('.');
        let mut value = parse(self.get(parts.next()?)?)?;
        for part in parts {
            value = value.get_mut(part)?.take();
        }
        Some(value)
    }

    /// The value at a path as text: the content of a JSON string, or else the JSON.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<Cow<'_, str>> {
        let Some(json) = self.get(path) else {
            return if path.contains('.') { Some(Cow::Owned(json_text(&self.at(path)?))) } else { None };
        };
        Some(match json.strip_prefix('"') {
            // Most strings have no escapes.
            Some(text) if !text.contains('\\') => Cow::Borrowed(text.strip_suffix('"').unwrap_or(text)),
            Some(_) => Cow::Owned(serde_json::from_str(json).unwrap_or_default()),
            None => Cow::Borrowed(json),
        })
    }

    /// Returns true if there is no value.
    #[must_use]
    pub fn is_without_values(&self) -> bool {
        self.values().next().is_none()
    }

    /// Returns true if there is nothing to store: no value and no remembered removal.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.replaced == SETTLED && self.entries.is_empty()
    }

    /// The values as a JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        let mut out = String::from("{");
        for (number, (name, value)) in self.values().enumerate() {
            if number > 0 {
                out.push(',');
            }
            // Serializing a string cannot fail.
            out.push_str(&serde_json::to_string(name).unwrap_or_default());
            out.push(':');
            out.push_str(value);
        }
        out.push('}');
        out
    }

    /// The length of all names and values in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries().map(|(name, entry)| name.len() + entry.value.as_ref().map_or(0, |value| value.len())).sum()
    }

    /// Bytes of memory, without regard to shared texts.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes() + self.entries.capacity() * size_of::<(Arc<str>, MetaEntry)>()
    }
}

/// The content of a JSON string, or else the JSON.
#[must_use]
pub fn json_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A change: its stamp, `replaces`, and a value or a removal by name.
    type Step = (Stamp, bool, BTreeMap<u8, Option<u8>>);

    fn meta((stamp, replaces, values): &Step) -> Meta {
        let text = |n: &u8| Arc::from(n.to_string());
        let values = values.iter().map(|(name, value)| (name.to_string().into(), value.as_ref().map(text)));
        Meta::change(*stamp, *replaces, values)
    }

    /// The model: every change in the order of stamps, on a plain map.
    fn expected(steps: &[Step]) -> BTreeMap<String, String> {
        let mut steps: Vec<&Step> = steps.iter().collect();
        steps.sort_by_key(|(stamp, ..)| *stamp);
        let mut values = BTreeMap::new();
        for (_, replaces, changed) in steps {
            if *replaces {
                values.clear();
            }
            for (name, value) in changed {
                match value {
                    Some(value) => drop(values.insert(name.to_string(), value.to_string())),
                    None => drop(values.remove(&name.to_string())),
                }
            }
        }
        values
    }

    fn values(meta: &Meta) -> BTreeMap<String, String> {
        meta.values().map(|(name, value)| (name.to_owned(), value.to_string())).collect()
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let changed = proptest::collection::btree_map(0_u8..4, proptest::option::of(0_u8..9), 0..4);
        let step = (any::<bool>(), changed);
        proptest::collection::vec(step, 0..12).prop_map(|steps| {
            let stamped = steps.into_iter().enumerate();
            stamped.map(|(at, (replaces, changed))| (at as Stamp + 1, replaces, changed)).collect()
        })
    }

    proptest! {
        /// The order and the number of deliveries do not matter, and neither does settling in between.
        #[test]
        fn changes_merge_in_any_order_to_what_their_stamps_say(
            (steps, order) in steps().prop_flat_map(|steps| {
                let twice: Vec<usize> = (0..steps.len()).chain(0..steps.len()).collect();
                (Just(steps), Just(twice).prop_shuffle())
            }),
            floor in 0_u64..12,
        ) {
            let mut merged = Meta::default();
            order.iter().for_each(|at| merged.merge(&meta(&steps[*at])));
            prop_assert_eq!(values(&merged), expected(&steps));
            // Nothing at or below the floor comes later.
            let (old, new): (Vec<Step>, Vec<Step>) = steps.iter().cloned().partition(|(stamp, ..)| *stamp <= floor);
            let mut settled = Meta::default();
            old.iter().for_each(|step| settled.merge(&meta(step)));
            settled.settle(floor);
            let has_only_values = settled.entries().all(|(_, entry)| entry.value.is_some());
            prop_assert!(has_only_values && settled.replaced_before() == SETTLED);
            new.iter().rev().for_each(|step| settled.merge(&meta(step)));
            prop_assert_eq!(values(&settled), expected(&steps));
            let before = Meta::clone(&merged);
            merged.merge(&before);
            prop_assert_eq!(&merged, &before);
            merged.cut(floor);
            let mut deleted: Vec<Step> = steps.iter().filter(|(stamp, ..)| *stamp >= floor).cloned().collect();
            deleted.sort_by_key(|(stamp, ..)| *stamp);
            prop_assert_eq!(values(&merged), expected(&deleted));
        }
    }
    #[test]
    fn the_greatest_dropped_stamp_stays() {
        let set =
            |stamp, name: &str, value: Option<&str>| Meta::change(stamp, false, [(name.into(), value.map(Arc::from))]);
        let mut meta = set(5, "site", Some("1"));
        meta.merge(&set(9, "site", None));
        meta.merge(&set(7, "unit", Some("2")));
        meta.settle(8);
        assert_eq!(meta.forgotten_stamp(), SETTLED, "the removal is still remembered");
        meta.settle(9);
        assert_eq!((meta.forgotten_stamp(), meta.entries().count()), (9, 1));
        meta.merge(&Meta::change(12, true, []));
        meta.settle(20);
        assert_eq!((meta.forgotten_stamp(), meta.replaced_before(), meta.is_empty()), (12, SETTLED, true));
        meta.merge(&set(30, "site", Some("3")));
        meta.cut(31);
        assert_eq!((meta.forgotten_stamp(), meta.is_empty()), (30, true));
    }
}
