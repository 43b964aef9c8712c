//! A disk in memory whose writes are pending until a sync. A power cut keeps a random part of the pending writes.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use redb::StorageBackend;

/// Bytes that the disk writes atomically.
const SECTOR: usize = 512;

#[derive(Debug, Clone)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Clone)]
struct State {
    /// The contents that the running process reads.
    contents: Vec<u8>,
    /// The contents as of the last sync.
    durable: Vec<u8>,
    pending: Vec<Change>,
    /// Number of writes, length changes and syncs so far.
    operations: u64,
    /// The number of operations before the one during which the power is cut.
    cut_after: Option<u64>,
    /// False if syncs have no effect.
    can_sync: bool,
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

    /// Truncates a write at a random sector boundary.
    fn tear(self, random: &mut impl FnMut(usize) -> usize) -> Self {
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
    /// Returns an empty disk.
    pub(super) fn new(can_sync: bool) -> Self {
        Self::from_contents(Vec::new(), can_sync)
    }

    fn from_contents(contents: Vec<u8>, can_sync: bool) -> Self {
        let durable = contents.clone();
        let state = State { contents, durable, pending: Vec::new(), operations: 0, cut_after: None, can_sync };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Returns an independent copy of the disk.
    pub(super) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Returns the number of operations since the disk was created or settled.
    pub(super) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Makes all contents durable and restarts the count of operations.
    pub(super) fn settle(&self) {
        let mut state = self.state();
        state.durable = state.contents.clone();
        state.pending.clear();
        state.operations = 0;
    }

    /// Cuts the power during the operation after this many more.
    pub(super) fn cut_after(&self, operations: u64) {
        let mut state = self.state();
        state.cut_after = Some(state.operations + operations);
    }

    /// Returns a working disk with the contents that survive the cut. All later operations on this disk fail.
    pub(super) fn after_cut(&self, seed: u64) -> Self {
        let mut state = self.state();
        state.cut_after = Some(0);
        let mut random_state = seed;
        // SplitMix64 (Steele, Lea and Flood), which works well with adjacent seeds.
        let mut random = |below: usize| {
            random_state = random_state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (random_state ^ (random_state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            usize::try_from((z ^ (z >> 31)) >> 33).expect("31 bits") % below.max(1)
        };
        let pending = std::mem::take(&mut state.pending);
        // Half of the cuts tear one pending change. Of the others, all (0), none (1) or some (2 and 3) survive.
        let torn = (random(2) == 0).then(|| random(pending.len()));
        let mode = random(4);
        let mut bytes = state.durable.clone();
        for (index, change) in pending.into_iter().enumerate() {
            if torn == Some(index) {
                change.tear(&mut random).apply(&mut bytes);
            } else if mode == 0 || (mode > 1 && random(2) == 0) {
                change.apply(&mut bytes);
            }
        }
        Self::from_contents(bytes, state.can_sync)
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

    /// Counts an operation. The one during which the power is cut takes effect and then fails in [`State::end`].
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
        change.apply(&mut self.contents);
        self.pending.push(change);
        self.end()
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().contents.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if state.is_cut() {
            return Err(no_power());
        }
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.contents.get(start..start + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
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
        if state.can_sync {
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
