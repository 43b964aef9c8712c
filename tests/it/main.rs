//! The integration tests, all in one binary. A new case is data where it can be, not a new harness.
//!
//! | module | covers |
//! |---|---|
//! | `line_protocol`, `json` | the wire formats: tables of cases, the public corpus, properties |
//! | `store_contract` | one suite that both stores pass |
//! | `access` | rights: every route with every kind of token, pins, quotas, the audit log, `hourglass token` |
//! | `backup` | digests, backups, restores, copies: under load, killed, damaged; on both stores |
//! | `bounds` | sizes of documents, connections to MongoDB, no joins |
//! | `api` | every endpoint as clients see it: statuses, bodies, headers, limits |
//! | `lawful` | random traffic against a plain map, on both stores: late, duplicate, overwriting, overflowing, restarted |
//! | `broken_world` | the store paused, killed or missing; bad clients; stops under load |
//! | `proof` | acked readings survive kills, faults of a replica set and of the network, two instances, outages, full disks |
//! | `push` | Prometheus remote write from a real Prometheus, OTLP from a real exporter; their statuses, hostile bodies |
//! | `edge` | connections: limits, slow clients, smuggling, TLS, HTTP/2, decompression bombs, CORS |
//! | `tcp` | line protocol over plain TCP |
//! | `clients` | unmodified clients: `influxdb-client`, `influxdb`, the `influx` shell |
//! | `shares` | limits that tenants share, filled by one of them |
//! | `hostile` | hostile clients: names, numbers, depth, length, floods, frames |
//! | `influxql` | `/query` beside a real InfluxDB 1.x: the same readings, the same statements, the same answers |
//! | `command_line` | flags, configuration, banner, exit statuses |
//! | `in_out` | `write`, `import`, `export`, `query`, `tail`: round trips, kills, a real InfluxDB |
//! | `demo` | the simulated factory: history, live readings, faults, cleanup |
//! | `deploy` | names in `deploy/` exist; a real Prometheus finds series for its dashboards and alerts |
//! | `deletion` | deletions against a plain map, with kills at every step, races and two instances |
//! | `sealing` | sealed days answer like hour pages: a twin without sealing, late data, deletions, kills; the decoder in Python |
//! | `space` | compaction of the embedded file during writes and kills; MongoDB's `compact` |
//! | `lanes` | what blocks one lane stops no other; each endpoint runs in its own |
//! | `stalls` | slow work delays nobody else: unwritable documents, long deletions |
//! | `accounting` | the counters of readings balance at every scrape, through outages and kills |
//! | `sums` | sums are exact in any order, rounded once, and equal to Python's fractions |
//! | `memory` | an hour of a fast sensor in 128 MiB, on both stores |
//! | `many` | queries of many sensors against a plain map; listings |
//! | `meta` | metadata of sensors: kept through kills, deletions and two instances; queries by it |
//! | `mappings` | docs/reference/mappings.md: a message of each built-in mapping, and its document in MongoDB |
//! | `mqtt` | messages of a real mosquitto: stored once through kills, rejected without a wedge, TLS, two instances |
//! | `groups` | groups of sensors on both stores; their documents in MongoDB through moves, kills and two instances |
//! | `indexes` | declared indexes on a real mongod: created, used by their queries, dropped |
//! | `patterns` | docs/patterns on a real mongod and in `mongosh` |
//! | `oracle` | random questions over all stored forms against a model in Python |
//! | `drift` | values of another type: rejected, or kept beside their field and converted; kills at every step |
//! | `native` | calendars, percentiles, functions, thinning and parts of the native API, against plain models |
//! | `metrics` | the content of `/metrics`, also checked by `promtool` |
//! | `page` | the page in a real Chromium: views, hostile names, snippets, streams |
//! | `readme` | snippets of README and `docs/` work; links resolve; README is short |
//! | `verify` | `hourglass verify`: every kind of damage is found, named, and repaired if possible |
//! | `versions` | data of other versions: newer data is waited for, data from before version 1 stops the start; days of version 1 migrate |
//! | `tidy` | dependencies between rooms, and other rules about the sources |
#![allow(clippy::unwrap_used, missing_docs)]

#[macro_use]
mod support;

mod access;
mod accounting;
mod api;
mod backup;
mod bounds;
mod broken_world;
mod clients;
mod cluster;
mod command_line;
mod deletion;
mod demo;
mod deploy;
mod drift;
mod edge;
mod groups;
mod histogram;
mod hostile;
mod in_out;
mod indexes;
mod influxql;
mod json;
mod kinds;
mod lanes;
mod lawful;
mod line_protocol;
mod many;
mod mappings;
mod memory;
mod meta;
mod meta_copies;
mod metrics;
mod mqtt;
mod native;
mod oracle;
mod page;
mod patterns;
mod proof;
mod push;
mod readme;
mod rename;
mod retention;
mod sealing;
mod shares;
mod space;
mod stalls;
mod store_contract;
mod sums;
mod tcp;
mod tidy;
mod verify;
mod versions;
