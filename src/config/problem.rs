//! What is wrong with a configuration, as data; shown as one line that says where, what and how to
//! mend it. No line shows credentials.

use std::fmt;
use std::path::PathBuf;

use super::redact_uri;
use super::units::UnitError;

/// How many characters of a value a line repeats.
const VALUE_CHARS_MAX: usize = 120;

/// One thing that keeps hourglass from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value, or the unknown key, comes from.
    pub source: Source,
    /// What is wrong there.
    pub reason: Reason,
}

/// Where a value comes from. Ordered as the layers are: a greater source overrides a lesser one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// `config/default.toml`, as compiled in.
    Default,
    /// The file given by `--config`.
    File {
        /// As it was given.
        path: PathBuf,
        /// The line, from 1; 0 when the file as a whole is meant.
        line: usize,
    },
    /// An environment variable.
    Variable {
        /// Its full name.
        name: String,
    },
    /// A flag of `hourglass serve`.
    Flag {
        /// With its dashes.
        name: &'static str,
    },
}

impl Source {
    /// Whether both are of one layer, so that neither overrides the other.
    #[must_use]
    pub fn same_layer(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// A file cannot be read.
    Unreadable {
        /// The system's explanation.
        error: String,
    },
    /// The file is no TOML.
    Syntax {
        /// The decoder's explanation.
        message: String,
    },
    /// No such key. Its value is not shown: what is unknown may be a secret.
    UnknownKey {
        /// Its dotted name.
        key: String,
        /// The known key that it resembles.
        nearest: Option<String>,
    },
    /// No such variable.
    UnknownVariable {
        /// The variable that it resembles.
        nearest: Option<String>,
    },
    /// A section's name with something else than a section behind it.
    NotASection {
        /// The section.
        section: String,
    },
    /// A value that its key cannot have.
    Invalid {
        /// The dotted name.
        key: &'static str,
        /// The value, fit to be shown.
        value: String,
        /// What is wrong with it.
        fault: Fault,
        /// What the key accepts, with its bounds.
        expected: String,
    },
    /// The file that `store.uri_file` names is of no use.
    UriFile {
        /// The file's name, fit to be shown.
        file: String,
        /// Why; never shows what the file holds.
        fault: Fault,
    },
    /// Both `store.uri` and `store.uri_file` in one layer.
    TwoUris,
    /// A value that must not be below another one.
    Below {
        /// The key that is too small, and its value.
        low: (&'static str, String),
        /// The key that it must at least equal, and its value.
        floor: (&'static str, String),
    },
    /// A key that is of no use without another one.
    Needs {
        /// The key that is set.
        key: &'static str,
        /// The key that is not.
        needed: &'static str,
    },
}

/// What is wrong with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Another type of TOML value.
    WrongType,
    /// Below or above the bounds.
    OutOfBounds,
    /// Not all digits.
    NotWhole,
    /// No duration, or no size.
    Unit(UnitError),
    /// Nothing where something is needed.
    Empty,
    /// No address and port.
    NotAnAddress,
    /// No origin as a browser writes it.
    NotAnOrigin,
    /// None of the words that the key accepts.
    UnknownWord,
    /// No store that there is.
    UnknownStore,
    /// One directive of a log level is not understood.
    LogDirective {
        /// The directive, fit to be shown.
        directive: String,
    },
    /// The file cannot be read.
    Unreadable {
        /// The system's explanation.
        error: String,
    },
}

/// The text as a problem may repeat it: without credentials, quoted, and not too long.
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
        write!(f, "{}: {}", self.source, self.reason)
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Source {
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { error } => write!(f, "cannot be read: {error}"),
            Self::Syntax { message } => write!(f, "not valid TOML: {message}"),
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown key {key}")?;
                write_nearest(f, nearest.as_deref())
            }
            Self::UnknownVariable { nearest } => {
                f.write_str("names no key")?;
                write_nearest(f, nearest.as_deref())
            }
            Self::NotASection { section } => write!(f, "{section} is a section, written [{section}]"),
            Self::Invalid { key, value, fault, expected } => {
                write!(f, "{key} = {value}: {fault}; expected {expected}")
            }
            Self::UriFile { file, fault } => write!(f, "store.uri_file = {file}: {fault}"),
            Self::TwoUris => f.write_str("store.uri and store.uri_file are both set; keep one of them"),
            Self::Below { low, floor } => {
                write!(f, "{} = {} must not be below {} = {}", low.0, low.1, floor.0, floor.1)
            }
            Self::Needs { key, needed } => write!(f, "{key} needs {needed}, which is not set"),
        }
    }
}

fn write_nearest(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType => f.write_str("wrong type"),
            Self::OutOfBounds => f.write_str("out of bounds"),
            Self::NotWhole => f.write_str("not a whole number"),
            Self::Unit(error) => error.fmt(f),
            Self::Empty => f.write_str("empty"),
            Self::NotAnAddress => f.write_str("not an address and port"),
            Self::NotAnOrigin => f.write_str("not a scheme and a host in lower case, such as https://example.org"),
            Self::UnknownWord => f.write_str("unknown word"),
            Self::UnknownStore => f.write_str("unknown store"),
            Self::LogDirective { directive } => write!(f, "{directive} is not understood"),
            Self::Unreadable { error } => write!(f, "cannot be read: {error}"),
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
        let file = |line| Source::File { path: "a.toml".into(), line };
        let variable = Source::Variable { name: "HOURGLASS_PAGE__MAX_BYTES".into() };
        let ordered = [Source::Default, file(2), file(10), variable, Source::Flag { name: "--listen" }];
        assert!(ordered.is_sorted());
        assert!(file(2).same_layer(&file(10)) && !file(2).same_layer(&Source::Default));
    }
}
