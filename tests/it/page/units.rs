//! Explore shows units of fields, from metadata, and goes back after a zoom.

use super::charts::{CHART, keep_texts, texts};
use super::{climate, page};
use crate::support::prelude::*;

fn describe(server: &Server, sensor: &str, meta: &Value) {
    let path = server.url(&format!("/api/v1/sensors/climate,sensor={sensor},site=lab/meta"));
    request("PUT", &path, meta.to_string().as_bytes(), &[]).unwrap().expect(200);
}

#[test]
fn units_of_metadata_are_on_axes_legend_and_table() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    let units = json!({ "units": { "temp": "°C", "humidity": "%" } });
    describe(&server, "temp-0", &units);
    describe(&server, "temp-1", &units);
    let listed = server.fetch("/api/v1/fields?measurement=climate");
    assert_eq!((&listed["fields"][0]["unit"], &listed["fields"][1]["unit"]), (&json!("%"), &json!("°C")), "{listed}");
    assert_eq!(server.fetch("/api/v1/sensors")["sensors"][0]["units"], units["units"]);
    keep_texts(&browser);
    let values = "[...document.querySelectorAll('.legend-value')].map((one) => one.textContent)";
    let heads = "[...document.querySelectorAll('[aria-label=Values] th')].map((one) => one.textContent)";
    browser.look(1280, 900, "light");
    browser.load_until(&server.url("/#explore?m=climate&f=temp&f=humidity&range=6h&still=1"), CHART);
    let shown = texts(&browser, values);
    assert!(
        shown.len() == 4 && shown.iter().all(|text| text.ends_with("\u{a0}°C") || text.ends_with("\u{a0}%")),
        "{shown:?}"
    );
    let heads = texts(&browser, heads);
    assert!(
        heads.iter().any(|head| head.ends_with("temp\u{a0}°C"))
            && heads.iter().any(|head| head.ends_with("humidity\u{a0}%")),
        "{heads:?}"
    );
    let drawn = texts(&browser, "window.drawn");
    // Each unit has its own axis.
    assert!(["°C", "%"].iter().all(|unit| drawn.iter().any(|text| text.ends_with(unit))), "{drawn:?}");
    browser.expect_no_barriers("units");
    browser.picture("units");
    for (function, ending) in [("rate", "/s"), ("count", "1")] {
        browser.load_until(&server.url(&format!("/#explore?m=climate&f=temp&fn={function}&range=1h&still=1")), CHART);
        let shown = texts(&browser, values);
        assert!(shown.iter().all(|text| text.ends_with(ending)), "{function}: {shown:?}");
    }
    // Sensors with different units have none in common.
    describe(&server, "temp-1", &json!({ "units": { "temp": "°F" } }));
    let unit = |filter: &str| {
        let listed = server.fetch(&format!("/api/v1/fields?measurement=climate{filter}"));
        listed["fields"][1]["unit"].clone()
    };
    assert_eq!(
        [unit(""), unit("&tag.sensor=temp-0"), unit("&tag.sensor=temp-1")],
        [Value::Null, json!("°C"), json!("°F")]
    );
    browser.expect_calm("units");
}

/// Regression: `Back` left the page if a shared address was the first of its tab.
#[test]
fn back_undoes_a_zoom_and_is_not_offered_for_a_shared_address() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    browser.look(1280, 900, "light");
    browser.load_until(&server.url("/#explore?m=climate&f=temp&range=6h&still=1"), CHART);
    let place = browser.run("const { left, top, width, height } = document.querySelector('.u-over').getBoundingClientRect(); return [left + width * 0.6, left + width * 0.8, top + height / 2];");
    for (kind, at) in [("mousePressed", 0), ("mouseMoved", 1), ("mouseReleased", 1)] {
        let mouse =
            json!({ "type": kind, "x": place[at], "y": place[2], "button": "left", "buttons": 1, "clickCount": 1 });
        browser.devtools("Input.dispatchMouseEvent", mouse);
    }
    browser.wait("/from=\\d+&to=\\d+/.test(location.hash)");
    let shared = browser.run("return location.href;").as_str().unwrap().to_owned();
    let is_offered = "[...document.querySelectorAll('button')].some((one) => one.textContent === 'Back')";
    browser.wait(is_offered);
    browser.click_until("button", "Back", "location.hash.includes('range=6h')");
    browser.load_until(&shared, CHART);
    assert!(!browser.is_true(is_offered));
    browser.expect_calm("zoom");
}
