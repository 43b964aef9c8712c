//! The proof that an ack is kept: traffic that can be told again, faults of every kind in the midst of it, and then
//! every reading that was acked looked for, by the query API and in the documents themselves.

mod days;
mod disk_full;
mod history;
mod kills;
mod log_tail;
mod oracle;
mod outage;
mod pair;
mod proxy;
mod replica_set;
mod several_instances;
mod shortest;
mod tampered;

use hourglass::bucket::Caps;

use self::oracle::{Oracle, Violation};

use crate::support::prelude::*;

const DATABASE: &str = "proof";
/// So seldom that nothing is flushed unless it is asked for.
const NEVER: &str = "10m";
/// Pages are small, so that buckets overflow; hot memory is the least there is, so that buckets are forgotten and read
/// back; sensors' documents follow soon, so that they are part of what is broken.
const CONFIG: &str = r#"
[page]
max_readings = 20
max_bytes = "2KiB"
hard_bytes = "3KiB"

[memtable]
max_bytes = "1MiB"

[store]
command_timeout = "5s"

[ingest]
ack_timeout = "10s"

[sensors]
write_interval = "200ms"
"#;
const CAPS: Caps = Caps { max_readings: 20, max_bytes: 2 << 10, hard_bytes: 3 << 10 };
/// How soon all that was acked must be in a store that is well.
const FLUSHED_WITHIN: Duration = Duration::from_secs(30);
/// How soon every connection must be acked again after a fault.
const RECOVERY: Duration = Duration::from_secs(60);

/// A server and its store.
struct World {
    server: Server,
    stored: Stored,
}

impl World {
    fn start(launch: Launch) -> World {
        let server = launch.start();
        let stored = Stored::of(&server, DATABASE);
        World { server, stored }
    }

    /// The URL without a path, which stays through restarts.
    fn base(&self) -> String {
        self.server.url("")
    }

    /// What is acked can be read; all of it reaches the store, and stands there as it should.
    fn check(&mut self, oracle: &mut Oracle) {
        oracle.check_answers(&self.server);
        if !flush(&self.server) {
            return oracle.note(Violation::Late("a flush".to_owned()));
        }
        oracle.check_answers(&self.server);
        if !flush(&self.server) {
            return oracle.note(Violation::Late("a second flush".to_owned()));
        }
        if self.stored.is_embedded() {
            // The file can be opened once nobody else has it open.
            assert!(self.server.stop().success(), "a stop");
            oracle.check_stored(&self.stored);
            self.server.restart();
        } else {
            oracle.check_stored(&self.stored);
        }
    }
}

/// Asks until all that was acked is in the store; whether that came to be.
fn flush(server: &Server) -> bool {
    let url = server.url("/api/v1/flush");
    let flushed = || request("POST", &url, b"", &[]).is_ok_and(|answer| answer.status == 204);
    poll(FLUSHED_WITHIN, || flushed().then_some(())).is_some()
}

/// The config of a server that flushes that often.
fn config(flush_interval: &str) -> String {
    format!("{CONFIG}\n[flush]\ninterval = \"{flush_interval}\"\n")
}

/// Waits for a server that was told to kill itself. One that does not is killed, so that the test can go on.
fn ends_by_itself(server: &mut Server) -> bool {
    let ended = poll(Duration::from_secs(15), || server.exited());
    server.kill();
    ended.is_some_and(|status| status.signal() == Some(9))
}
