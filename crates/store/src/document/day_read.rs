//! Decodes parts of days: with their readings, as pages for a scan, and for checks.

use std::borrow::Cow;
use std::sync::Arc;

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::columns::decode_columns;
use super::day::{DayForm, FORM, OLD_FORM, day_document};
use super::decode::{self, Detail, date, decode_rest, decode_versions, field_value, get, whole};
use super::distribution::{field_bounds, hourly_distributions};
use super::elements::items;
use super::encode::DAY_VERSION;
use crate::bucket::day::hours_in_range;
use crate::bucket::expired::{ExpiredDay, ExpiredHour};
use crate::bucket::raw::{DayDocument, Mismatch};
use crate::bucket::store::{PageSummaries, Projection, ScannedPage};
use crate::bucket::summary::Number;
use crate::bucket::{DayId, DayPart, DayWrite, Readings, Result, SealForm, StoredDay, Summary};
use crate::names::{from_key, key};
use crate::reading::{Day, Hour, Value};
use crate::sealed;

/// Maximum length of a value in a [`Mismatch`], in characters.
const SHOWN_CHARS_MAX: usize = 400;
/// Maximum capacity that is reserved for the fields of an hour.
const RESERVED_FIELDS_MAX: usize = 4;
/// The arrays of a field's hourly summaries.
const ARRAYS: [&str; 7] = ["min", "max", "first", "last", "sum", "count", "rest"];

/// Decodes a part with its readings.
///
/// # Errors
/// [`StorageError::Unreadable`](crate::bucket::StorageError::Unreadable) for another schema version or a damaged document.
pub fn decode_day(document: &RawDocument) -> Result<StoredDay> {
    decode_versions(document, DAY_VERSION, stored_day)
}

/// Decodes a part for checks, with the fields that contradict its readings.
///
/// # Errors
/// As [`decode_day`].
pub fn decode_raw_day(document: &RawDocument) -> Result<DayDocument> {
    decode_versions(document, DAY_VERSION, |document| {
        let part = part(document)?;
        let day = stored_day(document)?;
        let start = Day::from_hour(Hour::from_ms(date(document, "start")?));
        let id = DayId { sensor: decode::identity(document)?, day: start, part };
        let expired = day.expired.as_ref();
        let write = DayWrite { id: &id, rev: day.rev, next_rev: day.rev, readings: Some(&day.readings), expired };
        let form =
            if DayForm::of_document(document)? == DayForm::Columns { SealForm::Columns } else { SealForm::Packed };
        let expected = RawDocumentBuf::from_bytes(day_document(&write, form)).map_err(|e| e.to_string())?;
        let is_old = whole(document, "schemaVersion")? != DAY_VERSION;
        let is_wide = DayForm::of_document(&expected)? == DayForm::Wide;
        let mut mismatches = Vec::new();
        for element in &expected {
            let (name, expected) = element.map_err(|e| e.to_string())?;
            // The readings were decoded from these fields, so any bytes in them are right.
            let is_of_readings = ["readings", "packed", "sealed", "columns"].contains(&name.as_str());
            // Version 1 had the summaries of all fields in `day`, however many.
            let is_of_form = is_old && (["schemaVersion", FORM].contains(&name.as_str()) || is_wide && name == "day");
            let found = document.get(name).map_err(|e| e.to_string())?;
            if !is_of_readings && !is_of_form && found != Some(expected) {
                let shorten = |value: Option<RawBsonRef<'_>>| shorten(value.map(|value| format!("{value:?}")));
                mismatches.push(Mismatch {
                    part: name.to_string(),
                    expected: shorten(Some(expected)),
                    found: shorten(found),
                });
            }
        }
        Ok(DayDocument { id, day, mismatches })
    })
}

fn shorten(value: Option<String>) -> String {
    let value = value.unwrap_or_else(|| "nothing".to_owned());
    value.chars().take(SHOWN_CHARS_MAX).collect()
}

/// Decodes the [`DayPart`] of a document.
///
/// # Errors
/// [`StorageError::Unreadable`](crate::bucket::StorageError::Unreadable) for another schema version or a damaged document.
pub fn decode_part(document: &RawDocument) -> Result<DayPart> {
    decode_versions(document, DAY_VERSION, part)
}

fn part(document: &RawDocument) -> Result<DayPart, Detail> {
    if DayForm::of_document(document)? == DayForm::Chunk {
        return Ok(DayPart::Chunk { stamp: whole(document, "chunk")?, hour: hour_field(document)? });
    }
    match document.get("hour").map_err(|e| e.to_string())? {
        Some(_) => Ok(DayPart::Hour(hour_field(document)?)),
        None => Ok(DayPart::Whole),
    }
}

fn hour_field(document: &RawDocument) -> Result<u8, Detail> {
    let hour = whole(document, "hour")?;
    u8::try_from(hour).ok().filter(|hour| *hour < 24).ok_or_else(|| format!("hour {hour} is above 23"))
}

fn stored_day(document: &RawDocument) -> Result<StoredDay, Detail> {
    let form = DayForm::of_document(document)?;
    let expired = if form == DayForm::Expired { Some(expired_day(document)?) } else { None };
    Ok(StoredDay { rev: whole(document, "rev")?, readings: readings(document, form)?, expired })
}

fn expired_day(document: &RawDocument) -> Result<ExpiredDay, Detail> {
    let day = Day::from_hour(Hour::from_ms(date(document, "start")?));
    let pages = summarized_hours(document, DayForm::Expired, day, &Projection::SUMMARIES)?;
    let by_hour = get(document, "hours")?.as_document().ok_or("hours is not a document")?;
    let counts = list(by_hour, "count", |value| value.as_i32())?;
    let firsts = list(by_hour, "first", |value| value.as_i64())?;
    let lasts = list(by_hour, "last", |value| value.as_i64())?;
    if [counts.len(), firsts.len(), lasts.len()].iter().any(|length| *length != pages.len()) {
        return Err("hours.count, first and last differ in length from hours.hour".to_owned());
    }
    let mut hours = Vec::with_capacity(pages.len());
    for (index, page) in pages.into_iter().enumerate() {
        let mut summaries = page.summary.into_vec();
        summaries.sort_by(|(one, _), (other, _)| one.cmp(other));
        let count = u64::try_from(counts[index]).map_err(|e| e.to_string())?;
        hours.push(ExpiredHour { hour: page.hour, count, first: firsts[index], last: lasts[index], summaries });
    }
    Ok(ExpiredDay { hours })
}

fn readings(document: &RawDocument, form: DayForm) -> Result<Readings, Detail> {
    let floor = whole(document, "floor")?;
    let is_old = whole(document, "schemaVersion")? != DAY_VERSION;
    let field = |name| if is_old { "readings" } else { name };
    let binary = |name| -> Result<&[u8], Detail> {
        Ok(get(document, name)?.as_binary().ok_or_else(|| format!("{name} is not binary data"))?.bytes)
    };
    let unpack = |packed| sealed::unpack_readings(packed, floor).map_err(|e| e.to_string());
    match form {
        DayForm::Plain => {
            let mut readings = decode::readings(decode::array(document, "readings")?)?;
            readings.raise_floor(floor);
            readings.set_bounds(&field_bounds(document, "day"));
            Ok(readings)
        }
        DayForm::Columns => {
            let columns = get(document, field("columns"))?.as_document().ok_or("the columns are not a document")?;
            let mut readings = decode_columns(columns, floor)?;
            readings.set_bounds(&field_bounds(document, "day"));
            Ok(readings)
        }
        DayForm::Packed => unpack(binary(field("sealed"))?),
        DayForm::Wide => unpack(binary("readings")?),
        DayForm::Expired => {
            let mut none = Readings::default();
            none.raise_floor(floor);
            Ok(none)
        }
        DayForm::Chunk => {
            let mut readings = unpack(binary("packed")?)?;
            readings.decode_stamps(floor, binary("stamps")?).map_err(|e| e.to_string())?;
            Ok(readings)
        }
    }
}

/// Decodes the hours of a part that lie in a range.
///
/// # Errors
/// As [`decode_day`].
pub fn decode_day_scanned(
    document: &RawDocument,
    hours: &std::ops::Range<Hour>,
    projection: &Projection,
) -> Result<Vec<ScannedPage>> {
    decode_versions(document, DAY_VERSION, |document| {
        let form = DayForm::of_document(document)?;
        let day = Day::from_hour(Hour::from_ms(date(document, "start")?));
        let wanted = hours_in_range(day, hours);
        if projection.readings && form == DayForm::Expired {
            return Ok(Vec::new());
        }
        if projection.readings || matches!(form, DayForm::Plain | DayForm::Wide | DayForm::Chunk) {
            return Ok(projection.hour_pages(readings(document, form)?, &wanted));
        }
        let mut pages = summarized_hours(document, form, day, projection)?;
        pages.retain(|page| wanted.contains(&page.hour));
        Ok(pages)
    })
}

/// Decodes the hours of a part with their summaries.
fn summarized_hours(
    document: &RawDocument,
    form: DayForm,
    day: Day,
    projection: &Projection,
) -> Result<Vec<ScannedPage>, Detail> {
    let oldest = whole(document, "floor")?;
    let is_expired = form == DayForm::Expired;
    // A sensor can have few of many wanted fields.
    let capacity = projection.fields.as_ref().map_or(0, |fields| fields.len().min(RESERVED_FIELDS_MAX));
    let by_hour = get(document, "hours")?.as_document().ok_or("hours is not a document")?;
    let numbers = list(by_hour, "hour", |value| value.as_i32())?;
    let page = |number: &i32| {
        let hour = Hour(day.hours().start.0 + i64::from(*number));
        ScannedPage {
            hour,
            number: 0,
            summary: PageSummaries::with_capacity(capacity),
            oldest,
            readings: None,
            is_expired,
        }
    };
    let mut pages: Vec<ScannedPage> = numbers.iter().map(page).collect();
    for element in get(by_hour, "fields")?.as_document().ok_or("hours.fields is not a document")? {
        let (name, figures) = element.map_err(|e| e.to_string())?;
        if let Some(name) = projection.shared_name(&from_key(name.as_str())) {
            let figures = figures.as_document().ok_or_else(|| format!("hours.fields.{name} is not a document"))?;
            add_field_summaries(&name, figures, &mut pages, projection.distributions)?;
        }
    }
    Ok(pages)
}

/// Adds the hourly summaries of one field to the pages.
fn add_field_summaries(
    name: &Arc<str>,
    figures: &RawDocument,
    pages: &mut [ScannedPage],
    with_distributions: bool,
) -> Result<(), Detail> {
    let mut distributions = if with_distributions { hourly_distributions(figures)? } else { Vec::new() };
    let [values @ .., counts, rests] = arrays(figures)?;
    let counts = items(counts, "count", |value| value.as_i32())?;
    let rests = items(rests, "rest", Some)?;
    let mut numbers = Vec::with_capacity(values.len());
    for (array, figure) in values.into_iter().zip(ARRAYS) {
        numbers.push(items(array, figure, number)?);
    }
    let lengths = numbers.iter().map(Vec::len).chain([counts.len(), rests.len()]);
    if lengths.into_iter().any(|length| length != pages.len()) {
        return Err(format!("arrays in hours.fields.{name} differ in length from hours.hour"));
    }
    for (index, page) in pages.iter_mut().enumerate() {
        let [Some(min), Some(max), Some(first), Some(last), Some(sum)] =
            std::array::from_fn(|figure| numbers[figure][index])
        else {
            continue;
        };
        let count = u64::try_from(counts[index]).map_err(|e| e.to_string())?;
        let rest = decode_rest(Some(rests[index]), sum)?;
        let summary = Summary::from_numbers(count, [min, max, first, last], sum, &rest);
        let summary = summary.with_distribution(distributions.get_mut(index).and_then(Option::take));
        page.summary.push((name.clone(), summary));
    }
    Ok(())
}

/// Finds the arrays of a field, in the order of [`ARRAYS`].
fn arrays(figures: &RawDocument) -> Result<[&RawArray; ARRAYS.len()], Detail> {
    let mut found = [None; ARRAYS.len()];
    for element in figures {
        let (name, array) = element.map_err(|e| e.to_string())?;
        if let Some(index) = ARRAYS.iter().position(|figure| *figure == name.as_str()) {
            found[index] = array.as_array();
        }
    }
    let all: Option<Vec<&RawArray>> = found.into_iter().collect();
    all.and_then(|all| all.try_into().ok()).ok_or_else(|| {
        let missing = ARRAYS.iter().zip(found).filter(|(_, array)| array.is_none()).map(|(name, _)| *name);
        format!("{} is not an array", missing.collect::<Vec<_>>().join(", "))
    })
}

fn number(value: RawBsonRef<'_>) -> Option<Option<Number>> {
    optional(value).map(|value| value.as_ref().map(Number::from_value))
}

/// Converts a value, or null to no value. Returns `None` for a value of another type.
pub(super) fn optional(value: RawBsonRef<'_>) -> Option<Option<Value>> {
    match value {
        RawBsonRef::Null => Some(None),
        value => field_value(value).map(Some),
    }
}

pub(super) fn list<'d, T>(
    document: &'d RawDocument,
    name: &str,
    item: impl Fn(RawBsonRef<'d>) -> Option<T>,
) -> Result<Vec<T>, Detail> {
    let array: &'d RawArray = get(document, name)?.as_array().ok_or_else(|| format!("{name} is not an array"))?;
    items(array, name, item)
}

/// Returns the fields of a part's document that a scan without readings needs: its hours, or the readings of a plain part
/// or a chunk.
#[must_use]
pub fn day_fields(projection: &Projection) -> Vec<Cow<'static, str>> {
    let mut wanted: Vec<Cow<'static, str>> = [
        "_id",
        "schemaVersion",
        FORM,
        OLD_FORM,
        "sensor",
        "start",
        "floor",
        "hour",
        "chunk",
        "stamps",
        "packed",
        "readings",
        "hours.hour",
    ]
    .map(Cow::Borrowed)
    .into();
    // A plain part counts by the bounds of its daily summary.
    match &projection.fields {
        _ if !projection.distributions => {}
        None => wanted.push("day".into()),
        Some(fields) => wanted.extend(fields.iter().map(|field| format!("day.{}.distribution", key(field)).into())),
    }
    match &projection.fields {
        None => wanted.push("hours.fields".into()),
        // Keep an empty `hours.fields`, which would be missing without a projected path below it.
        Some(fields) if fields.is_empty() => wanted.push("hours.fields.0.0".into()),
        Some(fields) => wanted.extend(fields.iter().map(|field| format!("hours.fields.{}", key(field)).into())),
    }
    wanted
}
