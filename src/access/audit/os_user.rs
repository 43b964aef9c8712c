//! Who runs this process, by the operating system: for records of changes made by command.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

/// What `/proc/self/loginuid` says where nobody logged in.
const NOBODY_LOGGED_IN: u32 = u32::MAX;

/// The user of this process. Variables of the environment are not asked, since anybody can set them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OsUser {
    /// The name, or the number where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Who logged in, if it is another user: `sudo` does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
}

impl OsUser {
    /// Both are unknown where the system has no `/proc`.
    #[must_use]
    pub fn current() -> Self {
        let uid = fs::metadata("/proc/self").ok().map(|meta| meta.uid());
        let login = fs::read_to_string("/proc/self/loginuid").ok().and_then(|text| text.trim().parse().ok());
        let login = login.filter(|login| *login != NOBODY_LOGGED_IN && Some(*login) != uid);
        Self { user: uid.map(name_of), login: login.map(name_of) }
    }
}

fn name_of(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}
