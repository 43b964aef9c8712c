//! Compares `config/default.toml` and `docs/reference/configuration.md` with the generated text.

use std::fs;
use std::path::PathBuf;

use super::owned;
use crate::config::default_file::{default_file, table};
use crate::config::layers::variable_name;
use crate::config::units::{MIB, parse_duration, parse_size};
use crate::config::*;

/// Compares a generated file with the one in the repository, or writes it if the variable `UPDATE` is set.
fn check_generated(name: &str, generate: impl Fn(&str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    let found = fs::read_to_string(&path).unwrap();
    let generated = generate(&found);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &generated).unwrap();
    } else {
        assert!(found == generated, "{name} is not as src/config/keys.rs has it: UPDATE=1 cargo test --lib config");
    }
}

#[test]
fn the_default_file_is_the_generated_one() {
    check_generated("config/default.toml", |_| default_file());
}

#[test]
fn the_documentation_has_the_generated_table() {
    check_generated("docs/reference/configuration.md", |page| {
        let (before, rest) = page.split_once("| key | default | meaning |").unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        format!("{before}{}\n{after}", table())
    });
}

#[test]
fn the_default_file_holds_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("default.toml");
    fs::write(&path, default_file()).unwrap();
    // The machine that runs this may be a small one.
    let memory = [("HOURGLASS_SERVER_MEMORY", "512MiB")];
    assert_eq!(load(Some(&path), owned(&memory), &Overrides::default()).unwrap(), Settings::default());
}

#[test]
fn bounds_are_inclusive_and_nothing_beyond_them_is_accepted() {
    let mut bounded = 0;
    for Key { name, expected, .. } in keys() {
        let variable = variable_name(name);
        let Some((kind, (low, high))) =
            expected.split_once(", ").and_then(|(kind, b)| Some((kind, b.split_once(" to ")?)))
        else {
            continue;
        };
        let below_above = match kind {
            "a whole number" | "\"auto\" or a whole number" => {
                [low.parse::<i64>().unwrap() - 1, high.parse::<i64>().unwrap() + 1].map(|n| n.to_string())
            }
            "a size" | "\"auto\" or a size" => {
                let [low, high] = [low, high].map(|text| parse_size(text).unwrap());
                [low.checked_sub(1), Some(high + 1)].map(|n| n.map_or("-1".into(), |n| n.to_string()))
            }
            "a duration" => {
                let [low, high] = [low, high].map(|text| parse_duration(text).unwrap().as_millis());
                [low.checked_sub(1), Some(high + 1)].map(|n| n.map_or("-1ms".into(), |n| format!("{n}ms")))
            }
            _ => continue,
        };
        bounded += 1;
        let is_refused = |value: &str| {
            let problems = load(None, owned(&[(&variable, value)]), &Overrides::default()).err().unwrap_or_default();
            problems.iter().any(|problem| problem.key.is_some())
        };
        assert!(!is_refused(low) && !is_refused(high), "{name}: {low} and {high} are allowed");
        for beyond in below_above {
            assert!(is_refused(&beyond), "{name}: {beyond} is not {expected}");
        }
    }
    assert!(bounded >= 30, "only {bounded} keys have bounds");
}

#[test]
fn the_memory_is_divided_by_default() {
    let settings = Settings::default();
    assert_eq!(settings.server.memory, 512 * MIB);
    assert_eq!((settings.server.connections, settings.server.connections_per_address), (1024, 256));
    assert_eq!((settings.ingest.bytes_in_flight, settings.limits.body_bytes), (56 * MIB, 25 * MIB));
    assert_eq!((settings.memtable.max_bytes, settings.catalog.max_bytes), (132 * MIB, 75 * MIB));
    assert_eq!((settings.wal.queue_bytes, settings.embedded.cache_bytes), (23 * MIB, 18 * MIB));
    let QuerySettings { bytes, request_bytes, token_bytes, cache_bytes, .. } = settings.query;
    assert_eq!((bytes, request_bytes, token_bytes, cache_bytes), (89 * MIB, 44 * MIB, 66 * MIB, 18 * MIB));
}
