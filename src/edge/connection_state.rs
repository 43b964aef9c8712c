//! The phase of a connection: its handler updates it, and the connection limits read it to find connections to close.
//! Phase and time share one atomic word that both sides change by compare-and-swap, so a request that has begun is
//! never cut off to make room, and no request begins on a closed connection. Costs a clock read and two such swaps
//! per request, and no timer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A request body makes progress each time this many more bytes have arrived.
const MOVES_BYTES: u32 = 1024;
/// Most bytes kept of a request's opening.
const OPENING_BYTES: usize = 64 << 10;
/// Buffer capacity that is reused for the next opening.
const OPENING_KEPT: usize = 4 << 10;

/// Only answers of at least this many bytes have a sending deadline.
const SMALL_BYTES: u64 = 64 << 10;
/// A client must take an answer at this many bytes per second on average, plus the grace in milliseconds.
const SENDING_RATE: u64 = 64 << 10;
const SENDING_GRACE: u64 = 10_000;
/// Longest time, in milliseconds, without any progress of such an answer. In that time a client of the rate above
/// empties a third of the kernel's send buffer.
const SENDING_STILL: u64 = 30_000;

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake,
    /// The first byte of the next request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// A request's body; the phase's time is that of its last progress.
    Body,
    /// The handler, which computes the answer.
    Answer,
    /// The client, which takes the answer.
    Sending,
    Closed,
}

const PHASES: [Phase; 7] =
    [Phase::Handshake, Phase::Idle, Phase::Head, Phase::Body, Phase::Answer, Phase::Sending, Phase::Closed];
/// A write that waits for its client makes progress each time this many more bytes were accepted.
const TAKES_BYTES: u64 = 64 << 10;
/// Milliseconds without such progress after which the client counts as one that does not take its answers.
const TAKES_STILL: u64 = 1000;

/// Bits of the phase in the state word; the remaining bits hold milliseconds.
const PHASE_BITS: u32 = 3;

/// The phase and progress of one connection.
#[derive(Debug)]
pub struct ConnectionState {
    /// All times are milliseconds since this moment.
    base: Instant,
    /// The phase and when it began.
    state: AtomicU64,
    /// Body bytes since the last progress was recorded.
    moved: AtomicU32,
    /// When writing began to wait for the client, or last made progress since; 0 once all is written.
    writing: AtomicU64,
    /// Bytes accepted since then.
    taken: AtomicU64,
    /// Whether several requests may be in progress at once (HTTP/2, and lines over TCP).
    multiplexed: AtomicBool,
    /// Requests in progress on a multiplexed connection.
    running: AtomicU32,
    opening: Mutex<RequestOpening>,
    /// Answers under way that go on until their client leaves.
    endless: AtomicU32,
    /// Deadlines of large answers that are being sent, with the number of answers per deadline.
    sending: Mutex<BTreeMap<u64, usize>>,
}

/// Tracks a large answer while it is being sent.
#[derive(Debug)]
pub struct SendingAnswer {
    state: Arc<ConnectionState>,
    /// Deadline for the whole answer.
    last: u64,
    /// Deadline for the next progress.
    by: u64,
}

/// Keeps a connection from being idle while an answer goes on that has no end.
#[derive(Debug)]
pub struct EndlessAnswer(Arc<ConnectionState>);

/// The first bytes of a request, as received.
#[derive(Debug, Default)]
struct RequestOpening {
    bytes: Vec<u8>,
    /// Whether they were taken already.
    stale: bool,
}

impl ConnectionState {
    pub(super) fn new(base: Instant, phase: Phase) -> Self {
        let state = Self {
            base,
            state: AtomicU64::new(0),
            moved: AtomicU32::new(0),
            writing: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            running: AtomicU32::new(0),
            opening: Mutex::default(),
            endless: AtomicU32::new(0),
            sending: Mutex::default(),
        };
        state.state.store(state.word(phase), Ordering::Relaxed);
        state
    }

    /// Marks the connection as multiplexed: from now on requests are counted, and incoming bytes no longer change the
    /// phase.
    pub fn multiplex(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// Records the start of a request; `body` says whether a body follows. Returns false if the connection is closed
    /// already: then the request must not be executed.
    #[must_use]
    pub fn begin(&self, body: bool) -> bool {
        if self.multiplexed.load(Ordering::Relaxed) {
            self.running.fetch_add(1, Ordering::AcqRel);
            return self.turn(Phase::Answer);
        }
        self.turn(if body { Phase::Body } else { Phase::Answer })
    }

    /// Records that the body is complete, or that its rest is not needed.
    pub fn body_is_in(&self) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            self.turn_from(Phase::Body, Phase::Answer);
        }
    }

    /// Records that the answer is complete and is being sent. No effect on a multiplexed connection.
    pub fn answered(&self) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            self.turn(Phase::Sending);
        }
    }

    /// Starts the sending deadline of an answer of `bytes` bytes. The answer holds memory until it is sent, so a client
    /// that takes it too slowly is disconnected. `None` for small answers, unless the connection is multiplexed: there,
    /// an answer may wait for its client while the connection does not.
    pub fn sends(self: &Arc<Self>, bytes: u64) -> Option<SendingAnswer> {
        if bytes < SMALL_BYTES && !self.multiplexed.load(Ordering::Relaxed) {
            return None;
        }
        let last = self.now() + SENDING_GRACE + bytes * 1000 / SENDING_RATE;
        let by = last.min(self.now() + SENDING_STILL);
        *self.sending.lock().entry(by).or_default() += 1;
        Some(SendingAnswer { state: self.clone(), last, by })
    }

    /// Starts an answer that goes on until its client leaves: it has no sending deadline, and the connection is not idle between its parts. A
    /// client that takes nothing is closed as with any answer.
    #[must_use]
    pub fn sends_endlessly(self: &Arc<Self>) -> EndlessAnswer {
        self.endless.fetch_add(1, Ordering::AcqRel);
        EndlessAnswer(self.clone())
    }

    /// Whether an answer has missed its sending deadline.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.sending.lock().first_key_value().is_some_and(|(by, _)| *by < now)
    }

    /// On a multiplexed connection: records progress of an answer.
    pub fn moved(&self) {
        self.turn(Phase::Answer);
    }

    /// On a multiplexed connection: records that one answer is sent.
    pub fn ended(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.turn(Phase::Idle);
        }
    }

    /// The bytes received since the connection was last idle, up to 64 KiB; of pipelined requests they start with the
    /// first. `None` if they were taken already.
    pub fn opening(&self) -> Option<Vec<u8>> {
        let mut opening = self.opening.lock();
        (!std::mem::replace(&mut opening.stale, true)).then(|| std::mem::take(&mut opening.bytes))
    }

    /// Called before each read and after each complete flush, since the handler may not read again until more bytes
    /// arrive: if the answer is sent, the connection is idle.
    pub(super) fn rests(&self) {
        let is_done = self.writing.load(Ordering::Relaxed) == 0 && self.endless.load(Ordering::Acquire) == 0;
        if is_done && self.phase().0 == Phase::Sending {
            self.turn_from(Phase::Sending, Phase::Idle);
        }
    }

    /// Records received bytes.
    pub(super) fn read(&self, bytes: &[u8]) {
        if self.multiplexed.load(Ordering::Relaxed) {
            return;
        }
        match self.phase().0 {
            Phase::Idle => {
                self.keep(bytes, true);
                self.turn_from(Phase::Idle, Phase::Head);
            }
            Phase::Head => self.keep(bytes, false),
            Phase::Body => {
                // A byte now and then does not count as progress.
                let came = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(MOVES_BYTES);
                if self.moved.fetch_add(came, Ordering::Relaxed) + came >= MOVES_BYTES {
                    self.moved.store(0, Ordering::Relaxed);
                    self.turn_from(Phase::Body, Phase::Body);
                }
            }
            _ => {}
        }
    }

    /// Records a flush: complete, or waiting for the client.
    pub(super) fn flushed(&self, waits: bool) {
        if waits {
            self.wrote(None);
        } else {
            if self.writing.load(Ordering::Relaxed) != 0 {
                self.writing.store(0, Ordering::Relaxed);
            }
            self.rests();
        }
    }

    /// Records a write: the bytes that were accepted, or that it waits for the client.
    pub(super) fn wrote(&self, bytes: Option<usize>) {
        let waits_since = self.writing.load(Ordering::Relaxed);
        let Some(bytes) = bytes else {
            if waits_since == 0 {
                self.waits();
            }
            return;
        };
        // A byte now and then does not count as progress.
        let bytes = bytes as u64;
        if waits_since != 0 && self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes >= TAKES_BYTES {
            self.waits();
        }
        // The next part of an answer whose earlier parts were flushed, which had made the connection idle.
        if self.phase().0 == Phase::Idle && !self.multiplexed.load(Ordering::Relaxed) {
            self.turn_from(Phase::Idle, Phase::Sending);
        }
    }

    fn waits(&self) {
        self.taken.store(0, Ordering::Relaxed);
        self.writing.store(self.now().max(1), Ordering::Relaxed);
    }

    /// Whether the client has taken next to nothing of its answers for a second, and nothing else happens on the
    /// connection: it may be closed to make room.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        let is_still = |since: u64| now.saturating_sub(since) > TAKES_STILL;
        if self.multiplexed.load(Ordering::Relaxed) {
            let sending = self.sending.lock();
            let answers = sending.values().sum::<usize>();
            let latest = sending.last_key_value().map(|(by, _)| by.saturating_sub(SENDING_STILL));
            // All requests are answered, and none of the answers moves.
            return u32::try_from(answers).is_ok_and(|answers| answers == self.running.load(Ordering::Acquire))
                && latest.is_some_and(is_still);
        }
        self.phase().0 == Phase::Sending && self.writing_since().is_some_and(is_still)
    }

    pub(super) fn handshaken(&self) {
        self.turn_from(Phase::Handshake, Phase::Idle);
    }

    /// The phase and when it began, in milliseconds.
    pub(super) fn phase(&self) -> (Phase, u64) {
        parts(self.state.load(Ordering::Acquire))
    }

    /// When writing began to wait, or last made progress since; `None` if it does not wait.
    pub(super) fn writing_since(&self) -> Option<u64> {
        Some(self.writing.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    pub(super) fn running(&self) -> bool {
        self.running.load(Ordering::Acquire) != 0
    }

    /// Closes the connection unless its state has changed since `seen`.
    pub(super) fn close(&self, seen: (Phase, u64)) -> bool {
        let seen = seen.1 << PHASE_BITS | seen.0 as u64;
        let closed = self.word(Phase::Closed);
        self.state.compare_exchange(seen, closed, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn now(&self) -> u64 {
        milliseconds(self.base.elapsed())
    }

    fn word(&self, phase: Phase) -> u64 {
        self.now() << PHASE_BITS | phase as u64
    }

    /// Changes the phase, unless the connection is closed; returns whether it did.
    fn turn(&self, to: Phase) -> bool {
        let to = self.word(to);
        let open = |word: u64| (parts(word).0 != Phase::Closed).then_some(to);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_ok()
    }

    fn turn_from(&self, from: Phase, to: Phase) {
        let to = self.word(to);
        let fits = |word: u64| (parts(word).0 == from).then_some(to);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits);
    }

    /// Records opening bytes. The lock is uncontended: only the connection's own task takes it.
    fn keep(&self, bytes: &[u8], first: bool) {
        let mut opening = self.opening.lock();
        if first {
            opening.bytes.clear();
            opening.bytes.shrink_to(OPENING_KEPT);
            opening.stale = false;
        }
        let room = OPENING_BYTES.saturating_sub(opening.bytes.len());
        opening.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl SendingAnswer {
    /// Records progress and moves the deadline.
    pub fn moved(&mut self) {
        let by = self.last.min(self.state.now() + SENDING_STILL);
        if by != self.by {
            self.forget();
            self.by = by;
            *self.state.sending.lock().entry(by).or_default() += 1;
        }
    }

    fn forget(&self) {
        let mut sending = self.state.sending.lock();
        if let Entry::Occupied(mut count) = sending.entry(self.by) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Drop for SendingAnswer {
    fn drop(&mut self) {
        self.forget();
    }
}

impl Drop for EndlessAnswer {
    fn drop(&mut self) {
        self.0.endless.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn parts(word: u64) -> (Phase, u64) {
    let phase = PHASES.get((word & ((1 << PHASE_BITS) - 1)) as usize).copied().unwrap_or(Phase::Closed);
    (phase, word >> PHASE_BITS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn idle() -> ConnectionState {
        ConnectionState::new(Instant::now(), Phase::Idle)
    }

    #[test]
    fn a_request_goes_through_its_phases() {
        let state = idle();
        state.read(b"POST /w");
        assert_eq!(state.phase().0, Phase::Head);
        state.read(b"rite");
        assert!(state.begin(true));
        assert_eq!(state.opening().unwrap(), b"POST /write");
        assert!(state.opening().is_none(), "it is the first request's alone");
        state.read(b"m v=1");
        assert_eq!(state.phase().0, Phase::Body);
        state.body_is_in();
        state.rests();
        assert_eq!(state.phase().0, Phase::Answer, "reading on means nothing while it is answered");
        state.answered();
        state.wrote(None);
        state.flushed(true);
        assert_eq!(state.phase().0, Phase::Sending, "the answer waits for the other end");
        assert!(state.writing_since().is_some());
        state.flushed(false);
        assert_eq!((state.phase().0, state.writing_since()), (Phase::Idle, None));
        state.wrote(Some(1));
        assert_eq!(state.phase().0, Phase::Sending, "another part of it");
        state.flushed(false);
        state.read(b"GET");
        assert_eq!(state.opening().unwrap(), b"GET");
    }

    #[test]
    fn nothing_begins_on_what_was_given_up_and_what_began_is_not_given_up() {
        let state = idle();
        let seen = state.phase();
        assert!(state.begin(false));
        assert!(!state.close(seen), "a request has begun since it was seen");
        state.answered();
        state.rests();
        assert!(state.close(state.phase()));
        assert!(!state.begin(false));
        state.read(b"x");
        state.answered();
        assert_eq!(state.phase().0, Phase::Closed);
    }

    #[test]
    fn who_takes_next_to_nothing_of_an_answer_is_stuck() {
        let state = idle();
        assert!(state.begin(false));
        state.answered();
        state.wrote(None);
        let since = state.writing_since().unwrap();
        assert!(!state.is_stuck(since + TAKES_STILL) && state.is_stuck(since + TAKES_STILL + 1));
        state.wrote(Some(1000));
        assert_eq!(state.writing_since(), Some(since), "a few bytes are no progress");
        assert!(state.is_stuck(since + TAKES_STILL + 1));
        std::thread::sleep(Duration::from_millis(2));
        state.wrote(Some(64 << 10));
        assert!(state.writing_since().unwrap() > since);
        state.flushed(false);
        assert!(!state.is_stuck(u64::MAX), "all is written");
    }

    #[test]
    fn who_keeps_the_windows_of_all_answers_closed_is_stuck() {
        let state = Arc::new(idle());
        state.multiplex();
        assert!(state.begin(false) && state.begin(false));
        let one = state.sends(100).unwrap();
        let later = state.now() + SENDING_STILL;
        assert!(!state.is_stuck(later), "a request is still worked on");
        let mut other = state.sends(100).unwrap();
        assert!(state.is_stuck(later) && !state.is_stuck(state.now()));
        other.moved();
        assert!(!state.is_stuck(state.now() + 1), "one answer has moved just now");
        drop((one, other));
        assert!(!state.is_stuck(later));
    }

    #[test]
    fn several_requests_are_counted() {
        let state = idle();
        state.multiplex();
        state.read(b"frames");
        assert_eq!(state.phase().0, Phase::Idle);
        assert!(state.begin(true) && state.begin(false));
        state.ended();
        assert!(state.running() && state.phase().0 == Phase::Answer);
        state.ended();
        assert!(!state.running() && state.phase().0 == Phase::Idle);
    }
}
