//! MQTT topic filters, as section 4.7 of MQTT 5 defines them.

use serde::{Deserialize, Serialize};

/// Maximum length of a filter: a string of MQTT.
const FILTER_BYTES_MAX: usize = 65_535;

/// A topic filter such as `tele/+/SENSOR` or `zigbee2mqtt/#`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TopicFilter(String);

impl TopicFilter {
    /// The text of the filter.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the filter matches a topic. A wildcard at its start does not match a topic that begins with `$`.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        if topic.starts_with('$') && self.0.starts_with(['+', '#']) {
            return false;
        }
        let mut levels = topic.split('/');
        for expected in self.0.split('/') {
            // `sport/#` also matches `sport`.
            if expected == "#" {
                return true;
            }
            match levels.next() {
                Some(level) if expected == "+" || expected == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }

    /// The number of levels that every matching topic has.
    pub(crate) fn levels(&self) -> usize {
        self.0.split('/').filter(|level| *level != "#").count()
    }
}

impl TryFrom<String> for TopicFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let invalid = |why: &str| Err(format!("topic filter {text:?} {why}"));
        if text.is_empty() || text.len() > FILTER_BYTES_MAX || text.contains('\0') {
            return invalid("must have 1 to 65535 bytes and no NUL");
        }
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains(['+', '#']) && level.len() > 1 {
                return invalid("must have '+' and '#' as whole levels");
            }
            if level == "#" && levels.peek().is_some() {
                return invalid("must end after '#'");
            }
        }
        Ok(Self(text))
    }
}

impl From<TopicFilter> for String {
    fn from(filter: TopicFilter) -> Self {
        filter.0
    }
}
