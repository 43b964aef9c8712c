//! Pure checks of the pages of a bucket.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use super::finding::{FindingKind, Findings, Note};
use crate::bucket::raw::{RawBucket, RawPage};
use crate::bucket::summary::Figures;
use crate::bucket::summary::distribution::FieldBounds;
use crate::bucket::{Caps, Readings, StorageError};
use crate::reading::time::{MILLI_NS, rfc3339, write_seconds};
use crate::reading::{Hour, Value};

/// Checks each page on its own, and all pages together.
#[must_use]
pub fn check_bucket(bucket: &RawBucket, bounds: &Caps) -> Findings {
    let mut findings = Findings::default();
    for page in &bucket.pages {
        match page {
            Ok(page) => check_page(page, bounds, &mut findings),
            Err(error) => {
                let id = match error {
                    StorageError::Unreadable { id, .. } | StorageError::Newer { id, .. } => id.as_str(),
                    _ => "a page",
                };
                findings.unreadable(id, "a page that can be read", error);
            }
        }
    }
    let pages: Vec<&RawPage> = bucket.pages.iter().flatten().collect();
    // An unreadable page can have any number.
    let is_all_readable = pages.len() == bucket.pages.len();
    if is_all_readable {
        check_numbers(&pages, &mut findings);
    }
    check_marks(&pages, bucket.pages.len() > 1, &mut findings);
    check_times(&pages, &mut findings);
    findings
}

/// Returns true if a page fits its key and its readings are a set in time order. Everything else can then be
/// recomputed.
#[must_use]
pub fn is_sound(page: &RawPage) -> bool {
    let mut findings = Findings::default();
    check_identity(page, &mut findings);
    check_order(page, &mut findings);
    findings.differences.is_empty() && !page.readings.is_empty()
}

/// Returns the readings of a sound page with their stamps and recomputed summaries. If the stamps are unreadable, all
/// cells become settled at the page's last stamp. An older unflushed reading then becomes a dead letter instead of
/// overwriting one of them.
#[must_use]
pub fn page_readings(page: &RawPage) -> Readings {
    let mut set: Readings = page.readings.iter().cloned().collect();
    if let Ok(order) = &page.order
        && set.decode_stamps(order.floor, &order.stamps).is_err()
    {
        set.raise_floor(order.last);
    }
    set
}

fn check_page(page: &RawPage, bounds: &Caps, findings: &mut Findings) {
    check_identity(page, findings);
    check_order(page, findings);
    let hour = page.hour();
    let mut outside = page.readings.iter().map(|reading| reading.time).filter(|time| Hour::from_ns(*time) != hour);
    if let Some(first) = outside.next() {
        let found = format!("{} and {} more outside this hour", rfc3339(first), outside.count());
        findings.differs(&page.key, FindingKind::Hour, span(page), found);
    }
    if page.readings.is_empty() {
        findings.differs(&page.key, FindingKind::Empty, "at least one reading", "none");
    } else if is_sound(page) {
        let readings = page_readings(page);
        check_count(page, &readings, findings);
        check_summary(page, &readings, findings);
        check_stamps(page, &readings, findings);
        if readings.bytes() > bounds.hard_bytes && readings.len() > 1 {
            let expected = format!("at most {} bytes of readings", bounds.hard_bytes);
            findings.differs(&page.key, FindingKind::Size, expected, format!("{} bytes", readings.bytes()));
        }
    }
    if page.readings.len() > bounds.max_readings {
        findings.note(&page.key, Note::ManyReadings);
    }
}

fn check_identity(page: &RawPage, findings: &mut Findings) {
    let mut compare = |what: &str, found: &str, expected: &str| {
        if found != expected {
            findings.differs(&page.key, FindingKind::Identity, format!("{what} {expected}"), found.to_owned());
        }
    };
    compare("_id", &page.id, &page.key);
    compare("sensor, start and page that give", &page.own_id, &page.key);
    compare("measurement and tags that give", &page.sensor.key, &page.sensor_key);
    let hour = page.hour();
    compare("start", &millis(page.start_ms), &millis(hour.start_ms()));
    compare("end", &millis(page.end_ms), &millis(hour.next().start_ms()));
    if let Some(in_overflow) = page.in_overflow {
        let collection = |in_overflow| if in_overflow { "overflow" } else { "buckets" };
        compare(&format!("page {} in", page.number), collection(in_overflow), collection(page.number > 0));
    }
}

fn check_order(page: &RawPage, findings: &mut Findings) {
    for pair in page.readings.windows(2) {
        let before = pair[0].time;
        let after = pair[1].time;
        if before >= after {
            let found = format!("{} after {}", rfc3339(after), rfc3339(before));
            findings.differs(&page.key, FindingKind::Order, "readings in time order, none twice", found);
            break;
        }
    }
    for reading in &page.readings {
        let names = |n: usize| &*reading.fields[n].0;
        let twice = (1..reading.fields.len()).find(|n| (0..*n).any(|before| names(before) == names(*n)));
        if let Some(n) = twice {
            let found = format!("{} twice at {}", names(n), rfc3339(reading.time));
            findings.differs(&page.key, FindingKind::Order, "each field once in a reading", found);
            break;
        }
    }
}

fn check_count(page: &RawPage, readings: &Readings, findings: &mut Findings) {
    let times = readings.times();
    let floored = |time: Option<&i64>| time.map(|time| time.div_euclid(MILLI_NS));
    let mut compare = |name: &str, expected: Option<String>, found: Option<String>| {
        if expected != found {
            let text = |value: Option<String>| value.unwrap_or_else(|| "no valid value".to_owned());
            findings.differs(&page.key, FindingKind::Count, format!("{name} {}", text(expected)), text(found));
        }
    };
    compare("count", Some(times.len().to_string()), page.count.map(|count| count.to_string()));
    compare("first", floored(times.first()).map(millis), page.first_ms.map(millis));
    compare("last", floored(times.last()).map(millis), page.last_ms.map(millis));
}

fn check_summary(page: &RawPage, readings: &Readings, findings: &mut Findings) {
    let mut stored: BTreeMap<&str, Option<&Figures>> = BTreeMap::new();
    for (name, figures) in &page.summary {
        if stored.insert(name, figures.as_ref()).is_some() {
            findings.differs(&page.key, FindingKind::Summary, format!("{name}: one summary"), "two");
        }
    }
    // A page may count by any bounds.
    let bounds = |(name, figures): &(Arc<str>, Option<Figures>)| {
        Some((name.clone(), figures.as_ref()?.distribution.as_ref()?.bounds().clone()))
    };
    let mut readings = Cow::Borrowed(readings);
    if page.summary.iter().any(|one| bounds(one).is_some()) {
        readings.to_mut().set_bounds(&FieldBounds::new(page.summary.iter().filter_map(bounds)));
    }
    for (name, summary) in readings.summaries() {
        let expected = summary.figures();
        let found = stored.remove(&**name);
        if found.flatten() != Some(&expected) {
            let text = found.map_or_else(|| "none".into(), |f| f.map_or_else(|| "malformed".into(), figures));
            findings.differs(&page.key, FindingKind::Summary, format!("{name}: {}", figures(&expected)), text);
        }
    }
    for (name, found) in stored {
        let text = found.map_or_else(|| "a malformed summary".into(), figures);
        findings.differs(&page.key, FindingKind::Summary, format!("{name}: none, since it has no numeric value"), text);
    }
}

fn check_stamps(page: &RawPage, readings: &Readings, findings: &mut Findings) {
    let mut differs = |found: String| {
        findings.differs(&page.key, FindingKind::Stamps, "stamps that are those of its readings", found)
    };
    let order = match &page.order {
        Ok(order) => order,
        Err(trouble) => return differs(trouble.clone()),
    };
    let mut set = readings.clone();
    if let Err(damage) = set.decode_stamps(order.floor, &order.stamps) {
        return differs(damage.to_string());
    }
    let mut compare = |name: &str, stored: u64, computed: u64| {
        if stored != computed {
            differs(format!("{name} {stored}, but by its stamps {computed}"));
        }
    };
    compare("first", order.oldest, set.stamps().oldest());
    compare("last", order.last, set.stamps().greatest());
}

fn check_numbers(pages: &[&RawPage], findings: &mut Findings) {
    let mut numbers: Vec<u32> = pages.iter().map(|page| page.number).collect();
    numbers.sort_unstable();
    if !numbers.iter().zip(0..).all(|(number, index)| *number == index) {
        let expected = format!("pages 0 to {}", pages.len() - 1);
        let kind = if numbers.contains(&0) { FindingKind::Numbers } else { FindingKind::NoFirst };
        findings.differs(&pages[0].key, kind, expected, list(&numbers));
    }
}

fn check_marks(pages: &[&RawPage], several: bool, findings: &mut Findings) {
    let open: Vec<u32> = pages.iter().filter(|page| !page.closed).map(|page| page.number).collect();
    if open.len() > 1 {
        findings.differs(
            &pages[0].key,
            FindingKind::Open,
            "at most one open page",
            format!("open: pages {}", list(&open)),
        );
    }
    for page in pages {
        match (page.number, page.has_overflow) {
            (0, false) if several => {
                findings.differs(&page.key, FindingKind::Overflow, "true, since there are more pages", "false");
            }
            (0, true) if !several => findings.note(&page.key, Note::MarkedAhead),
            (1.., true) => findings.differs(&page.key, FindingKind::Overflow, "false on every page but 0", "true"),
            (_, _) => {}
        }
    }
}

/// Reports timestamps that are on two pages, with one difference per pair of pages.
fn check_times(pages: &[&RawPage], findings: &mut Findings) {
    if pages.len() < 2 {
        return;
    }
    let mut seen: HashMap<i64, usize> = HashMap::new();
    let mut pairs: BTreeMap<(usize, usize), (usize, i64)> = BTreeMap::new();
    for (p, page) in pages.iter().enumerate() {
        for reading in &page.readings {
            let first = *seen.entry(reading.time).or_insert(p);
            if first != p {
                pairs.entry((first, p)).or_insert((0, reading.time)).0 += 1;
            }
        }
    }
    for ((first, p), (count, at)) in pairs {
        let found = format!("{count} also on page {}, for example {}", pages[first].number, rfc3339(at));
        findings.differs(&pages[p].key, FindingKind::TwoPages, "every timestamp on one page", found);
    }
}

fn list(numbers: &[impl Display]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn span(page: &RawPage) -> String {
    format!("readings from {} to before {}", millis(page.start_ms), millis(page.end_ms))
}

/// Formats a time in milliseconds, because an hour can begin before the first timestamp that nanoseconds can represent.
fn millis(ms: i64) -> String {
    let mut text = String::new();
    write_seconds(&mut text, ms.div_euclid(1000));
    match ms.rem_euclid(1000) {
        0 => {}
        rest => text.push_str(&format!(".{rest:03}")),
    }
    text + "Z"
}

fn figures(figures: &Figures) -> String {
    let Figures { count, min, max, sum, rest, avg, first, last, distribution } = figures;
    let rest = match sum {
        Value::Float(sum) => rest.doubles(*sum).map(|part| format!(" and {part:?}")).collect::<Vec<_>>().concat(),
        _ => String::new(),
    };
    let [min, max, sum, avg, first, last] = [min, max, sum, avg, first, last].map(value);
    let counts = distribution.as_ref().map(|counts| format!(", by {:?} {:?}", counts.bounds(), counts.counts()));
    let counts = counts.unwrap_or_default();
    format!("count {count}, min {min}, max {max}, sum {sum}{rest}, avg {avg}, first {first}, last {last}{counts}")
}

/// Formats a value so that different values never look the same.
fn value(value: &Value) -> String {
    match value {
        Value::Float(v) => format!("{v:?}"),
        Value::Integer(v) => v.to_string(),
        Value::Unsigned(v) => format!("{v}u"),
        Value::Boolean(v) => v.to_string(),
        Value::String(v) => format!("{v:?}"),
    }
}

#[cfg(test)]
mod tests;
