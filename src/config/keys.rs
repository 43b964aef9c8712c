//! Every key of the configuration: its meaning, type, default and bounds. `config/default.toml` and the table in
//! `docs/reference/configuration.md` are generated from this file (`UPDATE=1 cargo test --lib config`). To add a key, add it here.
//!
//! A row that ends with `constant` is no key: a release has the value that stands here. Tests may set it like a key, in builds with the
//! feature `faults` only.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::lists::Lists;
use super::memory::MEMORY_LEAST;
use super::resolve::KeyReader;
use super::sections::Key;
use super::settings::{
    AckLevel, AuthRequired, ClientAuth, CopySettings, GroupSettings, LogFormat, ShownAddresses, UndeclaredUnit,
};
use super::store_uri::StoreUri;
use super::units::{GIB, KIB, MIB};
use super::value::{
    address, auto_count, auto_size, count, duration, flag, hosts, log_level, networks, optional_path, origins, path,
    precision, size, store_uri, text, word,
};
use crate::bucket::SealForm;
use crate::bucket::settings::Drift;
use crate::kinds::Kinds;
use crate::reading::Precision;

const TIB: usize = 1 << 40;
const ZERO: Duration = Duration::ZERO;
const MILLISECOND: Duration = Duration::from_millis(1);
/// The shortest timeout: below it, no request could ever be answered.
const TICK: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// 292 years: from 1970 to the first or last timestamp that 64-bit nanoseconds can represent.
const SPAN_MOST: Duration = Duration::from_secs(292 * 365 * 24 * 60 * 60);
/// A larger quota would not limit anything.
const QUOTA_MOST: usize = 1_000_000_000;

sections! {
    /// The HTTP listener and the limits of connections.
    server: ServerSettings {
        /// Address of the plain HTTP listener; port 0 takes a free port, a port alone (8086, :8086, localhost:8086) is on 127.0.0.1; empty
        /// for none, if tls.listen is set. Flag: --listen.
        listen: Option<SocketAddr> = "127.0.0.1:8086", address();
        /// Folder for everything that hourglass stores on this machine, including the embedded store and, by default, the WAL.
        /// It is created if missing. A relative path is relative to the working directory. Flag: --data-dir.
        data_dir: PathBuf = "./data", path();
        /// How much memory hourglass may use, all together. The keys whose default is "auto" follow from it, by shares of what the
        /// program itself (20 MiB) leaves; each can be set by itself. The start tells the parts and their sum, and warns where keys
        /// make the sum more than this. auto: a quarter of the machine's memory, or of its control group's limit (a container's,
        /// a service's) where that is less, 64 to 512 MiB. Flag: --memory.
        memory: usize = "auto", auto_size(MEMORY_LEAST..=TIB);
        /// Maximum number of open connections, over all listeners except that of [status], which has as many of its own. At the
        /// limit, a new connection closes the one that has waited longest for its client: for a request, for the rest of a
        /// request head, for a body that arrives at less than 1 KiB/s, or for it to take its answers, of which it took less than
        /// 64 KiB in a second. If no connection waits for its client, the new one waits to be accepted.
        /// auto: 4 % of server.memory at 15 KiB each, 64 to 1024.
        connections: usize = "auto", auto_count(1..=65536);
        /// Maximum number of open connections from one client address (an IPv6 /64 network counts as one address); further ones
        /// are closed at once. Behind a proxy, all connections come from the proxy's address: name it in trusted_proxies.
        /// auto: a quarter of server.connections.
        connections_per_address: usize = "auto", auto_count(1..=65536);
        /// Whether HTTP/2 is offered to clients. Devices that send readings do not benefit from it.
        http2: bool = false, flag();
        /// Maximum time for a shutdown: finish requests, flush to the store, close.
        shutdown_timeout: Duration = "30s", duration(TICK..=HOUR);
        /// Names by which this service may be asked where requests need no token (and for /metrics and /api/v1/status at
        /// status.listen), beside localhost and every IP address, with any port: a request for another name (Host, :authority) is answered
        /// with 403, since it may come from a web page whose name resolves to this machine (DNS rebinding). *.example.org stands for all
        /// names below example.org, * for all names.
        hosts: Vec<String> = "", hosts();
        /// Proxies whose X-Forwarded-For names their clients, such as "10.0.0.7, 192.168.4.0/24". Of a request from one of them, the
        /// rightmost address there that is no trusted proxy is the client's, in the audit trail and the log; from anybody else the header
        /// counts for nothing. connections_per_address does not bound trusted proxies: bound their clients' connections at the proxy.
        trusted_proxies: Vec<(IpAddr, u8)> = "", networks();
        /// Maximum time that an open connection waits for the first byte of the next request.
        idle_timeout: Duration = "75s", duration(TICK..=HOUR), constant;
        /// Maximum time for a request head to arrive, counted from its first byte.
        header_timeout: Duration = "10s", duration(TICK..=10 * MINUTE), constant;
        /// Maximum time for a request body to arrive.
        body_timeout: Duration = "30s", duration(TICK..=HOUR), constant;
    }

    /// HTTPS. A path is empty where no file is named.
    tls: TlsSettings {
        /// Address of the HTTPS listener, in addition to server.listen or instead of it; empty for none.
        listen: Option<SocketAddr> = "", address();
        /// The certificate and its intermediate certificates, as PEM. hourglass reloads this file and the next three within seconds
        /// of a change, or at once on SIGHUP. If the new files are invalid, the old certificate stays in use.
        cert_file: PathBuf = "", optional_path();
        /// The private key of the certificate, as PEM. Only hourglass should be able to read it.
        key_file: PathBuf = "", optional_path();
        /// The certificate authorities that sign client certificates, as PEM.
        client_ca_file: PathBuf = "", optional_path();
        /// Revocation lists of these authorities, as PEM, one after the other. Each authority that signs clients' certificates
        /// needs one here, also an intermediate one: a certificate whose state no list tells is refused. A list counts after its
        /// nextUpdate, too, until the file has a newer one. A revoked certificate ends its open connections with their next request.
        client_crl_file: PathBuf = "", optional_path();
        /// Whether clients must present a certificate. With "optional" and "required", TLS sessions are not resumed, so that each
        /// connection verifies the certificate again. "off": hourglass does not ask for one. "optional": a client may connect
        /// without one, but a certificate that it presents must be valid. "required": every client must present a valid one.
        client_auth: ClientAuth = "off", word(&[("off", ClientAuth::Off), ("optional", ClientAuth::Optional), ("required", ClientAuth::Required)]);
        /// max-age of the Strict-Transport-Security header, by which browsers use HTTPS only; 0s sends no such header.
        hsts: Duration = "0s", duration(ZERO..=2 * YEAR);
    }

    /// Web pages of other origins.
    cors: CorsSettings {
        /// Origins of the web pages whose scripts may send requests from a browser, written as browsers write them, such as
        /// "https://dash.example.org". Such requests never carry the browser's own credentials. A POST that a browser sends for a page of any
        /// other origin is answered with 403, and so is every request for data that it sends for a page of another site. For /api/v1/tokens every
        /// origin but the service's own is another one, also if it is named here.
        origins: Vec<String> = "", origins();
    }

    /// Line protocol without HTTP.
    tcp: TcpSettings {
        /// Address of the listener for line protocol over plain TCP; empty for none. hourglass sends no acks there: lines in
        /// transit when a connection breaks may be lost. A client that needs acks writes over HTTP.
        listen: Option<SocketAddr> = "", address();
        /// Whether this listener uses TLS, with the files of [tls].
        tls: bool = false, flag();
        /// The database that lines are written to, unless the first line of the connection names one ("auth TOKEN db=NAME").
        database: String = "default", text();
        /// The unit of the lines' timestamps, unless the first line of the connection names one ("auth TOKEN precision=s").
        precision: Precision = "ns", precision();
        /// Maximum time that a connection waits for its client's next line.
        idle_timeout: Duration = "10m", duration(TICK..=DAY), constant;
    }

    /// Who needs a token.
    auth: AuthSettings {
        /// When requests need a token (`hourglass token add`). "auto": if a listener has an address other than loopback, or
        /// if any token exists. "always": at every address. If tokens are needed and there is no valid one, hourglass does not
        /// start.
        required: AuthRequired = "auto", word(&[("auto", AuthRequired::Auto), ("always", AuthRequired::Always)]);
        /// Whether the first start creates a token named "first" with all rights, if there is no token yet, and prints it once
        /// with the banner. This is for containers. Replace its secret as soon as you can: `hourglass token rotate first`.
        first_token: bool = false, flag();
        /// A file for the secret of the first token, instead of stdout; also has one made, as first_token does. If the file exists, for
        /// example from a Kubernetes Secret, the first token gets the secret in it (hg_, 12 hexadecimal digits, _, 64 more); else the file is
        /// made with a new secret, readable by hourglass's user only. Its folder must exist. It is used only as long as no token exists.
        first_token_file: PathBuf = "", optional_path();
        /// Longest life of a token, counted from when it was created; 0s for no limit. `hourglass token add` refuses a token that
        /// has a later end or none, and the first token ends then. The service itself ends every token at that age, also those that were created
        /// before this was set, or with another configuration, and after a rotation: create a new one in time. Use the same value for all
        /// instances on a store.
        max_lifetime: Duration = "0s", duration(ZERO..=100 * YEAR);
    }

    /// The audit trail.
    audit: AuditSettings {
        /// Maximum size of each of the two logs of the audit trail, admin.log and audit.log in the data folder, with its three
        /// older files.
        max_bytes: usize = "64MiB", size(256 * KIB..=16 * GIB);
    }

    /// A listener for health and metrics.
    status: StatusSettings {
        /// Address of a listener for /metrics, /api/v1/status, /ping, /health and /ready only, without tokens: for Prometheus and
        /// health checks, on a private network. If it is set, /metrics and /api/v1/status are served only there, and the other
        /// three at server.listen too. If it is empty, server.listen serves all five; /metrics and /api/v1/status then need a
        /// token where requests do (auth.required).
        listen: Option<SocketAddr> = "", address();
    }

    /// The page for browsers.
    ui: UiSettings {
        /// Whether browsers get a page at / (docs/how-to/page.md). Programs get the list of endpoints there in any case.
        enabled: bool = true, flag();
    }

    /// Readings as they are acked, to those who listen.
    tail: TailSettings {
        /// Maximum number of clients that listen to readings as they are acked (GET /api/v1/tail, also the page's view Live) at the same
        /// time; the next one is answered 503. 0: nobody may listen.
        clients: usize = 64, count(0..=1024);
        /// Memory for these clients: half of it holds the last readings, for clients that read or come back, and the
        /// other half, by equal shares, what is on its way to each.
        bytes: usize = "2MiB", size(256 * KIB..=GIB), constant;
    }

    /// Where pages are stored, and the limits of commands.
    store: StoreSettings {
        /// Where pages are stored: in a file under server.data_dir ("embedded"), or in MongoDB (a replica set or a sharded
        /// cluster), in the database that the URI names or else in "hourglass". Flag: --store.
        uri: StoreUri = "embedded", store_uri();
        /// A file that contains the URI, so that the password is neither in this file nor in the environment. If two layers set
        /// uri and uri_file, the later layer wins; one layer must not set both.
        uri_file: PathBuf = "", optional_path();
        /// Maximum time for one command to MongoDB, and also the maximum time that a command waits for its turn. After a timeout
        /// the outcome is unknown: hourglass reads the pages back and writes them again; a query is answered with 503.
        command_timeout: Duration = "5s", duration(TICK..=10 * MINUTE);
    }

    /// Settings of the embedded store only.
    embedded: EmbeddedSettings {
        /// Memory for the page cache of the embedded store's file; a compaction takes as much again for its copy.
        cache_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
    }

    /// Admission, acks and shards.
    ingest: IngestSettings {
        /// Maximum memory for writes that are admitted and not yet acked: bodies as received, bodies after decompression, and the
        /// readings parsed from them, together. At the limit, writes are answered with 503 and Retry-After; a request that needs
        /// more than this alone is answered with 413. At least twice limits.body_bytes.
        /// auto: 12 % of server.memory, and at least twice limits.body_bytes where that is set.
        bytes_in_flight: usize = "auto", auto_size(KIB..=4 * GIB);
        /// What an ack promises, unless the request asks for something else (?ack= or X-Hourglass-Ack). "log": the readings are
        /// synced to the write-ahead log (WAL) and survive a power failure of this machine. "store": the readings are in the
        /// store; in MongoDB with {w: majority, j: true}.
        ack: AckLevel = "log", word(&[("log", AckLevel::Log), ("store", AckLevel::Store)]);
        /// What becomes of a value whose field has values of another family (number, boolean or text), in databases that do not say it
        /// themselves (drift of PUT /api/v1/databases/NAME). "reject": it is rejected, the other fields of its line are kept. "keep": it is
        /// kept beside the field, text for temp as temp@string. See docs/how-to/rejected-lines.md.
        drift: Drift = "reject", word(&[("reject", Drift::Reject), ("keep", Drift::Keep)]);
        /// Maximum time that a write waits for its ack; then it is answered with 503. Sending it again is harmless. If the write
        /// asked for "store" and is already synced to the WAL, the answer says so (X-Hourglass-Ack: log).
        ack_timeout: Duration = "15s", duration(TICK..=10 * MINUTE);
        /// Number of shards.
        shards: usize = 2, count(1..=64), constant;
        /// Maximum share, in percent, of wal.budget_bytes and of memtable.max_bytes for the unflushed readings of
        /// one database while the store rejects its writes and accepts those of other databases (for example because
        /// of a missing right).
        database_share: usize = 25, count(1..=100), constant;
        /// How long the key of a write (Idempotency-Key) is remembered: for as long, the same key gives undated readings the same times, so a
        /// retry adds nothing.
        idempotency_window: Duration = "10m", duration(10 * SECOND..=DAY), constant;
    }

    /// The write-ahead log.
    wal: WalSettings {
        /// Folder of the WAL's segment files; empty for the folder "log" in server.data_dir. Only one process may use it.
        dir: PathBuf = "", optional_path();
        /// Size of a full segment file. It also limits the size of the WAL record of one request.
        segment_bytes: usize = "64MiB", size(64 * KIB..=GIB);
        /// Maximum size of all segment files together: how much hourglass accepts while the store is unreachable. At the limit,
        /// writes are answered with 503 and Retry-After. At least twice wal.segment_bytes.
        budget_bytes: usize = "10GiB", size(128 * KIB..=TIB);
        /// How long an instance may be silent before the other instances on the same store stop waiting for the unflushed
        /// readings in its WAL. If it returns later, hourglass still stores its readings for timestamps at which the store has
        /// nothing. Where the store has other values, it writes the readings to the dead-letter file instead, because it can no
        /// longer tell which value is later. Use the same value for all instances on a store.
        horizon: Duration = "168h", duration(MINUTE..=YEAR);
        /// Whether WAL records are compressed (lz4) if that makes them smaller.
        compress: bool = true, flag(), constant;
        /// Maximum size of the records that wait to be written to the WAL; at the limit, writes are answered with
        /// 503 and Retry-After.
        queue_bytes: usize = "auto", auto_size(64 * KIB..=GIB), constant;
    }

    /// Bounds on the difference between this machine's clock and the store's.
    clock: ClockSettings {
        /// Maximum difference between this machine's clock and MongoDB's. Beyond it, writes are answered with 503, because
        /// hourglass could not tell which of two values is later, nothing expires, and no day is sealed. The last two also if the
        /// clock is set by more than this while hourglass runs: on the embedded store for 24 hours, or until a restart.
        max_offset: Duration = "1m", duration(SECOND..=DAY);
        /// If two values are written for one timestamp, the one that was written later wins, by the clocks of the
        /// instances that accepted them. hourglass ignores a difference up to this between this machine's clock and
        /// MongoDB's.
        tolerance: Duration = "250ms", duration(MILLISECOND..=MINUTE), constant;
    }

    /// When readings go to the store.
    flush: FlushSettings {
        /// Maximum time that a reading stays in the memtable and the WAL before it is flushed to the store, where mongosh and
        /// other instances can see it. If the store cannot keep up with the writes, it takes longer.
        interval: Duration = "60s", duration(TICK..=HOUR);
        /// A bucket whose hour has ended is flushed once it has received no reading for this long.
        quiet: Duration = "5s", duration(TICK..=10 * MINUTE), constant;
    }

    /// When and how days are sealed.
    seal: SealSettings {
        /// How days are sealed in databases that do not say it themselves (seal_form of PUT /api/v1/databases/NAME). packed: readable hourly and
        /// daily summaries, and packed readings. columns: also readable readings, on MongoDB, where they take several times the space; in the
        /// embedded store the same as packed. off: never; readings stay in hour pages, backfill too. What is sealed stays as it is
        /// until something writes it. Set it alike on all instances. See docs/explanation/sealed-days.md.
        form: SealForm = "packed", word(&[("packed", SealForm::Packed), ("columns", SealForm::Columns), ("off", SealForm::Off)]);
        /// How long a UTC day must be over before it is sealed: its hour pages are folded into one packed document per sensor,
        /// which takes a third to a fifteenth of their space, and removed. 0s seals only when asked to, by `hourglass job run seal`. Later readings,
        /// corrections and deletions of a sealed day work as before.
        after: Duration = "24h", duration(ZERO..=YEAR);
        /// How often hourglass looks for days to seal.
        interval: Duration = "60s", duration(TICK..=DAY), constant;
        /// From how many readings of one sensor and hour on, flushed together, the readings of a day that has been
        /// over for seal.after are stored as a chunk of that day at once, and no hour pages: backfill.
        direct_min: usize = 32, count(0..=1_000_000), constant;
        /// How long no chunk of a day must have come before its chunks are folded into the day in the background, so
        /// that what is delivered a few hours at a time is not rewritten each time.
        quiet: Duration = "10m", duration(ZERO..=DAY), constant;
    }

    /// How long readings are kept where a database does not say it itself.
    retention: RetentionSettings {
        /// How long readings are kept in databases that do not say it themselves (PUT /api/v1/databases/NAME, or InfluxQL). Older
        /// ones expire: they are refused, hidden and deleted, by whole UTC days, or by whole hours below 7d. 0s keeps them for ever; else
        /// at least 1h. Retention policies keep what they say themselves. Set it alike on all instances.
        /// See docs/how-to/retention.md.
        readings: Duration = "0s", duration(ZERO..=100 * YEAR);
        /// How long the hourly and daily summaries of readings are kept in databases that do not say it themselves, where that is longer
        /// than readings are kept. Days whose readings have expired then keep their summaries until these expire, too. 0s keeps them as
        /// long as the readings; else at least as long as readings. Set it alike on all instances.
        summaries: Duration = "0s", duration(ZERO..=100 * YEAR);
        /// How often hourglass looks for readings that have expired.
        interval: Duration = "60s", duration(TICK..=DAY), constant;
    }

    /// When a page is full.
    page: PageSettings {
        /// Number of readings at which a page closes.
        max_readings: usize = 3600, count(1..=100_000), constant;
        /// Size of the stored page at which it closes.
        max_bytes: usize = "1MiB", size(KIB..=4 * MIB), constant;
        /// Maximum size to which overwrites may grow a page; beyond it the page is split.
        hard_bytes: usize = "4MiB", size(KIB..=12 * MIB), constant;
    }

    /// Memory of unflushed readings and of the bucket cache.
    memtable: MemtableSettings {
        /// Memory for unflushed readings and the bucket cache, which holds the buckets in use. If the unflushed readings alone
        /// need more, new readings stay in the WAL only, until the store has caught up, and queries about them wait.
        /// auto: 30 % of server.memory.
        max_bytes: usize = "auto", auto_size(MIB..=TIB);
    }

    /// The sensors' documents.
    sensors: SensorsSettings {
        /// How long a sensor may send no reading before it counts as silent: in the metric hourglass_ingest_sensors_silent, which
        /// counts the sensors that have sent something since the start, and in GET /api/v1/sensors?silent=true, which goes by the
        /// timestamp of the last reading. 0s: never. A sensor whose kind has an interval goes by that.
        silent_after: Duration = "0s", duration(ZERO..=YEAR);
        /// Number of most recent readings in a sensor's document.
        recent: usize = 10, count(1..=1000), constant;
        /// How often hourglass writes the documents of changed sensors.
        write_interval: Duration = "60s", duration(TICK..=DAY), constant;
    }

    /// The size and shape of what is accepted. The answer at a limit names its key.
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
        /// Maximum number of sensors that one instance knows. Each uses about 0.5 KiB of catalog.max_bytes for as long as
        /// hourglass runs.
        sensors: usize = 1000000, count(1..=100_000_000);
        /// Maximum number of databases. In MongoDB each has its own collections and indexes.
        databases: usize = 100, count(1..=10_000);
        /// Maximum age of a reading's timestamp; older readings are rejected. 0s accepts any age.
        max_past: Duration = "0s", duration(ZERO..=SPAN_MOST);
        /// How far in the future a reading's timestamp may be; later ones are rejected. 0s accepts any time.
        max_future: Duration = "0s", duration(ZERO..=SPAN_MOST);
        /// What happens to a timestamp in line protocol whose unit the sender did not declare (precision=), and which lies near now only in
        /// another unit than the default one, such as seconds sent as nanoseconds: it is rejected with the unit that it seems to be in
        /// ("refuse"), or stored as sent, with a warning ("warn"). The default of [tcp] counts as undeclared.
        undeclared_unit: UndeclaredUnit = "refuse", word(&[("refuse", UndeclaredUnit::Refuse), ("warn", UndeclaredUnit::Warn)]);
        /// Maximum number of remembered deletions.
        deletions: usize = 1000, count(1..=10_000), constant;
        /// Maximum size of the metadata of one sensor: names and JSON values.
        meta_bytes: usize = "8KiB", size(64..=64 * KIB), constant;
        /// Maximum number of fields of one sensor, over all its readings.
        sensor_fields: usize = 1024, count(1..=65_535), constant;
    }

    /// The known sensors.
    catalog: CatalogSettings {
        /// Maximum memory for known sensors, their other spellings and their fields, on one instance. Beyond it, readings of new
        /// sensors and new fields are rejected; known ones go on. Sensors that are read back from the WAL are not refused, but
        /// count.
        /// auto: 15 % of server.memory.
        max_bytes: usize = "auto", auto_size(64 * KIB..=TIB);
    }

    /// How much one database may receive; zero for no limit.
    quota: QuotaSettings {
        /// Maximum number of readings per second for one database, averaged over some seconds; beyond it, writes are answered
        /// with 429 and Retry-After. Tokens can have their own quotas (`hourglass token add --rate`). 0 for no limit.
        database_readings: usize = 0, count(0..=QUOTA_MOST);
        /// Maximum number of new sensors per hour in one database; readings of further new sensors are rejected. 0 for no limit.
        database_new_sensors: usize = 0, count(0..=QUOTA_MOST);
        /// Maximum number of sensors of one database that one instance knows; readings of further sensors are rejected. 0 for no
        /// limit.
        database_sensors: usize = 0, count(0..=QUOTA_MOST);
        /// A token creates no further database while so many exist that it may write to, whoever created them: one sender must not
        /// take all of limits.databases. Further ones are answered 403. It does not apply to tokens with a quota of their own (`hourglass token add
        /// --databases`), to those that are admins of the whole service, and without tokens. 0 for no limit.
        token_databases: usize = 50, count(0..=QUOTA_MOST), constant;
    }

    /// The limits of queries.
    query: QuerySettings {
        /// Maximum memory of all query requests together; beyond it they are answered with 503 and Retry-After. One request may
        /// take half of it.
        /// auto: 18 % of server.memory.
        bytes: usize = "auto", auto_size(MIB..=TIB);
        /// Maximum number of concurrent queries. The next query waits for its turn; after query.timeout it is answered with 503
        /// and Retry-After.
        concurrent: usize = 16, count(1..=1024);
        /// Maximum time for one query request, all its statements together.
        timeout: Duration = "30s", duration(TICK..=HOUR);
        /// A query request that takes longer is logged, with the name of its token, the first 200 bytes of its text, the bytes
        /// and readings that it read, and its memory.
        log_after: Duration = "1s", duration(ZERO..=HOUR);
        /// Number of readings in an answer if the query states no limit.
        limit_default: usize = 1000, count(1..=1_000_000), constant;
        /// Maximum number of readings in one answer; a cursor returns the rest.
        limit_max: usize = 100000, count(1..=1_000_000), constant;
        /// Maximum number of sensors whose readings or windows one query may return.
        series_max: usize = 100000, count(1..=10_000_000), constant;
        /// Maximum age of cached data about what other instances wrote to the same MongoDB: new sensors, new fields
        /// of a sensor that is queried by itself, and the summaries of changed hours.
        cache_max_age: Duration = "5s", duration(MILLISECOND..=HOUR), constant;
        /// Memory for the cache of hourly summaries that queries have read; one hour of one field takes about 200
        /// bytes.
        cache_bytes: usize = "auto", auto_size(0..=TIB), constant;
        /// Maximum number of sensors in one answer of the sensor list; a cursor returns the rest.
        sensors_max: usize = 1000, count(1..=100_000), constant;
        /// Maximum memory of all query requests of one token together, so that the other tokens can use the rest;
        /// beyond it they are answered with 503 and Retry-After.
        token_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
        /// How long a query waits for an unreachable store, or for acked readings of its sensors and hours that are
        /// still only in the WAL (after a start, or when the memtable was full).
        wait: Duration = "5s", duration(ZERO..=HOUR), constant;
        /// Maximum memory of one query request: all its statements, and its answer until the last byte is sent. A request that
        /// needs more is rejected. At a quarter of it, an answer of raw readings ends early, with a cursor for the rest.
        /// auto: half of query.bytes.
        request_bytes: usize = "auto", auto_size(MIB..=TIB), constant;
    }

    /// The rejected lines.
    rejections: RejectionsSettings {
        /// Maximum size on disk of the rejected lines, in the folder rejections of the data folder. At the bound, the oldest go; one
        /// token's lines take at most half of what waits for the disk. 0 keeps none.
        max_bytes: usize = "16MiB", size(0..=GIB);
        /// How long a rejected line is kept.
        keep: Duration = "168h", duration(MINUTE..=YEAR);
        /// How much of the senders' addresses this list and the log's warnings about rejected lines have. "full": all. "masked": the
        /// network, /24 or for IPv6 /64. "off": nothing. The audit trail has addresses in any case.
        addresses: ShownAddresses = "full", word(&[("full", ShownAddresses::Full), ("masked", ShownAddresses::Masked), ("off", ShownAddresses::Off)]);
    }

    /// Logs.
    telemetry: TelemetrySettings {
        /// The log level. For example "info", or "warn,hourglass_store=debug" to see one module in detail.
        log_level: String = "info", log_level();
        /// The format of log lines, which go to stderr. "auto" is text on a terminal and JSON otherwise.
        log_format: LogFormat = "auto", word(&[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)]);
        /// Log lines are shorter than this, so that a long error or a client's text cannot fill the disk: longer texts end with "…".
        log_line_bytes: usize = 500, size(256..=64 * KIB), constant;
    }
}
