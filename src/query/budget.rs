//! What a request may take: bytes of memory, counted before they are there; time; and the processor, a few milliseconds at
//! a time. All statements of a request have one budget, and so has its answer until the last byte of it has left.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::{Options, QueryError};
use crate::access::Caller;

/// How long a query computes before it lets others go first.
const SLICE: Duration = Duration::from_millis(2);
/// Bytes of its text that go into the log.
const TEXT_BYTES: usize = 200;

/// The budgets of all requests.
#[derive(Debug)]
pub struct Budgets {
    options: Options,
    used: AtomicUsize,
    /// What the requests of each token use; of tokens that have one under way.
    tokens: Mutex<HashMap<Box<str>, Weak<AtomicUsize>>>,
    /// Queries under way. One that was told to pause is not.
    turns: Arc<Semaphore>,
    /// Queries that go on after a pause: one fewer than there are cores, so that one is free for what is short.
    long: Arc<Semaphore>,
}

/// One request's budget. Cheap to clone; given back with the last clone.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Request>);

#[derive(Debug)]
struct Request {
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
    turn: Mutex<Turn>,
}

/// What a request computes with.
#[derive(Debug)]
struct Turn {
    /// It goes on until then.
    until: Instant,
    turn: Option<OwnedSemaphorePermit>,
    long: Option<OwnedSemaphorePermit>,
}

/// Bytes that are taken, and given back when this is dropped.
#[derive(Debug)]
pub struct Held {
    budget: Budget,
    bytes: usize,
}

impl Budgets {
    /// All of it free.
    #[must_use]
    pub fn new(options: Options) -> Arc<Self> {
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

    /// For a request that begins now: who asks, and what, as far as it is written down where that takes long.
    #[must_use]
    pub fn begin(self: &Arc<Self>, by: &Caller, text: &str) -> Budget {
        let token = matches!(by, Caller::Holder(_)).then(|| self.of_token(by.name()));
        let now = Instant::now();
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        Budget(Arc::new(Request {
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
            turn: Mutex::new(Turn { until: now + SLICE, turn: None, long: None }),
        }))
    }

    fn of_token(&self, name: &str) -> Arc<AtomicUsize> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Takes bytes, before there is anything in them.
    ///
    /// # Errors
    /// When the request, its token or all together would use too many.
    pub fn hold(&self, bytes: usize) -> Result<Held, QueryError> {
        let mut held = Held { budget: self.clone(), bytes: 0 };
        held.grow(bytes)?;
        Ok(held)
    }

    fn take(&self, bytes: usize) -> Result<(), QueryError> {
        let Request { all, token, used, most, .. } = &*self.0;
        let Options { request_bytes, bytes: all_bytes, token_bytes, .. } = all.options;
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
        let Request { all, token, used, .. } = &*self.0;
        for counter in [used, &all.used].into_iter().chain(token.as_deref()) {
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Notes what was read for the request: bytes as they are stored, and readings.
    pub fn note_read(&self, bytes: usize, readings: usize) {
        self.0.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.read_readings.fetch_add(readings as u64, Ordering::Relaxed);
    }

    /// When the request must have its answer.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.0.began + self.0.all.options.timeout
    }

    /// Waits until it is the request's turn.
    ///
    /// # Errors
    /// When it is not by its deadline, or that is over: those before it in the request have had its time.
    pub(super) async fn turn(&self) -> Result<(), QueryError> {
        let Budgets { options, turns, .. } = &*self.0.all;
        if Instant::now() >= self.deadline() {
            return Err(QueryError::Timeout { limit: options.timeout });
        }
        let turn = timeout_at(self.deadline(), turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(QueryError::Overloaded { limit: options.concurrent }) };
        let mut state = self.state();
        (state.turn, state.until) = (Some(turn), Instant::now() + SLICE);
        Ok(())
    }

    /// Lets others go first, once the request has computed for a while; to be called every so many thousand steps.
    ///
    /// # Errors
    /// When its time is over.
    pub async fn pause(&self) -> Result<(), QueryError> {
        if Instant::now() < self.state().until { Ok(()) } else { self.go_on_later().await }
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
        *self.state() = Turn { until: Instant::now() + SLICE, turn: turn.ok(), long: long.ok() };
        Ok(())
    }

    /// Waits for a store: meanwhile another may compute.
    pub async fn waiting<T>(&self, answer: impl Future<Output = T>) -> T {
        self.state().long = None;
        let answer = answer.await;
        self.state().until = Instant::now() + SLICE;
        answer
    }

    /// Does what has no place for a pause, such as sorting: where it is much, other requests of its thread go to another.
    pub fn at_length<T>(&self, steps: usize, work: impl FnOnce() -> T) -> T {
        let has_threads = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
        if steps > 50_000 && has_threads() { tokio::task::block_in_place(work) } else { work() }
    }

    /// The request computes no more, for now.
    pub fn rest(&self) {
        let mut state = self.state();
        (state.turn, state.long) = (None, None);
    }

    /// The answer is there: it goes into the log if it took long.
    pub fn answered(&self) {
        self.rest();
        self.0.end("answered");
    }

    fn state(&self) -> MutexGuard<'_, Turn> {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
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

impl Drop for Request {
    fn drop(&mut self) {
        self.end("given up");
    }
}

impl Held {
    /// Takes more.
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

    /// Holds just so many from now on.
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

    /// Holds what another did, of the same budget.
    pub fn add(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whose it is.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Drop for Held {
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

    /// The statements of a request behind one that took all of its time were told, where others had the turns, that there
    /// are too many queries, and where not, they computed.
    #[tokio::test]
    async fn a_request_whose_time_is_over_has_no_turn() {
        let (none, most) = (Duration::ZERO, usize::MAX);
        for concurrent in [0, 1] {
            let budgets = Budgets::new(Options {
                request_bytes: most,
                bytes: most,
                token_bytes: most,
                concurrent,
                span_max: none,
                series_max: most,
                cache_max_age: none,
                cache_bytes: 0,
                wait: none,
                timeout: none,
                log_after: Duration::MAX,
            });
            let turn = budgets.begin(&Caller::Anybody, "").turn().await;
            assert!(matches!(turn, Err(QueryError::Timeout { .. })), "{concurrent}: {turn:?}");
        }
    }
}
