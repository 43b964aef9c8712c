//! Queries that are too long, too deep or too high get an error that names the limit; queries within the limits can be
//! walked on a thread's stack.

use super::super::{MAX_HEIGHT, MAX_NESTING, MAX_QUERY_BYTES};
use super::{answer, parsed, select, utc};

#[test]
fn nesting_is_limited() {
    let error = format!("400 the depth of nesting of the query exceeds the limit of {MAX_NESTING}");
    for (open, close) in [("(", ")"), ("abs(", ")"), ("-(", ")")] {
        for times in [MAX_NESTING, 100_000] {
            let text = format!("select {}v{} from m", open.repeat(times), close.repeat(times));
            assert_eq!(answer(&text), error, "{open}");
        }
        let times = MAX_NESTING - 1;
        let text = format!("select {}v{} from m", open.repeat(times), close.repeat(times));
        assert!(!answer(&text).starts_with("400"), "{open}");
    }
    assert_eq!(answer(&format!("select {}", "(".repeat(100_000))), error);
    assert_eq!(answer(&"select v from (".repeat(10_000)), error);
}

#[test]
fn operators_in_a_row_are_limited() {
    let within = format!("select v from m where a = 0{}", " or a = 1".repeat(MAX_HEIGHT - 3));
    assert!(answer(&within).starts_with("ok"), "{}", answer(&within));
    let error = format!("400 the number of operators in one expression of the query exceeds the limit of {MAX_HEIGHT}");
    assert_eq!(answer(&format!("select v from m where a = 0{}", " or a = 1".repeat(MAX_HEIGHT))), error);
    assert_eq!(answer(&format!("select v{} from m", " + v".repeat(100_000))), error);
}

#[test]
fn the_length_is_limited() {
    let text = format!("select v from m{}", " ".repeat(MAX_QUERY_BYTES));
    let error = format!("400 the length in bytes of the query exceeds the limit of {MAX_QUERY_BYTES}");
    assert_eq!(answer(&text), error);
}

/// A runtime thread's stack has 2 MiB; half of it must be enough, without optimization.
#[test]
fn the_highest_tree_can_be_walked_on_a_small_stack() {
    let walk = || {
        let chain = format!("v > 0{}", " and v > 1".repeat(MAX_HEIGHT - 110));
        let open = "(".repeat(95);
        let close = ")".repeat(95);
        let tree = select(&format!("select v{} from m where {open}{chain}{close}", " + v".repeat(MAX_HEIGHT - 2)));
        let checked = super::super::check(&tree, &utc()).expect("valid");
        let printed = tree.to_string();
        assert_eq!(select(&printed), tree.clone());
        drop((tree, checked));
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(walk).expect("a thread starts");
    thread.join().expect("the stack was large enough");
}

#[test]
fn many_statements_are_parsed() {
    assert_eq!(parsed(&"show databases;".repeat(10_000)).map(|statements| statements.len()), Ok(10_000));
}
