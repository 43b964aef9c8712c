//! Acked readings survive faults of every kind; they are checked by the query API and in the documents.

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
/// Effectively never: flushes only on request.
const NEVER: &str = "10m";
/// Small pages overflow, minimal hot memory evicts buckets, and sensor documents follow soon.
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
/// Time in which a healthy store must have all acked readings.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(30);
/// Time after a fault in which every connection must be acked again.
const RECOVERY: Duration = Duration::from_secs(60);

struct World {
    server: Server,
    stored: Stored,
}

impl World {
    fn start(launch: Launch) -> World {
        let server = launch.start();
        let stored = Stored::from_server(&server, DATABASE);
        World { server, stored }
    }

    /// Returns the base URL, which survives restarts.
    fn base(&self) -> String {
        self.server.url("")
    }

    /// Checks answers, then the documents after a flush.
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
            // The file can be opened after the stop.
            assert!(self.server.stop().success(), "a stop");
            oracle.check_stored(&self.stored);
            self.server.restart();
        } else {
            oracle.check_stored(&self.stored);
        }
    }
}

/// Flushes until everything acked is stored; returns false after a timeout.
fn flush(server: &Server) -> bool {
    let url = server.url("/api/v1/flush");
    let flushed = || request("POST", &url, b"", &[]).is_ok_and(|answer| answer.status == 204);
    poll(FLUSH_TIME_MAX, || flushed().then_some(())).is_some()
}

fn config(flush_interval: &str) -> String {
    format!("{CONFIG}\n[flush]\ninterval = \"{flush_interval}\"\n")
}

/// Waits until a server kills itself at its fault point; otherwise kills it and returns false.
fn ends_by_itself(server: &mut Server) -> bool {
    let ended = poll(TIMEOUT, || server.exited());
    server.kill();
    ended.is_some_and(|status| status.signal() == Some(9))
}
