//! The settings as the rest of hourglass reads them: validated, with units resolved. Sizes are in bytes.
//! `config/default.toml` says what each key means, with its bounds and default; `resolve.rs` enforces the bounds.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::StoreUri;
use crate::clock::ClockBounds;
use crate::kinds::Kinds;
use crate::reading::{Limits, Precision};

/// All settings, one field per section of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub server: ServerSettings,
    pub auth: AuthSettings,
    pub audit: AuditSettings,
    pub status: StatusSettings,
    pub ui: UiSettings,
    pub tail: TailSettings,
    pub tls: TlsSettings,
    pub cors: CorsSettings,
    pub tcp: TcpSettings,
    pub store: StoreSettings,
    pub embedded: EmbeddedSettings,
    pub ingest: IngestSettings,
    pub wal: WalSettings,
    pub clock: ClockBounds,
    pub flush: FlushSettings,
    pub seal: SealSettings,
    pub retention: RetentionSettings,
    pub page: PageSettings,
    pub memtable: MemtableSettings,
    pub sensors: SensorsSettings,
    pub meta: MetaSettings,
    /// `[[kinds]]`: what sensors' readings and metadata must be.
    pub kinds: Kinds,
    /// `[[groups]]`: by what sensors belong together.
    pub groups: Vec<GroupSettings>,
    pub limits: LimitsSettings,
    pub catalog: CatalogSettings,
    pub quota: QuotaSettings,
    pub query: QuerySettings,
    pub rejections: RejectionsSettings,
    pub telemetry: TelemetrySettings,
}

impl Settings {
    /// The folder of the WAL.
    #[must_use]
    pub fn wal_dir(&self) -> PathBuf {
        if self.wal.dir.as_os_str().is_empty() { self.server.data_dir.join("log") } else { self.wal.dir.clone() }
    }

    /// The folder of readings that the store rejects permanently.
    #[must_use]
    pub fn dead_letters_dir(&self) -> PathBuf {
        self.server.data_dir.join("dead-letters")
    }

    /// The folder of rejected lines.
    #[must_use]
    pub fn rejections_dir(&self) -> PathBuf {
        self.server.data_dir.join("rejections")
    }

    /// The first listener of readings or queries whose address is not loopback, so that other machines may reach it.
    #[must_use]
    pub fn exposed(&self) -> Option<SocketAddr> {
        // An IPv4 address mapped to IPv6, such as ::ffff:127.0.0.1, counts as the IPv4 address.
        let is_exposed = |listen: &SocketAddr| !listen.ip().to_canonical().is_loopback();
        [self.server.listen, self.tls.listen, self.tcp.listen].into_iter().flatten().find(is_exposed)
    }

    /// Where other machines may reach hourglass, or else this machine. `resolve.rs` sees to it that there is an address.
    #[must_use]
    pub fn front(&self) -> SocketAddr {
        let front = self.exposed().or(self.server.listen).or(self.tls.listen);
        front.unwrap_or_else(|| ([127, 0, 0, 1], 0).into())
    }

    /// The longest life of a token in seconds, if there is a limit.
    #[must_use]
    pub fn max_lifetime(&self) -> Option<i64> {
        i64::try_from(self.auth.max_lifetime.as_secs()).ok().filter(|seconds| *seconds > 0)
    }

    /// Whether a first token is to be made.
    #[must_use]
    pub fn makes_first_token(&self) -> bool {
        self.auth.first_token || !self.auth.first_token_file.as_os_str().is_empty()
    }

    /// The limits that the parsers enforce.
    #[must_use]
    pub fn reading_limits(&self) -> Limits {
        let LimitsSettings { line_bytes, tags, fields, name_bytes, .. } = self.limits;
        Limits { line_bytes, tags, fields, name_bytes }
    }
}

/// `[server]`: the HTTP listener and the limits of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Plain HTTP; `None` only beside `tls.listen`.
    pub listen: Option<SocketAddr>,
    pub data_dir: PathBuf,
    pub memory: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub idle_timeout: Duration,
    pub header_timeout: Duration,
    pub header_bytes: usize,
    pub http2: bool,
    pub body_timeout: Duration,
    /// From the signal to the exit.
    pub shutdown_timeout: Duration,
    /// In lower case; the names by which requests without tokens may ask, beside `localhost` and IP addresses.
    pub hosts: Vec<String>,
    /// Canonical addresses, each with the number of its leading bits that count.
    pub trusted_proxies: Vec<(IpAddr, u8)>,
}

/// `[auth]`: who needs a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthSettings {
    pub required: AuthRequired,
    pub first_token: bool,
    /// Where its secret is; empty for stdout.
    pub first_token_file: PathBuf,
    /// The longest life of a token; zero for any.
    pub max_lifetime: Duration,
    /// How long tokens of MongoDB apply that cannot be read again.
    pub cache_max_age: Duration,
}

/// `[audit]`: the audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    pub file_bytes: usize,
    /// Older files of each kind.
    pub files: usize,
    /// Of one reason.
    pub refusals_per_second: usize,
    /// Zero for never.
    pub uses: Duration,
}

/// When a request needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthRequired {
    /// If other machines may reach hourglass, or if any token exists.
    Auto,
    /// Always.
    Always,
}

/// `[status]`: a listener for health and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusSettings {
    /// `None` if `server.listen` serves them.
    pub listen: Option<SocketAddr>,
}

/// `[tls]`: HTTPS. Paths are empty where no file is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub listen: Option<SocketAddr>,
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub client_ca_file: PathBuf,
    pub client_crl_file: PathBuf,
    pub client_auth: ClientAuthSetting,
    /// Zero sends no Strict-Transport-Security header.
    pub hsts: Duration,
}

/// `[cors]`: web pages of other origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsSettings {
    pub origins: Vec<String>,
}

/// `[tcp]`: line protocol without HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpSettings {
    pub listen: Option<SocketAddr>,
    pub tls: bool,
    pub database: String,
    pub precision: Precision,
    pub idle_timeout: Duration,
}

/// `[store]`: where pages are stored, and the limits of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// From `store.uri`, or from the file that `store.uri_file` names.
    pub uri: StoreUri,
    /// Includes retries.
    pub command_timeout: Duration,
    pub commands_in_flight: usize,
}

/// `[embedded]`: settings of the embedded store only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedSettings {
    pub cache_bytes: usize,
    /// Percent of the file that is free; 0 for never.
    pub compact_at: usize,
}

/// `[ingest]`: admission, acks and shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestSettings {
    pub shards: usize,
    pub bytes_in_flight: usize,
    pub ack: AckSetting,
    pub drift: DriftSetting,
    pub ack_timeout: Duration,
    /// Percent of `wal.budget_bytes` and of `memtable.max_bytes`.
    pub database_share: usize,
    pub idempotency_window: Duration,
    pub idempotency_keys: usize,
}

/// `[wal]`: the write-ahead log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalSettings {
    /// Empty for the folder `log` in `server.data_dir`; see [`Settings::wal_dir`].
    pub dir: PathBuf,
    pub segment_bytes: usize,
    pub budget_bytes: usize,
    pub queue_bytes: usize,
    pub compress: bool,
    /// How long an instance may be silent before the registry's floor no longer waits for its WAL.
    pub horizon: Duration,
}

/// `[seal]`: when and how days are sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealSettings {
    /// Of databases that do not say it themselves.
    pub form: SealFormSetting,
    /// Zero for never.
    pub after: Duration,
    pub interval: Duration,
    /// Zero for never.
    pub direct_min: usize,
    pub quiet: Duration,
}

/// `[retention]`: how long readings are kept where a database does not say it itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Zero for ever.
    pub readings: Duration,
    /// Zero for as long as readings.
    pub summaries: Duration,
    pub interval: Duration,
}

/// `[flush]`: when readings go to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushSettings {
    pub interval: Duration,
    pub quiet: Duration,
    /// Per shard.
    pub tasks: usize,
}

/// `[page]`: when a page is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    pub max_readings: usize,
    pub max_bytes: usize,
    /// Never below `max_bytes`.
    pub hard_bytes: usize,
}

/// `[memtable]`: memory of unflushed readings and of the bucket cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemtableSettings {
    pub max_bytes: usize,
}

/// `[sensors]`: the sensors' documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SensorsSettings {
    pub recent: usize,
    pub write_interval: Duration,
    pub outlier_ttl: Duration,
    /// Zero for never.
    pub silent_after: Duration,
}

/// `[meta]`: the sensors' metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetaSettings {
    /// `[[meta.copy]]`: what is copied into pages and days.
    pub copy: Vec<CopySettings>,
}

/// `[[meta.copy]]`: one name of metadata that is copied.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopySettings {
    pub name: String,
    /// Whether there is an index of it.
    #[serde(default)]
    pub index: bool,
    /// `None` for all databases.
    pub database: Option<String>,
}

/// `[[groups]]`: one group of sensors that have the same value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSettings {
    pub name: String,
    /// A tag, or metadata with the prefix `meta.`.
    pub by: String,
    /// `None` for all databases.
    pub database: Option<String>,
}

/// `[limits]`: the size and shape of what is accepted. The answer at a limit names its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsSettings {
    pub body_bytes: usize,
    pub line_bytes: usize,
    pub tags: usize,
    pub fields: usize,
    pub name_bytes: usize,
    pub sensor_fields: usize,
    pub sensors: usize,
    pub databases: usize,
    pub deletions: usize,
    pub relabels: usize,
    pub meta_bytes: usize,
    /// Zero accepts any age.
    pub max_past: Duration,
    /// Zero accepts any time.
    pub max_future: Duration,
    pub undeclared_unit: UndeclaredUnit,
}

/// What happens to a timestamp that lies near now only in another unit than the default one, if none was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UndeclaredUnit {
    /// It is rejected.
    Refuse,
    /// It is kept, with a warning.
    Warn,
}

/// `[catalog]`: the known sensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogSettings {
    pub max_bytes: usize,
}

/// `[quota]`: how much one database may receive; zero for no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSettings {
    /// Per second.
    pub database_readings: usize,
    /// Per hour.
    pub database_new_sensors: usize,
    pub database_sensors: usize,
    /// Of a token without a quota of its own; zero for no limit.
    pub token_databases: usize,
}

/// `[query]`: the limits of queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuerySettings {
    pub limit_default: usize,
    pub limit_max: usize,
    pub span_max: Duration,
    pub series_max: usize,
    pub cache_max_age: Duration,
    /// Zero switches the cache off.
    pub cache_bytes: usize,
    pub sensors_max: usize,
    /// Of one request, its answer included.
    pub request_bytes: usize,
    /// Of all requests together.
    pub bytes: usize,
    /// Of all requests of one token together.
    pub token_bytes: usize,
    pub concurrent: usize,
    pub wait: Duration,
    pub timeout: Duration,
    pub log_after: Duration,
}

/// `[ui]`: the page for browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UiSettings {
    pub enabled: bool,
}

/// `[tail]`: readings as they are acked, to those who listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TailSettings {
    /// Most listeners at once.
    pub clients: usize,
    /// Memory for all of them.
    pub bytes: usize,
}

/// `[rejections]`: the rejected lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectionsSettings {
    /// On disk; zero keeps none.
    pub max_bytes: usize,
    pub keep: Duration,
    pub addresses: AddressesSetting,
}

/// How much of the senders' addresses is kept and logged with rejected lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressesSetting {
    /// All of it.
    Full,
    /// The network only: /24, or /64 of IPv6.
    Masked,
    /// Nothing.
    Off,
}

/// `[telemetry]`: logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// A level, or comma-separated `target=level`.
    pub log_level: String,
    pub log_format: LogFormat,
    /// Every line is shorter.
    pub log_line_bytes: usize,
}

/// What becomes of a value of another family than its field's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftSetting {
    Reject,
    /// It is kept beside the field.
    Keep,
}

/// What an ack promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckSetting {
    /// The readings are synced to the WAL.
    Log,
    /// The readings are in the store.
    Store,
}

/// `seal.form`: how days are sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealFormSetting {
    Packed,
    Columns,
    Off,
}

/// Whether clients must present a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthSetting {
    /// hourglass does not ask for one.
    Off,
    /// A client may present none, but one that it presents must be valid.
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
