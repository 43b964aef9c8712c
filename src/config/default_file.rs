//! Generates the documentation of all keys from `keys.rs`: `config/default.toml`, and the table in
//! `docs/reference/configuration.md`.

use std::fmt::Write as _;

use super::keys::keys;
use super::sections::Key;

/// The text before the keys.
const HEAD: &str = include_str!("default_head.toml");

/// The text after the keys, about lists of tables, which have no defaults.
const LISTS: &str = include_str!("default_lists.toml");

/// Returns the lowest layer as a file: every key with its meaning, unit, default and bounds.
#[must_use]
pub fn default_file() -> String {
    let mut file = HEAD.to_owned();
    let mut section = "";
    for key in keys().iter().filter(|key| !key.is_constant) {
        let (of_section, name) = key.name.split_once('.').unwrap_or_default();
        if of_section != section {
            section = of_section;
            let _ = writeln!(file, "\n[{section}]");
        }
        file.push('\n');
        for line in key.doc {
            let _ = writeln!(file, "#{line}");
        }
        let Key { default, .. } = key;
        let _ = writeln!(file, "# {}; default {default}.", capitalize(&key.expected));
        let _ = writeln!(file, "{name} = {default}");
    }
    file.push_str(LISTS);
    file
}

/// Returns the table of keys for the documentation, with the first sentence about each.
#[cfg(test)]
pub fn table() -> String {
    let mut table = "| key | default | meaning |\n|---|---|---|\n".to_owned();
    for key in keys().iter().filter(|key| !key.is_constant) {
        let text = key.doc.concat();
        let sentence = text.trim().split(". ").next().unwrap_or_default();
        let meaning = sentence.trim_end_matches('.').replace('|', "\\|");
        let _ = writeln!(table, "| `{}` | `{}` | {} |", key.name, key.default, meaning);
    }
    table
}

fn capitalize(text: &str) -> String {
    let (head, tail) = text.split_at(1);
    format!("{}{tail}", head.to_uppercase())
}
