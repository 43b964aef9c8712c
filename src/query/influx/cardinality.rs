//! `SHOW … CARDINALITY`: counts the items of a listing, by measurement and by tags.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::rows::{ResultCell, StatementAnswer};
use super::show::{SensorListing, metadata_value};
use crate::influxql::{Cardinality, Expr, KeyFilter, Listing, ListingKind};
use crate::query::QueryError;
use crate::query::engine::directory::DirectoryEntry;
use crate::query::engine::memory::{CHOOSE, NAME_BYTES};
use crate::reading::Value;

/// A measurement, or none if all are counted together, and the tags of a group.
type GroupKey<'a> = (Option<&'a str>, Vec<(&'a str, Cow<'a, str>)>);

/// Returns true if InfluxDB answers an estimate of the whole database.
pub(super) fn is_estimate(listing: &Listing) -> bool {
    listing.cardinality == Some(Cardinality::Estimated)
        && matches!(listing.kind, ListingKind::Measurements | ListingKind::Series)
        && listing.sources.is_empty()
        && listing.condition.is_none()
        && listing.group_by.is_empty()
        && (listing.limit, listing.offset) == (0, 0)
}

/// Adds the one row of an estimate.
pub(super) async fn add_estimate(count: usize, answer: &mut StatementAnswer) -> Result<(), QueryError> {
    add(None, "cardinality estimation", count, answer).await
}

async fn add(name: Option<&str>, column: &str, count: usize, answer: &mut StatementAnswer) -> Result<(), QueryError> {
    let count = Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
    answer.list(name, &[column], Box::new(std::iter::once(vec![ResultCell::Value(count)]))).await
}

impl SensorListing<'_> {
    pub(super) async fn count(&self, answer: &mut StatementAnswer) -> Result<(), QueryError> {
        let listing = self.listing;
        let budget = self.run.context.budget;
        // Each group has one row.
        if listing.offset > 0 {
            return Ok(());
        }
        let entries = || self.parts.iter().flat_map(|part| &part.chosen.entries);
        let mut groups: BTreeMap<GroupKey<'_>, BTreeSet<Cow<'_, str>>> = BTreeMap::new();
        let mut held = budget.hold(0)?;
        let mut count = 0;
        let mut members: BTreeMap<&str, Names<'_>> = BTreeMap::new();
        for (number, entry) in entries().enumerate() {
            members.entry(&*entry.sensor.measurement).or_default().add(entry);
            if number % CHOOSE == 0 {
                budget.pause().await?;
            }
        }
        let named = listing.keys.as_ref().map_or(&[][..], KeyFilter::names);
        for entry in entries() {
            let measurement = &*entry.sensor.measurement;
            let names = &members[measurement];
            let name = (listing.kind != ListingKind::Measurements).then_some(measurement);
            let key = (name, self.group_tags(entry, names));
            let known = groups.entry(key).or_default();
            let before = known.len();
            let tags = entry.sensor.tags.iter().filter(|(key, _)| self.is_key(key));
            match listing.kind {
                ListingKind::Series => drop(known.insert((&*entry.sensor.key).into())),
                ListingKind::Measurements => drop(known.insert(measurement.into())),
                ListingKind::TagKeys => known.extend(tags.map(|(key, _)| Cow::from(&**key))),
                ListingKind::TagValues => {
                    known.extend(tags.map(|(_, value)| Cow::from(&**value)));
                    known.extend(named.iter().filter_map(|key| metadata_value(entry, key)));
                }
                // As in InfluxDB, every group has the fields of its measurement.
                ListingKind::FieldKeys => known.extend(names.fields.iter().map(|field| Cow::from(*field))),
            }
            count += known.len() - before;
            held.set((groups.len() + count) * NAME_BYTES)?;
            budget.pause().await?;
        }
        if is_estimate(listing) {
            return add_estimate(groups.values().map(BTreeSet::len).sum(), answer).await;
        }
        for ((name, tags), items) in groups.into_iter().filter(|(_, items)| !items.is_empty()) {
            add(name, "count", items.len(), answer).await?;
            if let Some(series) = answer.series.last_mut() {
                series.tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value.into_owned())).collect();
            }
        }
        Ok(())
    }

    /// Returns the tags of GROUP BY. Windows of time have no effect.
    fn group_tags<'e>(&'e self, entry: &'e DirectoryEntry, names: &Names<'e>) -> Vec<(&'e str, Cow<'e, str>)> {
        let mut keys = BTreeSet::new();
        for dimension in &self.listing.group_by {
            match dimension {
                Expr::Reference { name, .. } => drop(keys.insert(&**name)),
                Expr::Wildcard(_) => keys.extend(&names.tags),
                _ => {}
            }
        }
        keys.into_iter().map(|key| (key, entry.tag(key).unwrap_or_default())).collect()
    }
}

/// The names of a measurement.
#[derive(Default)]
struct Names<'a> {
    tags: BTreeSet<&'a str>,
    fields: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn add(&mut self, entry: &'a DirectoryEntry) {
        self.tags.extend(entry.sensor.tags.iter().map(|(key, _)| &**key));
        self.fields.extend(entry.fields.iter().map(|(name, _)| &**name));
    }
}
