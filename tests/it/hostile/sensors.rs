//! A flood of new sensors against `limits.sensors` and a quota: memory stays flat, known sensors work.

use super::{Client, Memory, print, while_served};
use crate::access::{create, start_with_auth};
use crate::support::prelude::*;

const LIMIT: usize = 20_000;
const LINES: usize = 10_000;
/// Maximum cost of refusals: request bodies and what the allocator keeps.
const GROWTH_BYTES: u64 = 64 << 20;
/// Readings are not flushed, because a flush costs as much again and would distort the measurement.
const NO_FLUSH: &str = "[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n";

#[test]
fn a_flood_of_sensors_of_one_client_stays_within_the_limit() {
    // The good client has one of them, and the last sixteenth is not for the flood.
    let sensors = (LIMIT + 1) * 16 / 15;
    let server = Launch::embedded().config(format!("{NO_FLUSH}[limits]\nsensors = {sensors}\n")).start();
    let anybody = Client { server: &server, token: None };
    flood(&anybody, &anybody, "sensors", "limits.sensors");
}

/// The service has room for all of them, but the quota of the token does not.
#[test]
fn a_flood_of_sensors_of_one_token_stays_within_its_quota() {
    let (server, first) = start_with_auth(NO_FLUSH);
    let token = create(&server, &["--name", "flood", "--write", "flood", "--sensors", &LIMIT.to_string()]);
    let good = Client { server: &server, token: Some(&first) };
    let bad = Client { server: &server, token: Some(&token) };
    flood(&good, &bad, "sensors of a token", &format!("exceeds the quota of token flood ({LIMIT} sensors)"));
    // Only the token is limited.
    good.ask("POST", "/write?db=flood", &invented_sensors(LIMIT, START)).expect(204);
}

fn invented_sensors(from: usize, time: i64) -> String {
    (from..from + LINES).map(|n| format!("m,device=made-up-{n} v=1 {time}\n")).collect()
}

/// Returns the number of lines refused by a limit: the listed ones and the rest.
fn refused(answer_text: &str, bound: &str) -> usize {
    let more = answer_text.rsplit_once("\\nand ").and_then(|(_, rest)| rest.split_once(" more"));
    answer_text.matches(bound).count() + more.map_or(0, |(count, _)| count.parse::<usize>().expect("a count"))
}

fn flood(good: &Client<'_>, bad: &Client<'_>, what: &str, bound: &str) {
    let server = good.server;
    let sensors = scaled(100_000, 1_000_000);
    let write = |from: usize, time: i64| bad.ask("POST", "/write?db=flood", &invented_sensors(from, time));
    let first = format!("climate,during={} v=1 {START}", what.replace(' ', "-"));
    good.ask("POST", "/write?db=good", &first).expect(204);
    while_served(good, what, || {
        (0..LIMIT).step_by(LINES).for_each(|from| drop(write(from, START).expect(204)));
        let full = Memory::measure(server);
        print(&format!("hostile {what}: {full} with {LIMIT} sensors"));
        for from in (LIMIT..sensors).step_by(LINES) {
            let answer = write(from, START).expect(400);
            assert_eq!(refused(answer.text(), bound), LINES, "{}", answer.text());
            assert!(answer.body.len() < 100_000, "an answer of {} bytes", answer.body.len());
        }
        // Its known sensors are written, next to a refused one.
        let lines = format!("{}m,device=one-more v=1 {START}", invented_sensors(0, START + 1));
        let partial = bad.ask("POST", "/write?db=flood", &lines).expect(400);
        assert!(partial.text().contains("dropped=1"), "{}", partial.text());
        print(&format!("hostile {what}: {} after {sensors}", Memory::measure(server)));
        Memory::assert_growth_at_most(server, full, GROWTH_BYTES);
    });
    good.ask("POST", "/api/v1/flush", "").expect(204);
    assert_eq!(good.count("flood", "m,device=made-up-7"), 2);
    assert_eq!(good.count("flood", &format!("m,device=made-up-{LIMIT}")), 0);
}

/// Catalog budget of the next tests; bodies, unflushed readings and allocator memory come on top.
const CATALOG_BYTES: u64 = 32 << 20;

/// Regression: 3,000 sensors with keys of 31 KB held 324 MB; only their number was limited.
#[test]
fn long_keys_stay_within_the_catalog_budget() {
    let line = |number: usize, time: i64| {
        let tags: String = (0..30).map(|tag| format!(",t{tag}={number:01000}")).collect();
        format!("m{tags} v=1 {time}\n")
    };
    fill_catalog("long keys", 3000, line);
}

/// Regression: only the number of fields was limited, not their names.
#[test]
fn long_field_names_stay_within_the_catalog_budget() {
    let line = |number: usize, time: i64| {
        let fields: Vec<String> = (0..60).map(|field| format!("f{field}-{number:0990}=1")).collect();
        format!("m,s={number} {} {time}\n", fields.join(","))
    };
    fill_catalog("long fields", 2000, line);
}

fn fill_catalog(what: &str, sensors: usize, line: impl Fn(usize, i64) -> String) {
    const AT_ONCE: usize = 50;
    let server = Launch::embedded().config(format!("{NO_FLUSH}[catalog]\nmax_bytes = {CATALOG_BYTES}\n")).start();
    let client = Client { server: &server, token: None };
    client.ask("POST", "/write?db=flood", &line(0, START)).expect(204);
    let before = Memory::measure(&server);
    let mut refused = 0;
    for from in (0..sensors).step_by(AT_ONCE) {
        let body: String = (from..from + AT_ONCE).map(|number| line(number, START + 1)).collect();
        let answer = client.ask("POST", "/write?db=flood", &body);
        if answer.status != 204 {
            let answer = answer.expect(400);
            assert!(answer.text().contains("catalog.max_bytes"), "{}", answer.text());
            refused += 1;
        }
    }
    print(&format!("hostile {what}: {before}, then {} with {refused} bodies refused", Memory::measure(&server)));
    assert!(refused * AT_ONCE > sensors / 4, "{refused} bodies were refused");
    Memory::assert_growth_at_most(&server, before, 4 * CATALOG_BYTES);
    client.ask("POST", "/write?db=flood", &line(0, START + 2)).expect(204);
}
