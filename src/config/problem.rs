//! Problems of a configuration. Each is displayed as one line with its source, the fault and the expected value. No
//! line shows credentials.

use std::fmt;
use std::path::PathBuf;

use super::redact_uri;

/// Maximum number of characters of a value that are quoted.
const VALUE_CHARS_MAX: usize = 120;

/// A problem of the configuration. hourglass does not start with any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The source of the value or of the unknown key.
    pub source: ConfigSource,
    /// The key whose value is invalid by itself. `None` for any other problem.
    pub key: Option<&'static str>,
    /// The fault, and the expected value.
    pub message: String,
}

impl Problem {
    /// Returns a problem that is not an invalid value of one key.
    pub fn new(source: ConfigSource, message: impl Into<String>) -> Self {
        Self { source, key: None, message: message.into() }
    }
}

/// The source of a value. Sources are ordered like the layers: a greater source overrides a lesser one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The default in `keys.rs`.
    Default,
    /// The file given by `--config`.
    File {
        /// The path as given on the command line.
        path: PathBuf,
        /// The line, counted from 1; 0 for the file as a whole.
        line: usize,
    },
    /// An environment variable.
    Variable {
        /// The full name.
        name: String,
    },
    /// A flag of `hourglass serve`.
    Flag {
        /// The name with its dashes.
        name: &'static str,
    },
}

impl ConfigSource {
    /// Returns true if both belong to the same layer, so that neither overrides the other.
    #[must_use]
    pub fn same_layer(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Quotes a text for error messages, without credentials and shortened.
#[must_use]
pub fn show_text(text: &str) -> String {
    let redacted = redact_uri(text);
    let mut shown: String = redacted.chars().take(VALUE_CHARS_MAX).collect();
    if shown.len() < redacted.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.message)
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line: 0 } => write!(f, "{}", path.display()),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable { name } => write!(f, "variable {name}"),
            Self::Flag { name } => write!(f, "flag {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_short_and_without_credentials() {
        assert_eq!(show_text("a\tb"), r#""a\tb""#);
        assert_eq!(show_text("mongo://user:pw@host"), r#""mongo://***@host""#);
        assert_eq!(show_text(&"ö".repeat(500)), format!("\"{}…\"", "ö".repeat(VALUE_CHARS_MAX)));
    }

    #[test]
    fn sources_are_ordered_as_layers() {
        let file = |line| ConfigSource::File { path: "a.toml".into(), line };
        let variable = ConfigSource::Variable { name: "HOURGLASS_WAL_DIR".into() };
        let ordered = [ConfigSource::Default, file(2), file(10), variable, ConfigSource::Flag { name: "--listen" }];
        assert!(ordered.is_sorted());
        assert!(file(2).same_layer(&file(10)) && !file(2).same_layer(&ConfigSource::Default));
    }
}
