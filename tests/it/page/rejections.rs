//! Rejected lines on the page, with the position of the error, counted by code, exported and removed.

use crate::support::prelude::*;

use super::page;

#[test]
fn rejections_are_counted_exported_and_removed() {
    let Some((server, browser)) = page() else { return };
    // Markup, and a name that is no ordinary key of an object.
    for name in ["<img src=x onerror=alarm(1)>", "__proto__", "temp"] {
        for value in [json!(1.5), json!("21.5")] {
            let reading = json!({ "measurement": "climate", "tags": { "sensor": name }, "fields": { (name): value } });
            post(&server.url("/api/v1/readings"), reading.to_string(), &[]);
        }
    }
    post(&server.url("/write"), "climate temp=", &[]).expect(400);
    browser.load_until(&server.url("/#rejections"), "document.querySelectorAll('.rejection-head').length === 4");
    browser.wait("document.querySelector('.rejections').textContent.includes('3 family')");
    browser.expect_no_barriers("rejections");
    assert_eq!(
        browser.run("return document.querySelectorAll('main img').length;"),
        json!(0),
        "a name is shown as it is"
    );
    browser.run("window.saved = []; URL.createObjectURL = (file) => { file.text().then((text) => window.saved.push(text)); return 'data:,'; };");
    browser.click("button", "Export");
    browser.wait("window.saved.length === 1 && window.saved[0].includes('climate temp=\\n') && window.saved[0].split('\\n').filter((line) => line.includes('21.5')).length === 3");
    browser.fill("main select", "family");
    browser.wait("document.querySelectorAll('.rejection-head').length === 3");
    browser.click_until("button", "Remove all 3", "document.body.textContent.includes('Nothing was rejected.')");
    let left = server.fetch("/api/v1/rejections");
    assert_eq!(left["codes"], json!({"syntax": 1}));
    browser.look(390, 844, "light");
    let beyond = browser.run("return document.documentElement.scrollWidth - innerWidth;");
    assert!(beyond.as_i64().is_some_and(|beyond| beyond <= 0), "{beyond} px too wide on a phone");
    browser.expect_calm("rejections");
}

/// Regression: a syntax error after the end of its line had no position.
#[test]
fn the_place_of_a_syntax_error_is_shown() {
    let Some((server, browser)) = page() else { return };
    for line in ["vibration,line=b,sensor=,site=porto rms=", "climate,room=wärmer temp=1,ö=x"] {
        post(&server.url("/write"), line, &[]).expect(400);
    }
    browser.load_until(&server.url("/#rejections"), "document.querySelectorAll('.rejection-head').length === 2");
    let shown = browser.run(
        "return [...document.querySelectorAll('.rejection-head')].map((one) => one.parentNode).map((one) =>
           [one.querySelector('strong').textContent, one.querySelector('mark').previousSibling.textContent, one.querySelector('mark').textContent]);",
    );
    let [word, end] = [&shown[0], &shown[1]];
    assert!(end[0].as_str().unwrap().starts_with("Column 41: "), "{shown}");
    assert_eq!((&end[1], &end[2]), (&json!("vibration,line=b,sensor=,site=porto rms="), &json!(" ")), "{shown}");
    // Columns count bytes.
    assert_eq!((&word[1], &word[2]), (&json!("climate,room=wärmer temp=1,ö="), &json!("x")), "{shown}");
    browser.expect_calm("syntax");
}
