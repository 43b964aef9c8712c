//! Live readings for the tail. While there are listeners, each request copies its readings, and the WAL's callback adds
//! the copy to a ring of recent records once the request is durable. Each listener reads the ring at its own pace.
//! Without listeners, the cost is one atomic load per request.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::buffer::record::batch::Batch;
use crate::catalog::{Database, KnownSensor};
use crate::config::TailSettings;
use crate::reading::Value;
use crate::wal::Sequence;

/// Time for which the ring is still filled after the last listener has left, so that it can reconnect without a gap.
const LINGER: Duration = Duration::from_secs(60);

/// The recent acked readings and their listeners.
#[derive(Debug)]
pub struct Tail {
    /// Maximum number of listeners (`tail.clients`).
    clients_max: usize,
    /// Maximum bytes of memory of the ring.
    ring_bytes: usize,
    /// True while readings are copied.
    active: AtomicBool,
    ring: Mutex<Ring>,
    /// The position after the newest record.
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<(Sequence, Arc<TailRecord>)>,
    /// The position of the first record.
    first: u64,
    bytes: usize,
    listeners: usize,
    /// The listeners of each token.
    by_token: HashMap<Box<str>, usize>,
    /// The time at which the last listener left.
    last_left: Option<Instant>,
}

/// The readings of one request, grouped by shard, and within a shard in the order of the request.
#[derive(Debug)]
pub struct TailRecord {
    /// The database, with its retention policy.
    pub database: Box<str>,
    /// True if the readings did not fit into memory. The record has no readings then.
    pub is_cut: bool,
    batches: Vec<Batch>,
    bytes: usize,
}

/// A reading of a [`TailRecord`].
pub struct TailReading<'a> {
    /// The index of the reading in the record.
    pub number: usize,
    pub known: &'a KnownSensor,
    /// In nanoseconds since the epoch.
    pub time: i64,
    cells: &'a [(u16, Value)],
}

/// The position of a reading: the sequence of its record and its index there. Its text is the id of a server-sent
/// event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailPosition {
    pub sequence: Sequence,
    pub number: usize,
}

/// One listener.
#[derive(Debug)]
pub struct Listener {
    tail: Arc<Tail>,
    /// The name of its token, if it has one.
    token: Option<Box<str>>,
    /// The position of the next record. `None` if records from before the ring were missed.
    next: Option<u64>,
    news: watch::Receiver<u64>,
}

/// The next item for a listener.
pub enum TailItem {
    Record(Sequence, Arc<TailRecord>),
    /// Some records were missed, because the ring has already dropped them.
    Missed,
}

/// A limit on listeners is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooManyListeners {
    #[error("{limit} clients listen already (tail.clients): try again later")]
    All { limit: usize },
    #[error("{limit} clients with this token listen already (half of tail.clients): try again later")]
    OfToken { limit: usize },
}

impl Tail {
    #[must_use]
    pub fn new(settings: &TailSettings) -> Arc<Self> {
        Arc::new(Self {
            clients_max: settings.clients,
            ring_bytes: settings.bytes / 2,
            active: AtomicBool::new(false),
            ring: Mutex::default(),
            news: watch::channel(0).0,
        })
    }

    /// Adds a listener with a token of this name. It starts with the record of the reading `last_seen`, or with [`TailItem::Missed`] if the ring
    /// no longer has that record. Without `last_seen`, it starts with the next acked request.
    ///
    /// # Errors
    /// If `tail.clients` is reached, or the token has half of them.
    pub fn listen(
        self: &Arc<Self>,
        token: Option<&str>,
        last_seen: Option<TailPosition>,
    ) -> Result<Listener, TooManyListeners> {
        let mut ring = self.ring.lock();
        if ring.listeners >= self.clients_max {
            return Err(TooManyListeners::All { limit: self.clients_max });
        }
        let share = self.clients_max.div_ceil(2);
        if let Some(token) = token {
            let of_token = ring.by_token.entry(token.into()).or_default();
            if *of_token >= share {
                return Err(TooManyListeners::OfToken { limit: share });
            }
            *of_token += 1;
        }
        ring.listeners += 1;
        self.active.store(true, Ordering::Relaxed);
        let end = ring.first + ring.records.len() as u64;
        let next = match last_seen {
            None => Some(end),
            Some(TailPosition { sequence, .. }) => {
                let before = ring.records.partition_point(|(known, _)| *known < sequence);
                let is_kept = ring.records.get(before).is_some_and(|(known, _)| *known == sequence);
                is_kept.then_some(ring.first + before as u64)
            }
        };
        Ok(Listener { tail: self.clone(), token: token.map(Into::into), next, news: self.news.subscribe() })
    }

    /// Copies the readings of a request, if there are listeners.
    #[must_use]
    pub fn copy(&self, database: &Database, batches: &[Batch]) -> Option<TailRecord> {
        if !self.active.load(Ordering::Relaxed) || self.is_deserted() {
            return None;
        }
        Some(TailRecord::new(&database.name, batches, self.ring_bytes))
    }

    /// Adds the copy of a durable record to the ring, and wakes the listeners. Must be called in WAL order.
    pub fn publish(&self, sequence: Sequence, record: TailRecord) {
        let mut ring = self.ring.lock();
        ring.bytes += record.bytes;
        ring.records.push_back((sequence, Arc::new(record)));
        while ring.bytes > self.ring_bytes {
            let Some((_, oldest)) = ring.records.pop_front() else { break };
            ring.bytes -= oldest.bytes;
            ring.first += 1;
        }
        self.news.send_replace(ring.first + ring.records.len() as u64);
    }

    /// Returns true, and empties the ring, if there have been no listeners for [`LINGER`].
    fn is_deserted(&self) -> bool {
        let mut ring = self.ring.lock();
        if ring.listeners > 0 || ring.last_left.is_none_or(|left| left.elapsed() < LINGER) {
            return false;
        }
        self.active.store(false, Ordering::Relaxed);
        // Never reuse a position, so that a listener does not mistake a later record for an earlier one.
        ring.first += ring.records.len() as u64;
        ring.records = VecDeque::new();
        ring.bytes = 0;
        true
    }
}

impl Listener {
    /// Waits for the next record. Cancellation-safe.
    pub async fn next(&mut self) -> TailItem {
        loop {
            {
                let ring = self.tail.ring.lock();
                let Some(offset) = self.next.and_then(|next| next.checked_sub(ring.first)) else {
                    self.next = Some(ring.first);
                    return TailItem::Missed;
                };
                let index = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some((sequence, record)) = ring.records.get(index) {
                    self.next = Some(ring.first + offset + 1);
                    return TailItem::Record(*sequence, record.clone());
                }
                self.news.mark_unchanged();
            }
            // The sender lives as long as `tail`.
            let _ = self.news.changed().await;
        }
    }

    /// Waits until the ring has dropped the record that [`Listener::next`] returned last. Cancellation-safe.
    pub async fn wait_passed(&mut self) {
        loop {
            {
                let ring = self.tail.ring.lock();
                if self.next.is_none_or(|next| next <= ring.first) {
                    return;
                }
                self.news.mark_unchanged();
            }
            // The sender lives as long as `tail`.
            let _ = self.news.changed().await;
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut ring = self.tail.ring.lock();
        ring.listeners -= 1;
        if let Some(token) = &self.token
            && let Some(of_token) = ring.by_token.get_mut(token)
        {
            *of_token -= 1;
            if *of_token == 0 {
                ring.by_token.remove(token);
            }
        }
        if ring.listeners == 0 {
            ring.last_left = Some(Instant::now());
        }
    }
}

impl TailRecord {
    fn new(database: &str, batches: &[Batch], bytes_max: usize) -> Self {
        let bytes = size_of::<Self>() + batches.iter().map(Batch::memory).sum::<usize>();
        if bytes > bytes_max {
            return Self::cut(database);
        }
        Self { database: database.into(), is_cut: false, batches: batches.to_vec(), bytes }
    }

    /// Returns a record without its readings, for which there is no room.
    fn cut(database: &str) -> Self {
        Self { database: database.into(), is_cut: true, batches: Vec::new(), bytes: size_of::<Self>() }
    }

    /// Returns the bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the readings, and marks the record as cut.
    #[must_use]
    pub fn without_readings(self) -> Self {
        Self::cut(&self.database)
    }

    pub fn readings(&self) -> impl Iterator<Item = TailReading<'_>> {
        let rows = self.batches.iter().flat_map(|batch| {
            batch.readings().map(move |reading| (&*batch.sensors[reading.sensor as usize], reading.time, reading.cells))
        });
        rows.enumerate().map(|(number, (known, time, cells))| TailReading { number, known, time, cells })
    }
}

impl TailReading<'_> {
    /// Calls `take` with the name and value of each field.
    pub fn for_each_field(&self, mut take: impl FnMut(&str, &Value)) {
        // The index of a field never changes once a reading with it is logged.
        let fields = self.known.fields();
        for (field, value) in self.cells {
            if let Some(name) = fields.names.get(usize::from(*field)) {
                take(name, value);
            }
        }
    }
}

impl std::fmt::Display for TailPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{:x}", self.sequence, self.number)
    }
}

impl TailPosition {
    /// Parses the id of a server-sent event.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (sequence, number) = text.trim().split_once('-')?;
        let number = usize::from_str_radix(number, 16).ok()?;
        Some(Self { sequence: Sequence::from_str_radix(sequence, 16).ok()?, number })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    fn tail(clients: usize, ring_bytes: usize) -> Arc<Tail> {
        Tail::new(&TailSettings { clients, bytes: 2 * ring_bytes })
    }

    fn record(bytes: usize) -> TailRecord {
        TailRecord { bytes, ..TailRecord::cut("db") }
    }

    async fn heard(listener: &mut Listener) -> Option<Sequence> {
        match listener.next().await {
            TailItem::Record(sequence, _) => Some(sequence),
            TailItem::Missed => None,
        }
    }

    /// Regression: one token could take all places.
    #[test]
    fn a_token_gets_half_of_the_places() {
        let tail = tail(4, 1000);
        let mut first: Vec<Listener> = (0..2).map(|_| tail.listen(Some("a"), None).unwrap()).collect();
        assert_eq!(tail.listen(Some("a"), None).unwrap_err(), TooManyListeners::OfToken { limit: 2 });
        let _other = tail.listen(Some("b"), None).unwrap();
        first.pop();
        assert!(tail.listen(Some("a"), None).is_ok());
    }

    #[tokio::test]
    async fn each_listener_hears_every_record_once_and_in_order() {
        let tail = tail(2, 1000);
        let mut one = tail.listen(None, None).unwrap();
        let mut two = tail.listen(None, None).unwrap();
        assert_eq!(tail.listen(None, None).unwrap_err(), TooManyListeners::All { limit: 2 });
        (1..=3).for_each(|sequence| tail.publish(sequence, record(10)));
        for sequence in 1..=3 {
            assert_eq!(heard(&mut one).await, Some(sequence));
            assert_eq!(heard(&mut two).await, Some(sequence));
        }
        drop(one);
        let mut late = tail.listen(None, None).unwrap();
        tail.publish(4, record(10));
        assert_eq!((heard(&mut late).await, heard(&mut two).await), (Some(4), Some(4)));
    }

    #[tokio::test]
    async fn a_slow_listener_gets_missed_and_continues_with_the_rest() {
        let tail = tail(1, 100);
        let mut slow = tail.listen(None, None).unwrap();
        (1..=20).for_each(|sequence| tail.publish(sequence, record(10)));
        assert_eq!(heard(&mut slow).await, None);
        for sequence in 11..=20 {
            assert_eq!(heard(&mut slow).await, Some(sequence));
        }
    }

    #[tokio::test]
    async fn a_record_is_passed_once_the_ring_does_not_hold_it() {
        let tail = tail(1, 100);
        let mut slow = tail.listen(None, None).unwrap();
        (1..=10).for_each(|sequence| tail.publish(sequence, record(10)));
        assert_eq!(heard(&mut slow).await, Some(1));
        let mut passed = std::pin::pin!(slow.wait_passed());
        let mut poll = || passed.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending(), "the ring has room for ten");
        tail.publish(11, record(10));
        assert!(poll().is_ready());
    }

    #[tokio::test]
    async fn a_returning_listener_continues_or_gets_missed() {
        let tail = tail(1, 100);
        drop(tail.listen(None, None).unwrap());
        (1..=20).for_each(|sequence| tail.publish(sequence * 10, record(10)));
        let at = |sequence| Some(TailPosition { sequence, number: 0 });
        let mut again = tail.listen(None, at(150)).unwrap();
        // The record of the last reading is repeated, because it may have more readings.
        assert_eq!((heard(&mut again).await, heard(&mut again).await), (Some(150), Some(160)));
        drop(again);
        for unknown in [0, 100, 155, 999] {
            let mut again = tail.listen(None, at(unknown)).unwrap();
            assert_eq!((heard(&mut again).await, heard(&mut again).await), (None, Some(110)), "{unknown}");
        }
        let mut fresh = super::tests::tail(1, 100).listen(None, at(5)).unwrap();
        assert_eq!(heard(&mut fresh).await, None, "nothing was kept");
    }

    #[test]
    fn places_round_trip_through_text() {
        let place = TailPosition { sequence: 0x19f0_0000_0000_002a, number: 77 };
        assert_eq!(TailPosition::parse(&place.to_string()), Some(place));
        for wrong in ["", "-", "1", "1-", "x-1", "1-x", "1-2-3", "10000000000000000-1"] {
            assert_eq!(TailPosition::parse(wrong), None, "{wrong}");
        }
    }
}
