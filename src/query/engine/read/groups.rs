//! The order in which sensors are read: by their groups, in the order of the answer.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::member;
use crate::query::QueryError;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::evaluate::{Evaluation, GroupKey};
use crate::query::engine::memory::CHOOSE;

/// A sensor, and whether the condition depends on its readings.
pub type ChosenSensor<'a> = (&'a DirectoryEntry, bool);

/// Sensors by groups.
pub struct Groups {
    /// Places in the list of chosen sensors, those of a group next to each other.
    pub order: Vec<usize>,
    /// The place in `order` at which each group begins.
    starts: Vec<usize>,
}

impl Groups {
    /// Returns the bytes of memory that this takes for so many sensors.
    pub fn bytes(sensors: usize) -> usize {
        sensors * 10 * size_of::<usize>()
    }

    /// Orders the chosen sensors.
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub async fn of(evaluation: &Evaluation<'_>, chosen: &[ChosenSensor<'_>]) -> Result<Self, QueryError> {
        let Evaluation { plan, budget, .. } = *evaluation;
        let tag_order = |a: &DirectoryEntry, b: &DirectoryEntry| {
            let by_tag =
                plan.group_by.iter().map(|tag| a.tag(tag).unwrap_or_default().cmp(&b.tag(tag).unwrap_or_default()));
            by_tag.fold(a.sensor.measurement.cmp(&b.sensor.measurement), Ordering::then)
        };
        let state = RandomState::new();
        let mut by_hash: HashMap<u64, usize> = HashMap::new();
        // The first sensor of each group, and each sensor's group.
        let mut firsts: Vec<usize> = Vec::new();
        let mut numbers = Vec::with_capacity(chosen.len());
        for (place, (entry, _)) in chosen.iter().enumerate() {
            let tags: Vec<Cow<'_, str>> = plan.group_by.iter().map(|tag| entry.tag(tag).unwrap_or_default()).collect();
            let mut hash = state.hash_one((&entry.sensor.measurement, tags));
            let number = loop {
                match by_hash.get(&hash) {
                    Some(number) if tag_order(chosen[firsts[*number]].0, entry).is_eq() => break *number,
                    Some(_) => hash = hash.wrapping_add(1),
                    None => {
                        by_hash.insert(hash, firsts.len());
                        firsts.push(place);
                        break firsts.len() - 1;
                    }
                }
            };
            numbers.push(number);
            if place % (CHOOSE / (1 + plan.group_by.len())).max(1) == 0 {
                budget.pause().await?;
            }
        }
        let mut ranks = vec![0; firsts.len()];
        let mut sorted: Vec<usize> = (0..firsts.len()).collect();
        let mut order: Vec<usize> = (0..chosen.len()).collect();
        let steps = 1 + plan.group_by.len();
        budget.sort(&mut sorted, steps, |a, b| tag_order(chosen[firsts[*a]].0, chosen[firsts[*b]].0)).await?;
        budget.run_unpaused(order.len(), || {
            if evaluation.frame.descending {
                sorted.reverse();
            }
            sorted.iter().enumerate().for_each(|(rank, number)| ranks[*number] = rank);
            order.sort_by_key(|place| ranks[numbers[*place]]);
        });
        let begins = |at: &usize| *at == 0 || numbers[order[*at]] != numbers[order[*at - 1]];
        let starts = (0..order.len()).filter(begins).collect();
        Ok(Self { order, starts })
    }

    pub fn count(&self) -> usize {
        self.starts.len()
    }

    /// Returns the end of the group that begins at this place.
    pub fn end(&self, start: usize) -> usize {
        self.end_of_slice(start, 0)
    }

    /// Returns the end of a slice of about this many sensors: whole groups, but at least one.
    pub fn end_of_slice(&self, start: usize, sensors: usize) -> usize {
        let all = self.order.len();
        if all - start <= sensors {
            return all;
        }
        let group = self.starts.partition_point(|at| *at <= start + sensors);
        let before = self.starts[group - 1];
        if before > start { before } else { self.starts.get(group).copied().unwrap_or(all) }
    }

    /// Returns the place of the first sensor whose group is this one or a later one.
    pub fn place_of(&self, wanted: &GroupKey, evaluation: &Evaluation<'_>, chosen: &[ChosenSensor<'_>]) -> usize {
        let is_before = |start: &usize| {
            let order = evaluation.key(&member(evaluation.plan, chosen[self.order[*start]].0)).cmp(wanted);
            if evaluation.frame.descending { order.is_gt() } else { order.is_lt() }
        };
        self.starts.get(self.starts.partition_point(is_before)).copied().unwrap_or(self.order.len())
    }
}
