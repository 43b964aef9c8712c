//! Clients that send bodies of 2,000 lines and record the answers, and the check that acked readings are stored.

use crate::support::prelude::*;

use super::ANSWER_MAX;

const DATABASE: &str = "load";
/// Sensors of a client; a body has one reading a second of each.
const SENSORS: usize = 20;
const STEPS: i64 = 100;
/// Pause of a client after an answer. It leaves the processors to other tests.
const PAUSE: Duration = Duration::from_millis(50);
/// A multiple of the seconds of a body, so that each body is a window.
const START: i64 = 1_768_486_000 * SECOND;

pub struct Load {
    clients: Vec<JoinHandle<()>>,
    log: Arc<Mutex<Log>>,
    stop: Arc<AtomicBool>,
}

/// Observations of all clients.
#[derive(Default)]
struct Log {
    attempts: Vec<Attempt>,
    /// Numbers of the acked bodies, by client.
    acked: Vec<Vec<i64>>,
}

#[derive(Debug)]
pub struct Attempt {
    pub sent: Instant,
    pub ended: Instant,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Acked,
    /// 503, with Retry-After and a JSON error.
    Refused,
    /// Any other answer.
    Other(String),
    /// No answer.
    Broken(String),
}

/// All observations, once the clients are done.
pub struct Report {
    /// In the order they ended.
    pub attempts: Vec<Attempt>,
    acked: Vec<Vec<i64>>,
}

impl Load {
    /// Starts clients that send until they are stopped.
    pub fn start(server: &Server, clients: usize) -> Load {
        let log = Log { attempts: Vec::new(), acked: vec![Vec::new(); clients] };
        let log = Arc::new(Mutex::new(log));
        let stop = Arc::new(AtomicBool::new(false));
        let url = server.url(&format!("/write?db={DATABASE}"));
        let start = |client: usize| {
            let url = url.clone();
            let log = log.clone();
            let stop = stop.clone();
            std::thread::spawn(move || send(client, &url, &log, &stop))
        };
        Load { clients: (0..clients).map(start).collect(), log, stop }
    }

    /// Waits until every client got `more` acks.
    #[track_caller]
    pub fn await_acks(&self, when: &str, more: usize, timeout: Duration) {
        self.await_more(&format!("acks {when}"), more, timeout, |log| log.acked.iter().map(Vec::len).collect());
    }

    #[track_caller]
    fn await_more(&self, what: &str, more: usize, timeout: Duration, count: fn(&Log) -> Vec<usize>) {
        let now = || count(&self.log.lock().expect("no client panicked"));
        let before = now();
        let done = || now().iter().zip(&before).all(|(now, before)| now - before >= more).then_some(());
        if poll(timeout, done).is_none() {
            panic!("{what}: not within {timeout:?}: {before:?} became {:?}", now());
        }
    }

    /// Lets every client finish its request and returns their observations.
    pub fn stop(mut self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        let is_done = || self.clients.iter().all(JoinHandle::is_finished).then_some(());
        eventually("the clients are done", is_done);
        self.clients.drain(..).for_each(|client| client.join().expect("a client does not panic"));
        let log = std::mem::take(&mut *self.log.lock().expect("no client panicked"));
        Report { attempts: log.attempts, acked: log.acked }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Clients must end after a failed assertion, too.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Report {
    /// Checks that every request was acked in time.
    #[track_caller]
    pub fn assert_acked_between(&self, away: Instant, back: Instant) {
        let mut acked = 0;
        for attempt in &self.attempts {
            let took = attempt.ended - attempt.sent;
            assert!(attempt.outcome == Outcome::Acked && took <= ANSWER_MAX, "{:?} after {took:?}", attempt.outcome);
            acked += usize::from(attempt.sent > away && attempt.ended < back);
        }
        assert!(acked >= self.acked.len(), "only {acked} were acked meanwhile");
    }

    /// Checks that every answer during the outage was a timely refusal, and that nothing else failed.
    #[track_caller]
    pub fn assert_refused_between(&self, away: Instant, back: Instant) {
        let mut refused = 0;
        for attempt in &self.attempts {
            assert!(matches!(attempt.outcome, Outcome::Acked | Outcome::Refused), "{:?}", attempt.outcome);
            let took = attempt.ended - attempt.sent;
            assert!(took <= ANSWER_MAX, "{:?} after {took:?}", attempt.outcome);
            if attempt.ended > away && attempt.ended < back {
                // Earlier requests may have been stored just in time.
                assert!(attempt.outcome == Outcome::Refused || attempt.sent < away, "an ack without the store");
                refused += usize::from(attempt.outcome == Outcome::Refused);
            }
        }
        assert!(refused >= self.acked.len(), "only {refused} were refused");
    }
}

fn send(client: usize, url: &str, log: &Mutex<Log>, stop: &AtomicBool) {
    for number in 0.. {
        let body = body(client, number);
        loop {
            let sent = Instant::now();
            let outcome = attempt(url, &body);
            let ended = Instant::now();
            let mut log = log.lock().expect("no client panicked");
            let acked = outcome == Outcome::Acked;
            if acked {
                log.acked[client].push(number);
            }
            let broken = matches!(outcome, Outcome::Broken(_));
            log.attempts.push(Attempt { sent, ended, outcome });
            drop(log);
            std::thread::sleep(PAUSE);
            if broken || stop.load(Ordering::Relaxed) {
                return;
            }
            if acked {
                break;
            }
        }
    }
}

fn attempt(url: &str, body: &str) -> Outcome {
    match request("POST", url, body.as_bytes(), &[]) {
        Err(error) => Outcome::Broken(error.to_string()),
        Ok(answer) if answer.status == 204 => Outcome::Acked,
        Ok(answer) => {
            let error = serde_json::from_slice::<serde_json::Value>(&answer.body);
            let says_why = error.is_ok_and(|error| error["error"].is_string());
            if answer.status == 503 && answer.header("retry-after").is_some() && says_why {
                return Outcome::Refused;
            }
            Outcome::Other(format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body)))
        }
    }
}

fn key(client: usize, sensor: usize) -> String {
    format!("load,client=c{client},sensor=s{sensor}")
}

fn body(client: usize, number: i64) -> String {
    let mut body = String::with_capacity(400_000);
    for step in number * STEPS..(number + 1) * STEPS {
        for sensor in 0..SENSORS {
            let key = key(client, sensor);
            let time = START + step * SECOND;
            writeln!(body, "{key} step={step}i,half={} {time}", half(step)).expect("writing to a String succeeds");
        }
    }
    body
}

#[allow(clippy::cast_precision_loss, reason = "small numbers")]
fn half(step: i64) -> f64 {
    step as f64 / 2.0
}

/// Checks that every reading of every acked body is stored with its values.
pub fn check_acked(server: &Server, report: &Report) {
    assert!(report.acked.iter().all(|numbers| !numbers.is_empty()));
    await_dispatched(server);
    for (client, numbers) in report.acked.iter().enumerate() {
        for sensor in 0..SENSORS {
            let key = key(client, sensor);
            let found = windows(server, DATABASE, &key, None, &format!("{STEPS}s"));
            for number in numbers {
                let span = (START + number * STEPS * SECOND, START + (number + 1) * STEPS * SECOND);
                let window =
                    found.get(&span).unwrap_or_else(|| panic!("{key}: body {number} was acked and is not there"));
                let steps = number * STEPS..(number + 1) * STEPS;
                let sum = steps.clone().sum::<i64>();
                let halves = steps.map(half).sum::<f64>();
                let expected = [("step", sum.to_string()), ("half", halves.to_string())];
                for (field, sum) in expected {
                    let found = (window[field].count, window[field].sum.get());
                    assert_eq!(found, (u64::try_from(STEPS).expect("positive"), &*sum), "{key}: {field} of {number}");
                }
            }
        }
    }
}
