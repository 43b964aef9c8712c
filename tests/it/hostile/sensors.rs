//! A client that makes up a million sensors, against `limits.sensors`: those beyond are refused by name of the key, memory
//! stays where it was when the limit was reached, and the sensors that were known are written and queried all the while.

use super::{Memory, START, print, while_a_good_client_is_served};
use crate::support::http::post;
use crate::support::series::{flush, readings};
use crate::support::server::Launch;

const SENSORS: usize = 1_000_000;
const LIMIT: usize = 20_000;
const LINES: usize = 10_000;
/// Most that refusing may cost: the bodies under way and what the allocator keeps of them.
const GROWTH_BYTES: u64 = 64 << 20;

#[test]
fn a_million_sensors_of_one_client_cost_no_more_than_the_limit_allows() {
    // The good client has one of them.
    let server = Launch::embedded().config(format!("[limits]\nsensors = {}\n", LIMIT + 1)).start();
    let url = server.url("/write?db=flood");
    let body = |from: usize, time: i64| -> String {
        (from..from + LINES).map(|n| format!("m,device=made-up-{n} v=1 {time}\n")).collect()
    };
    post(&server.url("/write?db=good"), format!("climate,during=sensors v=1 {START}"), &[]).expect(204);
    while_a_good_client_is_served(&server, "sensors", || {
        (0..LIMIT).step_by(LINES).for_each(|from| drop(post(&url, body(from, START), &[]).expect(204)));
        let full = Memory::of(&server);
        print(&format!("hostile sensors: {full} with {LIMIT} sensors"));
        for from in (LIMIT..SENSORS).step_by(LINES) {
            let answer = post(&url, body(from, START), &[]).expect(400);
            assert!(answer.text().contains("limits.sensors"), "{}", answer.text());
            assert!(answer.body.len() < 100_000, "an answer of {} bytes", answer.body.len());
        }
        // Its own known sensors are written as before.
        post(&url, body(0, START + 1), &[]).expect(204);
        print(&format!("hostile sensors: {} after {SENSORS}", Memory::of(&server)));
        Memory::grew_at_most(&server, full, GROWTH_BYTES);
    });
    flush(&server);
    assert_eq!(readings(&server, "flood", "m,device=made-up-7", None, 10).len(), 2);
    assert!(readings(&server, "flood", &format!("m,device=made-up-{LIMIT}"), None, 10).is_empty());
}
