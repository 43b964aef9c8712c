//! The budget of a request: memory, counted before it is allocated; time; and processor turns of a few milliseconds.
//! All statements of a request share one budget, which also covers the answer until its last byte is sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::QueryError;
use crate::access::Caller;
use crate::config::QuerySettings;

/// How long a query computes before it yields to others.
const SLICE: Duration = Duration::from_millis(2);
/// How many bytes of the query's text are logged.
const TEXT_BYTES: usize = 200;

/// The budgets of all requests.
#[derive(Debug)]
pub struct Budgets {
    options: QuerySettings,
    used: AtomicUsize,
    /// Bytes in use per token; an entry lives as long as the token has a request running.
    tokens: Mutex<HashMap<Box<str>, Weak<AtomicUsize>>>,
    /// Permits for running queries (`query.concurrent`). A query that paused has returned its permit.
    turns: Arc<Semaphore>,
    /// Permits for queries that continue after a pause: one fewer than there are cores, which keeps one core for short
    /// queries.
    long: Arc<Semaphore>,
}

/// One request's budget. Cheap to clone; the last clone to be dropped returns it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<RequestBudget>);

#[derive(Debug)]
struct RequestBudget {
    all: Arc<Budgets>,
    token: Option<Arc<AtomicUsize>>,
    who: String,
    text: String,
    began: Instant,
    used: AtomicUsize,
    most: AtomicUsize,
    read_bytes: AtomicU64,
    read_readings: AtomicU64,
    is_answered: AtomicBool,
    /// Where the request needed readings that have expired: databases, with the time from which on they have readings.
    expired: Mutex<BTreeMap<String, i64>>,
    turn: Mutex<ComputeTurn>,
}

/// The processor permits of a request.
#[derive(Debug)]
struct ComputeTurn {
    /// The request pauses after this.
    until: Instant,
    turn: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

/// Reserved bytes, returned on drop.
#[derive(Debug)]
pub struct HeldBytes {
    budget: Budget,
    bytes: usize,
}

impl Budgets {
    #[must_use]
    pub fn new(options: QuerySettings) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (turns, long) = (Semaphore::new(options.concurrent), Semaphore::new(cores.saturating_sub(1).max(1)));
        Arc::new(Self {
            options,
            used: AtomicUsize::new(0),
            tokens: Mutex::default(),
            turns: Arc::new(turns),
            long: Arc::new(long),
        })
    }

    /// Begins a request. The caller's name and the text (its first 200 bytes) are logged if the request is slow.
    #[must_use]
    pub fn begin(self: &Arc<Self>, by: &Caller, text: &str) -> Budget {
        let token = matches!(by, Caller::Holder(_)).then(|| self.of_token(by.name()));
        let now = Instant::now();
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        Budget(Arc::new(RequestBudget {
            all: self.clone(),
            token,
            who: by.name().to_owned(),
            text: text[..ends.take_while(|end| *end <= TEXT_BYTES).last().unwrap_or(0)].to_owned(),
            began: now,
            used: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            read_bytes: AtomicU64::new(0),
            read_readings: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            expired: Mutex::default(),
            turn: Mutex::new(ComputeTurn { until: now + SLICE, turn: None, long: None }),
        }))
    }

    fn of_token(&self, name: &str) -> Arc<AtomicUsize> {
        let mut tokens = self.tokens.lock();
        if let Some(used) = tokens.get(name).and_then(Weak::upgrade) {
            return used;
        }
        tokens.retain(|_, used| used.strong_count() > 0);
        let used = Arc::new(AtomicUsize::new(0));
        tokens.insert(name.into(), Arc::downgrade(&used));
        used
    }
}

impl Budget {
    /// Reserves bytes before they are allocated.
    ///
    /// # Errors
    /// If the request, its token or all requests together would exceed their limit.
    pub fn hold(&self, bytes: usize) -> Result<HeldBytes, QueryError> {
        let mut held = HeldBytes { budget: self.clone(), bytes: 0 };
        held.grow(bytes)?;
        Ok(held)
    }

    fn take(&self, bytes: usize) -> Result<(), QueryError> {
        let RequestBudget { all, token, used, most, .. } = &*self.0;
        let QuerySettings { request_bytes, bytes: all_bytes, token_bytes, .. } = all.options;
        if !add(used, bytes, request_bytes) {
            return Err(QueryError::TooLarge { limit: request_bytes });
        }
        most.fetch_max(used.load(Ordering::Relaxed), Ordering::Relaxed);
        if !add(&all.used, bytes, all_bytes) {
            used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::Full { limit: all_bytes });
        }
        if token.as_ref().is_some_and(|token| !add(token, bytes, token_bytes)) {
            used.fetch_sub(bytes, Ordering::Relaxed);
            all.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::TokenFull { limit: token_bytes });
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        let RequestBudget { all, token, used, .. } = &*self.0;
        for counter in [used, &all.used].into_iter().chain(token.as_deref()) {
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Records what was read for the request: stored bytes and readings.
    pub fn note_read(&self, bytes: usize, readings: usize) {
        self.0.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.read_readings.fetch_add(readings as u64, Ordering::Relaxed);
    }

    /// Records that the request needs readings of a database that have expired: it has readings from this time on.
    pub fn note_expired(&self, database: &str, from: i64) {
        let mut expired = self.0.expired.lock();
        expired.insert(database.to_owned(), from);
    }

    /// Removes and returns what was recorded of expired readings.
    #[must_use]
    pub fn take_expired(&self) -> BTreeMap<String, i64> {
        std::mem::take(&mut self.0.expired.lock())
    }

    /// When the request times out.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.began + self.0.all.options.timeout
    }

    /// Awaits an answer until the request times out.
    ///
    /// # Errors
    /// [`QueryError::Timeout`]
    pub async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, QueryError> {
        let limit = self.0.all.options.timeout;
        timeout_at(self.deadline(), answer).await.map_err(|_| QueryError::Timeout { limit })
    }

    /// Waits for a permit to run.
    ///
    /// # Errors
    /// If there is none before the deadline, or if earlier statements of the request have used up its time.
    pub(super) async fn turn(&self) -> Result<(), QueryError> {
        let Budgets { options, turns, .. } = &*self.0.all;
        if Instant::now() >= self.deadline() {
            return Err(QueryError::Timeout { limit: options.timeout });
        }
        let turn = timeout_at(self.deadline(), turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(QueryError::Overloaded { limit: options.concurrent }) };
        let mut state = self.0.turn.lock();
        (state.turn, state.until) = (Some(turn), Instant::now() + SLICE);
        Ok(())
    }

    /// Yields to other queries once the request's slice of time is used up. Call it every few thousand steps.
    ///
    /// # Errors
    /// If the request has timed out.
    pub async fn pause(&self) -> Result<(), QueryError> {
        if Instant::now() < self.0.turn.lock().until { Ok(()) } else { self.go_on_later().await }
    }

    async fn go_on_later(&self) -> Result<(), QueryError> {
        let Budgets { options, turns, long, .. } = &*self.0.all;
        let over = || QueryError::Timeout { limit: options.timeout };
        if Instant::now() >= self.deadline() {
            return Err(over());
        }
        self.rest();
        tokio::task::yield_now().await;
        let turns = async { (long.clone().acquire_owned().await, turns.clone().acquire_owned().await) };
        let (long, turn) = timeout_at(self.deadline(), turns).await.map_err(|_| over())?;
        *self.0.turn.lock() = ComputeTurn { until: Instant::now() + SLICE, turn: turn.ok(), long: long.ok() };
        Ok(())
    }

    /// Awaits the store; another long query may compute meanwhile.
    pub async fn waiting<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.turn.lock().long = None;
        let answer = answer.await;
        self.0.turn.lock().until = Instant::now() + SLICE;
        answer
    }

    /// Runs work that cannot pause, such as sorting. Above 50,000 steps the runtime moves this thread's other tasks to
    /// another thread.
    pub fn at_length<T>(&self, steps: usize, work: impl FnOnce() -> T) -> T {
        let has_threads = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
        if steps > 50_000 && has_threads() { tokio::task::block_in_place(work) } else { work() }
    }

    /// Returns the processor permits until the next turn or pause.
    pub fn rest(&self) {
        let mut state = self.0.turn.lock();
        (state.turn, state.long) = (None, None);
    }

    /// The name of the caller's token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.0.who
    }

    /// Notes that the answer is complete, and logs the request if it was slow.
    pub fn answered(&self) {
        self.rest();
        self.0.end("answered");
    }
}

impl RequestBudget {
    fn end(&self, outcome: &'static str) {
        let took = self.began.elapsed();
        if self.is_answered.swap(true, Ordering::Relaxed) || took < self.all.options.log_after {
            return;
        }
        let (token, query, seconds) = (&*self.who, &*self.text, took.as_secs_f64());
        let (bytes, readings) = (self.read_bytes.load(Ordering::Relaxed), self.read_readings.load(Ordering::Relaxed));
        let memory = self.most.load(Ordering::Relaxed);
        tracing::warn!(token, query, seconds, bytes, readings, memory, outcome, "slow query (query.log_after)");
    }
}

impl Drop for RequestBudget {
    fn drop(&mut self) {
        self.end("given up");
    }
}

impl HeldBytes {
    /// Reserves more.
    ///
    /// # Errors
    /// As [`Budget::hold`].
    pub fn grow(&mut self, bytes: usize) -> Result<(), QueryError> {
        if bytes > 0 {
            self.budget.take(bytes)?;
            self.bytes += bytes;
        }
        Ok(())
    }

    /// Changes the reservation to exactly this many bytes.
    ///
    /// # Errors
    /// As [`Budget::hold`].
    pub fn set(&mut self, bytes: usize) -> Result<(), QueryError> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.grow(more),
            None => {
                self.budget.give_back(self.bytes - bytes);
                self.bytes = bytes;
                Ok(())
            }
        }
    }

    /// Takes over another reservation of the same budget.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

fn add(counter: &AtomicUsize, bytes: usize, most: usize) -> bool {
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= most);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Later statements of a request that had used up its time failed with "too many queries" if no permit was free,
    /// and ran if one was. Both must be a timeout.
    #[tokio::test]
    async fn a_request_whose_time_is_over_has_no_turn() {
        for concurrent in [0, 1] {
            let options = QuerySettings { concurrent, timeout: Duration::ZERO, ..crate::query::options::of_tests() };
            let budgets = Budgets::new(options);
            let turn = budgets.begin(&Caller::Anybody, "").turn().await;
            assert!(matches!(turn, Err(QueryError::Timeout { .. })), "{concurrent}: {turn:?}");
        }
    }
}
