//! How far a connection is, told by whoever serves it and read by whoever has to make room. One word that both
//! change by compare-and-swap: a request that has begun is never cut off, and nothing begins on a connection that
//! was given up. Costs a clock read and two such swaps per request, and no timer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A body that has come so much further moves.
const MOVES_BYTES: u32 = 1024;
/// Most bytes of an opening that are kept.
const OPENING_BYTES: usize = 64 << 10;
/// An opening's memory that is kept for the next one.
const OPENING_KEPT: usize = 4 << 10;

/// An answer that is looked after has so many bytes; it leaves by so many a second, and so many milliseconds more.
const SMALL_BYTES: u64 = 64 << 10;
const SENDING_RATE: u64 = 64 << 10;
const SENDING_GRACE: u64 = 10_000;
/// Milliseconds in which something of it has to leave: a client of that rate empties a third of the kernel's buffer.
const SENDING_STILL: u64 = 30_000;

/// What a connection is waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The TLS handshake.
    Handshake,
    /// A request's first byte.
    Idle,
    /// The rest of a request's head.
    Head,
    /// A request's body, which began or moved at the phase's time.
    Body,
    /// Ourselves.
    Answer,
    /// The answer's way out.
    Sending,
    /// Nothing any more.
    Closed,
}

const PHASES: [Phase; 7] =
    [Phase::Handshake, Phase::Idle, Phase::Head, Phase::Body, Phase::Answer, Phase::Sending, Phase::Closed];
/// Bits of the phase in the word; the rest are milliseconds.
const PHASE_BITS: u32 = 3;

/// How far one connection is.
#[derive(Debug)]
pub struct Watch {
    /// The moment that times are counted from.
    base: Instant,
    /// The phase and since when.
    state: AtomicU64,
    /// Bytes of a body since it was last taken for moving.
    moved: AtomicU32,
    /// Since when writing waits for the other end; 0 while it does not.
    writing: AtomicU64,
    /// Whether several requests may be under way at once.
    multiplexed: AtomicBool,
    /// How many are, where several may.
    running: AtomicU32,
    opening: Mutex<Opening>,
    /// When large answers that are on their way must have left, and how many of them at each moment.
    sending: Mutex<BTreeMap<u64, usize>>,
}

/// A large answer on its way out.
#[derive(Debug)]
pub struct Sending {
    watch: Arc<Watch>,
    /// When all of it must have left.
    last: u64,
    /// Until when something of it must.
    by: u64,
}

/// The bytes with which a request began.
#[derive(Debug, Default)]
struct Opening {
    bytes: Vec<u8>,
    /// Whether they were asked for already, or began before they were looked at.
    stale: bool,
}

impl Watch {
    pub(super) fn new(base: Instant, phase: Phase) -> Self {
        let watch = Self {
            base,
            state: AtomicU64::new(0),
            moved: AtomicU32::new(0),
            writing: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            running: AtomicU32::new(0),
            opening: Mutex::default(),
            sending: Mutex::default(),
        };
        watch.state.store(watch.word(phase), Ordering::Relaxed);
        watch
    }

    /// From now on several requests may be under way at once: those that are, are counted, and bytes mean nothing.
    pub fn multiplex(&self) {
        self.multiplexed.store(true, Ordering::Relaxed);
    }

    /// A request begins, of which a body is still to come or not. False when the connection is given up: then
    /// nothing of the request may be done.
    #[must_use]
    pub fn begin(&self, body: bool) -> bool {
        if self.multiplexed.load(Ordering::Relaxed) {
            self.running.fetch_add(1, Ordering::AcqRel);
            return self.turn(Phase::Answer);
        }
        self.turn(if body { Phase::Body } else { Phase::Answer })
    }

    /// All of the body is there, or nobody waits for it any more.
    pub fn body_is_in(&self) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            self.turn_from(Phase::Body, Phase::Answer);
        }
    }

    /// The answer is made; where one request follows the other it is on its way out.
    pub fn answered(&self) {
        if !self.multiplexed.load(Ordering::Relaxed) {
            self.turn(Phase::Sending);
        }
    }

    /// An answer of so many bytes begins to leave, of which memory is held until it has: a client that takes it too slowly
    /// loses its connection. Small ones are not looked after.
    pub fn sends(self: &Arc<Self>, bytes: u64) -> Option<Sending> {
        if bytes < SMALL_BYTES {
            return None;
        }
        let last = self.now() + SENDING_GRACE + bytes * 1000 / SENDING_RATE;
        let by = last.min(self.now() + SENDING_STILL);
        *self.sending().entry(by).or_default() += 1;
        Some(Sending { watch: self.clone(), last, by })
    }

    /// Whether an answer should have left by now.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.sending().first_key_value().is_some_and(|(by, _)| *by < now)
    }

    /// Where several requests may be under way: something of an answer moved.
    pub fn moved(&self) {
        self.turn(Phase::Answer);
    }

    /// Where several requests may be under way: the answer to one has left.
    pub fn ended(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.turn(Phase::Idle);
        }
    }

    /// The bytes that came since nothing was under way, from a request's first one on. `None` where they are not
    /// known to begin with one: the request came behind another one, or they were asked for before.
    pub fn opening(&self) -> Option<Vec<u8>> {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut opening.stale, true)).then(|| std::mem::take(&mut opening.bytes))
    }

    /// Called before each read, and when nothing is left to be written: who serves may not read again before more
    /// bytes have come.
    pub(super) fn rests(&self) {
        if self.phase().0 == Phase::Sending && self.writing.load(Ordering::Relaxed) == 0 {
            self.turn_from(Phase::Sending, Phase::Idle);
        }
    }

    /// Bytes came.
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
                // A byte now and then is no movement.
                let came = u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(MOVES_BYTES);
                if self.moved.fetch_add(came, Ordering::Relaxed) + came >= MOVES_BYTES {
                    self.moved.store(0, Ordering::Relaxed);
                    self.turn_from(Phase::Body, Phase::Body);
                }
            }
            _ => {}
        }
    }

    /// All that was written has left, or has to wait.
    pub(super) fn flushed(&self, waits: bool) {
        if waits {
            self.wrote(true);
        } else {
            if self.writing.load(Ordering::Relaxed) != 0 {
                self.writing.store(0, Ordering::Relaxed);
            }
            self.rests();
        }
    }

    /// Bytes were written, or have to wait.
    pub(super) fn wrote(&self, waits: bool) {
        if !waits {
            if self.writing.load(Ordering::Relaxed) != 0 {
                self.writing.store(0, Ordering::Relaxed);
            }
            // The next part of an answer of which all that there was had left.
            if self.phase().0 == Phase::Idle && !self.multiplexed.load(Ordering::Relaxed) {
                self.turn_from(Phase::Idle, Phase::Sending);
            }
        } else if self.writing.load(Ordering::Relaxed) == 0 {
            self.writing.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    pub(super) fn handshaken(&self) {
        self.turn_from(Phase::Handshake, Phase::Idle);
    }

    /// The phase and since when, in milliseconds.
    pub(super) fn phase(&self) -> (Phase, u64) {
        parts(self.state.load(Ordering::Acquire))
    }

    /// Since when writing waits.
    pub(super) fn writing_since(&self) -> Option<u64> {
        Some(self.writing.load(Ordering::Relaxed)).filter(|since| *since != 0)
    }

    pub(super) fn running(&self) -> bool {
        self.running.load(Ordering::Acquire) != 0
    }

    /// Gives the connection up, unless it is no longer where it was seen.
    pub(super) fn close(&self, seen: (Phase, u64)) -> bool {
        let seen = seen.1 << PHASE_BITS | seen.0 as u64;
        let closed = self.word(Phase::Closed);
        self.state.compare_exchange(seen, closed, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Milliseconds since the base.
    pub(super) fn now(&self) -> u64 {
        milliseconds(self.base.elapsed())
    }

    fn sending(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, phase: Phase) -> u64 {
        self.now() << PHASE_BITS | phase as u64
    }

    /// To a phase from any but the last one.
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

    /// An uncontended lock: only the connection's own task takes it.
    fn keep(&self, bytes: &[u8], first: bool) {
        let mut opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if first {
            opening.bytes.clear();
            opening.bytes.shrink_to(OPENING_KEPT);
            opening.stale = false;
        }
        let room = OPENING_BYTES.saturating_sub(opening.bytes.len());
        opening.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl Sending {
    /// Something of it leaves.
    pub fn moved(&mut self) {
        let by = self.last.min(self.watch.now() + SENDING_STILL);
        if by != self.by {
            self.forget();
            self.by = by;
            *self.watch.sending().entry(by).or_default() += 1;
        }
    }

    fn forget(&self) {
        let mut sending = self.watch.sending();
        if let Entry::Occupied(mut count) = sending.entry(self.by) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.forget();
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

    fn idle() -> Watch {
        Watch::new(Instant::now(), Phase::Idle)
    }

    #[test]
    fn a_request_goes_through_its_phases() {
        let watch = idle();
        watch.read(b"POST /w");
        assert_eq!(watch.phase().0, Phase::Head);
        watch.read(b"rite");
        assert!(watch.begin(true));
        assert_eq!(watch.opening().unwrap(), b"POST /write");
        assert!(watch.opening().is_none(), "it is the first request's alone");
        watch.read(b"m v=1");
        assert_eq!(watch.phase().0, Phase::Body);
        watch.body_is_in();
        watch.rests();
        assert_eq!(watch.phase().0, Phase::Answer, "reading on means nothing while it is answered");
        watch.answered();
        watch.wrote(true);
        watch.flushed(true);
        assert_eq!(watch.phase().0, Phase::Sending, "the answer waits for the other end");
        assert!(watch.writing_since().is_some());
        watch.flushed(false);
        assert_eq!((watch.phase().0, watch.writing_since()), (Phase::Idle, None));
        watch.wrote(false);
        assert_eq!(watch.phase().0, Phase::Sending, "another part of it");
        watch.flushed(false);
        watch.read(b"GET");
        assert_eq!(watch.opening().unwrap(), b"GET");
    }

    #[test]
    fn nothing_begins_on_what_was_given_up_and_what_began_is_not_given_up() {
        let watch = idle();
        let seen = watch.phase();
        assert!(watch.begin(false));
        assert!(!watch.close(seen), "a request has begun since it was seen");
        watch.answered();
        watch.rests();
        assert!(watch.close(watch.phase()));
        assert!(!watch.begin(false));
        watch.read(b"x");
        watch.answered();
        assert_eq!(watch.phase().0, Phase::Closed);
    }

    #[test]
    fn several_requests_are_counted() {
        let watch = idle();
        watch.multiplex();
        watch.read(b"frames");
        assert_eq!(watch.phase().0, Phase::Idle);
        assert!(watch.begin(true) && watch.begin(false));
        watch.ended();
        assert!(watch.running() && watch.phase().0 == Phase::Answer);
        watch.ended();
        assert!(!watch.running() && watch.phase().0 == Phase::Idle);
    }
}
