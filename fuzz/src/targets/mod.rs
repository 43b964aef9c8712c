//! One fuzz target for each kind of input from outside, with its seeds.

pub mod body;
pub mod documents;
pub mod http;
pub mod influxql;
pub mod json;
pub mod lines;
pub mod log;
pub mod mapping;
pub mod mqtt;
pub mod names;
pub mod push;
pub mod tcp;

mod seeds;

/// A target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name on the command line.
    pub name: &'static str,
    /// Panics if a property does not hold.
    pub check: fn(&[u8]),
    /// The initial inputs of mutation.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words that mutation inserts.
    pub words: &'static [&'static str],
}

pub const ALL: [Target; 12] = [
    Target { name: "lines", check: lines::check, seeds: seeds::lines, words: seeds::LINES },
    Target { name: "json", check: json::check, seeds: seeds::json, words: seeds::JSON },
    Target { name: "mapping", check: mapping::check, seeds: seeds::mapping, words: seeds::MAPPING },
    Target { name: "push", check: push::check, seeds: push::seeds, words: &[] },
    Target { name: "mqtt", check: mqtt::check, seeds: mqtt::seeds, words: &[] },
    Target { name: "body", check: body::check, seeds: seeds::body, words: seeds::LINES },
    Target { name: "http", check: http::check, seeds: seeds::http, words: seeds::HTTP },
    Target { name: "tcp", check: tcp::check, seeds: seeds::tcp, words: seeds::LINES },
    Target { name: "log", check: log::check, seeds: seeds::log, words: &[] },
    Target { name: "influxql", check: influxql::check, seeds: seeds::influxql, words: seeds::INFLUXQL },
    Target { name: "names", check: names::check, seeds: seeds::names, words: seeds::NAMES },
    Target { name: "documents", check: documents::check, seeds: seeds::documents, words: seeds::NAMES },
];
