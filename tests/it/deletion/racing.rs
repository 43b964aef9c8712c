//! Writers beside deletions: readings acked before a deletion are gone, later ones stay, concurrent ones may do either.

use std::sync::atomic::AtomicI64;

use crate::support::prelude::*;

use super::{CONFIG, DATABASE, SECOND, START, run, times};

const WRITERS: usize = 3;

/// An acked line: its time, and when it was sent and acked.
struct AckedReading {
    time: i64,
    sent: Instant,
    acked: Instant,
}

tests! {
    fn a_series_is_dropped_during_writes_in_the_embedded_store() =>
        race(Launch::embedded().config(CONFIG).start(), "DROP SERIES FROM m WHERE t = 'a'");
    fn a_series_is_dropped_during_writes_in_mongodb() => race(mongo(), "DROP SERIES FROM m WHERE t = 'a'");
    fn readings_are_deleted_during_writes_in_mongodb() =>
        race(mongo(), &format!("DELETE FROM m WHERE time >= {START}"));
    fn a_database_is_dropped_during_writes_in_mongodb() => race(mongo(), "DROP DATABASE doomed");
    fn a_database_is_dropped_during_writes_in_the_embedded_store() =>
        race(Launch::embedded().config(CONFIG).start(), "DROP DATABASE doomed");
}

fn mongo() -> Server {
    Launch::with_store(mongod().uri(&fresh_database_name())).config(CONFIG).start()
}

#[track_caller]
fn race(mut server: Server, statement: &str) {
    let stop = AtomicBool::new(false);
    let next = AtomicI64::new(0);
    let acked = Mutex::new(Vec::new());
    let url = server.url(&format!("/write?db={DATABASE}"));
    let mut asked = Instant::now();
    let mut answered = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    pause_client();
                    // All writers share a sensor, and its hours have several pages.
                    let time = START + next.fetch_add(1, Ordering::Relaxed) * 40 * SECOND;
                    let sent = Instant::now();
                    let answer = request("POST", &url, format!("m,t=a v=1 {time}").as_bytes(), &[]);
                    assert_eq!(answer.expect("an answer").status, 204);
                    acked.lock().expect("no panic").push(AckedReading { time, sent, acked: Instant::now() });
                }
            });
        }
        let count = || acked.lock().expect("no panic").len();
        for _ in 0..scaled(3, 12) {
            let before = count();
            wait_until("some are acked", || count() > before + 20);
            asked = Instant::now();
            run(&server, statement);
            answered = Instant::now();
        }
        let before = count();
        wait_until("some are acked", || count() > before + 20);
        stop.store(true, Ordering::Relaxed);
    });
    let acked = acked.into_inner().expect("no panic");
    let check = |server: &Server, when: &str| {
        let seen: BTreeSet<i64> = times(server, "m,t=a").into_iter().collect();
        for one in &acked {
            let is_there = seen.contains(&one.time);
            assert!(is_there || one.sent <= answered, "{when}: {} was sent after it, and is gone", one.time);
            assert!(!is_there || one.acked >= asked, "{when}: {} was acked before it, and is there", one.time);
        }
    };
    check(&server, "at once");
    server.kill();
    server.restart();
    check(&server, "after a kill");
    flush(&server);
    check(&server, "after a flush");
    server.kill();
    server.restart();
    check(&server, "after another kill");
}
