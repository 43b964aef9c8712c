//! The oracle: seeded clients, recorded acks, and a comparison of the contents with them.

mod expected;
mod seen;
mod traffic;

use self::seen::Found;
use self::traffic::{Kind, Traffic, body};
use crate::support::prelude::*;

use super::DATABASE;

#[allow(dead_code, reason = "failure messages print the fields")]
#[derive(Debug, Clone)]
pub enum Violation {
    /// A field of an acked reading is missing.
    Lost(String),
    /// A request without an ack is there in part, or is missing a part.
    PartMissing(String),
    /// As above, found by its markers.
    HalfARequest { connection: usize, request: i64, what: String },
    /// A value that is outdated or not yet possible.
    Wrong { place: String, found: f64, expected: Vec<f64> },
    /// A value that nobody sent.
    NeverSent(String),
    /// More readings than were sent.
    Doubled { place: String, there: usize, sent: usize },
    /// An undated reading changed its time.
    Restamped { place: String, before: BTreeSet<i64>, now: BTreeSet<i64> },
    /// A window differs from its readings.
    Window { place: String, found: String, readings: usize },
    /// A malformed document: its summary, its limits, or a timestamp on two pages.
    Documents(String),
    /// A wrong answer to a query.
    Answers(String),
    /// An unexpected answer to a write.
    Refused { status: u16, body: String },
    /// A missed deadline.
    Late(String),
}

/// Clients and their knowledge.
pub struct Oracle {
    connections: Vec<Connection>,
    /// Number of writes that had to be acked soon after a fault.
    fresh: i64,
    violations: BTreeMap<String, Violation>,
    cycles: usize,
    /// Pause of a connection between requests.
    pace: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Number of faults under load.
    pub cycles: usize,
    /// Requests, acked or not.
    pub requests: usize,
    pub acked: usize,
    /// Missing fields of acked readings.
    pub lost: usize,
    pub doubled: usize,
    /// Windows and documents that differ from their readings.
    pub summaries: usize,
    /// All violations, including the above.
    pub violations: usize,
}

struct Connection {
    traffic: Traffic,
    sent: Vec<Request>,
    /// Times that undated readings received, by value.
    stamps: BTreeMap<i64, BTreeSet<i64>>,
}

/// A request that was sent or planned.
#[derive(Debug, Clone, Copy, Default)]
struct Request {
    /// Attempts that may have reached the server.
    attempts: usize,
    acked: bool,
}

/// Progress of the clients, for the thread that causes faults.
pub struct Progress {
    acks: Vec<AtomicUsize>,
    stop: AtomicBool,
    late: Mutex<Vec<String>>,
}

/// Time after a fault in which a write must be acked.
const FRESH_ACK_MAX: Duration = Duration::from_secs(10);
/// Time after a start or a fault in which queries must be answered.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
const DESCRIBED_MAX: usize = 12;

impl Oracle {
    /// Creates an oracle with this many connections, each with its own sensors.
    pub fn new(seed: u64, connections: usize) -> Oracle {
        let connection = |connection| {
            let traffic = Traffic { seed, connection, asks_for_store: true };
            Connection { traffic, sent: Vec::new(), stamps: BTreeMap::new() }
        };
        let connections = (0..connections).map(connection).collect();
        Oracle { connections, fresh: 0, violations: BTreeMap::new(), cycles: 0, pace: Duration::ZERO }
    }

    /// Sets a pause between requests, so that a long run needs no more readings.
    pub fn with_pace(mut self, pace: Duration) -> Oracle {
        self.pace = pace;
        self
    }

    /// Disables requests with the store's ack, which would flush their buckets.
    pub fn with_wal_acks(mut self) -> Oracle {
        self.connections.iter_mut().for_each(|connection| connection.traffic.asks_for_store = false);
        self
    }

    /// Sends from all connections to this URL until `act` is done.
    pub fn during<T>(&mut self, base: &str, act: impl FnOnce(&Progress) -> T) -> T {
        let acks = self.connections.iter().map(|_| AtomicUsize::new(0)).collect();
        let progress = Progress { acks, stop: AtomicBool::new(false), late: Mutex::default() };
        let violations = Mutex::new(Vec::new());
        let result = std::thread::scope(|scope| {
            // Also if `act` panics, or the scope would wait for ever.
            let _stop = StopOnDrop(&progress.stop);
            let pace = self.pace;
            for (connection, acks) in self.connections.iter_mut().zip(&progress.acks) {
                let stop = &progress.stop;
                let violations = &violations;
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::sleep(pace);
                        match connection.send_one(base, stop) {
                            Ok(()) => drop(acks.fetch_add(1, Ordering::Relaxed)),
                            Err(None) => {}
                            Err(Some(violation)) => {
                                violations.lock().expect("no client panicked").push(violation);
                                return;
                            }
                        }
                    }
                });
            }
            act(&progress)
        });
        self.cycles += 1;
        let violations = violations.into_inner().expect("no client panicked");
        violations.into_iter().for_each(|violation| self.note(violation));
        for what in progress.late.into_inner().expect("no client panicked") {
            self.note(Violation::Late(what));
        }
        result
    }

    /// Compares answers, flushed or not, and requires a quick ack.
    pub fn check_answers(&mut self, server: &Server) {
        let sensors = self.sensors();
        let url = server.url(&format!("/api/v1/sensors?db={DATABASE}&limit=1"));
        let windows_url = server.url(&format!("/api/v1/readings?db={DATABASE}&sensor=proof"));
        let is_answered = |url: &str| request("GET", url, b"", &[]).is_ok_and(|answer| answer.status != 503);
        if poll(ANSWER_TIME_MAX, || (is_answered(&url) && is_answered(&windows_url)).then_some(())).is_none() {
            return self.note(Violation::Late("answers to queries".to_owned()));
        }
        self.write_fresh(server);
        let found = match seen::by_query(server, &sensors) {
            Ok(found) => found,
            Err(violation) => return self.note(violation),
        };
        self.compare(&found);
        for (sensor, series) in &found {
            seen::check_windows(server, sensor, series).into_iter().for_each(|violation| self.note(violation));
        }
    }

    /// Compares the stored documents after a flush.
    pub fn check_stored(&mut self, stored: &Stored) {
        match seen::in_store(stored) {
            Ok(found) => self.compare(&found),
            Err(violation) => self.note(violation),
        }
    }

    /// Adds an external violation.
    pub fn note(&mut self, violation: Violation) {
        self.violations.insert(format!("{violation:?}"), violation);
    }

    pub fn violations(&self) -> Vec<&Violation> {
        self.violations.values().collect()
    }

    /// Returns the result so far.
    pub fn tally(&self) -> Tally {
        let count = |is: fn(&Violation) -> bool| self.violations.values().filter(|violation| is(violation)).count();
        Tally {
            cycles: self.cycles,
            requests: self.connections.iter().map(|connection| connection.sent.len()).sum(),
            acked: self.connections.iter().map(Connection::acked).sum(),
            lost: count(|v| matches!(v, Violation::Lost(_))),
            doubled: count(|v| matches!(v, Violation::Doubled { .. })),
            summaries: count(|v| matches!(v, Violation::Window { .. } | Violation::Documents(_))),
            violations: self.violations.len(),
        }
    }

    /// Prints the result and panics on violations, or if too little was acked to prove anything.
    #[track_caller]
    pub fn assert_no_violations(&self, name: &str) -> Tally {
        let tally = self.tally();
        // Not by eprintln!, which the test harness captures.
        let _ = writeln!(std::io::stderr(), "{name}: {tally:?}");
        assert!(self.violations.is_empty(), "{name}:\n{}", self.describe());
        for connection in &self.connections {
            assert!(connection.acked() > 100, "{name}: connection {} got few acks", connection.traffic.connection);
        }
        tally
    }

    /// Formats the first violations, one per line.
    pub fn describe(&self) -> String {
        let lines: Vec<&str> = self.violations.keys().take(DESCRIBED_MAX).map(String::as_str).collect();
        format!("{}\n({} in all)", lines.join("\n"), self.violations.len())
    }

    fn compare(&mut self, found: &Found) {
        let violations: Vec<Violation> =
            self.connections.iter_mut().flat_map(|connection| expected::compare(connection, found)).collect();
        violations.into_iter().for_each(|violation| self.note(violation));
        let fresh = found.get(FRESH).map(|series| series.len());
        if fresh.map(i64::try_from) != Some(Ok(self.fresh)) && self.fresh > 0 {
            self.note(Violation::Lost(format!("{FRESH}: {fresh:?} of {}", self.fresh)));
        }
        let known: BTreeSet<String> = self.sensors().into_iter().collect();
        for stranger in found.keys().filter(|sensor| !known.contains(*sensor)) {
            self.note(Violation::NeverSent(stranger.clone()));
        }
    }

    fn write_fresh(&mut self, server: &Server) {
        let url = server.url(&format!("/write?db={DATABASE}"));
        let number = self.fresh;
        let time = Traffic::marker_time(self.fresh);
        let body = format!("{FRESH} v={number}i {time}\n");
        let acked = || request("POST", &url, body.as_bytes(), &[]).is_ok_and(|answer| answer.status == 204);
        // A failed attempt counts, too: the next one is the same reading.
        self.fresh += 1;
        if poll(FRESH_ACK_MAX, || acked().then_some(())).is_none() {
            self.note(Violation::Late(format!("the ack of a write after a fault, within {FRESH_ACK_MAX:?}")));
        }
    }

    fn sensors(&self) -> Vec<String> {
        let sensors_of =
            |connection: &Connection| Kind::all().into_iter().map(|kind| connection.traffic.sensor(kind)).collect();
        let mut sensors: Vec<String> =
            self.connections.iter().flat_map(|one| -> Vec<String> { sensors_of(one) }).collect();
        sensors.push(FRESH.to_owned());
        sensors
    }
}

const FRESH: &str = "proof,kind=fresh";

impl Connection {
    /// Sends the next request until it is acked or given up; records its number before and its ack right after.
    fn send_one(&mut self, base: &str, stop: &AtomicBool) -> Result<(), Option<Violation>> {
        let number = i64::try_from(self.sent.len()).expect("few");
        let ack = if self.traffic.waits_for_store(number) { "&ack=store" } else { "" };
        let url = format!("{base}/write?db={DATABASE}{ack}");
        let body = body(&self.traffic, &self.traffic.lines(number));
        self.sent.push(Request::default());
        let sent = self.sent.last_mut().expect("it was pushed");
        loop {
            sent.attempts += 1;
            match request("POST", &url, body.as_bytes(), &[]) {
                Ok(answer) if answer.status == 204 => {
                    sent.acked = true;
                    return Ok(());
                }
                Ok(answer) if answer.status == 503 => {}
                Ok(answer) => {
                    let body = String::from_utf8_lossy(&answer.body).into_owned();
                    return Err(Some(Violation::Refused { status: answer.status, body }));
                }
                // It was never sent.
                Err(ureq::Error::Io(error)) if error.kind() == ErrorKind::ConnectionRefused => sent.attempts -= 1,
                Err(ureq::Error::ConnectionFailed) => sent.attempts -= 1,
                Err(_broken) => {}
            }
            let given_up = sent.attempts > 0 && !self.traffic.sends_again(number);
            if given_up || stop.load(Ordering::Relaxed) {
                return Err(None);
            }
            std::thread::sleep(BACK_OFF);
        }
    }

    fn acked(&self) -> usize {
        let acked = self.sent.iter().zip(0..).filter(|(sent, _)| sent.acked);
        acked.map(|(_, request)| self.traffic.lines(request).len()).sum()
    }
}

/// Pause of an agent after a refusal.
const BACK_OFF: Duration = Duration::from_millis(10);

impl Progress {
    /// Waits until every connection got `more` acks; records a violation after `timeout`.
    pub fn await_acks(&self, more: usize, timeout: Duration) {
        let now = || -> Vec<usize> { self.acks.iter().map(|acks| acks.load(Ordering::Relaxed)).collect() };
        let before = now();
        let done = || now().iter().zip(&before).all(|(now, before)| now - before >= more).then_some(());
        if poll(timeout, done).is_none() {
            self.fail("acks for every connection".to_owned());
        }
    }

    /// Records that something did not happen in time.
    pub fn fail(&self, what: String) {
        self.late.lock().expect("no client panicked").push(what);
    }

    /// Returns the acked requests of all connections.
    pub fn acked(&self) -> usize {
        self.acks.iter().map(|acks| acks.load(Ordering::Relaxed)).sum()
    }
}
