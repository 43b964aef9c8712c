//! Groups of sensors: the values of a group with their numbers of sensors, and the sensors of one value.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::many::WORD_BYTES;
use crate::bucket::{GroupRule, Meta};
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::CHOOSE;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, Query, QueryError};

/// The values of a group, with the number of sensors of each.
#[derive(Debug)]
pub struct GroupValues {
    pub values: BTreeMap<String, usize>,
    pub held: HeldBytes,
}

/// A page of the members of a group.
#[derive(Debug)]
pub struct GroupMembers<'a> {
    pub rule: &'a GroupRule,
    /// The value that the members have.
    pub value: &'a str,
    /// The key of the last member of the previous page.
    pub last_key: Option<&'a str>,
    /// Maximum number of members.
    pub limit: usize,
}

impl Query {
    /// Returns the values of a group among the selected sensors.
    ///
    /// # Errors
    /// If the store does not answer, or acked readings are still being read back.
    pub async fn group_values(
        &self,
        budget: &Budget,
        database: &str,
        selector: &Selector,
        rule: &GroupRule,
    ) -> Result<GroupValues, QueryError> {
        self.in_turn(budget, database, || async {
            let chosen = self.engine.choose(budget, database, selector).await?;
            let mut found = GroupValues { values: BTreeMap::new(), held: budget.hold(0)? };
            let none = Meta::default();
            for batch in chosen.entries.chunks(CHOOSE) {
                let mut bytes = 0;
                for value in batch.iter().flat_map(|entry| values(rule, entry, &none)) {
                    match found.values.get_mut(&*value) {
                        Some(count) => *count += 1,
                        None => {
                            bytes += value.len() + WORD_BYTES;
                            found.values.insert(value.into_owned(), 1);
                        }
                    }
                }
                found.held.grow(bytes)?;
                budget.pause().await?;
            }
            Ok::<_, QueryError>(found)
        })
        .await
    }

    /// Returns the selected sensors with a value of a group, in key order.
    ///
    /// # Errors
    /// As [`Query::group_values`].
    pub async fn group_members(
        &self,
        budget: &Budget,
        database: &str,
        selector: &Selector,
        members: &GroupMembers<'_>,
    ) -> Result<Vec<DirectoryEntry>, QueryError> {
        let GroupMembers { rule, value: wanted, last_key, limit } = *members;
        self.in_turn(budget, database, || async {
            let chosen = self.engine.choose(budget, database, selector).await?;
            let is_before = |entry: &DirectoryEntry| last_key.is_some_and(|last_key| *entry.sensor.key <= *last_key);
            let start = chosen.entries.partition_point(is_before);
            let none = Meta::default();
            let mut found = Vec::new();
            for batch in chosen.entries[start..].chunks(CHOOSE) {
                let is_member =
                    |entry: &&DirectoryEntry| values(rule, entry, &none).iter().any(|value| *value == wanted);
                found.extend(batch.iter().filter(is_member).take(limit - found.len()).cloned());
                if found.len() >= limit {
                    break;
                }
                budget.pause().await?;
            }
            Ok::<_, QueryError>(found)
        })
        .await
    }
}

fn values<'a>(rule: &GroupRule, entry: &'a DirectoryEntry, none: &'a Meta) -> Vec<Cow<'a, str>> {
    rule.values(&entry.sensor, entry.meta.as_deref().unwrap_or(none))
}
