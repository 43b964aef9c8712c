//! Limits the number of open connections, in total and per client address. At the total limit, a new connection
//! replaces the one that has waited longest for its client: for a request, or for it to take its answers. A request that
//! is being answered is never cut off for a new one. A scan, at least once a second, closes connections that missed a deadline, so that no connection needs a
//! timer of its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::connection_state::{ConnectionState, Phase, milliseconds};
use super::peer::network;
use crate::telemetry::Metrics;

/// Limits and deadlines of connections, from the config section `[server]`.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Most open connections.
    pub max: usize,
    /// Most open connections from one address. An IPv6 /64 network counts as one address.
    pub per_address: usize,
    /// Longest wait for a request's first byte.
    pub idle: Duration,
    /// Longest wait for the rest of a request's head after its first byte.
    pub head: Duration,
    pub handshake: Duration,
    /// Longest time during which the client accepts next to nothing of its answers.
    pub write: Duration,
}

/// Milliseconds without progress of a request body after which its connection may be closed to make room.
const BODY_STILL: u64 = 1000;
/// Milliseconds without progress after which a multiplexed connection with open requests is closed: longer than any
/// answer takes.
const MULTIPLEXED_STILL: u64 = 10 * 60 * 1000;
/// How many of the longest-waiting connections one scan remembers.
const CANDIDATES: usize = 64;

/// Tracks all connections of all listeners that share one limit.
#[derive(Debug)]
pub struct ConnectionLimits {
    bounds: Bounds,
    metrics: Metrics,
    base: Instant,
    freed: Notify,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    taken: HashMap<u64, Taken>,
    by_network: HashMap<IpAddr, usize>,
    next: u64,
    /// Connections that waited for their clients at the last scan, the longest-waiting one last.
    candidates: Vec<(u64, (Phase, u64))>,
}

#[derive(Debug)]
struct Taken {
    state: Arc<ConnectionState>,
    network: IpAddr,
    /// Aborts the connection's task; `None` until the task is spawned.
    task: Option<AbortHandle>,
    /// Longest idle time, in milliseconds.
    idle: u64,
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

    /// Closes connections that missed a deadline; runs until it is cancelled.
    pub async fn keep(self: Arc<Self>) {
        let Bounds { idle, head, handshake, write, .. } = self.bounds;
        let shortest = idle.min(head).min(handshake).min(write);
        let pause = (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            tokio::time::sleep(pause).await;
            self.look_around();
        }
    }

    /// Whether the address has reached its limit. Counts the refusal in the metrics.
    pub(super) fn is_full_for(&self, address: IpAddr) -> bool {
        let full =
            self.table.lock().by_network.get(&network(address)).is_some_and(|count| *count >= self.bounds.per_address);
        if full {
            self.metrics.connection_closed("address");
        }
        full
    }

    /// A permit, if the total limit allows one or another connection can be closed for it. On `None` the caller waits
    /// for [`ConnectionLimits::freed`] and tries again.
    pub(super) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        secure: bool,
        idle: Option<Duration>,
    ) -> Option<(ConnectionPermit, Arc<ConnectionState>)> {
        let network = network(address);
        let mut table = self.table.lock();
        if table.taken.len() >= self.bounds.max && !self.make_room(&mut table) {
            return None;
        }
        let state = Arc::new(ConnectionState::new(self.base, if secure { Phase::Handshake } else { Phase::Idle }));
        let id = table.next;
        table.next += 1;
        let idle = milliseconds(idle.unwrap_or(self.bounds.idle));
        table.taken.insert(id, Taken { state: state.clone(), network, task: None, idle });
        *table.by_network.entry(network).or_default() += 1;
        self.metrics.connections.increment(1.0);
        Some((ConnectionPermit { limits: self.clone(), id }, state))
    }

    /// Resolves when a connection ended, and every 100 ms, since an open one may have become closable.
    pub(super) async fn freed(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(100), self.freed.notified()).await;
    }

    /// Registers the task that serves a connection, so that it can be aborted.
    pub(super) fn sits(&self, id: u64, task: AbortHandle) {
        if let Some(taken) = self.table.lock().taken.get_mut(&id) {
            taken.task = Some(task);
        }
    }

    /// Closes the connection that has waited longest for its client. Scans all connections only once the candidates of
    /// the last scan are used up, so that a flood of connections does not cost a full scan each.
    fn make_room(&self, table: &mut Table) -> bool {
        for fresh in [false, true] {
            if fresh {
                self.find_candidates(table);
            }
            while let Some((id, seen)) = table.candidates.pop() {
                if self.close(table, id, seen, "room") {
                    return true;
                }
            }
        }
        false
    }

    fn find_candidates(&self, table: &mut Table) {
        let now = milliseconds(self.base.elapsed());
        let waits = |taken: &Taken| {
            let seen = taken.state.phase();
            let waits = match seen.0 {
                Phase::Handshake | Phase::Idle | Phase::Head => true,
                Phase::Body => now.saturating_sub(seen.1) > BODY_STILL,
                Phase::Answer | Phase::Sending | Phase::Closed => false,
            };
            let waits = (waits && !taken.state.running()) || taken.state.is_stuck(now);
            (waits && taken.task.is_some()).then_some(seen)
        };
        let mut found: Vec<_> =
            table.taken.iter().filter_map(|(id, taken)| waits(taken).map(|seen| (*id, seen))).collect();
        // By waiting time alone, slow bodies included: if slow bodies were closed last, they would in the end fill the
        // limit, and only the newest connections would be closed. The longest-waiting one is last, and popped first.
        let order = |(id, seen): &(u64, (Phase, u64))| (seen.1, *id);
        if found.len() > CANDIDATES {
            found.select_nth_unstable_by_key(CANDIDATES, order);
            found.truncate(CANDIDATES);
        }
        found.sort_unstable_by_key(|one| std::cmp::Reverse(order(one)));
        table.candidates = found;
    }

    /// Closes a connection unless its phase has changed since `seen`.
    fn close(&self, table: &mut Table, id: u64, seen: (Phase, u64), reason: &'static str) -> bool {
        let Some(taken) = table.taken.get(&id) else { return false };
        let is_busy = taken.state.running() && !taken.state.is_stuck(milliseconds(self.base.elapsed()));
        if taken.task.is_none() || is_busy || !taken.state.close(seen) {
            return false;
        }
        self.end(table, id, reason);
        true
    }

    fn leave(&self, table: &mut Table, id: u64) {
        let Some(taken) = table.taken.remove(&id) else { return };
        if let Some(count) = table.by_network.get_mut(&taken.network) {
            *count -= 1;
            if *count == 0 {
                table.by_network.remove(&taken.network);
            }
        }
        self.metrics.connections.decrement(1.0);
        self.freed.notify_one();
    }

    fn look_around(&self) {
        let mut table = self.table.lock();
        let now = milliseconds(self.base.elapsed());
        let late = |since: u64, bound: u64| now.saturating_sub(since) > bound;
        let bounds = &self.bounds;
        let mut ended = Vec::new();
        for (id, taken) in &table.taken {
            let seen = taken.state.phase();
            if taken.state.writing_since().is_some_and(|since| late(since, milliseconds(bounds.write))) {
                ended.push((*id, None, "write"));
            } else if taken.state.is_overdue(now) {
                ended.push((*id, None, "slow"));
            } else if taken.state.running() {
                if late(seen.1, MULTIPLEXED_STILL) {
                    ended.push((*id, None, "still"));
                }
            } else {
                let (bound, reason) = match seen.0 {
                    Phase::Handshake => (milliseconds(bounds.handshake), "handshake"),
                    Phase::Idle => (taken.idle, "idle"),
                    Phase::Head => (milliseconds(bounds.head), "head"),
                    Phase::Body | Phase::Answer | Phase::Sending | Phase::Closed => continue,
                };
                if late(seen.1, bound) {
                    ended.push((*id, Some(seen), reason));
                }
            }
        }
        for (id, seen, reason) in ended {
            match seen {
                Some(seen) => drop(self.close(&mut table, id, seen, reason)),
                // A request may be in progress, but its client does not take the answer.
                None => self.end(&mut table, id, reason),
            }
        }
    }

    fn end(&self, table: &mut Table, id: u64, reason: &'static str) {
        if let Some(task) = table.taken.get(&id).and_then(|taken| taken.task.clone()) {
            task.abort();
            self.leave(table, id);
            self.metrics.connection_closed(reason);
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.limits.table.lock();
        self.limits.leave(&mut table, self.id);
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

    /// Opens a connection whose task never ends by itself.
    fn sit(
        limits: &Arc<ConnectionLimits>,
        address: &str,
    ) -> Option<(tokio::task::JoinHandle<()>, Arc<ConnectionState>)> {
        let (permit, state) = limits.take(address.parse().unwrap(), false, None)?;
        let id = permit.id;
        let task = tokio::spawn(async move {
            let _permit = permit;
            std::future::pending::<()>().await;
        });
        limits.sits(id, task.abort_handle());
        Some((task, state))
    }

    #[tokio::test]
    async fn who_waited_longest_gives_way_and_who_is_answered_does_not() {
        let limits = limits(3, 100);
        let mut sitting: Vec<_> = (0..3).map(|_| sit(&limits, "192.0.2.1").unwrap()).collect();
        assert!(sitting[0].1.begin(false));
        let fourth = sit(&limits, "192.0.2.1").unwrap();
        assert!((&mut sitting[1].0).await.unwrap_err().is_cancelled(), "the second has waited longest");
        assert!(fourth.1.begin(false) && sitting[2].1.begin(true));
        assert!(sit(&limits, "192.0.2.1").is_none(), "nobody is waiting: bodies have just moved");
        sitting[0].1.answered();
        sitting[0].1.wrote(None);
        assert!(sit(&limits, "192.0.2.1").is_none(), "an answer is on its way");
        sitting[0].1.flushed(false);
        assert!(sit(&limits, "192.0.2.1").is_some(), "it is idle now");
    }

    #[tokio::test]
    async fn an_address_has_so_many_and_no_more() {
        let limits = limits(100, 2);
        let sitting: Vec<_> = (0..2).map(|n| sit(&limits, &format!("2001:db8::{n}")).unwrap()).collect();
        let full = |address: &str| limits.is_full_for(address.parse().unwrap());
        assert!(full("2001:db8::ffff") && !full("2001:db8:0:1::1") && !full("192.0.2.1"));
        sitting[0].0.abort();
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
            let keeper = tokio::spawn(limits.clone().keep());
            let (idle, head, write) =
                (sit(&limits, "::1").unwrap(), sit(&limits, "::1").unwrap(), sit(&limits, "::1").unwrap());
            head.1.read(b"G");
            assert!(write.1.begin(false));
            write.1.answered();
            write.1.wrote(None);
            let (mut ended, mut others) = (None, Vec::new());
            for (name, (task, _)) in [("idle", idle), ("head", head), ("write", write)] {
                if name == late { ended = Some(task) } else { others.push(task) }
            }
            assert!(ended.unwrap().await.unwrap_err().is_cancelled(), "{late}");
            assert!(others.iter().all(|task| !task.is_finished()), "{late}");
            keeper.abort();
        }
    }
}
