//! A full log budget or file system: writes are refused, reads go on, and writes resume without a restart.

use std::io;
use std::process::Child;

use super::{DATABASE, flush};
use crate::support::prelude::*;

/// Small segments and budget, so that the WAL fills up soon; rare flushes.
const BUDGET: &str = r#"
[wal]
segment_bytes = "1MiB"
budget_bytes = "8MiB"

[flush]
interval = "1s"
"#;
const LINES: i64 = 2000;
const SENSOR: &str = "full,sensor=s";
/// Far more than fits.
const BODIES_MAX: i64 = 2000;
/// mongod's error code for a full disk: writes fail, reads do not.
const OUT_OF_DISK_SPACE: i32 = 14031;

/// A client that writes bodies and counts the acks.
struct Writer {
    acked: i64,
    random: Random,
}

impl Writer {
    fn new() -> Writer {
        Writer { acked: 0, random: Random::new(8) }
    }

    /// Sends the next body; a refused one is sent again with the same times and other values.
    fn send(&mut self, server: &Server) -> Answer {
        let mut body = String::new();
        for line in self.acked * LINES..(self.acked + 1) * LINES {
            // Random, so that compression gains little.
            let noise = self.random.below(i64::MAX);
            let time = START + line * SECOND;
            body.push_str(&format!("{SENSOR} noise={noise}i,one=1i {time}\n"));
        }
        let url = server.url(&format!("/write?db={DATABASE}"));
        let answer = request("POST", &url, body.as_bytes(), &[]).expect("an answer");
        self.acked += i64::from(answer.status == 204);
        answer
    }

    /// Sends until a body is refused, and returns that answer.
    fn fill(&mut self, server: &Server, mut before_each: impl FnMut()) -> Answer {
        for _ in 0..BODIES_MAX {
            before_each();
            let answer = self.send(server);
            if answer.status != 204 {
                return answer.expect(503);
            }
        }
        panic!("{BODIES_MAX} bodies were taken where there is no room for them");
    }

    /// Checks that everything acked is stored, and at most the last refused body.
    fn check(&self, server: &Server) {
        let windows = windows(server, DATABASE, SENSOR, None, "1d");
        let counted: u64 = windows.values().map(|fields| fields["one"].count).sum();
        let least = self.acked * LINES;
        let most = (self.acked + 1) * LINES;
        let counted = i64::try_from(counted).expect("few");
        assert!([least, most].contains(&counted), "{counted} readings, {least} were acked");
    }
}

#[test]
fn a_log_at_its_budget_refuses_writes_and_answers_reads() {
    let mongod = Mongod::start_with(&["--setParameter", "enableTestCommands=1"]);
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config(BUDGET).start();
    let mut writer = Writer::new();
    writer.send(&server).expect(204);
    assert!(flush(&server), "a flush");
    fail_writes(&mongod, true);
    let refused = writer.fill(&server, || {});
    assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    let why = refused.json()["error"].as_str().expect("an error says why").to_owned();
    assert!(why.contains("wal.budget_bytes"), "{why}");
    writer.check(&server);
    assert!(status(&server, "log_bytes") <= 8 << 20, "the budget is kept");
    assert!(status(&server, "pending_readings") >= (writer.acked - 1) * LINES, "what is acked is pending");
    fail_writes(&mongod, false);
    // Without a restart or a requested flush.
    wait_until("writes are accepted again", || writer.send(&server).status == 204);
    writer.check(&server);
    assert!(flush(&server), "a flush after it");
    writer.check(&server);
}

/// Regression: on a full disk, the WAL took all space, and the embedded store could not take readings out of it.
#[test]
fn the_log_leaves_room_to_the_store_on_its_disk() {
    let Some(mount) = Mount::new("24m") else { return };
    // The WAL is truncated once the sensors' documents are written, too.
    let config = "[wal]\nsegment_bytes = \"1MiB\"\n[flush]\ninterval = \"1h\"\n[sensors]\nwrite_interval = \"200ms\"\n";
    let server = Launch::embedded().config(config).data_dir(mount.folder.file("data")).start();
    let mut writer = Writer::new();
    let refused = writer.fill(&server, || {});
    assert!(refused.text().contains("kept for the store"), "{}", refused.text());
    assert!(flush(&server), "the store takes the readings");
    wait_until("writes are accepted again", || writer.send(&server).status == 204);
    writer.check(&server);
}

#[test]
fn a_full_file_system_refuses_writes_until_there_is_room() {
    let Some(mount) = Mount::new("24m") else { return };
    let folder = mount.folder.file("log");
    let config = format!("[wal]\ndir = {folder:?}\nsegment_bytes = \"1MiB\"\n[flush]\ninterval = \"1s\"\n");
    let mut server = Launch::embedded().config(config).start();
    let mut writer = Writer::new();
    writer.send(&server).expect(204);
    let ballast = mount.folder.file("ballast");
    // Repeatedly, because released segments make room.
    let refused = writer.fill(&server, || fill_up(&ballast));
    assert!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    assert!(refused.json()["error"].is_string(), "{}", refused.text());
    writer.check(&server);
    std::fs::remove_file(&ballast).expect("the ballast can be thrown off");
    wait_until("writes are accepted again", || writer.send(&server).status == 204);
    writer.check(&server);
    // Unflushed readings are replayed.
    server.kill();
    server.restart();
    assert!(flush(&server), "a flush");
    writer.check(&server);
}

/// Regression: `/ready` and `/health` were 503 while writes were acked, because the next segment could not be created.
#[test]
fn readiness_matches_write_answers_on_a_filling_disk() {
    let Some(mount) = Mount::new("24m") else { return };
    let folder = mount.folder.file("log");
    let config = format!("[wal]\ndir = {folder:?}\nsegment_bytes = \"4MiB\"\n[flush]\ninterval = \"1h\"\n");
    let server = Launch::embedded().config(config).start();
    let mut writer = Writer::new();
    writer.send(&server).expect(204);
    fill_up(&mount.folder.file("ballast"));
    let mut taken = 0;
    let mut refused = 0;
    for _ in 0..BODIES_MAX {
        let is_taken = writer.send(&server).status == 204;
        (taken, refused) = (taken + u32::from(is_taken), refused + u32::from(!is_taken));
        for path in ["/ready", "/health"] {
            let answer = get(&server.url(path));
            // After an ack the next write may have no room, which only that write can tell.
            if !is_taken {
                assert_eq!(answer.status, 503, "{path} after a refused write: {}", answer.text());
                assert!(answer.text().contains(folder.to_str().expect("text")), "{}", answer.text());
            } else if answer.status == 503 {
                assert_eq!(writer.send(&server).status, 503, "{path} said that writes are refused: {}", answer.text());
            }
        }
        if refused > 5 {
            break;
        }
    }
    assert!(taken > 0 && refused > 5, "{taken} taken, {refused} refused");
    std::fs::remove_file(mount.folder.file("ballast")).expect("the ballast can be thrown off");
    wait_until("it is ready again", || get(&server.url("/ready")).status == 200);
    writer.send(&server).expect(204);
}

/// Makes mongod refuse every write with a full disk, or none.
fn fail_writes(mongod: &Mongod, fail: bool) {
    let commands: &[&str] = if fail { &["insert", "update", "findAndModify"] } else { &[] };
    mongod.fail(commands, OUT_OF_DISK_SPACE);
}

fn status(server: &Server, name: &str) -> i64 {
    let status = server.fetch("/api/v1/status");
    status[name].as_i64().unwrap_or_else(|| panic!("{name} in {status}"))
}

/// Appends to a file until the disk is full.
fn fill_up(path: &std::path::Path) {
    let mut file = File::options().create(true).append(true).open(path).expect("the ballast can be opened");
    for piece in [vec![0; 64 << 10], vec![0; 1]] {
        loop {
            match file.write_all(&piece) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => panic!("the ballast: {error}"),
            }
        }
    }
}

/// A small file system in memory, removed after the test.
struct Mount {
    // Fields drop in this order: it is unmounted before its folder goes.
    _unmounter: Unmounter,
    folder: Folder,
}

/// A `sh` that unmounts when the test closes its pipe.
struct Unmounter(Child);

impl Mount {
    /// Returns `None` after a line on stderr if this user cannot mount.
    fn new(size: &str) -> Option<Mount> {
        let folder = Folder::new("full");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path());
        if let Err(why) = succeeds(&mut mount) {
            not_run(&format!("needs a user who can mount a tmpfs ({why})"));
            return None;
        }
        let mut sh = Command::new("sh");
        sh.args(["-c", r#"read -r end; umount -l -- "$1""#, "unmounter"]).arg(folder.path());
        let sh = sh.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Some(Mount { _unmounter: Unmounter(sh.expect("`sh` can be run")), folder })
    }
}

/// Runs a command; its output is the error.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

impl Drop for Unmounter {
    fn drop(&mut self) {
        // Waiting closes the pipe first, which is the signal.
        let _ = self.0.wait();
    }
}
