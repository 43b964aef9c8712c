//! The operating system's user of this process, for records of changes by commands.

use std::fs;
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

/// The content of `/proc/self/loginuid` for a process without a login.
const NO_LOGIN: u32 = u32::MAX;

/// The user of this process. Environment variables are ignored, because any user can set them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OsUser {
    /// The user's name, or the number if there is no name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user who logged in, if it is another one. `sudo` does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
}

impl OsUser {
    /// Returns the present user. Both names are unknown on systems without `/proc`.
    #[must_use]
    pub fn current() -> Self {
        let uid = fs::metadata("/proc/self").ok().map(|meta| meta.uid());
        let login = fs::read_to_string("/proc/self/loginuid").ok().and_then(|text| text.trim().parse().ok());
        let login = login.filter(|login| *login != NO_LOGIN && Some(*login) != uid);
        Self { user: uid.map(user_name), login: login.map(user_name) }
    }
}

fn user_name(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| uid.to_string())
}
