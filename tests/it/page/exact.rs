//! Exports are exact: all readings, every digit, and only the chosen sensors.

use crate::support::prelude::*;

use super::{now, page, write};

/// Keeps downloads in `window.kept`.
const KEEP: &str = "window.kept = null; const real = URL.createObjectURL.bind(URL);
    URL.createObjectURL = (blob) => { blob.text().then((text) => { window.kept = text; }); return real(blob); };";

/// Regression: a CSV of readings ended after the first thousand without a notice.
#[test]
fn a_csv_has_every_reading_or_a_notice() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[query]\nlimit_max = 2000\n").start();
    let now = now();
    let sensor_lines =
        |sensor: &'static str| (0..1250).map(move |at| format!("many,sensor={sensor} v={at} {}", now - at));
    write(&server, &sensor_lines("räume").chain(sensor_lines("zone")).collect::<Vec<_>>().join("\n"));
    browser.load(&server.url("/#explore?m=many&f=v&fn=raw&range=1h&still=1"));
    browser.wait("document.querySelector('.plot canvas')");
    browser.run(KEEP);
    browser.click("button", "Download CSV");
    let text = browser.wait("window.kept");
    let lines: Vec<&str> = text.as_str().unwrap().lines().collect();
    assert_eq!(lines.len(), 1 + 2500, "{:?}", &lines[..2]);
    assert_eq!(lines.iter().filter(|line| **line == lines[0]).count(), 1, "one row of names");
    for sensor in ["räume", "zone"] {
        assert_eq!(lines.iter().filter(|line| line.contains(sensor)).count(), 1250, "{sensor}");
    }
    assert_eq!(browser.run("return document.querySelector('dialog') === null;"), json!(true));
    // More than a browser should hold.
    browser.run(
        "const real = window.fetch; window.parts = 0; window.fetch = async (url, ...more) => {
        if (!String(url).includes('format=csv')) return real(url, ...more);
        window.parts += 1;
        return new Response('ts,v\\n' + '1,2\\n'.repeat(999999), { headers: { 'X-Next-Cursor': 'more' } });
    }; window.kept = null;",
    );
    browser.click("button", "Download CSV");
    browser.wait("document.querySelector('dialog')?.textContent.includes('It ends after 5,000,000 lines')");
    assert_eq!(browser.run("return window.parts;"), json!(5));
    let lines = browser.wait("window.kept && window.kept.split('\\n').length");
    assert_eq!(lines, json!(5 * 999_999 + 2));
    browser.expect_calm("downloads");
}

/// Regression: coordinates were shown to 100 m, and a change of one name rounded numbers of other metadata.
#[test]
fn numbers_are_shown_and_exported_with_every_digit() {
    let Some((server, browser)) = page() else { return };
    write(&server, &format!("gps,sensor=car lat=52.520008,lon=-0.00001234,far=1234567.25 {}", now()));
    let shown = ["52.520008", "-0.00001234", "1,234,567.25"];
    let expect = |place: &str, what: &str| {
        for number in shown {
            let is_shown = "[...document.querySelectorAll(SELECTOR)].some((one) => one.textContent.includes(NUMBER))";
            let is_shown = is_shown.replace("SELECTOR", &json!(place).to_string());
            browser.wait(&is_shown.replace("NUMBER", &json!(number).to_string()));
        }
        browser.expect_calm(what);
    };
    browser.load(&server.url("/#explore?m=gps&f=lat&f=lon&f=far&fn=raw&range=1h&still=1"));
    expect("[aria-label=Values] td", "Explore");
    browser.load(&server.url("/#sensors"));
    expect("tbody td", "Sensors");
    let line = "gps%2Csensor%3Dcar%20lat%3D52.520008%2Clon%3D-0.00001234%2Cfar%3D1234567.25";
    browser.load(&server.url(&format!("/#explain?line={line}")));
    expect("tbody td", "Try a line");
    browser.load(&server.url("/#live"));
    wait_until("a reading is heard", || {
        write(&server, &format!("gps,sensor=car lat=52.520008,lon=-0.00001234,far=1234567.25 {}", now()));
        browser.is_true("document.querySelector('table.live tbody tr')")
    });
    expect("table.live td", "Live");

    let path = server.url("/api/v1/sensors/gps,sensor=car/meta");
    let meta = r#"{"count":9007199254740993,"gone":1,"place":{"floor":2,"id":9007199254740995,"room":"a"}}"#;
    request("PUT", &path, meta.as_bytes(), &[]).unwrap().expect(200);
    browser.load(&server.url("/#sensors"));
    browser.click("button.link", "gps");
    browser.wait("document.querySelector('dialog textarea')?.value.includes('9007199254740993')");
    let changed = r#"{"count":9007199254740993,"name":"Car","place":{"floor":3,"id":9007199254740995}}"#;
    browser.fill("dialog textarea", changed);
    browser.click_until("dialog button", "Save", "!document.querySelector('dialog')");
    assert_eq!(get(&path).expect(200).text(), changed);
    // Browsers that read numbers as doubles leave unchanged names alone.
    browser.run("JSON.rawJSON = undefined;");
    browser.click_until("button.link", "gps", "document.querySelector('dialog textarea')");
    browser.run("const one = document.querySelector('dialog textarea'); one.value = one.value.replace('Car', 'Van');");
    browser.click_until("dialog button", "Save", "!document.querySelector('dialog')");
    assert_eq!(get(&path).expect(200).text(), changed.replace("Car", "Van"));
    browser.click("button.link", "gps");
    browser.fill("dialog textarea", "[1]");
    browser.click("dialog button", "Save");
    browser.wait("document.querySelector('dialog .failure')?.textContent.includes('a JSON object')");
    flush(&server);
    browser.click_until(
        "dialog button",
        "Documents",
        "document.querySelector('dialog pre')?.textContent.includes('schemaVersion')",
    );
    browser.expect_calm("metadata and documents");
}

/// Regression: a stored `~.` was sent as a regular expression, and a newly chosen measurement showed all its fields.
#[test]
fn the_chart_shows_the_chosen_sensors() {
    let Some((server, browser)) = page() else { return };
    let readings: Vec<_> = ["~.", "~a+$", "plain"]
        .iter()
        .map(|site| json!({ "measurement": "hall", "tags": { "site": site, "odd!": "x", "a,b": "y" }, "fields": { "one": 1, "two": 2, "a,b": 3 } }))
        .chain([json!({ "measurement": "aisle", "tags": { "sensor": "s" }, "fields": { "v": 1 } })])
        .collect();
    post(&server.url("/api/v1/readings"), json!(readings).to_string(), &[]).expect(200);
    browser.load_until(&server.url("/#explore?m=aisle&f=v&range=1h&still=1"), "document.querySelector('.plot canvas')");
    let names = "[...document.querySelectorAll('.legend-name')].map((one) => one.textContent)";
    browser.run("const one = [...document.querySelectorAll('select')].find((one) => one.labels[0]?.textContent === 'Measurement'); one.value = 'hall'; one.dispatchEvent(new Event('change'));");
    browser.wait(&format!("{names}.length >= 3"));
    browser.wait("document.querySelector('[aria-pressed=true].chip')?.textContent.startsWith('one')");
    let drawn = browser.run(&format!("return {names};"));
    assert!(drawn == json!(["plain", "~.", "~a+$"]), "one field of three sensors: {drawn}");
    let offered = browser.run("return [...document.querySelectorAll('.controls .chip, .controls option')].map((one) => one.textContent).join('|');");
    let offered = offered.as_str().unwrap();
    assert!(offered.contains("two") && offered.contains("odd!") && !offered.contains("a,b"), "{offered}");
    for site in ["~.", "~a+$"] {
        browser.click_until("button", "Add a filter", "document.querySelector('dialog .chip')");
        let keys = browser.run("return [...document.querySelectorAll('dialog .chip')].map((one) => one.textContent);");
        assert_eq!(keys, json!(["a,b", "site"]), "a key that ends with ! cannot be asked for");
        browser.click("dialog .chip", "site");
        browser.click_until("dialog .chip", site, &format!("{names}.length === 1 && {names}[0].includes('site=')"));
        let one = browser.run(&format!("return {names}[0];"));
        assert!(one.as_str().unwrap().contains(&format!("site={site}")), "{one}");
        browser.wait("document.querySelector('.chip .remove')");
        browser.run("document.querySelector('.chip .remove').click();");
        browser.wait(&format!("{names}.length === 3"));
    }
    browser.expect_calm("what was chosen");
}
