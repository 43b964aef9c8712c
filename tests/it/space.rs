//! Space comes back to the disk while the service runs: acks and queries go on, and a kill at any step leaves a whole store.

use std::os::unix::fs::MetadataExt;

use crate::support::jobs::{job, run_job, run_url};
use crate::support::prelude::*;

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

fn digest(store: &str, folder: &Path) -> String {
    let mut command = program();
    command.args(["backup", "digest", "--output", "json", "--store", store, "--data-dir"]).arg(folder);
    let output = command.output().expect("hourglass can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The story: what deletions and sealing freed came back only after the service was stopped.
#[test]
fn half_of_the_data_is_deleted_and_its_space_returns_while_writes_are_acked() {
    let halt = Halt::new();
    let mut server = halt.launch(Launch::embedded().config(CONFIG), "compact_copied").start();
    fill(&server);
    delete(&server);
    let (kept, large) = (count(&server, "climate", "temp"), file(&server.data_dir()));
    halt.set();
    let done = AtomicBool::new(false);
    let (acked, slowest) = std::thread::scope(|scope| {
        // A failed assertion must end the writer, too, or the scope waits for ever.
        let _guard = SetOnDrop(&done);
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
        let compacting = scope.spawn(|| run_job(&server, "compact"));
        // It stands still in the middle: the copy is made, and the rest is to be caught up with.
        halt.await_met("the copy is made");
        let now = job(&server, "compact");
        assert_eq!(now["state"], "running", "{now}");
        flush(&server);
        assert_eq!(count(&server, "climate", "temp"), kept, "queries go on");
        assert!(count(&server, "live", "v") > 0, "and so do flushes");
        halt.lift();
        let told = compacting.join().expect("no panic");
        assert_eq!((&told["last_error"], &told["progress"]["times"]), (&json!(null), &json!(1)), "{told}");
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
    // The command asks the running service, and works on a stopped one.
    let run = |args: &[&str]| {
        let output = program().args(args).output().expect("hourglass can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["job", "run", "compact", "--server", &server.url("")]);
    assert!(server.stop().success());
    let before = digest("embedded", &server.data_dir());
    run(&["compact", "--data-dir", server.data_dir().to_str().expect("UTF-8")]);
    assert_eq!(digest("embedded", &server.data_dir()), before);
}

/// Sets its flag when it is dropped, also while a panic unwinds.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
        let _ = request("POST", &run_url(&server, "compact"), b"", &[]);
        assert!(poll(Duration::from_secs(120), || server.exited()).is_some(), "{point}");
        server.restart_as(launch.clone());
        assert!(!server.data_dir().join("hourglass.redb.compact").exists(), "{point}");
        assert_eq!((count(&server, "climate", "temp"), count(&server, "live", "v")), (kept, written), "{point}");
    }
    assert!(server.stop().success());
    let verified =
        program().args(["verify", "--data-dir"]).arg(server.data_dir()).output().expect("hourglass can be run");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// MongoDB compacts when the job is run, and the state of the job has the space as measured.
#[test]
fn mongodb_compacts_when_asked() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&uri).config(CONFIG).start();
    post(&server.url("/write?db=d&precision=s"), format!("climate,s=1 temp=1 {START}\n"), &[]).expect(204);
    flush(&server);
    assert_eq!(job(&server, "compact")["last_success"], json!(null), "nothing is compacted unless asked");
    let output =
        program().args(["job", "run", "compact", "--server", &server.url("")]).output().expect("hourglass can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(job(&server, "compact")["progress"]["bytes"].as_u64() > Some(0));
    assert_eq!(count(&server, "climate", "temp"), 1);
}
