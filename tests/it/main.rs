//! The integration tests, all in one binary. A new case is data where it can be, not a new harness.
//!
//! | module | what it holds |
//! |---|---|
//! | `line_protocol`, `json` | the wire formats: tables of cases, the public corpus, properties |
//! | `store_contract` | one suite that both stores pass |
//! | `access` | who may do what: every route with every kind of token, pins, quotas, the audit log, `hourglass token` |
//! | `backup` | digests, backups, restores, copies: under load, killed, damaged; on both stores |
//! | `api` | every endpoint, by what a client sees: statuses, bodies, headers, limits |
//! | `lawful` | the law end to end, on both stores: late, duplicate, overwriting, spilling, restarted |
//! | `broken_world` | the store paused, killed or away; hanging and leaving clients; stops under load |
//! | `proof` | that an ack is kept: kills, faults of a replica set and of the network, two instances, outages, full disks |
//! | `edge` | connections: caps, who gives way, slow clients, smuggling, TLS, HTTP/2, bodies that are bombs, CORS |
//! | `tcp` | line protocol over plain TCP |
//! | `clients` | unmodified clients: `influxdb-client`, `influxdb`, the `influx` shell |
//! | `hostile` | clients that mean harm: names, numbers, depth, length, bombs, floods, frames, bytes that are no requests |
//! | `influxql` | `/query` beside a real InfluxDB 1.x: the same readings, the same statements, the same answers |
//! | `command_line` | flags, configuration, banner, exit statuses |
//! | `demo` | the simulated factory: history, live readings, faults; its folder goes, and no other |
//! | `deploy` | what `deploy/` names exists; a real Prometheus finds series for its dashboards and alerts |
//! | `deletion` | what is deleted is gone and nothing else: a plain map, kills at every step, races, two instances |
//! | `sealing` | sealed days answer as hour pages do: a twin without sealing, late data, deletions, kills; the decoder in Python |
//! | `space` | space comes back: the embedded file is compacted while writes are acked, killed at every step; MongoDB's `compact` |
//! | `stalls` | nobody waits for somebody else's work: documents that cannot be written, deletions that take long |
//! | `accounting` | every reading is accounted for at every scrape, through outages and kills |
//! | `sums` | sums of whatever arrived in whatever order are the exact ones, rounded once; Python's fractions say so too |
//! | `memory` | an hour of a fast sensor in 64 MiB, on both stores |
//! | `many` | questions about many sensors, against a plain map; what there is to ask about |
//! | `meta` | metadata of sensors: kept through kills, deletions and two instances; queries by it |
//! | `groups` | groups of sensors: what is acked on both stores; documents in MongoDB through moves, kills and two instances |
//! | `indexes` | declared indexes on a real mongod: made, used by the queries that they are shown with, dropped |
//! | `patterns` | docs/explanation/patterns.md on a real mongod: what it writes, what `mongosh` then shows |
//! | `drift` | values of another type: rejected, or kept beside their field and converted; kills at every step |
//! | `metrics` | what `/metrics` says, and `promtool`'s opinion of it |
//! | `page` | the page in a real Chromium: views, hostile names, snippets that are run; and what listeners hear |
//! | `readme` | every snippet of README and `docs/` does what it says; links lead somewhere; README is short |
//! | `verify` | `hourglass verify`: every kind of damage is found and named, and mended where it can be |
//! | `versions` | what other versions stored: what is newer is waited for, what is older than version 1 stops the start |
//! | `tidy` | the arrows between rooms, and other rules that a test can hold |
#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
mod support;

mod access;
mod accounting;
mod api;
mod backup;
mod broken_world;
mod clients;
mod command_line;
mod deletion;
mod demo;
mod deploy;
mod drift;
mod edge;
mod groups;
mod hostile;
mod indexes;
mod influxql;
mod json;
mod kinds;
mod lawful;
mod line_protocol;
mod many;
mod memory;
mod meta;
mod meta_copies;
mod metrics;
mod page;
mod patterns;
mod proof;
mod readme;
mod rename;
mod retention;
mod sealing;
mod space;
mod stalls;
mod store_contract;
mod sums;
mod tcp;
mod tidy;
mod verify;
mod versions;
