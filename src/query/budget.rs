//! The budget of a request: memory, counted before it is allocated; time; and processor turns of a few milliseconds.
//! All statements of a request share one budget. It covers the answer until its last byte is sent.

mod held;
mod running;
mod slow_log;
mod sort;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

pub use self::held::HeldBytes;
use self::slow_log::SlowLog;
use super::QueryError;
use crate::access::Caller;
use crate::config::QuerySettings;
use crate::faults;
use crate::memory;
use crate::memory::growth::Growth;

/// Time that a query computes before it yields to others.
const SLICE: Duration = Duration::from_millis(2);
/// Maximum number of logged bytes of the text of a query.
const TEXT_BYTES_MAX: usize = 200;

/// The budgets of all requests.
#[derive(Debug)]
pub struct Budgets {
    options: QuerySettings,
    used: AtomicUsize,
    /// The request that may use all of `query.bytes` even if memory is short, or 0. So one at a time can be answered.
    first: AtomicU64,
    /// Shares per token. An entry exists while the token has a running request.
    tokens: Mutex<HashMap<Box<str>, Weak<TokenShare>>>,
    /// Permits for running queries (`query.concurrent`). A paused query has no permit.
    turns: Arc<Semaphore>,
    /// Permits for queries that continue after a pause. There is one fewer than cores, so that one core is free for
    /// short queries.
    long: Arc<Semaphore>,
    /// The running requests by their number.
    running: Mutex<BTreeMap<u64, Weak<RequestBudget>>>,
    requests: AtomicU64,
    slow_log: SlowLog,
}

/// The use of the shares of one token.
#[derive(Debug)]
struct TokenShare {
    bytes: AtomicUsize,
    /// Permits for half of the running queries.
    turns: Arc<Semaphore>,
}

/// The budget of one request. It is cheap to clone, and dropping the last clone releases it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<RequestBudget>);

#[derive(Debug)]
struct RequestBudget {
    budgets: Arc<Budgets>,
    token: Option<Arc<TokenShare>>,
    who: String,
    text: String,
    id: u64,
    /// The requested database, for the list of running queries.
    database: OnceLock<String>,
    killed: Notify,
    began: Instant,
    used: AtomicUsize,
    peak: AtomicUsize,
    read_bytes: AtomicU64,
    read_readings: AtomicU64,
    is_answered: AtomicBool,
    /// The memory that the request holds, in builds for tests.
    growth: Option<Growth>,
    /// Databases whose expired readings the request needed, with the time of their first remaining readings.
    expired: Mutex<BTreeMap<String, i64>>,
    /// Instances that did not answer.
    missing: Mutex<BTreeSet<String>>,
    has_overflowed: AtomicBool,
    turn: Mutex<ComputeTurn>,
}

/// The processor permits of a request.
#[derive(Debug)]
struct ComputeTurn {
    /// Time at which the request pauses.
    slice_end: Instant,
    /// A permit of the token's share.
    share: Option<OwnedSemaphorePermit>,
    turn: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

impl Budgets {
    #[must_use]
    pub fn new(options: QuerySettings) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Semaphore::new(options.concurrent);
        let long = Semaphore::new(cores.saturating_sub(1).max(1));
        Arc::new(Self {
            options,
            used: AtomicUsize::new(0),
            first: AtomicU64::new(0),
            tokens: Mutex::default(),
            turns: Arc::new(turns),
            long: Arc::new(long),
            running: Mutex::default(),
            requests: AtomicU64::new(1),
            slow_log: SlowLog::default(),
        })
    }

    /// Begins a request. If it is slow, the name of the caller and the first 200 bytes of the text are logged.
    #[must_use]
    pub fn begin(self: &Arc<Self>, caller: &Caller, text: &str) -> Budget {
        let token = matches!(caller, Caller::Holder(_)).then(|| self.token_share(caller.name()));
        let now = Instant::now();
        let ends = text.char_indices().map(|(index, c)| index + c.len_utf8());
        let request = Arc::new(RequestBudget {
            budgets: self.clone(),
            token,
            who: caller.name().to_owned(),
            text: text[..ends.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or(0)].to_owned(),
            id: self.requests.fetch_add(1, Ordering::Relaxed),
            database: OnceLock::new(),
            killed: Notify::new(),
            began: now,
            used: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            read_bytes: AtomicU64::new(0),
            read_readings: AtomicU64::new(0),
            is_answered: AtomicBool::new(false),
            growth: Growth::current(),
            expired: Mutex::default(),
            missing: Mutex::default(),
            has_overflowed: AtomicBool::new(false),
            turn: Mutex::new(ComputeTurn { slice_end: now + SLICE, share: None, turn: None, long: None }),
        });
        self.running.lock().insert(request.id, Arc::downgrade(&request));
        Budget(request)
    }

    /// Reserves bytes for a request if there is room in what is left of `query.bytes`, or if it is the first one.
    fn reserve(&self, id: u64, bytes: usize, left: usize) -> bool {
        if add(&self.used, bytes, left) {
            return true;
        }
        let first = self.first.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed);
        (first.is_ok() || first == Err(id)) && add(&self.used, bytes, self.options.bytes)
    }

    fn token_share(&self, name: &str) -> Arc<TokenShare> {
        let mut tokens = self.tokens.lock();
        if let Some(share) = tokens.get(name).and_then(Weak::upgrade) {
            return share;
        }
        tokens.retain(|_, share| share.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.options.concurrent.div_ceil(2)));
        let share = Arc::new(TokenShare { bytes: AtomicUsize::new(0), turns });
        tokens.insert(name.into(), Arc::downgrade(&share));
        share
    }
}

impl Budget {
    /// Reserves bytes before they are allocated.
    ///
    /// # Errors
    /// If the request, its token or all requests together would exceed their limit.
    pub fn hold(&self, bytes: usize) -> Result<HeldBytes, QueryError> {
        let mut held = HeldBytes::none(self.clone());
        held.grow(bytes)?;
        Ok(held)
    }

    fn take(&self, bytes: usize) -> Result<(), QueryError> {
        self.0.check_growth();
        let RequestBudget { budgets, token, used, peak, .. } = &*self.0;
        let QuerySettings { request_bytes, bytes: all_bytes, token_bytes, .. } = budgets.options;
        if !add(used, bytes, request_bytes) {
            return Err(QueryError::TooLarge { limit: request_bytes });
        }
        peak.fetch_max(used.load(Ordering::Relaxed), Ordering::Relaxed);
        if !budgets.reserve(self.0.id, bytes, memory::left_of(all_bytes)) {
            used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::Full { limit: all_bytes });
        }
        if token.as_ref().is_some_and(|token| !add(&token.bytes, bytes, token_bytes)) {
            used.fetch_sub(bytes, Ordering::Relaxed);
            budgets.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(QueryError::TokenFull { limit: token_bytes });
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        let RequestBudget { budgets, token, used, .. } = &*self.0;
        for counter in [used, &budgets.used].into_iter().chain(token.as_ref().map(|token| &token.bytes)) {
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns true if the request holds over a quarter of its memory.
    #[must_use]
    pub fn holds_much(&self) -> bool {
        self.0.used.load(Ordering::Relaxed) > self.0.budgets.options.request_bytes / 4
    }

    /// Records the stored bytes and readings that were read for the request.
    pub fn note_read(&self, bytes: usize, readings: usize) {
        self.0.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.read_readings.fetch_add(readings as u64, Ordering::Relaxed);
    }

    /// Returns the recorded stored bytes and readings.
    #[must_use]
    pub fn amounts_read(&self) -> (u64, u64) {
        (self.0.read_bytes.load(Ordering::Relaxed), self.0.read_readings.load(Ordering::Relaxed))
    }

    /// Records that the request needs expired readings of a database, whose readings begin at `start_ns`.
    pub fn note_expired(&self, database: &str, start_ns: i64) {
        let mut expired = self.0.expired.lock();
        expired.insert(database.to_owned(), start_ns);
    }

    /// Records that the answer may lack what these instances have not stored.
    pub fn note_missing(&self, instances: Vec<String>) {
        if !instances.is_empty() {
            self.0.missing.lock().extend(instances);
        }
    }

    /// Removes and returns the instances recorded by [`Budget::note_missing`].
    #[must_use]
    pub fn take_missing(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.0.missing.lock())
    }

    /// Removes and returns the databases recorded by [`Budget::note_expired`].
    #[must_use]
    pub fn take_expired(&self) -> BTreeMap<String, i64> {
        std::mem::take(&mut self.0.expired.lock())
    }

    /// Records that a result is beyond the range of doubles.
    pub fn note_overflow(&self) {
        self.0.has_overflowed.store(true, Ordering::Relaxed);
    }

    /// Returns true once after [`Budget::note_overflow`].
    #[must_use]
    pub fn take_overflow(&self) -> bool {
        self.0.has_overflowed.swap(false, Ordering::Relaxed)
    }

    /// Returns the time at which the request times out.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.began + self.0.budgets.options.timeout
    }

    /// Awaits an answer until the request times out.
    ///
    /// # Errors
    /// [`QueryError::Timeout`], or [`QueryError::Killed`] by `KILL QUERY`.
    pub async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, QueryError> {
        let limit = self.0.budgets.options.timeout;
        tokio::select! {
            answer = timeout_at(self.deadline(), answer) => answer.map_err(|_| QueryError::Timeout { limit }),
            () = self.0.killed.notified() => Err(QueryError::Killed),
        }
    }

    /// Records the requested database for the list of running queries.
    pub(super) fn note_database(&self, database: &str) {
        self.0.database.get_or_init(|| database.to_owned());
    }

    /// Waits for a permit to run.
    ///
    /// # Errors
    /// If there is none before the deadline, or if earlier statements of the request have used up its time.
    pub(super) async fn wait_for_turn(&self) -> Result<(), QueryError> {
        faults::point("query_begins");
        let Budgets { options, turns, .. } = &*self.0.budgets;
        if Instant::now() >= self.deadline() {
            return Err(QueryError::Timeout { limit: options.timeout });
        }
        let turn = async { (self.0.wait_for_share().await, turns.clone().acquire_owned().await) };
        let turn = timeout_at(self.deadline(), turn).await;
        let Ok((share, Ok(turn))) = turn else { return Err(QueryError::Overloaded { limit: options.concurrent }) };
        let mut state = self.0.turn.lock();
        state.share = share;
        state.turn = Some(turn);
        state.slice_end = Instant::now() + SLICE;
        Ok(())
    }

    /// Awaits something that others may keep for long, such as a client, without the permits of the request.
    ///
    /// # Errors
    /// As [`Budget::pause`].
    pub async fn without_turn<T>(&self, wait: impl Future<Output = T>) -> Result<T, QueryError> {
        self.release_turn();
        let done = wait.await;
        self.yield_turn().await?;
        Ok(done)
    }

    /// Yields to other queries if the slice of the request is used up. Call it every few thousand steps.
    ///
    /// # Errors
    /// If the request has timed out.
    pub async fn pause(&self) -> Result<(), QueryError> {
        self.0.check_growth();
        if Instant::now() < self.0.turn.lock().slice_end { Ok(()) } else { self.yield_turn().await }
    }

    async fn yield_turn(&self) -> Result<(), QueryError> {
        let Budgets { options, turns, long, .. } = &*self.0.budgets;
        let over = || QueryError::Timeout { limit: options.timeout };
        if Instant::now() >= self.deadline() {
            return Err(over());
        }
        self.release_turn();
        tokio::task::yield_now().await;
        // The share is first, so that nobody waits for it with a permit that others need.
        let permits = async {
            let share = self.0.wait_for_share().await;
            let long = long.clone().acquire_owned().await.ok();
            (share, long, turns.clone().acquire_owned().await.ok())
        };
        let (share, long, turn) = timeout_at(self.deadline(), permits).await.map_err(|_| over())?;
        *self.0.turn.lock() = ComputeTurn { slice_end: Instant::now() + SLICE, share, turn, long };
        Ok(())
    }

    /// Awaits the store, and lets another long query compute meanwhile.
    pub async fn waiting<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.turn.lock().long = None;
        let answer = answer.await;
        self.0.turn.lock().slice_end = Instant::now() + SLICE;
        answer
    }

    /// Releases the processor permits until the next turn.
    pub fn release_turn(&self) {
        let mut state = self.0.turn.lock();
        state.share = None;
        state.turn = None;
        state.long = None;
    }

    /// Returns the name of the caller's token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.0.who
    }

    /// Marks the answer as complete, and logs the request if it was slow.
    pub fn finish(&self) {
        self.0.check_growth();
        self.release_turn();
        self.0.end("answered");
    }
}

impl RequestBudget {
    /// Waits for a permit of the token's share of `query.concurrent`.
    async fn wait_for_share(&self) -> Option<OwnedSemaphorePermit> {
        self.token.as_ref()?.turns.clone().acquire_owned().await.ok()
    }

    /// Reports memory that was not charged.
    fn check_growth(&self) {
        let charged = self.peak.load(Ordering::Relaxed);
        if let Some(held) = self.growth.and_then(|growth| growth.excess(charged)) {
            tracing::error!(held, charged, query = self.text, "a query holds memory that its budget was not charged");
        }
    }

    fn end(&self, outcome: &'static str) {
        let took = self.began.elapsed();
        if self.is_answered.swap(true, Ordering::Relaxed) || took < self.budgets.options.log_after {
            return;
        }
        let Some(left_out) = self.budgets.slow_log.admit(Instant::now()) else { return };
        let token = &*self.who;
        let query = &*self.text;
        let seconds = took.as_secs_f64();
        let bytes = self.read_bytes.load(Ordering::Relaxed);
        let readings = self.read_readings.load(Ordering::Relaxed);
        let memory = self.peak.load(Ordering::Relaxed);
        tracing::warn!(
            token,
            query,
            seconds,
            bytes,
            readings,
            memory,
            outcome,
            left_out,
            "slow query (query.log_after)"
        );
    }
}

impl Drop for RequestBudget {
    fn drop(&mut self) {
        let _ = self.budgets.first.compare_exchange(self.id, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.budgets.running.lock().remove(&self.id);
        self.end("given up");
    }
}

/// Adds bytes to a counter unless it would exceed `max`.
fn add(counter: &AtomicUsize, bytes: usize, max: usize) -> bool {
    let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= max);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Regression: one token could hold all turns until its queries timed out.
    #[tokio::test]
    async fn one_token_has_at_most_half_of_the_turns() {
        let options = QuerySettings { concurrent: 4, ..crate::query::options::unbounded_settings() };
        let budgets = Budgets::new(options);
        let begin = |token: &str| {
            let mut request = Arc::into_inner(budgets.begin(&Caller::Anybody, "").0).expect("the only budget");
            request.token = Some(budgets.token_share(token));
            Budget(Arc::new(request))
        };
        let greedy = [(); 3].map(|()| begin("greedy"));
        let has_turn = |budget: &Budget| matches!(budget.wait_for_turn().now_or_never(), Some(Ok(())));
        assert_eq!([0, 1, 2].map(|number| has_turn(&greedy[number])), [true, true, false]);
        let others = ["one", "two", "three"].map(begin);
        assert_eq!([0, 1, 2].map(|number| has_turn(&others[number])), [true, true, false]);
        greedy[0].release_turn();
        assert!(has_turn(&greedy[2]));
    }

    /// Regression: while writes kept the memory at its limit, a quarter of `query.bytes` was left for all queries, and
    /// each of several larger ones was refused.
    #[tokio::test]
    async fn one_request_has_its_whole_share_while_memory_is_short() {
        let budgets = Budgets::new(QuerySettings { bytes: 100, ..crate::query::options::unbounded_settings() });
        let request = || budgets.begin(&Caller::Anybody, "");
        let small = request();
        let large = request();
        let other = request();
        let has_room = |request: &Budget, bytes| budgets.reserve(request.0.id, bytes, 25);
        assert!(has_room(&small, 10) && has_room(&large, 60) && has_room(&large, 20));
        assert!(!has_room(&other, 60) && !has_room(&large, 20));
        budgets.used.fetch_sub(80, Ordering::Relaxed);
        drop(large);
        assert!(has_room(&other, 60));
    }

    /// Regression: later statements of a request without time left failed with "too many queries" if no permit was
    /// free, and ran otherwise. Both must be a timeout.
    #[tokio::test]
    async fn a_request_whose_time_is_over_has_no_turn() {
        for concurrent in [0, 1] {
            let options =
                QuerySettings { concurrent, timeout: Duration::ZERO, ..crate::query::options::unbounded_settings() };
            let budgets = Budgets::new(options);
            let turn = budgets.begin(&Caller::Anybody, "").wait_for_turn().await;
            assert!(matches!(turn, Err(QueryError::Timeout { .. })), "{concurrent}: {turn:?}");
        }
    }
}
