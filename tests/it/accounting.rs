//! At every scrape, `accepted + replayed = stored + duplicate + overwritten + deleted + dead_lettered + pending`.

use std::sync::MutexGuard;

use crate::support::prelude::*;

const WRITERS: i64 = 4;
/// Several scrapers, because scrapes may run concurrently.
const SCRAPERS: usize = 3;
/// Scrapes in each part of the test.
const SCRAPES: usize = 25;
/// New readings of a body. As many are duplicates of the previous body, and as many overwrite the one before.
const NEW: i64 = 10;
const START: i64 = 1_768_486_000_000_000_000;
const PACE: Duration = Duration::from_millis(5);
/// Frequent flushes, small pages and minimal hot memory.
const CONFIG: &str = r#"
[flush]
interval = "50ms"
[page]
max_readings = 50
[memtable]
max_bytes = "1MiB"
[store]
command_timeout = "2s"
"#;

const TERMS: [&str; 7] = [
    "accepted_total",
    "replayed_total",
    "stored_total",
    "duplicate_total",
    "overwritten_total",
    "deleted_total",
    "dead_lettered_total",
];

/// Terms of a scrape by name.
pub type Terms = BTreeMap<String, i64>;

/// Observations of the scrapers since the last start.
#[derive(Default)]
struct Observations {
    scrapes: usize,
    last: Terms,
    wrong: Vec<Terms>,
}

/// Parses the terms of `/metrics`; all must be present.
pub fn terms(text: &str) -> Terms {
    let term = |name: &str| {
        let sample = format!("hourglass_ingest_readings_{name} ");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&sample)).unwrap_or_else(|| panic!("{name}: {text}"));
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("{name}: {value}")))
    };
    TERMS.iter().copied().chain(["pending"]).map(term).collect()
}

pub fn is_balanced(terms: &Terms) -> bool {
    let gone: i64 = TERMS[2..].iter().map(|name| terms[*name]).sum();
    terms["accepted_total"] + terms["replayed_total"] == gone + terms["pending"]
}

fn scrape_all(url: &str, seen: &Mutex<Observations>, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(PACE);
        let Ok(answer) = request("GET", url, b"", &[]) else {
            // Nobody answers between a kill and the next start.
            continue;
        };
        let terms = terms(answer.expect(200).text());
        let mut seen = lock(seen);
        seen.scrapes += 1;
        if !is_balanced(&terms) {
            seen.wrong.push(terms.clone());
        }
        seen.last = terms;
    }
}

fn lock(seen: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    seen.lock().expect("no scraper panicked")
}

/// Sends bodies, each until it is acked.
fn write_all(url: &str, writer: i64, stop: &AtomicBool) {
    for number in 0.. {
        let body = body(writer, number);
        loop {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(PACE);
            match request("POST", url, body.as_bytes(), &[]) {
                Ok(answer) if answer.status == 204 => break,
                Ok(answer) => drop(answer.expect(503)),
                Err(_) => {}
            }
        }
    }
}

/// New readings, the previous body unchanged, and the one before with other values; every third sensor is shared.
fn body(writer: i64, number: i64) -> String {
    let mut body = String::new();
    let mut line = |number: i64, step: i64, fields: &str| {
        let sensor = if step % 3 == 0 { WRITERS } else { writer };
        let time = START + ((number * NEW + step) * (WRITERS + 1) + writer) * 1_000_000;
        writeln!(body, "account,s=s{sensor} {fields} {time}").expect("writing to a String succeeds");
    };
    for step in 0..NEW {
        line(number, step, "v=1");
        if number > 0 {
            line(number - 1, step, "v=1");
        }
        if number > 1 {
            line(number - 2, step, "v=2,w=3i");
        }
    }
    body
}

/// Waits for `more` scrapes, the last of which satisfies `wanted`.
#[track_caller]
fn await_scrapes(what: &str, seen: &Mutex<Observations>, wanted: impl Fn(&Terms) -> bool) {
    let before = lock(seen).scrapes;
    let done = || {
        let seen = lock(seen);
        (seen.scrapes >= before + SCRAPES && wanted(&seen.last)).then_some(())
    };
    if poll(TIMEOUT, done).is_none() {
        let seen = lock(seen);
        panic!("{what}: not within {TIMEOUT:?}: {} scrapes, {:?}", seen.scrapes - before, seen.last);
    }
}

#[test]
fn counters_balance_at_every_scrape_with_the_embedded_store() {
    counters_balance(Launch::embedded().config(CONFIG).start(), None);
}

#[test]
fn counters_balance_at_every_scrape_with_mongodb() {
    let mongod = Mongod::start();
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(CONFIG).start();
    counters_balance(server, Some(mongod));
}

fn counters_balance(mut server: Server, mongod: Option<Mongod>) {
    let seen = Mutex::new(Observations::default());
    let stop = AtomicBool::new(false);
    let write = server.url("/write?db=account");
    let metrics = server.url("/metrics");
    std::thread::scope(|scope| {
        let stopper = StopOnDrop(&stop);
        for writer in 0..WRITERS {
            let write = &write;
            let stop = &stop;
            scope.spawn(move || write_all(write, writer, stop));
        }
        for _ in 0..SCRAPERS {
            scope.spawn(|| scrape_all(&metrics, &seen, &stop));
        }
        let all_kinds = |terms: &Terms| TERMS[2..5].iter().all(|name| terms[*name] > 100);
        await_scrapes("readings of all kinds", &seen, all_kinds);
        if let Some(mut mongod) = mongod {
            mongod.pause();
            await_scrapes("readings during the outage", &seen, |terms| terms["pending"] > 500);
            end(&mut server, &seen);
            await_scrapes("replayed readings during the outage", &seen, |terms| {
                terms["replayed_total"] > 500 && terms["stored_total"] == 0
            });
            mongod.resume();
            await_scrapes("stored readings after the outage", &seen, all_kinds);
            end(&mut server, &seen);
            await_scrapes("replayed readings after the outage", &seen, |terms| terms["replayed_total"] > 0);
            drop(stopper);
            settle(&server);
            return;
        }
        end(&mut server, &seen);
        await_scrapes("replayed readings", &seen, |terms| terms["replayed_total"] > 0 && all_kinds(terms));
        drop(stopper);
        settle(&server);
    });
    let seen = lock(&seen);
    assert!(seen.wrong.is_empty(), "{} of {} scrapes, such as {:?}", seen.wrong.len(), seen.scrapes, seen.wrong[0]);
    assert!(seen.scrapes >= 50, "{} scrapes", seen.scrapes);
}

/// Kills the server under load and restarts it.
fn end(server: &mut Server, seen: &Mutex<Observations>) {
    server.kill();
    lock(seen).last.clear();
    server.restart_behind();
    let first = || lock(seen).last.contains_key("pending").then_some(());
    eventually("a scrape after the start", first);
}

/// Flushes everything; then nothing is pending, and the account still holds.
fn settle(server: &Server) {
    wait_until("nothing is pending", || {
        flush(server);
        let terms = terms(get(&server.url("/metrics")).expect(200).text());
        assert!(is_balanced(&terms), "{terms:?}");
        terms["pending"] == 0 && terms["replayed_total"] > 0
    });
}
