//! What ARCHITECTURE.md says of rooms and arrows, held by reading the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The name of the room a source file is in: its first folder under `src`, or its own name.
fn room(file: &Path) -> String {
    let within = file.strip_prefix(root().join("src")).unwrap();
    within.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// The code of a file without comments.
fn code(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn arrows_point_one_way() {
    // Which rooms and crates each room of the server may name; the compiler holds the arrows among the crates. `main` and
    // `app` know all. `config` knows the types of its values only.
    let allowed: &[(&str, &[&str])] = &[
        ("access", &["bucket", "reading", "store"]),
        ("config", &["bucket", "kinds", "reading"]),
        ("telemetry", &["config"]),
        ("edge", &["config", "telemetry"]),
        ("kinds", &["bucket", "reading"]),
        ("ingest", &["access", "bucket", "config", "kinds", "reading", "store", "telemetry", "wal", "wire"]),
        ("edits", &["access", "backup", "bucket", "influxql", "ingest", "query", "reading", "store"]),
        ("query", &["access", "bucket", "config", "influxql", "reading", "store", "telemetry"]),
        ("upkeep", &["bucket", "config", "ingest", "reading", "store", "telemetry"]),
        ("verify", &["bucket", "reading", "wal"]),
        ("backup", &["access", "bucket", "reading", "store"]),
        (
            "http",
            &[
                "access",
                "backup",
                "bucket",
                "config",
                "edge",
                "edits",
                "influxql",
                "ingest",
                "kinds",
                "query",
                "reading",
                "store",
                "telemetry",
                "upkeep",
                "wire",
            ],
        ),
        ("tcp", &["access", "bucket", "edge", "ingest", "reading", "telemetry", "wire"]),
        ("cli", &["access", "app", "config", "reading"]),
    ];
    // Every room may use `crates/base`: the clock, which makes stamps, and `faults`, which is empty in a release.
    let crates = ["bucket", "influxql", "reading", "store", "wal", "wire"];
    let rooms: Vec<&str> = allowed.iter().map(|(room, _)| *room).chain(crates).collect();
    for file in sources(&root().join("src")) {
        let room = room(&file);
        let Some((_, may)) = allowed.iter().find(|(name, _)| *name == room) else {
            assert!(["app", "lib", "main"].contains(&room.as_str()), "{} is in a room nobody drew", file.display());
            continue;
        };
        // The tests inside a room may use a real store or log where the service gets one handed in.
        if file.file_name().is_some_and(|name| name == "tests.rs") {
            continue;
        }
        let code = code(&file);
        let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for other in rooms.iter().filter(|other| **other != room && !may.contains(other)) {
            assert!(!code.contains(&format!("crate::{other}")), "{}: {room} must not know {other}", file.display());
        }
    }
}

/// It grew to six pages once, of which a newcomer had to read all to find a place.
#[test]
fn the_map_is_two_pages_and_has_every_room() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words = map.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count();
    assert!(words <= 1300, "{words} words: what is detail belongs into DESIGN.md");
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
fn the_files_that_the_map_names_are_there() {
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
        ("rustls", &["app", "edge"]),
        ("ureq", &["app"]),
        ("metrics::counter", &["telemetry"]),
        ("counter!(", &["telemetry"]),
        ("gauge!(", &["telemetry"]),
        ("\"hourglass_", &["telemetry"]),
        ("anyhow", &["app", "main"]),
    ];
    for file in sources(&root().join("src")) {
        let (room, code) = (room(&file), code(&file));
        for (name, rooms) in rules {
            assert!(
                rooms.contains(&room.as_str()) || !code.contains(name),
                "{}: {name} is not for {room}",
                file.display()
            );
        }
    }
}

/// The crate's manifest keeps drivers and runtimes out of it, and this test what the standard library offers.
#[test]
fn the_law_is_pure() {
    for file in sources(&root().join("crates/model")) {
        for impure in ["SystemTime", "Instant", "std::fs", "std::net", "std::env"] {
            assert!(!code(&file).contains(impure), "{} uses {impure}", file.display());
        }
    }
}

#[test]
fn every_module_opens_with_what_it_is_for() {
    for file in ["src", "crates"].iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        let is_tests =
            file.components().any(|part| part.as_os_str().to_str().unwrap().trim_end_matches(".rs") == "tests");
        assert!(is_tests || text.starts_with("//! "), "{} opens without a module comment", file.display());
    }
}

/// `unsafe_code = "forbid"` stands in the workspace's lints, and a member has them only when it says so: a new one is easily
/// forgotten.
#[test]
fn no_member_may_have_unsafe_code() {
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

/// A seeded mistake is an edit of a source: when the source changes, the edit must go with it.
#[test]
fn each_seeded_mistake_fits_the_sources() {
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

/// Whether there is a test of that name: `it:MODULE::NAME`, `lib:MODULE::NAME`, or `CRATE:MODULE::NAME`.
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
        let within = file.strip_prefix(&folder).unwrap().with_extension("");
        let within = within.to_str().unwrap().trim_end_matches("/mod").replace('/', "::");
        let is_module = module == within || module.strip_suffix("::tests") == Some(&within);
        is_module && fs::read_to_string(file).unwrap().contains(&declared)
    })
}

/// The crates once were not among what the image is built from, so that no image could be built.
#[test]
fn the_image_is_built_from_all_members() {
    let context = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let manifest: toml::Table = fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().expect("TOML");
    for member in manifest["workspace"]["members"].as_array().expect("a list") {
        let first = member.as_str().unwrap().split('/').next().unwrap();
        assert!(first == "." || context.lines().any(|line| line == format!("!{first}")), "{member:?} is left out");
    }
}
