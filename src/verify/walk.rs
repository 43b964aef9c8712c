//! Reads all documents of a database in parts, and checks them.

use std::collections::BTreeMap;

use indicatif::ProgressBar;

use super::days::check_day;
use super::finding::{Difference, FindingKind, Findings, Note, NoteCount};
use super::pages::check_bucket;
use super::sensors::{SeenSensor, SeenSensors, check_sensor, no_document};
use crate::bucket::raw::{Cursor, DayDocument, RawBucket, RawDay};
use crate::bucket::{Caps, StorageError, Store};

/// Options of a check.
#[derive(Debug, Clone, Copy)]
pub struct VerifyOptions {
    pub bounds: Caps,
    /// Number of recent readings in a sensor document: configuration key `sensors.recent`.
    pub recent: usize,
    pub repair: bool,
}

/// Number of pages per read.
const PART_PAGES: usize = 500;
/// Number of sensor documents per read.
const PART_SENSORS: usize = 500;
/// Number of sealed days per read.
const PART_DAYS: usize = 500;
/// Number of differences that are printed in full.
pub(super) const FULL_MAX: usize = 20;

/// The number of differences, and the first of them in full.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub count: u64,
    /// At most `FULL_MAX`.
    pub first: Vec<Difference>,
}

/// The result of a check of one database.
#[derive(Debug, Clone, Default)]
pub struct DatabaseReport {
    pub name: String,
    /// Number of pages, including unreadable ones.
    pub pages: u64,
    /// Number of readings on readable pages and in sealed days. A reading in both counts twice.
    pub readings: u64,
    /// Number of sealed days, including claims and unreadable ones.
    pub days: u64,
    /// Number of sensor documents.
    pub sensors: u64,
    pub notes: BTreeMap<Note, NoteCount>,
    /// Differences that were not repaired.
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
        for (note, NoteCount { documents, first }) in findings.notes {
            self.notes.entry(note).or_insert_with(|| NoteCount { documents: 0, first }).documents += documents;
        }
    }

    /// Counts the differences before a repair that are not found after it.
    fn add_repaired(&mut self, before: Vec<Difference>, after: &Findings) {
        self.repaired.add(before.into_iter().filter(|difference| !after.differences.contains(difference)));
    }
}

/// A check of one database.
pub(super) struct DatabaseCheck<'a> {
    pub store: &'a dyn Store,
    pub options: &'a VerifyOptions,
    pub progress: &'a ProgressBar,
    pub report: DatabaseReport,
}

impl DatabaseCheck<'_> {
    /// Checks all pages, then all sealed days, then all sensor documents. This order is correct while a service writes:
    /// pages are sealed into days, and a sensor document is stored before its first page, so a missing document is
    /// really missing.
    pub(super) async fn run(&mut self) -> Result<(), StorageError> {
        self.progress.set_message(self.report.name.clone());
        let mut seen = SeenSensors::default();
        let mut cursor: Option<Cursor> = None;
        loop {
            let before = self.report.pages;
            let part = self.store.walk_buckets(&self.report.name, cursor.as_ref(), PART_PAGES).await?;
            for bucket in part.found {
                let bucket = self.check_bucket(bucket).await?;
                self.report.pages += bucket.pages.len() as u64;
                for page in bucket.pages.iter().flatten() {
                    self.report.readings += page.readings.len() as u64;
                    seen.add(page);
                }
            }
            self.progress.inc(self.report.pages - before);
            cursor = part.next;
            if cursor.is_none() {
                break;
            }
        }
        self.check_days(&mut seen).await?;
        self.check_months().await?;
        self.check_sensors(seen).await
    }

    /// Checks a bucket, repairs it on request, and returns the stored bucket afterwards.
    async fn check_bucket(&mut self, mut bucket: RawBucket) -> Result<RawBucket, StorageError> {
        let mut findings = check_bucket(&bucket, &self.options.bounds);
        // Another instance may have written during the check, so read the bucket again before reporting a difference.
        if !findings.differences.is_empty() && self.store.has_other_writers() {
            bucket = self.read_again(&bucket.cursor).await?;
            findings = check_bucket(&bucket, &self.options.bounds);
        }
        let stamps = findings.differences.iter().find(|difference| difference.kind == FindingKind::Stamps);
        let repaired_stamps = stamps.filter(|_| self.options.repair).map(|difference| difference.document.clone());
        if let Some(document) = repaired_stamps
            && self.store.read_registry().await?.deletions.iter().any(|one| one.database == self.report.name)
        {
            // With repaired stamps, deleted readings may count as later than the deletion, which would no longer hide
            // them.
            findings.note(&document, Note::Deletion);
        } else if self.options.repair && findings.differences.iter().any(|difference| difference.kind.is_repairable()) {
            let before = std::mem::take(&mut findings.differences);
            bucket = self.repair_bucket(bucket).await?;
            findings = check_bucket(&bucket, &self.options.bounds);
            self.report.add_repaired(before, &findings);
        }
        self.report.add(findings);
        Ok(bucket)
    }

    async fn check_days(&mut self, seen: &mut SeenSensors) -> Result<(), StorageError> {
        let mut cursor: Option<Cursor> = None;
        loop {
            let before = self.report.days;
            let part = self.store.walk_days(&self.report.name, cursor.as_ref(), PART_DAYS).await?;
            for day in part.found {
                let Some(day) = self.check_day(day).await? else { continue };
                self.report.days += 1;
                if let Ok(DayDocument { id, day, .. }) = &day.document {
                    self.report.readings += day.readings.len() as u64;
                    seen.add_day(id, &day.readings);
                }
            }
            self.progress.inc(self.report.days - before);
            cursor = part.next;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// Checks a day, repairs it on request, and returns the stored day afterwards.
    async fn check_day(&mut self, day: RawDay) -> Result<Option<RawDay>, StorageError> {
        let cursor = day.cursor.clone();
        let mut findings = check_day(&day);
        let mut day = Some(day);
        // Another instance may have written during the check, so read the day again before reporting a difference.
        if !findings.differences.is_empty() && self.store.has_other_writers() {
            day = self.read_day_again(&cursor).await?;
            findings = day.as_ref().map(check_day).unwrap_or_default();
        }
        if self.options.repair
            && !findings.differences.is_empty()
            && findings.differences.iter().all(|difference| difference.kind.is_repairable())
            && let Some(Ok(document)) = day.as_ref().map(|day| &day.document)
        {
            let before = std::mem::take(&mut findings.differences);
            self.repair_day(document).await?;
            day = self.read_day_again(&cursor).await?;
            findings = day.as_ref().map(check_day).unwrap_or_default();
            self.report.add_repaired(before, &findings);
        }
        self.report.add(findings);
        Ok(day)
    }

    async fn check_sensors(&mut self, mut seen: SeenSensors) -> Result<(), StorageError> {
        let mut cursor: Option<Cursor> = None;
        loop {
            let part = self.store.walk_sensors(&self.report.name, cursor.as_ref(), PART_SENSORS).await?;
            for kept in part.found {
                self.report.sensors += 1;
                let seen = seen.take(&kept.key);
                self.repair_and_add(seen.as_ref(), check_sensor(&kept, seen.as_ref())).await?;
            }
            cursor = part.next;
            if cursor.is_none() {
                break;
            }
        }
        for seen in seen.into_rest() {
            self.repair_and_add(Some(&seen), no_document(&seen)).await?;
        }
        Ok(())
    }

    async fn repair_and_add(&mut self, seen: Option<&SeenSensor>, mut findings: Findings) -> Result<(), StorageError> {
        let is_repairable = findings.differences.iter().any(|difference| difference.kind.is_repairable());
        if let Some(seen) = seen.filter(|_| self.options.repair && is_repairable)
            && self.repair_sensor(seen).await?
        {
            let repaired = findings.differences.extract_if(.., |difference| difference.kind.is_repairable());
            self.report.repaired.add(repaired);
        }
        self.report.add(findings);
        Ok(())
    }
}
