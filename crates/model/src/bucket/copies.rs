//! Which of the sensors' metadata is copied into pages and days, so that one document answers what would else take a join
//! (`MongoDB`'s Extended Reference pattern).

use std::sync::Arc;

use super::settings::owner;
use crate::reading::Hour;

/// The names of metadata that are copied, by database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyRules(Arc<[CopyRule]>);

/// One name that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRule {
    /// The name of metadata.
    pub name: Box<str>,
    /// The database in which it is copied; `None` for all.
    pub database: Option<Box<str>>,
}

impl CopyRules {
    /// Rules in the order of names, so that copies of equal metadata are equal.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = CopyRule>) -> Self {
        let mut rules: Vec<CopyRule> = rules.into_iter().collect();
        rules.sort_by(|one, other| one.name.cmp(&other.name));
        Self(rules.into())
    }

    /// Whether nothing is copied anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names that are copied in a database, in order.
    #[must_use]
    pub fn names<'a>(&'a self, database: &'a str) -> Vec<&'a str> {
        let applies = |rule: &&CopyRule| rule.database.as_deref().is_none_or(|name| name == owner(database));
        let mut names: Vec<&str> = self.0.iter().filter(applies).map(|rule| &*rule.name).collect();
        names.dedup();
        names
    }
}

/// Which documents a refresh looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyScope {
    /// Pages and parts of days that begin in this hour or later.
    Since(Hour),
    /// All of them. Afterwards the sensor's document says that they are as its metadata.
    All,
}

/// What a refresh did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopiesRefreshed {
    /// Pages and parts of days that were changed.
    pub documents: u64,
    /// Whether nothing is left to do; else the same call goes on.
    pub is_complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_of_their_database_and_its_policies() {
        let rule =
            |name: &str, database: Option<&str>| CopyRule { name: name.into(), database: database.map(Into::into) };
        let rules = CopyRules::new([rule("site", None), rule("owner", Some("plant")), rule("site", Some("plant"))]);
        assert_eq!(rules.names("plant"), ["owner", "site"]);
        assert_eq!(rules.names("other"), ["site"]);
        assert!(rules.names("plant").len() == 2 && CopyRules::default().names("plant").is_empty());
    }
}
