//! The phase of a connection. Its handler updates the phase, and [`ConnectionLimits`](super::ConnectionLimits) reads it
//! to find connections to close. Phase and time share one atomic word, which both sides change by compare-and-swap. So
//! a request in progress is never closed to make room, and no request begins on a closed connection. A request takes
//! one clock read and two swaps, and no timer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bytes of a request body that count as progress.
const BODY_PROGRESS_BYTES: u32 = 1024;
/// Maximum number of recorded bytes of a request's opening.
const OPENING_BYTES_MAX: usize = 64 << 10;
/// Buffer capacity that is kept for the next opening.
const OPENING_BYTES_KEPT: usize = 4 << 10;

/// Minimum size of answers with a sending deadline, in bytes.
const LARGE_ANSWER_BYTES: u64 = 64 << 10;
/// Minimum average rate at which a client must receive a large answer, in bytes per second.
const SENDING_RATE_MIN: u64 = 64 << 10;
/// Additional time for a large answer, in milliseconds.
const SENDING_GRACE_MS: u64 = 10_000;
/// Maximum time without progress of a large answer, in milliseconds. In that time a client at the minimum rate empties
/// a third of the kernel's send buffer.
const SENDING_STALL_MS: u64 = 30_000;

/// The event that a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Handshake,
    /// The first byte of the next request.
    Idle,
    /// The rest of a request's head.
    Head,
    /// The rest of a request body. The time of the phase is that of the last progress.
    Body,
    /// The answer of the handler.
    Answer,
    /// The client, to receive the answer.
    Sending,
    Closed,
}

const PHASES: [Phase; 7] =
    [Phase::Handshake, Phase::Idle, Phase::Head, Phase::Body, Phase::Answer, Phase::Sending, Phase::Closed];
/// Bytes of a blocked write that count as progress once the client has accepted them.
const WRITE_PROGRESS_BYTES: u64 = 64 << 10;
/// Milliseconds without progress after which a client is considered stuck.
const WRITE_STALL_MS: u64 = 1000;

/// Bits of the phase in the state word; the remaining bits hold milliseconds.
const PHASE_BITS: u32 = 3;

/// A phase, and the time when it began in milliseconds since the base of the connection limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PhaseSince {
    pub(super) phase: Phase,
    pub(super) since_ms: u64,
}

/// The phase and progress of one connection.
#[derive(Debug)]
pub struct ConnectionState {
    /// All times are milliseconds since this moment.
    base: Instant,
    /// An encoded [`PhaseSince`].
    state: AtomicU64,
    /// Body bytes since the last recorded progress.
    body_bytes: AtomicU32,
    /// The time when a write blocked or last made progress; 0 if no write is blocked.
    blocked_since: AtomicU64,
    /// Bytes accepted since then.
    accepted_bytes: AtomicU64,
    /// True if several requests may be in progress at once (HTTP/2, and lines over TCP).
    is_multiplexed: AtomicBool,
    /// Requests in progress on a multiplexed connection.
    open_requests: AtomicU32,
    opening: Mutex<RequestOpening>,
    /// Answers in progress that end only when the client disconnects.
    endless_answers: AtomicU32,
    /// The deadlines of large answers in progress, with the number of answers per deadline.
    sending: Mutex<BTreeMap<u64, usize>>,
}

/// Tracks a large answer while it is being sent.
#[derive(Debug)]
pub struct SendingAnswer {
    state: Arc<ConnectionState>,
    /// Deadline of the whole answer.
    final_deadline: u64,
    /// Deadline of the next progress.
    deadline: u64,
}

/// Prevents the connection from becoming idle while an endless answer is in progress.
#[derive(Debug)]
pub struct EndlessAnswer(Arc<ConnectionState>);

/// The first bytes of a request.
#[derive(Debug, Default)]
struct RequestOpening {
    bytes: Vec<u8>,
    /// True if the bytes were taken already.
    is_taken: bool,
}

impl ConnectionState {
    pub(super) fn new(base: Instant, phase: Phase) -> Self {
        let state = Self {
            base,
            state: AtomicU64::new(0),
            body_bytes: AtomicU32::new(0),
            blocked_since: AtomicU64::new(0),
            accepted_bytes: AtomicU64::new(0),
            is_multiplexed: AtomicBool::new(false),
            open_requests: AtomicU32::new(0),
            opening: Mutex::default(),
            endless_answers: AtomicU32::new(0),
            sending: Mutex::default(),
        };
        state.state.store(state.encode(phase), Ordering::Relaxed);
        state
    }

    /// Marks the connection as multiplexed. From now on requests are counted, and incoming bytes do not change the
    /// phase.
    pub fn set_multiplexed(&self) {
        self.is_multiplexed.store(true, Ordering::Relaxed);
    }

    /// Records the start of a request. Returns false if the connection is closed already, so that the request must not
    /// be executed.
    #[must_use]
    pub fn begin_request(&self, has_body: bool) -> bool {
        if self.is_multiplexed.load(Ordering::Relaxed) {
            self.open_requests.fetch_add(1, Ordering::AcqRel);
            return self.set_phase(Phase::Answer);
        }
        self.set_phase(if has_body { Phase::Body } else { Phase::Answer })
    }

    /// Records that the body is complete or dropped.
    pub fn record_body_end(&self) {
        if !self.is_multiplexed.load(Ordering::Relaxed) {
            self.change_phase(Phase::Body, Phase::Answer);
        }
    }

    /// Records that the answer is complete and is being sent. Has no effect on a multiplexed connection.
    pub fn record_answer(&self) {
        if !self.is_multiplexed.load(Ordering::Relaxed) {
            self.set_phase(Phase::Sending);
        }
    }

    /// Starts the sending deadline of an answer with this size. An answer holds memory until it is sent, so a client
    /// that receives it too slowly is disconnected. `None` for small answers, except on multiplexed connections, where
    /// a single answer may be stuck.
    pub fn start_sending(self: &Arc<Self>, bytes: u64) -> Option<SendingAnswer> {
        if bytes < LARGE_ANSWER_BYTES && !self.is_multiplexed.load(Ordering::Relaxed) {
            return None;
        }
        let final_deadline = self.now() + SENDING_GRACE_MS + bytes * 1000 / SENDING_RATE_MIN;
        let deadline = final_deadline.min(self.now() + SENDING_STALL_MS);
        *self.sending.lock().entry(deadline).or_default() += 1;
        Some(SendingAnswer { state: self.clone(), final_deadline, deadline })
    }

    /// Starts an answer that ends only when the client disconnects. It has no sending deadline, and the connection is
    /// not idle between its parts. A client that receives nothing is disconnected, as with other answers.
    #[must_use]
    pub fn start_endless_answer(self: &Arc<Self>) -> EndlessAnswer {
        self.endless_answers.fetch_add(1, Ordering::AcqRel);
        EndlessAnswer(self.clone())
    }

    /// Returns true if an answer has missed its sending deadline.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.sending.lock().first_key_value().is_some_and(|(deadline, _)| *deadline < now)
    }

    /// Records progress of an answer on a multiplexed connection.
    pub fn record_progress(&self) {
        self.set_phase(Phase::Answer);
    }

    /// Records the end of a request on a multiplexed connection.
    pub fn end_request(&self) {
        if self.open_requests.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.set_phase(Phase::Idle);
        }
    }

    /// Takes the bytes received since the connection was last idle, up to 64 KiB. With pipelining they start with the
    /// first request. `None` if they were taken already.
    pub fn take_opening(&self) -> Option<Vec<u8>> {
        let mut opening = self.opening.lock();
        (!std::mem::replace(&mut opening.is_taken, true)).then(|| std::mem::take(&mut opening.bytes))
    }

    /// Makes the connection idle if the answer is sent. Called before each read and after each complete flush, because
    /// the handler may not read again until more bytes arrive.
    pub(super) fn check_idle(&self) {
        let is_blocked = self.blocked_since.load(Ordering::Relaxed) != 0;
        let has_endless_answer = self.endless_answers.load(Ordering::Acquire) != 0;
        if !is_blocked && !has_endless_answer && self.current().phase == Phase::Sending {
            self.change_phase(Phase::Sending, Phase::Idle);
        }
    }

    /// Records received bytes.
    pub(super) fn record_read(&self, bytes: &[u8]) {
        if self.is_multiplexed.load(Ordering::Relaxed) {
            return;
        }
        match self.current().phase {
            Phase::Idle => {
                self.record_opening(bytes, true);
                self.change_phase(Phase::Idle, Phase::Head);
            }
            Phase::Head => self.record_opening(bytes, false),
            Phase::Body => {
                // Single bytes do not count as progress.
                let received = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(BODY_PROGRESS_BYTES);
                if self.body_bytes.fetch_add(received, Ordering::Relaxed) + received >= BODY_PROGRESS_BYTES {
                    self.body_bytes.store(0, Ordering::Relaxed);
                    self.change_phase(Phase::Body, Phase::Body);
                }
            }
            _ => {}
        }
    }

    /// Records a flush that is complete, or blocked by the client.
    pub(super) fn record_flush(&self, is_blocked: bool) {
        if is_blocked {
            self.record_blocked_write();
            return;
        }
        if self.blocked_since.load(Ordering::Relaxed) != 0 {
            self.blocked_since.store(0, Ordering::Relaxed);
        }
        self.check_idle();
    }

    /// Records a write that is blocked by the client.
    pub(super) fn record_blocked_write(&self) {
        if self.blocked_since.load(Ordering::Relaxed) == 0 {
            self.set_blocked_now();
        }
    }

    /// Records a write of accepted bytes.
    pub(super) fn record_write(&self, bytes: usize) {
        let bytes = bytes as u64;
        let is_blocked = self.blocked_since.load(Ordering::Relaxed) != 0;
        // Single bytes do not count as progress.
        if is_blocked && self.accepted_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= WRITE_PROGRESS_BYTES {
            self.set_blocked_now();
        }
        // The next part of an answer. The connection became idle after the flush of the earlier parts.
        if self.current().phase == Phase::Idle && !self.is_multiplexed.load(Ordering::Relaxed) {
            self.change_phase(Phase::Idle, Phase::Sending);
        }
    }

    fn set_blocked_now(&self) {
        self.accepted_bytes.store(0, Ordering::Relaxed);
        self.blocked_since.store(self.now().max(1), Ordering::Relaxed);
    }

    /// Returns true if the client has received almost nothing of its answers for a second, and nothing else happens on
    /// the connection. It may be closed to make room.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        let is_stalled = |since: u64| now.saturating_sub(since) > WRITE_STALL_MS;
        if self.is_multiplexed.load(Ordering::Relaxed) {
            let sending = self.sending.lock();
            let answers = sending.values().sum::<usize>();
            let last_progress = sending.last_key_value().map(|(by, _)| by.saturating_sub(SENDING_STALL_MS));
            // All requests are answered, and no answer makes progress.
            return u32::try_from(answers).is_ok_and(|answers| answers == self.open_requests.load(Ordering::Acquire))
                && last_progress.is_some_and(is_stalled);
        }
        self.current().phase == Phase::Sending && self.blocked_since().is_some_and(is_stalled)
    }

    /// Records the end of the TLS handshake.
    pub(super) fn end_handshake(&self) {
        self.change_phase(Phase::Handshake, Phase::Idle);
    }

    /// The current phase.
    pub(super) fn current(&self) -> PhaseSince {
        decode(self.state.load(Ordering::Acquire))
    }

    /// The time when a write blocked or last made progress; `None` if no write is blocked.
    pub(super) fn blocked_since(&self) -> Option<u64> {
        Some(self.blocked_since.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    /// Returns true if requests are in progress on a multiplexed connection.
    pub(super) fn has_open_requests(&self) -> bool {
        self.open_requests.load(Ordering::Acquire) != 0
    }

    /// Closes the connection, unless its state has changed since `seen`. Returns true if it is closed now.
    pub(super) fn close(&self, seen: PhaseSince) -> bool {
        let seen = seen.since_ms << PHASE_BITS | seen.phase as u64;
        let closed = self.encode(Phase::Closed);
        self.state.compare_exchange(seen, closed, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn now(&self) -> u64 {
        milliseconds(self.base.elapsed())
    }

    fn encode(&self, phase: Phase) -> u64 {
        self.now() << PHASE_BITS | phase as u64
    }

    /// Sets the phase. Returns false if the connection is closed.
    fn set_phase(&self, phase: Phase) -> bool {
        let next = self.encode(phase);
        let update = |word: u64| (decode(word).phase != Phase::Closed).then_some(next);
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, update).is_ok()
    }

    /// Sets the phase to `next`, if it is `previous`.
    fn change_phase(&self, previous: Phase, next: Phase) {
        let next = self.encode(next);
        let update = |word: u64| (decode(word).phase == previous).then_some(next);
        let _ = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    /// Records opening bytes. The lock is uncontended: only the connection's own task takes it.
    fn record_opening(&self, bytes: &[u8], is_first: bool) {
        let mut opening = self.opening.lock();
        if is_first {
            opening.bytes.clear();
            opening.bytes.shrink_to(OPENING_BYTES_KEPT);
            opening.is_taken = false;
        }
        let room = OPENING_BYTES_MAX.saturating_sub(opening.bytes.len());
        opening.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl SendingAnswer {
    /// Records progress and moves the deadline.
    pub fn record_progress(&mut self) {
        let deadline = self.final_deadline.min(self.state.now() + SENDING_STALL_MS);
        if deadline != self.deadline {
            self.remove_deadline();
            self.deadline = deadline;
            *self.state.sending.lock().entry(deadline).or_default() += 1;
        }
    }

    fn remove_deadline(&self) {
        let mut sending = self.state.sending.lock();
        if let Entry::Occupied(mut count) = sending.entry(self.deadline) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Drop for SendingAnswer {
    fn drop(&mut self) {
        self.remove_deadline();
    }
}

impl Drop for EndlessAnswer {
    fn drop(&mut self) {
        self.0.endless_answers.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn decode(word: u64) -> PhaseSince {
    let phase = PHASES.get((word & ((1 << PHASE_BITS) - 1)) as usize).copied().unwrap_or(Phase::Closed);
    PhaseSince { phase, since_ms: word >> PHASE_BITS }
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
        state.record_read(b"POST /w");
        assert_eq!(state.current().phase, Phase::Head);
        state.record_read(b"rite");
        assert!(state.begin_request(true));
        assert_eq!(state.take_opening().unwrap(), b"POST /write");
        assert!(state.take_opening().is_none(), "the opening can be taken only once");
        state.record_read(b"m v=1");
        assert_eq!(state.current().phase, Phase::Body);
        state.record_body_end();
        state.check_idle();
        assert_eq!(state.current().phase, Phase::Answer, "a read does not end the answer");
        state.record_answer();
        state.record_blocked_write();
        state.record_flush(true);
        assert_eq!(state.current().phase, Phase::Sending, "the client blocks the answer");
        assert!(state.blocked_since().is_some());
        state.record_flush(false);
        assert_eq!((state.current().phase, state.blocked_since()), (Phase::Idle, None));
        state.record_write(1);
        assert_eq!(state.current().phase, Phase::Sending, "the next part of the answer");
        state.record_flush(false);
        state.record_read(b"GET");
        assert_eq!(state.take_opening().unwrap(), b"GET");
    }

    #[test]
    fn a_closed_connection_accepts_no_request_and_a_busy_one_stays_open() {
        let state = idle();
        let seen = state.current();
        assert!(state.begin_request(false));
        assert!(!state.close(seen), "a request has begun since");
        state.record_answer();
        state.check_idle();
        assert!(state.close(state.current()));
        assert!(!state.begin_request(false));
        state.record_read(b"x");
        state.record_answer();
        assert_eq!(state.current().phase, Phase::Closed);
    }

    #[test]
    fn a_client_that_receives_almost_nothing_is_stuck() {
        let state = idle();
        assert!(state.begin_request(false));
        state.record_answer();
        state.record_blocked_write();
        let since = state.blocked_since().unwrap();
        assert!(!state.is_stuck(since + WRITE_STALL_MS) && state.is_stuck(since + WRITE_STALL_MS + 1));
        state.record_write(1000);
        assert_eq!(state.blocked_since(), Some(since), "a few bytes are no progress");
        assert!(state.is_stuck(since + WRITE_STALL_MS + 1));
        std::thread::sleep(Duration::from_millis(2));
        state.record_write(64 << 10);
        assert!(state.blocked_since().unwrap() > since);
        state.record_flush(false);
        assert!(!state.is_stuck(u64::MAX), "all is written");
    }

    #[test]
    fn a_multiplexed_client_that_receives_no_answer_is_stuck() {
        let state = Arc::new(idle());
        state.set_multiplexed();
        assert!(state.begin_request(false) && state.begin_request(false));
        let one = state.start_sending(100).unwrap();
        let later = state.now() + SENDING_STALL_MS;
        assert!(!state.is_stuck(later), "a request is still in progress");
        let mut other = state.start_sending(100).unwrap();
        assert!(state.is_stuck(later) && !state.is_stuck(state.now()));
        other.record_progress();
        assert!(!state.is_stuck(state.now() + 1), "one answer has just made progress");
        drop((one, other));
        assert!(!state.is_stuck(later));
    }

    #[test]
    fn requests_on_a_multiplexed_connection_are_counted() {
        let state = idle();
        state.set_multiplexed();
        state.record_read(b"frames");
        assert_eq!(state.current().phase, Phase::Idle);
        assert!(state.begin_request(true) && state.begin_request(false));
        state.end_request();
        assert!(state.has_open_requests() && state.current().phase == Phase::Answer);
        state.end_request();
        assert!(!state.has_open_requests() && state.current().phase == Phase::Idle);
    }
}
