//! Runs scenarios against fake servers, and checks the built-in scenarios.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::builtin;
use super::posts::{self, Posts};
use super::recorder::{Outcome, Recorder};
use super::scenario::Scenario;
use super::schedule::Schedule;
use super::senders::{DROPPED, Sending, send_all};

/// A scenario with a few devices and these additional keys.
fn scenario(keys: &str) -> String {
    format!(
        r#"
        description = "a test"
        duration = "2s"
        rate = 1000
        connections = 4
        lines = 10
        {keys}
        [[measurements]]
        name = "m"
        devices = 10
        interval = "1s"
        [measurements.tags]
        id = {{ kind = "numbered", prefix = "d" }}
        [measurements.fields]
        f = {{ kind = "walk", least = 0, most = 9, step = 1 }}
        "#
    )
}

/// Answers each request with what `answer` says for the number of requests before and the time since the start, after
/// the time that it says.
async fn serve(answer: impl Fn(usize, Duration) -> (&'static str, Duration) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (answer, count, started) = (Arc::new(answer), Arc::new(Mutex::new(0)), Instant::now());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (answer, count) = (answer.clone(), count.clone());
            tokio::spawn(async move {
                let mut read = Vec::new();
                loop {
                    let Some(end) = request_end(&read) else {
                        let mut part = [0; 4096];
                        match stream.read(&mut part).await {
                            Ok(0) | Err(_) => return,
                            Ok(length) => read.extend_from_slice(&part[..length]),
                        }
                        continue;
                    };
                    read.drain(..end);
                    let number = {
                        let mut count = count.lock().unwrap();
                        *count += 1;
                        *count - 1
                    };
                    let (head, wait) = answer(number, started.elapsed());
                    tokio::time::sleep(wait).await;
                    if stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// Where the first request ends, if all of it is there.
fn request_end(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&read[..head]).to_lowercase();
    let length = text.split("content-length:").nth(1)?.split("\r\n").next()?.trim().parse::<usize>().ok()?;
    (read.len() >= head + length).then_some(head + length)
}

/// Runs a scenario against a server.
async fn recorded(keys: &str, target: String) -> Recorder {
    let scenario = Scenario::parse(&scenario(keys)).unwrap();
    let schedule = Schedule { rate: scenario.rate(), duration: scenario.duration.0 };
    let begin = Instant::now() + Duration::from_millis(100);
    let shared = Arc::new(Mutex::new(Recorder::new(begin, schedule.duration, 0)));
    let sending = Sending {
        target,
        path: "/write".to_owned(),
        gzip: false,
        connections: scenario.connections,
        timeout: scenario.timeout.0,
        reconnect_every: scenario.faults.reconnect_every.map(|every| every.0),
        begin,
        duration: schedule.duration,
    };
    let taken = posts::start(Posts::new(&scenario, schedule, 1, 0), begin);
    send_all(&sending, taken, &shared).await.unwrap();
    Arc::into_inner(shared).unwrap().into_inner().unwrap()
}

/// A server that does not answer for 600 ms: the four POSTs under way wait, and so do the sixty that become due
/// meanwhile. A closed loop would see only four slow ones of two hundred.
#[tokio::test]
async fn a_stall_is_seen_by_all_that_were_due_meanwhile() {
    let (from, to) = (Duration::from_millis(700), Duration::from_millis(1300));
    let stalls =
        move |_, at: Duration| ("204 No Content", if at > from { to.saturating_sub(at) } else { Duration::ZERO });
    let recorder = recorded("", serve(stalls).await).await;
    assert_eq!((recorder.acked_posts, recorder.acked_readings), (200, 2000));
    let slow = |histogram: &hdrhistogram::Histogram<u64>| histogram.count_between(100_000, u64::MAX);
    let (corrected, service) = (slow(&recorder.corrected), slow(&recorder.service));
    assert!(corrected >= 40 && service <= 8, "{corrected} waited, {service} were answered slowly");
    assert!(recorder.corrected.value_at_quantile(0.9) > 250_000 && recorder.service.value_at_quantile(0.9) < 100_000);
}

#[tokio::test]
async fn a_503_is_sent_again_and_its_latency_counts_from_the_first_time() {
    let refuses = |number, _| match number {
        5 => ("503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0", Duration::ZERO),
        9 => ("400 Bad Request\r\ncontent-length: 0", Duration::ZERO),
        _ => ("204 No Content", Duration::ZERO),
    };
    let recorder = recorded("", serve(refuses).await).await;
    assert_eq!((recorder.errors.get("503"), recorder.errors.get("400")), (Some(&1), Some(&1)));
    assert_eq!((recorder.tries, recorder.acked_posts, recorder.given_up), (201, 199, 1));
    let unknown: Vec<&Outcome> = recorder.outcomes.iter().filter(|outcome| **outcome != Outcome::Acked).collect();
    assert_eq!(unknown, [&Outcome::Unknown]);
    assert!(recorder.corrected.max() >= 1_000_000 && recorder.service.max() < 900_000);
}

/// All connections break while they wait for an answer: the outcomes are unknown, and every POST is sent again.
#[tokio::test]
async fn a_broken_connection_is_opened_again_and_its_post_sent_again() {
    let waits = |_, _| ("204 No Content", Duration::from_millis(30));
    let recorder = recorded("faults = { reconnect_every = \"500ms\" }", serve(waits).await).await;
    let dropped = recorder.errors.get(DROPPED).copied().unwrap_or(0);
    assert_eq!(recorder.acked_posts, 200);
    assert!(dropped >= 4 && recorder.tries == 200 + dropped, "{:?}", recorder.errors);
    assert!(recorder.reconnects >= 12, "{}", recorder.reconnects);
}

#[tokio::test]
async fn nobody_there_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let scenario = Scenario::parse(&scenario("")).unwrap();
    let mut line = super::trying::Line::new(&address);
    assert_eq!(line.ready().await.unwrap_err(), "connection refused");
    assert_eq!(scenario.connections, 4);
}

#[test]
fn mistakes_are_told_by_their_key() {
    for (mistake, told) in [
        (scenario("").replace("lines = 10", "lines = 0"), "lines: must not be 0"),
        (scenario("").replace("lines = 10", ""), "missing field `lines`"),
        (scenario("ratte = 5"), "unknown field `ratte`"),
        (scenario("ack = \"maybe\""), "unknown variant `maybe`"),
        (scenario("start = \"yesterday\""), "start"),
        (scenario("").replace("2s", "2 lightyears"), "'2 lightyears' is no length of time"),
        (scenario("").replace("step = 1", "step = 1, stepp = 2"), "unknown field `stepp`"),
        (scenario("").replace(", step = 1", ""), "measurements.m.fields.f.step: is missing"),
        (scenario("").replace("step = 1", "step = 1, period = \"5s\""), "measurements.m.fields.f.period: this kind"),
        (scenario("").replace("kind = \"walk\"", "kind = \"run\""), "unknown variant `run`"),
        (scenario("").replace("\"numbered\", prefix", "\"fixed\", value"), "measurements.m.tags: exactly one"),
        (scenario("").replace("interval", "jitter = \"1s\"\ninterval"), "measurements.m.jitter"),
        (scenario("faults = { entry_late = 1.5 }"), "faults.entry_late: must be 0 to 1"),
        (scenario("faults = { entry_late = 0.6, entry_missing = 0.6 }"), "faults.entry_missing: nothing would"),
        (scenario("slo = { p99 = 1 }"), "unknown field `p99`"),
    ] {
        let refused = format!("{:#}", Scenario::parse(&mistake).unwrap_err());
        assert!(refused.contains(told), "{told} is not in: {refused}");
    }
}

#[test]
fn every_scenario_is_sound_and_makes_line_protocol() {
    for name in builtin::names() {
        let scenario =
            Scenario::parse(builtin::text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert!(scenario.description.len() < 130, "{name}");
        let schedule = Schedule { rate: scenario.rate(), duration: scenario.duration.0 };
        let mut posts = Posts::new(&scenario, schedule, scenario.seed, 1_768_435_200_000_000_000);
        let mut lines = 0;
        while lines < 2000 {
            let (post, entries) = posts.next().unwrap().unwrap();
            let (body, entries) = (String::from_utf8(post.body.to_vec()).unwrap(), entries.to_vec());
            assert_eq!(body.lines().count(), entries.len());
            for (line, entry) in body.lines().zip(entries) {
                let key = posts.key(entry.sensor);
                assert_is_line(name, line);
                assert!(line.starts_with(&format!("{key} ")) && line.ends_with(&format!(" {}", entry.time)), "{line}");
                lines += 1;
            }
        }
    }
}

/// No built-in scenario needs a backslash.
fn assert_is_line(name: &str, line: &str) {
    let [series, fields, time] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{name}: {line}") };
    let tags: Vec<&str> = series.split(',').skip(1).collect();
    let keys: Vec<&str> = tags.iter().map(|tag| tag.split_once('=').unwrap().0).collect();
    assert!(keys.is_sorted() && tags.iter().all(|tag| !tag.ends_with('=')), "{name}: {line}");
    for field in fields.split(',') {
        let (key, value) = field.split_once('=').unwrap();
        let is_number = value.trim_end_matches('i').parse::<f64>().is_ok_and(f64::is_finite);
        let is_text = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
        assert!(!key.is_empty() && (is_number || is_text || ["true", "false"].contains(&value)), "{name}: {line}");
    }
    assert!(time.parse::<i64>().unwrap() >= 1_768_435_200_000_000_000, "{name}: {line}");
}

#[test]
fn the_same_seed_gives_the_same_posts_and_copies_are_alike() {
    let made = |seed, twice: &str| {
        let scenario = Scenario::parse(&scenario(&format!("faults = {{ posts_twice = {twice} }}"))).unwrap();
        let schedule = Schedule { rate: scenario.rate(), duration: scenario.duration.0 };
        let mut posts = Posts::new(&scenario, schedule, seed, 0);
        let mut made = Vec::new();
        while let Some((post, entries)) = posts.next().unwrap() {
            assert_eq!(post.number, made.len());
            made.push((post.body, post.due, entries.to_vec()));
        }
        made
    };
    assert_eq!(made(1, "0.1"), made(1, "0.1"));
    assert_ne!(made(1, "0.1"), made(2, "0.1"));
    let twice = made(1, "1.0");
    assert_eq!(twice.len(), 200);
    assert!(twice.chunks(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].2 == pair[1].2 && pair[0].1 < pair[1].1));
}
