//! Documents that somebody changed by hand, or that a newer program wrote: what belongs to others is served all the
//! same.

use bson::{Document, doc};

use crate::support::http::{get, post};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::series::readings;
use crate::support::server::Server;

/// Changes one document of a collection of the database `default`.
fn change(uri: &str, collection: &str, which: Document, set: Document) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = mongodb::Client::with_uri_str(uri).await.unwrap();
        let mongo = client.default_database().unwrap();
        let bypass = doc! {
            "update": format!("default.{collection}"),
            "updates": [{ "q": which, "u": { "$set": set } }],
            "bypassDocumentValidation": true,
        };
        assert_eq!(mongo.run_command(bypass).await.unwrap().get_i32("n").unwrap(), 1);
    });
}

/// Giving up on one bucket was once taken for a store that is away, so that everybody whose readings were in the same
/// group was told to send them again, for as long as the one device went on.
#[test]
fn a_page_that_no_write_fits_stops_nobody_else() {
    let uri = mongod().uri(&fresh_database_name());
    let server = Server::start(&uri);
    let write = server.url("/write?ack=store");
    post(&write, "m,s=bad v=1 1\nm,s=good v=1 1", &[]).expect(204);
    change(&uri, "buckets", doc! { "sensor": "m,s=bad" }, doc! { "sensor": "m,s=other" });
    let answer = post(&write, "m,s=bad v=2 2\nm,s=good v=2 2", &[]).expect(400);
    assert!(answer.text().contains("refuses to change a page of m,s=bad"), "{}", answer.text());
    assert_eq!(readings(&server, "default", "m,s=good", None, 100).len(), 2);
    post(&write, "m,s=good v=3 3", &[]).expect(204);
}

/// One document that could not be read once failed every write, and the list of sensors, that came across it.
#[test]
fn a_document_of_a_newer_version_is_left_alone_and_hides_no_other() {
    let uri = mongod().uri(&fresh_database_name());
    let mut server = Server::start(&uri);
    post(&server.url("/write?ack=store"), "m,s=a v=1 1\nm,s=b v=1 1\nm,s=c v=1 1", &[]).expect(204);
    assert!(server.stop().success());
    let newer = || doc! { "schemaVersion": 2 };
    change(&uri, "buckets", doc! { "sensor": "m,s=a" }, newer());
    change(&uri, "sensors", doc! { "_id": "m,s=b" }, newer());
    server.restart("127.0.0.1:0");
    let write = |lines: &str| post(&server.url("/write?ack=store"), lines, &[]).status;
    assert_eq!(write("m,s=a v=2 2\nm,s=b v=2 2\nm,s=c v=2 2"), 503);
    assert_eq!(readings(&server, "default", "m,s=c", None, 100).len(), 2, "its neighbours' trouble is not its own");
    assert_eq!(write("m,s=c v=3 3"), 204);
    assert_eq!(get(&server.url("/api/v1/readings?sensor=m,s=a")).status, 503);
}
