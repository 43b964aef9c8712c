//! `[[mqtt]]`: the brokers whose messages are stored.

use std::path::PathBuf;

use serde::Deserialize;

use crate::mapping::TopicFilter;

/// Maximum number of topics of an entry.
const TOPICS_MAX: usize = 64;

/// An entry of `[[mqtt]]`: a subscription at a broker.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MqttSettings {
    pub url: BrokerUrl,
    /// The name of the session at the broker.
    pub client_id: String,
    pub topics: Vec<TopicFilter>,
    /// The QoS of all topics: 0 or 1.
    #[serde(default = "at_least_once")]
    pub qos: u8,
    /// The names of the mappings. The first one that takes a topic reads its messages.
    pub mappings: Vec<String>,
    #[serde(default = "default_database")]
    pub database: String,
    #[serde(default)]
    pub version: MqttVersion,
    pub user: Option<String>,
    pub password_file: Option<PathBuf>,
    /// The authorities of the broker's certificate, as PEM. Without it, those of web browsers.
    pub ca_file: Option<PathBuf>,
    /// The client certificate, as PEM.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    /// A token whose rights and quotas apply to the messages.
    pub token_file: Option<PathBuf>,
}

/// The version of the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum MqttVersion {
    #[serde(rename = "3.1.1")]
    V3,
    #[default]
    #[serde(rename = "5")]
    V5,
}

/// The address of a broker: `mqtt://HOST[:PORT]`, or `mqtts://HOST[:PORT]` with TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct BrokerUrl {
    pub host: String,
    pub port: u16,
    pub has_tls: bool,
}

impl TryFrom<String> for BrokerUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // Do not show the text, because it may have a password.
        let invalid = || "url: expected mqtt://HOST:PORT, or mqtts://HOST:PORT for TLS".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let (has_tls, default_port) = match scheme {
            "mqtt" => (false, 1883),
            "mqtts" => (true, 8883),
            _ => return Err(invalid()),
        };
        if rest.contains('@') {
            return Err("url has a user or password: set user and password_file instead".to_owned());
        }
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| invalid())?),
            _ => (rest, default_port),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 || host.contains(['/', '?', '#', ' ', '[', ']']) {
            return Err(invalid());
        }
        Ok(Self { host: host.to_owned(), port, has_tls })
    }
}

fn at_least_once() -> u8 {
    1
}

fn default_database() -> String {
    "default".to_owned()
}

/// Checks the entries.
///
/// # Errors
/// The first problem, with its key.
pub(super) fn check(entries: &[MqttSettings]) -> Result<(), String> {
    for (index, entry) in entries.iter().enumerate() {
        let refuse = |problem: &str| Err(format!("[[mqtt]] {:?}: {problem}", entry.client_id));
        if entry.client_id.is_empty() || entry.client_id.len() > 128 {
            return refuse("client_id needs 1 to 128 bytes: set a name that no other client of the broker has");
        }
        if entry.topics.is_empty() || entry.topics.len() > TOPICS_MAX {
            return refuse("topics needs 1 to 64 topic filters, such as \"tele/+/SENSOR\"");
        }
        if entry.mappings.is_empty() {
            return refuse("mappings is empty: name at least one mapping");
        }
        if entry.qos > 1 {
            return refuse("qos must be 0 or 1; with 1, every dated message is stored once");
        }
        if entry.database.is_empty() || entry.database.len() > 64 || entry.database.chars().any(char::is_control) {
            return refuse("database needs 1 to 64 bytes without control characters");
        }
        if entry.password_file.is_some() && entry.user.is_none() {
            return refuse("password_file needs user");
        }
        if entry.cert_file.is_some() != entry.key_file.is_some() {
            return refuse("cert_file and key_file need each other");
        }
        if !entry.url.has_tls && (entry.ca_file.is_some() || entry.cert_file.is_some()) {
            return refuse("ca_file and cert_file need a url with mqtts://");
        }
        if entries[..index].iter().any(|other| other.url == entry.url && other.client_id == entry.client_id) {
            return refuse("client_id has two entries for one broker: give each a client_id of its own");
        }
    }
    Ok(())
}
