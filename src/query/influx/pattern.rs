//! The regular expressions of a statement, compiled once. InfluxDB's are Go's RE2; the crate `regex` has the same
//! syntax and the same promise of linear time.

use std::collections::HashMap;

use regex::Regex;

/// By their text.
#[derive(Debug, Default)]
pub struct Patterns(HashMap<String, Regex>);

/// Bytes that one compiled pattern may take.
const SIZE_MAX: usize = 1 << 20;

/// A pattern compiled, or why it cannot be.
///
/// # Errors
/// What is wrong with it.
pub fn compile(pattern: &str) -> Result<Regex, regex::Error> {
    regex::RegexBuilder::new(pattern).size_limit(SIZE_MAX).build()
}

impl Patterns {
    /// Compiles all patterns in these texts; one that cannot be compiled was refused by the parser.
    pub fn add(&mut self, pattern: &str) {
        if !self.0.contains_key(pattern)
            && let Ok(regex) = compile(pattern)
        {
            self.0.insert(pattern.to_owned(), regex);
        }
    }

    /// Whether a text matches.
    #[must_use]
    pub fn matches(&self, pattern: &str, text: &str) -> bool {
        match self.0.get(pattern) {
            Some(regex) => regex.is_match(text),
            None => compile(pattern).is_ok_and(|regex| regex.is_match(text)),
        }
    }
}
