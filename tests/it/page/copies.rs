//! Copied queries match the chart: the same sensors and windows, in the browser's zone.

use super::now;
use crate::access::{start_with_auth, with};
use crate::support::prelude::*;

/// Parts of names that would create a file if they were run.
const NAMES: &[&str] = &["plain", "'; touch ran; '", "$(touch ran) `touch ran`", "a, b=c \u{202e}d", "\\\"quoted\\'"];
const DAY: u64 = 86_400;

/// Starts a signed-in browser in India, where days begin at 18:30 UTC.
fn signed_in(server: &Server, token: &str) -> Option<Browser> {
    let browser = Browser::start()?;
    browser.devtools("Emulation.setTimezoneOverride", json!({ "timezoneId": "Asia/Kolkata" }));
    browser.load(&server.url("/"));
    browser.run(&format!("sessionStorage.setItem('hourglass-token', {});", json!(token)));
    Some(browser)
}

/// Loads a view and returns the text that a button copies.
fn copy_text(browser: &Browser, url: &str, name: &str) -> String {
    browser.load_until(url, "document.querySelector('.plot canvas')");
    browser.run("window.kept = ''; navigator.clipboard.writeText = async (text) => { window.kept = text; };");
    browser.click("button", name);
    browser.wait("window.kept").as_str().unwrap().to_owned()
}

fn query(server: &Server, token: &str, statement: &str) -> Value {
    let text = encode(statement);
    let url = server.url(&format!("/query?db=default&epoch=ms&q={text}"));
    with(token, "POST", &url, "").expect(200).json()
}

/// Regression: the copied statement, panel and command lacked the sensor and the zone, and the command the token.
#[test]
fn copied_queries_match_the_chart() {
    let (server, admin) = start_with_auth("");
    let midnight = now() / DAY * DAY;
    // The tags of one sensor are a subset of another's.
    let readings: Vec<Value> = NAMES
        .iter()
        .flat_map(|name| {
            (0..8).flat_map(move |at| {
                let time = (midnight - at * DAY / 2) * 1000;
                let reading = |tags: Value, value: u64| json!({ "measurement": format!("m {name}"), "tags": tags, "fields": { "v": value, (*name): 1 }, "time": time });
                [reading(json!({ "sensor": name }), at), reading(json!({ "sensor": name, "site": "lab" }), 100 + at)]
            })
        })
        .collect();
    let readings = json!(readings).to_string();
    with(&admin, "POST", &server.url("/api/v1/readings?precision=ms"), &readings).expect(200);
    let Some(browser) = signed_in(&server, &admin) else { return };
    for name in NAMES {
        let listed = with(&admin, "GET", &server.url("/api/v1/sensors"), "").json();
        let of_name =
            |one: &&Value| one["measurement"] == format!("m {name}") && one["tags"] == json!({ "sensor": name });
        let key =
            listed["sensors"].as_array().unwrap().iter().find(of_name).unwrap_or_else(|| panic!("{listed}"))["sensor"]
                .clone();
        let url = server.url(&format!(
            "/#explore?m={}&sensor={}&f=v&range=365d&still=1",
            encode(&format!("m {name}")),
            encode(key.as_str().unwrap())
        ));
        let statement = copy_text(&browser, &url, "Copy as InfluxQL");
        // Chromium uses an older name of the zone.
        assert!(statement.ends_with("tz('Asia/Kolkata')") || statement.ends_with("tz('Asia/Calcutta')"), "{statement}");
        let found = query(&server, &admin, &statement);
        let series = found["results"][0]["series"].as_array().unwrap_or_else(|| panic!("{statement}: {found}"));
        assert_eq!(series.len(), 1, "{statement}: {found}");
        assert_eq!(series[0]["tags"], json!({ "sensor": name, "site": "" }), "{statement}");
        let rows: Vec<&Value> =
            series[0]["values"].as_array().unwrap().iter().filter(|row| !row[1].is_null()).collect();
        assert!(rows.iter().all(|row| row[1].as_f64().unwrap() < 100.0), "only the chosen sensor: {found}");
        let begins = |row: &&&Value| (row[0].as_u64().unwrap() / 1000 + 19_800).is_multiple_of(DAY);
        assert!(rows.len() >= 4 && rows.iter().all(|row| begins(&row)), "days of India: {found}");
        runs_as_pasted(&copy_text(&browser, &url, "Copy as curl"), &admin, name, rows.len());
        let panel: Value = serde_json::from_str(&copy_text(&browser, &url, "Copy as Grafana panel")).unwrap();
        let text = panel["targets"][0]["query"].as_str().unwrap();
        let panel_text = panel.to_string();
        let asked = text.replace("$timeFilter", "time > now() - 365d").replace("$__interval", "1d");
        assert!(asked != text && !panel_text.contains("time >= "), "{panel_text}");
        assert_eq!(query(&server, &admin, &asked)["results"][0]["series"][0]["tags"]["sensor"], json!(name), "{asked}");
    }
    browser.expect_calm("copies");
}

/// Runs the pasted command in a shell with the token in its environment.
fn runs_as_pasted(command: &str, token: &str, name: &str, windows: usize) {
    assert!(command.contains("$HOURGLASS_TOKEN") && !command.contains("hg_"), "{command}");
    if require(Package::Curl).is_none() {
        return;
    }
    let folder = Folder::new("pasted");
    let done = Command::new("bash")
        .args(["-c", command])
        .env("HOURGLASS_TOKEN", token)
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(!folder.file("ran").exists(), "{name:?} ran: {command}");
    let found: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{command}: {error}"));
    let series = found["series"].as_array().unwrap();
    assert_eq!((series.len(), series[0]["windows"].as_array().unwrap().len()), (1, windows), "{command}: {found}");
}
