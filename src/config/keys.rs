//! Every key of the configuration: its meaning, type, default and bounds. `config/default.toml` and the table in
//! `docs/reference/configuration.md` are generated from this file (`UPDATE=1 cargo test --lib config`).
//!
//! A row that ends with `constant` is not a key: releases always use its default. Tests can set it like a key in builds
//! with the feature `faults`.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::bare_urls, reason = "the comments are texts of a TOML file")]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::bounds::{DAY, HOUR, MILLISECOND, MINUTE, QUOTA_MAX, SECOND, SPAN_MAX, TIB, TICK, YEAR, ZERO};
use super::lists::{self, Lists};
use super::memory::MEMORY_MIN;
use super::mqtt::MqttSettings;
use super::resolve::KeyReader;
use super::sections::Key;
use super::settings::{
    AckLevel, AuthRequired, ClientAuth, CopySettings, GroupSettings, LogFormat, ShownAddresses, UndeclaredUnit,
};
use super::store_uri::StoreUri;
use super::units::{GIB, KIB, MIB};
use super::value::{
    address, auto_count, auto_size, count, duration, flag, hosts, log_level, networks, optional_path, optional_text,
    origins, path, precision, size, store_uri, text, word,
};
use crate::bucket::SealForm;
use crate::bucket::settings::Drift;
use crate::kinds::Kinds;
use crate::reading::Precision;

sections! {
    /// The HTTP listener and the limits of connections.
    server: ServerSettings {
        /// Address of the plain HTTP listener. Empty switches it off, if tls.listen is set. Port 0 takes a free port. A
        /// port alone (8086, :8086, localhost:8086) is on 127.0.0.1. Flag: --listen.
        listen: Option<SocketAddr> = "127.0.0.1:8086", address();
        /// Folder for everything that hourglass stores on this machine, including the embedded store and, by default,
        /// the WAL. It is created if missing. A relative path is relative to the working directory. Flag: --data-dir.
        data_dir: PathBuf = "./data", path();
        /// Memory that hourglass may use in total. The program itself takes 40 MiB. Keys with the default "auto" get
        /// shares of the rest, and each can be set by itself. The start reports the shares and their sum, and warns if
        /// keys make the sum larger than this. auto: a quarter of the memory of the machine, or of the control group
        /// (container, service) if that is less, 128 to 512 MiB. Flag: --memory.
        memory: usize = "auto", auto_size(MEMORY_MIN..=TIB);
        /// Maximum number of open connections of all listeners except that of [status], which has as many of its own.
        /// At the limit, a new connection closes the one that has waited longest for its client. A connection waits for
        /// a request, the rest of a request head, a body that arrives at less than 1 KiB/s, or a client that read less
        /// than 64 KiB of an answer in a second. If no connection waits, the new one has to wait until it is accepted.
        /// auto: 4 % of server.memory at 15 KiB each, 64 to 1024.
        connections: usize = "auto", auto_count(1..=65536);
        /// Maximum number of open connections from one client address. An IPv6 /64 network counts as one address.
        /// Further connections are closed at once. Behind a proxy, all connections come from the address of the proxy:
        /// name it in trusted_proxies.
        /// auto: a quarter of server.connections.
        connections_per_address: usize = "auto", auto_count(1..=65536);
        /// Offer HTTP/2 to clients. Devices that send readings do not benefit from it.
        http2: bool = false, flag();
        /// Maximum time for a shutdown: finish requests, flush to the store, close.
        shutdown_timeout: Duration = "30s", duration(TICK..=HOUR);
        /// Host names of this service, in addition to localhost and IP addresses. They are checked for requests that
        /// need no token, and for /metrics and /api/v1/status at status.listen. A request for another name (Host,
        /// :authority) is answered with 403, because it may come from a web page whose name resolves to this machine
        /// (DNS rebinding). Any port is allowed. *.example.org stands for all names below example.org, and * for all
        /// names.
        hosts: Vec<String> = "", hosts();
        /// Proxies whose X-Forwarded-For header is trusted, such as "10.0.0.7, 192.168.4.0/24". The client of a request
        /// from a trusted proxy is the rightmost address in the header that is not a trusted proxy. It is used in the
        /// audit trail and in the log. The header is ignored in requests from other addresses. connections_per_address
        /// does not apply to trusted proxies: limit the connections of clients at the proxy.
        trusted_proxies: Vec<(IpAddr, u8)> = "", networks();
        /// Maximum time that an open connection waits for the first byte of the next request.
        idle_timeout: Duration = "75s", duration(TICK..=HOUR), constant;
        /// Maximum time for a request head to arrive, counted from its first byte.
        header_timeout: Duration = "10s", duration(TICK..=10 * MINUTE), constant;
        /// Maximum time for a request body to arrive.
        body_timeout: Duration = "30s", duration(TICK..=HOUR), constant;
    }

    /// HTTPS. An empty path stands for no file.
    tls: TlsSettings {
        /// Address of the HTTPS listener, in addition to server.listen or instead of it. Empty for none.
        listen: Option<SocketAddr> = "", address();
        /// The certificate and its intermediate certificates, as PEM. hourglass reloads this file and the next three
        /// within seconds of a change, or at once on SIGHUP. If the new files are invalid, the old certificate stays in
        /// use.
        cert_file: PathBuf = "", optional_path();
        /// The private key of the certificate, as PEM. Only hourglass should be able to read it.
        key_file: PathBuf = "", optional_path();
        /// The certificate authorities that sign client certificates, as PEM.
        client_ca_file: PathBuf = "", optional_path();
        /// Certificate revocation lists of these authorities, as PEM, one after the other. Each authority that signs
        /// client certificates needs a list here, including intermediate ones. A certificate without a list of its
        /// authority is refused. A list stays in effect after its nextUpdate, until the file has a newer one. A
        /// connection with a revoked certificate ends with its next request.
        client_crl_file: PathBuf = "", optional_path();
        /// Require client certificates. "off": hourglass does not ask for one. "optional": a client may connect without
        /// one, but a certificate that it presents must be valid. "required": every client must present a valid one.
        /// With "optional" and "required", TLS sessions are not resumed, so that each connection verifies the
        /// certificate again.
        client_auth: ClientAuth = "off", word(&[("off", ClientAuth::Off), ("optional", ClientAuth::Optional), ("required", ClientAuth::Required)]);
        /// max-age of the Strict-Transport-Security header, which makes browsers use HTTPS only. 0s sends no such
        /// header.
        hsts: Duration = "0s", duration(ZERO..=2 * YEAR);
    }

    /// Web pages of other origins.
    cors: CorsSettings {
        /// Origins of web pages whose scripts may send requests from a browser, such as "https://dash.example.org".
        /// Write them as browsers do. Such requests never carry the browser's own credentials. A POST for a page of any
        /// other origin is answered with 403, and so is a request for data for a page of another site. /api/v1/tokens
        /// accepts the service's own origin only, whatever is named here.
        origins: Vec<String> = "", origins();
    }

    /// Line protocol without HTTP.
    tcp: TcpSettings {
        /// Address of the listener for line protocol over plain TCP. Empty for none. hourglass sends no acks there, so
        /// lines in transit may be lost when a connection breaks. A client that needs acks writes over HTTP.
        listen: Option<SocketAddr> = "", address();
        /// Use TLS at this listener, with the files of [tls].
        tls: bool = false, flag();
        /// The database of the lines, unless the first line of the connection names one ("auth TOKEN db=NAME").
        database: String = "default", text();
        /// The unit of the lines' timestamps, unless the first line of the connection names one ("auth TOKEN
        /// precision=s").
        precision: Precision = "ns", precision();
        /// Maximum time that a connection waits for its client's next line.
        idle_timeout: Duration = "10m", duration(TICK..=DAY), constant;
    }

    /// Several instances as one service (docs/how-to/instances.md). They share a MongoDB.
    cluster: ClusterSettings {
        /// Address of the listener for the other instances. Empty for none: the instance then stores what it is sent
        /// by itself. Other addresses than loopback need ca_file. Flag: --cluster.
        listen: Option<SocketAddr> = "", address();
        /// The address under which other instances reach this listener, such as "hourglass-0.hourglass:8090". Empty
        /// for the address in listen.
        advertise: String = "", optional_text();
        /// A file with the secret of the cluster, the same for all instances. If it has two lines, both are accepted,
        /// and this instance uses the first.
        token_file: PathBuf = "", optional_path();
        /// The certificate authorities of the instances, as PEM. With it, instances use TLS with the certificate and
        /// key of [tls], and each verifies the other. Empty for no TLS.
        ca_file: PathBuf = "", optional_path();
        /// Time without an answer after which an instance no longer owns sensors.
        grace: Duration = "45s", duration(5 * SECOND..=HOUR);
        /// Time without an answer after which queries leave an instance out, and say so. Before, they are answered with
        /// 503.
        query_grace: Duration = "10s", duration(SECOND..=HOUR);
    }

    /// Requests that need a token.
    auth: AuthSettings {
        /// The requests that need a token (`hourglass token add`). "auto": all requests, if a listener has an address
        /// other than loopback, or if any token exists. "always": all requests, at every address. If tokens are needed
        /// and no valid one exists, hourglass does not start.
        required: AuthRequired = "auto", word(&[("auto", AuthRequired::Auto), ("always", AuthRequired::Always)]);
        /// Create a token named "first" with all rights at the first start, if no token exists, and print it once with
        /// the banner. This is for containers. Replace its secret as soon as you can: `hourglass token rotate first`.
        first_token: bool = false, flag();
        /// A file for the secret of the first token, instead of stdout. Setting it creates a first token, as
        /// first_token does. If the file exists, for example from a Kubernetes Secret, the token gets its secret (hg_,
        /// 12 hexadecimal digits, _, 64 more). Otherwise hourglass creates the file, readable by its own user only. The
        /// folder must exist. The file is used only while no token exists.
        first_token_file: PathBuf = "", optional_path();
        /// Maximum lifetime of a token, counted from its creation. 0s for no limit. `hourglass token add` refuses a
        /// token with a later end or none, and the first token gets this end. The service ends every token at that age,
        /// including older tokens and those with a rotated secret: create a new one in time. Use the same value for all
        /// instances on a store.
        max_lifetime: Duration = "0s", duration(ZERO..=100 * YEAR);
    }

    /// The audit trail.
    audit: AuditSettings {
        /// Maximum size of each of the two logs of the audit trail, admin.log and audit.log in the data folder,
        /// including three older files of each.
        max_bytes: usize = "64MiB", size(256 * KIB..=16 * GIB);
    }

    /// A listener for health and metrics.
    status: StatusSettings {
        /// Address of a listener without tokens for /metrics, /api/v1/status, /ping, /health and /ready only, for
        /// Prometheus and health checks on a private network. If it is set, /metrics and /api/v1/status are served only
        /// there, and the other three at server.listen too. If it is empty, server.listen serves all five, and /metrics
        /// and /api/v1/status need a token if requests do (auth.required).
        listen: Option<SocketAddr> = "", address();
    }

    /// The page for browsers.
    ui: UiSettings {
        /// Serve a page to browsers at / (docs/how-to/page.md). Other clients always get the list of endpoints there.
        enabled: bool = true, flag();
    }

    /// Live readings for listening clients.
    tail: TailSettings {
        /// Maximum number of concurrent clients that listen to live readings (GET /api/v1/tail, also the page's view
        /// Live). Further ones are answered with 503. 0 switches the tail off.
        clients: usize = 64, count(0..=1024);
        /// Memory for these clients. One half holds the last readings, for slow and for returning clients. The other
        /// half is shared equally among the buffers of the clients.
        bytes: usize = "2MiB", size(256 * KIB..=GIB), constant;
    }

    /// The store of pages, and the limits of its commands.
    store: StoreSettings {
        /// Store of the pages: a file under server.data_dir ("embedded"), or MongoDB (a replica set or a sharded
        /// cluster). The database is the one in the URI, or else "hourglass". Flag: --store.
        uri: StoreUri = "embedded", store_uri();
        /// A file that contains the URI, so that the password is neither in this file nor in the environment. If two
        /// layers set uri and uri_file, the later layer wins. One layer must not set both.
        uri_file: PathBuf = "", optional_path();
        /// Maximum time for one command to MongoDB, and maximum time that a command waits for its turn. After a timeout
        /// the outcome is unknown: hourglass reads the pages back and writes them again. A query is answered with 503.
        command_timeout: Duration = "5s", duration(TICK..=10 * MINUTE);
    }

    /// Settings of the embedded store only.
    embedded: EmbeddedSettings {
        /// Memory for the page cache of the embedded store. A compaction takes as much again for its copy.
        cache_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
    }

    /// Admission, acks and shards.
    ingest: IngestSettings {
        /// Maximum memory for writes that are admitted and not yet acked: bodies as received, bodies after
        /// decompression, and the readings parsed from them. At the limit, writes are answered with 503 and
        /// Retry-After. A single request that needs more is answered with 413. At least twice limits.body_bytes.
        /// auto: 12 % of server.memory, and at least twice limits.body_bytes if that is set.
        bytes_in_flight: usize = "auto", auto_size(KIB..=4 * GIB);
        /// Default ack level of writes. A request can ask for another one (?ack= or X-Hourglass-Ack). "log": the
        /// readings are synced to the write-ahead log (WAL) and survive a power failure of this machine. "store": the
        /// readings are in the store; in MongoDB with {w: majority, j: true}.
        ack: AckLevel = "log", word(&[("log", AckLevel::Log), ("store", AckLevel::Store)]);
        /// Treatment of a value whose type (number, boolean or text) differs from that of its field, in databases
        /// without a setting of their own (drift of PATCH /api/v1/databases/NAME). "reject": the value is rejected, and
        /// the other fields of its line are kept. "keep": the value is kept in a second field, text for temp as
        /// temp@string. See docs/how-to/rejected-lines.md.
        drift: Drift = "reject", word(&[("reject", Drift::Reject), ("keep", Drift::Keep)]);
        /// Maximum time that a write waits for its ack. After it, the write is answered with 503. It may be sent again
        /// without harm. If the write asked for "store" and is already synced to the WAL, the answer says so
        /// (X-Hourglass-Ack: log).
        ack_timeout: Duration = "15s", duration(TICK..=10 * MINUTE);
        /// Number of shards.
        shards: usize = 2, count(1..=64), constant;
        /// Maximum share, in percent, of wal.budget_bytes and memtable.max_bytes for the unflushed readings of one
        /// database, while the store rejects its writes and accepts those of other databases, for example because of a
        /// missing permission.
        database_share: usize = 25, count(1..=100), constant;
        /// Time for which the key of a write (Idempotency-Key) is remembered. Within it, the same key gives undated
        /// readings the same times, so a retry adds nothing.
        idempotency_window: Duration = "10m", duration(10 * SECOND..=DAY), constant;
    }

    /// The write-ahead log.
    wal: WalSettings {
        /// Folder of the WAL's segment files. Empty for the folder "log" in server.data_dir. Only one process may use
        /// it.
        dir: PathBuf = "", optional_path();
        /// Size of a full segment file. It also limits the size of the WAL record of one request.
        segment_bytes: usize = "64MiB", size(64 * KIB..=GIB);
        /// Maximum size of all segment files together, which hourglass accepts while the store is unreachable. At the
        /// limit, writes are answered with 503 and Retry-After. At least twice wal.segment_bytes.
        budget_bytes: usize = "10GiB", size(128 * KIB..=TIB);
        /// Time without contact after which the other instances on a store stop waiting for the unflushed readings of
        /// an instance. If the instance returns later, hourglass still stores its readings for timestamps without
        /// stored values. For other timestamps, it can no longer tell which value is later, and writes the readings to
        /// the dead-letter file. Use the same value for all instances on a store.
        horizon: Duration = "168h", duration(MINUTE..=YEAR);
        /// Compress WAL records (lz4) if that makes them smaller.
        compress: bool = true, flag(), constant;
        /// Maximum size of the records that wait to be written to the WAL. At the limit, writes are answered with 503
        /// and Retry-After.
        queue_bytes: usize = "auto", auto_size(64 * KIB..=GIB), constant;
    }

    /// Limits on the difference between this machine's clock and the store's.
    clock: ClockSettings {
        /// Maximum difference between this machine's clock and MongoDB's. Beyond it, hourglass cannot tell which of two
        /// values is later: writes are answered with 503, nothing expires, and no day is sealed. Expiry and sealing
        /// also stop if the clock is set by more than this while hourglass runs: on the embedded store for 24 hours, or
        /// until a restart.
        max_offset: Duration = "1m", duration(SECOND..=DAY);
        /// Difference between this machine's clock and MongoDB's that is ignored. Of two values for one timestamp, the
        /// one that was written later wins, by the clocks of the instances that accepted them.
        tolerance: Duration = "250ms", duration(MILLISECOND..=MINUTE), constant;
    }

    /// Flushes to the store.
    flush: FlushSettings {
        /// Maximum time that a reading stays in the memtable and the WAL before it is flushed to the store, where
        /// mongosh and other instances can see it. It takes longer if the store cannot keep up with the writes.
        interval: Duration = "60s", duration(TICK..=HOUR);
        /// Time without new readings after which a bucket is flushed, once its hour has ended.
        quiet: Duration = "5s", duration(TICK..=10 * MINUTE), constant;
    }

    /// Sealing of past days.
    seal: SealSettings {
        /// Form of sealed days, in databases without a setting of their own (seal_form of PATCH /api/v1/databases/NAME).
        /// "packed": readable hourly and daily summaries, and packed readings. "columns": also readable readings, which
        /// take several times the space on MongoDB; the same as "packed" in the embedded store. "off": days are not
        /// sealed, and readings, including backfill, stay in hour pages. A sealed day keeps its form until something
        /// writes it. Use the same value for all instances on a store. See docs/explanation/sealed-days.md.
        form: SealForm = "packed", word(&[("packed", SealForm::Packed), ("columns", SealForm::Columns), ("off", SealForm::Off)]);
        /// Age of a UTC day, counted from its end, at which it is sealed: its hour pages are folded into one packed
        /// document per sensor, which takes a third to a fifteenth of their space. 0s seals only on request (`hourglass
        /// job run seal`). Later readings, corrections and deletions of a sealed day work as before.
        after: Duration = "24h", duration(ZERO..=YEAR);
        /// Interval at which hourglass looks for days to seal.
        interval: Duration = "60s", duration(TICK..=DAY), constant;
        /// Minimum number of readings of one sensor and hour in a flush that are stored as a chunk of their day
        /// (backfill) instead of hour pages. It applies to days that have been over for seal.after.
        direct_min: usize = 32, count(0..=1_000_000), constant;
        /// Time without new chunks after which the chunks of a day are folded into it, so that the day is not rewritten
        /// for each part of a slow delivery.
        quiet: Duration = "10m", duration(ZERO..=DAY), constant;
    }

    /// Default retention of databases.
    retention: RetentionSettings {
        /// Retention of readings in databases without a setting of their own (PATCH /api/v1/databases/NAME, or InfluxQL).
        /// Older readings are refused, hidden and deleted, by whole UTC days, or by whole hours if it is below 7d. 0s
        /// keeps readings for ever; other values are at least 1h. Retention policies have their own setting. Use the
        /// same value for all instances on a store. See docs/how-to/retention.md.
        readings: Duration = "0s", duration(ZERO..=100 * YEAR);
        /// Retention of hourly and daily summaries, if it is longer than that of readings, in databases without a
        /// setting of their own. Days with expired readings then keep their summaries. 0s keeps summaries as long as
        /// readings; other values are at least as long. Use the same value for all instances on a store.
        summaries: Duration = "0s", duration(ZERO..=100 * YEAR);
        /// Interval at which hourglass looks for expired readings.
        interval: Duration = "60s", duration(TICK..=DAY), constant;
    }

    /// Limits of pages.
    page: PageSettings {
        /// Number of readings at which a page closes.
        max_readings: usize = 3600, count(1..=100_000), constant;
        /// Size of the stored page at which it closes.
        max_bytes: usize = "1MiB", size(KIB..=4 * MIB), constant;
        /// Maximum size to which overwrites may grow a page. A larger page is split.
        hard_bytes: usize = "4MiB", size(KIB..=12 * MIB), constant;
    }

    /// Memory for unflushed readings and the bucket cache.
    memtable: MemtableSettings {
        /// Memory for unflushed readings and the bucket cache, which holds the buckets in use. If the unflushed
        /// readings alone need more, new readings stay in the WAL only, until the store has caught up, and queries
        /// about them wait.
        /// auto: 28 % of server.memory.
        max_bytes: usize = "auto", auto_size(MIB..=TIB);
    }

    /// Sensors' documents.
    sensors: SensorsSettings {
        /// Time without readings after which GET /api/v1/sensors?silent=true lists a sensor; a sensor whose kind has an
        /// interval uses that instead. 0s: three times the longest interval between its recent readings, at least a
        /// minute. The metric hourglass_ingest_sensors_silent needs this key or such a kind, and counts sensors that
        /// have sent readings since the start.
        silent_after: Duration = "0s", duration(ZERO..=YEAR);
        /// Number of most recent readings in a sensor's document.
        recent: usize = 10, count(1..=1000), constant;
        /// Maximum number of fields of which a sensor's document has the count, minimum, maximum, mean, first and last
        /// value over all stored readings. 0 turns these summaries off, and removes them.
        lifetime_fields: usize = 256, count(0..=256);
        /// Interval at which hourglass writes the documents of changed sensors.
        write_interval: Duration = "60s", duration(TICK..=DAY), constant;
    }

    /// Limits on accepted data. The answer at a limit names its key.
    limits: LimitsSettings {
        /// Maximum size of a request body, as received and again after decompression.
        /// auto: half of ingest.bytes_in_flight, at most 25 MiB.
        body_bytes: usize = "auto", auto_size(KIB..=GIB);
        /// Maximum size of one line of line protocol, or of one JSON reading.
        line_bytes: usize = "64KiB", size(64..=MIB);
        /// Maximum number of tags of one sensor.
        tags: usize = 32, count(0..=256);
        /// Maximum number of fields of one reading.
        fields: usize = 256, count(1..=1024);
        /// Maximum size of a measurement, tag key, tag value or field key.
        name_bytes: usize = 1024, size(1..=16 * KIB);
        /// Maximum number of sensors that one instance knows. Each uses about 0.5 KiB of catalog.max_bytes for as long
        /// as hourglass runs.
        sensors: usize = 1000000, count(1..=100_000_000);
        /// Maximum number of databases. In MongoDB each has its own collections and indexes.
        databases: usize = 100, count(1..=10_000);
        /// Maximum age of a reading's timestamp. Older readings are rejected. 0s accepts any age.
        max_past: Duration = "0s", duration(ZERO..=SPAN_MAX);
        /// Maximum distance of a reading's timestamp into the future. Later readings are rejected. 0s accepts any time.
        max_future: Duration = "0s", duration(ZERO..=SPAN_MAX);
        /// Treatment of timestamps in line protocol that seem to be in another unit than the default one, such as
        /// seconds sent as nanoseconds, if the sender did not declare the unit (precision=). "refuse": such a reading
        /// is rejected, and the message names the likely unit. "warn": it is stored as sent, with a warning. The
        /// default of [tcp] counts as undeclared.
        undeclared_unit: UndeclaredUnit = "refuse", word(&[("refuse", UndeclaredUnit::Refuse), ("warn", UndeclaredUnit::Warn)]);
        /// Maximum number of remembered deletions.
        deletions: usize = 1000, count(1..=10_000), constant;
        /// Maximum size of the metadata of one sensor: names and JSON values.
        meta_bytes: usize = "8KiB", size(64..=64 * KIB), constant;
        /// Maximum number of fields of one sensor, over all its readings.
        sensor_fields: usize = 1024, count(1..=65_535), constant;
    }

    /// Known sensors.
    catalog: CatalogSettings {
        /// Maximum memory for known sensors, their other spellings, their fields and new metadata, on one instance.
        /// Beyond it, readings of new sensors and new fields are rejected, and known ones are still accepted. Sensors
        /// that are read back from the WAL count, but are never rejected.
        /// auto: 16 % of server.memory.
        max_bytes: usize = "auto", auto_size(64 * KIB..=TIB);
    }

    /// Quotas of databases. Zero is unlimited.
    quota: QuotaSettings {
        /// Maximum number of readings per second in one database, averaged over some seconds. Beyond it, writes are
        /// answered with 429 and Retry-After. Tokens can have their own quotas (`hourglass token add --rate`). 0 for no
        /// limit.
        database_readings: usize = 0, count(0..=QUOTA_MAX);
        /// Maximum number of new sensors per hour in one database. Readings of further new sensors are rejected. 0 for
        /// no limit.
        database_new_sensors: usize = 0, count(0..=QUOTA_MAX);
        /// Maximum number of sensors of one database that one instance knows. Readings of further sensors are rejected.
        /// 0 for no limit.
        database_sensors: usize = 0, count(0..=QUOTA_MAX);
        /// Maximum number of existing databases in the scopes of a token that wants to create another one, whoever
        /// created them, so that one sender cannot take all of limits.databases. A further one is answered with 403. It
        /// does not apply to tokens with a quota of their own (`hourglass token add --databases`), to admins of the
        /// whole service, and without tokens. 0 for no limit.
        token_databases: usize = 50, count(0..=QUOTA_MAX), constant;
    }

    /// Limits of queries.
    query: QuerySettings {
        /// Maximum memory of all query requests together. Beyond it they are answered with 503 and Retry-After. One
        /// request may take half of it.
        /// auto: 19 % of server.memory.
        bytes: usize = "auto", auto_size(MIB..=TIB);
        /// Maximum number of concurrent queries. Further queries wait for their turn, and are answered with 503 and
        /// Retry-After after query.timeout.
        concurrent: usize = 16, count(1..=1024);
        /// Maximum time for one query request, or for each part of an answer that is sent in parts.
        timeout: Duration = "30s", duration(TICK..=HOUR);
        /// Time after which a query request is logged, with the name of its token, the first 200 bytes of its text, the
        /// bytes and readings that it read, and its memory.
        log_after: Duration = "1s", duration(ZERO..=HOUR);
        /// Number of readings in an answer if the query states no limit.
        limit_default: usize = 1000, count(1..=1_000_000), constant;
        /// Maximum number of readings in one answer. A cursor returns the rest.
        limit_max: usize = 100000, count(1..=1_000_000), constant;
        /// Maximum number of sensors whose readings or windows one query may return.
        series_max: usize = 100000, count(1..=10_000_000), constant;
        /// Maximum age of cached data about writes of other instances to the same MongoDB: new sensors, new fields of a
        /// sensor that is queried by itself, and the summaries of changed hours.
        cache_max_age: Duration = "5s", duration(MILLISECOND..=HOUR), constant;
        /// Memory for the cache of hourly summaries that queries have read. One hour of one field takes about 350
        /// bytes.
        cache_bytes: usize = "auto", auto_size(0..=TIB), constant;
        /// Maximum number of sensors in one answer of the sensor list. A cursor returns the rest.
        sensors_max: usize = 1000, count(1..=100_000), constant;
        /// Maximum memory of all query requests of one token together, so that other tokens can use the rest. Beyond it
        /// they are answered with 503 and Retry-After.
        token_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
        /// Maximum time that a query waits for an unreachable store, or for acked readings of its sensors and hours
        /// that are still only in the WAL (after a start, or when the memtable was full).
        wait: Duration = "5s", duration(ZERO..=HOUR), constant;
        /// Maximum memory of one query request: all its statements, and its answer until the last byte is sent. A
        /// request that needs more is rejected. At a quarter of it, an answer of raw readings ends early, with a cursor
        /// for the rest.
        /// auto: half of query.bytes.
        request_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
    }

    /// Rejected lines.
    rejections: RejectionsSettings {
        /// Maximum size on disk of the rejected lines, in the folder rejections of the data folder. At the limit, the
        /// oldest are removed. The lines of one token take at most half of the space. 0 keeps none.
        max_bytes: usize = "16MiB", size(0..=GIB);
        /// Time for which a rejected line is kept.
        keep: Duration = "168h", duration(MINUTE..=YEAR);
        /// Form of the senders' addresses in this list and in log messages about rejected lines. "full": the address.
        /// "masked": its network, /24 or for IPv6 /64. "off": none. The audit trail always has addresses.
        addresses: ShownAddresses = "full", word(&[("full", ShownAddresses::Full), ("masked", ShownAddresses::Masked), ("off", ShownAddresses::Off)]);
    }

    /// Logs.
    telemetry: TelemetrySettings {
        /// The log level. For example "info", or "warn,hourglass_store=debug" to see one module in detail.
        log_level: String = "info", log_level();
        /// The format of log lines, which go to stderr. "auto" is text on a terminal and JSON otherwise.
        log_format: LogFormat = "auto", word(&[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)]);
        /// Maximum length of a log line, so that a long error or a client's text cannot fill the disk. Longer texts end
        /// with "…".
        log_line_bytes: usize = 500, size(256..=64 * KIB), constant;
    }
}
