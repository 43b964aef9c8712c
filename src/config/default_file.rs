//! Texts for people about all keys, made from `keys.rs`: `config/default.toml`, and the table in `docs/configuration.md`.

use std::fmt::Write as _;

use super::keys::keys;
use super::sections::Key;

const HEAD: &str = "\
# hourglass: every key with its default. `hourglass config show-defaults` prints this file.
#
# Four layers, each overriding the one before: these defaults, the file given by --config, environment variables, the
# flags of `hourglass serve`. A variable is named HOURGLASS_SECTION_KEY, for example
# HOURGLASS_INGEST_BYTES_IN_FLIGHT=128MiB. A file needs only the keys it changes. `hourglass config check` reports all
# problems at once.
#
# A duration is a whole number with its unit, or several: 500ms, 30s, 15m, 1h30m, 7d, 2w. A size is a number of bytes, or
# a whole number with B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000).
";

/// The lists of tables, which have no default.
const LISTS: &str = r#"
# Metadata that is copied into the pages and days of its sensor, so that one document has it for those who read MongoDB
# themselves (docs/metadata.md). Without database, in all of them. Only in a file, as often as there are names. Without
# effect on the embedded store. Set it alike on all instances.
#
#   [[meta.copy]]
#   name = "site"
#   database = "plant"
#   index = false    # true: MongoDB gets indexes of it

# What readings and metadata of a kind of sensor must be (docs/metadata.md). Only in a file, as often as there are kinds.
# Set it alike on all instances.
#
#   [[kinds]]
#   name = "thermometer"
#   measurement = "climate"
#   action = "warn"
#   interval = "1m"
#   index = false
#   units = { temp = "°C" }
#   fields = { required = ["temp"], properties = { temp = { type = "number", minimum = -60, maximum = 120 } } }
#   meta = { required = ["site"], properties = { site = { type = "string", pattern = "^[a-z]+$" } } }

# Groups of sensors that have the same value of a tag, or of metadata with the prefix "meta." (docs/metadata.md). Without
# database, in all of them. Only in a file, as often as there are groups. Set it alike on all instances.
#
#   [[groups]]
#   name = "site"
#   by = "meta.site"
#   database = "plant"
"#;

/// Returns the lowest layer as a file: every key with its meaning, unit, default and bounds.
#[must_use]
pub fn default_file() -> String {
    let mut file = HEAD.to_owned();
    let mut section = "";
    for key in keys().iter().filter(|key| !key.is_constant) {
        if key.section != section {
            section = key.section;
            let _ = writeln!(file, "\n[{section}]");
        }
        file.push('\n');
        for line in key.doc {
            let _ = writeln!(file, "#{line}");
        }
        let Key { default, .. } = key;
        let _ = writeln!(file, "# {}; default {default}.", capitalized(&key.expected));
        let _ = writeln!(file, "{} = {default}", key.name.rsplit('.').next().unwrap_or_default());
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

fn capitalized(text: &str) -> String {
    let (head, tail) = text.split_at(1);
    format!("{}{tail}", head.to_uppercase())
}
