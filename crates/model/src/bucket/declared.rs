//! Indexes that the configuration declares, for those who read the store without hourglass.

use std::sync::Arc;

use super::settings::owner;

/// What there are to be indexes of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexRules(Arc<[IndexRule]>);

/// One declared index, which may be one in each of several collections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRule {
    /// What is indexed.
    pub of: IndexOf,
    /// The database in which it is declared; `None` for all.
    pub database: Option<Box<str>>,
}

/// What an index serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexOf {
    /// A name of metadata that is copied into pages and days.
    Copy(Box<str>),
    /// A kind of sensors.
    Kind {
        /// The kind's name, which metadata may name.
        name: Box<str>,
        /// The measurement whose sensors are of this kind.
        measurement: Option<Box<str>>,
    },
}

impl IndexRules {
    /// These rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = IndexRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules that apply to a database.
    pub fn of<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a IndexOf> {
        let applies = |rule: &&IndexRule| rule.database.as_deref().is_none_or(|name| name == owner(database));
        self.0.iter().filter(applies).map(|rule| &rule.of)
    }
}
