//! The scopes of a token: databases by glob, and tag values that its sensors must have.

use serde::{Deserialize, Serialize};

use crate::reading::Sensor;

/// A tag and its only allowed value, for every sensor that the token writes or reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    pub key: String,
    pub value: String,
}

impl Pin {
    /// Whether a sensor has the tag with this value.
    #[must_use]
    pub fn matches(&self, sensor: &Sensor) -> bool {
        sensor.tag(&self.key) == Some(&*self.value)
    }
}

/// What a token may do. The lists hold globs of database names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scopes {
    #[serde(default)]
    pub write: Vec<String>,
    #[serde(default)]
    pub read: Vec<String>,
    /// Databases it may write, read, delete from, create and drop. The glob `*` also allows operations on the whole
    /// service.
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
        any(&self.write, database) || any(&self.admin, database)
    }

    #[must_use]
    pub fn may_read(&self, database: &str) -> bool {
        any(&self.read, database) || any(&self.admin, database)
    }

    /// Whether the token may delete from a database or drop it.
    #[must_use]
    pub fn may_manage(&self, database: &str) -> bool {
        // Dropping a database drops all its sensors, also those that the pins exclude.
        self.pins.is_empty() && any(&self.admin, database)
    }

    /// Whether there may be a database that the token may manage.
    #[must_use]
    pub fn may_manage_some(&self) -> bool {
        self.pins.is_empty() && !self.admin.is_empty()
    }

    /// Whether the token may run operations that concern all databases.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.pins.is_empty() && self.admin.iter().any(|glob| glob == "*")
    }

    /// Whether the token may read metrics and the service's status.
    #[must_use]
    pub fn may_observe(&self) -> bool {
        self.metrics || self.is_admin()
    }

    /// Whether the token allows nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.write.is_empty() && self.read.is_empty() && self.admin.is_empty() && !self.metrics
    }
}

fn any(globs: &[String], name: &str) -> bool {
    // A database's retention policies are databases of their own, and belong to it.
    let owner = name.split_once('/').map(|(owner, _)| owner);
    globs.iter().any(|glob| matches(glob, name) || owner.is_some_and(|owner| matches(glob, owner)))
}

/// Whether a text is a valid glob: `*` matches any characters, `?` matches one, nothing else is special.
#[must_use]
pub fn is_glob(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && !text.chars().any(char::is_control)
}

/// Whether a glob matches a name. Takes at most time proportional to the product of their lengths.
#[must_use]
pub fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut g, mut n) = (0, 0);
    // The position of the last `*`, and the end of what it matches so far.
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
                let Some((at, swallowed)) = star else { return false };
                star = Some((at, swallowed + 1));
                (g, n) = (at + 1, swallowed + 1);
            }
        }
    }
    glob[g..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_takes_what_it_says_and_nothing_else() {
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
        for (glob, name, takes) in cases {
            assert_eq!(matches(glob, name), takes, "{glob} {name}");
        }
    }

    #[test]
    fn admin_includes_the_others_and_nothing_includes_admin() {
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
