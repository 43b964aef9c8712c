//! Reads everything a database has, a part at a time, and has it checked.

use std::collections::BTreeMap;

use super::finding::{Difference, Findings, Note, What};
use super::pages::{check_bucket, is_sound};
use super::print::Progress;
use super::sensors::{AllSeen, check_sensor, no_document};
use super::{Options, mend};
use crate::bucket::kept::{Cursor, KeptBucket};
use crate::bucket::{StorageError, Store};

/// Pages that are asked for at a time.
const PART_PAGES: usize = 500;
/// Sensors' documents that are asked for at a time.
const PART_SENSORS: usize = 500;
/// How many differences are told in full.
pub(super) const FULL_MAX: usize = 20;

/// Differences counted, the first of them in full.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Difference>,
}

/// What was found in one database.
#[derive(Debug, Clone)]
pub struct DatabaseReport {
    /// Its name.
    pub name: String,
    /// Pages, unreadable ones too.
    pub pages: u64,
    /// Readings on them.
    pub readings: u64,
    /// Sensors' documents.
    pub sensors: u64,
    /// How often each note was made, and about which document first.
    pub notes: BTreeMap<Note, (u64, String)>,
    /// What is wrong.
    pub differences: Tally,
    /// What was wrong and is not any more.
    pub repaired: Tally,
}

impl Tally {
    fn add(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            self.count += 1;
            if self.first.len() < FULL_MAX {
                self.first.push(difference);
            }
        }
    }
}

impl DatabaseReport {
    pub(super) fn new(name: String) -> Self {
        let (differences, repaired) = (Tally::default(), Tally::default());
        Self { name, pages: 0, readings: 0, sensors: 0, notes: BTreeMap::new(), differences, repaired }
    }

    fn add(&mut self, findings: Findings) {
        self.differences.add(findings.differences);
        for (note, (count, first)) in findings.notes {
            self.notes.entry(note).or_insert_with(|| (0, first)).0 += count;
        }
    }
}

/// Checks all pages, then all sensors' documents. In this order: a document is stored before the
/// first page that needs it, so none that is missing at the end was there when its pages were.
pub(super) async fn check_database(
    store: &dyn Store,
    options: &Options,
    progress: &mut Progress,
    report: &mut DatabaseReport,
) -> Result<(), StorageError> {
    let mut seen = AllSeen::default();
    let mut from: Option<Cursor> = None;
    loop {
        let part = store.walk_buckets(&report.name, from.as_ref(), PART_PAGES).await?;
        for bucket in part.found {
            let bucket = check_one(store, options, report, bucket).await?;
            report.pages += bucket.pages.len() as u64;
            for page in bucket.pages.iter().flatten() {
                report.readings += page.readings.len() as u64;
                seen.add(page);
            }
        }
        progress.pages(&report.name, report.pages);
        from = part.next;
        if from.is_none() {
            break;
        }
    }
    progress.database_done(report.pages);
    check_sensors(store, options, report, seen).await
}

/// Checks a bucket, and gives it as it is at last.
async fn check_one(
    store: &dyn Store,
    options: &Options,
    report: &mut DatabaseReport,
    mut bucket: KeptBucket,
) -> Result<KeptBucket, StorageError> {
    let mut findings = check_bucket(&bucket, &options.bounds);
    // Where others write, what looked wrong may have been right by now, or be gone.
    if !findings.differences.is_empty() && store.is_shared() {
        bucket = mend::read_again(store, &report.name, &bucket.from).await?;
        findings = check_bucket(&bucket, &options.bounds);
    }
    let stamps = findings.differences.iter().find(|difference| difference.what == What::Stamps);
    if let Some(document) = stamps.filter(|_| options.repair).map(|difference| difference.document.clone())
        && store.read_registry().await?.deletions.iter().any(|deletion| deletion.database == report.name)
    {
        // Made anew, its readings may count as later than the deletion, which then hides them no more.
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

async fn check_sensors(
    store: &dyn Store,
    options: &Options,
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
    options: &Options,
    report: &mut DatabaseReport,
    seen: Option<&super::sensors::Seen>,
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

/// The pages of a bucket that are sound, with what is wrong about each that can be made anew.
pub(super) fn mendable(bucket: &KeptBucket, findings: &Findings) -> Vec<u32> {
    let is_meant = |key: &str| findings.differences.iter().any(|d| d.what.is_mendable() && d.document == *key);
    let sound = bucket.pages.iter().flatten().filter(|page| is_sound(page));
    sound.filter(|page| is_meant(&page.key)).map(|page| page.number).collect()
}
