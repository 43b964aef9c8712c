//! Streams on the page show why they are silent, and Connect shows the requested sensor first.

use crate::support::prelude::*;

use super::tail::TailClient;
use super::{now, page, write};

const STATE: &str = "document.querySelector('.state')?.textContent";
const WAITING: &str = "document.querySelector('.waiting')?.textContent";
const ARRIVED: &str = "document.querySelector('.arrived')?.textContent";

/// Regression: over the limit `tail.clients`, Live showed a lost connection for ever, and Connect a wait.
#[test]
fn a_silent_stream_shows_its_reason() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[tail]\nclients = 1\n").start();
    let client = TailClient::open(&server, "", &[]);
    assert_eq!(client.status(), 200);
    browser.load(&server.url("/#live"));
    browser.wait(&format!("{STATE}?.includes('tail.clients') && {STATE}?.includes('Reconnecting')"));
    browser.load_until(&server.url("/#connect"), &format!("{WAITING}?.includes('tail.clients')"));
    browser.expect_no_barriers("listening");
    drop(client);
    browser.wait(&format!("{WAITING}?.includes('Waiting for a reading of climate with sensor temp-01')"));
    // It waits as long as Retry-After says.
    browser.load_until(&server.url("/#live"), &format!("{STATE}?.includes('Listening')"));
    browser.click_until("button", "Pause", &format!("{STATE}?.includes('Paused')"));
    browser.run(
        "const [real, later] = [window.fetch, window.setTimeout];
         window.pauses = [];
         window.setTimeout = (act, pause, ...more) => { window.pauses.push(pause); return later(act, pause, ...more); };
         window.fetch = (address, options) => !String(address).includes('/tail') ? real(address, options)
           : Promise.resolve(new Response('{\"error\":\"later, please\"}', { status: 503, headers: { 'Retry-After': '7' } }));",
    );
    browser.click("button", "Resume");
    browser.wait(&format!("{STATE}?.includes('Later, please. Reconnecting') && window.pauses.includes(7000)"));
    browser.expect_calm("listening");
}

/// Regression: in a busy database Connect showed the first reading of any sensor.
#[test]
fn connect_shows_the_requested_sensor() {
    let Some((server, browser)) = page() else { return };
    browser.look(1200, 900, "light");
    // Devices on the network need another address than the page's own.
    let code = "document.querySelector('.snippet code')?.textContent";
    let reach = "[...document.querySelectorAll('.hint')].some((hint) => hint.textContent.includes('--listen 0.0.0.0'))";
    browser.load_until(&server.url("/#connect"), reach);
    browser.load_until(
        &server.url("/#connect?at=http%3A%2F%2Fplant-7%3A8086"),
        &format!("{code}?.includes('http://plant-7:8086/')"),
    );
    assert!(!browser.is_true(reach), "other machines reach it");
    browser.load(&server.url("/#connect?m=door&s=front"));
    let others = "document.querySelector('.arrived + .hint')?.textContent.includes('Other sensors sending: 1')";
    wait_until("a reading is shown", || {
        write(&server, &format!("climate,sensor=front temp=1 {}", now()));
        browser.is_true(others)
    });
    browser.wait(&format!("{WAITING}?.includes('Waiting for a reading of door with sensor front')"));
    write(&server, &format!("door,sensor=front,hall=a opened=471 {}", now()));
    browser.wait(&format!("{ARRIVED}?.includes('471')"));
    write(&server, &format!("climate,sensor=back temp=822 {}", now()));
    browser.wait("document.querySelector('.arrived + .hint').textContent.includes('sending: 2')");
    let arrived = browser.run(&format!("return {ARRIVED};"));
    assert!(arrived.as_str().unwrap().contains("471") && !arrived.as_str().unwrap().contains("822"), "{arrived}");
    browser.expect_no_barriers("listening");
    browser.picture("connect-arrived");
    // Another snippet for the same sensor keeps them; another sensor waits for its own.
    browser.click(".segment", "Python");
    assert_eq!(browser.run(&format!("return {ARRIVED};")), arrived);
    browser.fill("input[autocomplete=off]", "gate");
    browser.wait(&format!("{WAITING}?.includes('Waiting for a reading of gate with sensor front')"));
    assert_eq!(browser.run(&format!("return {ARRIVED};")), json!(""));
    // A scraper may send any sensor.
    browser.click_until(".segment", "Telegraf", &format!("{WAITING}?.includes('Waiting for a reading in default')"));
    write(&server, &format!("cpu,host=a usage=3.5 {}", now()));
    browser.wait(&format!("{ARRIVED}?.includes('usage 3.5')"));
    browser.expect_calm("connect");
}
