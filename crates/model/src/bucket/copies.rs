//! Rules for copying sensors' metadata into pages and days. With a copy, one document answers a query that would need a
//! join otherwise (MongoDB's Extended Reference pattern).

use std::sync::Arc;

use super::settings::owner;
use crate::reading::Hour;

/// All rules of copied metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyRules(Arc<[CopyRule]>);

/// The rule for one metadata name that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRule {
    /// The metadata name.
    pub name: Box<str>,
    /// The database in which it is copied; `None` for all.
    pub database: Option<Box<str>>,
    /// True if the copies have an index.
    pub has_index: bool,
}

impl CopyRules {
    /// The rules, ordered by name, so that copies of equal metadata are equal.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = CopyRule>) -> Self {
        let mut rules: Vec<CopyRule> = rules.into_iter().collect();
        rules.sort_by(|one, other| one.name.cmp(&other.name));
        Self(rules.into())
    }

    /// Returns true if nothing is copied anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names that are copied in a database, in order.
    #[must_use]
    pub fn names<'a>(&'a self, database: &'a str) -> Vec<&'a str> {
        let mut names: Vec<&str> = self.applying(database).map(|rule| &*rule.name).collect();
        names.dedup();
        names
    }

    /// The names whose copies have an index in a database.
    pub fn indexed<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a str> {
        self.applying(database).filter(|rule| rule.has_index).map(|rule| &*rule.name)
    }

    fn applying<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a CopyRule> {
        let applies = |rule: &&CopyRule| rule.database.as_deref().is_none_or(|name| name == owner(database));
        self.0.iter().filter(applies)
    }
}

/// The documents that a refresh examines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyScope {
    /// Pages and parts of days that begin in this hour or later.
    Since(Hour),
    /// All pages and parts. Afterwards the sensor's document is marked as having current copies.
    All,
}

/// The result of a refresh.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyRefreshProgress {
    /// The number of changed pages and parts of days.
    pub documents: u64,
    /// True if the refresh is complete. Otherwise repeat the call to continue.
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_apply_to_their_database() {
        let rule = |name: &str, database: Option<&str>| CopyRule {
            name: name.into(),
            database: database.map(Into::into),
            has_index: false,
        };
        let rules = CopyRules::new([rule("site", None), rule("owner", Some("plant")), rule("site", Some("plant"))]);
        assert_eq!(rules.names("plant"), ["owner", "site"]);
        assert_eq!(rules.names("other"), ["site"]);
        assert!(rules.names("plant").len() == 2 && CopyRules::default().names("plant").is_empty());
    }
}
