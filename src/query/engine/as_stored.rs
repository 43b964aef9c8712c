//! Metadata as pages and days hold it (`meta=as_stored`), hour by hour, in place of what sensors' documents say now.

use std::collections::HashMap;
use std::ops::Range;

use super::choose::Chosen;
use super::directory::DirectoryEntry;
use super::points::PointCursor;
use super::summaries::HourSummary;
use super::{Engine, hours_of};
use crate::bucket::HeldCopies;
use crate::query::selector::Selector;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::Hour;

/// Sensors whose copies are read together.
const TOGETHER: usize = 250;
/// The memory of one stretch of hours, beside the metadata.
const STRETCH_BYTES: usize = 2 * size_of::<(Range<Hour>, Option<DirectoryEntry>)>();

/// The metadata of the chosen sensors, by their keys.
#[derive(Debug)]
pub struct AsStored {
    sensors: HashMap<Box<str>, History>,
    _held: HeldBytes,
}

/// One sensor as it was, and is where nothing stored says otherwise. `None` where it is not chosen.
#[derive(Debug)]
struct History {
    now: Option<DirectoryEntry>,
    /// Ascending, without overlaps.
    held: Vec<(Range<Hour>, Option<DirectoryEntry>)>,
}

impl History {
    /// The sensor in an hour, and the hour in which that ends.
    fn at(&self, hour: Hour) -> (Option<&DirectoryEntry>, Hour) {
        let next = self.held.partition_point(|(hours, _)| hours.end <= hour);
        match self.held.get(next) {
            Some((hours, entry)) if hours.start <= hour => (entry.as_ref(), hours.end),
            Some((hours, _)) => (self.now.as_ref(), hours.start),
            None => (self.now.as_ref(), Hour(i64::MAX)),
        }
    }

    fn split(&self, points: &PointCursor) -> Vec<(&DirectoryEntry, PointCursor)> {
        let (mut parts, mut from) = (Vec::new(), 0);
        while let Some(first) = points.times.get(from) {
            let (entry, end) = self.at(Hour::of(*first));
            let until = points.times.partition_point(|time| Hour::of(*time) < end);
            parts.extend(entry.map(|entry| (entry, points.part(from..until))));
            from = until;
        }
        parts
    }
}

impl Engine {
    /// The sensors that a selector may select by what is stored of their metadata, and that metadata.
    ///
    /// # Errors
    /// [`QueryError::NoCopies`] if pages hold none; else as [`Engine::choose`].
    pub async fn choose_as_stored(
        &self,
        budget: &Budget,
        database: &str,
        selector: &Selector,
        range: &Range<i64>,
    ) -> Result<(Chosen, AsStored), QueryError> {
        if !self.store.keeps_copies() {
            return Err(QueryError::NoCopies);
        }
        let (any, chooser) = (selector.without_meta(), selector.compile(budget)?);
        let chosen = self.choose(budget, database, &any).await?;
        self.check_sensors(chosen.entries.len())?;
        let (mut sensors, mut held) = (HashMap::with_capacity(chosen.entries.len()), budget.hold(0)?);
        for some in chosen.entries.chunks(TOGETHER) {
            let keys: Vec<&str> = some.iter().map(|entry| &*entry.sensor.key).collect();
            let copies = budget.waiting(self.store.held_copies(database, &keys, hours_of(range))).await?;
            for (entry, copies) in some.iter().zip(copies) {
                let is_chosen = |entry: &DirectoryEntry| chooser.takes_entry(entry);
                let history = history(entry, copies, is_chosen);
                let of_meta = |(_, entry): &(_, Option<DirectoryEntry>)| {
                    entry.as_ref().and_then(|entry| entry.meta.as_ref()).map_or(0, |meta| meta.memory())
                };
                held.grow(history.held.iter().map(|stretch| STRETCH_BYTES + of_meta(stretch)).sum::<usize>())?;
                sensors.insert(entry.sensor.key.clone(), history);
            }
            budget.pause().await?;
        }
        Ok((chosen, AsStored { sensors, _held: held }))
    }
}

fn history(entry: &DirectoryEntry, copies: HeldCopies, is_chosen: impl Fn(&DirectoryEntry) -> bool) -> History {
    let if_chosen = |entry: DirectoryEntry| is_chosen(&entry).then_some(entry);
    let mut held: Vec<(Range<Hour>, Option<DirectoryEntry>)> = Vec::with_capacity(copies.len());
    for (hours, meta) in copies {
        // A late reading's page may stand beside the day.
        let start = held.last().map_or(hours.start, |(before, _)| hours.start.max(before.end));
        if start < hours.end {
            held.push((start..hours.end, if_chosen(DirectoryEntry { meta: Some(meta), ..entry.clone() })));
        }
    }
    History { now: if_chosen(entry.clone()), held }
}

impl AsStored {
    /// A sensor's summaries, in hour order, by what was said of it then; without those that are not chosen.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn each_summary(
        &self,
        key: &str,
        mut summaries: &[HourSummary],
        mut take: impl FnMut(&DirectoryEntry, &[HourSummary]) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Some(history) = self.sensors.get(key) else { return Ok(()) };
        while let Some(first) = summaries.first() {
            let (entry, end) = history.at(first.hour);
            let (these, later) = summaries.split_at(summaries.partition_point(|one| one.hour < end));
            summaries = later;
            entry.map_or(Ok(()), |entry| take(entry, these))?;
        }
        Ok(())
    }

    /// A sensor's readings by what was said of it then; without those that are not chosen.
    #[must_use]
    pub fn split(&self, key: &str, points: &PointCursor) -> Vec<(&DirectoryEntry, PointCursor)> {
        self.sensors.get(key).map(|history| history.split(points)).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::bucket::Meta;
    use crate::reading::Sensor;

    const HOUR: i64 = 3_600_000_000_000;

    fn of_site(site: &str) -> Arc<Meta> {
        Arc::new(Meta::change(1, false, [("site".into(), Some(format!("\"{site}\"").into()))]))
    }

    fn site(entry: &DirectoryEntry) -> String {
        entry.tag("meta.site").unwrap().into_owned()
    }

    #[test]
    fn readings_belong_to_what_was_said_in_their_hour() {
        let entry = DirectoryEntry {
            sensor: Arc::new(Sensor::new("m", [("s", "1")]).unwrap()),
            fields: Arc::new([]),
            meta: Some(of_site("now")),
            others: None,
        };
        // Hours 0 and 1 in the lab, a late page of hour 1 beside them, nothing stored of hour 2, hour 3 on the roof.
        let hours = |from, to| Hour(from)..Hour(to);
        let copies =
            || vec![(hours(0, 2), of_site("lab")), (hours(1, 2), of_site("late")), (hours(3, 4), of_site("roof"))];
        let points = PointCursor { times: (0..5).map(|hour| hour * HOUR + 5).collect(), columns: vec![Vec::new()] };
        let split = |history: &History| -> Vec<(String, Vec<i64>)> {
            let hours = |points: &PointCursor| points.times.iter().map(|time| time / HOUR).collect();
            history.split(&points).iter().map(|(entry, points)| (site(entry), hours(points))).collect()
        };
        let of = |site: &str, hours: &[i64]| (site.to_owned(), hours.to_vec());
        let expected = [of("lab", &[0, 1]), of("now", &[2]), of("roof", &[3]), of("now", &[4])];
        assert_eq!(split(&history(&entry, copies(), |_| true)), expected);
        assert_eq!(split(&history(&entry, copies(), |entry| site(entry) == "lab")), [of("lab", &[0, 1])]);
    }
}
