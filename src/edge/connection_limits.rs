//! Limits the number of open connections, in total and per client address. At the total limit, a new connection
//! replaces the one that has waited longest for its client: to send a request, or to receive its answers. A request in
//! progress is never cut off for a new connection. A scan, at least once a second, closes connections that missed a
//! deadline, so that connections need no timers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::connection_state::{ConnectionState, Phase, PhaseSince, milliseconds};
use super::peer::network;
use crate::telemetry::Metrics;

/// Limits and deadlines of connections, from the config section `[server]`.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Maximum number of open connections.
    pub max: usize,
    /// Maximum number of open connections from one address. An IPv6 /64 network counts as one address.
    pub per_address: usize,
    /// Maximum wait for the first byte of a request.
    pub idle: Duration,
    /// Maximum wait for the rest of a request head after its first byte.
    pub head: Duration,
    /// Maximum duration of a TLS handshake.
    pub handshake: Duration,
    /// Maximum time without progress of a blocked write to the client.
    pub write: Duration,
}

/// Milliseconds without progress of a request body after which its connection may be closed to make room.
const BODY_STALL_MS: u64 = 1000;
/// Milliseconds without progress after which a multiplexed connection with open requests is closed. Longer than any
/// answer takes.
const MULTIPLEXED_STALL_MS: u64 = 10 * 60 * 1000;
/// Maximum number of candidates from one scan.
const CANDIDATES_MAX: usize = 64;

/// Tracks all connections of all listeners that share one limit.
#[derive(Debug)]
pub struct ConnectionLimits {
    bounds: Bounds,
    metrics: Metrics,
    /// The zero of all times in milliseconds.
    base: Instant,
    /// Signals the end of a connection.
    freed: Notify,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    connections: HashMap<u64, OpenConnection>,
    by_network: HashMap<IpAddr, usize>,
    next_id: u64,
    /// The connections that waited for their clients at the last scan, the longest-waiting one last.
    candidates: Vec<Candidate>,
}

/// A connection that may be closed to make room, unless its phase has changed since.
#[derive(Debug)]
struct Candidate {
    id: u64,
    seen: PhaseSince,
}

#[derive(Debug)]
struct OpenConnection {
    state: Arc<ConnectionState>,
    network: IpAddr,
    /// Aborts the connection's task; `None` until the task is spawned.
    task: Option<AbortHandle>,
    /// Maximum idle time, in milliseconds.
    idle_ms: u64,
}

/// Counts one connection as open until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    limits: Arc<ConnectionLimits>,
    pub(super) id: u64,
}

impl ConnectionLimits {
    #[must_use]
    pub fn new(bounds: Bounds, metrics: Metrics) -> Arc<Self> {
        let base = Instant::now();
        Arc::new(Self { bounds, metrics, base, freed: Notify::new(), table: Mutex::default() })
    }

    /// Closes connections that missed a deadline, until it is cancelled.
    pub async fn enforce_deadlines(self: Arc<Self>) {
        let Bounds { idle, head, handshake, write, .. } = self.bounds;
        let shortest = idle.min(head).min(handshake).min(write);
        let pause = (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            tokio::time::sleep(pause).await;
            self.close_overdue();
        }
    }

    /// Returns true if the address has reached its limit. Counts the refusal in the metrics.
    pub(super) fn is_full_for(&self, address: IpAddr) -> bool {
        let is_full =
            self.table.lock().by_network.get(&network(address)).is_some_and(|count| *count >= self.bounds.per_address);
        if is_full {
            self.metrics.connection_closed("address");
        }
        is_full
    }

    /// Returns a permit, if the total limit allows one or another connection can be closed for it. On `None` the caller
    /// calls [`ConnectionLimits::wait_for_room`] and tries again.
    pub(super) fn try_acquire(
        self: &Arc<Self>,
        address: IpAddr,
        is_secure: bool,
        idle: Option<Duration>,
    ) -> Option<(ConnectionPermit, Arc<ConnectionState>)> {
        let network = network(address);
        let mut table = self.table.lock();
        if table.connections.len() >= self.bounds.max && !self.make_room(&mut table) {
            return None;
        }
        let state = Arc::new(ConnectionState::new(self.base, if is_secure { Phase::Handshake } else { Phase::Idle }));
        let id = table.next_id;
        table.next_id += 1;
        let idle_ms = milliseconds(idle.unwrap_or(self.bounds.idle));
        table.connections.insert(id, OpenConnection { state: state.clone(), network, task: None, idle_ms });
        *table.by_network.entry(network).or_default() += 1;
        self.metrics.connections.increment(1.0);
        Some((ConnectionPermit { limits: self.clone(), id }, state))
    }

    /// Waits until a connection ends, but at most 100 ms, since an open connection may become a candidate.
    pub(super) async fn wait_for_room(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(100), self.freed.notified()).await;
    }

    /// Registers the task of a connection, so that it can be aborted.
    pub(super) fn register_task(&self, id: u64, task: AbortHandle) {
        if let Some(connection) = self.table.lock().connections.get_mut(&id) {
            connection.task = Some(task);
        }
    }

    /// Closes the connection that has waited longest for its client. Scans all connections only once the candidates of
    /// the last scan are used up, so that a flood of connections does not cost one scan each.
    fn make_room(&self, table: &mut Table) -> bool {
        for should_scan in [false, true] {
            if should_scan {
                self.find_candidates(table);
            }
            while let Some(Candidate { id, seen }) = table.candidates.pop() {
                if self.close_unchanged(table, id, seen, "room") {
                    return true;
                }
            }
        }
        false
    }

    fn find_candidates(&self, table: &mut Table) {
        let now = milliseconds(self.base.elapsed());
        let candidate = |(id, connection): (&u64, &OpenConnection)| {
            let seen = connection.state.current();
            let waits_for_client = match seen.phase {
                Phase::Handshake | Phase::Idle | Phase::Head => true,
                Phase::Body => now.saturating_sub(seen.since_ms) > BODY_STALL_MS,
                Phase::Answer | Phase::Sending | Phase::Closed => false,
            };
            let is_waiting = waits_for_client && !connection.state.has_open_requests();
            let can_close = is_waiting || connection.state.is_stuck(now);
            (can_close && connection.task.is_some()).then_some(Candidate { id: *id, seen })
        };
        let mut found: Vec<Candidate> = table.connections.iter().filter_map(candidate).collect();
        // Order by waiting time alone. If slow bodies were closed last, they would eventually fill the limit, and only
        // the newest connections would be closed.
        let order = |candidate: &Candidate| (candidate.seen.since_ms, candidate.id);
        if found.len() > CANDIDATES_MAX {
            found.select_nth_unstable_by_key(CANDIDATES_MAX, order);
            found.truncate(CANDIDATES_MAX);
        }
        found.sort_unstable_by_key(|one| std::cmp::Reverse(order(one)));
        table.candidates = found;
    }

    /// Closes a connection, unless its phase has changed since `seen`.
    fn close_unchanged(&self, table: &mut Table, id: u64, seen: PhaseSince, reason: &'static str) -> bool {
        let Some(connection) = table.connections.get(&id) else { return false };
        let state = &connection.state;
        let is_busy = state.has_open_requests() && !state.is_stuck(milliseconds(self.base.elapsed()));
        if connection.task.is_none() || is_busy || !state.close(seen) {
            return false;
        }
        self.abort(table, id, reason);
        true
    }

    fn remove(&self, table: &mut Table, id: u64) {
        let Some(connection) = table.connections.remove(&id) else { return };
        if let Some(count) = table.by_network.get_mut(&connection.network) {
            *count -= 1;
            if *count == 0 {
                table.by_network.remove(&connection.network);
            }
        }
        self.metrics.connections.decrement(1.0);
        self.freed.notify_one();
    }

    /// Closes all connections that missed a deadline.
    fn close_overdue(&self) {
        let mut table = self.table.lock();
        let now = milliseconds(self.base.elapsed());
        let is_late = |since: u64, bound: u64| now.saturating_sub(since) > bound;
        let bounds = &self.bounds;
        let mut overdue = Vec::new();
        for (id, connection) in &table.connections {
            let state = &connection.state;
            let seen = state.current();
            if state.blocked_since().is_some_and(|since| is_late(since, milliseconds(bounds.write))) {
                overdue.push(OverdueConnection { id: *id, seen: None, reason: "write" });
            } else if state.is_overdue(now) {
                overdue.push(OverdueConnection { id: *id, seen: None, reason: "slow" });
            } else if state.has_open_requests() {
                if is_late(seen.since_ms, MULTIPLEXED_STALL_MS) {
                    overdue.push(OverdueConnection { id: *id, seen: None, reason: "still" });
                }
            } else {
                let (bound, reason) = match seen.phase {
                    Phase::Handshake => (milliseconds(bounds.handshake), "handshake"),
                    Phase::Idle => (connection.idle_ms, "idle"),
                    Phase::Head => (milliseconds(bounds.head), "head"),
                    Phase::Body | Phase::Answer | Phase::Sending | Phase::Closed => continue,
                };
                if is_late(seen.since_ms, bound) {
                    overdue.push(OverdueConnection { id: *id, seen: Some(seen), reason });
                }
            }
        }
        for OverdueConnection { id, seen, reason } in overdue {
            match seen {
                Some(seen) => drop(self.close_unchanged(&mut table, id, seen, reason)),
                None => self.abort(&mut table, id, reason),
            }
        }
    }

    fn abort(&self, table: &mut Table, id: u64, reason: &'static str) {
        if let Some(task) = table.connections.get(&id).and_then(|connection| connection.task.clone()) {
            task.abort();
            self.remove(table, id);
            self.metrics.connection_closed(reason);
        }
    }
}

/// A connection that missed a deadline.
struct OverdueConnection {
    id: u64,
    /// Closes the connection only if its phase has not changed. `None` closes it in any case.
    seen: Option<PhaseSince>,
    reason: &'static str,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.limits.table.lock();
        self.limits.remove(&mut table, self.id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn limits(max: usize, per_address: usize) -> Arc<ConnectionLimits> {
        let bounds = Bounds { max, per_address, idle: LONG, head: LONG, handshake: LONG, write: LONG };
        ConnectionLimits::new(bounds, Metrics::new("0", "test").unwrap())
    }

    /// Opens a connection with a task that never ends by itself.
    fn open(
        limits: &Arc<ConnectionLimits>,
        address: &str,
    ) -> Option<(tokio::task::JoinHandle<()>, Arc<ConnectionState>)> {
        let (permit, state) = limits.try_acquire(address.parse().unwrap(), false, None)?;
        let id = permit.id;
        let task = tokio::spawn(async move {
            let _permit = permit;
            std::future::pending::<()>().await;
        });
        limits.register_task(id, task.abort_handle());
        Some((task, state))
    }

    #[tokio::test]
    async fn the_longest_waiting_connection_is_closed_but_never_a_busy_one() {
        let limits = limits(3, 100);
        let mut first_three: Vec<_> = (0..3).map(|_| open(&limits, "192.0.2.1").unwrap()).collect();
        assert!(first_three[0].1.begin_request(false));
        let fourth = open(&limits, "192.0.2.1").unwrap();
        assert!((&mut first_three[1].0).await.unwrap_err().is_cancelled(), "the second has waited longest");
        assert!(fourth.1.begin_request(false) && first_three[2].1.begin_request(true));
        assert!(open(&limits, "192.0.2.1").is_none(), "all are busy: bodies have just made progress");
        first_three[0].1.record_answer();
        first_three[0].1.record_blocked_write();
        assert!(open(&limits, "192.0.2.1").is_none(), "an answer is being sent");
        first_three[0].1.record_flush(false);
        assert!(open(&limits, "192.0.2.1").is_some(), "it is idle now");
    }

    #[tokio::test]
    async fn an_address_has_a_maximum_number_of_connections() {
        let limits = limits(100, 2);
        let connections: Vec<_> = (0..2).map(|n| open(&limits, &format!("2001:db8::{n}")).unwrap()).collect();
        let full = |address: &str| limits.is_full_for(address.parse().unwrap());
        assert!(full("2001:db8::ffff") && !full("2001:db8:0:1::1") && !full("192.0.2.1"));
        connections[0].0.abort();
        while full("2001:db8::ffff") {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn each_wait_has_its_own_deadline() {
        let short = Duration::from_millis(20);
        let bounds = Bounds { max: 9, per_address: 9, idle: LONG, head: LONG, handshake: LONG, write: LONG };
        for late in ["idle", "head", "write"] {
            let mut bounds = bounds.clone();
            *match late {
                "idle" => &mut bounds.idle,
                "head" => &mut bounds.head,
                _ => &mut bounds.write,
            } = short;
            let limits = ConnectionLimits::new(bounds, Metrics::new("0", "test").unwrap());
            let enforcer = tokio::spawn(limits.clone().enforce_deadlines());
            let [idle, head, write] = [0; 3].map(|_| open(&limits, "::1").unwrap());
            head.1.record_read(b"G");
            assert!(write.1.begin_request(false));
            write.1.record_answer();
            write.1.record_blocked_write();
            let mut ended = None;
            let mut others = Vec::new();
            for (name, (task, _)) in [("idle", idle), ("head", head), ("write", write)] {
                if name == late { ended = Some(task) } else { others.push(task) }
            }
            assert!(ended.unwrap().await.unwrap_err().is_cancelled(), "{late}");
            assert!(others.iter().all(|task| !task.is_finished()), "{late}");
            enforcer.abort();
        }
    }
}
