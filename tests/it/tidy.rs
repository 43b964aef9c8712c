//! Rules of ARCHITECTURE.md about rooms and dependencies, checked in the sources.

use crate::support::prelude::*;

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns the room of a source file: its first folder under `src`, or its own name.
fn room(file: &Path) -> String {
    let relative = file.strip_prefix(root().join("src")).unwrap();
    relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// Returns the code of a file without comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Rooms of `src`, bottom to top, with their maximum lines of code. A room names only earlier rooms. Lower a bound when
/// code goes; raise it only in a commit that says why.
const ROOMS: &[(&str, usize)] = &[
    ("kinds", 700),
    ("config", 1_822),
    ("telemetry", 1_063),
    ("lanes", 200),
    ("memory", 115),
    ("access", 2_080),
    ("edge", 1_610),
    ("side_file", 200),
    ("catalog", 1_762),
    ("members", 1_516),
    ("buffer", 5_933),
    ("ingest", 5_087),
    ("cluster", 1_902),
    ("query", 9_835),
    ("backup", 2_010),
    ("verify", 1_060),
    ("edits", 480),
    ("upkeep", 2_465),
    ("mqtt", 831),
    ("http", 9_254),
    ("tcp", 493),
    ("app", 1_226),
    ("commands", 5_725),
    ("cli", 616),
    ("dispatch", 100),
];
/// The same for each crate.
const CRATES: &[(&str, usize)] = &[
    ("base", 415),
    ("demo", 760),
    ("influxql", 2_969),
    ("mapping", 1_044),
    ("members", 1_830),
    ("model", 6_066),
    ("store", 11_136),
    ("store-api", 517),
    ("wal", 2_324),
    ("wire", 2_384),
];
/// Maximum number of files in one folder, and of lines in one file.
const FILES_MAX: usize = 25;
const LINES_MAX: usize = 500;

/// Returns the code of a file before its unit tests.
fn tested_code(file: &Path) -> String {
    let code = code(file);
    code.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned()
}

/// Returns true if a file has only tests.
fn is_test(file: &Path) -> bool {
    file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

#[test]
fn rooms_name_only_lower_rooms() {
    for file in sources(&root().join("src")).iter().filter(|file| !is_test(file)) {
        let room = room(file);
        if room == "lib" || room == "main" {
            continue;
        }
        let place = ROOMS.iter().position(|(name, _)| *name == room);
        let place = place.unwrap_or_else(|| panic!("{} is in a room that ROOMS does not list", file.display()));
        let code = tested_code(file);
        for (above, _) in &ROOMS[place + 1..] {
            assert!(!code.contains(&format!("crate::{above}::")), "{}: {room} must not know {above}", file.display());
        }
    }
}

#[test]
fn rooms_files_and_folders_stay_small() {
    let lines = |file: &Path| tested_code(file).lines().filter(|line| !line.trim().is_empty()).count();
    let rooms = ROOMS.iter().map(|(name, most)| (format!("src/{name}"), *most));
    let crates = CRATES.iter().map(|(name, most)| (format!("crates/{name}"), *most));
    let mut problems = Vec::new();
    for (room, most) in rooms.chain(crates) {
        let folder = root().join(&room);
        let mut files = if folder.is_dir() { sources(&folder) } else { Vec::new() };
        let file = folder.with_extension("rs");
        files.extend(file.is_file().then_some(file));
        files.retain(|file| !is_test(file));
        let count: usize = files.iter().map(|file| lines(file)).sum();
        if count > most {
            problems.push(format!("{room} has {count} lines of code, {most} are allowed"));
        }
        let mut folders = std::collections::BTreeMap::<&Path, usize>::new();
        for file in &files {
            *folders.entry(file.parent().unwrap()).or_default() += 1;
        }
        for (folder, count) in folders.into_iter().filter(|(_, count)| *count > FILES_MAX) {
            problems.push(format!("{} has {count} files, {FILES_MAX} are allowed", folder.display()));
        }
    }
    for file in
        ["src", "crates", "tests", "loadtest", "fuzz", "benches"].iter().flat_map(|name| sources(&root().join(name)))
    {
        let count = fs::read_to_string(&file).unwrap().lines().count();
        if count > LINES_MAX {
            problems.push(format!("{} has {count} lines, {LINES_MAX} are allowed", file.display()));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_map_is_two_pages_and_has_every_room() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = map.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    assert!(words <= 1200, "{words} words: what is detail belongs into DESIGN.md");
    let table = map.split("## Rooms").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let named: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).collect();
    let rooms = sources(&root().join("src")).iter().map(|file| room(file)).collect::<BTreeSet<_>>();
    let crates =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for room in rooms.into_iter().chain(crates).filter(|room| room != "lib" && room != "main") {
        let is_named = named
            .iter()
            .any(|rooms| rooms.contains(&format!("`{room}`")) || rooms.contains(&format!("`crates/{room}`")));
        assert!(is_named, "{room} is not in the table of rooms");
    }
}

#[test]
fn the_files_named_by_the_map_exist() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files: Vec<PathBuf> =
        ["src", "crates", "tests"].iter().flat_map(|folder| sources(&root().join(folder))).collect();
    let named = map.split('`').filter(|part| part.ends_with(".rs") && !part.contains(' '));
    for name in named {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name} is in ARCHITECTURE.md, and no such file");
    }
}

#[test]
fn drivers_and_frameworks_stay_in_their_rooms() {
    let rules: &[(&str, &[&str])] = &[
        ("axum::", &["http", "app"]),
        ("hyper::", &["http"]),
        ("hyper_util::", &["http"]),
        ("rustls", &["app", "commands", "edge"]),
        ("ureq", &["commands"]),
        ("metrics::counter", &["telemetry"]),
        ("counter!(", &["telemetry"]),
        ("gauge!(", &["telemetry"]),
        ("\"hourglass_", &["telemetry"]),
        ("anyhow", &["app", "commands", "cli", "main"]),
    ];
    for file in sources(&root().join("src")) {
        let room = room(&file);
        let code = code(&file);
        for (name, rooms) in rules {
            assert!(
                rooms.contains(&room.as_str()) || !code.contains(name),
                "{}: {name} is not for {room}",
                file.display()
            );
        }
    }
}

/// The manifest keeps drivers and runtimes out of the crate; this covers the standard library.
#[test]
fn the_model_crate_is_pure() {
    for file in sources(&root().join("crates/model")) {
        for impure in ["SystemTime", "Instant", "std::fs", "std::net", "std::env"] {
            assert!(!code(&file).contains(impure), "{} uses {impure}", file.display());
        }
    }
}

#[test]
fn every_module_starts_with_its_purpose() {
    for file in ["src", "crates"].iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let is_tests =
            file.components().any(|part| part.as_os_str().to_str().unwrap().trim_end_matches(".rs") == "tests");
        assert!(is_tests || text.starts_with("//! "), "{} opens without a module comment", file.display());
    }
}

/// `unsafe_code = "forbid"` is a workspace lint that each member must inherit.
#[test]
fn no_crate_has_unsafe_code() {
    let parsed = |folder: &Path| -> toml::Table {
        fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().expect("a manifest is TOML")
    };
    let manifest = parsed(&root());
    let workspace = &manifest["workspace"];
    assert_eq!(workspace["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    let members = workspace["members"].as_array().expect("a list");
    assert!(members.len() > 1);
    for member in members {
        let folder = root().join(member.as_str().expect("a folder"));
        assert!(!member.as_str().unwrap().contains('*'), "{member:?}: name each member");
        let lints = parsed(&folder);
        let inherits = lints.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(inherits, Some(true), "{member:?}");
    }
}

/// A mutant is an edit of a source and must follow its changes.
#[test]
fn every_mutant_applies_to_the_sources() {
    let list: toml::Table = fs::read_to_string(root().join("tests/mutants.toml")).unwrap().parse().expect("TOML");
    let mutants = list["mutant"].as_array().expect("a list");
    assert!(mutants.len() > 30);
    for mutant in mutants {
        let name = mutant["name"].as_str().expect("a name");
        for test in mutant["tests"].as_array().expect("a list") {
            let test = test.as_str().expect("a test");
            assert!(is_declared(test), "{name}: there is no test {test}");
        }
        for edit in mutant["edits"].as_array().expect("a list") {
            let file = edit["file"].as_str().expect("a file");
            let text = fs::read_to_string(root().join(file)).unwrap();
            let find = edit["find"].as_str().expect("a text");
            assert_eq!(text.matches(find).count(), 1, "{name}: {file} must have this once:\n{find}");
        }
    }
}

/// Returns true if a test exists: `it:MODULE::NAME`, `lib:MODULE::NAME`, or `CRATE:MODULE::NAME`.
fn is_declared(test: &str) -> bool {
    let (kind, path) = test.split_once(':').expect("a binary and a path");
    let folder = match kind {
        "it" => root().join("tests/it"),
        "lib" => root().join("src"),
        _ => root().join("crates").join(kind).join("src"),
    };
    let (module, name) = path.rsplit_once("::").expect("a module and a name");
    let declared = format!("fn {name}(");
    sources(&folder).iter().any(|file| {
        let relative = file.strip_prefix(&folder).unwrap().with_extension("");
        let relative = relative.to_str().unwrap().trim_end_matches("/mod").replace('/', "::");
        let is_module = module == relative || module.strip_suffix("::tests") == Some(&relative);
        is_module && fs::read_to_string(file).unwrap().contains(&declared)
    })
}

/// Regression: the image lacked the crates, so it could not be built.
#[test]
fn the_image_is_built_from_all_crates() {
    let context = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().expect("TOML");
    for member in manifest["workspace"]["members"].as_array().expect("a list") {
        let first = member.as_str().unwrap().split('/').next().unwrap();
        assert!(first == "." || context.lines().any(|line| line == format!("!{first}")), "{member:?} is left out");
    }
}
