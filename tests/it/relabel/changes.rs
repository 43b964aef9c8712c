//! Relabels that are made, taken back and made final while something else goes on, and what may not come of that.

use std::path::PathBuf;

use serde_json::json;

use super::{T, WITHIN, flush, influxql, relabel, undo, write};
use crate::support::eventually;
use crate::support::process::Folder;
use crate::support::server::Launch;

/// A point at which a server waits for as long as a file is there.
struct Halt {
    file: PathBuf,
    _folder: Folder,
}

impl Halt {
    fn new() -> Self {
        let folder = Folder::new("halt");
        Self { file: folder.file("halt"), _folder: folder }
    }

    fn at(&self, point: &str, launch: Launch) -> Launch {
        launch.env("FAULT_HALT_AT", format!("{point}:{}", self.file.display()))
    }

    /// Does one thing, and another one while the first one waits; returns what came of the first one.
    fn meanwhile<T: Send>(&self, one: impl FnOnce() -> T + Send, other: impl FnOnce()) -> T {
        let met = self.file.with_extension("met");
        let _ = std::fs::remove_file(&met);
        std::fs::write(&self.file, "").unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(one);
            eventually("it is halted", WITHIN, || met.exists().then_some(()));
            other();
            std::fs::remove_file(&self.file).unwrap();
            waits.join().unwrap()
        })
    }
}

/// Regression: whether summaries are cached was asked after they were read. Those of two sensors that a relabel made one went to the cache of
/// the one sensor, if the relabel was taken back meanwhile, and stayed its sums.
#[test]
fn an_undo_during_a_scan_leaves_no_sums_of_both() {
    let halt = Halt::new();
    let mut server = halt.at("summaries_read", Launch::embedded()).start();
    write(&server, &format!("m,s=old v=1i {T}\nm,s=new v=10i {}\n", T + 1));
    flush(&server);
    let id = relabel(&server, &json!({"kind": "sensor", "from": "m,s=old", "to": "m,s=new"}));
    let statement =
        format!("SELECT sum(v) FROM m WHERE s = 'new' AND time >= {T}s AND time < {}s GROUP BY time(1h)", T + 7200);
    let sum = || influxql(&server, &statement)[0]["values"][0][1].clone();
    let told = halt.meanwhile(sum, || drop(undo(&server, &id).expect(200)));
    assert_eq!((told, sum(), sum()), (json!(10), json!(10), json!(10)));
    server.stop();
}
