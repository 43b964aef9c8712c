//! From raw layers to `Settings`: each key's type and bounds, and the relations between keys. To add a key, edit this
//! file, `settings.rs` and `config/default.toml`; the compiler and the tests notice if one of them is missing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::layers::{Layers, WrittenValue};
use super::memory::{MEMORY_LEAST, MemoryShares, default_memory};
use super::problem::{Problem, ProblemReason, ValueFault, show_text};
use super::settings::{
    AckSetting, AddressesSetting, AuditSettings, AuthRequired, AuthSettings, CatalogSettings, ClientAuthSetting,
    CorsSettings, DriftSetting, EmbeddedSettings, FlushSettings, IngestSettings, LimitsSettings, MemtableSettings,
    PageSettings, QuerySettings, QuotaSettings, RejectionsSettings, RetentionSettings, SealFormSetting, SealSettings,
    SensorsSettings, ServerSettings, StatusSettings, StoreSettings, TailSettings, TcpSettings, TelemetrySettings,
    TlsSettings, UiSettings, UndeclaredUnit, UndoSettings, WalSettings,
};
use super::units::{GIB, KIB, MIB, parse_duration, parse_size, show_size};
use super::{LogFormat, Settings, StoreUri};
use crate::clock::ClockBounds;
use crate::reading::Precision;
use crate::reading::duration::show_duration;

/// What a listener's address may be.
const ADDRESS: &str = "an IP address and port, or a port of localhost, such as localhost:8086";
const TIB: usize = 1 << 40;
/// The value of a key that follows from `server.memory`.
const AUTO: &str = "auto";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// 292 years: from 1970 to the first or last timestamp that 64-bit nanoseconds can represent.
const SPAN_MOST: Duration = Duration::from_secs(292 * 365 * 24 * 60 * 60);

/// A larger quota would not limit anything.
const QUOTA_MOST: usize = 1_000_000_000;

/// The shortest timeout: below it, no request could ever be answered.
const TICK: Duration = Duration::from_millis(10);

/// Validates every layer's value of every key, including overridden ones, so that whether a file is valid does not
/// depend on the environment. The settings may be used only if there is no problem.
pub fn resolve(layers: &Layers, machine: Option<usize>, problems: &mut Vec<Problem>) -> Settings {
    let mut reader = KeyReader { layers, problems };
    let memory = reader.size_or_auto("server.memory", MEMORY_LEAST..=TIB).unwrap_or_else(|| default_memory(machine));
    let shares = MemoryShares::of(memory);
    let body = reader.size_or_auto("limits.body_bytes", KIB..=GIB);
    let in_flight = reader.size_or_auto("ingest.bytes_in_flight", KIB..=4 * GIB);
    // Where only one of two related keys is set, the other follows it.
    let in_flight = in_flight.unwrap_or_else(|| shares.in_flight.max(2 * body.unwrap_or(0)));
    let body = body.unwrap_or_else(|| shares.body.min(in_flight / 2));
    let request = reader.size_or_auto("query.request_bytes", MIB..=TIB);
    let queries = reader.size_or_auto("query.bytes", MIB..=TIB);
    let queries = queries.unwrap_or_else(|| shares.queries.max(request.unwrap_or(0)));
    let connections = reader.count_or_auto("server.connections", 1..=65536).unwrap_or(shares.connections);
    let settings = Settings {
        server: ServerSettings {
            listen: reader.optional_address("server.listen"),
            data_dir: reader.data_dir("server.data_dir"),
            memory,
            connections,
            connections_per_address: reader
                .count_or_auto("server.connections_per_address", 1..=65536)
                .unwrap_or(shares.per_address.min(connections)),
            idle_timeout: reader.duration("server.idle_timeout", TICK..=HOUR),
            header_timeout: reader.duration("server.header_timeout", TICK..=10 * MINUTE),
            header_bytes: reader.size("server.header_bytes", 8 * KIB..=64 * KIB),
            http2: reader.truth("server.http2"),
            body_timeout: reader.duration("server.body_timeout", TICK..=HOUR),
            shutdown_timeout: reader.duration("server.shutdown_timeout", TICK..=HOUR),
            hosts: reader.hosts("server.hosts"),
            trusted_proxies: reader.networks("server.trusted_proxies"),
        },
        auth: AuthSettings {
            required: reader.auth_required("auth.required"),
            first_token: reader.truth("auth.first_token"),
            first_token_file: reader.read("auth.first_token_file", "a path, or nothing", path_of),
            max_lifetime: reader.duration("auth.max_lifetime", Duration::ZERO..=100 * 365 * 24 * HOUR),
            cache_max_age: reader.duration("auth.cache_max_age", MINUTE..=365 * 24 * HOUR),
        },
        audit: AuditSettings {
            file_bytes: reader.size("audit.file_bytes", 64 * KIB..=GIB),
            files: reader.count("audit.files", 1..=100),
            refusals_per_second: reader.count("audit.refusals_per_second", 1..=1000),
            uses: reader.duration("audit.uses", Duration::ZERO..=365 * 24 * HOUR),
        },
        status: StatusSettings { listen: reader.optional_address("status.listen") },
        tls: TlsSettings {
            listen: reader.optional_address("tls.listen"),
            cert_file: reader.read("tls.cert_file", "a path, or nothing", path_of),
            key_file: reader.read("tls.key_file", "a path, or nothing", path_of),
            client_ca_file: reader.read("tls.client_ca_file", "a path, or nothing", path_of),
            client_crl_file: reader.read("tls.client_crl_file", "a path, or nothing", path_of),
            client_auth: reader.client_auth("tls.client_auth"),
            hsts: reader.duration("tls.hsts", Duration::ZERO..=2 * 365 * 24 * HOUR),
        },
        cors: CorsSettings { origins: reader.origins("cors.origins") },
        tcp: TcpSettings {
            listen: reader.optional_address("tcp.listen"),
            tls: reader.truth("tcp.tls"),
            database: reader.text("tcp.database"),
            precision: reader.precision("tcp.precision"),
            idle_timeout: reader.duration("tcp.idle_timeout", TICK..=24 * HOUR),
        },
        store: StoreSettings {
            uri: reader.store(),
            command_timeout: reader.duration("store.command_timeout", TICK..=10 * MINUTE),
            commands_in_flight: reader.count("store.commands_in_flight", 1..=64),
        },
        embedded: EmbeddedSettings {
            cache_bytes: reader.share("embedded.cache_bytes", MIB..=TIB, shares.embedded),
            compact_at: reader.count("embedded.compact_at", 0..=100),
        },
        ingest: IngestSettings {
            shards: reader.count("ingest.shards", 1..=64),
            bytes_in_flight: in_flight,
            ack: reader.ack("ingest.ack"),
            drift: reader.drift("ingest.drift"),
            ack_timeout: reader.duration("ingest.ack_timeout", TICK..=10 * MINUTE),
            database_share: reader.count("ingest.database_share", 1..=100),
            idempotency_window: reader.duration("ingest.idempotency_window", 10 * SECOND..=24 * HOUR),
            idempotency_keys: reader.count("ingest.idempotency_keys", 1..=1_000_000),
        },
        wal: WalSettings {
            dir: reader.read("wal.dir", "a path, or nothing", path_of),
            segment_bytes: reader.size("wal.segment_bytes", 64 * KIB..=GIB),
            budget_bytes: reader.size("wal.budget_bytes", 128 * KIB..=TIB),
            queue_bytes: reader.share("wal.queue_bytes", 64 * KIB..=GIB, shares.queue),
            compress: reader.truth("wal.compress"),
            horizon: reader.duration("wal.horizon", MINUTE..=365 * 24 * HOUR),
        },
        clock: ClockBounds {
            tolerance: reader.duration("clock.tolerance", Duration::from_millis(1)..=MINUTE),
            max_offset: reader.duration("clock.max_offset", SECOND..=24 * HOUR),
        },
        flush: FlushSettings {
            interval: reader.duration("flush.interval", TICK..=HOUR),
            quiet: reader.duration("flush.quiet", TICK..=10 * MINUTE),
            tasks: reader.count("flush.tasks", 1..=16),
        },
        seal: SealSettings {
            form: reader.seal_form("seal.form"),
            after: reader.duration("seal.after", Duration::ZERO..=365 * 24 * HOUR),
            interval: reader.duration("seal.interval", TICK..=24 * HOUR),
            direct_min: reader.count("seal.direct_min", 0..=1_000_000),
            quiet: reader.duration("seal.quiet", Duration::ZERO..=24 * HOUR),
        },
        retention: RetentionSettings {
            readings: reader.duration("retention.readings", Duration::ZERO..=100 * 365 * 24 * HOUR),
            summaries: reader.duration("retention.summaries", Duration::ZERO..=100 * 365 * 24 * HOUR),
            interval: reader.duration("retention.interval", TICK..=24 * HOUR),
        },
        undo: UndoSettings {
            keep: reader.duration("undo.keep", Duration::ZERO..=365 * 24 * HOUR),
            bytes: reader.size("undo.bytes", MIB..=TIB),
        },
        page: PageSettings {
            max_readings: reader.count("page.max_readings", 1..=100_000),
            max_bytes: reader.size("page.max_bytes", KIB..=4 * MIB),
            hard_bytes: reader.size("page.hard_bytes", KIB..=12 * MIB),
        },
        memtable: MemtableSettings { max_bytes: reader.share("memtable.max_bytes", MIB..=TIB, shares.memtable) },
        sensors: SensorsSettings {
            recent: reader.count("sensors.recent", 1..=1000),
            write_interval: reader.duration("sensors.write_interval", TICK..=24 * HOUR),
            outlier_ttl: reader.duration("sensors.outlier_ttl", SECOND..=365 * 24 * HOUR),
            silent_after: reader.duration("sensors.silent_after", Duration::ZERO..=365 * 24 * HOUR),
        },
        meta: layers.lists.meta.clone(),
        kinds: layers.lists.kinds.clone(),
        groups: layers.lists.groups.clone(),
        limits: LimitsSettings {
            body_bytes: body,
            line_bytes: reader.size("limits.line_bytes", 64..=MIB),
            tags: reader.count("limits.tags", 0..=256),
            fields: reader.count("limits.fields", 1..=4096),
            name_bytes: reader.size("limits.name_bytes", 1..=16 * KIB),
            sensor_fields: reader.count("limits.sensor_fields", 1..=65_535),
            sensors: reader.count("limits.sensors", 1..=100_000_000),
            databases: reader.count("limits.databases", 1..=10_000),
            deletions: reader.count("limits.deletions", 1..=10_000),
            meta_bytes: reader.size("limits.meta_bytes", 64..=64 * KIB),
            max_past: reader.duration("limits.max_past", Duration::ZERO..=SPAN_MOST),
            max_future: reader.duration("limits.max_future", Duration::ZERO..=SPAN_MOST),
            undeclared_unit: reader.undeclared_unit("limits.undeclared_unit"),
        },
        catalog: CatalogSettings { max_bytes: reader.share("catalog.max_bytes", 64 * KIB..=TIB, shares.catalog) },
        quota: QuotaSettings {
            database_readings: reader.count("quota.database_readings", 0..=QUOTA_MOST),
            database_new_sensors: reader.count("quota.database_new_sensors", 0..=QUOTA_MOST),
            database_sensors: reader.count("quota.database_sensors", 0..=QUOTA_MOST),
            token_databases: reader.count("quota.token_databases", 0..=QUOTA_MOST),
        },
        query: QuerySettings {
            limit_default: reader.count("query.limit_default", 1..=1_000_000),
            limit_max: reader.count("query.limit_max", 1..=1_000_000),
            span_max: reader.duration("query.span_max", HOUR..=SPAN_MOST),
            series_max: reader.count("query.series_max", 1..=10_000_000),
            cache_max_age: reader.duration("query.cache_max_age", Duration::from_millis(1)..=HOUR),
            cache_bytes: reader.share("query.cache_bytes", 0..=TIB, shares.summaries),
            sensors_max: reader.count("query.sensors_max", 1..=100_000),
            request_bytes: request.unwrap_or(shares.request.min(queries)),
            bytes: queries,
            token_bytes: reader.share("query.token_bytes", MIB..=TIB, shares.token.min(queries)),
            concurrent: reader.count("query.concurrent", 1..=1024),
            wait: reader.duration("query.wait", Duration::ZERO..=HOUR),
            timeout: reader.duration("query.timeout", TICK..=HOUR),
            log_after: reader.duration("query.log_after", Duration::ZERO..=HOUR),
        },
        ui: UiSettings { enabled: reader.truth("ui.enabled") },
        tail: TailSettings {
            clients: reader.count("tail.clients", 0..=1024),
            bytes: reader.size("tail.bytes", 256 * KIB..=GIB),
        },
        rejections: RejectionsSettings {
            max_count: reader.count("rejections.max_count", 0..=100_000),
            max_bytes: reader.size("rejections.max_bytes", 64 * KIB..=GIB),
            lines_bytes: reader.size("rejections.lines_bytes", 0..=GIB),
            keep: reader.duration("rejections.keep", MINUTE..=365 * 24 * HOUR),
            addresses: reader.addresses("rejections.addresses"),
        },
        telemetry: TelemetrySettings {
            log_level: reader.log_level("telemetry.log_level"),
            log_format: reader.log_format("telemetry.log_format"),
            log_line_bytes: reader.size("telemetry.log_line_bytes", 256..=64 * KIB),
        },
    };
    reader.check_relations(&settings);
    settings
}

/// Reads keys from the layers and collects problems.
struct KeyReader<'a> {
    layers: &'a Layers,
    problems: &'a mut Vec<Problem>,
}

impl KeyReader<'_> {
    fn truth(&mut self, key: &'static str) -> bool {
        self.read(key, "true or false", |value| match value {
            WrittenValue::Bool(truth) => Ok(*truth),
            WrittenValue::Bare(text) => text.parse().map_err(|_| ValueFault::UnknownWord),
            _ => Err(ValueFault::WrongType),
        })
    }

    fn count(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> usize {
        let expected = format!("a whole number, {} to {}", bounds.start(), bounds.end());
        self.read(key, &expected, |value| count_of_value(value, &bounds))
    }

    fn size(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> usize {
        let expected = format!("a size, {} to {}", show_size(*bounds.start()), show_size(*bounds.end()));
        self.read(key, &expected, |value| size_of_value(value, &bounds))
    }

    /// `None` for "auto".
    fn size_or_auto(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("\"auto\" or a size, {} to {}", show_size(*bounds.start()), show_size(*bounds.end()));
        self.read(key, &expected, |value| match value {
            WrittenValue::Text(text) | WrittenValue::Bare(text) if text == AUTO => Ok(None),
            value => size_of_value(value, &bounds).map(Some),
        })
    }

    /// A size, of which "auto" is this share of `server.memory`.
    fn share(&mut self, key: &'static str, bounds: RangeInclusive<usize>, share: usize) -> usize {
        self.size_or_auto(key, bounds).unwrap_or(share)
    }

    /// `None` for "auto".
    fn count_or_auto(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> Option<usize> {
        let expected = format!("\"auto\" or a whole number, {} to {}", bounds.start(), bounds.end());
        self.read(key, &expected, |value| match value {
            WrittenValue::Text(text) | WrittenValue::Bare(text) if text == AUTO => Ok(None),
            value => count_of_value(value, &bounds).map(Some),
        })
    }

    fn duration(&mut self, key: &'static str, bounds: RangeInclusive<Duration>) -> Duration {
        let expected = format!("a duration, {} to {}", show_duration(*bounds.start()), show_duration(*bounds.end()));
        self.read(key, &expected, |value| {
            let text = match value {
                WrittenValue::Text(text) | WrittenValue::Bare(text) => text.clone(),
                // A bare number fails because it has no unit, as it does in a variable.
                WrittenValue::Integer(number) => number.to_string(),
                _ => return Err(ValueFault::WrongType),
            };
            within(parse_duration(&text).map_err(ValueFault::Duration)?, &bounds)
        })
    }

    fn optional_address(&mut self, key: &'static str) -> Option<SocketAddr> {
        self.read(key, &format!("{ADDRESS}, or nothing"), |value| match text_of(value)? {
            "" => Ok(None),
            text => address(text).map(Some).ok_or(ValueFault::NotAnAddress),
        })
    }

    fn auth_required(&mut self, key: &'static str) -> AuthRequired {
        self.read(key, r#""auto" or "always""#, |value| match text_of(value)? {
            "auto" => Ok(AuthRequired::Auto),
            "always" => Ok(AuthRequired::Always),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn undeclared_unit(&mut self, key: &'static str) -> UndeclaredUnit {
        self.read(key, r#""refuse" or "warn""#, |value| match text_of(value)? {
            "refuse" => Ok(UndeclaredUnit::Refuse),
            "warn" => Ok(UndeclaredUnit::Warn),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn addresses(&mut self, key: &'static str) -> AddressesSetting {
        self.read(key, r#""full", "masked" or "off""#, |value| match text_of(value)? {
            "full" => Ok(AddressesSetting::Full),
            "masked" => Ok(AddressesSetting::Masked),
            "off" => Ok(AddressesSetting::Off),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn text(&mut self, key: &'static str) -> String {
        self.read(key, "text", |value| match text_of(value)? {
            "" => Err(ValueFault::Empty),
            text => Ok(text.to_owned()),
        })
    }

    fn precision(&mut self, key: &'static str) -> Precision {
        self.read(key, r#""auto", "ns", "us", "ms", "s", "m" or "h""#, |value| {
            Precision::from_name(text_of(value)?).ok_or(ValueFault::UnknownWord)
        })
    }

    fn client_auth(&mut self, key: &'static str) -> ClientAuthSetting {
        self.read(key, r#""off", "optional" or "required""#, |value| match text_of(value)? {
            "off" => Ok(ClientAuthSetting::Off),
            "optional" => Ok(ClientAuthSetting::Optional),
            "required" => Ok(ClientAuthSetting::Required),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn origins(&mut self, key: &'static str) -> Vec<String> {
        self.read(key, "origins, comma-separated, or nothing", |value| {
            let origins = text_of(value)?.split(',').map(str::trim).filter(|origin| !origin.is_empty());
            origins
                .map(|origin| if is_origin(origin) { Ok(origin.to_owned()) } else { Err(ValueFault::NotAnOrigin) })
                .collect()
        })
    }

    fn networks(&mut self, key: &'static str) -> Vec<(IpAddr, u8)> {
        self.read(key, "IP addresses and networks, comma-separated, or nothing", |value| {
            let networks = text_of(value)?.split(',').map(str::trim).filter(|network| !network.is_empty());
            networks.map(|text| network(text).ok_or(ValueFault::NotANetwork)).collect()
        })
    }

    fn hosts(&mut self, key: &'static str) -> Vec<String> {
        self.read(key, "host names without ports, comma-separated, or nothing", |value| {
            let names = text_of(value)?.split(',').map(str::trim).filter(|name| !name.is_empty());
            names
                .map(|name| if is_host(name) { Ok(name.to_ascii_lowercase()) } else { Err(ValueFault::NotAHost) })
                .collect()
        })
    }

    fn data_dir(&mut self, key: &'static str) -> PathBuf {
        self.read(key, "a path", |value| match path_of(value)? {
            path if path.as_os_str().is_empty() => Err(ValueFault::Empty),
            path => Ok(path),
        })
    }

    fn log_level(&mut self, key: &'static str) -> String {
        let expected = "a level (off, error, warn, info, debug, trace) or target=level, comma-separated";
        self.read(key, expected, |value| {
            let directives: Vec<&str> = text_of(value)?.split(',').map(str::trim).collect();
            match directives.iter().find(|directive| !is_log_directive(directive)) {
                Some(directive) => Err(ValueFault::LogDirective { directive: show_text(directive) }),
                None => Ok(directives.join(",")),
            }
        })
    }

    fn log_format(&mut self, key: &'static str) -> LogFormat {
        self.read(key, r#""auto", "text" or "json""#, |value| match text_of(value)? {
            "auto" => Ok(LogFormat::Auto),
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn seal_form(&mut self, key: &'static str) -> SealFormSetting {
        self.read(key, r#""packed", "columns" or "off""#, |value| match text_of(value)? {
            "packed" => Ok(SealFormSetting::Packed),
            "columns" => Ok(SealFormSetting::Columns),
            "off" => Ok(SealFormSetting::Off),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn drift(&mut self, key: &'static str) -> DriftSetting {
        self.read(key, r#""reject" or "keep""#, |value| match text_of(value)? {
            "reject" => Ok(DriftSetting::Reject),
            "keep" => Ok(DriftSetting::Keep),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    fn ack(&mut self, key: &'static str) -> AckSetting {
        self.read(key, r#""log" or "store""#, |value| match text_of(value)? {
            "log" => Ok(AckSetting::Log),
            "store" => Ok(AckSetting::Store),
            _ => Err(ValueFault::UnknownWord),
        })
    }

    /// The store of `store.uri` or of `store.uri_file`, whichever a higher layer sets.
    fn store(&mut self) -> StoreUri {
        let uri = self.read("store.uri", r#""embedded", mongodb://… or mongodb+srv://…"#, |value| {
            StoreUri::parse(text_of(value)?).ok_or(ValueFault::UnknownStore)
        });
        let file = self.read("store.uri_file", "a path, or nothing", path_of);
        let (uri_source, file_source) = (self.layers.source("store.uri"), self.layers.source("store.uri_file"));
        let one_layer = uri_source.same_layer(file_source);
        if file.as_os_str().is_empty() || (!one_layer && uri_source > file_source) {
            return uri;
        }
        let reason = if one_layer && !uri.is_embedded() {
            ProblemReason::TwoUris
        } else {
            match read_uri_file(&file) {
                Ok(uri) => return uri,
                // `show_text`, because the value may be a URI with credentials in place of a path.
                Err(fault) => ProblemReason::UriFile { file: show_text(&file.to_string_lossy()), fault },
            }
        };
        self.problems.push(Problem { source: file_source.clone(), reason });
        uri
    }

    /// Reads one key. An invalid value leaves the lower layer's value in effect, so that the other keys can be checked.
    fn read<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        parse: impl Fn(&WrittenValue) -> Result<T, ValueFault>,
    ) -> T {
        let mut read = None;
        for entry in self.layers.entries(key) {
            match parse(&entry.value) {
                Ok(value) => read = Some(value),
                Err(fault) => self.problems.push(Problem {
                    source: entry.source.clone(),
                    reason: ProblemReason::Invalid {
                        key,
                        value: entry.value.show(),
                        fault,
                        expected: expected.to_owned(),
                    },
                }),
            }
        }
        read.unwrap_or_else(|| panic!("config/default.toml has no valid value of {key}: {:?}", self.problems))
    }

    /// Checks relations between keys, but only where both values are valid on their own.
    fn check_relations(&mut self, settings: &Settings) {
        let Settings { ingest, wal, page, limits, query, .. } = settings;
        let sizes = [
            ("page.hard_bytes", page.hard_bytes, "page.max_bytes", page.max_bytes),
            // A body and the readings made of it are in memory at the same time.
            ("ingest.bytes_in_flight", ingest.bytes_in_flight / 2, "limits.body_bytes", limits.body_bytes),
            ("wal.budget_bytes", wal.budget_bytes / 2, "wal.segment_bytes", wal.segment_bytes),
            ("query.bytes", query.bytes, "query.request_bytes", query.request_bytes),
        ];
        for (low, room, floor, floor_bytes) in sizes {
            if room < floor_bytes && self.are_sound(&[low, floor]) {
                let half = if matches!(low, "page.hard_bytes" | "query.bytes") { "" } else { "half of it is " };
                self.note_below((low, format!("{half}{}", show_size(room))), (floor, show_size(floor_bytes)));
            }
        }
        let (max, default) = ("query.limit_max", "query.limit_default");
        if query.limit_max < query.limit_default && self.are_sound(&[max, default]) {
            self.note_below((max, query.limit_max.to_string()), (default, query.limit_default.to_string()));
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
        if tls.client_auth != ClientAuthSetting::Off {
            needs.push(("tls.client_auth", "tls.client_ca_file", &tls.client_ca_file));
        }
        let unset = needs.into_iter().filter(|(.., path)| path.as_os_str().is_empty());
        let mut unmet: Vec<_> = unset.map(|(key, needed, _)| (key, needed)).collect();
        // Revocation lists of nobody's authorities would protect nothing.
        if !tls.client_crl_file.as_os_str().is_empty() && tls.client_auth == ClientAuthSetting::Off {
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

fn count_of_value(value: &WrittenValue, bounds: &RangeInclusive<usize>) -> Result<usize, ValueFault> {
    let number = match value {
        WrittenValue::Integer(number) => *number,
        WrittenValue::Bare(text) => text.parse().map_err(|_| ValueFault::NotWhole)?,
        _ => return Err(ValueFault::WrongType),
    };
    within(usize::try_from(number).map_err(|_| ValueFault::OutOfBounds)?, bounds)
}

fn size_of_value(value: &WrittenValue, bounds: &RangeInclusive<usize>) -> Result<usize, ValueFault> {
    let bytes = match value {
        WrittenValue::Integer(number) => u64::try_from(*number).map_err(|_| ValueFault::OutOfBounds)?,
        WrittenValue::Text(text) | WrittenValue::Bare(text) => parse_size(text).map_err(ValueFault::Size)?,
        _ => return Err(ValueFault::WrongType),
    };
    within(usize::try_from(bytes).map_err(|_| ValueFault::OutOfBounds)?, bounds)
}

fn within<T: PartialOrd>(value: T, bounds: &RangeInclusive<T>) -> Result<T, ValueFault> {
    if bounds.contains(&value) { Ok(value) } else { Err(ValueFault::OutOfBounds) }
}

/// An address and a port; `localhost` or nothing but a port, with or without a colon, is loopback, never all addresses.
fn address(text: &str) -> Option<SocketAddr> {
    let loopback = |port: &str| Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
    let short = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if !short.is_empty() && short.bytes().all(|byte| byte.is_ascii_digit()) {
        loopback(short)
    } else {
        text.parse().ok()
    }
}

fn text_of(value: &WrittenValue) -> Result<&str, ValueFault> {
    match value {
        WrittenValue::Text(text) | WrittenValue::Bare(text) => Ok(text),
        _ => Err(ValueFault::WrongType),
    }
}

/// Whether it is a scheme, a host and possibly a port, with only the characters that browsers write in an origin.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(fits))
}

/// An address, or one with a slash and the number of leading bits that count; the others must be zero.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let (most, zeros) = match address {
        IpAddr::V4(address) => (32_u8, address.to_bits().trailing_zeros()),
        IpAddr::V6(address) => (128, address.to_bits().trailing_zeros()),
    };
    let bits = bits.map_or(Some(most), |bits| bits.parse().ok()).filter(|bits| *bits <= most)?;
    let canonical = address.to_canonical();
    match (address, canonical) {
        _ if u32::from(most - bits) > zeros => None,
        (IpAddr::V6(_), IpAddr::V4(_)) => Some((canonical, bits.checked_sub(96)?)),
        _ => Some((address, bits)),
    }
}

/// Whether it is a name such as `hourglass`, one with a star for what is below it, or a star alone.
fn is_host(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text == "*" || (!name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.bytes().all(fits))
}

fn path_of(value: &WrittenValue) -> Result<PathBuf, ValueFault> {
    match value {
        WrittenValue::Path(path) => Ok(path.clone()),
        _ => text_of(value).map(PathBuf::from),
    }
}

/// Stricter than `tracing_subscriber`, which takes a mistyped level for a target and then logs nothing.
fn is_log_directive(directive: &str) -> bool {
    let is_level = |text: &str| {
        ["off", "error", "warn", "info", "debug", "trace"].iter().any(|level| level.eq_ignore_ascii_case(text))
    };
    match directive.split_once('=') {
        None => is_level(directive),
        Some((target, level)) => {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
            !target.is_empty() && target.bytes().all(is_name) && is_level(level)
        }
    }
}

fn read_uri_file(path: &Path) -> Result<StoreUri, ValueFault> {
    let text = std::fs::read_to_string(path).map_err(|error| ValueFault::Unreadable { error: error.to_string() })?;
    match text.trim() {
        "" => Err(ValueFault::Empty),
        uri => StoreUri::parse(uri).ok_or(ValueFault::UnknownStore),
    }
}
