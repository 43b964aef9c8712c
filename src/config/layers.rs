//! The raw input: the value of each key in each layer, with its source. Values keep the type in which they were
//! written. `resolve.rs` interprets and validates them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Overrides;
use super::keys;
use super::lists::{self, LISTS, Lists};
use super::nearest::nearest;
use super::problem::{ConfigSource, Problem, show_text};

/// Prefix of the variables that set keys.
const PREFIX: &str = "HOURGLASS_";

/// Prefix of the variables of tests, which do not set keys (CONTRIBUTING.md).
const TEST_PREFIX: &str = "HOURGLASS_TEST_";

/// The type name of an empty table, which is not a valid value of any key.
const EMPTY_TABLE: &str = "table";

/// The values of each key, the lowest layer first.
pub struct Layers {
    entries: BTreeMap<&'static str, Vec<LayerEntry>>,
    /// The keys that a layer may set.
    settable: BTreeSet<&'static str>,
    /// True if a file could not be read completely, so that values may be missing.
    pub is_cut_off: bool,
    /// The lists of the file.
    pub lists: Lists,
}

/// The value of a key in one layer.
#[derive(Debug, Clone)]
pub struct LayerEntry {
    pub value: WrittenValue,
    pub source: ConfigSource,
}

/// A value as it was written.
#[derive(Debug, Clone)]
pub enum WrittenValue {
    /// A TOML string.
    Text(String),
    /// A TOML integer. One that does not fit becomes the minimum or maximum of `i128`.
    Integer(i128),
    /// A TOML boolean.
    Bool(bool),
    /// The text of a variable or flag, which the key's type interprets.
    Bare(String),
    /// The name of a TOML type that no key has.
    Other(&'static str),
}

impl WrittenValue {
    /// Formats the value for error messages.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::Bare(text) => show_text(text),
            Self::Integer(number) => number.to_string(),
            Self::Bool(truth) => truth.to_string(),
            Self::Other(kind) => format!("({kind})"),
        }
    }
}

impl Layers {
    /// Returns the lowest layer, with the defaults of all keys. Higher layers may set constants only if
    /// `sets_constants`.
    pub fn defaults(sets_constants: bool) -> Self {
        let mut layers =
            Self { entries: BTreeMap::new(), settable: BTreeSet::new(), is_cut_off: false, lists: Lists::default() };
        for key in keys::keys() {
            let Ok(value) = DeValue::parse(key.default) else {
                panic!("the default of {} is not TOML: {}", key.name, key.default)
            };
            layers.entries.insert(key.name, vec![LayerEntry { value: raw(&value), source: ConfigSource::Default }]);
            if sets_constants || !key.is_constant {
                layers.settable.insert(key.name);
            }
        }
        layers
    }

    /// Returns the values of a key in all layers, the lowest layer first.
    ///
    /// # Panics
    /// If there is no such key, which is a bug.
    pub fn entries(&self, key: &str) -> &[LayerEntry] {
        self.entries.get(key).unwrap_or_else(|| panic!("no key {key}"))
    }

    /// Returns the source of the effective value: the highest layer that sets the key.
    pub fn source(&self, key: &str) -> &ConfigSource {
        self.entries(key).last().map_or(&ConfigSource::Default, |entry| &entry.source)
    }

    /// Adds a file as the highest layer so far.
    pub fn add_file(&mut self, path: &Path, text: &str, problems: &mut Vec<Problem>) {
        let location = |line| ConfigSource::File { path: path.to_owned(), line };
        let (table, errors) = DeTable::parse_recoverable(text);
        // The parser recovers some values from invalid TOML. They may be wrong, so do not check them.
        if !errors.is_empty() {
            self.is_cut_off = true;
            problems.extend(errors.iter().map(|error| {
                let line = error.span().map_or(0, |span| line_number(text, &span));
                Problem::new(location(line), format!("not valid TOML: {}", error.message()))
            }));
            return;
        }
        match lists::read(text) {
            Ok(lists) => self.lists = lists,
            Err(error) => {
                let line = error.span.map_or(0, |span| line_number(text, &span));
                problems.push(Problem::new(location(line), error.message));
            }
        }
        for Leaf { key, value, span } in leaves(table.get_ref(), "") {
            let source = location(line_number(text, &span));
            if LISTS.contains(&&*key) {
                continue;
            }
            if self.settable.contains(&*key) {
                self.push(&key, value, source);
            } else if !self.is_section(&key) {
                // Do not show the value, because it may be a secret.
                let nearest = nearest(&key, self.known_keys());
                problems.push(Problem::new(source, format!("unknown key {key}{}", did_you_mean(nearest))));
            } else if !matches!(value, WrittenValue::Other(EMPTY_TABLE)) {
                problems.push(Problem::new(source, format!("{key} is a section, written [{key}]")));
            }
        }
    }

    /// Adds the environment as the highest layer so far.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>, problems: &mut Vec<Problem>) {
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(PREFIX) else { continue };
            if name.starts_with(TEST_PREFIX) {
                continue;
            }
            let key = self.known_keys().find(|key| variable_name(key) == name);
            match key {
                Some(key) => self.push(key, WrittenValue::Bare(value), ConfigSource::Variable { name }),
                None if is_set_by_orchestrator(path, &value) => {}
                // Do not ignore unknown variables: with HOURGLASS_STORE_URL, readings would go to the embedded store.
                None => {
                    let meant = path.to_lowercase().replace("__", "_");
                    let nearest = nearest(&meant, self.known_keys()).map(|key| variable_name(&key));
                    let message = format!("names no key{}", did_you_mean(nearest));
                    problems.push(Problem::new(ConfigSource::Variable { name }, message));
                }
            }
        }
    }

    /// Adds the flags as the highest layer.
    pub fn add_flags(&mut self, flags: &Overrides) {
        let bare = |text: &Option<String>| text.clone().map(WrittenValue::Bare);
        let set = [
            ("server.listen", "--listen", bare(&flags.listen)),
            ("server.data_dir", "--data-dir", bare(&flags.data_dir)),
            ("store.uri", "--store", bare(&flags.store)),
            ("server.memory", "--memory", bare(&flags.memory)),
        ];
        for (key, name, value) in set {
            if let Some(value) = value {
                self.push(key, value, ConfigSource::Flag { name });
            }
        }
    }

    fn push(&mut self, key: &str, value: WrittenValue, source: ConfigSource) {
        if let Some(entries) = self.entries.get_mut(key) {
            entries.push(LayerEntry { value, source });
        }
    }

    fn known_keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.settable.clone().into_iter()
    }

    fn is_section(&self, name: &str) -> bool {
        self.known_keys().any(|key| key.split_once('.').is_some_and(|(section, _)| section == name))
    }
}

fn did_you_mean(nearest: Option<String>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"))
}

/// Returns true for variables that Kubernetes and Docker set for services whose names begin with hourglass.
fn is_set_by_orchestrator(path: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    // The rest after `_PORT_`, such as `8086_TCP_ADDR`.
    let names_port = |rest: &str| {
        let mut parts = rest.split('_');
        let has_number = parts.next().is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        has_number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    let path = format!("_{path}");
    path.ends_with("_SERVICE_HOST")
        || path.ends_with("_SERVICE_PORT")
        || path.contains("_SERVICE_PORT_")
        || (path.ends_with("_PORT") && is_url)
        || path.rsplit_once("_PORT_").is_some_and(|(_, rest)| names_port(rest))
        || path.split_once("_PORT_").is_some_and(|(_, rest)| names_port(rest))
}

/// Returns the environment variable of a key.
pub fn variable_name(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "_"))
}

/// Returns the line on which a span begins, counted from 1.
fn line_number(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A leaf of the tree of tables: a value or an empty table.
struct Leaf {
    /// The dotted name.
    key: String,
    value: WrittenValue,
    /// The position of the last part of the name.
    span: Range<usize>,
}

fn leaves(table: &DeTable<'_>, prefix: &str) -> Vec<Leaf> {
    let mut found = Vec::new();
    for (name, value) in table {
        let span = name.span();
        let key = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if !inner.is_empty() => found.extend(leaves(inner, &format!("{key}."))),
            _ => found.push(Leaf { key, value: raw(value), span }),
        }
    }
    found
}

fn raw(value: &Spanned<DeValue<'_>>) -> WrittenValue {
    match value.get_ref() {
        DeValue::String(text) => WrittenValue::Text(text.to_string()),
        DeValue::Boolean(truth) => WrittenValue::Bool(*truth),
        DeValue::Integer(number) => {
            let end = if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
            WrittenValue::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(end))
        }
        DeValue::Table(_) => WrittenValue::Other(EMPTY_TABLE),
        other => WrittenValue::Other(other.type_str()),
    }
}
