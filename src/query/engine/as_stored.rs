//! Metadata as pages and days hold it (`meta=as_stored`), hour by hour, in place of what sensors' documents say now.

use std::collections::HashMap;
use std::ops::Range;

use super::choose::Chosen;
use super::directory::DirectoryEntry;
use super::points::PointCursor;
use super::summaries::HourSummary;
use super::{Engine, hours_of};
use crate::bucket::HeldCopies;
use crate::bucket::relabel::UnitedPart;
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

    /// All that was said, and what is said now, where that is chosen.
    fn entries(&self) -> impl Iterator<Item = &DirectoryEntry> {
        self.held.iter().filter_map(|(_, entry)| entry.as_ref()).chain(self.now.as_ref())
    }

    /// What pages hold; what is said now only if they hold nothing.
    fn held(&self) -> impl Iterator<Item = &DirectoryEntry> {
        let now = self.now.as_ref().filter(|_| self.held.is_empty());
        self.held.iter().filter_map(|(_, entry)| entry.as_ref()).chain(now)
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
        let (any, chooser) = (selector.without_meta(), selector.compile(budget)?);
        let chosen = self.choose(budget, database, &any).await?;
        self.check_sensors(chosen.entries.len())?;
        let entries: Vec<&DirectoryEntry> = chosen.entries.iter().collect();
        let is_chosen = |entry: &DirectoryEntry| chooser.takes_entry(entry);
        let stored = self.stored_meta((budget, database), &entries, range, &is_chosen).await?;
        Ok((chosen, stored))
    }

    /// What is stored of the metadata of these sensors; of what is said of each, only what a test chooses it by.
    ///
    /// # Errors
    /// [`QueryError::NoCopies`] if pages hold none; if the store does not answer, or the budget is exhausted.
    pub async fn stored_meta(
        &self,
        (budget, database): (&Budget, &str),
        entries: &[&DirectoryEntry],
        range: &Range<i64>,
        is_chosen: &(dyn Fn(&DirectoryEntry) -> bool + Sync),
    ) -> Result<AsStored, QueryError> {
        if !self.store.keeps_copies() {
            return Err(QueryError::NoCopies);
        }
        let (mut sensors, mut held) = (HashMap::with_capacity(entries.len()), budget.hold(0)?);
        let kept = |entry: &&DirectoryEntry| entry.sensor.key.len() + 2 * size_of::<(Box<str>, History)>();
        for some in entries.chunks(TOGETHER) {
            held.grow(some.iter().map(kept).sum())?;
            let copies = self.copies_of((budget, database), some, &hours_of(range), &mut held).await?;
            for (entry, copies) in some.iter().zip(copies) {
                sensors.insert(entry.sensor.key.clone(), history(entry, copies, is_chosen));
            }
            budget.pause().await?;
        }
        Ok(AsStored { sensors, _held: held })
    }

    /// The copies that are read under each of these names: of all stored sensors that it unites.
    async fn copies_of(
        &self,
        (budget, database): (&Budget, &str),
        entries: &[&DirectoryEntry],
        hours: &Range<Hour>,
        held: &mut HeldBytes,
    ) -> Result<Vec<HeldCopies>, QueryError> {
        let parts = entries.iter().map(|entry| self.parts(database, &entry.sensor.key));
        let parts: Vec<Option<Vec<UnitedPart>>> = parts.collect();
        let mut stored: Vec<&str> = Vec::new();
        for (entry, parts) in entries.iter().zip(&parts) {
            match parts {
                Some(parts) => stored.extend(parts.iter().map(|part| &*part.sensor.key)),
                None => stored.push(&entry.sensor.key),
            }
        }
        let Some(extras) = self.store.raw().clone().mongo_extras() else { return Err(QueryError::NoCopies) };
        // Several names may read one stored sensor.
        stored.sort_unstable();
        stored.dedup();
        let mut copies: HashMap<&str, HeldCopies> = HashMap::with_capacity(stored.len());
        for some in stored.chunks(TOGETHER) {
            let found = budget.waiting(extras.held_copies(database, some, hours.clone())).await?;
            held.grow(found.iter().flatten().map(|(_, meta)| STRETCH_BYTES + meta.memory()).sum::<usize>())?;
            copies.extend(some.iter().copied().zip(found));
        }
        let of = |key: &str| copies.get(key).cloned().unwrap_or_default();
        let named = entries.iter().zip(&parts).map(|(entry, parts)| match parts {
            Some(parts) => {
                parts.iter().fold(HeldCopies::new(), |known, part| filled(known, within(part, of(&part.sensor.key))))
            }
            None => of(&entry.sensor.key),
        });
        Ok(named.collect())
    }
}

/// The copies of a stored sensor in the hours in which it is read under a name.
fn within(part: &UnitedPart, copies: HeldCopies) -> HeldCopies {
    let mut within = HeldCopies::new();
    for (hours, meta) in copies {
        for times in part.times.iter().map(hours_of) {
            let hours = hours.start.max(times.start)..hours.end.min(times.end);
            if hours.start < hours.end {
                within.push((hours, meta.clone()));
            }
        }
    }
    within
}

/// Fills the hours of which nothing is known with other copies: as with readings, what comes first counts.
fn filled(mut known: HeldCopies, more: HeldCopies) -> HeldCopies {
    let mut gaps = HeldCopies::new();
    for (hours, meta) in more {
        let mut from = hours.start;
        let next = known.partition_point(|(before, _)| before.end <= from);
        for (there, _) in known[next..].iter().take_while(|(there, _)| there.start < hours.end) {
            if from < there.start {
                gaps.push((from..there.start, meta.clone()));
            }
            from = from.max(there.end);
        }
        if from < hours.end {
            gaps.push((from..hours.end, meta));
        }
    }
    known.extend(gaps);
    ordered(known)
}

/// Copies in order of hours, without overlaps: a late reading's page may stand beside the day.
fn ordered(mut copies: HeldCopies) -> HeldCopies {
    copies.sort_by_key(|(hours, _)| hours.start);
    let mut ordered = HeldCopies::with_capacity(copies.len());
    for (hours, meta) in copies {
        let start = ordered.last().map_or(hours.start, |(before, _): &(Range<Hour>, _)| hours.start.max(before.end));
        if start < hours.end {
            ordered.push((start..hours.end, meta));
        }
    }
    ordered
}

fn history(entry: &DirectoryEntry, copies: HeldCopies, is_chosen: impl Fn(&DirectoryEntry) -> bool) -> History {
    let if_chosen = |entry: DirectoryEntry| is_chosen(&entry).then_some(entry);
    let then = |meta| DirectoryEntry { meta: Some(meta), ..entry.clone() };
    let held = ordered(copies).into_iter().map(|(hours, meta)| (hours, if_chosen(then(meta)))).collect();
    History { now: if_chosen(entry.clone()), held }
}

impl AsStored {
    /// A sensor by all that was said and is said of it; nothing where it is not chosen.
    pub fn entries(&self, key: &str) -> impl Iterator<Item = &DirectoryEntry> {
        self.sensors.get(key).into_iter().flat_map(History::entries)
    }

    /// The same by what pages hold; by what is said now only if they hold nothing.
    pub fn held(&self, key: &str) -> impl Iterator<Item = &DirectoryEntry> {
        self.sensors.get(key).into_iter().flat_map(History::held)
    }

    /// Whether a test passes for a sensor whatever was said of it; `None` if that has to be asked of each reading.
    pub fn passes(&self, key: &str, test: impl Fn(&DirectoryEntry) -> Option<bool>) -> Option<bool> {
        let mut entries = self.entries(key).peekable();
        match entries.peek() {
            None => Some(false),
            Some(_) => entries.all(|entry| test(entry) == Some(true)).then_some(true),
        }
    }

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

    #[test]
    fn of_two_sensors_that_are_one_the_first_says_what_an_hour_was() {
        let copies = |of: &[(i64, i64, &str)]| -> HeldCopies {
            of.iter().map(|(from, to, site)| (Hour(*from)..Hour(*to), of_site(site))).collect()
        };
        let first = copies(&[(2, 4, "a"), (6, 7, "b")]);
        let second = copies(&[(0, 1, "c"), (3, 9, "d")]);
        let expected = [(0, 1, "c"), (2, 4, "a"), (4, 6, "d"), (6, 7, "b"), (7, 9, "d")];
        assert_eq!(filled(first.clone(), second.clone()), copies(&expected));
        assert_eq!(filled(HeldCopies::new(), second.clone()), second);
        assert_eq!(filled(first.clone(), HeldCopies::new()), first);
        // Read under the name from the middle of hour 3 until the end of hour 5.
        let sensor = Arc::new(Sensor::new("m", [("s", "1")]).unwrap());
        let part = UnitedPart { sensor, times: std::iter::once(3 * HOUR + HOUR / 2..6 * HOUR).collect() };
        assert_eq!(within(&part, second), copies(&[(3, 6, "d")]));
    }
}
