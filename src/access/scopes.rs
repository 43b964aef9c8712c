//! The scopes of a token: databases by glob patterns, and required tag values of sensors.

use serde::{Deserialize, Serialize};

use crate::reading::Sensor;

/// A required tag value of every sensor that the token writes or reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub key: String,
    pub value: String,
}

impl Pin {
    /// Returns true if the sensor has the tag with this value.
    #[must_use]
    pub fn matches(&self, sensor: &Sensor) -> bool {
        sensor.tag(&self.key) == Some(&*self.value)
    }
}

/// The only database and mapping that a token may write through. Such a token may stand in the path of a webhook, where
/// others can read it, so it allows nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestScope {
    /// The name of the mapping.
    pub mapping: String,
    /// The name of the database. No other one and no pattern.
    pub database: String,
}

/// The permissions of a token. The lists have glob patterns of database names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scopes {
    #[serde(default)]
    pub write: Vec<String>,
    #[serde(default)]
    pub read: Vec<String>,
    /// Databases that the token may write, read, delete from, create and drop. The glob `*` also allows operations on
    /// the whole service.
    #[serde(default)]
    pub admin: Vec<String>,
    /// Allows reading metrics and the service's status.
    #[serde(default)]
    pub metrics: bool,
    /// Restricts the token to sensors with these tags.
    #[serde(default)]
    pub pins: Vec<Pin>,
    /// Restricts the token to one mapping. The lists above are empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestScope>,
}

impl Scopes {
    /// Returns true if the token allows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { write, read, admin, metrics, pins: _, ingest } = self;
        write.is_empty() && read.is_empty() && admin.is_empty() && !metrics && ingest.is_none()
    }
}

/// Returns true if one of the globs matches the name of a database, or the database of a policy.
pub(super) fn matches_any(globs: &[String], name: &str) -> bool {
    // A retention policy is a database of its own, named `database/policy`. Access to the database includes it.
    let owner = name.split_once('/').map(|(owner, _)| owner);
    globs.iter().any(|glob| matches(glob, name) || owner.is_some_and(|owner| matches(glob, owner)))
}

/// Returns true if a text is a valid glob. `*` matches any characters except `/`, and `?` one; no other character is
/// special.
#[must_use]
pub fn is_glob(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && !text.chars().any(char::is_control)
}

/// Returns true if a glob matches a name. A wildcard does not match the slash of `database/policy`: `*_lab` must not
/// match a policy `foo_lab` of another database. The time is at most proportional to the product of the lengths.
fn matches(glob: &str, name: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let mut g = 0;
    let mut n = 0;
    // The position of the last `*`, and the end of its match so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some('*') => {
                star = Some((g, n));
                g += 1;
            }
            Some(wanted) if *wanted == name[n] || (*wanted == '?' && name[n] != '/') => {
                g += 1;
                n += 1;
            }
            _ => {
                // Backtrack: let the last `*` match one more character.
                let Some((position, end)) = star.filter(|(_, end)| name[*end] != '/') else { return false };
                star = Some((position, end + 1));
                g = position + 1;
                n = end + 1;
            }
        }
    }
    glob[g..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names() {
        let cases = [
            ("climate", "climate", true),
            ("climate", "climate2", false),
            ("climate_*", "climate_a", true),
            ("climate_*", "climate_", true),
            ("climate_*", "climate", false),
            ("*", "", true),
            ("*", "anything", true),
            ("?", "é", true),
            ("?", "", false),
            ("a*b*c", "a--b--bc", true),
            ("a*b*c", "a--b--cd", false),
            ("[a]", "a", false),
            ("*_lab", "x_lab_lab", true),
            ("*_lab", "dbb/foo_lab", false),
            ("b?foo_lab", "b/foo_lab", false),
            ("b/*", "b/foo_lab", true),
            ("*/foo_lab", "b/foo_lab", true),
        ];
        for (glob, name, is_match) in cases {
            assert_eq!(matches(glob, name), is_match, "{glob} {name}");
        }
    }
}
