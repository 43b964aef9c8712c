//! The rule for repeated fields of a reading: the last value wins, at the position of the first.

use std::borrow::Cow;
use std::collections::HashMap;

/// Maximum number of fields for which comparing all pairs is the fastest way to find equal keys.
const PAIRWISE_MAX: usize = 16;

/// Removes repeated fields. `by_key` is scratch space, so that lists without repeated fields need no allocation.
pub fn keep_last_of_equal_keys<'a, V>(list: &mut Vec<(Cow<'a, str>, V)>, by_key: &mut Vec<usize>) {
    if !has_equal_keys(list, by_key) {
        return;
    }
    let mut indexes: HashMap<Cow<'a, str>, usize> = HashMap::new();
    let mut kept: Vec<(Cow<'a, str>, V)> = Vec::with_capacity(list.len());
    for (key, value) in list.drain(..) {
        match indexes.get(&key) {
            Some(&index) => kept[index].1 = value,
            None => {
                indexes.insert(key.clone(), kept.len());
                kept.push((key, value));
            }
        }
    }
    *list = kept;
}

fn has_equal_keys<V>(list: &[(Cow<'_, str>, V)], by_key: &mut Vec<usize>) -> bool {
    if list.len() <= PAIRWISE_MAX {
        return (1..list.len()).any(|later| list[..later].iter().any(|earlier| earlier.0 == list[later].0));
    }
    by_key.clear();
    by_key.extend(0..list.len());
    by_key.sort_unstable_by(|&a, &b| list[a].0.cmp(&list[b].0));
    by_key.windows(2).any(|pair| list[pair[0]].0 == list[pair[1]].0)
}
