//! The kinds of sensors, for clients that read the store without hourglass.

use std::sync::Arc;

/// All declared kinds, in the order of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindRules(Arc<[KindRule]>);

/// One declared kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KindRule {
    /// The kind's name, as it appears in metadata.
    pub name: Box<str>,
    /// The measurement whose sensors are of this kind, unless their metadata names another one.
    pub measurement: Option<Box<str>>,
    /// True if documents of this kind have an index.
    pub has_index: bool,
}

impl KindRules {
    /// The rules, which have different names.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = KindRule>) -> Self {
        Self(rules.into_iter().collect())
    }

    /// Returns true if there are no kinds.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of kinds whose documents have an index.
    pub fn indexed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|rule| rule.has_index).map(|rule| &*rule.name)
    }

    /// Returns the kind of a sensor: the one that its metadata names, or else the first one of its measurement.
    #[must_use]
    pub fn kind_of(&self, measurement: &str, named: Option<&str>) -> Option<&str> {
        let is_kind = |rule: &&KindRule| match named {
            Some(name) => *rule.name == *name,
            None => rule.measurement.as_deref() == Some(measurement),
        };
        self.0.iter().find(is_kind).map(|rule| &*rule.name)
    }
}
