//! The task that runs the protocol: it feeds [`Instance`] with events, one after the other, and performs its actions.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use hourglass_members::{
    Ack, Action, Append, AppendId, AppendOutcome, Batch as Piece, ClientAnswer, Event, Frame, FrameBody, Instance, Now,
    Origin, PartAnswer, Payload, QuestionId, Record, Registry, RequestId, Stamp,
};

use super::Cluster;
use super::parts::OwnPiece;
use crate::clock::since_boot;
use crate::members::cluster_registry::ClusterChanges;
use crate::wal::AppendError;

/// Interval of ticks; the protocol expects at most 100 ms.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of other instances' parts that are not logged yet. Beyond it, they are asked to wait.
const PARTS_BYTES: usize = 32 << 20;

/// Milliseconds of the clock that never steps and includes suspends.
pub fn boot_ms() -> u64 {
    u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX)
}

/// An input of the task.
pub enum Input {
    /// An event of the protocol.
    Event(Event),
    /// A client's write.
    Write { pieces: Vec<Piece>, own: Vec<OwnPiece>, read_boot_ms: u64, ack: Ack, reply: oneshot::Sender<ClientAnswer> },
    /// A question to all instances.
    Ask { question: Payload, may_be_incomplete: bool, reply: oneshot::Sender<ClientAnswer> },
    /// A read of the registry begins.
    BeginRead { done: oneshot::Sender<()> },
    /// The registry was read. The reply is what to write into it.
    Registry { registry: Arc<Registry>, watermark: Stamp, reply: oneshot::Sender<Option<Arc<Registry>>> },
    /// An operator's command.
    Retire { opening: hourglass_members::Opening, reply: oneshot::Sender<ClientAnswer> },
}

/// A client's write that waits for its answer.
struct PendingWrite {
    /// What is needed to log a piece here, by index.
    own: Vec<OwnPiece>,
    reply: oneshot::Sender<ClientAnswer>,
}

/// The state of the task.
pub struct Driver {
    cluster: Arc<Cluster>,
    instance: Instance,
    writes: HashMap<RequestId, PendingWrite>,
    /// Questions of this instance and commands.
    replies: HashMap<RequestId, oneshot::Sender<ClientAnswer>>,
    next_request: u64,
    /// The document that the protocol wants to write.
    document: Option<Arc<Registry>>,
    /// The view that the owner table was made of.
    view: u64,
    is_over: bool,
    /// Bytes of parts that are on their way into the WAL.
    parts_bytes: Arc<AtomicUsize>,
}

impl Driver {
    pub fn new(cluster: Arc<Cluster>, instance: Instance) -> Self {
        Self {
            cluster,
            instance,
            writes: HashMap::new(),
            replies: HashMap::new(),
            next_request: 1,
            document: None,
            view: u64::MAX,
            is_over: false,
            parts_bytes: Arc::default(),
        }
    }

    /// Runs until the task is aborted or the instance is over.
    pub async fn run(mut self, mut inputs: mpsc::UnboundedReceiver<Input>, mut frames: mpsc::Receiver<Frame>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => self.handle(Event::Tick),
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                frame = frames.recv() => match frame {
                    Some(frame) => self.take_frame(frame),
                    None => return,
                },
            }
        }
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Event(event) => self.handle(event),
            Input::Write { pieces: batches, own, read_boot_ms, ack, reply } => {
                let request = self.request();
                self.writes.insert(request, PendingWrite { own, reply });
                self.handle(Event::Write { request, read_boot_ms, ack, batches });
            }
            Input::Ask { question, may_be_incomplete, reply } => {
                let request = self.request();
                self.replies.insert(request, reply);
                self.handle(Event::Query { request, question, may_be_incomplete });
            }
            Input::BeginRead { done } => {
                self.instance.begin_registry_read(boot_ms());
                let _ = done.send(());
            }
            Input::Registry { registry, watermark, reply } => {
                self.document = None;
                self.handle(Event::Watermark(watermark));
                self.handle(Event::RegistryRead(Some(registry)));
                self.follow_view();
                let _ = reply.send(self.document.take().filter(|_| !self.is_over));
            }
            Input::Retire { opening, reply } => {
                let request = self.request();
                self.replies.insert(request, reply);
                self.handle(Event::Retire { request, opening });
            }
        }
    }

    fn take_frame(&mut self, frame: Frame) {
        if let FrameBody::Part(part) = &frame.body
            && self.parts_bytes.load(Ordering::Relaxed) + part.records.len() > PARTS_BYTES
        {
            self.cluster.metrics.cluster_event("busy");
            let body = FrameBody::PartAnswer { number: part.number, answer: PartAnswer::Busy };
            let answer = Frame { from: self.instance.opening(), to: Some(frame.from), body, ..frame.clone() };
            self.cluster.links.send(frame.from.folder, &answer);
            return;
        }
        self.cluster.hear(frame.greatest);
        self.handle(Event::Frame(frame));
    }

    /// Passes an event to the protocol, and performs what follows, at once or in other tasks.
    fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let now = Now { boot_ms: boot_ms(), wall_ms: self.cluster.clock.now_ms() };
            // The WAL issues the stamps.
            self.instance.clock_mut().raise_to_floor(self.cluster.durable());
            for action in self.instance.handle(now, event) {
                self.act(action, &mut events);
            }
        }
    }

    fn act(&mut self, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Send { to, frame } => {
                if let FrameBody::Part(_) = frame.body {
                    self.cluster.metrics.cluster_event("part");
                }
                self.cluster.links.send(to, &frame);
            }
            Action::ReadRegistry => self.cluster.read_wanted.notify_one(),
            Action::WriteRegistry(document) => self.document = Some(document),
            Action::Append(append) => self.append(append, events),
            Action::Answer { request, answer } => {
                if let Some(write) = self.writes.remove(&request) {
                    let _ = write.reply.send(answer);
                } else if let Some(reply) = self.replies.remove(&request) {
                    let _ = reply.send(answer);
                }
            }
            Action::AnswerFromMemory { question, text } => self.answer_from_memory(question, text),
            // The engine reads the store after it has the answers.
            Action::AskStore { request } => {
                events.push_back(Event::StoreAnswer { request, answer: Some(Payload::from([])) });
            }
            // A drain ends with a stop, and a stop flushes by itself.
            Action::FlushAll => self.cluster.end_drain(),
            Action::Stop(reason) => {
                self.is_over = true;
                tracing::error!(
                    ?reason,
                    "this instance is over: its folder was opened elsewhere, or it was given up; stopping"
                );
                self.cluster.stop.notify_one();
            }
            // `members` marks the folder. Deletions and request keys do not use the protocol yet.
            Action::MarkJoined
            | Action::RemoveJoined
            | Action::Sweep(_)
            | Action::UpsertKey { .. }
            | Action::Split { .. } => {}
        }
    }

    fn append(&mut self, append: Append, events: &mut VecDeque<Event>) {
        let Append { id, record, above, not_after, expires_boot_ms, reports_stored, origin } = append;
        let in_time = move |sequence: u64| {
            not_after.is_none_or(|bound| sequence <= bound.0) && expires_boot_ms.is_none_or(|end| boot_ms() < end)
        };
        let cluster = self.cluster.clone();
        match (origin, record) {
            (Origin::Own { request, index }, _) => {
                let own = self.writes.get_mut(&request).and_then(|write| write.own.get_mut(index)).map(OwnPiece::take);
                let Some(readings) = own.flatten() else {
                    return events.push_back(Event::Appended { append: id, outcome: AppendOutcome::Refused });
                };
                if above.is_some() {
                    self.cluster.metrics.cluster_event("stray");
                }
                let above = above.map_or(0, |above| above.0);
                cluster.log(id, readings, above, in_time, reports_stored);
            }
            (Origin::Part, Some(Record::Readings(payload))) => {
                let bytes = self.parts_bytes.clone();
                let size = payload.len();
                bytes.fetch_add(size, Ordering::Relaxed);
                tokio::spawn(async move {
                    cluster.take_part(id, &payload, in_time, reports_stored).await;
                    bytes.fetch_sub(size, Ordering::Relaxed);
                });
            }
            (Origin::Probe, _) => drop(tokio::spawn(async move {
                let outcome = cluster.probe_disk().await;
                cluster.send(Event::Appended { append: id, outcome });
            })),
            // The watermark never follows stamps that others have raised; see `Member::watermark`.
            (Origin::Mark, _) => {
                let stamp = self.cluster.durable();
                events.push_back(Event::Appended {
                    append: id,
                    outcome: AppendOutcome::Synced { stamp, rejected: Vec::new() },
                });
            }
            (Origin::Part | Origin::Deletion, _) => {
                events.push_back(Event::Appended { append: id, outcome: AppendOutcome::Refused });
            }
        }
    }

    fn answer_from_memory(&self, question: QuestionId, text: Payload) {
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            // Without an answer, the asker takes this instance for missing and tries again.
            if let Some(answer) = cluster.answer(&text).await {
                cluster.send(Event::MemoryAnswer { question, answer: answer.into() });
            }
        });
    }

    /// Makes the table of owners anew if the view has changed.
    fn follow_view(&mut self) {
        let Some(registry) = self.instance.registry().cloned() else { return };
        if registry.view != self.view {
            self.view = registry.view;
            self.cluster.metrics.cluster_instances(registry.active.len());
            *self.cluster.owners.write() = self.instance.owners().into();
            tracing::info!(
                view = registry.view,
                instances = registry.active.len(),
                "the owners of sensors have changed"
            );
        }
        self.cluster.note_registry(&registry);
    }
}

/// Returns the changes that a document of the protocol makes to the registry that was read.
pub fn changes(cluster: &Cluster, read: &Registry, document: &Registry) -> ClusterChanges {
    let own = document.entry(cluster.own.folder);
    let suspects = own.iter().flat_map(|entry| &entry.suspects).map(|opening| (opening.folder.0, opening.start));
    let others = read.entries.iter().filter(|entry| entry.opening.folder != cluster.own.folder);
    let given_up = others.filter(|entry| document.entry(entry.opening.folder).is_none());
    ClusterChanges {
        view: crate::bucket::registry::View {
            number: document.view,
            active: document.active.iter().map(|folder| folder.0).collect(),
        },
        peer: crate::bucket::registry::PeerEntry {
            address: cluster.address.clone(),
            start: cluster.own.start,
            protocol: (cluster.protocol.lowest, cluster.protocol.highest),
            suspects: suspects.collect(),
        },
        given_up: given_up.map(|entry| entry.opening.folder.0).collect(),
    }
}

/// Returns the outcome of an append for the protocol.
pub fn outcome(appended: Result<u64, AppendError>) -> AppendOutcome {
    match appended {
        Ok(sequence) => AppendOutcome::Synced { stamp: Stamp(sequence), rejected: Vec::new() },
        Err(AppendError::Late) => AppendOutcome::Late,
        Err(AppendError::Failed(_)) => AppendOutcome::Unknown,
        Err(_) => AppendOutcome::Refused,
    }
}

/// The addresses by folder.
pub type Addresses = BTreeMap<hourglass_members::FolderId, String>;

impl Cluster {
    /// Reports an append.
    pub fn note_appended(&self, append: AppendId, outcome: AppendOutcome) {
        self.send(Event::Appended { append, outcome });
    }
}
