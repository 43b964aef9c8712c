//! A disk in memory that distinguishes the visible state from the durable state, which survives a power cut.
//!
//! * A write is durable after a sync of its file, and a name after a sync of the folder. In a power cut all other
//!   changes are lost or kept at random: each block of 512 bytes of each write, and each change of a name.
//! * A failed write leaves some of its first blocks. After a failed sync, unsynced blocks are durable or not at random,
//!   and a later sync does not change that, although reads still show them. A failed rename or removal may have
//!   happened. A failed sync of the folder can be repeated.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use self::world::{Bytes, Change, NameChange, World, toss};
use crate::{Disk, DiskFile};

/// The effect of a power cut on unsynced bytes and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Lost,
    Kept,
    Torn(u64),
}

/// The operations that fail, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// `count` operations, beginning with operation `from`.
    Fail {
        from: u64,
        count: u64,
    },
    /// The process is dead after this many operations; its later operations have no effect.
    Dead {
        after: u64,
    },
}

#[derive(Clone)]
pub(super) struct Simulated {
    world: Arc<Mutex<World>>,
}

struct Handle {
    disk: Simulated,
    file: usize,
    life: u64,
}

struct Lock {
    disk: Simulated,
    name: String,
    life: u64,
}

impl Simulated {
    pub(super) fn new(seed: u64) -> Self {
        let world = World {
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            locks: BTreeSet::new(),
            operations: 0,
            syncs: 0,
            openings: 0,
            life: 0,
            fault: Fault::None,
            capacity: usize::MAX,
            chance: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        };
        Self { world: Arc::new(Mutex::new(world)) }
    }

    /// An independent copy of the disk.
    pub(super) fn fork(&self) -> Self {
        Self { world: Arc::new(Mutex::new(self.lock().clone())) }
    }

    pub(super) fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Number of file syncs.
    pub(super) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// The number of times that a WAL took the lock.
    pub(super) fn openings(&self) -> u64 {
        self.lock().openings
    }

    pub(super) fn set_fault(&self, fault: Fault) {
        self.lock().fault = fault;
    }

    /// Makes the next `count` operations fail.
    pub(super) fn fail_next(&self, count: u64) {
        let mut world = self.lock();
        world.fault = Fault::Fail { from: world.operations + 1, count };
    }

    pub(super) fn set_capacity(&self, bytes: usize) {
        self.lock().capacity = bytes;
    }

    /// Cuts the power and restores it: every process is gone, and nothing fails any more.
    pub(super) fn cut(&self, cut: Cut) {
        let mut world = self.lock();
        if let Cut::Torn(seed) = cut {
            world.chance ^= seed.wrapping_mul(0xd134_2543_de82_ef95) | 1;
        }
        let mut chance = world.chance;
        let mut keeps = || match cut {
            Cut::Lost => false,
            Cut::Kept => true,
            Cut::Torn(_) => toss(&mut chance),
        };
        for file in &mut world.files {
            file.forget(&mut keeps);
            file.seen = file.durable.clone();
        }
        for change in std::mem::take(&mut world.unsynced_names) {
            if keeps() {
                world.settle(change);
            }
        }
        world.names = world.durable_names.clone();
        world.chance = chance;
        world.locks.clear();
        world.life += 1;
        world.fault = Fault::None;
    }

    /// Kills the process but not the machine: written bytes stay visible, and are no more durable than before.
    pub(super) fn kill(&self) {
        let mut world = self.lock();
        world.locks.clear();
        world.life += 1;
        world.fault = Fault::None;
    }

    /// The bytes of a file as a process sees them.
    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let world = self.lock();
        world.files[world.names[name]].seen.clone()
    }

    /// Changes the durable bytes of a file, as media decay does.
    pub(super) fn rot(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = self.lock();
        let file = world.names[name];
        let file = &mut world.files[file];
        change(&mut file.durable);
        file.seen = file.durable.clone();
        file.unsynced.clear();
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.lock().names.keys().cloned().collect()
    }

    /// The names of the segments, oldest first.
    pub(super) fn segments(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.ends_with(".segment") && !name.contains('/')).collect()
    }

    /// The bytes of all files whose names pass the test.
    pub(super) fn used(&self, passes: impl Fn(&str) -> bool) -> usize {
        let world = self.lock();
        let named = world.names.iter().filter(|(name, _)| passes(name));
        named.map(|(_, file)| world.files[*file].seen.len()).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Counts an operation of a process. `Err(has_effect)` if the operation fails.
    fn begin(&self, life: u64) -> (std::sync::MutexGuard<'_, World>, Result<(), bool>) {
        let mut world = self.lock();
        if life != world.life {
            return (world, Err(false));
        }
        world.operations += 1;
        let number = world.operations;
        let outcome = match world.fault {
            Fault::Fail { from, count } if (from..from.saturating_add(count)).contains(&number) => Err(world.toss()),
            Fault::Dead { after } if number > after => Err(false),
            _ => Ok(()),
        };
        (world, outcome)
    }

    /// Counts an operation that has no effect if it fails.
    fn simple(&self, life: u64) -> io::Result<std::sync::MutexGuard<'_, World>> {
        let (world, outcome) = self.begin(life);
        outcome.map(|()| world).map_err(|_| broken())
    }

    fn life(&self) -> u64 {
        self.lock().life
    }

    fn handle(&self, file: usize, life: u64) -> Box<dyn DiskFile> {
        Box::new(Handle { disk: self.clone(), file, life })
    }
}

fn broken() -> io::Error {
    io::Error::other("the simulated disk fails")
}

impl Disk for Simulated {
    fn list(&self) -> io::Result<Vec<String>> {
        let world = self.simple(self.life())?;
        Ok(world.names.keys().filter(|name| !name.contains('/')).cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let life = self.life();
        let mut world = self.simple(life)?;
        if world.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let file = world.files.len();
        world.files.push(Bytes::default());
        world.names.insert(name.to_owned(), file);
        world.unsynced_names.push(NameChange::Link(name.to_owned(), file));
        Ok(self.handle(file, life))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let life = self.life();
        let world = self.simple(life)?;
        let file = *world.names.get(name).ok_or(ErrorKind::NotFound)?;
        Ok(self.handle(file, life))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut world, outcome) = self.begin(self.life());
        if outcome != Err(false) {
            let file = world.names.remove(from).ok_or(ErrorKind::NotFound)?;
            world.names.insert(to.to_owned(), file);
            world.unsynced_names.push(NameChange::Rename(from.to_owned(), to.to_owned(), file));
        }
        outcome.map_err(|_| broken())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut world, outcome) = self.begin(self.life());
        if outcome != Err(false) {
            world.names.remove(name).ok_or(ErrorKind::NotFound)?;
            world.unsynced_names.push(NameChange::Unlink(name.to_owned()));
        }
        outcome.map_err(|_| broken())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut world = self.simple(self.life())?;
        for change in std::mem::take(&mut world.unsynced_names) {
            world.settle(change);
        }
        Ok(())
    }

    fn lock(&self, name: &str) -> io::Result<Box<dyn Send + Sync>> {
        let life = self.life();
        let mut world = self.simple(life)?;
        if !world.locks.insert(name.to_owned()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        world.openings += 1;
        Ok(Box::new(Lock { disk: self.clone(), name: name.to_owned(), life }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut world = self.disk.lock();
        if world.life == self.life {
            world.locks.remove(&self.name);
        }
    }
}

impl DiskFile for Handle {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.simple(self.life)?.files[self.file].seen.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let world = self.disk.simple(self.life)?;
        let seen = &world.files[self.file].seen;
        let from = (offset as usize).min(seen.len());
        let count = buffer.len().min(seen.len() - from);
        buffer[..count].copy_from_slice(&seen[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (mut world, outcome) = self.disk.begin(self.life);
        let count = match outcome {
            Ok(()) => bytes.len(),
            Err(false) => 0,
            Err(true) => {
                let end = offset as usize + (world.chance >> 20) as usize % (bytes.len() + 1);
                (end - end % world::BLOCK).saturating_sub(offset as usize)
            }
        };
        let written = Change::Write { offset: offset as usize, bytes: bytes[..count].to_vec() };
        world.change(self.file, written)?;
        outcome.map_err(|_| broken())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut world, outcome) = self.disk.begin(self.life);
        let mut chance = world.chance;
        match outcome {
            Ok(()) => {
                world.syncs += 1;
                world.files[self.file].forget(&mut || true);
            }
            // The power cut decides if the bytes of a dead process survive.
            Err(_) if world.life != self.life || matches!(world.fault, Fault::Dead { .. }) => {}
            Err(_) => world.files[self.file].forget(&mut || toss(&mut chance)),
        }
        world.chance = chance;
        outcome.map_err(|_| broken())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let (mut world, outcome) = self.disk.begin(self.life);
        if outcome != Err(false) {
            world.change(self.file, Change::Length(length as usize))?;
        }
        outcome.map_err(|_| broken())
    }
}
