//! `GET /` and `/ui/…` without a browser: content, headers and size by client.

use crate::support::prelude::*;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

#[track_caller]
fn ask(url: &str, headers: &[(&str, &str)]) -> Answer {
    request("GET", url, b"", headers).expect("an answer")
}

#[test]
fn browsers_get_the_page_and_programs_get_json() {
    let server = Launch::embedded().start();
    let url = server.url("/");
    for (accept, begins) in [
        (BROWSER, "<!doctype html>"),
        ("text/html", "<!doctype html>"),
        ("*/*", "hourglass "),
        ("text/plain", "hourglass "),
        ("application/json, text/plain, */*", "hourglass "),
        ("application/json", "{"),
    ] {
        let answer = ask(&url, &[("Accept", accept)]).expect(200);
        assert!(answer.text().starts_with(begins), "{accept}: {}", answer.text());
        assert!(answer.header("vary").is_some_and(|vary| vary.contains("accept")), "{accept}");
        assert_eq!(answer.header_fault(), None, "{accept}");
    }
    assert!(get(&url).expect(200).text().contains("/api/v1/tail"));
    let list = ask(&url, &[("Accept", "application/json")]).json();
    assert!(list["endpoints"].as_array().unwrap().iter().any(|one| one["path"] == "/api/v1/overview"), "{list}");
}

#[test]
fn the_page_can_be_disabled() {
    let server = Launch::embedded().env("HOURGLASS_UI_ENABLED", "false").start();
    assert!(ask(&server.url("/"), &[("Accept", BROWSER)]).expect(200).text().starts_with("hourglass "));
    get(&server.url("/ui/page.css")).expect(404);
}

/// Returns everything that a browser loads, by the names in the page and its scripts.
#[test]
fn every_asset_is_served_with_etag_compression_and_policy() {
    let server = Launch::embedded().start();
    let mut names = vec!["/".to_owned()];
    let mut index = 0;
    let mut bytes = 0;
    while let Some(name) = names.get(index).cloned() {
        index += 1;
        let plain = ask(&server.url(&name), &[("Accept", BROWSER)]).expect(200);
        let text = plain.text().to_owned();
        for (mark, end) in [("\"/ui/", '"'), ("from \"./", '"')] {
            let found = text.split(mark).skip(1).filter_map(|rest| rest.split(end).next());
            let found: Vec<String> = found
                .filter(|name| !name.is_empty() && !name.contains('$'))
                .map(|name| format!("/ui/{name}"))
                .collect();
            names.extend(found.into_iter().filter(|name| !name.contains("|")));
            names = names.into_iter().fold(Vec::new(), |mut known, name| {
                if !known.contains(&name) {
                    known.push(name);
                }
                known
            });
        }
        let policy = plain.header("content-security-policy").expect("a policy").to_owned();
        for part in
            ["default-src 'none'", "script-src 'self'", "require-trusted-types-for 'script'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part), "{name}: {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains("http"), "{name}: {policy}");
        assert_eq!(plain.header("x-content-type-options"), Some("nosniff"), "{name}");
        let tag = plain.header("etag").expect("a tag").to_owned();
        let same = ask(&server.url(&name), &[("Accept", BROWSER), ("If-None-Match", &tag)]).expect(304);
        assert!(same.body.is_empty() && same.header("content-security-policy").is_some(), "{name}");
        let sent = ask(&server.url(&name), &[("Accept", BROWSER), ("Accept-Encoding", "gzip")]).expect(200);
        bytes += sent.body.len();
    }
    assert!(names.len() > 15, "{names:?}");
    assert!(bytes <= 200_000, "{bytes} bytes on the wire");
    println!("{} files, {bytes} bytes on the wire", names.len());
}

/// The committed files of uPlot equal those of its package.
#[test]
fn the_committed_uplot_equals_its_package() {
    let Some(package) = require(Package::Uplot) else { return };
    let ours = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/ui/assets");
    for (ours_name, theirs) in [
        ("uPlot.iife.min.js", "dist/uPlot.iife.min.js"),
        ("uPlot.min.css", "dist/uPlot.min.css"),
        ("uPlot.LICENSE", "LICENSE"),
    ] {
        assert!(
            std::fs::read(ours.join(ours_name)).unwrap() == std::fs::read(package.join(theirs)).unwrap(),
            "{ours_name}"
        );
    }
}
