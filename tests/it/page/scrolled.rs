//! Live distinguishes received, shown and missed readings.

use crate::support::prelude::*;

use super::{now, page, write};

const STATE: &str = "document.querySelector('.state').textContent";

/// Regression: rows that were scrolled away counted as missed.
#[test]
fn scrolling_misses_no_reading_and_missed_readings_are_counted() {
    let Some((server, browser)) = page() else { return };
    browser.load_until(&server.url("/#live"), "document.querySelector('.state')");
    wait_until("a reading is shown", || {
        write(&server, &format!("climate,sensor=first temp=1 {}", now()));
        browser.is_true("document.querySelectorAll('table.live tbody tr').length > 0")
    });
    let lines: Vec<String> = (0..1000).map(|at| format!("climate,sensor=s{at:03} temp={at} {}", now())).collect();
    write(&server, &lines.join("\n"));
    browser.wait(&format!("/1[,.\u{a0}]?\\d{{3}} received, the newest 200 are shown/.test({STATE})"));
    assert_eq!(browser.run("return document.querySelectorAll('table.live tbody tr').length;"), json!(200));
    let state = browser.run(&format!("return {STATE};"));
    assert!(!state.as_str().unwrap().contains("missed"), "{state}");
    // The notice of the service for a slow page.
    browser.click("button", "Pause");
    browser.run("const real = window.fetch; window.fetch = (address, options) => !String(address).includes('/tail') ? real(address, options) : Promise.resolve(new Response(new ReadableStream({ start(control) { control.enqueue(new TextEncoder().encode('event: missed\\ndata: {\"readings\":7}\\n\\n')); } })));");
    browser.click_until("button", "Resume", &format!("{STATE}.includes('7 missed, because the page was too slow')"));
    browser.expect_calm("missed");
}
