//! The raw input: what each layer says about each key, with where it says so. Values keep the type
//! they were written in; what they mean and which are allowed is for `resolve.rs`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use super::problem::{Problem, Reason, Source, show_text};
use super::{DEFAULT, Overrides};

/// How the variables that set keys begin.
const PREFIX: &str = "HOURGLASS_";

/// The variables of the tests; they set no keys.
const TEST_PREFIX: &str = "HOURGLASS_TEST_";

/// Each key's values, the lowest layer first. The defaults hold every key, so their keys are the
/// known ones.
pub struct Layers {
    entries: BTreeMap<String, Vec<Entry>>,
    /// Whether a file could not be read as a whole, so that values may be missing.
    pub torn: bool,
}

/// One layer's value of one key.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The value as written.
    pub value: RawValue,
    /// Where.
    pub source: Source,
}

/// A value as it was written.
#[derive(Debug, Clone)]
pub enum RawValue {
    /// A TOML string.
    Text(String),
    /// A TOML integer; at the ends of `i128` when it is beyond.
    Integer(i128),
    /// A TOML boolean.
    Bool(bool),
    /// A variable's or a flag's text, to be read by the key's type.
    Bare(String),
    /// A flag's path.
    Path(PathBuf),
    /// Another TOML type, which no key has.
    Other(&'static str),
}

impl RawValue {
    /// The value as a problem shows it.
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
    /// Only the defaults.
    pub fn defaults() -> Self {
        let mut layers = Self { entries: BTreeMap::new(), torn: false };
        let (table, errors) = DeTable::parse_recoverable(DEFAULT);
        assert!(errors.is_empty(), "config/default.toml: {errors:?}");
        for leaf in leaves(table.get_ref(), "") {
            if let Leaf::Key { key, value, .. } = leaf {
                layers.entries.insert(key, vec![Entry { value, source: Source::Default }]);
            }
        }
        layers
    }

    /// What the layers say about a known key, the lowest first.
    ///
    /// # Panics
    /// When the key does not stand in `config/default.toml`, which is a fault of the build.
    pub fn entries(&self, key: &str) -> &[Entry] {
        self.entries.get(key).unwrap_or_else(|| panic!("config/default.toml lacks {key}"))
    }

    /// Where the value that counts comes from.
    pub fn source(&self, key: &str) -> &Source {
        self.entries(key).last().map_or(&Source::Default, |entry| &entry.source)
    }

    /// Lays a file's text on top.
    pub fn add_file(&mut self, path: &Path, text: &str, problems: &mut Vec<Problem>) {
        let at = |line| Source::File { path: path.to_owned(), line };
        let (table, errors) = DeTable::parse_recoverable(text);
        // What can be rescued from a torn file may be anything, so it is not judged.
        if !errors.is_empty() {
            self.torn = true;
            problems.extend(errors.iter().map(|error| Problem {
                source: at(error.span().map_or(0, |span| line_of(text, &span))),
                reason: Reason::Syntax { message: error.message().to_owned() },
            }));
            return;
        }
        for leaf in leaves(table.get_ref(), "") {
            let (reason, span) = match leaf {
                Leaf::Key { key, value, span } if self.entries.contains_key(&key) => {
                    self.push(&key, value, at(line_of(text, &span)));
                    continue;
                }
                Leaf::Key { key, span, .. } if self.is_section(&key) => (Reason::NotASection { section: key }, span),
                Leaf::EmptyTable { key, .. } if self.is_section(&key) => continue,
                Leaf::EmptyTable { key, span } if self.entries.contains_key(&key) => {
                    self.push(&key, RawValue::Other("table"), at(line_of(text, &span)));
                    continue;
                }
                Leaf::Key { key, span, .. } | Leaf::EmptyTable { key, span } => {
                    let nearest = nearest(&key, self.known());
                    (Reason::UnknownKey { key, nearest }, span)
                }
            };
            problems.push(Problem { source: at(line_of(text, &span)), reason });
        }
    }

    /// Lays the environment on top.
    pub fn add_environment(&mut self, variables: impl Iterator<Item = (String, String)>, problems: &mut Vec<Problem>) {
        for (name, value) in variables {
            let Some(path) = name.strip_prefix(PREFIX).filter(|_| !name.starts_with(TEST_PREFIX)) else {
                continue;
            };
            let known = self.known().find(|key| variable_of(key) == name).map(str::to_owned);
            if let Some(key) = known {
                self.push(&key, RawValue::Bare(value), Source::Variable { name });
                continue;
            }
            // Without `__` a variable is somebody else's (an orchestrator sets HOURGLASS_PORT for a
            // service of that name), unless it spells a key with one underscore too few: a store
            // forgotten that way would send the readings elsewhere.
            let nearest = if path.contains("__") {
                nearest(&path.to_lowercase().replace("__", "."), self.known()).map(|key| variable_of(&key))
            } else {
                let meant = self.known().map(variable_of).find(|known| known.replace("__", "_") == name);
                if meant.is_none() {
                    continue;
                }
                meant
            };
            problems.push(Problem { source: Source::Variable { name }, reason: Reason::UnknownVariable { nearest } });
        }
    }

    /// Lays the flags on top.
    pub fn add_flags(&mut self, flags: &Overrides) {
        if let Some(listen) = &flags.listen {
            self.push("server.listen", RawValue::Bare(listen.clone()), Source::Flag { name: "--listen" });
        }
        if let Some(data_dir) = &flags.data_dir {
            self.push("server.data_dir", RawValue::Path(data_dir.clone()), Source::Flag { name: "--data-dir" });
        }
        if let Some(store) = &flags.store {
            self.push("store.uri", RawValue::Bare(store.clone()), Source::Flag { name: "--store" });
        }
    }

    fn push(&mut self, key: &str, value: RawValue, source: Source) {
        self.entries.entry(key.to_owned()).or_default().push(Entry { value, source });
    }

    fn known(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn is_section(&self, name: &str) -> bool {
        self.known().any(|key| key.split_once('.').is_some_and(|(section, _)| section == name))
    }
}

/// The name of the variable that sets the key.
fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.to_uppercase().replace('.', "__"))
}

/// The line that a span begins on, from 1.
fn line_of(text: &str, span: &Range<usize>) -> usize {
    text.as_bytes()[..span.start.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// What stands at the ends of a tree of tables, with its dotted name and the place of its last part.
enum Leaf {
    Key { key: String, value: RawValue, span: Range<usize> },
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

fn raw(value: &Spanned<DeValue<'_>>) -> RawValue {
    match value.get_ref() {
        DeValue::String(text) => RawValue::Text(text.to_string()),
        DeValue::Boolean(truth) => RawValue::Bool(*truth),
        DeValue::Integer(number) => {
            let end = if number.as_str().starts_with('-') { i128::MIN } else { i128::MAX };
            RawValue::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(end))
        }
        other => RawValue::Other(other.type_str()),
    }
}
