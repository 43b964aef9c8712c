//! The oracle detects readings that are changed, added, doubled or removed in the store, and wrong summaries.

use crate::support::prelude::*;

use super::oracle::{Oracle, Violation};
use super::{DATABASE, RECOVERY, World, config, flush};

#[test]
fn the_oracle_detects_tampering() {
    let name = fresh_database_name();
    let uri = mongod().uri(&name);
    let launch = Launch::with_store(&uri).config(config("200ms"));
    let mut world = World::start(launch.clone());
    let mut oracle = Oracle::new(31, 2);
    oracle.during(&world.base(), |progress| progress.await_acks(4, RECOVERY));
    world.check(&mut oracle);
    assert!(oracle.violations().is_empty(), "{}", oracle.describe());

    // Changes a value, adds a reading, and repeats an undated one.
    let changed = START;
    let added = START - HOUR;
    let lines = format!(
        "proof,conn=c0,kind=steady,n=n0 v=-1i {changed}\nproof,conn=c1,kind=steady,n=n1 v=-1i {added}\n\
         proof,conn=c0,kind=undated v=999i\n"
    );
    post(&world.server.url(&format!("/write?db={DATABASE}")), lines, &[]).expect(204);
    oracle.check_answers(&world.server);
    assert_violation(
        &oracle,
        "Wrong",
        |one| matches!(one, Violation::Wrong { found, .. } if found.total_cmp(&-1.0).is_eq()),
    );
    assert_violation(&oracle, "NeverSent", |one| matches!(one, Violation::NeverSent(_)));
    assert_violation(&oracle, "Doubled", |one| matches!(one, Violation::Doubled { there: 2, sent: 1, .. }));
    assert_violation(&oracle, "Restamped", |one| matches!(one, Violation::Restamped { .. }));

    // The server evicts its buckets and reads the changed ones.
    assert!(flush(&world.server), "a flush");
    assert!(world.server.stop().success());
    let buckets = format!("{DATABASE}.buckets");
    let page_filter = |sensor: &str| doc! { "sensor": sensor, "page": 0 };
    let delete = doc! { "q": page_filter("proof,conn=c1,kind=marker,n=n0"), "limit": 1 };
    run(&uri, &name, doc! { "delete": &buckets, "deletes": [delete] });
    let one_more = doc! { "$inc": { "summary.v.count": 1_i64 } };
    let update = doc! { "q": page_filter("proof,conn=c1,kind=steady,n=n2"), "u": one_more };
    run(&uri, &name, doc! { "update": &buckets, "updates": [update] });
    world.server.restart_as(launch.clone());
    oracle.check_answers(&world.server);
    oracle.check_stored(&world.stored);
    let is_marker = |place: &str| place.contains("conn=c1,kind=marker,n=n0");
    assert_violation(&oracle, "Lost", |one| matches!(one, Violation::Lost(place) if is_marker(place)));
    assert_violation(&oracle, "Window", |one| matches!(one, Violation::Window { .. }));
    assert_violation(
        &oracle,
        "Documents",
        |one| matches!(one, Violation::Documents(why) if why.contains("count of v")),
    );
}

#[track_caller]
fn assert_violation(oracle: &Oracle, what: &str, is_expected: impl Fn(&Violation) -> bool) {
    assert!(oracle.violations().into_iter().any(is_expected), "{what} was not seen among:\n{}", oracle.describe());
}

/// Runs a command that changes one document.
fn run(uri: &str, database: &str, command: Document) {
    let answer = run_command(uri, Some(database), command);
    assert_eq!(answer.get_i32("n").ok(), Some(1), "{answer}");
}
