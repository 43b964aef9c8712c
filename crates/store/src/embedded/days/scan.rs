//! Scans of the parts of one sensor's days.

use std::ops::Range;
use std::sync::Arc;

use redb::AccessGuard;

use super::{DayHead, EXPIRED, has_head, part_id, unreadable};
use crate::bucket::day::hours_in_range;
use crate::bucket::store::{Extent, Order, PageSummaries, Projection, ScanResult, ScannedPage};
use crate::bucket::{DayPart, Summary};
use crate::embedded::SizedScan;
use crate::embedded::file::FileFailure;
use crate::embedded::keys::Keys;
use crate::embedded::page_form::PageError;
use crate::embedded::tables::{DocumentRows, unseal};
use crate::figures::Room;
use crate::reading::{Day, Hour};

/// Maximum number of pages that a scan reserves memory for at once: one month.
const RESERVED_PAGES_MAX: usize = 31 * 24;

/// Implements `DayStore::scan_days`.
pub(in crate::embedded) fn scan(
    keys: &Keys,
    days: &DocumentRows,
    sensor: &str,
    hours: &Range<Hour>,
    order: Order,
    projection: &Projection,
    extent: Extent,
) -> Result<SizedScan, FileFailure> {
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut rest = hours.clone();
    let mut scan = PartScan { projection: &projection.with_own_names(), room: Room::default() };
    while !rest.is_empty() && found.len() < extent.pages && bytes < extent.bytes {
        let Some(DayRows { day, rows: mut parts }) = next_rows(days, keys, sensor, order, &rest)? else {
            rest = rest.end..rest.end;
            break;
        };
        let day_start = found.len();
        parts.retain(|row| {
            let hours = row.part.hours(day);
            hours.start < rest.end && rest.start < hours.end
        });
        let day_hours = hours_in_range(day, &rest);
        let has_several_parts = parts.len() > 1;
        // Read the parts of single hours last, so that the scan can end after each of them.
        parts.sort_by_key(|row| matches!(row.part, DayPart::Hour(_)));
        let mut hourly = parts.split_off(parts.partition_point(|row| !matches!(row.part, DayPart::Hour(_))));
        for row in parts {
            bytes += scan.read_part(days, row, day, &day_hours, &mut found)?;
        }
        if order == Order::Descending {
            hourly.reverse();
        }
        let mut stop = None;
        for (index, row) in hourly.into_iter().enumerate() {
            if index > 0 && (found.len() >= extent.pages || page_bytes(&found[day_start..]) >= extent.bytes) {
                stop = Some(row.part.hours(day));
                break;
            }
            bytes += scan.read_part(days, row, day, &day_hours, &mut found)?;
        }
        let left = match (&stop, order) {
            (None, Order::Ascending) => day.next().hours().start.min(rest.end)..rest.end,
            (None, Order::Descending) => rest.start..day.hours().start.max(rest.start),
            (Some(hour), Order::Ascending) => hour.start..rest.end,
            (Some(hour), Order::Descending) => rest.start..hour.end,
        };
        if stop.is_some() {
            let mut pages = found.split_off(day_start);
            pages.retain(|page: &ScannedPage| !left.contains(&page.hour));
            found.extend(pages);
        }
        if has_several_parts {
            // The sort is stable, so the parts of an hour keep their order.
            found[day_start..].sort_by_key(|page| page.hour);
        }
        if order == Order::Descending {
            found[day_start..].reverse();
        }
        if day_start == 0 {
            // Assume that the remaining days have as many pages as the first one.
            let expected = found.len().saturating_mul(day_count(&left));
            found.reserve(expected.min(extent.pages).min(RESERVED_PAGES_MAX));
        }
        rest = left;
    }
    Ok(SizedScan { scanned: ScanResult { pages: found, rest }, bytes })
}

/// A stored part.
struct PartRow {
    part: DayPart,
    key: Vec<u8>,
    /// The stored bytes of the whole day's part. `None` for other parts: a day may have too many of them to keep in
    /// memory.
    value: Option<AccessGuard<'static, &'static [u8]>>,
}

/// The stored parts of a sensor's day.
struct DayRows {
    day: Day,
    rows: Vec<PartRow>,
}

/// Finds the next day with parts of the sensor in a range of hours.
fn next_rows(
    days: &DocumentRows,
    keys: &Keys,
    sensor: &str,
    order: Order,
    hours: &Range<Hour>,
) -> Result<Option<DayRows>, FileFailure> {
    // Try the first day before searching, because most sensors have parts on every day.
    let day = match order {
        Order::Ascending => Day::from_hour(hours.start),
        Order::Descending => Day::from_hour(Hour(hours.end.0 - 1)),
    };
    let rows = read_rows(days, keys, sensor, day)?;
    if !rows.is_empty() {
        return Ok(Some(DayRows { day, rows }));
    }
    let Some(day) = next_day(days, keys, sensor, order, &Day::range_from_hours(hours))? else { return Ok(None) };
    Ok(Some(DayRows { day, rows: read_rows(days, keys, sensor, day)? }))
}

fn read_rows(days: &DocumentRows, keys: &Keys, sensor: &str, day: Day) -> Result<Vec<PartRow>, FileFailure> {
    let whole = keys.day(day, sensor, DayPart::Whole);
    let mut rows = Vec::new();
    for row in days.range::<&[u8]>(&*whole..&*Keys::parts_end(&whole))? {
        let (key, value) = row?;
        if let Some(part) = Keys::parse_part_suffix(&whole, key.value()) {
            let value = (part == DayPart::Whole).then_some(value);
            rows.push(PartRow { part, key: key.value().to_vec(), value });
        }
    }
    Ok(rows)
}

fn day_count(hours: &Range<Hour>) -> usize {
    let days = Day::range_from_hours(hours);
    usize::try_from(days.end.0.saturating_sub(days.start.0)).unwrap_or_default()
}

fn page_bytes(pages: &[ScannedPage]) -> usize {
    pages.iter().map(|page| page.bytes(0)).sum()
}

/// Finds the next day with a part of the sensor in a range of days.
pub(super) fn next_day(
    days: &DocumentRows,
    keys: &Keys,
    sensor: &str,
    order: Order,
    range: &Range<Day>,
) -> Result<Option<Day>, FileFailure> {
    let mut left = range.clone();
    while !left.is_empty() {
        // Each search finds the next day with parts of any sensor, and so skips all days without parts.
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
        let Some(day) = keys.parse_day(key.value()) else { return Ok(None) };
        if keys.parse_part(key.value(), day, sensor).is_some() {
            return Ok(Some(day));
        }
        left = match order {
            // A row on the first day belongs to a later sensor, so this sensor has nothing on that day.
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
    /// Appends the pages of a part in a range of hours. Returns the bytes that count against the extent.
    fn read_part(
        &mut self,
        days: &DocumentRows,
        row: PartRow,
        day: Day,
        hours: &Range<Hour>,
        pages: &mut Vec<ScannedPage>,
    ) -> Result<usize, FileFailure> {
        let PartRow { key, value, .. } = row;
        let stored = value.map_or_else(|| days.get(&*key), |value| Ok(Some(value)))?;
        let Some(stored) = stored else { return Ok(0) };
        let value = stored.value();
        let projection = self.projection;
        // A head with summaries has a checksum of its own, so the readings need no check if they are not read.
        let has_head_checksum = value.get(1).is_some_and(|kind| has_head(*kind));
        let bytes =
            if has_head_checksum && !projection.readings { value } else { unseal(&key, value, || part_id(&key))? };
        let damaged = |error: PageError| unreadable(part_id(&key), &error);
        let head = DayHead::read(&key, bytes).map_err(damaged)?;
        let wanted = hours_in_range(day, hours);
        if projection.readings && head.kind == EXPIRED {
            return Ok(bytes.len());
        }
        if projection.readings || head.summaries.is_none() {
            let readings = head.unpack().map_err(|error| unreadable(part_id(&key), &*error))?;
            let found = projection.hour_pages(readings, &wanted);
            let size = bytes.len().max(page_bytes(&found));
            pages.extend(found);
            return Ok(size);
        }
        let first = pages.len();
        self.read_summaries(&head, day, &wanted, pages).map_err(damaged)?;
        let summary_bytes = |page: &ScannedPage| size_of::<ScannedPage>() + page.summary.len() * size_of::<Summary>();
        Ok(pages[first..].iter().map(summary_bytes).sum())
    }

    /// Appends a page with summaries for each of the wanted hours.
    fn read_summaries(
        &mut self,
        head: &DayHead<'_>,
        day: Day,
        wanted: &Range<Hour>,
        pages: &mut Vec<ScannedPage>,
    ) -> Result<(), PageError> {
        let Some(hours) = &head.summaries else { return Ok(()) };
        let is_expired = head.kind == EXPIRED;
        let names: Vec<Option<Arc<str>>> = head.names.iter().map(|name| self.projection.shared_name(name)).collect();
        let fields = names.iter().flatten().count();
        let start = day.hours().start.0;
        // Indexes into `pages` by hour of the day.
        let mut indexes = [usize::MAX; 24];
        for number in hours.set.numbers() {
            let hour = Hour(start + i64::from(number));
            if wanted.contains(&hour) {
                indexes[usize::from(number)] = pages.len();
                let summary = PageSummaries::with_capacity(fields);
                let oldest = head.floor;
                pages.push(ScannedPage { hour, number: 0, summary, oldest, readings: None, is_expired });
            }
        }
        Ok(hours.each(
            names.len(),
            |field| names[field].is_some(),
            self.projection,
            &mut self.room,
            |field, number, summary| {
                let page = indexes.get(usize::from(number)).and_then(|index| pages.get_mut(*index));
                if let (Some(name), Some(page)) = (&names[field], page) {
                    page.summary.push((name.clone(), summary));
                }
            },
        )?)
    }
}
