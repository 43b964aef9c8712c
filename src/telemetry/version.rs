//! The version of this binary with what it was built from.

use std::sync::LazyLock;

/// The commit, if the build set `BUILD_COMMIT`, as `deploy/release` does; else empty.
pub const COMMIT: &str = match option_env!("BUILD_COMMIT") {
    Some(commit) => commit,
    None => "",
};
/// `debug` with debug assertions, else `release`.
pub const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Returns the version with commit, profile and features.
#[must_use]
pub fn long() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let commit = if COMMIT.is_empty() { String::new() } else { format!("commit {COMMIT}, ") };
        let features = if cfg!(feature = "faults") { ", faults" } else { "" };
        format!("{} ({commit}{PROFILE}{features})", env!("CARGO_PKG_VERSION"))
    });
    &TEXT
}
