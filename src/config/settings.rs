//! The settings as the rest of hourglass reads them: every value sound, every unit resolved. Knows
//! nothing of files, variables and flags. Sizes are in bytes; bounds and defaults of each key stand
//! in `config/default.toml`, and `resolve.rs` enforces them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::StoreUri;
use crate::clock::ClockBounds;
use crate::reading::{Limits, Precision};

/// Everything that can be configured, one field per section of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[server]`: the listener and its connections.
    pub server: ServerSettings,
    /// `[auth]`: who has to say who they are.
    pub auth: AuthSettings,
    /// `[status]`: where health and metrics are asked for.
    pub status: StatusSettings,
    /// `[tls]`: HTTPS.
    pub tls: TlsSettings,
    /// `[cors]`: web pages of other origins.
    pub cors: CorsSettings,
    /// `[tcp]`: lines without HTTP.
    pub tcp: TcpSettings,
    /// `[store]`: where pages are kept, and how commands to it are bounded.
    pub store: StoreSettings,
    /// `[embedded]`: the embedded store alone.
    pub embedded: EmbeddedSettings,
    /// `[ingest]`: the way from a request to page writes.
    pub ingest: IngestSettings,
    /// `[log]`: the log between the two.
    pub log: LogSettings,
    /// `[clock]`: how this machine's clock may differ from the store's.
    pub clock: ClockBounds,
    /// `[flush]`: when readings go to the store.
    pub flush: FlushSettings,
    /// `[page]`: when a page is full.
    pub page: PageSettings,
    /// `[hot]`: the hot buckets.
    pub hot: HotSettings,
    /// `[sensors]`: the sensors' documents.
    pub sensors: SensorsSettings,
    /// `[limits]`: the shape of what is accepted.
    pub limits: LimitsSettings,
    /// `[quota]`: how much may come into one database.
    pub quota: QuotaSettings,
    /// `[query]`: what one query may ask for.
    pub query: QuerySettings,
    /// `[telemetry]`: logs.
    pub telemetry: TelemetrySettings,
}

impl Settings {
    /// The folder of the log.
    #[must_use]
    pub fn log_dir(&self) -> PathBuf {
        if self.log.dir.as_os_str().is_empty() { self.server.data_dir.join("log") } else { self.log.dir.clone() }
    }

    /// Where readings are kept that the store refuses for good.
    #[must_use]
    pub fn dead_letters_file(&self) -> PathBuf {
        self.server.data_dir.join("dead-letters.lp")
    }

    /// An address that other machines may reach and where readings go in or out: anything but loopback.
    #[must_use]
    pub fn exposed(&self) -> Option<SocketAddr> {
        // An IPv4 address written as IPv6, such as ::ffff:127.0.0.1, is judged as the former.
        let is_exposed = |listen: &SocketAddr| !listen.ip().to_canonical().is_loopback();
        [Some(self.server.listen), self.tls.listen, self.tcp.listen].into_iter().flatten().find(is_exposed)
    }

    /// The limits that the parsers enforce.
    #[must_use]
    pub fn reading_limits(&self) -> Limits {
        let LimitsSettings { line_bytes, tags, fields, name_bytes, .. } = self.limits;
        Limits { line_bytes, tags, fields, name_bytes }
    }
}

/// `[server]`: the listener and its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// The address and port that HTTP is served on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The folder of everything kept on this machine; created when missing.
    pub data_dir: PathBuf,
    /// Most connections open at once, over all listeners.
    pub connections: usize,
    /// Most of them from one address.
    pub connections_per_address: usize,
    /// Longest time a connection may wait for a request's first byte.
    pub idle_timeout: Duration,
    /// Longest time the rest of a request's head may take to arrive.
    pub header_timeout: Duration,
    /// Most bytes of a request's head.
    pub header_bytes: usize,
    /// Whether HTTP/2 is spoken.
    pub http2: bool,
    /// Longest time a request's body may take to arrive.
    pub body_timeout: Duration,
    /// Longest time a shutdown may take, from the signal to the exit.
    pub shutdown_timeout: Duration,
}

/// `[auth]`: who has to say who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSettings {
    /// When a request needs a token.
    pub required: AuthRequired,
    /// Whether a token is made at the start when there is none yet.
    pub first_token: bool,
}

/// When a request needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthRequired {
    /// Where other machines may reach hourglass, and everywhere once there is a token.
    Auto,
    /// Always.
    Always,
}

/// `[status]`: where health and metrics are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSettings {
    /// An address and port of their own, without tokens; `None` for that of everything else.
    pub listen: Option<SocketAddr>,
}

/// `[tls]`: HTTPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The address and port that HTTPS is served on, if any.
    pub listen: Option<SocketAddr>,
    /// The certificate's file; empty without one.
    pub cert_file: PathBuf,
    /// Its key's file; empty without one.
    pub key_file: PathBuf,
    /// The file of those who sign clients' certificates; empty without one.
    pub client_ca_file: PathBuf,
    /// Whether clients show a certificate.
    pub client_auth: ClientAuthSetting,
    /// How long browsers remember to come by HTTPS only; zero when they are not told.
    pub hsts: Duration,
}

/// `[cors]`: web pages of other origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsSettings {
    /// The origins that may ask.
    pub origins: Vec<String>,
}

/// `[tcp]`: lines without HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSettings {
    /// The address and port that lines are taken on, if any.
    pub listen: Option<SocketAddr>,
    /// Whether TLS is spoken there.
    pub tls: bool,
    /// The database of lines whose connection names none.
    pub database: String,
    /// The precision of their times.
    pub precision: Precision,
    /// Longest time a connection may send nothing.
    pub idle_timeout: Duration,
}

/// `[store]`: where pages are kept, and how commands to it are bounded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The store, from `store.uri` or from the file that `store.uri_file` names.
    pub uri: StoreUri,
    /// Longest time one command to the store may take, retries included.
    pub command_timeout: Duration,
    /// Most write commands under way at once.
    pub commands_in_flight: usize,
}

/// `[embedded]`: the embedded store alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedSettings {
    /// Memory for the pages of the embedded store's file, in bytes.
    pub cache_bytes: usize,
}

/// `[ingest]`: the way from a request to page writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestSettings {
    /// Workers that own the sensors' hot buckets; each sensor has one of them.
    pub shards: usize,
    /// Most bytes of request bodies admitted and not yet acked; over it the answer is 503.
    pub bytes_in_flight: usize,
    /// What an ack promises unless the request asks for something else.
    pub ack: AckSetting,
    /// Longest time a request waits for its ack.
    pub ack_timeout: Duration,
    /// How much of `log.budget_bytes` and of `hot.max_bytes` one database may take that the store fails on, in percent.
    pub database_share: usize,
}

/// `[log]`: hourglass's own log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The folder of its segments; empty for the folder `log` in `server.data_dir`.
    pub dir: PathBuf,
    /// Bytes of a full-grown segment file.
    pub segment_bytes: usize,
    /// Most bytes of all segments together.
    pub budget_bytes: usize,
    /// Most bytes of requests that wait for the disk.
    pub queue_bytes: usize,
    /// Whether records are compressed.
    pub compress: bool,
    /// How long a log may be silent before its readings hold the floor of stamps no more.
    pub horizon: Duration,
}

/// `[flush]`: when readings go to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushSettings {
    /// Longest time that a reading waits, unless the store is too slow for that.
    pub interval: Duration,
    /// How long nothing must have come for an hour that is over.
    pub quiet: Duration,
    /// Most groups of page writes under way at once, per shard.
    pub flights: usize,
}

/// `[page]`: when a page is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// Readings at which a page closes.
    pub max_readings: usize,
    /// Bytes of the stored page at which it closes.
    pub max_bytes: usize,
    /// Bytes that an overwrite must not take a page past; never below `max_bytes`.
    pub hard_bytes: usize,
}

/// `[hot]`: the hot buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotSettings {
    /// Memory of the hot buckets, in bytes.
    pub max_bytes: usize,
}

/// `[sensors]`: the sensors' documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensorsSettings {
    /// Most recent readings kept in a sensor's document.
    pub recent: usize,
    /// How often the documents of sensors that changed are written.
    pub write_interval: Duration,
    /// How long after its last overflowing hour a sensor is still listed as an outlier.
    pub outlier_ttl: Duration,
}

/// `[limits]`: the shape of what is accepted. The answer at a limit names its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsSettings {
    /// Bytes of a request's body, on the wire and again after decompression.
    pub body_bytes: usize,
    /// Bytes of one line of line protocol, or of one JSON reading.
    pub line_bytes: usize,
    /// Tags of one sensor.
    pub tags: usize,
    /// Fields of one reading.
    pub fields: usize,
    /// Bytes of a measurement, tag key, tag value or field key.
    pub name_bytes: usize,
    /// Fields of one sensor, over all its readings.
    pub sensor_fields: usize,
    /// Sensors that one instance may know.
    pub sensors: usize,
    /// Databases.
    pub databases: usize,
    /// Deletions that are remembered at a time.
    pub deletions: usize,
    /// How long before now a reading's time may lie; zero for any time.
    pub max_past: Duration,
    /// How long after now; zero for any time.
    pub max_future: Duration,
}

/// `[quota]`: how much may come into one database; zero for no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSettings {
    /// Readings per second.
    pub database_readings: usize,
    /// Sensors per hour that nobody has met before.
    pub database_new_sensors: usize,
    /// Sensors in all.
    pub database_sensors: usize,
}

/// `[query]`: what one query may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuerySettings {
    /// Readings in an answer when the query states no limit.
    pub limit_default: usize,
    /// Most readings that a query may ask for in one answer.
    pub limit_max: usize,
    /// Longest range that a query may be about.
    pub span_max: Duration,
    /// Most sensors whose readings one query may be about.
    pub series_max: usize,
    /// How old what is known of other instances' sensors and of what they stored may be.
    pub cache_max_age: Duration,
    /// Bytes of memory for summaries that are remembered; none are with zero.
    pub cache_bytes: usize,
    /// Most sensors in one answer of the list of sensors.
    pub sensors_max: usize,
    /// Bytes of memory that one request may take, its answer included.
    pub request_bytes: usize,
    /// That all may take together.
    pub bytes: usize,
    /// That those of one token may take together.
    pub token_bytes: usize,
    /// Most queries under way at once; the next one waits for its turn.
    pub concurrent: usize,
    /// How long a query waits for readings that are read back from the log, and for a store that is away.
    pub wait: Duration,
    /// Longest time a request may take.
    pub timeout: Duration,
    /// How long a request takes that is worth a line in the log.
    pub log_after: Duration,
}

/// `[telemetry]`: logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// What is logged: a level, or comma-separated `target=level`.
    pub log_level: String,
    /// How a log line is written.
    pub log_format: LogFormat,
}

/// What an ack promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckSetting {
    /// The readings are in the log.
    Log,
    /// They are in the store.
    Store,
}

/// Whether clients show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthSetting {
    /// None is asked for.
    Off,
    /// One that is shown must be good.
    Optional,
    /// There is no connection without one.
    Required,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text when the logs go to a terminal, JSON otherwise.
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
            settings.server.listen = listen.parse().unwrap();
            assert_eq!(settings.exposed().is_some(), exposed, "{listen}");
        }
        let mut settings = Settings::default();
        settings.tcp.listen = Some(([0, 0, 0, 0], 1).into());
        assert!(settings.exposed().is_some());
    }

    #[test]
    fn the_parsers_defaults_are_the_configs() {
        let (parsers, config) = (Limits::default(), Settings::default().reading_limits());
        assert_eq!(format!("{parsers:?}"), format!("{config:?}"));
    }

    #[test]
    fn debug_hides_the_stores_credentials() {
        let mut settings = Settings::default();
        settings.store.uri = StoreUri::parse("mongodb://user:pw@host/db").unwrap();
        let shown = format!("{settings:?}");
        assert!(shown.contains("mongodb://***@host/db") && !shown.contains("user:pw"), "{shown}");
    }
}
