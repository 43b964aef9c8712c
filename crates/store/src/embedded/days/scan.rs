//! Scans of one sensor's days.

use std::ops::Range;
use std::sync::Arc;

use redb::AccessGuard;

use super::{CHUNK, DayHead, EXPIRED, shown, unreadable};
use crate::bucket::day::within;
use crate::bucket::store::{Extent, Order, PageSummaries, Projection, Scanned, ScannedPage};
use crate::bucket::{DayPart, Summary};
use crate::embedded::file::FileFailure;
use crate::embedded::keys::Keys;
use crate::embedded::page_form::NoPage;
use crate::embedded::tables::{DocumentRows, unseal};
use crate::figures::Room;
use crate::reading::{Day, Hour};

/// Most pages for which a scan makes room at once: those of a month.
const RESERVED: usize = 31 * 24;

/// Implements `Store::scan_days`; also returns the bytes of what was found.
pub(in crate::embedded) fn scan(
    keys: &Keys,
    days: &DocumentRows,
    sensor: &str,
    hours: &Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> Result<(Scanned, usize), FileFailure> {
    let (mut found, mut size, mut rest) = (Vec::new(), 0, hours.clone());
    let mut scan = PartScan { projection: &projection.apart(), room: Room::default() };
    while !rest.is_empty() && found.len() < extent.pages && size < extent.bytes {
        let Some((day, rows)) = next_rows(days, keys, sensor, order, &rest)? else {
            rest = rest.end..rest.end;
            break;
        };
        let (mut parts, from) = (rows, found.len());
        parts.retain(|row| {
            let hours = row.part.hours(day);
            hours.start < rest.end && rest.start < hours.end
        });
        let (of_day, count) = (within(day, &rest), parts.len());
        // Parts by hour are the last ones that are read, so that the scan may end after each of them.
        parts.sort_by_key(|row| matches!(row.part, DayPart::Hour(_)));
        let mut hourly = parts.split_off(parts.partition_point(|row| !matches!(row.part, DayPart::Hour(_))));
        for row in parts {
            size += scan.part(days, row, day, &of_day, &mut found)?;
        }
        if order == Order::Descending {
            hourly.reverse();
        }
        let mut stop = None;
        for (number, row) in hourly.into_iter().enumerate() {
            if number > 0 && (found.len() >= extent.pages || extent.bytes <= size_of_pages(&found[from..])) {
                stop = Some(row.part.hours(day));
                break;
            }
            size += scan.part(days, row, day, &of_day, &mut found)?;
        }
        let left = match (&stop, order) {
            (None, Order::Ascending) => day.next().hours().start.min(rest.end)..rest.end,
            (None, Order::Descending) => rest.start..day.hours().start.max(rest.start),
            (Some(hour), Order::Ascending) => hour.start..rest.end,
            (Some(hour), Order::Descending) => rest.start..hour.end,
        };
        if stop.is_some() {
            let mut pages = found.split_off(from);
            pages.retain(|page: &ScannedPage| !left.contains(&page.hour));
            found.extend(pages);
        }
        if count > 1 {
            // Stable: the parts of an hour stay in order.
            found[from..].sort_by_key(|page| page.hour);
        }
        if order == Order::Descending {
            found[from..].reverse();
        }
        if from == 0 {
            found.reserve(found.len().saturating_mul(days_in(&left)).min(extent.pages).min(RESERVED));
        }
        rest = left;
    }
    Ok((Scanned { pages: found, rest }, size))
}

/// A part that is stored.
struct PartRow {
    part: DayPart,
    key: Vec<u8>,
    /// What was found under the key, of the part for the whole day. There may be many others, too many to be held.
    value: Option<AccessGuard<'static, &'static [u8]>>,
}

/// The next day in these hours, in this order, of which the sensor has parts, and these.
fn next_rows(
    days: &DocumentRows,
    keys: &Keys,
    sensor: &str,
    order: Order,
    hours: &Range<Hour>,
) -> Result<Option<(Day, Vec<PartRow>)>, FileFailure> {
    // Most sensors have parts of every day.
    let first = match order {
        Order::Ascending => Day::of(hours.start),
        Order::Descending => Day::of(Hour(hours.end.0 - 1)),
    };
    let rows = rows_of(days, keys, sensor, first)?;
    if !rows.is_empty() {
        return Ok(Some((first, rows)));
    }
    let Some(day) = next(days, keys, sensor, order, &Day::of_hours(hours))? else { return Ok(None) };
    Ok(Some((day, rows_of(days, keys, sensor, day)?)))
}

fn rows_of(days: &DocumentRows, keys: &Keys, sensor: &str, day: Day) -> Result<Vec<PartRow>, FileFailure> {
    let (whole, mut rows) = (keys.day(day, sensor, DayPart::Whole), Vec::new());
    for row in days.range::<&[u8]>(&*whole..&*Keys::end_of(&whole))? {
        let (key, value) = row?;
        if let Some(part) = Keys::part_behind(&whole, key.value()) {
            let value = (part == DayPart::Whole).then_some(value);
            rows.push(PartRow { part, key: key.value().to_vec(), value });
        }
    }
    Ok(rows)
}

fn days_in(hours: &Range<Hour>) -> usize {
    let days = Day::of_hours(hours);
    usize::try_from(days.end.0.saturating_sub(days.start.0)).unwrap_or_default()
}

fn size_of_pages(pages: &[ScannedPage]) -> usize {
    pages.iter().map(|page| page.bytes(0)).sum()
}

/// The next day in a range, in this order, of which the sensor has a part.
pub(super) fn next(
    days: &DocumentRows,
    keys: &Keys,
    sensor: &str,
    order: Order,
    range: &Range<Day>,
) -> Result<Option<Day>, FileFailure> {
    let mut left = range.clone();
    while !left.is_empty() {
        // Each look shows a day that some sensor has. The days between it and the last look have none.
        let row = match order {
            Order::Ascending => {
                let start = keys.day(left.start, sensor, DayPart::Whole);
                days.range::<&[u8]>(&*start..&*keys.day_start(left.end))?.next()
            }
            Order::Descending => {
                let end = keys.day_end(Day(left.end.0 - 1), sensor);
                days.range::<&[u8]>(&*keys.day_start(left.start)..&*end)?.next_back()
            }
        };
        let Some((key, _)) = row.transpose()? else { return Ok(None) };
        let Some(day) = keys.day_of(key.value()) else { return Ok(None) };
        if keys.part_of(key.value(), day, sensor).is_some() {
            return Ok(Some(day));
        }
        left = match order {
            // The row is of a sensor behind this one, so this one has nothing on that day, or of a later day.
            Order::Ascending if day == left.start => day.next()..left.end,
            Order::Ascending => day..left.end,
            Order::Descending if day.next() == left.end => left.start..day,
            Order::Descending => left.start..day.next(),
        };
    }
    Ok(None)
}

/// Reads parts for a scan.
struct PartScan<'a> {
    projection: &'a Projection,
    room: Room,
}

impl PartScan<'_> {
    /// Adds the hours of a part that lie in a range; returns the bytes that they count for.
    fn part(
        &mut self,
        days: &DocumentRows,
        row: PartRow,
        day: Day,
        hours: &Range<Hour>,
        pages: &mut Vec<ScannedPage>,
    ) -> Result<usize, FileFailure> {
        let PartRow { key, value, .. } = row;
        let value = match value {
            Some(value) => value,
            None => match days.get(&*key)? {
                Some(value) => value,
                None => return Ok(0),
            },
        };
        let (value, projection) = (value.value(), self.projection);
        // A head with summaries has a checksum of its own.
        let has_sum_of_head = value.get(1) != Some(&CHUNK);
        let bytes = match has_sum_of_head && !projection.readings {
            true => value,
            false => unseal(&key, value, || shown(&key))?,
        };
        let damaged = |why: NoPage| unreadable(shown(&key), &why);
        let head = DayHead::read(&key, bytes).map_err(damaged)?;
        let wanted = within(day, hours);
        if projection.readings && head.kind == EXPIRED {
            return Ok(bytes.len());
        }
        if projection.readings || head.kind == CHUNK {
            let readings = head.unpack().map_err(|why| unreadable(shown(&key), &*why))?;
            let found = projection.pages_of(readings, &wanted);
            let size = bytes.len().max(size_of_pages(&found));
            pages.extend(found);
            return Ok(size);
        }
        let before = pages.len();
        self.by_column(&head, day, &wanted, pages).map_err(damaged)?;
        Ok(pages[before..]
            .iter()
            .map(|page| size_of::<ScannedPage>() + page.summary.len() * size_of::<Summary>())
            .sum())
    }

    fn by_column(
        &mut self,
        head: &DayHead<'_>,
        day: Day,
        wanted: &Range<Hour>,
        pages: &mut Vec<ScannedPage>,
    ) -> Result<(), NoPage> {
        let Some(hours) = &head.summaries else { return Ok(()) };
        let is_expired = head.kind == EXPIRED;
        let names: Vec<Option<Arc<str>>> = head.names.iter().map(|name| self.projection.name_of(name)).collect();
        let (fields, start) = (names.iter().flatten().count(), day.hours().start.0);
        let mut places = [usize::MAX; 24];
        for number in hours.set.numbers() {
            let hour = Hour(start + i64::from(number));
            if wanted.contains(&hour) {
                places[usize::from(number)] = pages.len();
                let summary = PageSummaries::with_capacity(fields);
                let oldest = head.floor;
                pages.push(ScannedPage { hour, number: 0, summary, oldest, readings: None, is_expired });
            }
        }
        Ok(hours.each(
            names.len(),
            (|field| names[field].is_some(), self.projection.only_sums),
            &mut self.room,
            |field, number, summary| {
                let page = places.get(usize::from(number)).and_then(|place| pages.get_mut(*place));
                if let (Some(name), Some(page)) = (&names[field], page) {
                    page.summary.push((name.clone(), summary));
                }
            },
        )?)
    }
}
