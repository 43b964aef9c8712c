//! A machine whose clock is so far off that nobody knows what its "later" means: a device that came up without the time.

use crate::support::http::{get, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::series::metric;
use crate::support::server::Launch;

#[test]
fn an_instance_whose_clock_is_far_off_takes_no_writes_and_says_why() {
    let launch = Launch::with_store(mongod().uri(&fresh_database_name()));
    for (ahead_ms, offset) in [(-120_000, 120.0), (120_000, -120.0)] {
        let server = launch.clone().env("FAULT_CLOCK_MS", ahead_ms).start();
        let answer = post(&server.url("/write"), "m v=1 1768485600000000000", &[]).expect(503);
        assert!(answer.text().contains("clock.max_offset"), "{}", answer.text());
        get(&server.url("/query?q=SHOW%20DATABASES")).expect(200);
        let told = metric(&server, "hourglass_clock_offset_seconds");
        assert!((told - offset).abs() < 1.0, "{told} s");
    }
    // Within the bound the store's clock is taken over.
    let server = launch.env("FAULT_CLOCK_MS", -30_000).start();
    post(&server.url("/write?ack=store"), "m v=1 1768485600000000000", &[]).expect(204);
    get(&server.url("/api/v1/readings?sensor=m")).expect(200);
}
