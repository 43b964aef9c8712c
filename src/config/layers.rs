//! The raw input: each layer's value of each key, with its source. Values keep the type that they were written in;
//! `resolve.rs` interprets and validates them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::lists::{self, LISTS};
use super::nearest::nearest;
use super::problem::{ConfigSource, Problem, ProblemReason, show_text};
use super::settings::{GroupSettings, MetaSettings};
use super::{DEFAULT, Overrides};
use crate::kinds::Kinds;

/// Prefix of the variables that set keys.
const PREFIX: &str = "HOURGLASS_";

/// Prefixes of the variables of tests, which set no keys (CONTRIBUTING.md).
const TEST_PREFIXES: [&str; 5] =
    ["HOURGLASS_TEST_", "HOURGLASS_FUZZ_", "HOURGLASS_INFLUXQL_", "HOURGLASS_LAW_", "HOURGLASS_STALLS_"];

/// Each key's values, the lowest layer first. The defaults hold every key, so their keys are the
/// known ones.
pub struct Layers {
    entries: BTreeMap<String, Vec<LayerEntry>>,
    /// Whether a file could not be read completely, so that values may be missing.
    pub torn: bool,
    /// The lists of the file.
    pub lists: Lists,
}

/// Values that are lists of tables.
#[derive(Debug, Clone, Default)]
pub struct Lists {
    pub meta: MetaSettings,
    pub kinds: Kinds,
    pub groups: Vec<GroupSettings>,
}

/// One layer's value of one key.
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
    /// A TOML integer; one that does not fit becomes the least or greatest `i128`.
    Integer(i128),
    /// A TOML boolean.
    Bool(bool),
    /// The text of a variable or flag, which the key's type interprets.
    Bare(String),
    /// A flag's path.
    Path(PathBuf),
    /// A TOML type that no key has, by name.
    Other(&'static str),
}

impl WrittenValue {
    /// The value as error messages show it.
    pub fn show(&self) -> String {
        match self {
            Self::Text(text) | Self::Bare(text) => show_text(text),
            Self::Integer(number) => number.to_string(),
            Self::Bool(truth) => truth.to_string(),
            Self::Path(path) => show_text(&path.to_string_lossy()),
            Self::Other(kind) => format!("({kind})"),
        }
    }
}

impl Layers {
    pub fn defaults() -> Self {
        let mut layers = Self { entries: BTreeMap::new(), torn: false, lists: Lists::default() };
        let (table, errors) = DeTable::parse_recoverable(DEFAULT);
        assert!(errors.is_empty(), "config/default.toml: {errors:?}");
        for leaf in leaves(table.get_ref(), "") {
            if let Leaf::Key { key, value, .. } = leaf {
                layers.entries.insert(key, vec![LayerEntry { value, source: ConfigSource::Default }]);
            }
        }
        layers
    }

    /// All layers' values of a known key, the lowest layer first.
    ///
    /// # Panics
    /// If `config/default.toml` lacks the key, which is a bug.
    pub fn entries(&self, key: &str) -> &[LayerEntry] {
        self.entries.get(key).unwrap_or_else(|| panic!("config/default.toml lacks {key}"))
    }

    /// The source of the effective value: the highest layer that sets the key.
    pub fn source(&self, key: &str) -> &ConfigSource {
        self.entries(key).last().map_or(&ConfigSource::Default, |entry| &entry.source)
    }

    /// Adds a file as the highest layer so far.
    pub fn add_file(&mut self, path: &Path, text: &str, problems: &mut Vec<Problem>) {
        let at = |line| ConfigSource::File { path: path.to_owned(), line };
        let (table, errors) = DeTable::parse_recoverable(text);
        // The parser recovers some values from invalid TOML; they may be wrong, so they are not checked.
        if !errors.is_empty() {
            self.torn = true;
            problems.extend(errors.iter().map(|error| Problem {
                source: at(error.span().map_or(0, |span| line_of(text, &span))),
                reason: ProblemReason::Syntax { message: error.message().to_owned() },
            }));
            return;
        }
        match lists::read(text) {
            Ok(lists) => self.lists = lists,
            Err((span, message)) => problems.push(Problem {
                source: at(span.map_or(0, |span| line_of(text, &span))),
                reason: ProblemReason::List { message },
            }),
        }
        let mut leaves = leaves(table.get_ref(), "");
        leaves.retain(|leaf| !matches!(leaf, Leaf::Key { key, .. } if LISTS.contains(&key.as_str())));
        for leaf in leaves {
            let (reason, span) = match leaf {
                Leaf::Key { key, value, span } if self.entries.contains_key(&key) => {
                    self.push(&key, value, at(line_of(text, &span)));
                    continue;
                }
                Leaf::Key { key, span, .. } if self.is_section(&key) => {
                    (ProblemReason::NotASection { section: key }, span)
                }
                Leaf::EmptyTable { key, .. } if self.is_section(&key) => continue,
                Leaf::EmptyTable { key, span } if self.entries.contains_key(&key) => {
                    self.push(&key, WrittenValue::Other("table"), at(line_of(text, &span)));
                    continue;
                }
                Leaf::Key { key, span, .. } | Leaf::EmptyTable { key, span } => {
                    let nearest = nearest(&key, self.known());
                    (ProblemReason::UnknownKey { key, nearest }, span)
                }
            };
            problems.push(Problem { source: at(line_of(text, &span)), reason });
        }
    }

    /// Adds the environment as the highest layer so far.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>, problems: &mut Vec<Problem>) {
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(PREFIX) else { continue };
            if TEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || is_of_orchestrator(path, &value) {
                continue;
            }
            let known = self.known().find(|key| variable_of(key) == name).map(str::to_owned);
            if let Some(key) = known {
                self.push(&key, WrittenValue::Bare(value), ConfigSource::Variable { name });
                continue;
            }
            // Ignoring HOURGLASS_STORE_URI, with one underscore too few, would send the readings to the wrong store.
            let reason = ProblemReason::UnknownVariable { nearest: self.nearest_variable(&name, path) };
            problems.push(Problem { source: ConfigSource::Variable { name }, reason });
        }
    }

    /// The variable of the key that was meant.
    fn nearest_variable(&self, name: &str, path: &str) -> Option<String> {
        let spelt = self.known().find(|key| is_spelt(key, name));
        if let Some(key) = spelt {
            return Some(variable_of(key));
        }
        let meant = path.to_lowercase();
        // Between section and key a variable may have one underscore or two.
        let by_section = self.known().find(|key| {
            let section = key.split('.').next().unwrap_or_default();
            meant.strip_prefix(section).is_some_and(|rest| rest.starts_with('_') && !rest.starts_with("__"))
        });
        let dotted = match by_section.and_then(|key| key.split_once('.')) {
            Some((section, _)) => format!("{section}.{}", &meant[section.len() + 1..]),
            None => meant.replace("__", "."),
        };
        nearest(&dotted, self.known())
            .or_else(|| {
                let flat: Vec<_> = self.known().map(|key| (key.replace('.', "_"), key)).collect();
                let found = nearest(&meant.replace("__", "_"), flat.iter().map(|(flat, _)| flat.as_str()))?;
                flat.iter().find(|(flat, _)| *flat == found).map(|(_, key)| (*key).to_owned())
            })
            .map(|key| variable_of(&key))
    }

    /// Adds the flags as the highest layer.
    pub fn add_flags(&mut self, flags: &Overrides) {
        if let Some(listen) = &flags.listen {
            self.push("server.listen", WrittenValue::Bare(listen.clone()), ConfigSource::Flag { name: "--listen" });
        }
        if let Some(data_dir) = &flags.data_dir {
            self.push(
                "server.data_dir",
                WrittenValue::Path(data_dir.clone()),
                ConfigSource::Flag { name: "--data-dir" },
            );
        }
        if let Some(store) = &flags.store {
            self.push("store.uri", WrittenValue::Bare(store.clone()), ConfigSource::Flag { name: "--store" });
        }
        if let Some(memory) = &flags.memory {
            self.push("server.memory", WrittenValue::Bare(memory.clone()), ConfigSource::Flag { name: "--memory" });
        }
    }

    fn push(&mut self, key: &str, value: WrittenValue, source: ConfigSource) {
        self.entries.entry(key.to_owned()).or_default().push(LayerEntry { value, source });
    }

    fn known(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn is_section(&self, name: &str) -> bool {
        self.known().any(|key| key.split_once('.').is_some_and(|(section, _)| section == name))
    }
}

/// Whether the variable is the key's, but for the number of underscores.
fn is_spelt(key: &str, variable: &str) -> bool {
    variable_of(key).replace("__", "_") == variable.replace("__", "_")
}

/// Whether Kubernetes or Docker set the variable for a service named hourglass, or one whose name begins so.
fn is_of_orchestrator(path: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let of_port = |(_, rest): (&str, &str)| {
        let mut parts = rest.split('_');
        let number = parts.next().is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
        number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    };
    let path = format!("_{path}");
    let of_service = ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|end| path.ends_with(end));
    !path.contains("__")
        && (of_service
            || path.contains("_SERVICE_PORT_")
            || (path.ends_with("_PORT") && is_url)
            || path.rsplit_once("_PORT_").is_some_and(of_port)
            || path.split_once("_PORT_").is_some_and(of_port))
}

fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// The line on which a span begins, counted from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A leaf of the tree of tables, with its dotted name and the span of that name's last part.
enum Leaf {
    Key { key: String, value: WrittenValue, span: Range<usize> },
    EmptyTable { key: String, span: Range<usize> },
}

fn leaves(table: &DeTable<'_>, prefix: &str) -> Vec<Leaf> {
    let mut found = Vec::new();
    for (name, value) in table {
        let span = name.span();
        let key = format!("{prefix}{}", name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if inner.is_empty() => found.push(Leaf::EmptyTable { key, span }),
            DeValue::Table(inner) => found.extend(leaves(inner, &format!("{key}."))),
            _ => found.push(Leaf::Key { key, value: raw(value), span }),
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
        other => WrittenValue::Other(other.type_str()),
    }
}
