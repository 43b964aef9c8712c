//! The Sensors view: sorting, properties and refresh.

use crate::support::prelude::*;

use super::{now, page, write};

const FIRST: &str = "document.querySelector('tbody tr')?.textContent";

/// Regression: `Latest first` sorted only the first 500 by name, without a notice.
#[test]
fn sorting_by_latest_covers_all_sensors_or_names_its_limit() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let line = |at: u64| format!("many,sensor=s{at:04} v={at} {}", now - 5000 + at);
    write(&server, &(0..700).map(line).collect::<Vec<_>>().join("\n"));
    browser.load_until(&server.url("/#sensors?sort=latest"), &format!("{FIRST}?.includes('s0699')"));
    let text = browser.text();
    assert!(text.contains("The 500 latest of 700."), "{text}");
    browser.click_until("button", "Load more", "document.querySelectorAll('tbody tr').length === 700");
    write(&server, &(700..5100).map(line).collect::<Vec<_>>().join("\n"));
    browser.load_until(&server.url("/#sensors?sort=latest"), &format!("{FIRST}?.includes('s4999')"));
    let text = browser.text();
    assert!(text.contains("The 500 latest of the first 5,000 by name. There are more"), "{text}");
    browser.fill("input[type=search]", "s509");
    browser.wait(&format!("document.querySelectorAll('tbody tr').length === 10 && {FIRST}.includes('s5099')"));
    browser.expect_calm("order");
}

/// Regression: silence and names were hidden, the list was static, and `outlier` (more than a page an hour) misread.
#[test]
fn the_list_shows_silent_sensors_and_names() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[sensors]\nsilent_after = \"1h\"\n").start();
    let now = now();
    write(&server, &format!("climate,sensor=old temp=1 {}\nclimate,sensor=new temp=2 {now}", now - 7200));
    let path = server.url("/api/v1/sensors/climate,sensor=new/meta");
    request("PUT", &path, json!({ "name": "Roof" }).to_string().as_bytes(), &[]).unwrap().expect(200);
    let listed = server.fetch("/api/v1/sensors");
    assert_eq!(
        (&listed["sensors"][0]["silent"], &listed["sensors"][1]["silent"]),
        (&json!(false), &json!(true)),
        "{listed}"
    );
    browser.look(1200, 900, "light");
    browser.load_until(&server.url("/#sensors"), "document.querySelectorAll('tbody tr').length === 2");
    let rows = browser.run("return [...document.querySelectorAll('tbody tr')].map((one) => one.innerText);");
    let [new, old] = [0, 1].map(|at| rows[at].as_str().unwrap());
    assert!(new.contains("Roof") && !new.contains("silent"), "{new}");
    assert!(!old.contains("Roof") && old.contains("silent"), "{old}");
    let text = browser.text();
    assert!(text.contains("Over one page per hour") && !text.to_lowercase().contains("outlier"), "{text}");
    browser.expect_no_barriers("sensors");
    browser.picture("sensors-silent");
    // New sensors appear without a reload, and the used control keeps the focus.
    browser.run("document.querySelectorAll('button.link')[1].focus();");
    write(&server, &format!("climate,sensor=third temp=3 {now}"));
    browser.wait("document.querySelectorAll('tbody tr').length === 3");
    assert!(browser.run("return document.activeElement.textContent;").as_str().unwrap().contains("sensor=old"));
    browser.expect_calm("silence");
}

/// Regression: on a default server, the view of silent sensors showed an error.
#[test]
fn silent_sensors_are_found_without_configuration() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let lines = |sensor: &str, age: u64| {
        let line = |count: u64| format!("climate,sensor={sensor} temp=1 {}", now - age - 10 * count);
        (0..3).map(line).collect::<Vec<_>>().join("\n")
    };
    write(&server, &format!("{}\n{}", lines("stopped", 600), lines("sends", 0)));
    browser.load(&server.url("/#sensors"));
    let is_shown = "document.querySelectorAll('tbody tr').length";
    browser.wait(&format!("{is_shown} === 2"));
    browser.click(".segment", "Silent");
    browser.wait(&format!("{is_shown} === 1 && document.querySelector('tbody').innerText.includes('stopped')"));
    browser.click(".segment", "All");
    browser.wait(&format!("{is_shown} === 2"));
    browser.expect_calm("asking");
}
