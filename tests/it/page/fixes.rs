//! What was rejected or kept beside its field is fixed in place: tried first, then written, and never what was not tried.

use serde_json::json;

use super::{now, page, write};
use crate::support::browser::Browser;
use crate::support::http::{get, post};
use crate::support::server::{Launch, Server};

/// Markup, and a name that is no ordinary key of an object.
const HOSTILE: &[&str] = &["<img src=x onerror=alarm(1)>", "__proto__"];
const TRY: &str = "What would become of them?";

/// Two texts for fields of numbers, for each name.
fn rejected(server: &Server) {
    for name in HOSTILE.iter().chain(&["temp"]) {
        let of = |value: serde_json::Value| {
            json!({ "measurement": "climate", "tags": { "sensor": name }, "fields": { (*name): value } }).to_string()
        };
        post(&server.url("/api/v1/readings"), of(json!(1.5)), &[]).expect(200);
        for text in ["21.5", "warm"] {
            post(&server.url("/api/v1/readings"), of(json!(text)), &[]);
        }
    }
}

fn is_disabled(browser: &Browser, text: &str) -> bool {
    let found = format!(
        "return [...document.querySelectorAll('button')].find((one) => one.textContent === {}).disabled;",
        json!(text)
    );
    browser.run(&found).as_bool().expect("a button")
}

fn has_value(server: &Server, value: &str) -> bool {
    get(&server.url("/api/v1/readings?measurement=climate")).expect(200).text().contains(value)
}

#[test]
fn rejected_lines_are_fixed_by_a_rule_that_was_tried() {
    let Some((server, browser)) = page() else { return };
    rejected(&server);
    browser.load(&server.url("/#rejections"));
    browser.click("button", "Fix lines like this");
    browser.wait("location.hash.includes('code=family')");
    browser.click("button", TRY);
    browser.wait("document.body.textContent.includes('0 would be written, 6 would not.')");
    assert!(is_disabled(&browser, "Write them"), "there is nothing to write");
    assert_eq!(browser.barriers(), Vec::<String>::new());
    for name in HOSTILE.iter().chain(&["temp"]) {
        browser.fill(".rules input", name);
        browser.fill(".rules select", "float");
        assert!(is_disabled(&browser, "Write them"), "{name}: this rule was not tried");
        browser.click("button", TRY);
        browser.wait("document.body.textContent.includes('1 would be written')");
        assert!(!is_disabled(&browser, "Write them"), "{name}");
        browser.expect_calm(name);
    }
    assert!(!has_value(&server, "21.5"), "a dry run writes nothing");
    browser.fill(".rules div:nth-child(2) > input", "temp_2");
    assert!(is_disabled(&browser, "Write them"), "the rule is another one");
    browser.click("button", TRY);
    browser.wait("document.querySelector('.rejections table')?.textContent.includes('temp_2=')");
    assert_eq!(browser.barriers(), Vec::<String>::new());
    browser.picture("rejections-fix");
    browser.click("button", "Write them");
    browser.wait("document.body.textContent.includes('are not.') && document.body.textContent.includes('written,')");
    assert!(has_value(&server, "\"temp_2\":21.5"), "it is written by its new name");
    // The list went on showing what had been written.
    browser.wait("document.querySelector('.rejections').textContent.includes('1 that was written again is left out.')");
    browser.wait("document.querySelectorAll('.rejection-head').length === 5");
    browser.click("button", "Show them, too");
    browser.wait("document.querySelectorAll('.rejection-head').length === 6");
    assert_eq!(
        browser.run("return [...document.querySelectorAll('.rejections .badge.good')].filter((one) => one.textContent === 'written again').length;"),
        json!(1)
    );
    // What was written is not offered again.
    browser.click("button", TRY);
    browser.wait("document.body.textContent.includes('would not.')");
    let text = browser.run("return document.querySelector('.rejections table').textContent;").to_string();
    assert!(!text.contains("temp_2=2"), "{text}");
    assert_eq!(
        browser.run("return document.querySelectorAll('main img').length;"),
        json!(0),
        "a name is shown as what it is"
    );
    browser.look(390, 844, "light");
    let beyond = browser.run("return document.documentElement.scrollWidth - innerWidth;");
    assert!(beyond.as_i64().is_some_and(|beyond| beyond <= 0), "{beyond} px too wide on a phone");
    browser.expect_calm("fixes");
}

#[test]
fn lines_are_chosen_by_measurement_and_get_another_unit() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[limits]\nmax_past = \"30d\"\n").start();
    let now = now();
    for name in ["door", "gate"] {
        post(&server.url("/write?precision=ns"), format!("{name},sensor=a opened=7i {now}000"), &[]).expect(400);
    }
    browser.load(&server.url("/#rejections?m=door"));
    browser.wait("document.querySelectorAll('.rejection-head').length === 1");
    browser.click("summary", "Fix and write again");
    browser.wait("document.querySelector('details').open");
    browser.click("button", TRY);
    browser.wait("document.body.textContent.includes('0 would be written, 1 would not.')");
    browser.fill(".fix > .row select", "ms");
    browser.click("button", TRY);
    browser.wait("document.body.textContent.includes('1 would be written, 0 would not.')");
    browser.click("button", "Write them");
    browser.wait("document.body.textContent.includes('1 is written, 0 are not.')");
    let of = |name: &str| {
        get(&server.url(&format!("/api/v1/readings?measurement={name}&precision=s&from={}&to={}", now - 5, now + 5)))
            .text()
            .contains("\"opened\":7")
    };
    assert!(of("door") && !of("gate"), "only what was chosen is written");
    browser.expect_calm("a unit");
}

/// The list of fields with values of another type looked at the first 200 measurements.
#[test]
fn values_beside_a_field_are_found_in_every_measurement() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[ingest]\ndrift = \"keep\"\n").start();
    let plain = (0..250).map(|at| json!({ "measurement": format!("plain{at:03}"), "fields": { "v": 1.5 } }));
    let drifted = (0..51).flat_map(|at| {
        let name = format!("zone{at:03}");
        [json!(1.5), json!("warm")].map(|value| json!({ "measurement": name, "fields": { "v": value } }))
    });
    for reading in [plain.collect::<Vec<_>>(), drifted.collect()] {
        post(&server.url("/api/v1/readings"), json!(reading).to_string(), &[]).expect(200);
    }
    browser.load(&server.url("/#rejections"));
    browser.wait("document.querySelectorAll('.drifted').length === 50");
    browser.click("button", "Show more: 1 further measurement");
    browser.wait("document.querySelectorAll('.drifted').length === 51");
    browser.wait("document.querySelector('.drifted:last-child').textContent.includes('v of zone050')");
    browser.expect_calm("many measurements");
}

#[test]
fn values_beside_their_field_move_into_it() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[ingest]\ndrift = \"keep\"\n").start();
    let name = HOSTILE[0];
    for (at, value) in [json!(1.5), json!("21.5"), json!("warm")].into_iter().enumerate() {
        let reading = json!({ "measurement": name, "tags": { "sensor": "a" }, "fields": { (name): value }, "time": format!("2026-01-15T00:0{at}:00Z") });
        post(&server.url("/api/v1/readings"), reading.to_string(), &[]).expect(200);
    }
    write(&server, &format!("plain,sensor=a v=1 {}", now()));
    browser.load(&server.url("/#rejections"));
    browser.wait("document.querySelectorAll('.drifted').length === 1");
    assert!(is_disabled(&browser, "Move them"));
    browser.click("button", "What would move?");
    browser.wait(
        "document.querySelector('.drifted').textContent.includes('1 values of 1 sensors would move, 1 would stay.')",
    );
    assert_eq!(browser.barriers(), Vec::<String>::new());
    browser.fill(".drifted select", "string");
    assert!(is_disabled(&browser, "Move them"), "that was not tried");
    browser.fill(".drifted select", "float");
    browser.click("button", "What would move?");
    browser.wait(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Move them').disabled === false",
    );
    browser.click("button", "Move them");
    browser.wait("document.querySelector('.drifted').textContent.includes('1 values of 1 sensors moved, 1 stay.')");
    browser.click("button", "What would move?");
    browser.wait("document.querySelector('.drifted').textContent.includes('0 values of 0 sensors would move')");
    assert_eq!(browser.run("return document.querySelectorAll('main img').length;"), json!(0));
    browser.expect_calm("drift");
}

/// What is read of a form's layout: the least distance, in pixels, between two of its parts that stand one above the other.
const LEAST_DISTANCE: &str = "const parts = [...document.querySelectorAll('.fix > *')].filter((one) => one.offsetHeight > 0).map((one) => one.getBoundingClientRect());
    return Math.min(...parts.slice(1).map((one, at) => one.top - parts[at].bottom));";

/// The open form of a fix had no space between its parts, since Chromium puts what is in `details` into a box of its own. Of a syntax error behind the
/// end of its line no place was shown, and a rule was offered that cannot mend what cannot be read.
#[test]
fn the_place_of_a_syntax_error_is_shown_and_the_form_has_room() {
    let Some((server, browser)) = page() else { return };
    for line in ["vibration,line=b,sensor=,site=porto rms=", "climate,room=wärmer temp=1,ö=x", "climate temp=1"] {
        post(&server.url("/write"), line, &[]);
    }
    post(&server.url("/write"), "climate temp=\"warm\"", &[]).expect(400);
    browser.load(&server.url("/#rejections"));
    browser.wait("document.querySelectorAll('.rejection-head').length === 3");
    let shown = browser.run(
        "return [...document.querySelectorAll('.rejections .card')].filter((one) => one.querySelector('.badge')?.textContent === 'syntax').map((one) =>
           [one.querySelector('strong').textContent, one.querySelector('mark').previousSibling.textContent, one.querySelector('mark').textContent, one.textContent.includes('Fix lines like this')]);",
    );
    let [word, end] = [&shown[0], &shown[1]];
    assert!(end[0].as_str().unwrap().starts_with("Column 41: "), "{shown}");
    assert_eq!((&end[1], &end[2]), (&json!("vibration,line=b,sensor=,site=porto rms="), &json!(" ")), "{shown}");
    // A column is one of bytes.
    assert_eq!((&word[1], &word[2]), (&json!("climate,room=wärmer temp=1,ö="), &json!("x")), "{shown}");
    assert_eq!((&word[3], &end[3]), (&json!(false), &json!(false)), "{shown}");
    browser.click("summary", "Fix and write again");
    assert!(browser.run(LEAST_DISTANCE).as_f64().is_some_and(|distance| distance >= 8.0), "it has no room");
    browser.look(390, 844, "light");
    assert!(browser.run(LEAST_DISTANCE).as_f64().is_some_and(|distance| distance >= 8.0), "it has no room on a phone");
    assert_eq!(browser.barriers(), Vec::<String>::new());
    browser.expect_calm("syntax");
}
