//! A machine: its disk, and a process with a WAL, a memtable and flushes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hourglass_members::{
    Append, AppendId, AppendOutcome, Config, Deletion, FolderId, Instance, KeyRow, Now, Opening, QuestionId, Record,
    RequestId, Stamp, Start,
};

use crate::data::{Key, Row, decode, is_deleted};
use crate::store::Page;
use crate::world::Message;

/// The time of the epoch at which the simulation begins.
pub const BASE_MS: u64 = 1_700_000_000_000;

/// A record on the disk.
#[derive(Clone)]
pub struct Logged {
    pub stamp: Stamp,
    pub rows: Vec<Row>,
    pub deletion: Option<Deletion>,
    pub is_synced: bool,
}

/// A data folder.
#[derive(Default)]
pub struct Disk {
    pub wal: Vec<Logged>,
    pub is_joined: bool,
    pub last_stamp: Stamp,
    pub synced_stamp: Stamp,
    pub next_start: u32,
}

impl Disk {
    /// Returns a stamp below all that is not stored, if there is anything.
    pub fn watermark(&self) -> Option<Stamp> {
        self.wal.iter().map(|record| record.stamp).min().map(Stamp::before)
    }

    /// Forgets what is stored: readings up to their stamps, and deletions that the registry remembers.
    pub fn truncate(&mut self, stored: &[Row], remembered: &[Deletion]) {
        for record in &mut self.wal {
            let is_stored = |row: &Row| stored.iter().any(|other| other.key == row.key && row.stamp <= other.stamp);
            record.rows.retain(|row| !is_stored(row));
            if record.deletion.as_ref().is_some_and(|deletion| remembered.iter().any(|known| known.is_same(deletion))) {
                record.deletion = None;
            }
        }
        self.wal.retain(|record| !record.rows.is_empty() || record.deletion.is_some());
    }
}

/// A running process.
pub struct Process {
    pub instance: Instance,
    pub incarnation: u64,
    pub queue: VecDeque<Append>,
    /// The group that is being synced: the records' stamps by append.
    pub syncing: Option<Vec<(AppendId, AppendOutcome, bool)>>,
    /// True if the sync ended while the disk hung.
    pub is_sync_due: bool,
    pub memtable: BTreeMap<Key, (Stamp, u64)>,
    pub replayed_at_us: u64,
    /// Questions that wait for the replay.
    pub questions: Vec<QuestionId>,
    pub unstored: Vec<(AppendId, Vec<Row>)>,
    /// The sensors that the running flush has left.
    pub flush: Option<Vec<u64>>,
    pub next_flush_us: u64,
    pub is_flushing_all: bool,
    /// Snapshots of the store that were read too early (a seeded mistake).
    pub snapshots: BTreeMap<RequestId, hourglass_members::Payload>,
}

pub struct Node {
    pub config: Config,
    pub folder: FolderId,
    pub disk: Disk,
    pub process: Option<Process>,
    pub is_frozen: bool,
    pub inbox: Vec<(Option<u64>, Message)>,
    pub is_hung: bool,
    pub is_slow: bool,
    pub has_mongo: bool,
    pub boot_base_ms: u64,
    pub offset_ms: i64,
    /// Since when the node has been killed or hung.
    pub dead_since_us: Option<u64>,
    /// True if it never comes back.
    pub is_gone: bool,
    /// True if it is to leave the view for good.
    pub is_draining: bool,
    /// Bases of request keys that were kept here (a seeded mistake).
    pub keys: BTreeMap<u64, KeyRow>,
}

impl Node {
    pub fn new(folder: FolderId, config: Config, boot_base_ms: u64, offset_ms: i64) -> Self {
        Self {
            config,
            folder,
            disk: Disk { next_start: 1, ..Disk::default() },
            process: None,
            is_frozen: false,
            inbox: Vec::new(),
            is_hung: false,
            is_slow: false,
            has_mongo: true,
            boot_base_ms,
            offset_ms,
            dead_since_us: None,
            is_gone: false,
            is_draining: false,
            keys: BTreeMap::new(),
        }
    }

    pub fn now(&self, now_us: u64) -> Now {
        let ms = now_us / 1_000;
        Now { boot_ms: self.boot_base_ms + ms, wall_ms: (BASE_MS + ms).saturating_add_signed(self.offset_ms) }
    }

    pub fn start(&mut self, now_us: u64, incarnation: u64, replay_us: u64) {
        let opening = Opening { folder: self.folder, start: self.disk.next_start };
        self.disk.next_start += 1;
        let mut memtable = BTreeMap::new();
        for record in &mut self.disk.wal {
            record.is_synced = true;
            record.rows.iter().for_each(|row| remember(&mut memtable, row));
        }
        let now = self.now(now_us);
        let start = Start {
            opening,
            was_joined: self.disk.is_joined,
            last_stamp: self.disk.last_stamp,
            watermark: self.disk.watermark().unwrap_or(self.disk.synced_stamp),
            deletions: self.disk.wal.iter().filter_map(|record| record.deletion.clone()).collect(),
            random: self.folder.0 as u8,
        };
        self.process = Some(Process {
            instance: Instance::new(self.config.clone(), start, now),
            incarnation,
            queue: VecDeque::new(),
            syncing: None,
            is_sync_due: false,
            memtable,
            replayed_at_us: now_us + replay_us,
            questions: Vec::new(),
            unstored: Vec::new(),
            flush: None,
            next_flush_us: now_us + replay_us,
            is_flushing_all: false,
            snapshots: BTreeMap::new(),
        });
    }

    /// Stamps and writes the next group of appends. Returns true if a sync begins.
    pub fn begin_sync(&mut self, now_us: u64, written: &mut Vec<Row>) -> bool {
        let now = self.now(now_us);
        let Some(process) = &mut self.process else { return false };
        if self.is_frozen || process.syncing.is_some() || process.queue.is_empty() {
            return false;
        }
        let mut group = Vec::new();
        for append in process.queue.drain(..process.queue.len().min(16)) {
            let is_expired = append.expires_boot_ms.is_some_and(|expires_ms| now.boot_ms >= expires_ms);
            if is_expired {
                group.push((append.id, AppendOutcome::Expired, false));
                continue;
            }
            let Some(stamp) = process.instance.clock_mut().issue(now, append.above, append.not_after) else {
                group.push((append.id, AppendOutcome::Late, false));
                continue;
            };
            let mut logged = Logged { stamp, rows: Vec::new(), deletion: None, is_synced: false };
            match append.record {
                Some(Record::Readings(payload)) => {
                    logged.rows = decode(&payload);
                    logged.rows.iter_mut().for_each(|row| row.stamp = stamp);
                    written.extend(&logged.rows);
                }
                Some(Record::Deletion(statement)) => {
                    logged.deletion = Some(Deletion { stamp, statement, is_known: false });
                }
                None => {}
            }
            self.disk.last_stamp = stamp;
            if !logged.rows.is_empty() || logged.deletion.is_some() {
                self.disk.wal.push(logged);
            }
            group.push((append.id, AppendOutcome::Synced { stamp, rejected: Vec::new() }, append.reports_stored));
        }
        process.syncing = Some(group);
        true
    }

    /// Ends a sync: records reach the memtable. Returns the outcomes.
    pub fn end_sync(&mut self) -> Vec<(AppendId, AppendOutcome)> {
        let Some(process) = &mut self.process else { return Vec::new() };
        let group = process.syncing.take().unwrap_or_default();
        let stamps = group.iter().filter_map(|(_, outcome, _)| match outcome {
            AppendOutcome::Synced { stamp, .. } => Some(*stamp),
            _ => None,
        });
        self.disk.synced_stamp = self.disk.synced_stamp.max(stamps.max().unwrap_or_default());
        process.is_sync_due = false;
        let is_in_group = |stamp: Stamp| {
            group
                .iter()
                .any(|(_, outcome, _)| matches!(outcome, AppendOutcome::Synced { stamp: own, .. } if *own == stamp))
        };
        for record in self.disk.wal.iter_mut().filter(|record| !record.is_synced && is_in_group(record.stamp)) {
            record.is_synced = true;
            record.rows.iter().for_each(|row| remember(&mut process.memtable, row));
            let reports = group.iter().find(|(_, outcome, reports_stored)| {
                *reports_stored && matches!(outcome, AppendOutcome::Synced { stamp, .. } if *stamp == record.stamp)
            });
            if let Some((append, ..)) = reports {
                process.unstored.push((*append, record.rows.clone()));
            }
        }
        group.into_iter().map(|(append, outcome, _)| (append, outcome)).collect()
    }

    /// Merges the memtable's readings of a sensor into its page.
    pub fn merge(&self, sensor: u64, mut page: Page) -> (Page, Vec<Row>) {
        let Some(process) = &self.process else { return (page, Vec::new()) };
        let known = process.instance.deletions().iter().filter(|deletion| deletion.is_known);
        let deletions: Vec<Deletion> = known.cloned().collect();
        let own = process.memtable.range((sensor, 0)..=(sensor, u64::MAX));
        let rows: Vec<Row> = own.map(|(key, (stamp, value))| Row { key: *key, stamp: *stamp, value: *value }).collect();
        for row in &rows {
            let cell = page.cells.entry(row.key.1).or_insert((row.stamp, row.value));
            if row.hides(&Row { key: row.key, stamp: cell.0, value: cell.1 }) {
                *cell = (row.stamp, row.value);
            }
        }
        let is_kept = |time: u64, cell: &(Stamp, u64)| {
            !is_deleted(&deletions, &Row { key: (sensor, time), stamp: cell.0, value: cell.1 })
        };
        page.cells.retain(|time, cell| is_kept(*time, cell));
        page.rev += 1;
        (page, rows)
    }

    /// Forgets stored readings. Returns the appends that are stored by now.
    pub fn forget(&mut self, rows: &[Row]) -> Vec<AppendId> {
        let Some(process) = &mut self.process else { return Vec::new() };
        process.memtable.retain(|key, cell| !rows.iter().any(|row| row.key == *key && row.stamp == cell.0));
        self.disk.truncate(rows, process.instance.deletions());
        let is_stored = |row: &Row| {
            let own = self.disk.wal.iter().flat_map(|record| &record.rows);
            !own.clone().any(|other| other.key == row.key && other.stamp == row.stamp)
        };
        let stored: BTreeSet<AppendId> =
            process.unstored.iter().filter(|(_, rows)| rows.iter().all(is_stored)).map(|(append, _)| *append).collect();
        process.unstored.retain(|(append, _)| !stored.contains(append));
        stored.into_iter().collect()
    }
}

/// Keeps a reading in a memtable unless a later one is there.
fn remember(memtable: &mut BTreeMap<Key, (Stamp, u64)>, row: &Row) {
    let cell = memtable.entry(row.key).or_insert((row.stamp, row.value));
    if row.hides(&Row { key: row.key, stamp: cell.0, value: cell.1 }) {
        *cell = (row.stamp, row.value);
    }
}
