//! Groups of sensors, such as those of one site or one gateway: the declared rules, and the group values of a sensor.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::meta::{META_PREFIX, Meta, json_text};
use super::settings::owner;
use crate::reading::Sensor;

/// The declared groups, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupRules(Arc<[GroupRule]>);

/// One declared grouping, such as `site`. Sensors with the same value form a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRule {
    /// The group's name: letters, digits, `_` and `-`.
    pub name: Box<str>,
    /// The source of the value: the name of a tag, or `meta.` and a path in metadata. A tag takes precedence.
    pub source: Box<str>,
    /// The database in which it is declared; `None` for all.
    pub database: Option<Box<str>>,
}

/// The result of an update of group documents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupUpdateProgress {
    /// The number of sensors that were examined.
    pub sensors: u64,
    /// The number of group documents that were written or removed.
    pub documents: u64,
    /// The number of known sensors that are still to be processed.
    pub left: u64,
    /// True if more sensors remain that only a walk over all sensors finds.
    pub is_incomplete: bool,
}

impl GroupRules {
    /// The rules, ordered by name. If two rules with the same name apply to a database, the one that names the database
    /// takes precedence.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = GroupRule>) -> Self {
        let mut rules: Vec<GroupRule> = rules.into_iter().collect();
        rules.sort_by(|one, other| (&one.name, one.database.is_none()).cmp(&(&other.name, other.database.is_none())));
        Self(rules.into())
    }

    /// Returns true if no group is declared anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The groups of a database, each name once.
    #[must_use]
    pub fn for_database(&self, database: &str) -> Vec<&GroupRule> {
        let applies = |rule: &&GroupRule| rule.database.as_deref().is_none_or(|name| name == owner(database));
        let mut rules: Vec<&GroupRule> = self.0.iter().filter(applies).collect();
        rules.dedup_by(|later, kept| later.name == kept.name);
        rules
    }
}

impl GroupRule {
    /// The sensor's groups, in order: several if its metadata is an array, none if it has no value.
    #[must_use]
    pub fn values<'a>(&self, sensor: &'a Sensor, meta: &'a Meta) -> Vec<Cow<'a, str>> {
        let source = self.source.strip_prefix(META_PREFIX);
        let mut values = match sensor.tag(&self.source) {
            Some(tag) => vec![Cow::Borrowed(tag)],
            None => match source.and_then(|path| meta.text(path)) {
                Some(json) if json.starts_with('[') => match source.and_then(|path| meta.at(path)) {
                    Some(Value::Array(items)) => items.iter().map(|item| Cow::Owned(json_text(item))).collect(),
                    _ => vec![json],
                },
                found => found.into_iter().collect(),
            },
        };
        values.retain(|value| !value.is_empty());
        values.sort_unstable();
        values.dedup();
        values
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn rule(name: &str, source: &str, database: Option<&str>) -> GroupRule {
        GroupRule { name: name.into(), source: source.into(), database: database.map(Into::into) }
    }

    #[test]
    fn the_rule_that_names_the_database_counts() {
        let rules = GroupRules::new([
            rule("site", "meta.site", None),
            rule("gateway", "gw", Some("plant")),
            rule("site", "site", Some("plant")),
        ]);
        let sources = |database: &str| {
            rules.for_database(database).iter().map(|rule| rule.source.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(sources("plant"), ["gw", "site"]);
        assert_eq!(sources("other"), ["meta.site"]);
        assert!(GroupRules::default().is_empty() && GroupRules::default().for_database("plant").is_empty());
    }

    #[test]
    fn a_tag_takes_precedence_over_metadata() {
        let meta = |json: &str| Meta::change(1, false, [("site".into(), Some(Arc::from(json)))]);
        let tagged = Sensor::new("m", [("meta.site", "roof"), ("gw", "g1")]).unwrap();
        let plain = Sensor::new("m", [("s", "1")]).unwrap();
        let site = rule("site", "meta.site", None);
        let of = |rule: &GroupRule, sensor: &Sensor, json: &str| {
            rule.values(sensor, &meta(json)).into_iter().map(Cow::into_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&site, &tagged, "\"lab\""), ["roof"]);
        assert_eq!(of(&site, &plain, "\"lab\""), ["lab"]);
        assert_eq!(of(&site, &plain, "3"), ["3"]);
        assert!(of(&site, &plain, "\"\"").is_empty());
        assert_eq!(of(&site, &plain, r#"["b","a",7,"b",""]"#), ["7", "a", "b"]);
        assert_eq!(of(&site, &plain, r#""[text]""#), ["[text]"]);
        let nested = rule("site", "meta.site.name", None);
        assert_eq!(of(&nested, &plain, r#"{"name":"lab"}"#), ["lab"]);
        assert_eq!(of(&nested, &plain, r#"{"name":["a","b"]}"#), ["a", "b"]);
        assert!(of(&nested, &plain, r#"{"floor":3}"#).is_empty());
        let gateway = rule("gateway", "gw", None);
        assert_eq!(of(&gateway, &tagged, "1"), ["g1"]);
        assert!(of(&gateway, &plain, "1").is_empty());
    }
}
