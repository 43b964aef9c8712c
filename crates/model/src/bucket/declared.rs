//! Indexes that the configuration declares, for clients that read the store without hourglass.

use std::sync::Arc;

use super::settings::owner;

/// All declared indexes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexRules(Arc<[IndexRule]>);

/// One declared index. It may apply to several collections, with one index in each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRule {
    /// The indexed data.
    pub target: IndexTarget,
    /// The database in which it is declared; `None` for all.
    pub database: Option<Box<str>>,
}

/// The data that an index covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexTarget {
    /// A metadata name that is copied into pages and days.
    Copy(Box<str>),
    /// The sensors of one kind.
    Kind {
        /// The kind's name, as it appears in metadata.
        name: Box<str>,
        /// The measurement whose sensors are of this kind.
        measurement: Option<Box<str>>,
    },
}

impl IndexRules {
    /// A set of these rules.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = IndexRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// The rules that apply to a database.
    pub fn for_database<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a IndexTarget> {
        let applies = |rule: &&IndexRule| rule.database.as_deref().is_none_or(|name| name == owner(database));
        self.0.iter().filter(applies).map(|rule| &rule.target)
    }
}
