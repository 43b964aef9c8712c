//! What is wrong with a configuration, as data; displayed as one line that says where, what and what would be right. No
//! line shows credentials.

use std::fmt;
use std::path::PathBuf;

use super::redact_uri;
use super::units::SizeFault;
use crate::reading::duration::DurationFault;

/// Maximum number of characters of a value that a line quotes.
const VALUE_CHARS_MAX: usize = 120;

/// A problem of the configuration, because of which hourglass does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where the value, or the unknown key, comes from.
    pub source: ConfigSource,
    pub reason: ProblemReason,
}

/// Where a value comes from. Sources are ordered like the layers: a greater source overrides a lesser one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigSource {
    /// The default, which `keys.rs` states.
    Default,
    /// The file given by `--config`.
    File {
        /// As given on the command line.
        path: PathBuf,
        /// Counted from 1; 0 for the file as a whole.
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

impl ConfigSource {
    /// Whether both belong to the same layer, so that neither overrides the other.
    #[must_use]
    pub fn same_layer(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemReason {
    /// The file cannot be read.
    Unreadable {
        /// The operating system's message.
        error: String,
    },
    /// The file is not valid TOML.
    Syntax {
        /// The parser's message.
        message: String,
    },
    /// A list of tables, such as `[[meta.copy]]`, is not as it must be.
    List {
        /// What is wrong.
        message: String,
    },
    /// An unknown key. Its value is not shown, because it may be a secret.
    UnknownKey {
        /// The dotted name.
        key: String,
        /// The known key that it resembles.
        nearest: Option<String>,
    },
    /// A variable that names no key.
    UnknownVariable {
        /// The variable that it resembles.
        nearest: Option<String>,
    },
    /// The name of a section, used as a key.
    NotASection { section: String },
    /// A value that the key does not accept.
    Invalid {
        /// The dotted name.
        key: &'static str,
        /// By [`show_text`].
        value: String,
        fault: ValueFault,
        /// What the key accepts, with its bounds.
        expected: String,
    },
    /// The file that `store.uri_file` names is unusable.
    UriFile {
        /// By [`show_text`].
        file: String,
        /// Never shows the file's content.
        fault: ValueFault,
    },
    /// One layer sets both `store.uri` and `store.uri_file`.
    TwoUris,
    /// A value that must not be below that of another key.
    Below {
        /// The key that is too small, and its value.
        low: (&'static str, String),
        /// The key that is its lower bound, and its value.
        floor: (&'static str, String),
    },
    /// A key has no effect without another key.
    Needs {
        /// The key that is set.
        key: &'static str,
        /// The key that is missing.
        needed: &'static str,
    },
    /// Two listeners cannot share an address.
    SameAddress {
        /// The later key.
        key: &'static str,
        /// The earlier key.
        other: &'static str,
        address: String,
    },
    /// Neither HTTP nor HTTPS is served.
    NoListener,
    /// User or password of the store's URI are not escaped.
    Unescaped,
}

/// What is wrong with one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueFault {
    /// A TOML value of another type.
    WrongType,
    OutOfBounds,
    /// Not all digits.
    NotWhole,
    /// Not a duration, or not a size.
    Duration(DurationFault),
    Size(SizeFault),
    /// Empty, where a value is required.
    Empty,
    /// Not an IP address and port.
    NotAnAddress,
    /// Not an origin as a browser writes it.
    NotAnOrigin,
    /// Not a host name.
    NotAHost,
    /// Not an IP address or network.
    NotANetwork,
    /// None of the words that the key accepts.
    UnknownWord,
    UnknownStore,
    /// One directive of a log level is invalid.
    LogDirective {
        /// By [`show_text`].
        directive: String,
    },
    /// The file cannot be read.
    Unreadable {
        /// The operating system's message.
        error: String,
    },
}

/// The text as an error message may quote it: without credentials, in quotation marks, and shortened.
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

impl fmt::Display for ProblemReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { error } => write!(f, "cannot be read: {error}"),
            Self::Syntax { message } => write!(f, "not valid TOML: {message}"),
            Self::List { message } => f.write_str(message),
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
                write!(f, "{} ({}) must be at least {} ({})", low.0, low.1, floor.0, floor.1)
            }
            Self::Needs { key, needed } => write!(f, "{key} needs {needed}, which is not set"),
            Self::SameAddress { key, other, address } => {
                write!(f, "{key} = {address}: the port is that of {other}; give each listener a port of its own")
            }
            Self::NoListener => f.write_str(
                "server.listen is empty, which switches plain HTTP off, and tls.listen is not set: set one of them",
            ),
            Self::Unescaped => {
                f.write_str("store.uri: user or password contain one of @ / : ? #; write %40 %2F %3A %3F %23 instead")
            }
        }
    }
}

fn write_nearest(f: &mut fmt::Formatter<'_>, nearest: Option<&str>) -> fmt::Result {
    nearest.map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
}

impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType => f.write_str("wrong type"),
            Self::OutOfBounds => f.write_str("out of bounds"),
            Self::NotWhole => f.write_str("not a whole number"),
            Self::Duration(fault) => fault.fmt(f),
            Self::Size(fault) => fault.fmt(f),
            Self::Empty => f.write_str("empty"),
            Self::NotAnAddress => f.write_str("not an address and port"),
            Self::NotAnOrigin => f.write_str("not a scheme and a host in lower case, such as https://example.org"),
            Self::NotAHost => f.write_str("not a host name without a port, such as hourglass.example.org"),
            Self::NotANetwork => {
                f.write_str("not IP addresses or networks such as 10.0.0.0/8, whose other bits are zero")
            }
            Self::UnknownWord => f.write_str("not one of the allowed words"),
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
        let file = |line| ConfigSource::File { path: "a.toml".into(), line };
        let variable = ConfigSource::Variable { name: "HOURGLASS_WAL_DIR".into() };
        let ordered = [ConfigSource::Default, file(2), file(10), variable, ConfigSource::Flag { name: "--listen" }];
        assert!(ordered.is_sorted());
        assert!(file(2).same_layer(&file(10)) && !file(2).same_layer(&ConfigSource::Default));
    }
}
