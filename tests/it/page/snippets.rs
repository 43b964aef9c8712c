//! Snippets are run as pasted, with hostile names.

use crate::support::prelude::*;

/// Measurements and sensors that would create a file if they were run.
pub(super) const NAMES: &[&str] = &[
    "plain",
    "'; touch ran; '",
    "\"; touch ran; \"",
    "$(touch ran) `touch ran` ${IFS}",
    "\\'; import os; os.system('touch ran') #",
    "\"); require('fs').writeFileSync('ran', ''); (\"",
    "\u{202e}'; touch ran; '\\n",
    "${HOME} $__file{/etc/passwd}",
    "new\tline",
    "\u{202e}turned\u{2066}",
    "\u{7}bell \u{1b}[31mred",
    "ünï, = cödé \u{1f980}",
    "%s %n \\x41 \\u0041 ??/",
    "${HOME} $HOME $$ $__file{/etc/hostname} {{ 7 * 7 }}",
    "!lambda: - # {a: [b]} &x *x |- !secret y",
    "\u{e0041}\u{ffff} tags",
];

/// Returns snippets of a kind: without a token, with the text `token`, or `false` for an external one.
pub(super) fn snippets(node: &Path, id: &str, services: &[Value]) -> Vec<String> {
    let assets = root().join("src/http/ui/assets");
    let folder = Folder::new("snippet");
    // Node loads `.js` as a module only if a package says so.
    for name in ["snippets.js", "quote.js"] {
        fs::copy(assets.join(name), folder.file(name)).unwrap();
    }
    fs::write(folder.file("package.json"), "{\"type\":\"module\"}").unwrap();
    let script = "const { SNIPPETS } = await import('./snippets.js');
        const [id, all] = JSON.parse(process.argv[2]);
        const { write } = SNIPPETS.find((one) => one.id === id);
        const texts = all.map((to) => write({ ...to, token: to.token === false ? undefined : to.token ?? null }));
        process.stdout.write(JSON.stringify(texts));";
    fs::write(folder.file("write.js"), script).unwrap();
    let done = run_program(
        Command::new(node).arg("write.js").arg(json!([id, services]).to_string()).current_dir(folder.path()),
    );
    serde_json::from_str(&done.expect_success().stdout).unwrap()
}

/// Returns true for characters that control a terminal or the text direction.
pub(super) fn steers(letter: char) -> bool {
    letter != '\n'
        && (letter.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&letter)
            || ('\u{2066}'..='\u{2069}').contains(&letter))
}

/// Runs a snippet and expects its reading under exactly these names.
fn run_pasted(server: &Server, program: &Path, file: &str, database: &str, name: &str, text: &str) {
    assert!(!text.contains(steers), "{database}: what one reads is not what one pastes: {text:?}");
    let folder = Folder::new("pasted");
    fs::write(folder.file(file), text).unwrap();
    let done = run_program(Command::new(program).arg(file).current_dir(folder.path()));
    assert!(!folder.file("ran").exists(), "{database}: {name:?} ran:\n{text}");
    // Names have no controls: the service refuses them, and a shell without `$'…'` sends other ones.
    if name.chars().any(char::is_control) || program.ends_with("dash") && text.contains(" $'") {
        return;
    }
    assert_eq!(done.status, Some(0), "{database} {name:?}: {}\n{text}", done.stderr);
    let listed = server.fetch(&format!("/api/v1/sensors?db={database}&limit=1000"));
    let is_expected = |one: &Value| one["measurement"] == name && one["tags"] == json!({ "sensor": name });
    let found = listed["sensors"].as_array().unwrap().iter().any(is_expected);
    assert!(found, "{database}: {name:?} is not in {listed}\n{text}");
}

#[test]
fn pasted_snippets_only_write_their_reading() {
    let (Some(node), Some(_)) = (require(Package::Node), require(Package::Curl)) else { return };
    let server = Launch::embedded().start();
    let [dash, bash, python] = ["dash", "bash", "python3"].map(Path::new);
    for (id, program, file) in [
        // Debian's `sh`. Regression: it ran the text after a quotation mark.
        ("curl", dash, "run.sh"),
        ("curl", bash, "run.sh"),
        ("python", python, "run.py"),
        ("javascript", node.as_path(), "run.mjs"),
    ] {
        if program == dash && on_path(dash).is_none() {
            not_run("needs dash");
            continue;
        }
        let database = format!("{id}-{}", program.file_name().unwrap().display());
        let service = |name: &&str| json!({ "origin": server.url(""), "database": database, "measurement": name, "sensor": name });
        let texts = snippets(&node, id, &NAMES.iter().map(service).collect::<Vec<_>>());
        for (name, text) in NAMES.iter().zip(texts) {
            run_pasted(&server, program, file, &database, name, &text);
        }
    }
}

/// Literals of snippets that are not run here, parsed by the nearest parser; `page::readers` has the others.
#[test]
fn quoted_literals_keep_their_text() {
    let Some(node) = require(Package::Node) else { return };
    let service =
        |name: &&str| json!({ "origin": "http://127.0.0.1:1", "database": name, "measurement": name, "sensor": name });
    let services: Vec<Value> = NAMES.iter().map(service).collect();
    assert!(!snippets(&node, "esphome", &services).concat().contains('$'), "ESPHome would replace it");
    for (name, text) in NAMES.iter().zip(snippets(&node, "telegraf", &services)) {
        assert!(!text.contains('$'), "Telegraf would replace it");
        let telegraf: toml::Table = text.parse().unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(telegraf["outputs"]["influxdb"][0]["database"].as_str(), Some(*name));
    }
    for (name, text) in NAMES.iter().zip(snippets(&node, "node-red", &services)) {
        let flow: Value = serde_json::from_str(&text).unwrap();
        let code = flow[1]["func"].as_str().unwrap();
        let check = format!(
            "const msg = {{ payload: 7 }}; const out = (() => {{ {code} }})(); process.stdout.write(JSON.stringify(out.payload));"
        );
        let done = run_program(Command::new(&node).args(["-e", &check])).expect_success();
        let body: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(body, json!({ "measurement": name, "tags": { "sensor": name }, "fields": { "value": 7 } }));
    }
}
