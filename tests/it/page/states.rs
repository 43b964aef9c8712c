//! Explore shows strings and booleans on a timeline, in the table and in the file.

use super::charts::keep_texts;
use super::{now, page, write};
use crate::support::prelude::*;

const TIMELINE: &str = "document.querySelector('.plot.states canvas')";
const STATES: &str = "[...document.querySelectorAll('[aria-label=States] .legend-name')].map((one) => one.textContent)";

/// Moves the mouse over the timeline, at shares of its width and height, and returns the tip.
fn tip_at(browser: &Browser, along: f64, down: f64) -> String {
    let place = format!(
        "const {{ left, top, width, height }} = document.querySelector('.states .u-over').getBoundingClientRect(); return [left + width * {along}, top + height * {down}];"
    );
    let place = browser.run(&place);
    browser.devtools("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": place[0], "y": place[1] }));
    let tip = browser.wait(
        "document.querySelector('.states .tip')?.hidden === false && document.querySelector('.states .tip').innerText",
    );
    tip.as_str().unwrap().to_owned()
}

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
    browser.click_until("fieldset .chip", "mode", "document.querySelectorAll('.state-name').length === 2");
    assert_eq!(browser.run("return document.querySelectorAll('.legend-item').length;"), json!(1));
    let cells = "[...document.querySelectorAll('.card td')].map((one) => one.textContent)";
    browser
        .wait(&format!("{cells}.includes('idle <b>now</b>') && {cells}.includes('true') && {cells}.includes('false')"));
    assert!(browser.text().contains("last value of each window"), "{}", browser.text());
    browser.expect_no_barriers("texts");
    for shown in ["avg", "raw"] {
        browser.load(&server.url(&format!("/#explore?m=door&f=mode&fn={shown}&range=6h&still=1")));
        browser.wait(TIMELINE);
        assert_eq!(browser.wait(STATES), json!(["idle <b>now</b>", "run"]));
        browser.wait(&format!("{cells}.includes('run') && {cells}.includes('idle <b>now</b>')"));
        assert_eq!(browser.run("return document.querySelectorAll('main b b').length;"), json!(0));
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

/// A machine that is idle for an hour, runs for two, and then is not heard of; and its door, sent only when it moves.
#[test]
fn a_timeline_shows_states_their_lengths_and_silence() {
    let Some((server, browser)) = page() else { return };
    let now = now();
    let machine = (240..=420).map(|minute: u64| {
        let mode = if minute > 360 { "idle" } else { "run" };
        format!("machine,sensor=press mode=\"{mode}\",load={} {}", minute % 9, now - minute * 60)
    });
    let door = [(400, true), (200, false)]
        .map(|(minute, open)| format!("machine,sensor=press open={open} {}", now - minute * 60));
    write(&server, &machine.chain(door).collect::<Vec<_>>().join("\n"));
    keep_texts(&browser);
    let range = format!("from={}&to={}", (now - 480 * 60) * 1000, now * 1000);
    let address = server.url(&format!("/#explore?m=machine&f=load&f=mode&f=open&fn=raw&{range}"));
    for (look, width, scheme) in [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")] {
        browser.look(width, 900, scheme);
        browser.load_until(&address, TIMELINE);
        assert_eq!(browser.wait(STATES), json!(["false", "idle", "run", "true"]));
        browser.expect_no_barriers(&format!("timeline, {look}"));
        // The timeline has the time axis of the chart above it.
        let edges = browser.run("return [...document.querySelectorAll('.u-over')].map((one) => { const { left, right } = one.getBoundingClientRect(); return [Math.round(left), Math.round(right)]; });");
        assert_eq!(edges[0], edges[1], "{look}");
        let beyond = browser.run("return document.documentElement.scrollWidth - innerWidth;");
        assert!(beyond.as_i64().is_some_and(|beyond| beyond <= 0), "{look}: {beyond} px too wide");
        browser.run("document.querySelector('.states').scrollIntoView({ block: 'center' });");
        browser.picture(&format!("timeline-{look}"));
    }
    browser.look(1280, 900, "light");
    browser.load_until(&address, TIMELINE);
    browser.wait("window.drawn.includes('run') && window.drawn.includes('true')");
    browser.run("document.querySelector('.states').scrollIntoView({ block: 'center' });");
    for (along, down, expected, is_held) in [
        (90.0, 0.2, "idle", false),
        (200.0, 0.2, "run", false),
        (400.0, 0.2, "run", true),
        (200.0, 0.8, "true", false),
        (300.0, 0.8, "false", false),
    ] {
        let tip = tip_at(&browser, along / 480.0, down);
        assert!(tip.contains(expected) && tip.contains(" to "), "{along}: {tip}");
        assert_eq!(tip.contains("no reading since then"), is_held, "{along}: {tip}");
    }
    assert!(tip_at(&browser, 90.0 / 480.0, 0.2).contains("60 min"));
    assert!(browser.text().contains("Paler: no reading for longer than usual."));
    // Before the first reading, nothing is known.
    let place = browser.run("const { left, top } = document.querySelector('.states .u-over').getBoundingClientRect(); return [left + 10, top + 30];");
    browser.devtools("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": place[0], "y": place[1] }));
    browser.wait("document.querySelector('.states .tip').hidden");
    // Keys and drags work as on the chart, and the way back is one button.
    browser.run("document.querySelector('.states').focus(); document.querySelector('.states').dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }));");
    browser.wait(&format!("!location.hash.includes('from={}')", (now - 480 * 60) * 1000));
    browser.expect_calm("timeline");
}

/// Regression: readings with strings are not downsampled, and the first sensor took the whole part, so that the others had
/// none. Windows have all sensors; the CSV still has all readings.
#[test]
fn a_timeline_with_too_many_readings_shows_all_sensors_by_windows() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[query]\nlimit_default = 20\nlimit_max = 50\n").start();
    let now = now();
    let line = |at: u64| {
        let sensor = ["back", "front"][usize::from(at.is_multiple_of(2))];
        format!("door,sensor={sensor} mode=\"run\" {}", now - at * 60)
    };
    write(&server, &(0..60).map(line).collect::<Vec<_>>().join("\n"));
    browser.load_until(&server.url("/#explore?m=door&f=mode&fn=raw&range=6h&still=1"), TIMELINE);
    let names = "[...document.querySelectorAll('.state-name')].map((one) => one.textContent)";
    assert_eq!(browser.wait(names), json!(["back", "front"]));
    assert!(browser.text().contains("the last value of each window of 60 s is shown"), "{}", browser.text());
    browser.run("window.kept = ''; URL.createObjectURL = (blob) => { blob.text().then((text) => { window.kept = text; }); return '#'; };");
    browser.click("button", "Download CSV");
    let file = browser.wait("window.kept").as_str().unwrap().to_owned();
    assert_eq!(file.lines().count(), 61, "{file}");
    browser.expect_calm("cut");
}

/// Regression: a field with values of another type was offered for good, though its values had been corrected and deleted.
#[test]
fn resolved_values_of_another_type_are_not_offered() {
    let Some(browser) = Browser::start() else { return };
    let server = Launch::embedded().config("[ingest]\ndrift = \"keep\"\n").start();
    let now = now();
    write(&server, &format!("climate temp=20 {}\nclimate temp=\"21\" {}", now - 120, now - 60));
    let chips = "[...document.querySelectorAll('fieldset .chip')].map((one) => one.firstChild.textContent)";
    let address = server.url("/#explore?m=climate&f=temp&range=1h&still=1");
    browser.load_until(&address, &format!("{chips}.length > 0"));
    assert_eq!(browser.wait(chips), json!(["temp", "temp@string"]));
    // A chosen field stays, so that it can be taken away.
    browser
        .load_until(&server.url("/#explore?m=climate&f=temp@string&range=1h&still=1"), &format!("{chips}.length > 0"));
    let range = format!("from={}&to={}&precision=s", now - 90, now);
    let deleted = server.url(&format!("/api/v1/readings?measurement=climate&{range}"));
    request("DELETE", &deleted, b"", &[]).unwrap().expect(204);
    browser.load_until(&address, &format!("{chips}.length === 1"));
    assert_eq!(browser.wait(chips), json!(["temp"]));
    browser.expect_calm("resolved");
}
