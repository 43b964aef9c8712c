//! Foreign transactions, write conflicts and failed commands: readings wait, and none becomes a dead letter.

use mongodb::Client;

use crate::support::prelude::*;

/// Pages that a few strings overflow.
const SMALL_PAGES: &str = "[page]\nmax_readings = 8\nmax_bytes = \"2KiB\"\nhard_bytes = \"4KiB\"\n";

fn lines(sensor: &str, times: std::ops::Range<i64>, length: usize, mark: &str) -> String {
    let text = mark.repeat(length);
    times.fold(String::new(), |mut body, second| {
        writeln!(body, "{sensor} t=\"{text}\" {}", START + second * 1_000_000_000).unwrap();
        body
    })
}

fn has_dead_letters(server: &Server) -> bool {
    server.data_dir().join("dead-letters").exists()
}

/// Leaves a transaction open that has written to every page of `default.buckets`, as a killed instance does.
fn leave_a_transaction(uri: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = runtime.block_on(async {
        let client = Client::with_uri_str(uri).await.unwrap();
        // The longest wait is the default.
        let lifetime = doc! { "setParameter": 1, "transactionLifetimeLimitSeconds": scaled(20, 60) };
        client.database("admin").run_command(lifetime).await.unwrap();
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let pages = client.default_database().unwrap().collection::<Document>("default.buckets");
        let held = pages.update_many(doc! {}, doc! { "$set": { "held": true } }).session(&mut session).await.unwrap();
        assert!(held.modified_count > 0, "it holds something");
        session
    });
    std::mem::forget((runtime, session));
}

/// Regression: write conflicts with an abandoned transaction turned acked readings into dead letters.
#[test]
fn a_split_waits_for_an_abandoned_transaction() {
    let mongod = Mongod::start();
    let uri = mongod.uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(SMALL_PAGES).start();
    post(&server.url("/write?ack=store"), lines("m,s=1", 0..6, 10, "a"), &[]).expect(204);
    leave_a_transaction(&uri);
    post(&server.url("/write"), lines("m,s=1", 0..6, 1000, "b"), &[]).expect(204);
    let request = std::thread::spawn({
        let url = server.url("/api/v1/flush");
        move || post(&url, "", &[]).status
    });
    let tries = || metric(&server, "hourglass_store_errors_total");
    wait_until("it is tried again and again", || tries() >= 6.0);
    assert_eq!(metric(&server, "hourglass_flush_blocked_buckets"), 1.0);
    assert_eq!(metric(&server, "hourglass_ingest_readings_dead_lettered_total"), 0.0);
    // mongod aborts it at the end of its lifetime.
    assert_eq!(request.join().unwrap(), 204);
    assert_eq!(metric(&server, "hourglass_flush_blocked_buckets"), 0.0);
    assert!(!has_dead_letters(&server));
    let stored = readings(&server, "default", "m,s=1", None, 100);
    assert_eq!(stored.len(), 6);
    assert!(stored.iter().all(|(_, fields)| fields["t"].starts_with("\"bb")), "the later value wins");
}

/// Regression: conflicts between two instances, one with a slow link, were answered 400 and made dead letters.
#[test]
fn two_instances_that_split_the_same_pages_lose_nothing() {
    let name = fresh_database_name();
    let mongod = Mongod::start();
    let proxy = Proxy::start(mongod.port());
    proxy.set(Fault::Delay(Duration::from_millis(20)));
    let near = Launch::with_store(mongod.uri(&name)).config(SMALL_PAGES).start();
    let behind = format!("mongodb://127.0.0.1:{}/{name}?directConnection=true", proxy.port());
    let far = Launch::with_store(behind).config(SMALL_PAGES).start();
    // The slow instance's transaction is open for about 100 ms, so the fast one hits it before and during.
    const ROUNDS: u64 = 20;
    for round in 0..ROUNDS {
        let sensor = format!("m,s={round}");
        post(&near.url("/write?ack=store"), lines(&sensor, 0..6, 10, "a"), &[]).expect(204);
        let overwrite = |server: &Server, mark: &str| {
            let answer = post(&server.url("/write?ack=store"), lines(&sensor, 0..6, 1000, mark), &[]);
            assert_eq!(answer.status, 204, "{}", answer.text());
        };
        std::thread::scope(|scope| {
            scope.spawn(|| overwrite(&far, "f"));
            std::thread::sleep(Duration::from_millis(20 * round));
            overwrite(&near, "n");
        });
    }
    for server in [&near, &far] {
        flush(server);
        assert!(!has_dead_letters(server));
    }
    for round in 0..ROUNDS {
        let stored = readings(&near, "default", &format!("m,s={round}"), None, 100);
        assert_eq!(stored.len(), 6);
        let overwritten = |text: &str| text.starts_with("\"ff") || text.starts_with("\"nn");
        assert!(stored.iter().all(|(_, fields)| overwritten(&fields["t"])), "no old value");
    }
    let of_both = |name: &str| metric(&near, name) + metric(&far, name);
    let conflicts = of_both("hourglass_store_conflicts_total");
    let held = of_both("hourglass_store_errors_total");
    println!("two instances: {conflicts} conflicts, {held} times held by the other one's transaction");
    assert!(held > 0.0, "they never met in a transaction");
}

/// Regression: a command that failed as a whole was taken for a refusal of each document.
#[test]
fn a_failed_command_is_no_refusal_of_its_documents() {
    let mongod = Mongod::start_with(&["--setParameter", "enableTestCommands=1"]);
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(SMALL_PAGES).start();
    post(&server.url("/write?ack=store"), lines("m,s=1", 0..2, 1, "a"), &[]).expect(204);
    for code in [2, 14] {
        mongod.fail(&["update", "insert"], code);
        let before = metric(&server, "hourglass_store_errors_total");
        let mut body = lines("m,s=1", 0..2, 1, if code == 2 { "b" } else { "c" });
        body += &lines(&format!("m,s={code}"), 0..2, 1, "a");
        post(&server.url("/write"), body, &[]).expect(204);
        let url = server.url("/api/v1/flush");
        let request = std::thread::spawn(move || post(&url, "", &[]).status);
        let tries = || metric(&server, "hourglass_store_errors_total") - before;
        wait_until("it is tried again", || tries() >= 4.0);
        mongod.fail(&[], 0);
        assert!([204, 503].contains(&request.join().unwrap()));
        flush(&server);
    }
    assert!(!has_dead_letters(&server));
    assert_eq!(readings(&server, "default", "m,s=14", None, 10).len(), 2);
    let stored = readings(&server, "default", "m,s=1", None, 10);
    assert!(stored.iter().all(|(_, fields)| fields["t"] == "\"c\""), "{stored:?}");
}
