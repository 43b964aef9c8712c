//! Compares the memory that a query holds with what its budget was charged, in builds for tests. Each allocation knows the
//! request that made it. What other threads allocate for a request, such as pages that they read, does not count.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicIsize, Ordering};

use tracking_allocator::{AllocationGroupId, AllocationGroupToken, AllocationRegistry, AllocationTracker};

/// Memory that no budget counts: the head of the request, its statement, and the task.
const SLACK_BYTES: isize = 512 << 10;
/// Requests that are told apart. Those with the same remainder share a counter.
const REQUESTS: usize = 1 << 10;

/// The bytes that each request has allocated and nobody has freed.
static HELD: [AtomicIsize; REQUESTS] = [const { AtomicIsize::new(0) }; REQUESTS];

thread_local! {
    /// The request that this thread runs.
    static CURRENT: Cell<Option<Growth>> = const { Cell::new(None) };
}

struct Tracker;

impl AllocationTracker for Tracker {
    fn allocated(&self, _address: usize, bytes: usize, _with_header: usize, request: AllocationGroupId) {
        counter(&request).fetch_add(bytes.cast_signed(), Ordering::Relaxed);
    }

    fn deallocated(&self, _address: usize, bytes: usize, _: usize, request: AllocationGroupId, _: AllocationGroupId) {
        counter(&request).fetch_sub(bytes.cast_signed(), Ordering::Relaxed);
    }
}

fn counter(request: &AllocationGroupId) -> &'static AtomicIsize {
    &HELD[request.as_usize().get() % REQUESTS]
}

/// Counts allocations from now on.
pub fn start() {
    if AllocationRegistry::set_global_tracker(Tracker).is_ok() {
        AllocationRegistry::enable_tracking();
    }
}

/// The growth of one request.
#[derive(Debug, Clone, Copy)]
pub struct Growth {
    counter: &'static AtomicIsize,
    before: isize,
}

impl Growth {
    /// Returns the growth of the request that this thread runs.
    pub fn current() -> Option<Self> {
        CURRENT.get()
    }

    /// Returns the bytes that the request holds, if they exceed a charge by more than a quarter.
    pub fn excess(self, charged: usize) -> Option<isize> {
        let held = self.counter.load(Ordering::Relaxed) - self.before;
        (held > (charged / 4 * 5).cast_signed() + SLACK_BYTES).then_some(held)
    }
}

/// Counts what a request allocates.
pub async fn counted<F: Future>(request: F) -> F::Output {
    let Some(mut token) = AllocationGroupToken::register() else { return request.await };
    let counter = counter(&token.id());
    let growth = Growth { counter, before: counter.load(Ordering::Relaxed) };
    let mut request = pin!(request);
    poll_fn(|context| {
        let _guard = token.enter();
        CURRENT.set(Some(growth));
        let polled = request.as_mut().poll(context);
        CURRENT.set(None);
        polled
    })
    .await
}
