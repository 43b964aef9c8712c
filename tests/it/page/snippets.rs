//! Snippets are run as they are pasted, with names that would like to be code.

use crate::support::prelude::*;

/// What stands in the place of a measurement and of a sensor. Each would leave a file behind if any of it ran.
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

/// The snippet of a kind, written by the page's own module: without a token, with the text `token`, or with `false` for one that is read from elsewhere.
pub(super) fn snippet(node: &std::path::Path, id: &str, to: &Value) -> String {
    let assets = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/ui/assets");
    let folder = Folder::new("snippet");
    // Node takes a `.js` for a module only if a package says so.
    for name in ["snippets.js", "quote.js"] {
        std::fs::copy(assets.join(name), folder.file(name)).unwrap();
    }
    std::fs::write(folder.file("package.json"), "{\"type\":\"module\"}").unwrap();
    let script = "const { SNIPPETS } = await import('./snippets.js');
        const [id, to] = JSON.parse(process.argv[1]);
        process.stdout.write(SNIPPETS.find((one) => one.id === id).write({ ...to, token: to.token === false ? undefined : to.token ?? null }));";
    std::fs::write(folder.file("write.js"), script.replace("process.argv[1]", "process.argv[2]")).unwrap();
    let done = Command::new(node)
        .arg("write.js")
        .arg(json!([id, to]).to_string())
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Whether a letter steers a terminal or turns the reading direction.
pub(super) fn steers(letter: char) -> bool {
    letter != '\n'
        && (letter.is_control()
            || ('\u{202a}'..='\u{202e}').contains(&letter)
            || ('\u{2066}'..='\u{2069}').contains(&letter))
}

/// Runs a snippet and finds its reading under exactly these names.
fn runs(server: &Server, node: &std::path::Path, (id, program, file): (&str, &[&str], &str), name: &str) {
    let tool = std::path::Path::new(program[0]).file_name().unwrap().to_str().unwrap();
    let database = format!("{id}-{tool}");
    let to = json!({ "origin": server.url(""), "database": database, "measurement": name, "sensor": name });
    let text = snippet(node, id, &to);
    assert!(!text.contains(steers), "{id}: what one reads is not what one pastes: {text:?}");
    let folder = Folder::new("pasted");
    std::fs::write(folder.file(file), &text).unwrap();
    let done = Command::new(program[0]).args(&program[1..]).arg(file).current_dir(folder.path()).output().unwrap();
    assert!(!folder.file("ran").exists(), "{id}: {name:?} ran:\n{text}");
    // No name has a control: the service refuses the reading. A shell that does not know `$'…'` sends another one.
    if name.chars().any(char::is_control) || tool == "dash" && text.contains(" $'") {
        return;
    }
    assert!(done.status.success(), "{id} {name:?}: {}\n{text}", String::from_utf8_lossy(&done.stderr));
    let listed = server.fetch(&format!("/api/v1/sensors?db={database}&limit=1000"));
    let found = listed["sensors"]
        .as_array()
        .unwrap()
        .iter()
        .any(|one| one["measurement"] == name && one["tags"] == json!({ "sensor": name }));
    assert!(found, "{id}: {name:?} is not in {listed}\n{text}");
}

#[test]
fn pasted_snippets_write_their_reading_and_run_nothing_else() {
    let (Some(node), Some(_)) = (require(Package::Node), require(Package::Curl)) else { return };
    let server = Launch::embedded().start();
    let node_name = node.to_str().unwrap().to_owned();
    // Debian's `sh`, which took what stood behind a quotation mark for commands.
    let dash = on_path(std::path::Path::new("dash"));
    if dash.is_none() {
        not_run("needs dash");
    }
    for name in NAMES {
        if dash.is_some() {
            runs(&server, &node, ("curl", &["dash"], "run.sh"), name);
        }
        runs(&server, &node, ("curl", &["bash"], "run.sh"), name);
        runs(&server, &node, ("python", &["python3"], "run.py"), name);
        runs(&server, &node, ("javascript", &[&node_name], "run.mjs"), name);
    }
}

/// These are not run here: their literals are read back by the nearest reader there is. `page::readers` has the others.
#[test]
fn a_literal_reads_back_as_its_text() {
    let Some(node) = require(Package::Node) else { return };
    for name in NAMES {
        let to = json!({ "origin": "http://127.0.0.1:1", "database": name, "measurement": name, "sensor": name });
        assert!(!snippet(&node, "esphome", &to).contains('$'), "ESPHome would replace it");
        let telegraf: toml::Table =
            snippet(&node, "telegraf", &to).parse().unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(telegraf["outputs"]["influxdb"][0]["database"].as_str(), Some(*name));
        assert!(!snippet(&node, "telegraf", &to).contains('$'), "Telegraf would replace it");
        let flow: Value = serde_json::from_str(&snippet(&node, "node-red", &to)).unwrap();
        let code = flow[1]["func"].as_str().unwrap();
        let check = format!(
            "const msg = {{ payload: 7 }}; const out = (() => {{ {code} }})(); process.stdout.write(JSON.stringify(out.payload));"
        );
        let done = Command::new(&node).args(["-e", &check]).output().unwrap();
        let body: Value =
            serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{name:?}: {error}: {code}"));
        assert_eq!(body, json!({ "measurement": name, "tags": { "sensor": name }, "fields": { "value": 7 } }));
    }
}
