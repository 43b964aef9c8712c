//! Several instances as one service: the owner of a sensor takes its writes, and a query asks all instances.
//!
//! `crates/members` has the protocol. This room performs its actions.
//!
//! | module | part |
//! |---|---|
//! | `driver` | the task that feeds the protocol with events |
//! | `link`, `handshake`, `codec` | connections, proofs of the secret, frames |
//! | `parts` | writes: divided by owner, taken from others |
//! | `questions`, `others`, `readings` | what other instances hold in memory |
//!
//! Without `cluster.listen` nothing of this runs.

mod codec;
mod driver;
mod handshake;
mod link;
mod others;
mod parts;
mod questions;
mod readings;
mod start;

pub use self::readings::ClusterReadings;
pub use self::start::Listening;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use hourglass_members::{AppendOutcome, ClientAnswer, Entry, Event, FolderId, Opening, Protocol, Registry, Stamp};

use self::driver::{Addresses, Input, changes};
use self::link::Links;
use self::others::Learned;
use crate::bucket::registry::{MemberRegistry, PeerEntry, RegistryEntry};
use crate::catalog::lookup::SensorLookup;
use crate::clock::StampClock;
use crate::ingest::Ingest;
use crate::ingest::admission::submit::Submitter;
use crate::members::cluster_registry::{ClusterChanges, ClusterRegistry};
use crate::reading::stamp::first_stamp;
use crate::telemetry::Metrics;

/// The versions of the protocol that this program speaks.
const PROTOCOL: Protocol = Protocol { lowest: 1, highest: 1 };
/// The time for which an instance is shown as missing after a query left it out.
const LEFT_OUT: Duration = Duration::from_secs(10);

/// This instance's part in the cluster.
pub struct Cluster {
    own: Opening,
    /// The address under which others reach this instance.
    address: String,
    protocol: Protocol,
    clock: Arc<StampClock>,
    /// Weak, because the shutdown waits for the end of both.
    submitter: Weak<Submitter>,
    ingest: Weak<Ingest>,
    lookup: SensorLookup,
    links: Links,
    inputs: mpsc::UnboundedSender<Input>,
    /// The owner of each partition.
    owners: RwLock<Arc<[Option<FolderId>]>>,
    /// The last known registry.
    registry: Mutex<Arc<Registry>>,
    /// The addresses of the other instances.
    addresses: Mutex<Addresses>,
    /// When an instance last did not answer a question and was left out, by folder.
    left_out: Mutex<BTreeMap<u64, Instant>>,
    /// Bounds the answers that are made at a time.
    answers: Semaphore,
    /// What other instances have said.
    learned: Mutex<Learned>,
    /// `sensors.recent`.
    recent: usize,
    /// Asks for a read of the registry.
    read_wanted: Notify,
    /// Stops the process.
    stop: Arc<Notify>,
    is_draining: AtomicBool,
    /// A file on the disk of the WAL that each probe syncs.
    probe_file: PathBuf,
    metrics: Metrics,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("own", &self.own).finish_non_exhaustive()
    }
}

/// An opening, as operators see it.
#[derive(Debug, Clone)]
pub struct Member {
    /// The id of its folder.
    pub folder: u64,
    /// The number of its start.
    pub start: u32,
    /// The address of its internal listener; `None` for an instance without `cluster.listen`.
    pub address: Option<String>,
    /// True for this instance.
    pub is_self: bool,
    /// True if it owns sensors.
    pub is_active: bool,
    /// True if a query has just left it out.
    pub is_left_out: bool,
    /// The folders of those that cannot reach it.
    pub suspected_by: Vec<u64>,
}

impl Cluster {
    fn input(&self, input: Input) {
        // Without the task, the process is ending, and whoever waits for an answer sees that its sender is gone.
        let _ = self.inputs.send(input);
    }

    fn send(&self, event: Event) {
        self.input(Input::Event(event));
    }

    /// Raises the clock of stamps to one that another instance knows, by at most half of `clock.max_offset`.
    fn hear(&self, stamp: Stamp) {
        let lead_ms = u64::try_from(self.clock.max_offset().as_millis() / 2).unwrap_or(u64::MAX);
        let bound = first_stamp(self.clock.now_ms().saturating_add(lead_ms));
        self.clock.rise_above(stamp.0.min(bound));
    }

    fn note_registry(&self, registry: &Arc<Registry>) {
        *self.registry.lock() = registry.clone();
    }

    /// Returns the stamp of the last record on the disk.
    fn durable(&self) -> Stamp {
        self.submitter.upgrade().map_or(Stamp::ZERO, |submitter| Stamp(submitter.wal.durable()))
    }

    /// Syncs a write to the WAL's disk.
    async fn probe_disk(&self) -> AppendOutcome {
        let file = self.probe_file.clone();
        let synced = crate::blocking::spawn(move || {
            std::fs::write(&file, b"probe\n")?;
            std::fs::File::open(&file)?.sync_data()
        });
        match synced.await {
            Ok(Ok(())) => AppendOutcome::Synced { stamp: self.durable(), rejected: Vec::new() },
            _ => AppendOutcome::Unknown,
        }
    }

    /// Returns the ids of the instances that have been left out of an answer within this time.
    #[must_use]
    pub fn left_out(&self, within: Duration) -> Vec<String> {
        let left_out = self.left_out.lock();
        left_out.iter().filter(|(_, at)| at.elapsed() <= within).map(|(folder, _)| format!("{folder:016x}")).collect()
    }

    /// Returns the listed openings.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        let registry = self.registry.lock().clone();
        let addresses = self.addresses.lock().clone();
        let left_out = self.left_out.lock().clone();
        let suspecting = |opening: Opening| {
            let others = registry.entries.iter().filter(move |other| other.suspects.contains(&opening));
            others.map(|other| other.opening.folder.0).collect()
        };
        let member = |entry: &Entry| {
            let folder = entry.opening.folder;
            let is_self = folder == self.own.folder;
            Member {
                folder: folder.0,
                start: entry.opening.start,
                address: if is_self { Some(self.address.clone()) } else { addresses.get(&folder).cloned() },
                is_self,
                is_active: registry.active.contains(&folder),
                is_left_out: left_out.get(&folder.0).is_some_and(|at| at.elapsed() < LEFT_OUT),
                suspected_by: suspecting(entry.opening),
            }
        };
        registry.entries.iter().map(member).collect()
    }

    /// Closes the connections.
    pub fn close(&self) {
        self.links.close();
    }

    /// Stops taking writes and parts. Called at a stop, before everything is flushed.
    pub fn terminate(&self) {
        self.send(Event::Terminate);
    }

    /// Gives up the ownership of sensors and stops the process.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
        self.send(Event::Drain);
    }

    /// Returns true from the begin of a drain.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    fn end_drain(&self) {
        if self.is_draining() {
            self.stop.notify_one();
        }
    }

    /// Gives up an opening that is gone, with all that it has acked and not stored. Returns false if it is alive.
    pub async fn retire(&self, folder: u64) -> Option<bool> {
        let opening = self.registry.lock().entry(FolderId(folder))?.opening;
        let (reply, answer) = oneshot::channel();
        self.input(Input::Retire { opening, reply });
        Some(matches!(answer.await, Ok(ClientAnswer::Done)))
    }
}

/// Returns the registry as the protocol sees it, and the addresses of other instances.
fn project(registry: &MemberRegistry, own: FolderId) -> (Registry, Addresses) {
    let mut addresses = BTreeMap::new();
    let open = registry.logs.iter().filter(|log| log.takeover.is_none());
    let entry = |log: &RegistryEntry| {
        let folder = FolderId(log.folder);
        let none = PeerEntry { address: String::new(), start: 0, protocol: (0, 0), suspects: Vec::new() };
        let PeerEntry { address, start, protocol, suspects } = log.peer.clone().unwrap_or(none);
        let has_address = !address.is_empty();
        if has_address && folder != own {
            addresses.insert(folder, address);
        }
        Entry {
            opening: Opening { folder, start },
            watermark: Stamp(log.watermark),
            beat: log.beat,
            has_address,
            protocol: Protocol { lowest: protocol.0, highest: protocol.1 },
            suspects: suspects.into_iter().map(|(folder, start)| Opening { folder: FolderId(folder), start }).collect(),
            holds_floor: true,
        }
    };
    let projected = Registry {
        rev: registry.rev,
        view: registry.view.number,
        active: registry.view.active.iter().map(|folder| FolderId(*folder)).collect(),
        entries: open.map(entry).collect(),
        // `members` applies deletions.
        deletions: Vec::new(),
        floor: Stamp(registry.floor),
    };
    (projected, addresses)
}

#[async_trait]
impl ClusterRegistry for Cluster {
    async fn wait_for_read(&self) {
        self.read_wanted.notified().await;
    }

    async fn begin_read(&self) {
        let (done, begun) = oneshot::channel();
        self.input(Input::BeginRead { done });
        let _ = begun.await;
    }

    async fn take(&self, registry: &MemberRegistry) -> Option<ClusterChanges> {
        let (projected, addresses) = project(registry, self.own.folder);
        self.links.update(&addresses);
        *self.addresses.lock() = addresses;
        let projected = Arc::new(projected);
        let watermark = Stamp(registry.floor);
        let (reply, document) = oneshot::channel();
        self.input(Input::Registry { registry: projected.clone(), watermark, reply });
        let document = document.await.ok().flatten()?;
        Some(changes(self, &projected, &document))
    }

    async fn note_written(&self, is_written: bool) {
        self.send(Event::RegistryWritten { is_written });
    }
}
