//! A refused write leaves nothing behind.

use crate::support::prelude::*;

/// Regression: a write answered with 503 fixed the type of a new field, and the corrected device was refused.
#[test]
fn a_write_answered_with_503_sets_no_field_type() {
    let halt = Halt::new();
    let config = "[wal]\nsegment_bytes = \"64KiB\"\nbudget_bytes = \"128KiB\"\ncompress = false\n[limits]\nbody_bytes = \"64KiB\"\n\
        [query]\nwait = \"0s\"\n[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n";
    let launch = halt.launch(Launch::embedded().config(config), "replay");
    let mut server = launch.start();
    post(&server.url("/write"), "m v=1 1", &[]).expect(204);
    server.kill();
    // Nothing is replayed, so nothing is stored and the WAL is not truncated.
    halt.set();
    server.restart_behind();
    for bytes in [20_000, 200] {
        let line = format!("m text=\"{}\" 2", "x".repeat(bytes));
        wait_until("the WAL is full", || post(&server.url("/write"), &line, &[]).status == 503);
    }
    let number = format!("m new=1,text=\"{}\" 3", "x".repeat(200));
    post(&server.url("/write"), &number, &[]).expect(503);
    let body = format!("[{{\"measurement\":\"m\",\"fields\":{{\"other\":1,\"text\":\"{}\"}}}}]", "x".repeat(200));
    post(&server.url("/api/v1/readings"), &body, &[("content-type", "application/json")]).expect(503);
    halt.lift();
    eventually("the WAL has room", || {
        let answer = post(&server.url("/write"), "m new=\"text\",other=\"text\" 3", &[]);
        (answer.status != 503).then(|| answer.expect(204))
    });
    let fields = server.fetch("/api/v1/fields?measurement=m");
    let kinds = fields["fields"].as_array().expect("fields").iter().map(|field| field["type"].to_string());
    assert_eq!(kinds.filter(|kind| kind == "\"string\"").count(), 3, "{fields}");
}
