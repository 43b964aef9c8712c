//! Hostile clients get the right status, nothing panics, and a good client is served meanwhile. The costs are printed.

mod http2;
mod names;
mod numbers;
mod queries;
mod sensors;
mod sizes;
mod slow;
mod terms;

use crate::support::prelude::*;

/// The good client's database.
const GOOD: &str = "good";

/// A client of a server, with a token if one is needed.
struct Client<'a> {
    server: &'a Server,
    token: Option<&'a str>,
}

impl Client<'_> {
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = self.token.map(|token| format!("Token {token}"));
        let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", token.as_str())).collect();
        let answer = request(method, &self.server.url(path), body.as_bytes(), &headers);
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[track_caller]
    fn count(&self, database: &str, sensor: &str) -> usize {
        readings_for(|path| self.ask("GET", path, ""), database, sensor, None, 10_000).len()
    }
}

/// Runs `harm` while a good client writes and reads; each of its readings must be acked and stored.
#[track_caller]
fn with_good_client<T>(server: &Server, what: &str, harm: impl FnOnce() -> T) -> T {
    while_served(&Client { server, token: None }, what, harm)
}

#[track_caller]
fn while_served<T>(good: &Client<'_>, what: &str, harm: impl FnOnce() -> T) -> T {
    let server = good.server;
    let before = Memory::measure(server);
    let started = Instant::now();
    let is_over = AtomicBool::new(false);
    let (outcome, mut times) = std::thread::scope(|scope| {
        let good = scope.spawn(|| write_and_read(good, what, &is_over));
        // Set on a panic, too, or the scope would wait for ever.
        let end = StopOnDrop(&is_over);
        let outcome = harm();
        drop(end);
        (outcome, good.join().expect("the good client is served"))
    });
    let after = Memory::measure(server);
    times.sort_unstable();
    let median = times[times.len() / 2];
    let p99 = times[times.len() * 99 / 100];
    print(&format!(
        "hostile {what}: {:.1} s; a good client wrote {} readings meanwhile, p50 {:.1} ms, p99 {:.1} ms; resident {before} \
         before, {after} after",
        started.elapsed().as_secs_f64(),
        times.len(),
        median.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3,
    ));
    assert_eq!(get(&server.url("/health")).status, 200);
    let log = server.stderr();
    // Each query compares what it holds with its charge (src/memory/growth.rs).
    assert!(!log.contains("panicked") && !log.contains("was not charged"), "{log}");
    let long = sample(&good.ask("GET", "/metrics", ""), "hourglass_lane_long_polls_total");
    assert!(long == 0.0, "{long} times, a task of {what} held its thread for long");
    outcome
}

/// Writes readings until `is_over`, at least one, checks them all, and returns the times.
fn write_and_read(good: &Client<'_>, what: &str, is_over: &AtomicBool) -> Vec<Duration> {
    let mut count = 0;
    let mut times = Vec::new();
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let sensor = format!("climate,during={}", what.chars().map(word).collect::<String>());
    loop {
        let line = format!("{sensor} temp={count} {}", START + i64::try_from(count).expect("few"));
        let started = Instant::now();
        good.ask("POST", &format!("/write?db={GOOD}"), &line).expect(204);
        times.push(started.elapsed());
        count += 1;
        if count % 50 == 1 {
            assert_eq!(good.count(GOOD, &sensor), count);
        }
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        pause_client();
    }
    good.ask("POST", "/api/v1/flush", "").expect(204);
    assert_eq!(good.count(GOOD, &sensor), count);
    times
}

#[derive(Debug, Clone, Copy)]
struct Memory {
    resident: u64,
    peak: u64,
}

impl Memory {
    fn measure(server: &Server) -> Memory {
        Memory { resident: resident_bytes(server.pid()), peak: peak_bytes(server.pid()) }
    }

    /// Checks that the peak is at most `bytes` above the earlier resident memory.
    #[track_caller]
    fn assert_growth_at_most(server: &Server, before: Memory, bytes: u64) {
        let peak = Memory::measure(server).peak;
        let before = before.resident;
        assert!(peak <= before + bytes, "{} MiB at the peak, {} MiB before", peak >> 20, before >> 20);
    }
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} MiB (peak {} MiB)", self.resident >> 20, self.peak >> 20)
    }
}

/// Prints to the terminal, also in passing tests.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
