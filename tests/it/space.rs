//! Disk space is returned while the service runs; acks and queries go on, and a kill at any step damages nothing.

use crate::support::prelude::*;

const START: u64 = 1_768_435_200;
const SENSORS: u64 = 40;
const CONFIG: &str = "[flush]\ninterval = \"100ms\"\nquiet = \"50ms\"\n[seal]\nafter = \"0s\"\n";

/// Writes two days of each sensor, one reading a minute.
fn fill(server: &Server) {
    for sensor in 0..SENSORS {
        let line = |minute: u64| format!("climate,s={sensor} temp={}.5 {}\n", minute * 7 % 101, START + minute * 60);
        let lines: String = (0..2880).map(line).collect();
        post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
    }
    flush(server);
}

fn delete(server: &Server) {
    execute(server, "d", "DELETE FROM climate WHERE s =~ /[1-9]$/ AND s != '5' AND s != '15'");
    flush(server);
}

fn count(server: &Server, measurement: &str, field: &str) -> u64 {
    let series = influxql(server, &format!("SELECT count({field}) FROM {measurement}"));
    series[0]["values"][0][1].as_u64().unwrap_or(0)
}

/// Returns the allocated bytes; the file length may be twice that.
fn file(folder: &Path) -> u64 {
    std::fs::metadata(folder.join("hourglass.redb")).expect("a file").blocks() * 512
}

/// Regression: freed space was returned only after a stop.
#[test]
fn the_space_of_deleted_data_returns_during_writes() {
    let halt = Halt::new();
    let mut server = halt.launch(Launch::embedded().config(CONFIG), "compact_copied").start();
    fill(&server);
    delete(&server);
    let kept = count(&server, "climate", "temp");
    let large = file(&server.data_dir());
    halt.set();
    let done = AtomicBool::new(false);
    let (acked, slowest) = std::thread::scope(|scope| {
        let _guard = StopOnDrop(&done);
        let writer = scope.spawn(|| {
            let mut acked = 0;
            let mut slowest = Duration::ZERO;
            while !done.load(Ordering::Relaxed) {
                pause_client();
                let line = format!("live v={acked} {}\n", START + acked);
                let began = Instant::now();
                post(&server.url("/write?db=d&precision=s"), line, &[]).expect(204);
                (acked, slowest) = (acked + 1, slowest.max(began.elapsed()));
            }
            (acked, slowest)
        });
        let compacting = scope.spawn(|| run_job(&server, "compact"));
        // Halted in the middle: the copy is made, and later changes follow.
        halt.await_met("the copy is made");
        let now = job(&server, "compact");
        assert_eq!(now["state"], "running", "{now}");
        flush(&server);
        assert_eq!(count(&server, "climate", "temp"), kept, "queries go on");
        assert!(count(&server, "live", "v") > 0, "and so do flushes");
        halt.lift();
        let compacted = compacting.join().expect("no panic");
        assert_eq!(
            (&compacted["last_error"], &compacted["progress"]["times"]),
            (&json!(null), &json!(1)),
            "{compacted}"
        );
        done.store(true, Ordering::Relaxed);
        writer.join().expect("no write fails")
    });
    flush(&server);
    let small = file(&server.data_dir());
    println!("{large} bytes before, {small} after; {acked} writes acked, the slowest in {slowest:?}");
    assert!(small * 2 < large, "{large} bytes before, {small} after");
    assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, acked));
    assert!(metric(&server, "hourglass_job_last_success_timestamp_seconds") > 0.0);
    server.kill();
    server.restart_as(Launch::embedded().config(CONFIG));
    assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, acked));
    // The command asks a running service, and works on a stopped one.
    hourglass(&["job", "run", "compact", "--server", &server.url("")]).expect_success();
    assert!(server.stop().success());
    let before = digest("embedded", &server.data_dir());
    hourglass(&["compact", "--data-dir", path(&server.data_dir())]).expect_success();
    assert_eq!(digest("embedded", &server.data_dir()), before);
}

#[test]
fn a_kill_at_any_step_of_a_compaction_damages_nothing() {
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
        let _ = request("POST", &run_url(&server, "compact"), b"", &[]);
        assert!(poll(TIMEOUT, || server.exited()).is_some(), "{point}");
        server.restart_as(launch.clone());
        assert!(!server.data_dir().join("hourglass.redb.compact").exists(), "{point}");
        assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, written), "{point}");
    }
    assert!(server.stop().success());
    verify("embedded", &server.data_dir(), &[]).expect_success();
}

/// The job compacts MongoDB, and its state has the measured space.
#[test]
fn mongodb_is_compacted_on_request() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(CONFIG).start();
    write_flushed(&server, format!("climate,s=1 temp=1 {START}\n"));
    assert_eq!(job(&server, "compact")["last_success"], json!(null), "nothing is compacted unless asked");
    hourglass(&["job", "run", "compact", "--server", &server.url("")]).expect_success();
    assert!(job(&server, "compact")["progress"]["bytes"].as_u64() > Some(0));
    assert_eq!(count(&server, "climate", "temp"), 1);
}
