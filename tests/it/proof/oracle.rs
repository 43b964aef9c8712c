//! The oracle: clients whose traffic is a function of a seed, a note of every ack before anything else happens, and
//! the comparison of what is there with what was acked. It finds violations; whether there may be any says the test.

mod expected;
mod seen;
mod traffic;

use self::seen::Found;
use self::traffic::{Kind, Traffic, body};
use crate::support::prelude::*;

use super::DATABASE;

/// Something that must never be.
#[allow(dead_code, reason = "what they hold is for those who read them")]
#[derive(Debug, Clone)]
pub enum Violation {
    /// A field of a reading that was acked is not there.
    Lost(String),
    /// A request that was not acked is there, but not all of it; or it is not, but for this.
    PartMissing(String),
    /// The same, told by its markers.
    HalfARequest { connection: usize, request: i64, what: String },
    /// It is there and holds what it must not hold any more, or not yet.
    Wrong { place: String, found: f64, expected: Vec<f64> },
    /// Nobody sent it.
    NeverSent(String),
    /// It is there more often than it was sent.
    Doubled { place: String, there: usize, sent: usize },
    /// A reading without a timestamp had another one before.
    Restamped { place: String, before: BTreeSet<i64>, now: BTreeSet<i64> },
    /// A window is not what its readings say.
    Window { place: String, found: String, readings: usize },
    /// A document is not as the design says: its summary, its caps, a timestamp on two pages.
    Documents(String),
    /// A query's answer is not as it should be.
    Answers(String),
    /// A write got an answer that it must not get.
    Refused { status: u16, body: String },
    /// Not within its deadline.
    Late(String),
}

/// Clients and all they know.
pub struct Oracle {
    connections: Vec<Connection>,
    /// Writes that had to be acked soon after a fault.
    fresh: i64,
    violations: BTreeMap<String, Violation>,
    cycles: usize,
    /// How long a connection rests between two requests.
    pace: Duration,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// How often clients were sent on their way while something was broken.
    pub cycles: usize,
    /// Requests, acked or not.
    pub requests: usize,
    /// Readings that were acked.
    pub acked: usize,
    /// Fields of them that were missed.
    pub lost: usize,
    /// Readings that were there too often.
    pub doubled: usize,
    /// Windows and documents that were not what their readings say.
    pub summaries: usize,
    /// All violations, those before included.
    pub violations: usize,
}

/// What a connection knows.
struct Connection {
    traffic: Traffic,
    /// By the request's number.
    sent: Vec<Sent>,
    /// By value, the stamps that undated readings were given.
    stamps: BTreeMap<i64, BTreeSet<i64>>,
}

/// A request that was sent, or was meant to be.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    /// How often it may have reached the server.
    attempts: usize,
    acked: bool,
}

/// What the clients have got so far, for the thread that breaks things.
pub struct Progress {
    acks: Vec<AtomicUsize>,
    stop: AtomicBool,
    late: Mutex<Vec<String>>,
}

/// How soon after a fault a write must be acked.
const FRESH_WITHIN: Duration = Duration::from_secs(10);
/// How soon after a start or a fault queries must be answered.
const READABLE_WITHIN: Duration = Duration::from_secs(60);
const SHOWN: usize = 12;

impl Oracle {
    /// So many connections, each with sensors of its own.
    pub fn new(seed: u64, connections: usize) -> Oracle {
        let connection = |connection| {
            let traffic = Traffic { seed, connection, asks_for_store: true };
            Connection { traffic, sent: Vec::new(), stamps: BTreeMap::new() }
        };
        let connections = (0..connections).map(connection).collect();
        Oracle { connections, fresh: 0, violations: BTreeMap::new(), cycles: 0, pace: Duration::ZERO }
    }

    /// With that rest between two requests of a connection: a long run needs no more readings than a short one.
    pub fn paced(mut self, pace: Duration) -> Oracle {
        self.pace = pace;
        self
    }

    /// Without requests that ask for the ack of the store, which would have the buckets they write to flushed.
    pub fn acked_by_the_log(mut self) -> Oracle {
        self.connections.iter_mut().for_each(|connection| connection.traffic.asks_for_store = false);
        self
    }

    /// Sends from all connections to the server at this URL until `act` is done.
    pub fn during<T>(&mut self, base: &str, act: impl FnOnce(&Progress) -> T) -> T {
        let acks = self.connections.iter().map(|_| AtomicUsize::new(0)).collect();
        let progress = Progress { acks, stop: AtomicBool::new(false), late: Mutex::default() };
        let violations = Mutex::new(Vec::new());
        let acted = std::thread::scope(|scope| {
            // Also when `act` panics, or the scope would wait for ever.
            let _stop = StopAtEnd(&progress.stop);
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
        acted
    }

    /// Compares what queries answer, flushed or not, and demands that a write is acked soon.
    pub fn check_answers(&mut self, server: &Server) {
        let sensors = self.sensors();
        let url = server.url(&format!("/api/v1/sensors?db={DATABASE}&limit=1"));
        let windows_url = server.url(&format!("/api/v1/readings?db={DATABASE}&sensor=proof"));
        let is_answered = |url: &str| request("GET", url, b"", &[]).is_ok_and(|answer| answer.status != 503);
        if poll(READABLE_WITHIN, || (is_answered(&url) && is_answered(&windows_url)).then_some(())).is_none() {
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

    /// Compares what lies in the store. Everything acked must have been flushed.
    pub fn check_stored(&mut self, stored: &Stored) {
        match seen::in_store(stored) {
            Ok(found) => self.compare(&found),
            Err(violation) => self.note(violation),
        }
    }

    /// Adds what somebody else found.
    pub fn note(&mut self, violation: Violation) {
        self.violations.insert(format!("{violation:?}"), violation);
    }

    /// All that was found, each once.
    pub fn violations(&self) -> Vec<&Violation> {
        self.violations.values().collect()
    }

    /// What the run came to so far.
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

    /// Prints a line about the run and panics unless all is well. A run in which little was acked proves nothing.
    #[track_caller]
    pub fn assert_kept(&self, name: &str) -> Tally {
        let tally = self.tally();
        // Not by eprintln!, which the test harness captures.
        let _ = writeln!(std::io::stderr(), "{name}: {tally:?}");
        assert!(self.violations.is_empty(), "{name}:\n{}", self.shown());
        for connection in &self.connections {
            assert!(connection.acked() > 100, "{name}: connection {} got few acks", connection.traffic.connection);
        }
        tally
    }

    /// The first violations, a line each.
    pub fn shown(&self) -> String {
        let lines: Vec<&str> = self.violations.keys().take(SHOWN).map(String::as_str).collect();
        format!("{}\n({} in all)", lines.join("\n"), self.violations.len())
    }

    fn compare(&mut self, found: &Found) {
        let compared: Vec<Violation> =
            self.connections.iter_mut().flat_map(|connection| expected::compare(connection, found)).collect();
        compared.into_iter().for_each(|violation| self.note(violation));
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
        // An attempt that failed counts, too: the next one is the same reading.
        self.fresh += 1;
        if poll(FRESH_WITHIN, || acked().then_some(())).is_none() {
            self.note(Violation::Late(format!("the ack of a write after a fault, within {FRESH_WITHIN:?}")));
        }
    }

    fn sensors(&self) -> Vec<String> {
        let of =
            |connection: &Connection| Kind::all().into_iter().map(|kind| connection.traffic.sensor(kind)).collect();
        let mut sensors: Vec<String> = self.connections.iter().flat_map(|one| -> Vec<String> { of(one) }).collect();
        sensors.push(FRESH.to_owned());
        sensors
    }
}

const FRESH: &str = "proof,kind=fresh";

impl Connection {
    /// Sends the next request until it is acked or given up. Its number is noted before it is sent, its ack as soon as
    /// it is read.
    fn send_one(&mut self, base: &str, stop: &AtomicBool) -> Result<(), Option<Violation>> {
        let number = i64::try_from(self.sent.len()).expect("few");
        let ack = if self.traffic.waits_for_store(number) { "&ack=store" } else { "" };
        let url = format!("{base}/write?db={DATABASE}{ack}");
        let body = body(&self.traffic, &self.traffic.lines(number));
        self.sent.push(Sent::default());
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
                // It never left.
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

    /// How many readings were acked.
    fn acked(&self) -> usize {
        let acked = self.sent.iter().zip(0..).filter(|(sent, _)| sent.acked);
        acked.map(|(_, request)| self.traffic.lines(request).len()).sum()
    }
}

/// As an agent does that was refused.
const BACK_OFF: Duration = Duration::from_millis(10);

impl Progress {
    /// Waits until every connection got so many acks from now on; notes it when they do not come.
    pub fn await_acks(&self, more: usize, within: Duration) {
        let now = || -> Vec<usize> { self.acks.iter().map(|acks| acks.load(Ordering::Relaxed)).collect() };
        let before = now();
        let done = || now().iter().zip(&before).all(|(now, before)| now - before >= more).then_some(());
        if poll(within, done).is_none() {
            self.fail("acks for every connection".to_owned());
        }
    }

    /// Notes that something did not come in time.
    pub fn fail(&self, what: String) {
        self.late.lock().expect("no client panicked").push(what);
    }

    /// How many requests were acked, of all connections.
    pub fn acked(&self) -> usize {
        self.acks.iter().map(|acks| acks.load(Ordering::Relaxed)).sum()
    }
}
