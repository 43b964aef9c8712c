//! The first hour: an empty database, old example data, and devices that send texts first.

use super::rights::sign_in;
use super::{climate, now, page, write};
use crate::access::{create, start_with_auth, with};
use crate::support::prelude::*;

const CHART: &str = "document.querySelector('.plot canvas')";

/// Regression: in an empty database, the link to Connect led a token without the right to write back to Explore, and a
/// token of a database without readings saw only that it could not read `default`.
#[test]
fn a_read_token_waits_in_an_empty_database() {
    let Some(browser) = Browser::start() else { return };
    let (server, admin) = start_with_auth("");
    let read = create(&server, &["--name", "reader", "--read", "plant"]);
    sign_in(&server, &browser, &read);
    let shown = "document.querySelector('.empty')?.textContent";
    browser.wait(&format!("{shown}?.includes('The database plant is empty.')"));
    let text = browser.run(&format!("return {shown};"));
    assert!(text.as_str().unwrap().contains("Readings appear here as soon as a device sends some."), "{text}");
    assert_eq!(browser.run("return document.querySelectorAll('main a').length;"), json!(0));
    // It asks again without a redraw.
    browser.run("document.querySelector('.empty').wasThere = true; window.hashes = []; window.addEventListener('hashchange', () => window.hashes.push(location.hash));");
    browser.run("window.asked = 0; const real = window.fetch; window.fetch = (...all) => { window.asked += 1; return real(...all); };");
    browser.wait("window.asked >= 2");
    assert!(browser.is_true("document.querySelector('.empty').wasThere && window.hashes.length === 0"));
    with(&admin, "POST", &server.url("/write?db=plant"), "climate,sensor=a temp=20").expect(204);
    browser.wait(CHART);
    browser.expect_calm("an empty database");
}

/// Regression: Explore showed nothing for example data that is older than the chosen range.
#[test]
fn old_readings_are_one_click_away_and_shared_by_address() {
    let Some((server, browser)) = page() else { return };
    write(&server, "climate,sensor=temp-01 temp=22.1 1768485600\nclimate,sensor=temp-02 temp=19 1768485000");
    browser.load_until(&server.url("/"), "document.querySelector('.empty')?.textContent.includes('No readings')");
    browser.expect_no_barriers("no readings");
    browser.click_until("button", "Go to the newest reading", CHART);
    let range =
        browser.run("return [...location.hash.matchAll(/(?:from|to)=(\\d+)/g)].map((found) => Number(found[1]));");
    assert_eq!(range, json!([1_768_464_001_000_u64, 1_768_485_601_000_u64]));
    let address = browser.run("return location.href;").as_str().unwrap().to_owned();
    // The address alone shows the same, and the fields show its range.
    browser.load_until(&address, CHART);
    browser.wait("document.querySelectorAll('.legend-item').length === 2");
    let fields = "[...document.querySelectorAll('input[type=datetime-local]')].map((one) => one.value.slice(0, 10))";
    assert_eq!(browser.run(&format!("return {fields};")), json!(["2026-01-15", "2026-01-15"]));
    browser.fill("input[type=datetime-local]", "2026-01-15T10:00");
    browser.wait("!location.hash.includes('from=1768464001000')");
    browser.expect_calm("old readings");
}

/// Regression: Home Assistant sends texts first, and the views that show some fields showed only these.
#[test]
fn numbers_come_before_texts() {
    let Some((server, browser)) = page() else { return };
    let line = |value: u64| {
        format!(
            "°C,entity_id=hall friendly_name_str=\"Hall\",icon_str=\"mdi:home\",state_class_str=\"m\",value={value}.5 {}",
            now()
        )
    };
    write(&server, &line(20));
    let cell = "document.querySelector('tbody tr td:nth-child(2)')?.textContent";
    browser.load_until(&server.url("/#sensors"), &format!("{cell}?.startsWith('value 20.5')"));
    browser.load_until(&server.url("/#explore"), CHART);
    assert!(browser.wait("location.hash").as_str().unwrap().contains("f=value"));
    browser.load(&server.url("/#live"));
    wait_until("a reading is shown", || {
        write(&server, &line(21));
        browser.is_true("document.querySelector('tbody tr td:nth-child(3)')?.textContent.startsWith('value 21.5')")
    });
    browser.expect_calm("numbers");
}

/// Records drawn texts that are outside of their canvas in `window.cut`, and their number in `window.texts`.
const MEASURE: &str = "window.cut = []; window.texts = 0; const draw = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, x, ...more) {
      const { width } = this.measureText(text);
      const left = this.getTransform().e + { right: x - width, end: x - width, center: x - width / 2 }[this.textAlign] || x;
      window.texts += 1;
      if (left < -1 || left + width > this.canvas.width + 1) window.cut.push(text);
      return draw.call(this, text, x, ...more);
    };";

/// Regression: labels of Health were cut off, and the first date below a timeline without a chart.
#[test]
fn no_label_is_cut_off() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    write(
        &server,
        &(0..90)
            .map(|at| format!("door,sensor=front mode=\"run\" {}", now() - at * 240))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": MEASURE }));
    for (look, width) in [("phone", 390), ("tablet", 820), ("desktop", 1280)] {
        browser.look(width, 900, "light");
        browser.load_until(&server.url("/#health"), "window.texts > 8");
        let cut = "[...document.querySelectorAll('.figure *, .card h2')].filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline').map((one) => one.textContent)";
        assert_eq!(browser.run(&format!("return {cut};")), json!([]), "{look}");
        assert_eq!(browser.run("return window.cut;"), json!([]), "{look}");
        browser.picture(&format!("health-{look}"));
        for query in ["m=climate&f=temp", "m=door&f=mode"] {
            let address = server.url(&format!("/#explore?{query}&range=6h&still=1"));
            browser.load_until(&address, "window.texts > 2 && document.querySelector('.plot canvas')");
            assert_eq!(browser.run("return window.cut;"), json!([]), "{query}, {look}");
        }
    }
    browser.expect_calm("health");
}
