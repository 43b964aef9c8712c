//! Filters in Explore offer everything that is stored.

use crate::support::prelude::*;

use super::{now, page, write};

/// Regression: metadata in filters came from the first 1,000 sensors only.
#[test]
fn filters_offer_the_metadata_of_every_sensor() {
    let Some((server, browser)) = page() else { return };
    let keys: Vec<String> = (0..1200).map(|at| format!("many,sensor=s{at:04}")).collect();
    write(&server, &keys.iter().map(|key| format!("{key} v=1 {}", now())).collect::<Vec<_>>().join("\n"));
    let shown_text = |key: &String| {
        let meta = if key.ends_with("s1199") {
            json!({ "shelf": "top", "a\"<b>": "x", "site": "roof" })
        } else {
            json!({ "site": "lab" })
        };
        json!({ "sensor": key, "meta": meta }).to_string()
    };
    let lines = keys.iter().map(shown_text).collect::<Vec<_>>().join("\n");
    post(&server.url("/api/v1/meta"), lines, &[("Content-Type", "application/x-ndjson")]).expect(200);
    browser.load(&server.url("/#explore?m=many&f=v&range=1h&still=1"));
    browser.click("button", "Add a filter");
    let chips = "[...document.querySelectorAll('dialog .chip')].map((one) => one.textContent)";
    let offered = browser.wait(&format!("{chips}.length > 1 && {chips}"));
    assert_eq!(offered, json!(["sensor", "a\"<b>", "shelf", "site"]));
    browser.click("dialog .chip", "site");
    let counted = browser.wait(&format!("{chips}.some((one) => one.includes('lab')) && {chips}"));
    assert_eq!(counted, json!(["lab (1199)", "roof (1)"]));
    browser.click("dialog .chip", "roof (1)");
    browser.wait("location.hash.includes('meta.site') && document.querySelectorAll('.legend-item').length === 1");
    let name: Value = browser.run("return document.querySelector('.legend-name').textContent;");
    assert_eq!(name, json!("s1199"));
    browser.expect_calm("filters");
}
