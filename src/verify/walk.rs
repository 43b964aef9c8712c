//! Reads all documents of a database, part by part, and checks them.

use std::collections::BTreeMap;

use indicatif::ProgressBar;

use super::days::check_day;
use super::finding::{Difference, Findings, Note, What};
use super::mend;
use super::months::check_months;
use super::pages::check_bucket;
use super::sensors::{AllSeen, check_sensor, no_document};
use crate::bucket::raw::{Cursor, DayDocument, RawBucket, RawDay};
use crate::bucket::{Caps, StorageError, Store};

#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions {
    pub bounds: Caps,
    /// Config key `sensors.recent`.
    pub recent: usize,
    pub repair: bool,
}

/// Pages per read.
const PART_PAGES: usize = 500;
/// Sensor documents per read.
const PART_SENSORS: usize = 500;
/// Sealed days per read.
const PART_DAYS: usize = 500;
/// Number of differences that are printed in full.
pub(super) const FULL_MAX: usize = 20;

/// The number of differences, and the first of them in full.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub count: u64,
    /// At most [`FULL_MAX`].
    pub first: Vec<Difference>,
}

/// What a check found in one database.
#[derive(Debug, Clone, Default)]
pub struct DatabaseReport {
    pub name: String,
    /// Includes unreadable pages.
    pub pages: u64,
    /// On readable pages and in sealed days; a reading in both counts twice.
    pub readings: u64,
    /// Sealed days, claims and unreadable ones included.
    pub days: u64,
    /// The number of sensor documents.
    pub sensors: u64,
    /// For each note, the number of documents, and the first of them.
    pub notes: BTreeMap<Note, (u64, String)>,
    /// What is wrong and was not repaired.
    pub differences: Tally,
    pub repaired: Tally,
}

impl Tally {
    pub(super) fn add(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            self.count += 1;
            if self.first.len() < FULL_MAX {
                self.first.push(difference);
            }
        }
    }
}

impl DatabaseReport {
    pub(super) fn add(&mut self, findings: Findings) {
        self.differences.add(findings.differences);
        for (note, (count, first)) in findings.notes {
            self.notes.entry(note).or_insert_with(|| (0, first)).0 += count;
        }
    }
}

/// Checks all pages, then all sealed days, then all sensor documents. The order matters: pages are sealed meanwhile, and a
/// sensor's document is stored before its first page, so a document that is missing afterwards is really missing, even if a
/// service writes meanwhile.
pub(super) async fn check_database(
    store: &dyn Store,
    options: &VerifyOptions,
    progress: &ProgressBar,
    report: &mut DatabaseReport,
) -> Result<(), StorageError> {
    progress.set_message(report.name.clone());
    let mut seen = AllSeen::default();
    let mut from: Option<Cursor> = None;
    loop {
        let before = report.pages;
        let part = store.walk_buckets(&report.name, from.as_ref(), PART_PAGES).await?;
        for bucket in part.found {
            let bucket = check_one(store, options, report, bucket).await?;
            report.pages += bucket.pages.len() as u64;
            for page in bucket.pages.iter().flatten() {
                report.readings += page.readings.len() as u64;
                seen.add(page);
            }
        }
        progress.inc(report.pages - before);
        from = part.next;
        if from.is_none() {
            break;
        }
    }
    check_days(store, options, progress, report, &mut seen).await?;
    check_months(store, options, report).await?;
    check_sensors(store, options, report, seen).await
}

/// Checks a bucket, repairs it if asked, and returns it as it is stored at the end.
async fn check_one(
    store: &dyn Store,
    options: &VerifyOptions,
    report: &mut DatabaseReport,
    mut bucket: RawBucket,
) -> Result<RawBucket, StorageError> {
    let mut findings = check_bucket(&bucket, &options.bounds);
    // An instance may write meanwhile, so what looked wrong may be right now, or gone.
    if !findings.differences.is_empty() && store.has_other_writers() {
        bucket = mend::read_again(store, &report.name, &bucket.from).await?;
        findings = check_bucket(&bucket, &options.bounds);
    }
    let stamps = findings.differences.iter().find(|difference| difference.what == What::Stamps);
    if let Some(document) = stamps.filter(|_| options.repair).map(|difference| difference.document.clone())
        && store.read_registry().await?.deletions.iter().any(|deletion| deletion.database == report.name)
    {
        // With repaired stamps, deleted readings may count as later than the deletion, which would no longer hide them.
        findings.note(&document, Note::Deletion);
    } else if options.repair && findings.differences.iter().any(|difference| difference.what.is_mendable()) {
        let before = std::mem::take(&mut findings.differences);
        bucket = mend::mend_bucket(store, &report.name, bucket, &options.bounds).await?;
        findings = check_bucket(&bucket, &options.bounds);
        let is_left = |difference: &Difference| findings.differences.contains(difference);
        report.repaired.add(before.into_iter().filter(|difference| !is_left(difference)));
    }
    report.add(findings);
    Ok(bucket)
}

async fn check_days(
    store: &dyn Store,
    options: &VerifyOptions,
    progress: &ProgressBar,
    report: &mut DatabaseReport,
    seen: &mut AllSeen,
) -> Result<(), StorageError> {
    let mut from: Option<Cursor> = None;
    loop {
        let before = report.days;
        let part = store.walk_days(&report.name, from.as_ref(), PART_DAYS).await?;
        for day in part.found {
            let Some(day) = check_one_day(store, options, report, day).await? else { continue };
            report.days += 1;
            if let Ok(DayDocument { id, day, .. }) = &day.document {
                report.readings += day.readings.len() as u64;
                seen.add_day(id, &day.readings);
            }
        }
        progress.inc(report.days - before);
        from = part.next;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// Checks a day, repairs it if asked, and returns it as it is stored at the end.
async fn check_one_day(
    store: &dyn Store,
    options: &VerifyOptions,
    report: &mut DatabaseReport,
    day: RawDay,
) -> Result<Option<RawDay>, StorageError> {
    let (from, mut findings, mut day) = (day.from.clone(), check_day(&day), Some(day));
    // An instance may write meanwhile, so what looked wrong may be right now, or gone.
    if !findings.differences.is_empty() && store.has_other_writers() {
        day = mend::read_day_again(store, &report.name, &from).await?;
        findings = day.as_ref().map(check_day).unwrap_or_default();
    }
    if options.repair
        && !findings.differences.is_empty()
        && findings.differences.iter().all(|difference| difference.what.is_mendable())
        && let Some(Ok(document)) = day.as_ref().map(|day| &day.document)
    {
        let before = std::mem::take(&mut findings.differences);
        mend::mend_day(store, &report.name, document).await?;
        day = mend::read_day_again(store, &report.name, &from).await?;
        findings = day.as_ref().map(check_day).unwrap_or_default();
        let is_left = |difference: &Difference| findings.differences.contains(difference);
        report.repaired.add(before.into_iter().filter(|difference| !is_left(difference)));
    }
    report.add(findings);
    Ok(day)
}

async fn check_sensors(
    store: &dyn Store,
    options: &VerifyOptions,
    report: &mut DatabaseReport,
    mut seen: AllSeen,
) -> Result<(), StorageError> {
    let mut from: Option<Cursor> = None;
    loop {
        let part = store.walk_sensors(&report.name, from.as_ref(), PART_SENSORS).await?;
        for kept in part.found {
            report.sensors += 1;
            let seen = seen.take(&kept.key);
            let findings = check_sensor(&kept, seen.as_ref());
            mend_and_add(store, options, report, seen.as_ref(), findings).await?;
        }
        from = part.next;
        if from.is_none() {
            break;
        }
    }
    for seen in seen.into_rest() {
        mend_and_add(store, options, report, Some(&seen), no_document(&seen)).await?;
    }
    Ok(())
}

async fn mend_and_add(
    store: &dyn Store,
    options: &VerifyOptions,
    report: &mut DatabaseReport,
    seen: Option<&super::sensors::SeenSensor>,
    mut findings: Findings,
) -> Result<(), StorageError> {
    let mendable = findings.differences.iter().any(|difference| difference.what.is_mendable());
    if let Some(seen) = seen.filter(|_| options.repair && mendable)
        && mend::mend_sensor(store, &report.name, seen, options.recent).await?
    {
        let (mended, left) = findings.differences.into_iter().partition(|difference| difference.what.is_mendable());
        findings.differences = left;
        let mended: Vec<Difference> = mended;
        report.repaired.add(mended);
    }
    report.add(findings);
    Ok(())
}
