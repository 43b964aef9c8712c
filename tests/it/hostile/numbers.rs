//! Numbers at the edges of their types keep answers valid; `store_contract::pages` tests exactness.

use crate::support::prelude::*;

/// The sum of two greatest doubles is infinite, which JSON cannot express.
#[test]
fn an_overflowing_sum_is_valid_json() {
    let server = Launch::embedded().start();
    let largest = f64::MAX;
    let lines = format!("m v={largest:e} {START}\nm v={largest:e} {}\n", START + 1);
    post(&server.url("/write?db=n"), lines, &[]).expect(204);
    for _ in ["unflushed", "from the store"] {
        for path in [
            "/api/v1/summary?db=n&sensor=m&step=1h",
            "/api/v1/readings?db=n&sensor=m",
            "/query?db=n&q=select+sum(v),mean(v),stddev(v),max(v)+from+m",
            "/query?db=n&q=select+v*v+from+m",
        ] {
            let answer = get(&server.url(path)).expect(200);
            assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok(), "{path}: {}", answer.text());
        }
        flush(&server);
    }
    assert!(!server.stderr().contains("panicked"));
}
