//! The page during an outage of the store: Health is shown, and devices go on.

use crate::support::prelude::*;

use super::rights::sign_in;
use crate::access::with;

/// Regression: without a list of databases the page showed only the failure and forgot the entered token.
#[test]
fn the_page_opens_during_an_outage() {
    let Some(browser) = Browser::start() else { return };
    let mut mongod = Mongod::start();
    let launch = Launch::with_store(mongod.uri(&fresh_database_name()))
        .config("[query]\nwait = \"100ms\"\n")
        .env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let mut server = launch.clone().start();
    let admin = server.first_token().expect("a token in the banner");
    server.kill();
    mongod.kill();
    server.restart_as(launch);
    with(&admin, "GET", &server.url("/query?q=SHOW%20DATABASES"), "").expect(503);
    sign_in(&server, &browser, &admin);
    assert_eq!(browser.run("return sessionStorage.getItem('hourglass-token');"), json!(admin));
    for (view, sign) in
        [("health", ".figure"), ("live", ".state"), ("connect", "pre code"), ("explain", "textarea"), ("access", "h1")]
    {
        browser.load_until(&server.url(&format!("/#{view}")), &format!("document.querySelector({})", json!(sign)));
        browser.wait("document.body.textContent.includes('The list of databases is unavailable')");
        browser.expect_no_barriers(view);
        browser.expect_calm(view);
    }
    // In a token, `*` would match other databases, too.
    browser.load(&server.url("/#connect?db=a*"));
    browser.wait("document.querySelector('main').textContent.includes('contains a wildcard')");
    let offers =
        "return [...document.querySelectorAll('button')].some((one) => one.textContent.startsWith('Create a'));";
    assert_eq!(browser.run(offers), json!(false));
    mongod.restart();
    eventually("the databases are known", || {
        let asked = "const again = [...document.querySelectorAll('button')].find((one) => one.textContent === 'Retry'); again?.click(); return Boolean(again);";
        (browser.run(asked) == json!(false)).then_some(())
    });
    browser.expect_calm("back");
}
