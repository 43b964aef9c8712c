//! Names and strings with markup, code or addresses are shown literally in every view, and never run.

use crate::support::prelude::*;

use super::page;

const NAMES: &[&str] = &[
    "<img src=x onerror=alarm(1)>",
    "<script>alarm(2)</script>",
    "\"><svg onload=alarm(3)>",
    "javascript:alarm(4)",
    "';alarm(5);//",
    "${alarm(6)}`$(alarm)",
    "\u{202e}drawkcab\u{2066}",
    "__proto__",
    "constructor",
    "</code></pre><b>bold</b>",
    "{{alarm(7)}}",
];

#[test]
fn no_view_executes_names() {
    let Some((server, browser)) = page() else { return };
    let readings: Vec<_> = NAMES
        .iter()
        .map(|name| json!({ "measurement": "m", "tags": { "sensor": name, (*name): name }, "fields": { (*name): 1.5, "v": 2, "text": name } }))
        .chain(NAMES.iter().map(|name| json!({ "measurement": name, "tags": { "sensor": name }, "fields": { "v": 1 } })))
        .collect();
    post(&server.url("/api/v1/readings"), json!(readings).to_string(), &[]).expect(200);
    // Names have no line ends or terminal escapes, but strings may.
    let text = "two\nlines\r\u{1b}[31m<b>bold</b>";
    let reading = json!({ "measurement": "m", "tags": { "sensor": "texts" }, "fields": { "v": 1, "text": text } });
    post(&server.url("/api/v1/readings"), reading.to_string(), &[]).expect(200);
    let meta = json!({ "name": text }).to_string();
    let url = server.url("/api/v1/sensors/m,sensor=texts/meta");
    request("PUT", &url, meta.as_bytes(), &[]).unwrap().expect(200);
    // Each name in every third address, and each address with several names; all combinations in a long run.
    let step = scaled(3, 1);
    for (at, name) in NAMES.iter().enumerate() {
        let key = encode(name);
        post(&server.url("/write"), format!("{name} {name}"), &[]);
        let line = json!({ "sensor": "m,sensor=x", "meta": { (*name): name } });
        post(&server.url("/api/v1/meta"), line.to_string(), &[("Content-Type", "application/x-ndjson")]);
        let addresses = [
            format!("explore?m=m&f=v&f={key}&where=%5B%22sensor%22%2C%22x%22%5D&by={key}"),
            format!("explore?m={key}&f=v&range=1h"),
            format!("connect?m={key}&s={key}&with=esphome"),
            format!("explain?line={key}"),
            format!("explain?line=m%2C{key}%20v%3D1"),
            format!("rejections?q={key}"),
            format!("sensors?q={key}&sort={key}"),
            format!("live?m={key}"),
            format!("{key}?db={key}"),
        ];
        for address in addresses.iter().skip(at % step).step_by(step) {
            browser.load_until(&server.url(&format!("/#{address}")), "document.querySelector('h1, .failure, .empty')");
        }
        browser.expect_calm(name);
    }
    for view in ["explore?m=m&f=v", "sensors", "rejections", "live", "access", "connect"] {
        browser.load_until(&server.url(&format!("/#{view}")), "document.querySelector('h1')");
        browser.wait("!document.querySelector('[aria-busy=true]')");
        browser.expect_calm(view);
        assert_eq!(
            browser.run(
                "return document.querySelectorAll('main img, main script, main b b, main svg:not(.spark)').length;"
            ),
            json!(0),
            "{view}"
        );
    }
    browser.load_until(&server.url("/#sensors?q=texts"), "document.querySelectorAll('tbody tr').length === 1");
    browser.click_until("button.link", "texts", "document.querySelector('dialog textarea')");
    assert!(browser.text().contains("two\\u000alines\\u000d\\u001b[31m<b>bold</b>"), "{}", browser.text());
    browser.expect_calm("a text of lines");
    // The filters list what is stored, and the dialog of a sensor shows all of it.
    browser.load(&server.url("/#sensors"));
    browser.click_until("button.link", "onerror", "document.querySelector('dialog textarea')");
    assert!(browser.text().contains("<img src=x onerror=alarm(1)>"), "shown as it is");
    browser.expect_calm("a sensor's dialog");
    browser.load(&server.url("/#explore?m=m&f=v"));
    browser.click("button", "Add a filter");
    browser.click_until("dialog .chip", "onerror", "document.querySelector('dialog .chip')");
    browser.expect_calm("a filter");
}

/// Checks that violations would be noticed.
#[test]
fn policy_violations_are_detected() {
    let Some((server, browser)) = page() else { return };
    browser.load_until(&server.url("/#health"), "document.querySelector('h1')");
    browser.run("try { document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=alarm(1)>'); } catch { /* refused */ }");
    browser.run("const other = document.createElement('img'); other.src = 'https://example.org/x.png'; document.body.append(other);");
    browser.wait("window.alarms.some((one) => one.includes('trusted-types') || one.includes('img-src'))");
    let alarms = browser.run("return window.alarms;").to_string();
    assert!(
        alarms.contains("require-trusted-types-for") && alarms.contains("img-src") && !alarms.contains("alarm 1"),
        "{alarms}"
    );
}
