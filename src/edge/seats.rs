//! Who has a connection: so many in all, so many from one address. When all seats are taken, the one gives way that
//! has waited longest for its client; a request that is being answered never does. Those who let a deadline pass
//! lose their seat too. One look around a second does that for all of them: no connection has a timer of its own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::peer::network;
use super::watch::{Phase, Watch, milliseconds};
use crate::telemetry::Metrics;

/// Bounds on connections. From the config section `[server]`.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Most at a time.
    pub max: usize,
    /// Most at a time from one address; an IPv6 network of 64 bits is one.
    pub per_address: usize,
    /// Longest wait for a request's first byte.
    pub idle: Duration,
    /// Longest wait for the rest of a request's head.
    pub head: Duration,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest time in which nothing of an answer is taken.
    pub write: Duration,
}

/// How long a body must not have moved before its connection may give way.
const BODY_STILL: u64 = 1000;
/// How long several requests on one connection may stand still: longer than any answer takes to come about.
const MULTIPLEXED_STILL: u64 = 10 * 60 * 1000;
/// How many of those who waited longest are remembered when all were looked at.
const CANDIDATES: usize = 64;

/// All connections of all listeners.
#[derive(Debug)]
pub struct Seats {
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
    /// Seats that were waiting for their clients, who waited longest last.
    candidates: Vec<(u64, (Phase, u64))>,
}

#[derive(Debug)]
struct Taken {
    watch: Arc<Watch>,
    network: IpAddr,
    /// Ends its task, once it has one.
    task: Option<AbortHandle>,
    /// How long it may be idle.
    idle: u64,
}

/// One connection's, for as long as it is held.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    id: u64,
}

impl Seats {
    /// None taken.
    #[must_use]
    pub fn new(bounds: Bounds, metrics: Metrics) -> Arc<Self> {
        let base = Instant::now();
        Arc::new(Self { bounds, metrics, base, freed: Notify::new(), table: Mutex::default() })
    }

    /// Takes the seats of those who let a deadline pass, for ever.
    pub async fn keep(self: Arc<Self>) {
        let Bounds { idle, head, handshake, write, .. } = self.bounds;
        let shortest = idle.min(head).min(handshake).min(write);
        let pause = (shortest / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        loop {
            tokio::time::sleep(pause).await;
            self.look_around();
        }
    }

    /// Whether the address has as many as it may.
    pub(super) fn is_full_for(&self, address: IpAddr) -> bool {
        let full =
            self.table().by_network.get(&network(address)).is_some_and(|count| *count >= self.bounds.per_address);
        if full {
            self.metrics.connection_closed("address");
        }
        full
    }

    /// A seat, when one is free or can be made free; else it is to be asked again when [`Seats::freed`] says so.
    pub(super) fn take(
        self: &Arc<Self>,
        address: IpAddr,
        secure: bool,
        idle: Option<Duration>,
    ) -> Option<(Seat, Arc<Watch>)> {
        let network = network(address);
        let mut table = self.table();
        if table.taken.len() >= self.bounds.max && !self.make_room(&mut table) {
            return None;
        }
        let watch = Arc::new(Watch::new(self.base, if secure { Phase::Handshake } else { Phase::Idle }));
        let id = table.next;
        table.next += 1;
        let idle = milliseconds(idle.unwrap_or(self.bounds.idle));
        table.taken.insert(id, Taken { watch: watch.clone(), network, task: None, idle });
        *table.by_network.entry(network).or_default() += 1;
        self.metrics.connections.increment(1.0);
        Some((Seat { seats: self.clone(), id }, watch))
    }

    /// Resolves when a seat was given back, or may have become one that can be taken.
    pub(super) async fn freed(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(100), self.freed.notified()).await;
    }

    /// Says which task sits there.
    pub(super) fn sits(&self, id: u64, task: AbortHandle) {
        if let Some(taken) = self.table().taken.get_mut(&id) {
            taken.task = Some(task);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends away who has waited longest. All are looked at only when those are used up who were found the last
    /// time, so that a flood of connections does not cost a look at all for each.
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
            let seen = taken.watch.phase();
            let waits = match seen.0 {
                Phase::Handshake | Phase::Idle | Phase::Head => true,
                Phase::Body => now.saturating_sub(seen.1) > BODY_STILL,
                Phase::Answer | Phase::Sending | Phase::Closed => false,
            };
            (waits && !taken.watch.running() && taken.task.is_some()).then_some(seen)
        };
        let mut found: Vec<_> =
            table.taken.iter().filter_map(|(id, taken)| waits(taken).map(|seen| (*id, seen))).collect();
        // By time alone, bodies that hardly move among them: were they last, they would take all seats in the end, and
        // whoever has just come would be the only one to give way. The first of them is popped first.
        let order = |(id, seen): &(u64, (Phase, u64))| (seen.1, *id);
        if found.len() > CANDIDATES {
            found.select_nth_unstable_by_key(CANDIDATES, order);
            found.truncate(CANDIDATES);
        }
        found.sort_unstable_by_key(|one| std::cmp::Reverse(order(one)));
        table.candidates = found;
    }

    /// Ends a connection that is where it was seen.
    fn close(&self, table: &mut Table, id: u64, seen: (Phase, u64), reason: &'static str) -> bool {
        let Some(taken) = table.taken.get(&id) else { return false };
        if taken.task.is_none() || taken.watch.running() || !taken.watch.close(seen) {
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
        let mut table = self.table();
        let now = milliseconds(self.base.elapsed());
        let late = |since: u64, bound: u64| now.saturating_sub(since) > bound;
        let bounds = &self.bounds;
        let mut ended = Vec::new();
        for (id, taken) in &table.taken {
            let seen = taken.watch.phase();
            if taken.watch.writing_since().is_some_and(|since| late(since, milliseconds(bounds.write))) {
                ended.push((*id, None, "write"));
            } else if taken.watch.is_overdue(now) {
                ended.push((*id, None, "slow"));
            } else if taken.watch.running() {
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
                // Whatever is under way there, nobody takes it.
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

impl Seat {
    pub(super) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut table = self.seats.table();
        self.seats.leave(&mut table, self.id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn seats(max: usize, per_address: usize) -> Arc<Seats> {
        let bounds = Bounds { max, per_address, idle: LONG, head: LONG, handshake: LONG, write: LONG };
        Seats::new(bounds, Metrics::new("0", "test").unwrap())
    }

    /// Takes a seat for a task that never ends by itself.
    fn sit(seats: &Arc<Seats>, address: &str) -> Option<(tokio::task::JoinHandle<()>, Arc<Watch>)> {
        let (seat, watch) = seats.take(address.parse().unwrap(), false, None)?;
        let id = seat.id();
        let task = tokio::spawn(async move {
            let _seat = seat;
            std::future::pending::<()>().await;
        });
        seats.sits(id, task.abort_handle());
        Some((task, watch))
    }

    #[tokio::test]
    async fn who_waited_longest_gives_way_and_who_is_answered_does_not() {
        let seats = seats(3, 100);
        let mut sitting: Vec<_> = (0..3).map(|_| sit(&seats, "192.0.2.1").unwrap()).collect();
        assert!(sitting[0].1.begin(false));
        let fourth = sit(&seats, "192.0.2.1").unwrap();
        assert!((&mut sitting[1].0).await.unwrap_err().is_cancelled(), "the second has waited longest");
        assert!(fourth.1.begin(false) && sitting[2].1.begin(true));
        assert!(sit(&seats, "192.0.2.1").is_none(), "nobody is waiting: bodies have just moved");
        sitting[0].1.answered();
        sitting[0].1.wrote(true);
        assert!(sit(&seats, "192.0.2.1").is_none(), "an answer is on its way");
        sitting[0].1.wrote(false);
        sitting[0].1.rests();
        assert!(sit(&seats, "192.0.2.1").is_some(), "it is idle now");
    }

    #[tokio::test]
    async fn an_address_has_so_many_and_no_more() {
        let seats = seats(100, 2);
        let sitting: Vec<_> = (0..2).map(|n| sit(&seats, &format!("2001:db8::{n}")).unwrap()).collect();
        let full = |address: &str| seats.is_full_for(address.parse().unwrap());
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
            let seats = Seats::new(bounds, Metrics::new("0", "test").unwrap());
            let keeper = tokio::spawn(seats.clone().keep());
            let (idle, head, write) =
                (sit(&seats, "::1").unwrap(), sit(&seats, "::1").unwrap(), sit(&seats, "::1").unwrap());
            head.1.read(b"G");
            assert!(write.1.begin(false));
            write.1.answered();
            write.1.wrote(true);
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
