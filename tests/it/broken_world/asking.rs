//! Clients that leave cancel their queries.

use crate::support::prelude::*;

/// The store does not answer, so the query would run for `query.timeout` and hold the only slot.
#[test]
fn a_query_ends_when_its_client_leaves() {
    let mut mongod = Mongod::start();
    let config = "[query]\nconcurrent = 1\ntimeout = \"10m\"\n\n[store]\ncommand_timeout = \"10m\"\n";
    // A query waits for the store up to its timeout, even during a known outage.
    let store = format!("{}&serverSelectionTimeoutMS=600000", mongod.uri(&fresh_database_name()));
    let server = Launch::with_store(store).config(config).start();
    post(&server.url("/write"), "m v=1 1", &[]).expect(204);
    flush(&server);
    mongod.pause();
    for path in ["/api/v1/readings?sensor=m", "/api/v1/summary?measurement=m", "/query?db=default&q=SELECT+v+FROM+m"] {
        let mut client = TcpStream::connect(server.address()).expect("the server listens");
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).expect("a request");
        let running = |count: f64| (metric(&server, "hourglass_query_running") == count).then_some(());
        eventually(&format!("{path} runs"), || running(1.0));
        drop(client);
        eventually(&format!("{path} is over"), || running(0.0));
    }
    mongod.resume();
    get(&server.url("/api/v1/readings?sensor=m")).expect(200);
}
