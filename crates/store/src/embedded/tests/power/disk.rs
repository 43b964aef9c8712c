//! A disk in memory that keeps writes pending until a sync; at a power cut it keeps any part of the pending ones.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

/// Bytes that a disk writes as one unit.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Clone)]
struct State {
    /// The bytes that the running process reads.
    seen: Vec<u8>,
    /// The bytes that survive a cut for certain.
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Number of writes, length changes and syncs so far.
    operations: u64,
    /// The power is cut during the operation after this many.
    cut_after: Option<u64>,
    /// Whether a sync has an effect.
    syncs: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length, 0),
            Self::Write { offset, bytes: written } => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
        }
    }

    /// If it is a write, cut off at a sector boundary.
    fn torn(self, random: &mut impl FnMut(usize) -> usize) -> Self {
        match self {
            Self::Write { offset, mut bytes } => {
                let edges = (offset + bytes.len()).div_ceil(SECTOR) - offset / SECTOR;
                let edge = (offset / SECTOR + random(edges)) * SECTOR;
                bytes.truncate(edge.saturating_sub(offset));
                Self::Write { offset, bytes }
            }
            length @ Self::Length(_) => length,
        }
    }
}

impl Disk {
    /// An empty disk.
    pub(super) fn new(syncs: bool) -> Self {
        let (seen, durable, pending) = (Vec::new(), Vec::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { seen, durable, pending, operations: 0, cut_after: None, syncs })))
    }

    /// An independent copy of the disk.
    pub(super) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Operations since the store was made or opened.
    pub(super) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Starts counting operations; everything so far is durable.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        state.durable = state.seen.clone();
        state.pending.clear();
        state.operations = 0;
    }

    pub(super) fn cut_after(&self, operations: u64) {
        let mut state = self.state();
        state.cut_after = Some(state.operations + operations);
    }

    /// What is left after the cut, on a working disk. Later operations on this disk have no effect on it.
    pub(super) fn after_cut(&self, seed: u64) -> Self {
        let mut state = self.state();
        state.cut_after = Some(0);
        let mut chance = seed;
        // SplitMix64 (Steele, Lea and Flood): works well with seeds that are close to each other.
        let mut random = |below: usize| {
            chance = chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (chance ^ (chance >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            usize::try_from((z ^ (z >> 31)) >> 33).expect("31 bits") % below.max(1)
        };
        let pending = std::mem::take(&mut state.pending);
        // In every other cut one pending change is torn; of the rest, all, none or some are kept.
        let torn = (random(2) == 0).then(|| random(pending.len()));
        let way = random(4);
        let mut bytes = state.durable.clone();
        for (n, change) in pending.into_iter().enumerate() {
            if torn == Some(n) {
                change.torn(&mut random).apply(&mut bytes);
            } else if way == 0 || (way > 1 && random(2) == 0) {
                change.apply(&mut bytes);
            }
        }
        let (seen, durable, syncs) = (bytes.clone(), bytes, state.syncs);
        let pending = Vec::new();
        Self(Arc::new(Mutex::new(State { seen, durable, pending, operations: 0, cut_after: None, syncs })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no thread panics while it holds the disk")
    }
}

fn no_power() -> io::Error {
    io::Error::other("the power is cut")
}

impl State {
    fn is_cut(&self) -> bool {
        self.cut_after.is_some_and(|last| self.operations > last)
    }

    /// Counts an operation. The operation during which the power is cut begins and fails.
    fn begin(&mut self) -> io::Result<()> {
        if self.is_cut() {
            return Err(no_power());
        }
        self.operations += 1;
        Ok(())
    }

    fn end(&self) -> io::Result<()> {
        if self.is_cut() { Err(no_power()) } else { Ok(()) }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        self.begin()?;
        change.apply(&mut self.seen);
        self.pending.push(change);
        self.end()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if state.is_cut() {
            return Err(no_power());
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.seen.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state().change(Change::Length(usize::try_from(len).map_err(io::Error::other)?))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state();
        state.begin()?;
        state.end()?;
        if state.syncs {
            let pending = std::mem::take(&mut state.pending);
            pending.iter().for_each(|change| change.apply(&mut state.durable));
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        self.state().change(Change::Write { offset, bytes: data.to_vec() })
    }
}
