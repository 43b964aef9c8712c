//! Each view as a user sees it, checked by axe-core, with a picture.

use crate::support::prelude::*;

use super::{climate, now, page, write};

/// Address, expected contents, and the name of the picture.
const VIEWS: &[(&str, &str, &str)] = &[
    ("explore?range=6h&m=climate&f=temp", ".plot canvas", "explore"),
    ("live", "table.live", "live"),
    ("sensors", "table tbody tr", "sensors"),
    ("connect", "pre code", "connect"),
    ("explain?line=climate%2Csensor%3Dx+temp%3D1%2Cbad", ".card .badge", "explain"),
    ("rejections", ".card .badge.bad", "rejections"),
    ("health", ".figure", "health"),
    ("access", ".card table", "access"),
];

#[test]
fn every_view_works_in_light_dark_and_on_a_phone() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    post(&server.url("/write"), "climate,sensor=temp-0 temp=\"warm", &[]).expect(400);
    let looks = [("dark", 1280, 860, "dark"), ("phone", 390, 844, "light"), ("light", 1280, 860, "light")];
    // The first two cover both widths and both schemes.
    for (look, width, height, scheme) in looks.into_iter().take(scaled(2, 3)) {
        browser.look(width, height, scheme);
        for (view, sign, name) in VIEWS {
            browser.load_until(&server.url(&format!("/#{view}")), &format!("document.querySelector({})", json!(sign)));
            browser.expect_no_barriers(&format!("{name}, {look}"));
            browser.picture(&format!("{name}-{look}"));
            let beyond = browser.run("return document.documentElement.scrollWidth - innerWidth;");
            assert!(beyond.as_i64().is_some_and(|beyond| beyond <= 0), "{name}, {look}: {beyond} px too wide");
            browser.expect_calm(&format!("{name}, {look}"));
        }
    }
}

#[test]
fn zoom_and_comparison_are_kept_in_the_url() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    browser.load_until(&server.url("/"), "document.querySelector('.plot canvas')");
    assert!(browser.wait("location.hash").as_str().unwrap().contains("m=climate"));
    browser.click_until(".segment", "1 h", "location.hash.includes('range=1h')");
    browser.click_until(".chip", "humidity", "document.querySelectorAll('.legend-item').length >= 2");
    browser.run("document.querySelector('.plot').focus(); document.querySelector('.plot').dispatchEvent(new KeyboardEvent('keydown', { key: '+', bubbles: true }));");
    browser.wait("/from=\\d+&to=\\d+/.test(location.hash)");
    browser.wait("document.querySelector('.plot canvas')");
    let address = browser.run("return location.href;").as_str().unwrap().to_owned();
    assert!(!address.contains("token"), "{address}");
    // The address alone shows the same.
    browser.load(&address);
    browser.wait("document.querySelectorAll('.legend-item').length >= 2");
    browser.click_until(".check", "Compare", "location.hash.includes('week=1')");
    browser.expect_calm("explore");
}

#[test]
fn a_new_reading_appears_in_an_open_view() {
    let Some((server, browser)) = page() else { return };
    browser.load(&server.url("/#connect?m=door&s=front"));
    browser.wait("document.querySelector('.waiting')?.textContent.includes('Waiting')");
    // The stream is open by then: its first bytes are a comment.
    let heard = |value: u64| {
        write(&server, &format!("door,sensor=front opened={value}i {}", now()));
        let acked = Instant::now();
        browser.wait(&format!("document.querySelector('.arrived')?.textContent.includes('{value}')"));
        acked.elapsed()
    };
    wait_until("a reading is shown", || {
        write(&server, &format!("door,sensor=front opened=1i {}", now()));
        browser.is_true("document.querySelector('.arrived')?.textContent")
    });
    println!("a reading is on the page {:?} after its ack", heard(471));
    browser.click_until(".arrived button", "Open in Explore", "document.querySelector('.plot canvas')");
    browser.expect_calm("connect");
}

/// Regression: a new service's page opened in Explore and showed its first readings only after a reload.
#[test]
fn the_first_reading_is_drawn_without_a_reload() {
    let Some((server, browser)) = page() else { return };
    browser.load_until(&server.url("/"), "document.querySelector('.empty')?.textContent.includes('is empty')");
    write(&server, &format!("climate,room=lab temp=21.5 {}", now()));
    browser.wait("document.querySelector('.plot canvas')");
    browser.expect_calm("explore");
}

/// Regression: Live could only filter by measurement, and without TLS no other tab was noticed.
#[test]
fn live_shows_the_chosen_sensors_and_yields_to_another_tab() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    browser.load(&server.url("/#live"));
    browser.click("button", "Add a filter");
    browser.click("dialog .chip", "sensor");
    browser.click_until("dialog .chip", "temp-1", "location.hash.includes('where=')");
    browser.wait("[...document.querySelectorAll('code')].some((one) => one.textContent.includes('tag.sensor=temp-1'))");
    wait_until("a reading is shown", || {
        write(&server, &format!("climate,sensor=temp-0 temp=1 {0}\nclimate,sensor=temp-1,site=x temp=2 {0}", now()));
        browser.is_true("document.querySelector('table.live tbody').textContent.includes('temp-1')")
    });
    assert_eq!(
        browser.run("return document.querySelector('table.live tbody').textContent.includes('temp-0');"),
        json!(false)
    );
    browser.expect_no_barriers("views");
    browser.run("const other = new BroadcastChannel('hourglass-tail'); other.postMessage('listening'); other.close();");
    browser.wait("document.querySelector('.state').textContent.includes('another tab')");
    browser.click_until("button", "Resume", "!document.querySelector('.state').textContent.includes('another tab')");
    browser.expect_calm("live");
}

/// Regression: without keys and mouse, time could not be moved.
#[test]
fn buttons_move_a_chart_and_metadata_groups_its_lines() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    for (sensor, floor) in [("temp-0", "first"), ("temp-1", "second")] {
        let path = format!("/api/v1/sensors/climate,sensor={sensor},site=lab/meta");
        let body = json!({ "floor": floor }).to_string();
        request("PUT", &server.url(&path), body.as_bytes(), &[]).unwrap().expect(200);
    }
    browser.load(&server.url("/#explore?m=climate&f=temp&range=6h&still=1"));
    browser.wait("document.querySelector('.plot canvas')");
    browser.run("document.querySelector('[aria-label=\"Zoom in\"]').click();");
    let range = "[.../from=(\\d+)&to=(\\d+)/.exec(location.hash) ?? []].slice(1).map(Number)";
    let drawn_range = || {
        let found = browser.wait(&format!("{range}.length === 2 && {range}"));
        (found[0].as_i64().unwrap(), found[1].as_i64().unwrap())
    };
    let zoomed = drawn_range();
    assert_eq!((zoomed.1 - zoomed.0) / 60_000, 180);
    browser.run("document.querySelector('[aria-label=Earlier]').click();");
    browser.wait(&format!("{range}[0] < {}", zoomed.0));
    assert_eq!((drawn_range().1 - drawn_range().0) / 60_000, 180);
    browser.load(&server.url("/#explore?m=climate&f=temp&range=6h&still=1"));
    browser.wait("document.querySelector('.plot canvas')");
    browser.run("const all = [...document.querySelectorAll('select')].find((one) => one.textContent.includes('metadata')); all.value = [...all.options].at(-1).value; all.dispatchEvent(new Event('change'));");
    browser.click_until("dialog .chip", "floor", "location.hash.includes('by=meta.floor')");
    browser.wait("[...document.querySelectorAll('.legend-name')].some((one) => one.textContent.includes('second'))");
    browser.expect_calm("moves");
}

/// Regression: setting the retention on the page reset all other settings.
#[test]
fn a_new_retention_leaves_the_other_settings_as_they_are() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    let path = server.url("/api/v1/databases/default");
    server.set("default/week", &json!({ "readings": "7d" }).to_string()).expect(200);
    let set =
        json!({ "readings": "60d", "summaries": "inf", "default": "week", "seal_form": "columns", "drift": "keep" });
    server.set("default", &set.to_string()).expect(200);
    let before = get(&path).expect(200).json();
    browser.load(&server.url("/#access"));
    browser.click("[aria-label='Change the retention of default']", "Change");
    browser.fill("dialog input", "90d");
    browser.click("dialog button", "Preview");
    browser.wait("document.querySelector('dialog').textContent.includes('would be deleted')");
    browser.expect_no_barriers("settings");
    browser.click_until("dialog button", "Save", "!document.querySelector('dialog')");
    let found = get(&path).expect(200).json();
    assert_eq!((&before["readings"], &found["readings"]), (&json!("1440h"), &json!("2160h")), "{found}");
    for key in ["summaries", "default", "seal_form", "drift"] {
        assert!(found[key] == before[key] && found[key] != json!(null), "{key}: {before} became {found}");
    }
    // Configured defaults are not stored as settings of the database.
    let unset = json!({ "readings": null, "summaries": null, "default": null, "seal_form": null, "drift": "keep" });
    server.set("default", &unset.to_string()).expect(200);
    browser.load(&server.url("/#access"));
    browser.click("[aria-label='Change the retention of default']", "Change");
    browser.click_until("dialog button", "Save", "!document.querySelector('dialog')");
    let found = get(&path).expect(200).json();
    assert_eq!((&found["readings"], &found["drift"]), (&json!(null), &json!("keep")), "{found}");
    browser.expect_calm("retention");
}

/// Regression: if the service could not count the losses, the page said that there were none.
#[test]
fn an_unknown_count_is_not_shown_as_zero() {
    let Some(browser) = Browser::start() else { return };
    let config = "[query]\nseries_max = 1\n[flush]\ninterval = \"200ms\"\n[sensors]\nwrite_interval = \"200ms\"\n";
    let server = Launch::embedded().config(config).start();
    let old = now() - 9 * 86_400;
    write(&server, &format!("climate,sensor=a temp=1 {old}\nclimate,sensor=b temp=2 {old}"));
    let counted = || {
        let body = br#"{"readings":"2d","summaries":"4d"}"#;
        let preview = request("PATCH", &server.url("/api/v1/databases/default?dry_run=true"), body, &[]).ok()?.json();
        (preview["sensors"] == 2).then_some(preview)
    };
    let preview = eventually("the sensors' documents are written", counted);
    assert_eq!(preview["readings"], json!(null), "{preview}");
    browser.load(&server.url("/#access"));
    browser.click("button", "Change");
    browser.fill("dialog .field:nth-of-type(1) input", "2d");
    browser.fill("dialog .field:nth-of-type(2) input", "4d");
    browser.click("dialog button", "Preview");
    browser.wait("document.querySelectorAll('dialog [aria-live] p').length === 2");
    let text = browser.run("return document.querySelector('dialog [aria-live]').textContent;");
    let text = text.as_str().unwrap();
    for said in ["An unknown number of readings before ", "The summaries of an unknown number of readings before "] {
        assert!(text.contains(said), "{text}");
    }
    assert!(text.matches("(2 sensors, from ").count() == 2 && !text.contains("Nothing"), "{text}");
    browser.expect_calm("not counted");
}

/// Regression: two sensors with equal `sensor` tags had one name, and last week's line one colour with the first.
#[test]
fn sensors_with_the_same_name_have_distinct_lines() {
    let Some((server, browser)) = page() else { return };
    let lines = ["a", "b"].map(|line| format!("hall,line={line},sensor=hall temp=1 {}", now()));
    write(&server, &lines.join("\n"));
    browser.load(&server.url("/#explore?m=hall&f=temp&range=1h&still=1"));
    let names = "[...document.querySelectorAll('.legend-name')].map((one) => one.textContent)";
    let are_apart = "(names) => names.join() === 'a,b'";
    browser.wait(&format!("({are_apart})({names})"));
    browser.expect_calm("lines of one name");
}

/// Regression: on a phone, the menu did not show the view opened by its address.
#[test]
fn the_menu_marks_the_current_view() {
    let Some((server, browser)) = page() else { return };
    browser.look(390, 844, "light");
    for view in ["access", "explore", "health"] {
        browser.load_until(&server.url(&format!("/#{view}")), "document.querySelector('h1')");
        let place = browser.run("const { left, right } = document.querySelector('.nav [aria-current]').getBoundingClientRect(); return [left, innerWidth - right];");
        assert!(place.as_array().unwrap().iter().all(|room| room.as_f64().unwrap() >= 0.0), "{view}: {place}");
        assert_eq!(browser.run("return scrollY;"), json!(0), "{view}");
    }
    browser.expect_calm("menu");
}

/// Regression: the unit of times read "as declared by default", and the button had no accessible name.
#[test]
fn a_test_line_is_sent_in_the_named_unit() {
    let Some((server, browser)) = page() else { return };
    browser.load_until(&server.url("/#explain"), "document.querySelector('select')");
    let text = browser.text();
    assert!(text.contains("ns for lines, by magnitude for JSON") && !text.contains("as declared by default"), "{text}");
    browser.click("button.primary", "Try");
    browser.wait("document.querySelector('.badge')?.textContent === '204' || document.querySelector('.badge.good')");
    browser.expect_calm("a unit");
}

#[test]
fn a_message_is_tried_with_a_mapping() {
    let Some((server, browser)) = page() else { return };
    let plug = "name = \"plug\"\nmeasurement = \"plug\"\nfields = [{ path = \"/watts\" }]\n";
    request("PUT", &server.url("/api/v1/mappings/plug"), plug.as_bytes(), &[]).unwrap().expect(200);
    browser.load_until(&server.url("/#explain"), "document.querySelectorAll('#mappings option').length === 13");
    browser.fill("textarea", "21.5");
    browser.fill("input[list=mappings]", "plain");
    browser.fill("input.topic", "home/lab/temp");
    browser.click("button.primary", "Try");
    browser.wait("document.querySelector('main').textContent.includes('home,room=lab')");
    browser.expect_no_barriers("a mapping");
    // Rejected messages are tried through their mapping.
    post(&server.url("/api/v1/ingest/plug?topic=a/b"), r#"{"volts":1}"#, &[]).expect(400);
    browser.load_until(&server.url("/#rejections"), "document.querySelector('.rejection-head')");
    browser.wait("document.querySelector('main').textContent.includes('mapping plug · topic a/b')");
    browser.click("button", "Try the line");
    browser.wait("document.querySelector('input[list=mappings]')?.value === 'plug'");
    browser.wait("document.querySelector('main').textContent.includes('no field: the message has none of the paths')");
    browser.expect_calm("a mapping");
}
