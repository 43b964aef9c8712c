//! A real Chromium by WebDriver that records policy violations, script errors and calls of hostile names.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::eventually;
use super::http::{get, request};
use super::packages::{Package, require};
use super::process::{Folder, Process};

/// No network except the server, no earlier profile, and no sandbox, which root cannot have.
const FLAGS: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

const WATCH: &str = "window.alarms = [];
    window.alarm = (...what) => window.alarms.push('alarm ' + what);
    window.alert = window.alarm;
    document.addEventListener('securitypolicyviolation', (event) => window.alarms.push(`policy ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
    window.addEventListener('error', (event) => window.alarms.push('error ' + event.message));
    window.addEventListener('unhandledrejection', (event) => window.alarms.push('rejection ' + (event.reason?.message ?? event.reason)));";

/// A browser with one window. Dropping it ends it.
pub struct Browser {
    session: String,
    /// Number of pages loaded from scratch.
    loads: AtomicUsize,
    _driver: Process,
    _folder: Folder,
}

impl Browser {
    /// Returns `None`, after a line on stderr, without Chromium.
    #[track_caller]
    pub fn start() -> Option<Browser> {
        let chromium = require(Package::Chromium)?;
        let driver = require(Package::Chromedriver)?;
        let folder = Folder::new("browser");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new(driver);
        command.arg(format!("--port={port}")).env("TMPDIR", folder.path()).env("HOME", folder.path());
        let output = |name: &str| File::create(folder.file(name)).unwrap();
        let process =
            Process::spawn(&command, output("driver.out"), output("driver.err")).expect("chromedriver starts");
        let base = format!("http://127.0.0.1:{port}");
        let ready = || {
            request("GET", &format!("{base}/status"), b"", &[])
                .ok()
                .filter(|answer| answer.json()["value"]["ready"] == true)
        };
        eventually("chromedriver is ready", ready);
        let mut flags: Vec<String> = FLAGS.iter().map(|flag| (*flag).to_owned()).collect();
        flags.push(format!("--user-data-dir={}", folder.file("profile").display()));
        let options = json!({ "binary": chromium, "args": flags });
        let wanted =
            json!({ "capabilities": { "alwaysMatch": { "browserName": "chrome", "goog:chromeOptions": options } } });
        let answer =
            request("POST", &format!("{base}/session"), wanted.to_string().as_bytes(), JSON).unwrap().expect(200);
        let id = answer.json()["value"]["sessionId"].as_str().expect("a session").to_owned();
        let browser = Browser {
            session: format!("{base}/session/{id}"),
            loads: AtomicUsize::new(0),
            _driver: process,
            _folder: folder,
        };
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH }));
        Some(browser)
    }

    /// Opens an address; on the same page, only its view changes.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.ask("url", &json!({ "url": url }));
    }

    /// Loads an address from scratch. A number in its query makes it a new one, because a browser does not load a page
    /// again for another fragment; a blank page between the two would cost a process.
    #[track_caller]
    pub fn load(&self, url: &str) {
        let load = self.loads.fetch_add(1, Ordering::Relaxed);
        let (page, fragment) = url.split_once('#').unwrap_or((url, ""));
        let separator = if page.contains('?') { '&' } else { '?' };
        self.open(&format!("{page}{separator}load={load}#{fragment}"));
    }

    /// Loads an address from scratch and waits for an expression.
    #[track_caller]
    pub fn load_until(&self, url: &str, expression: &str) {
        self.load(url);
        self.wait(expression);
    }

    /// Runs a function body in the page and returns its result.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] }))
    }

    #[track_caller]
    pub fn is_true(&self, expression: &str) -> bool {
        self.run(&format!("return Boolean({expression});")) == true
    }

    /// Waits until an expression is truthy and returns its value.
    #[track_caller]
    pub fn wait(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        let holds = |found: &Value| {
            !matches!(found, Value::Null | Value::Bool(false)) && *found != json!("") && *found != json!(0)
        };
        eventually(expression, || Some(self.run(&script)).filter(holds))
    }

    /// Waits for an element with this selector and text, and clicks it.
    #[track_caller]
    pub fn click(&self, selector: &str, text: &str) {
        self.wait(&format!(
            "[...document.querySelectorAll({})].some((one) => one.textContent.includes({}))",
            json!(selector),
            json!(text)
        ));
        self.run(&format!(
            "[...document.querySelectorAll({})].find((one) => one.textContent.includes({})).click();",
            json!(selector),
            json!(text)
        ));
    }

    #[track_caller]
    pub fn click_until(&self, selector: &str, text: &str, expression: &str) {
        self.click(selector, text);
        self.wait(expression);
    }

    /// Fills a form control like a user.
    #[track_caller]
    pub fn fill(&self, selector: &str, text: &str) {
        self.wait(&format!("document.querySelector({})", json!(selector)));
        let name = json!(selector);
        self.run(&format!("const one = document.querySelector({name}); one.value = {}; for (const kind of ['input', 'change']) one.dispatchEvent(new Event(kind, {{ bubbles: true }}));", json!(text)));
    }

    /// Returns the visible text of the page.
    #[track_caller]
    pub fn text(&self) -> String {
        self.run("return document.body.innerText;").as_str().unwrap_or_default().to_owned()
    }

    /// Panics if a script failed, the policy refused anything, or a name was run.
    #[track_caller]
    pub fn expect_calm(&self, what: &str) {
        assert_eq!(self.run("return window.alarms;"), json!([]), "{what}");
    }

    /// Returns the accessibility violations that axe-core finds.
    #[track_caller]
    pub fn barriers(&self) -> Vec<String> {
        let Some(axe) = require(Package::AxeCore) else { return Vec::new() };
        let axe = std::fs::read_to_string(axe).unwrap();
        // axe-core takes a menu link that is scrolled out of view for a skip link.
        let found = "axe.run(document).then((found) => found.violations.flatMap((one) => one.nodes
            .filter((node) => one.id !== 'skip-link' || !document.querySelector(node.target[0])?.closest('nav'))
            .map((node) => `${one.id}: ${node.target} ${node.failureSummary}`)))";
        let evaluated = self.devtools(
            "Runtime.evaluate",
            json!({ "expression": format!("{axe};{found}"), "awaitPromise": true, "returnByValue": true }),
        );
        let found = evaluated["result"]["value"].as_array().unwrap_or_else(|| panic!("axe: {evaluated}"));
        found.iter().map(|one| one.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Panics if axe-core finds a violation.
    #[track_caller]
    pub fn expect_no_barriers(&self, what: &str) {
        let barriers = self.barriers();
        assert!(barriers.is_empty(), "{what}: {}", barriers.join("\n"));
    }

    /// Saves a picture of the page under `target/screenshots`.
    #[track_caller]
    pub fn picture(&self, name: &str) {
        use base64::Engine;
        let answer = get(&format!("{}/screenshot", self.session)).expect(200).json();
        let png =
            base64::engine::general_purpose::STANDARD.decode(answer["value"].as_str().expect("a picture")).unwrap();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .parent()
            .map_or_else(PathBuf::new, |target| target.join("screenshots"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }

    /// Sets the window size and the preferred colour scheme.
    #[track_caller]
    pub fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
    }

    #[track_caller]
    pub fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.ask("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    #[track_caller]
    fn ask(&self, what: &str, body: &Value) -> Value {
        let answer = request("POST", &format!("{}/{what}", self.session), body.to_string().as_bytes(), JSON);
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        answer.json()["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium, which the driver alone would leave running.
        let _ = request("DELETE", &self.session, b"", &[]);
    }
}

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
