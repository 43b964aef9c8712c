//! From the layers to [`Settings`]: the values of the highest layers, the shares of the memory, and the relations between keys.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::keys::{self, RetentionSettings, Settings};
use super::layers::Layers;
use super::memory::{MemoryShares, default_memory};
use super::problem::{Problem, ProblemReason, ValueFault, show_text};
use super::settings::ClientAuth;
use super::store_uri::StoreUri;
use super::units::show_size;
use super::value::{AUTO, Kind};
use crate::reading::duration::show_duration;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Validates every layer's value of every key, including overridden ones, so that whether a file is valid does not
/// depend on the environment. The settings may be used only if there is no problem.
pub fn resolve(layers: &Layers, machine: Option<usize>, problems: &mut Vec<Problem>) -> Settings {
    let mut reader = KeyReader { layers, problems };
    let mut settings = keys::read(&mut reader, &layers.lists);
    settings.store.uri = reader.store(&settings);
    divide_memory(&mut settings, machine);
    reader.check_relations(&settings);
    settings
}

/// Gives each key that is "auto" its share of the memory.
fn divide_memory(settings: &mut Settings, machine: Option<usize>) {
    fn fill(value: &mut usize, share: usize) {
        if *value == AUTO {
            *value = share;
        }
    }
    let Settings { server, memtable, catalog, ingest, limits, wal, query, embedded, .. } = settings;
    fill(&mut server.memory, default_memory(machine));
    let shares = MemoryShares::of(server.memory);
    fill(&mut memtable.max_bytes, shares.memtable);
    fill(&mut catalog.max_bytes, shares.catalog);
    fill(&mut wal.queue_bytes, shares.queue);
    fill(&mut embedded.cache_bytes, shares.embedded);
    fill(&mut server.connections, shares.connections);
    fill(&mut server.connections_per_address, shares.per_address.min(server.connections));
    // Where only one of two related keys is set, the other follows it.
    let body_set = if limits.body_bytes == AUTO { 0 } else { limits.body_bytes };
    fill(&mut ingest.bytes_in_flight, shares.in_flight.max(2 * body_set));
    fill(&mut limits.body_bytes, shares.body.min(ingest.bytes_in_flight / 2));
    let request_set = if query.request_bytes == AUTO { 0 } else { query.request_bytes };
    fill(&mut query.bytes, shares.queries.max(request_set));
    fill(&mut query.request_bytes, shares.request.min(query.bytes));
    fill(&mut query.token_bytes, shares.token.min(query.bytes));
    fill(&mut query.cache_bytes, shares.summaries);
}

/// Reads keys from the layers and collects problems.
pub struct KeyReader<'a> {
    layers: &'a Layers,
    problems: &'a mut Vec<Problem>,
}

impl KeyReader<'_> {
    /// Reads one key. An invalid value leaves the lower layer's value in effect, so that the other keys can be checked.
    pub fn read<T>(&mut self, key: &'static str, kind: &Kind<T>) -> T {
        let mut read = None;
        for entry in self.layers.entries(key) {
            match (kind.parse)(&entry.value) {
                Ok(value) => read = Some(value),
                Err(fault) => {
                    let (value, expected) = (entry.value.show(), kind.expected.clone());
                    let reason = ProblemReason::Invalid { key, value, fault, expected };
                    self.problems.push(Problem { source: entry.source.clone(), reason });
                }
            }
        }
        read.unwrap_or_else(|| panic!("the default of {key} is invalid: {:?}", self.problems))
    }

    /// Returns the store of `store.uri` or of `store.uri_file`, whichever a higher layer sets.
    fn store(&mut self, settings: &Settings) -> StoreUri {
        let uri = settings.store.uri.clone();
        let file = &settings.store.uri_file;
        let uri_source = self.layers.source("store.uri");
        let file_source = self.layers.source("store.uri_file");
        let one_layer = uri_source.same_layer(file_source);
        if file.as_os_str().is_empty() || (!one_layer && uri_source > file_source) {
            return uri;
        }
        let reason = if one_layer && !uri.is_embedded() {
            ProblemReason::TwoUris
        } else {
            match read_uri_file(file) {
                Ok(uri) => return uri,
                // `show_text`, because the value may be a URI with credentials in place of a path.
                Err(fault) => ProblemReason::UriFile { file: show_text(&file.to_string_lossy()), fault },
            }
        };
        self.problems.push(Problem { source: file_source.clone(), reason });
        uri
    }

    /// Checks relations between keys, but only where both values are valid on their own.
    fn check_relations(&mut self, settings: &Settings) {
        let Settings { ingest, wal, limits, query, .. } = settings;
        let sizes = [
            // A body and the readings made of it are in memory at the same time.
            ("ingest.bytes_in_flight", ingest.bytes_in_flight / 2, "limits.body_bytes", limits.body_bytes),
            ("wal.budget_bytes", wal.budget_bytes / 2, "wal.segment_bytes", wal.segment_bytes),
            ("query.bytes", query.bytes, "query.request_bytes", query.request_bytes),
        ];
        for (low, room, floor, floor_bytes) in sizes {
            if room < floor_bytes && self.are_sound(&[low, floor]) {
                let half = if low == "query.bytes" { "" } else { "half of it is " };
                self.note_below((low, format!("{half}{}", show_size(room))), (floor, show_size(floor_bytes)));
            }
        }
        self.check_retention(&settings.retention);
        self.check_needs(settings);
        self.check_listeners(settings);
        if settings.store.uri.is_unescaped() && self.are_sound(&["store.uri"]) {
            let source = self.layers.source("store.uri").max(self.layers.source("store.uri_file")).clone();
            self.problems.push(Problem { source, reason: ProblemReason::Unescaped });
        }
    }

    /// Reports what `PUT /api/v1/databases/NAME` refuses, too. Summaries may be kept shorter than readings that nothing limits: a
    /// database may limit its own.
    fn check_retention(&mut self, RetentionSettings { readings, summaries, .. }: &RetentionSettings) {
        for (key, kept) in [("retention.readings", *readings), ("retention.summaries", *summaries)] {
            if !kept.is_zero() && kept < HOUR {
                let (source, value) = (self.layers.source(key).clone(), show_duration(kept));
                let (fault, expected) = (ValueFault::OutOfBounds, "0s, or a duration of at least 1h".to_owned());
                self.problems.push(Problem { source, reason: ProblemReason::Invalid { key, value, fault, expected } });
            }
        }
        let (low, floor) = ("retention.summaries", "retention.readings");
        if !summaries.is_zero() && summaries < readings && self.are_sound(&[low, floor]) {
            self.note_below((low, show_duration(*summaries)), (floor, show_duration(*readings)));
        }
    }

    /// Reports listeners that would take each other's port.
    fn check_listeners(&mut self, settings: &Settings) {
        let listeners = [
            ("server.listen", settings.server.listen),
            ("tls.listen", settings.tls.listen),
            ("tcp.listen", settings.tcp.listen),
            ("status.listen", settings.status.listen),
        ];
        let set: Vec<(&'static str, SocketAddr)> =
            listeners.into_iter().filter_map(|(key, address)| Some((key, address?))).collect();
        for (place, (key, address)) in set.iter().enumerate() {
            let clashes = |(_, other): &&(&'static str, SocketAddr)| {
                let any = address.ip().is_unspecified() || other.ip().is_unspecified();
                address.port() != 0 && address.port() == other.port() && (any || address.ip() == other.ip())
            };
            if let Some((other, _)) = set[..place].iter().find(clashes)
                && self.are_sound(&[key, other])
            {
                let source = self.layers.source(key).max(self.layers.source(other)).clone();
                let reason = ProblemReason::SameAddress { key, other, address: address.to_string() };
                self.problems.push(Problem { source, reason });
            }
        }
    }

    /// Checks keys that require other keys.
    fn check_needs(&mut self, settings: &Settings) {
        let Settings { tls, tcp, .. } = settings;
        let speaks_tls = [("tls.listen", tls.listen.is_some()), ("tcp.tls", tcp.tls)];
        let files = [("tls.cert_file", &tls.cert_file), ("tls.key_file", &tls.key_file)];
        if settings.server.listen.is_none() && tls.listen.is_none() && self.are_sound(&["server.listen", "tls.listen"])
        {
            let source = self.layers.source("server.listen").max(self.layers.source("tls.listen")).clone();
            self.problems.push(Problem { source, reason: ProblemReason::NoListener });
        }
        let mut needs = Vec::new();
        for (key, _) in speaks_tls.into_iter().filter(|(_, speaks)| *speaks) {
            needs.extend(files.map(|(file, path)| (key, file, path)));
        }
        if tls.client_auth != ClientAuth::Off {
            needs.push(("tls.client_auth", "tls.client_ca_file", &tls.client_ca_file));
        }
        let unset = needs.into_iter().filter(|(.., path)| path.as_os_str().is_empty());
        let mut unmet: Vec<_> = unset.map(|(key, needed, _)| (key, needed)).collect();
        // Revocation lists of nobody's authorities would protect nothing.
        if !tls.client_crl_file.as_os_str().is_empty() && tls.client_auth == ClientAuth::Off {
            unmet.push(("tls.client_crl_file", "tls.client_auth"));
        }
        for (key, needed) in unmet {
            if self.are_sound(&[key, needed]) {
                let source = self.layers.source(key).clone();
                self.problems.push(Problem { source, reason: ProblemReason::Needs { key, needed } });
            }
        }
    }

    /// Reports the problem at the higher of the two sources: the lower layers were consistent without it.
    fn note_below(&mut self, low: (&'static str, String), floor: (&'static str, String)) {
        let source = self.layers.source(low.0).max(self.layers.source(floor.0)).clone();
        self.problems.push(Problem { source, reason: ProblemReason::Below { low, floor } });
    }

    fn are_sound(&self, keys: &[&str]) -> bool {
        let is_blamed =
            |problem: &Problem| matches!(problem.reason, ProblemReason::Invalid { key, .. } if keys.contains(&key));
        !self.layers.torn && !self.problems.iter().any(is_blamed)
    }
}

fn read_uri_file(path: &Path) -> Result<StoreUri, ValueFault> {
    let text = std::fs::read_to_string(path).map_err(|error| ValueFault::Unreadable { error: error.to_string() })?;
    match text.trim() {
        "" => Err(ValueFault::Empty),
        uri => StoreUri::parse(uri).ok_or(ValueFault::UnknownStore),
    }
}
