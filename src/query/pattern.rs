//! The regular expressions of a request, each compiled once and within bounds.
//!
//! InfluxDB uses Go's RE2. The crate `regex` has the same syntax and also guarantees linear time. A pattern that only
//! lists texts becomes a set. Grafana writes variables with several values like that.

use std::collections::{HashMap, HashSet};

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{AssertionKind, Ast, GroupKind};

use crate::query::options::PATTERNS_MAX;
use crate::query::{Budget, HeldBytes, QueryError};

/// Maximum bytes of all compiled patterns of a request.
const BYTES_MAX: usize = 2 << 20;
/// Maximum bytes of a pattern that is not a list.
const PATTERN_BYTES_MAX: usize = 4 << 10;
/// Bytes of memory per byte of a list.
const LIST_BYTES: usize = 16;
/// Bytes of the syntax tree per byte of a pattern, while it is parsed.
const TREE_BYTES: usize = 128;
/// Bytes per byte of a pattern while it is compiled: `\w` alone becomes 7 KB of ranges.
const RANGE_BYTES: usize = 4 << 10;
/// Maximum bytes of the lazy DFA's cache of one pattern.
const CACHE_MAX: usize = 256 << 10;

/// A compiled pattern.
#[derive(Debug)]
enum Pattern {
    /// `^(a|b|c)$`: exactly one of these texts.
    List(HashSet<String>),
    Regex(Regex),
}

impl Pattern {
    fn matches(&self, text: &str) -> bool {
        match self {
            Self::List(texts) => texts.contains(text),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// Describes the syntax error of a pattern, without compiling it. Returns `None` for a valid pattern. A pattern that is
/// too long for this is judged by [`Patterns::compile`].
#[must_use]
pub fn fault(pattern: &str) -> Option<String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return None;
    }
    regex_syntax::parse(pattern).err().map(|error| error.to_string())
}

/// Compiled patterns by their text.
#[derive(Debug, Default)]
pub struct Patterns {
    by_text: HashMap<String, Pattern>,
    _held: Option<HeldBytes>,
}

impl Patterns {
    /// Compiles each text once, but counts each occurrence, because each is evaluated. `budget` is `None` for the statement of a logged deletion, which was within bounds when
    /// it was accepted.
    ///
    /// # Errors
    /// If there are too many, or one is too large.
    pub fn compile<'a>(texts: impl IntoIterator<Item = &'a str>, budget: Option<&Budget>) -> Result<Self, QueryError> {
        let mut held = budget.map(|budget| budget.hold(0)).transpose()?;
        let mut hold = |bytes: usize| held.as_mut().map_or(Ok(()), |held| held.grow(bytes));
        let for_a_moment = |bytes: usize| budget.map(|budget| budget.hold(bytes)).transpose();
        let mut patterns = HashMap::new();
        let mut others: Vec<&str> = Vec::new();
        for text in texts {
            hold(text.len() * LIST_BYTES)?;
            let _tree = for_a_moment(text.len() * TREE_BYTES)?;
            match list(text) {
                Some(texts) => drop(patterns.insert(text.to_owned(), Pattern::List(texts))),
                None if text.len() > PATTERN_BYTES_MAX => {
                    let detail = format!("a pattern that is no list has at most {PATTERN_BYTES_MAX} bytes");
                    return Err(QueryError::Pattern { detail });
                }
                None => others.push(text),
            }
            if others.len() > PATTERNS_MAX {
                return Err(QueryError::TooManyPatterns);
            }
        }
        hold(others.len() * CACHE_MAX + if others.is_empty() { 0 } else { BYTES_MAX })?;
        let share = BYTES_MAX / others.len().max(1);
        for text in others {
            let _ranges = for_a_moment(text.len() * RANGE_BYTES)?;
            let regex = RegexBuilder::new(text).size_limit(share).dfa_size_limit(CACHE_MAX).build();
            let regex = regex.map_err(|error| QueryError::Pattern { detail: error.to_string() })?;
            patterns.insert(text.to_owned(), Pattern::Regex(regex));
        }
        Ok(Self { by_text: patterns, _held: held })
    }

    /// Returns true if `text` matches, and false if `pattern` was not compiled.
    #[must_use]
    pub fn matches(&self, pattern: &str, text: &str) -> bool {
        self.by_text.get(pattern).is_some_and(|pattern| pattern.matches(text))
    }
}

/// Returns the texts of a pattern that only lists texts and is anchored at both ends.
fn list(pattern: &str) -> Option<HashSet<String>> {
    let within = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let parsed = regex_syntax::ast::parse::Parser::new().parse(pattern).ok()?;
    let Ast::Concat(parts) = &parsed else { return None };
    let is = |ast: &Ast, kind: AssertionKind| matches!(ast, Ast::Assertion(assertion) if assertion.kind == kind);
    let [first, middle @ .., last] = &*parts.asts else { return None };
    if !is(first, AssertionKind::StartLine) || !is(last, AssertionKind::EndLine) {
        return None;
    }
    let [Ast::Group(group)] = middle else {
        // `^text$`, without a group.
        return (!within.is_empty()).then(|| text(middle)).flatten().map(|text| HashSet::from([text]));
    };
    if matches!(&group.kind, GroupKind::NonCapturing(flags) if !flags.items.is_empty()) {
        return None;
    }
    match &*group.ast {
        Ast::Alternation(alternatives) => alternatives.asts.iter().map(|ast| text(std::slice::from_ref(ast))).collect(),
        one => Some(HashSet::from([text(std::slice::from_ref(one))?])),
    }
}

/// Returns the text of these parts if they are all literal.
fn text(parts: &[Ast]) -> Option<String> {
    let mut found = String::new();
    for part in parts {
        match part {
            Ast::Literal(literal) => found.push(literal.c),
            Ast::Empty(_) => {}
            Ast::Concat(parts) => found += &text(&parts.asts)?,
            _ => return None,
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_texts_is_a_set() {
        let cases = [
            ("^(a|b\\.c|\\Qd\\E)$", None),
            ("^(a|b\\.c)$", Some(vec!["a", "b.c"])),
            ("^(?:s1|s2|)$", Some(vec!["", "s1", "s2"])),
            ("^(one)$", Some(vec!["one"])),
            ("^one$", Some(vec!["one"])),
            ("^(a|b.c)$", None),
            ("^(a|b)", None),
            ("^(a|b)$|x$", None),
            ("(?i)^(a|b)$", None),
            ("^(?i:a|b)$", None),
            ("^$", None),
        ];
        for (pattern, expected) in cases {
            let found = list(pattern).map(|texts| {
                let mut texts: Vec<String> = texts.into_iter().collect();
                texts.sort();
                texts
            });
            assert_eq!(found, expected.map(|texts| texts.into_iter().map(str::to_owned).collect()), "{pattern}");
        }
    }

    /// Regression: a request of 27 KB had 1,300 patterns, which took 1.3 GB.
    #[test]
    fn patterns_are_few_and_small() {
        let many: Vec<String> = (0..=PATTERNS_MAX).map(|number| format!("x{number}.*")).collect();
        assert!(matches!(Patterns::compile(many.iter().map(String::as_str), None), Err(QueryError::TooManyPatterns)));
        assert!(Patterns::compile(many[1..].iter().map(String::as_str), None).is_ok());
        assert!(matches!(Patterns::compile(["(\\w{100}){100}"], None), Err(QueryError::Pattern { .. })));
        let lists: Vec<String> = (0..100).map(|number| format!("^(x{number}|y)$")).collect();
        let lists = Patterns::compile(lists.iter().map(String::as_str), None).expect("lists do not count as patterns");
        assert!(lists.matches("^(x7|y)$", "x7") && !lists.matches("^(x7|y)$", "x70"));
    }
}
