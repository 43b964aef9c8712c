//! Space comes back to the disk while the service runs: acks and queries go on, and a kill at any step leaves a whole store.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::http::{get, post, request};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::poll;
use crate::support::series::flush;
use crate::support::server::{Launch, Server, program};

const START: u64 = 1_768_435_200;
const SENSORS: u64 = 40;
const CONFIG: &str = "[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[seal]\nafter = \"0s\"\n";

/// Two days of each sensor, one reading a minute.
fn fill(server: &Server) {
    for sensor in 0..SENSORS {
        let line = |minute: u64| format!("climate,s={sensor} temp={}.5 {}\n", minute * 7 % 101, START + minute * 60);
        let lines: String = (0..2880).map(line).collect();
        post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
    }
    flush(server);
}

/// Deletes three quarters of the sensors.
fn delete(server: &Server) {
    let statement = "DELETE+FROM+climate+WHERE+s+=~+/[1-9]$/+AND+s+!=+'5'+AND+s+!=+'15'".replace('+', " ");
    let query = format!("/query?db=d&q={}", statement.replace(' ', "%20").replace('=', "%3D"));
    post(&server.url(&query), "", &[]).expect(200);
    flush(server);
}

fn count(server: &Server, measurement: &str, field: &str) -> u64 {
    let answer =
        get(&server.url(&format!("/query?db=d&q=SELECT%20count({field})%20FROM%20{measurement}"))).expect(200).json();
    answer["results"][0]["series"][0]["values"][0][1].as_u64().unwrap_or(0)
}

/// What it takes on the disk: its length may be twice that.
fn file(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("hourglass.redb")).expect("a file").blocks() * 512
}

/// Asks until the round has ended.
fn compact(server: &Server) -> Value {
    let mut path = "/api/v1/compact".to_owned();
    loop {
        let answer = post(&server.url(&path), "", &[]);
        let status = answer.status;
        let body = answer.json();
        match status {
            200 => return body,
            202 => path = format!("/api/v1/compact?round={}", body["round"].as_str().expect("a round")),
            _ => panic!("{status}: {body}"),
        }
    }
}

fn digest(store: &str, folder: &Path) -> String {
    let mut command = program();
    command.args(["digest", "--json", "--store", store, "--data-dir"]).arg(folder);
    let output = command.output().expect("hourglass can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The story: what deletions and sealing freed came back only after the service was stopped.
#[test]
fn half_of_the_data_is_deleted_and_its_space_returns_while_writes_are_acked() {
    let halt = crate::support::process::Folder::new("halt");
    let halted = halt.file("compacting");
    let mut server =
        Launch::embedded().config(CONFIG).env("FAULT_HALT_AT", format!("compact_copied:{}", halted.display())).start();
    fill(&server);
    delete(&server);
    let (kept, large) = (count(&server, "climate", "temp"), file(&server.data_dir()));
    std::fs::write(&halted, "").expect("writable");
    let done = AtomicBool::new(false);
    let (acked, slowest) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut acked, mut slowest) = (0, Duration::ZERO);
            while !done.load(Ordering::Relaxed) {
                let line = format!("live v={acked} {}\n", START + acked);
                let began = Instant::now();
                post(&server.url("/write?db=d&precision=s"), line, &[]).expect(204);
                (acked, slowest) = (acked + 1, slowest.max(began.elapsed()));
            }
            (acked, slowest)
        });
        let compacting = scope.spawn(|| compact(&server));
        // It stands still in the middle: the copy is made, and the rest is to be caught up with.
        let is_met = poll(Duration::from_secs(30), || halted.with_extension("met").exists().then_some(()));
        assert!(is_met.is_some(), "{}", server.stderr());
        let status = get(&server.url("/api/v1/status")).expect(200).json();
        assert_eq!(status["compacting"]["running"], true, "{status}");
        flush(&server);
        assert_eq!(count(&server, "climate", "temp"), kept, "queries go on");
        assert!(count(&server, "live", "v") > 0, "and so do flushes");
        std::fs::remove_file(&halted).expect("removable");
        let told = compacting.join().expect("no panic");
        assert_eq!((told["error"].clone(), told["times"].clone()), (Value::Null, 1.into()), "{told}");
        done.store(true, Ordering::Relaxed);
        writer.join().expect("no write fails")
    });
    flush(&server);
    let small = file(&server.data_dir());
    println!("{large} bytes before, {small} after; {acked} writes acked, the slowest in {slowest:?}");
    assert!(small * 2 < large, "{large} bytes before, {small} after");
    assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, acked));
    let scraped = get(&server.url("/metrics")).expect(200);
    let metrics = scraped.text();
    assert!(metrics.contains("hourglass_compact_runs_total 1"), "{metrics}");
    server.kill();
    server.restart_as(Launch::embedded().config(CONFIG));
    assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, acked));
    // The command asks the running service, and works on a stopped one.
    let run = |more: &[&str]| {
        let output = program().arg("compact").args(more).output().expect("hourglass can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["--to", &server.url("")]);
    assert!(server.stop().success());
    let before = digest("embedded", &server.data_dir());
    run(&["--data-dir", server.data_dir().to_str().expect("UTF-8")]);
    assert_eq!(digest("embedded", &server.data_dir()), before);
}

#[test]
fn a_kill_at_any_step_of_a_compaction_leaves_a_whole_store() {
    let launch = Launch::embedded().config(CONFIG);
    let mut server = launch.clone().start();
    fill(&server);
    delete(&server);
    let kept = count(&server, "climate", "temp");
    let mut written = 0;
    for point in ["compact_batch:1", "compact_copied:1", "compact_written:1", "compact_renamed:1"] {
        server.kill();
        server.restart_as(launch.clone().env("FAULT_KILL_AT", point));
        post(&server.url("/write?db=d&precision=s"), format!("live v=1 {}\n", START + written), &[]).expect(204);
        written += 1;
        // The service dies before it answers.
        let _ = request("POST", &server.url("/api/v1/compact"), b"", &[]);
        assert!(poll(Duration::from_secs(30), || server.exited()).is_some(), "{point}");
        server.restart_as(launch.clone());
        assert!(!server.data_dir().join("hourglass.redb.compact").exists(), "{point}");
        assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, written), "{point}");
    }
    assert!(server.stop().success());
    let verified =
        program().args(["verify", "--data-dir"]).arg(server.data_dir()).output().expect("hourglass can be run");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// MongoDB compacts when asked to; without, it is told what could come back.
#[test]
fn of_mongodb_each_collection_is_told_and_compacted_when_asked() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(CONFIG).start();
    post(&server.url("/write?db=d&precision=s"), format!("climate,s=1 temp=1 {START}\n"), &[]).expect(204);
    flush(&server);
    let told = compact(&server);
    let names: Vec<&str> =
        told["spaces"].as_array().expect("a list").iter().filter_map(|space| space["name"].as_str()).collect();
    assert!(names.contains(&"d.buckets"), "{told}");
    assert_eq!(told["times"], 0, "nothing is compacted unless asked");
    let output = program().args(["compact", "--run", "--to", &server.url("")]).output().expect("hourglass can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(count(&server, "climate", "temp"), 1);
}
