//! The kinds of sensors, for clients that read the store without hourglass.

use std::sync::Arc;

use serde_json::Value;

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
    /// The rules of documents of this kind.
    pub checks: KindChecks,
}

/// The rules of a kind that the store holds other writers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindChecks {
    /// True if the kind rejects what violates it.
    pub rejects: bool,
    /// The JSON schema of metadata.
    pub meta: Option<Value>,
    /// The JSON schema of readings.
    pub fields: Option<Value>,
    /// Metadata paths whose value at most one sensor of the kind has.
    pub unique: Vec<Box<str>>,
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

    /// Iterates over all kinds.
    pub fn all(&self) -> impl Iterator<Item = &KindRule> {
        self.0.iter()
    }

    /// Returns true if the store may refuse documents because of their kind.
    #[must_use]
    pub fn have_checks(&self) -> bool {
        let has_checks =
            |checks: &KindChecks| checks.meta.is_some() || checks.fields.is_some() || !checks.unique.is_empty();
        self.all().any(|rule| rule.checks.rejects && has_checks(&rule.checks))
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
