//! The types of values, and values that are derived from several settings. `keys.rs` has the settings themselves.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Deserialize;

use super::Settings;
use super::keys::{LimitsSettings, PageSettings};
use crate::bucket::Caps;
use crate::reading::Limits;

impl Settings {
    /// Returns the folder of the WAL.
    #[must_use]
    pub fn wal_dir(&self) -> PathBuf {
        if self.wal.dir.as_os_str().is_empty() { self.server.data_dir.join("log") } else { self.wal.dir.clone() }
    }

    /// Returns the folder of readings that the store rejects permanently.
    #[must_use]
    pub fn dead_letters_dir(&self) -> PathBuf {
        self.server.data_dir.join("dead-letters")
    }

    /// Returns the folder of rejected lines.
    #[must_use]
    pub fn rejections_dir(&self) -> PathBuf {
        self.server.data_dir.join("rejections")
    }

    /// Returns the first listener for readings or queries that other machines can reach, because its address is not
    /// loopback.
    #[must_use]
    pub fn exposed_address(&self) -> Option<SocketAddr> {
        // An IPv4 address mapped to IPv6, such as ::ffff:127.0.0.1, counts as the IPv4 address.
        let is_exposed = |listen: &SocketAddr| !listen.ip().to_canonical().is_loopback();
        [self.server.listen, self.tls.listen, self.tcp.listen].into_iter().flatten().find(is_exposed)
    }

    /// Returns the key and the address of each listener that is set.
    #[must_use]
    pub fn listeners(&self) -> Vec<(&'static str, SocketAddr)> {
        let listeners = [
            ("server.listen", self.server.listen),
            ("tls.listen", self.tls.listen),
            ("tcp.listen", self.tcp.listen),
            ("status.listen", self.status.listen),
            ("cluster.listen", self.cluster.listen),
        ];
        listeners.into_iter().filter_map(|(key, address)| Some((key, address?))).collect()
    }

    /// Returns the address at which other machines reach hourglass, or else this machine. `resolve.rs` ensures that
    /// there is one.
    #[must_use]
    pub fn front(&self) -> SocketAddr {
        let front = self.exposed_address().or(self.server.listen).or(self.tls.listen);
        front.unwrap_or_else(|| ([127, 0, 0, 1], 0).into())
    }

    /// Returns the maximum lifetime of a token in seconds, if it is limited.
    #[must_use]
    pub fn max_lifetime(&self) -> Option<i64> {
        i64::try_from(self.auth.max_lifetime.as_secs()).ok().filter(|seconds| *seconds > 0)
    }

    /// Returns true if the first start creates a token.
    #[must_use]
    pub fn makes_first_token(&self) -> bool {
        self.auth.first_token || !self.auth.first_token_file.as_os_str().is_empty()
    }

    /// Returns the limits of pages.
    #[must_use]
    pub fn caps(&self) -> Caps {
        let PageSettings { max_readings, max_bytes, hard_bytes } = self.page;
        Caps { max_readings, max_bytes, hard_bytes }
    }

    /// Returns the limits that the parsers enforce.
    #[must_use]
    pub fn reading_limits(&self) -> Limits {
        let LimitsSettings { line_bytes, tags, fields, name_bytes, .. } = self.limits;
        Limits { line_bytes, tags, fields, name_bytes }
    }
}

/// An entry of `[[meta.copy]]`: a metadata key that is copied into pages and days.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySettings {
    pub name: String,
    /// Create an index on it.
    #[serde(default)]
    pub index: bool,
    /// The database, or `None` for all.
    pub database: Option<String>,
}

/// An entry of `[[groups]]`: groups of sensors with the same value of a tag or metadata key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    pub name: String,
    /// A tag, or metadata with the prefix `meta.`.
    pub by: String,
    /// The database, or `None` for all.
    pub database: Option<String>,
}

/// The requests that need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthRequired {
    /// All requests, if other machines can reach hourglass or if any token exists.
    Auto,
    /// All requests.
    Always,
}

/// The treatment of a timestamp that seems to be in another unit than the default one, if no unit was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeclaredUnit {
    /// It is rejected.
    Refuse,
    /// It is kept, with a warning.
    Warn,
}

/// The form of senders' addresses that are kept and logged with rejected lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownAddresses {
    /// The whole address.
    Full,
    /// The network only: /24, or /64 for IPv6.
    Masked,
    /// Nothing.
    Off,
}

/// The guarantee of an ack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckLevel {
    /// The readings are synced to the WAL.
    Log,
    /// The readings are in the store.
    Store,
}

impl AckLevel {
    /// Returns the name of the level in the configuration, in `?ack=` and in `X-Hourglass-Ack`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Store => "store",
        }
    }

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Log, Self::Store].into_iter().find(|level| level.name() == name)
    }
}

/// The treatment of client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuth {
    /// hourglass does not ask for one.
    Off,
    /// A client may connect without one, but a certificate that it presents must be valid.
    Optional,
    /// Every client must present a valid one.
    Required,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text if stderr is a terminal, JSON otherwise.
    Auto,
    /// One line of text.
    Text,
    /// One JSON object per line.
    Json,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::StoreUri;

    #[test]
    fn only_loopback_is_not_exposed() {
        let mut settings = Settings::default();
        let cases = [
            ("127.0.0.1:8086", false),
            ("127.9.9.9:1", false),
            ("[::1]:8086", false),
            ("[::ffff:127.0.0.1]:8086", false),
            ("0.0.0.0:8086", true),
            ("[::]:8086", true),
            ("192.168.0.7:8086", true),
            ("[::ffff:10.0.0.1]:8086", true),
        ];
        for (listen, exposed) in cases {
            settings.server.listen = Some(listen.parse().unwrap());
            assert_eq!(settings.exposed_address().is_some(), exposed, "{listen}");
        }
        let mut settings = Settings::default();
        settings.tcp.listen = Some(([0, 0, 0, 0], 1).into());
        assert!(settings.exposed_address().is_some());
    }

    #[test]
    fn the_default_limits_of_parsers_and_configuration_are_equal() {
        let config = Settings::default().reading_limits();
        assert_eq!(format!("{:?}", Limits::default()), format!("{config:?}"));
    }

    #[test]
    fn debug_hides_the_stores_credentials() {
        let mut settings = Settings::default();
        settings.store.uri = StoreUri::parse("mongodb://user:pw@host/db").unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("mongodb://***@host/db") && !shown.contains("user:pw"), "{shown}");
    }
}
