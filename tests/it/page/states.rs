//! Explore shows booleans as steps, and strings in the table and the file.

use serde_json::json;

use super::{now, page, write};

/// Regression: Explore offered only numbers, so sensors with strings had nothing to show.
#[test]
fn strings_and_booleans_are_charted_and_exported() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let line = |at: u64| {
        let (mode, open) = if at.is_multiple_of(2) { ("idle <b>now</b>", "true") } else { ("run", "false") };
        format!("door,sensor=front mode=\"{mode}\",open={open},load={at} {}", now - at * 300)
    };
    write(&server, &(1..30).map(line).collect::<Vec<_>>().join("\n"));
    browser.load_until(&server.url("/#explore?m=door&range=6h&still=1"), "document.querySelector('.plot canvas')");
    let chips = "[...document.querySelectorAll('fieldset .chip')].map((one) => one.textContent)";
    let offered = browser.wait(chips).to_string();
    assert!(offered.contains("load") && offered.contains("mode") && offered.contains("open"), "{offered}");
    // Numbers come first, and one of them is the default.
    assert!(browser.wait("location.hash").as_str().unwrap().contains("f=load"));
    browser.click("fieldset .chip", "open");
    browser.click_until("fieldset .chip", "mode", "document.querySelectorAll('.legend-item').length === 2");
    let cells = "[...document.querySelectorAll('.card td')].map((one) => one.textContent)";
    browser
        .wait(&format!("{cells}.includes('idle <b>now</b>') && {cells}.includes('true') && {cells}.includes('false')"));
    assert!(browser.text().contains("last value of each window"), "{}", browser.text());
    browser.expect_no_barriers("texts");
    // Strings have no chart, but a hint, the table and the file.
    for shown in ["avg", "raw"] {
        browser.load(&server.url(&format!("/#explore?m=door&f=mode&fn={shown}&range=6h&still=1")));
        browser.wait("document.querySelector('.empty')?.textContent.includes('Strings cannot be charted')");
        browser.wait(&format!("{cells}.includes('run') && {cells}.includes('idle <b>now</b>')"));
        assert_eq!(browser.run("return document.querySelectorAll('canvas, main b b').length;"), json!(0));
        browser.run("window.kept = ''; URL.createObjectURL = (blob) => { blob.text().then((text) => { window.kept = text; }); return '#'; };");
        browser.click("button", "Download CSV");
        let file = browser.wait("window.kept").as_str().unwrap().to_owned();
        assert!(file.contains("idle <b>now</b>") && file.contains("run"), "{shown}: {file}");
        if shown == "raw" {
            assert_eq!(file.lines().count(), 30, "{file}");
        }
        browser.run("navigator.clipboard.writeText = async (text) => { window.kept = text; };");
        browser.click("button", "Copy as InfluxQL");
        let statement = browser.wait("window.kept.startsWith('SELECT') && window.kept").as_str().unwrap().to_owned();
        assert_eq!(statement.contains("last(\"mode\")"), shown == "avg", "{statement}");
    }
    browser.expect_calm("texts");
}
