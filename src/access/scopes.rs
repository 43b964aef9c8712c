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
}

impl Scopes {
    #[must_use]
    pub fn may_write(&self, database: &str) -> bool {
        matches_any(&self.write, database) || matches_any(&self.admin, database)
    }

    #[must_use]
    pub fn may_read(&self, database: &str) -> bool {
        matches_any(&self.read, database) || matches_any(&self.admin, database)
    }

    /// Returns true if the token may delete from a database or drop it.
    #[must_use]
    pub fn may_manage(&self, database: &str) -> bool {
        // A drop also removes sensors that the pins exclude, so a token with pins must not manage databases.
        self.pins.is_empty() && matches_any(&self.admin, database)
    }

    /// Returns true if the token may manage some database.
    #[must_use]
    pub fn may_manage_some(&self) -> bool {
        self.pins.is_empty() && !self.admin.is_empty()
    }

    /// Returns true if the token may run operations on the whole service.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.pins.is_empty() && self.admin.iter().any(|glob| glob == "*")
    }

    /// Returns true if the token may read metrics and the status of the service.
    #[must_use]
    pub fn may_observe(&self) -> bool {
        self.metrics || self.is_admin()
    }

    /// Returns true if the token allows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.read.is_empty() && self.admin.is_empty() && !self.metrics
    }
}

fn matches_any(globs: &[String], name: &str) -> bool {
    // A retention policy is a database of its own, named `database/policy`. Access to the database includes it.
    let owner = name.split_once('/').map(|(owner, _)| owner);
    globs.iter().any(|glob| matches(glob, name) || owner.is_some_and(|owner| matches(glob, owner)))
}

/// Returns true if a text is a valid glob. `*` matches any characters and `?` one; no other character is special.
#[must_use]
pub fn is_glob(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && !text.chars().any(char::is_control)
}

/// Returns true if a glob matches a name. The time is at most proportional to the product of their lengths.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
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
            Some(wanted) if *wanted == '?' || *wanted == name[n] => {
                g += 1;
                n += 1;
            }
            _ => {
                // Backtrack: let the last `*` match one more character.
                let Some((position, end)) = star else { return false };
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
        ];
        for (glob, name, is_match) in cases {
            assert_eq!(matches(glob, name), is_match, "{glob} {name}");
        }
    }

    #[test]
    fn admin_includes_all_other_scopes() {
        let list = |glob: &str| vec![glob.to_owned()];
        let admin = Scopes { admin: list("a*"), ..Scopes::default() };
        assert!(admin.may_write("ab") && admin.may_read("ab") && admin.may_manage("ab"));
        assert!(!admin.may_read("b") && !admin.is_admin() && !admin.may_observe());
        let all = Scopes { write: list("*"), read: list("*"), ..Scopes::default() };
        assert!(!all.may_manage("x") && !all.is_admin() && !all.may_observe());
        assert!(Scopes { admin: list("*"), ..Scopes::default() }.may_observe());
        assert!(Scopes::default().is_empty());
    }
}
