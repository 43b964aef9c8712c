//! Tokens on the page: entered when needed, kept in the tab only; controls without rights are hidden.

use crate::access::{create, start_with_auth, with};
use crate::support::prelude::*;

pub fn sign_in(server: &Server, browser: &Browser, token: &str) {
    browser.load(&server.url("/"));
    browser.run("sessionStorage.clear();");
    browser.load(&server.url("/"));
    browser.fill("dialog input[type=password]", token);
    browser.click("dialog button", "Sign in");
    browser.wait("document.querySelector('nav a') && !document.querySelector('dialog')");
}

fn menu(browser: &Browser) -> Value {
    browser.run("return [...document.querySelectorAll('nav a')].map((link) => link.textContent);")
}

#[test]
fn the_page_shows_only_views_that_the_token_can_use() {
    let Some(browser) = Browser::start() else { return };
    let (server, admin) = start_with_auth("");
    with(&admin, "POST", &server.url("/write?db=default"), "climate,sensor=temp-01 temp=20").expect(204);
    let read = create(&server, &["--name", "reader", "--read", "default"]);
    sign_in(&server, &browser, &read);
    assert_eq!(menu(&browser), json!(["Explore", "Live", "Sensors"]));
    browser.load(&server.url("/#sensors"));
    browser.click_until("button.link", "temp-01", "document.querySelector('dialog textarea')?.readOnly");
    assert_eq!(
        browser.run("return [...document.querySelectorAll('dialog button')].map((one) => one.textContent);"),
        json!(["Close", "Explore", "Live"])
    );
    // Forbidden views are hidden even by address, and so are their controls.
    browser.load(&server.url("/#rejections"));
    browser.wait("document.querySelector('nav a[aria-current=page]')?.textContent === 'Explore'");
    let fixes = "return [...document.querySelectorAll('button')].filter((one) => /Export|Remove/.test(one.textContent)).length;";
    assert_eq!(browser.run(fixes), json!(0));
    browser.load_until(&server.url("/#access"), "document.querySelector('nav a[aria-current=page]')");
    assert_eq!(browser.run("return document.querySelector('nav a[aria-current=page]').textContent;"), json!("Explore"));
    let kept = browser.run("return [location.href, document.cookie, Object.keys(localStorage).length, document.documentElement.outerHTML].join();");
    assert!(!kept.as_str().unwrap().contains(&read[3..]), "the token is somewhere");
    sign_in(&server, &browser, &admin);
    assert_eq!(menu(&browser).as_array().unwrap().len(), 8);
    browser.load_until(&server.url("/#access"), "document.querySelector('table')");
    // Access lists and revokes tokens and says how to create them.
    let controls = browser.run("return [...document.querySelectorAll('main button, main input, main select')].map((one) => one.textContent).join();");
    assert!(!controls.as_str().unwrap().contains("oken"), "{controls}");
    browser.wait("document.querySelector('main').textContent.includes('hourglass token add')");
    browser.expect_no_barriers("tokens");
    // A token for the snippet: write access to one database, shown only in the snippet.
    browser.load(&server.url("/#connect"));
    browser.click("button", "Create a write token");
    browser.wait(
        "document.querySelector('dialog')?.textContent.includes('write to the database default and do nothing else')",
    );
    browser.expect_no_barriers("a token for the snippet");
    browser.fill("dialog input", "front door");
    browser.click("dialog button", "Create");
    browser.wait("document.querySelector('dialog .failure')?.textContent.includes('letters, digits')");
    browser.fill("dialog input", "front-door");
    browser.run("const ends = document.querySelector('dialog select'); ends.value = '90d'; ends.dispatchEvent(new Event('change'));");
    browser.click_until("dialog button", "Create", "!document.querySelector('dialog')");
    browser.wait("/Token hg_[0-9a-f]{12}_[0-9a-f]{64}/.test(document.querySelector('pre').textContent)");
    // Not in snippets that need another right.
    for (kind, variable) in [("Grafana", "Token $HOURGLASS_TOKEN"), ("Prometheus", "hourglass-token")] {
        browser.click(".segment", kind);
        browser.wait(&format!("document.querySelector('pre').textContent.includes({})", json!(variable)));
        assert_eq!(
            browser.run("return document.querySelector('main').textContent.includes('hg_');"),
            json!(false),
            "{kind}"
        );
        let offered =
            "return [...document.querySelectorAll('button')].some((one) => one.textContent.startsWith('Create a'));";
        assert_eq!(browser.run(offered), json!(false), "{kind}");
    }
    // Regression: the token vanished with a look at another snippet or view.
    browser.run("location.hash = '#health';");
    browser.wait("!document.querySelector('pre')");
    browser.run("location.hash = '#connect';");
    browser.click_until(".segment", "curl", "document.querySelector('pre')?.textContent.includes('Token hg_')");
    let made = browser.run("return document.querySelector('pre').textContent.match(/hg_[0-9a-f]+_[0-9a-f]+/)[0];");
    let made = made.as_str().unwrap();
    let request_status = |path: &str, body: &str| {
        let method = if body.is_empty() { "GET" } else { "POST" };
        with(made, method, &server.url(path), body).status
    };
    assert_eq!(
        (
            request_status("/write?db=default", "m v=1"),
            request_status("/write?db=other", "m v=1"),
            request_status("/api/v1/measurements", "")
        ),
        (204, 403, 403)
    );
    // It is shown once, only in the snippet, and has the chosen expiry.
    assert_eq!(browser.run("return document.querySelector('main').textContent.match(/hg_/g).length;"), json!(1));
    let kept =
        browser.run("return [location.href, document.cookie, JSON.stringify(sessionStorage)].join();").to_string();
    assert!(!kept.contains(&made[3..]), "{kept}");
    let listed = with(&admin, "GET", &server.url("/api/v1/tokens"), "").json();
    let device = listed["tokens"].as_array().unwrap().iter().find(|one| one["name"] == "front-door").unwrap().clone();
    let scopes = json!({ "write": ["default"], "read": [], "admin": [], "metrics": false, "tags": {} });
    assert!(device["scopes"] == scopes && device["expires"].is_string(), "{device}");
    let trail = std::fs::read_to_string(server.data_dir().join("admin.log")).unwrap();
    assert!(trail.contains("\"action\":\"created\",\"name\":\"front-door\""), "{trail}");
    browser.load(&server.url("/#connect?db=a*"));
    browser.wait("document.querySelector('main').textContent.includes('contains a wildcard')");
    browser.expect_calm("tokens");
}

#[test]
fn the_page_does_not_create_the_first_token() {
    let server = crate::support::server::Launch::embedded().start();
    let make = |body: &Value, headers: &[(&str, &str)]| {
        request("POST", &server.url("/api/v1/tokens"), body.to_string().as_bytes(), headers).unwrap()
    };
    let body = json!({ "name": "device", "write": ["default"] });
    make(&body, &[]).expect(409);
    get(&server.url("/api/v1/measurements")).expect(200);
    // A page of another site is refused.
    make(&body, &[("Origin", "https://example.org")]).expect(403);
}

#[test]
fn only_administrators_manage_tokens() {
    let (server, admin) = start_with_auth("[auth]\nmax_lifetime = \"365d\"\n");
    let ask = |method: &str, path: &str, body: &Value| -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        with(&admin, method, &server.url(path), &body)
    };
    for (body, status) in [
        (json!({ "name": "x" }), 400),
        (json!({ "name": "a b", "write": ["*"] }), 400),
        (json!({ "name": "x", "write": [""] }), 400),
        (json!({ "name": "x", "admin": ["*"] }), 400),
        (json!({ "name": "x", "write": ["*"], "expires_in": "soon" }), 400),
        (json!({ "name": "x", "write": ["*"] }), 400),
        (json!({ "name": "first", "write": ["*"], "expires_in": "1d" }), 409),
    ] {
        assert_eq!(ask("POST", "/api/v1/tokens", &body).status, status, "{body}");
    }
    let made = ask(
        "POST",
        "/api/v1/tokens",
        &json!({ "name": "gw", "write": ["a"], "tags": { "site": "lab" }, "expires_in": "1d" }),
    )
    .expect(201)
    .json();
    let text = made["token"].as_str().unwrap().to_owned();
    let write = || with(&text, "POST", &server.url("/write?db=a"), "m,site=lab v=1").status;
    assert_eq!(write(), 204, "it counts at once");
    let listed = ask("GET", "/api/v1/tokens", &Value::Null).expect(200);
    assert!(!listed.text().contains(&text[16..]) && listed.text().contains("\"gw\""), "{}", listed.text());
    ask("POST", "/api/v1/tokens/first/revoke", &Value::Null).expect(409);
    ask("POST", "/api/v1/tokens/nobody/revoke", &Value::Null).expect(409);
    ask("POST", "/api/v1/tokens/gw/revoke", &Value::Null).expect(200);
    assert_eq!(write(), 401, "it ends at once");
    let trail = std::fs::read_to_string(server.data_dir().join("admin.log")).unwrap();
    assert!(
        trail.contains("\"action\":\"created\",\"name\":\"gw\"")
            && trail.contains("\"action\":\"revoked\",\"name\":\"gw\""),
        "{trail}"
    );
    assert!(trail.contains("\"by\":\"first\""), "{trail}");
}
