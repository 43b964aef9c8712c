//! The page by keyboard: the focus stays after each key, and screen readers are not told of fast changes.

use super::{climate, now, page, write};
use crate::access::{start_with_auth, with};
use crate::support::prelude::*;

/// Presses a key in the focused element.
fn press(browser: &Browser, key: &str, code: u32) {
    for kind in ["keyDown", "keyUp"] {
        browser.devtools(
            "Input.dispatchKeyEvent",
            json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code }),
        );
    }
}

/// Runs `act` and waits until the selector finds a new element.
fn assert_focus_survives(browser: &Browser, selector: &str, act: impl Fn()) {
    let found = format!("document.querySelector({})", json!(selector));
    browser.run(&format!("{found}.wasThere = true;"));
    act();
    browser.wait(&format!("{found} && !{found}.wasThere"));
}

fn run(browser: &Browser, expression: &str) -> Value {
    browser.run(&format!("return {expression};"))
}

/// Regression: each key redrew the chart and lost the focus, and series that were switched off came back.
#[test]
fn the_focus_stays_when_the_chart_is_redrawn() {
    let Some((server, browser)) = page() else { return };
    climate(&server);
    browser.load(&server.url("/#explore?m=climate&f=temp&range=1h&still=1"));
    browser.wait("document.querySelector('.plot canvas')");
    browser.run("document.querySelector('.plot').focus();");
    let from = || run(&browser, "Number(/from=(\\d+)/.exec(location.hash)?.[1] ?? 0)").as_i64().unwrap();
    let mut begins = vec![i64::MAX];
    // Three hours back and beyond the readings, from where a key leads back.
    for key in [vec![("ArrowLeft", 37); 16], vec![("ArrowRight", 39); 16]].concat() {
        assert_focus_survives(&browser, ".plot", || press(&browser, key.0, key.1));
        assert_eq!(run(&browser, "document.activeElement.matches('.plot')"), json!(true), "{key:?} at {begins:?}");
        begins.push(from());
    }
    assert!(begins[..17].windows(2).all(|two| two[1] < two[0]), "{begins:?}");
    assert!(begins[17..].windows(2).all(|two| two[1] > two[0]), "{begins:?}");
    browser.wait("document.querySelector('.plot canvas')");
    for (selector, text) in
        [(".segment", "6 h"), (".chip", "humidity"), (".check input", "Compare"), ("select", "Show")]
    {
        let named = format!("(one) => ((one.labels?.[0] ?? one).textContent).startsWith({})", json!(text));
        assert_focus_survives(&browser, ".controls .row", || {
            browser.run(&format!("const one = [...document.querySelectorAll({})].find({named}); one.focus(); if (one.matches('select')) {{ one.value = 'max'; one.dispatchEvent(new Event('change')); }} else one.click();", json!(selector)));
        });
        assert_eq!(run(&browser, &format!("({named})(document.activeElement)")), json!(true), "{text}");
        browser.expect_no_barriers(text);
    }
    browser.load(&server.url("/#explore?m=climate&f=temp&range=6h&still=1"));
    browser.wait("document.querySelectorAll('.legend-item').length === 2");
    browser.run("const one = document.querySelectorAll('.legend-item')[1]; one.focus(); one.click();");
    let pressed =
        "[...document.querySelectorAll('.legend-item')].map((one) => one.getAttribute('aria-pressed')).join()";
    assert_eq!(run(&browser, pressed), json!("true,false"));
    assert_focus_survives(&browser, ".legend", || {
        browser.run("document.querySelector('[aria-label=\"Zoom out\"]').click();");
    });
    assert_eq!(run(&browser, pressed), json!("true,false"), "it stays switched off");
    assert_eq!(run(&browser, "document.activeElement === document.querySelectorAll('.legend-item')[1]"), json!(true));
    browser.expect_calm("keys");
}

/// Counts changes that a screen reader would announce.
fn listen(browser: &Browser) {
    browser.run(
        "window.spoken = [];
         const isSpoken = (node) => Boolean((node.closest ? node : node.parentElement)?.closest('[role=status], [role=alert], [aria-live]'));
         new MutationObserver((all) => window.spoken.push(...all.filter((one) => [one.target, ...one.addedNodes].some(isSpoken)).map((one) => one.target.textContent)))
           .observe(document.body, { subtree: true, childList: true, characterData: true });",
    );
}

/// Writes readings until one is on the page, then more, and waits until those are shown.
fn assert_announced_once(server: &Server, browser: &Browser, place: &str) {
    wait_until("one is on the page", || {
        write(server, &format!("door,sensor=front opened=471i {}", now()));
        browser.is_true(&format!("document.querySelector('{place}')?.textContent.includes('471')"))
    });
    browser.wait(&format!("!document.querySelector('{place} .waiting')"));
    listen(browser);
    for value in 801..806 {
        write(server, &format!("door,sensor=front opened={value}i {}", now()));
        browser.wait(&format!("document.querySelector('{place}')?.textContent.includes('{value}')"));
    }
}

/// Regression: Live announced its rate four times a second, Connect each reading, and Health every five seconds.
#[test]
fn fast_changes_are_not_announced_to_screen_readers() {
    let Some(browser) = Browser::start() else { return };
    let (server, admin) = start_with_auth("");
    super::rights::sign_in(&server, &browser, &admin);
    let device = json!({ "name": "soon-gone", "read": ["nothing"], "expires_in": "1d" });
    with(&admin, "POST", &server.url("/api/v1/tokens"), &device.to_string()).expect(201);
    browser.load(&server.url("/#health"));
    browser.wait("document.querySelector('[role=alert]')?.textContent.includes('A token expires in')");
    listen(&browser);
    assert_focus_survives(&browser, ".figures", || {});
    assert_eq!(run(&browser, "window.spoken"), json!([]), "Health");
    drop(server);

    let server = Launch::embedded().start();
    browser.load(&server.url("/#live"));
    assert_announced_once(&server, &browser, "table.live tbody");
    browser.wait("document.querySelector('.state').textContent.includes('readings/s')");
    assert_eq!(run(&browser, "window.spoken"), json!([]), "Live");
    browser.load(&server.url("/#connect?m=door&s=front"));
    assert_announced_once(&server, &browser, ".arrived");
    assert_eq!(run(&browser, "window.spoken"), json!([]), "Connect");
    browser.run("document.querySelector('.arrived button').focus();");
    write(&server, &format!("door,sensor=front opened=901i {}", now()));
    browser.wait("document.querySelector('.arrived').textContent.includes('901')");
    assert_eq!(run(&browser, "document.activeElement.textContent"), json!("Open in Explore"));
    browser.expect_no_barriers("keys");
    browser.expect_calm("speech");
}
