//! Makes [`Settings`] from the layers: takes the value of the highest layer, divides the memory, and checks relations
//! between keys.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::keys::{self, RetentionSettings, Settings};
use super::layers::Layers;
use super::memory::divide_memory;
use super::problem::{ConfigSource, Problem, show_text};
use super::settings::ClientAuth;
use super::store_uri::StoreUri;
use super::units::show_size;
use super::value::{EMPTY, Kind, OUT_OF_BOUNDS, UNKNOWN_STORE};
use crate::reading::duration::show_duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Validates the values of all layers, including overridden ones, so that the validity of a file does not depend on the
/// environment. The settings may be used only if there are no problems.
pub fn resolve(layers: &Layers, machine: Option<usize>, problems: &mut Vec<Problem>) -> Settings {
    let mut reader = KeyReader { layers, problems };
    let mut settings = keys::read(&mut reader, &layers.lists);
    settings.store.uri = reader.store(&settings);
    divide_memory(&mut settings, machine);
    reader.check_relations(&settings);
    settings
}

/// Reads keys from the layers and collects problems.
pub struct KeyReader<'a> {
    layers: &'a Layers,
    problems: &'a mut Vec<Problem>,
}

impl KeyReader<'_> {
    /// Reads one key. If a value is invalid, returns that of the lower layer, so that other keys can be checked.
    pub fn read<T>(&mut self, key: &'static str, kind: &Kind<T>) -> T {
        let mut read = None;
        for entry in self.layers.entries(key) {
            match (kind.parse)(&entry.value) {
                Ok(value) => read = Some(value),
                Err(fault) => self.note_invalid(&entry.source, key, &entry.value.show(), &fault, &kind.expected),
            }
        }
        read.unwrap_or_else(|| panic!("the default of {key} is invalid: {:?}", self.problems))
    }

    /// Returns the store of `store.uri` or `store.uri_file`, depending on the higher layer.
    fn store(&mut self, settings: &Settings) -> StoreUri {
        let uri = settings.store.uri.clone();
        let file = &settings.store.uri_file;
        let uri_source = self.layers.source("store.uri");
        let file_source = self.layers.source("store.uri_file");
        let one_layer = uri_source.same_layer(file_source);
        if file.as_os_str().is_empty() || (!one_layer && uri_source > file_source) {
            return uri;
        }
        let message = if one_layer && !uri.is_embedded() {
            "store.uri and store.uri_file are both set; keep one of them".to_owned()
        } else {
            match read_uri_file(file) {
                Ok(uri) => return uri,
                // `show_text`, because the value may be a URI with credentials in place of a path.
                Err(fault) => format!("store.uri_file = {}: {fault}", show_text(&file.to_string_lossy())),
            }
        };
        self.problems.push(Problem::new(file_source.clone(), message));
        uri
    }

    /// Checks relations between keys whose values are valid on their own.
    fn check_relations(&mut self, settings: &Settings) {
        let Settings { ingest, wal, limits, .. } = settings;
        let sizes = [
            // A body and its parsed readings are in memory at the same time.
            ("ingest.bytes_in_flight", ingest.bytes_in_flight, "limits.body_bytes", limits.body_bytes),
            ("wal.budget_bytes", wal.budget_bytes, "wal.segment_bytes", wal.segment_bytes),
        ];
        for (low, room, floor, floor_bytes) in sizes {
            let half = room / 2;
            if half < floor_bytes && self.are_valid(&[low, floor]) {
                self.note_below(low, &format!("half of it is {}", show_size(half)), floor, &show_size(floor_bytes));
            }
        }
        self.check_retention(&settings.retention);
        self.check_needs(settings);
        self.check_listeners(settings);
        if settings.store.uri.is_unescaped() && self.are_valid(&["store.uri"]) {
            let message = "store.uri: user or password contain one of @ / : ? #; write %40 %2F %3A %3F %23 instead";
            self.note_at(&["store.uri", "store.uri_file"], message);
        }
    }

    /// Checks retention by the rules of `PATCH /api/v1/databases/NAME`. If readings are unlimited, summaries can still be
    /// limited, because a database may limit its own readings.
    fn check_retention(&mut self, retention: &RetentionSettings) {
        let RetentionSettings { readings, summaries, .. } = retention;
        for (key, kept) in [("retention.readings", *readings), ("retention.summaries", *summaries)] {
            if !kept.is_zero() && kept < HOUR {
                let expected = "0s, or a duration of at least 1h";
                self.note_invalid(self.layers.source(key), key, &show_duration(kept), OUT_OF_BOUNDS, expected);
            }
        }
        let low = "retention.summaries";
        let floor = "retention.readings";
        if !summaries.is_zero() && summaries < readings && self.are_valid(&[low, floor]) {
            self.note_below(low, &show_duration(*summaries), floor, &show_duration(*readings));
        }
    }

    /// Reports listeners with the same port.
    fn check_listeners(&mut self, settings: &Settings) {
        let listeners = settings.listeners();
        for (index, (key, address)) in listeners.iter().enumerate() {
            let has_same_port = |other: &SocketAddr| {
                let is_wildcard = address.ip().is_unspecified() || other.ip().is_unspecified();
                address.port() != 0 && address.port() == other.port() && (is_wildcard || address.ip() == other.ip())
            };
            if let Some((other, _)) = listeners[..index].iter().find(|(_, other)| has_same_port(other))
                && self.are_valid(&[key, other])
            {
                let message =
                    format!("{key} = {address}: the port is that of {other}; give each listener a port of its own");
                self.note_at(&[key, other], message);
            }
        }
    }

    /// Checks keys that require other keys.
    fn check_needs(&mut self, settings: &Settings) {
        let Settings { tls, tcp, .. } = settings;
        let speaks_tls = [("tls.listen", tls.listen.is_some()), ("tcp.tls", tcp.tls)];
        let files = [("tls.cert_file", &tls.cert_file), ("tls.key_file", &tls.key_file)];
        if settings.server.listen.is_none() && tls.listen.is_none() && self.are_valid(&["server.listen", "tls.listen"])
        {
            let message =
                "server.listen is empty, which switches plain HTTP off, and tls.listen is not set: set one of them";
            self.note_at(&["server.listen", "tls.listen"], message);
        }
        let mut needs = Vec::new();
        for (key, _) in speaks_tls.into_iter().filter(|(_, speaks)| *speaks) {
            needs.extend(files.map(|(file, path)| (key, file, path)));
        }
        if tls.client_auth != ClientAuth::Off {
            needs.push(("tls.client_auth", "tls.client_ca_file", &tls.client_ca_file));
        }
        let cluster = &settings.cluster;
        if cluster.listen.is_some() {
            needs.push(("cluster.listen", "cluster.token_file", &cluster.token_file));
        }
        if cluster.listen.is_some_and(|listen| !listen.ip().to_canonical().is_loopback()) {
            needs.push(("cluster.listen", "cluster.ca_file", &cluster.ca_file));
        }
        if !cluster.ca_file.as_os_str().is_empty() {
            needs.extend(files.map(|(file, path)| ("cluster.ca_file", file, path)));
        }
        let unset = needs.into_iter().filter(|(.., path)| path.as_os_str().is_empty());
        let mut unmet: Vec<_> = unset.map(|(key, needed, _)| (key, needed)).collect();
        // Without client certificates, revocation lists have no effect.
        if !tls.client_crl_file.as_os_str().is_empty() && tls.client_auth == ClientAuth::Off {
            unmet.push(("tls.client_crl_file", "tls.client_auth"));
        }
        if cluster.listen.is_some() && settings.store.uri.is_embedded() {
            unmet.push(("cluster.listen", "store.uri"));
        }
        for (key, needed) in unmet {
            if self.are_valid(&[key, needed]) {
                self.note_at(&[key], format!("{key} needs {needed}, which is not set"));
            }
        }
    }

    /// Reports that the value of the key `low` must be at least that of the key `floor`.
    fn note_below(&mut self, low: &str, low_value: &str, floor: &str, floor_value: &str) {
        let message = format!("{low} ({low_value}) must be at least {floor} ({floor_value})");
        self.note_at(&[low, floor], message);
    }

    /// Reports a problem at the highest source of the keys, because the lower layers were consistent without it.
    fn note_at(&mut self, keys: &[&str], message: impl Into<String>) {
        let source = keys.iter().map(|key| self.layers.source(key)).max().unwrap_or(&ConfigSource::Default);
        self.problems.push(Problem::new(source.clone(), message));
    }

    fn note_invalid(&mut self, source: &ConfigSource, key: &'static str, value: &str, fault: &str, expected: &str) {
        let message = format!("{key} = {value}: {fault}; expected {expected}");
        self.problems.push(Problem { source: source.clone(), key: Some(key), message });
    }

    fn are_valid(&self, keys: &[&str]) -> bool {
        let concerns_keys = |problem: &Problem| problem.key.is_some_and(|key| keys.contains(&key));
        !self.layers.is_cut_off && !self.problems.iter().any(concerns_keys)
    }
}

/// Reads the file of `store.uri_file`. An error never shows its content.
fn read_uri_file(path: &Path) -> Result<StoreUri, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    match text.trim() {
        "" => Err(EMPTY.to_owned()),
        uri => StoreUri::parse(uri).ok_or(UNKNOWN_STORE.to_owned()),
    }
}
