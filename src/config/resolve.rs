//! From raw layers to `Settings`: each key's type and bounds, and the relations between keys. A key
//! is added here, in `settings.rs` and in `config/default.toml`; the compiler and the tests see to
//! it that none is forgotten.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::layers::{Layers, RawValue};
use super::problem::{Fault, Problem, Reason, show_text};
use super::settings::{
    AckSetting, AuthRequired, AuthSettings, ClientAuthSetting, CorsSettings, EmbeddedSettings, FlushSettings,
    HotSettings, IngestSettings, LimitsSettings, LogSettings, PageSettings, QuerySettings, QuotaSettings,
    SensorsSettings, ServerSettings, StatusSettings, StoreSettings, TcpSettings, TelemetrySettings, TlsSettings,
};
use super::units::{GIB, KIB, MIB, parse_duration, parse_size, show_duration, show_size};
use super::{LogFormat, Settings, StoreUri};
use crate::clock::ClockBounds;
use crate::reading::Precision;

const TIB: usize = 1 << 40;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// 292 years: the times that nanoseconds can tell, from one end to the middle.
const SPAN_MOST: Duration = Duration::from_secs(292 * 365 * 24 * 60 * 60);

/// More than this is no bound.
const QUOTA_MOST: usize = 1_000_000_000;

/// The shortest deadline: below it nothing could ever be answered.
const TICK: Duration = Duration::from_millis(10);

/// Judges every layer's value of every key, also of those that a higher layer overrides: a file is
/// right or wrong whatever the environment says. The settings are of use only when no problem came up.
pub fn resolve(layers: &Layers, problems: &mut Vec<Problem>) -> Settings {
    let mut reader = Reader { layers, problems };
    let settings = Settings {
        server: ServerSettings {
            listen: reader.address("server.listen"),
            data_dir: reader.data_dir("server.data_dir"),
            connections: reader.count("server.connections", 1..=65536),
            connections_per_address: reader.count("server.connections_per_address", 1..=65536),
            idle_timeout: reader.duration("server.idle_timeout", TICK..=HOUR),
            header_timeout: reader.duration("server.header_timeout", TICK..=10 * MINUTE),
            header_bytes: reader.size("server.header_bytes", 8 * KIB..=64 * KIB),
            http2: reader.truth("server.http2"),
            body_timeout: reader.duration("server.body_timeout", TICK..=HOUR),
            shutdown_timeout: reader.duration("server.shutdown_timeout", TICK..=HOUR),
        },
        auth: AuthSettings {
            required: reader.auth_required("auth.required"),
            first_token: reader.truth("auth.first_token"),
        },
        status: StatusSettings { listen: reader.optional_address("status.listen") },
        tls: TlsSettings {
            listen: reader.optional_address("tls.listen"),
            cert_file: reader.read("tls.cert_file", "a path, or nothing", path_of),
            key_file: reader.read("tls.key_file", "a path, or nothing", path_of),
            client_ca_file: reader.read("tls.client_ca_file", "a path, or nothing", path_of),
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
        embedded: EmbeddedSettings { cache_bytes: reader.size("embedded.cache_bytes", MIB..=TIB) },
        ingest: IngestSettings {
            shards: reader.count("ingest.shards", 1..=64),
            bytes_in_flight: reader.size("ingest.bytes_in_flight", KIB..=4 * GIB),
            ack: reader.ack("ingest.ack"),
            ack_timeout: reader.duration("ingest.ack_timeout", TICK..=10 * MINUTE),
            database_share: reader.count("ingest.database_share", 1..=100),
        },
        log: LogSettings {
            dir: reader.read("log.dir", "a path, or nothing", path_of),
            segment_bytes: reader.size("log.segment_bytes", 64 * KIB..=GIB),
            budget_bytes: reader.size("log.budget_bytes", 128 * KIB..=TIB),
            queue_bytes: reader.size("log.queue_bytes", 64 * KIB..=GIB),
            compress: reader.truth("log.compress"),
            horizon: reader.duration("log.horizon", MINUTE..=365 * 24 * HOUR),
        },
        clock: ClockBounds {
            tolerance: reader.duration("clock.tolerance", Duration::from_millis(1)..=MINUTE),
            max_offset: reader.duration("clock.max_offset", SECOND..=24 * HOUR),
        },
        flush: FlushSettings {
            interval: reader.duration("flush.interval", TICK..=HOUR),
            quiet: reader.duration("flush.quiet", TICK..=10 * MINUTE),
            flights: reader.count("flush.flights", 1..=16),
        },
        page: PageSettings {
            max_readings: reader.count("page.max_readings", 1..=100_000),
            max_bytes: reader.size("page.max_bytes", KIB..=4 * MIB),
            hard_bytes: reader.size("page.hard_bytes", KIB..=12 * MIB),
        },
        hot: HotSettings { max_bytes: reader.size("hot.max_bytes", MIB..=TIB) },
        sensors: SensorsSettings {
            recent: reader.count("sensors.recent", 1..=1000),
            write_interval: reader.duration("sensors.write_interval", TICK..=24 * HOUR),
            outlier_ttl: reader.duration("sensors.outlier_ttl", SECOND..=365 * 24 * HOUR),
        },
        limits: LimitsSettings {
            body_bytes: reader.size("limits.body_bytes", KIB..=GIB),
            line_bytes: reader.size("limits.line_bytes", 64..=MIB),
            tags: reader.count("limits.tags", 0..=256),
            fields: reader.count("limits.fields", 1..=4096),
            name_bytes: reader.size("limits.name_bytes", 1..=16 * KIB),
            sensor_fields: reader.count("limits.sensor_fields", 1..=65_535),
            sensors: reader.count("limits.sensors", 1..=100_000_000),
            databases: reader.count("limits.databases", 1..=10_000),
            deletions: reader.count("limits.deletions", 1..=10_000),
            max_past: reader.duration("limits.max_past", Duration::ZERO..=SPAN_MOST),
            max_future: reader.duration("limits.max_future", Duration::ZERO..=SPAN_MOST),
        },
        quota: QuotaSettings {
            database_readings: reader.count("quota.database_readings", 0..=QUOTA_MOST),
            database_new_sensors: reader.count("quota.database_new_sensors", 0..=QUOTA_MOST),
            database_sensors: reader.count("quota.database_sensors", 0..=QUOTA_MOST),
        },
        query: QuerySettings {
            limit_default: reader.count("query.limit_default", 1..=1_000_000),
            limit_max: reader.count("query.limit_max", 1..=1_000_000),
            span_max: reader.duration("query.span_max", HOUR..=SPAN_MOST),
            series_max: reader.count("query.series_max", 1..=10_000_000),
            cache_max_age: reader.duration("query.cache_max_age", Duration::from_millis(1)..=HOUR),
            cache_bytes: reader.size("query.cache_bytes", 0..=TIB),
            sensors_max: reader.count("query.sensors_max", 1..=100_000),
            request_bytes: reader.size("query.request_bytes", MIB..=TIB),
            bytes: reader.size("query.bytes", MIB..=TIB),
            token_bytes: reader.size("query.token_bytes", MIB..=TIB),
            concurrent: reader.count("query.concurrent", 1..=1024),
            wait: reader.duration("query.wait", Duration::ZERO..=HOUR),
            timeout: reader.duration("query.timeout", TICK..=HOUR),
            log_after: reader.duration("query.log_after", Duration::ZERO..=HOUR),
        },
        telemetry: TelemetrySettings {
            log_level: reader.log_level("telemetry.log_level"),
            log_format: reader.log_format("telemetry.log_format"),
        },
    };
    reader.judge_relations(&settings);
    settings
}

/// Takes keys out of the layers and notes what is wrong with them.
struct Reader<'a> {
    layers: &'a Layers,
    problems: &'a mut Vec<Problem>,
}

impl Reader<'_> {
    fn truth(&mut self, key: &'static str) -> bool {
        self.read(key, "true or false", |value| match value {
            RawValue::Bool(truth) => Ok(*truth),
            RawValue::Bare(text) => text.parse().map_err(|_| Fault::UnknownWord),
            _ => Err(Fault::WrongType),
        })
    }

    fn count(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> usize {
        let expected = format!("a whole number, {} to {}", bounds.start(), bounds.end());
        self.read(key, &expected, |value| {
            let number = match value {
                RawValue::Integer(number) => *number,
                RawValue::Bare(text) => text.parse().map_err(|_| Fault::NotWhole)?,
                _ => return Err(Fault::WrongType),
            };
            within(usize::try_from(number).map_err(|_| Fault::OutOfBounds)?, &bounds)
        })
    }

    fn size(&mut self, key: &'static str, bounds: RangeInclusive<usize>) -> usize {
        let expected = format!("a size, {} to {}", show_size(*bounds.start()), show_size(*bounds.end()));
        self.read(key, &expected, |value| {
            let bytes = match value {
                RawValue::Integer(number) => u64::try_from(*number).map_err(|_| Fault::OutOfBounds)?,
                RawValue::Text(text) | RawValue::Bare(text) => parse_size(text).map_err(Fault::Unit)?,
                _ => return Err(Fault::WrongType),
            };
            within(usize::try_from(bytes).map_err(|_| Fault::OutOfBounds)?, &bounds)
        })
    }

    fn duration(&mut self, key: &'static str, bounds: RangeInclusive<Duration>) -> Duration {
        let expected = format!("a duration, {} to {}", show_duration(*bounds.start()), show_duration(*bounds.end()));
        self.read(key, &expected, |value| {
            let text = match value {
                RawValue::Text(text) | RawValue::Bare(text) => text.clone(),
                // A number alone fails for its unit, as it does in the environment.
                RawValue::Integer(number) => number.to_string(),
                _ => return Err(Fault::WrongType),
            };
            within(parse_duration(&text).map_err(Fault::Unit)?, &bounds)
        })
    }

    fn address(&mut self, key: &'static str) -> SocketAddr {
        self.read(key, "an IP address and port", |value| text_of(value)?.parse().map_err(|_| Fault::NotAnAddress))
    }

    fn optional_address(&mut self, key: &'static str) -> Option<SocketAddr> {
        self.read(key, "an IP address and port, or nothing", |value| match text_of(value)? {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| Fault::NotAnAddress),
        })
    }

    fn auth_required(&mut self, key: &'static str) -> AuthRequired {
        self.read(key, r#""auto" or "always""#, |value| match text_of(value)? {
            "auto" => Ok(AuthRequired::Auto),
            "always" => Ok(AuthRequired::Always),
            _ => Err(Fault::UnknownWord),
        })
    }

    fn text(&mut self, key: &'static str) -> String {
        self.read(key, "text", |value| match text_of(value)? {
            "" => Err(Fault::Empty),
            text => Ok(text.to_owned()),
        })
    }

    fn precision(&mut self, key: &'static str) -> Precision {
        self.read(key, r#""auto", "ns", "us", "ms", "s", "m" or "h""#, |value| {
            Precision::from_name(text_of(value)?).ok_or(Fault::UnknownWord)
        })
    }

    fn client_auth(&mut self, key: &'static str) -> ClientAuthSetting {
        self.read(key, r#""off", "optional" or "required""#, |value| match text_of(value)? {
            "off" => Ok(ClientAuthSetting::Off),
            "optional" => Ok(ClientAuthSetting::Optional),
            "required" => Ok(ClientAuthSetting::Required),
            _ => Err(Fault::UnknownWord),
        })
    }

    fn origins(&mut self, key: &'static str) -> Vec<String> {
        self.read(key, "origins, comma-separated, or nothing", |value| {
            let origins = text_of(value)?.split(',').map(str::trim).filter(|origin| !origin.is_empty());
            origins
                .map(|origin| if is_origin(origin) { Ok(origin.to_owned()) } else { Err(Fault::NotAnOrigin) })
                .collect()
        })
    }

    fn data_dir(&mut self, key: &'static str) -> PathBuf {
        self.read(key, "a path", |value| match path_of(value)? {
            path if path.as_os_str().is_empty() => Err(Fault::Empty),
            path => Ok(path),
        })
    }

    fn log_level(&mut self, key: &'static str) -> String {
        let expected = "a level (off, error, warn, info, debug, trace) or target=level, comma-separated";
        self.read(key, expected, |value| {
            let directives: Vec<&str> = text_of(value)?.split(',').map(str::trim).collect();
            match directives.iter().find(|directive| !is_log_directive(directive)) {
                Some(directive) => Err(Fault::LogDirective { directive: show_text(directive) }),
                None => Ok(directives.join(",")),
            }
        })
    }

    fn log_format(&mut self, key: &'static str) -> LogFormat {
        self.read(key, r#""auto", "text" or "json""#, |value| match text_of(value)? {
            "auto" => Ok(LogFormat::Auto),
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(Fault::UnknownWord),
        })
    }

    fn ack(&mut self, key: &'static str) -> AckSetting {
        self.read(key, r#""log" or "store""#, |value| match text_of(value)? {
            "log" => Ok(AckSetting::Log),
            "store" => Ok(AckSetting::Store),
            _ => Err(Fault::UnknownWord),
        })
    }

    /// The store of `store.uri` or `store.uri_file`, whichever the higher layer sets.
    fn store(&mut self) -> StoreUri {
        let uri = self.read("store.uri", r#""embedded", mongodb://… or mongodb+srv://…"#, |value| {
            StoreUri::parse(text_of(value)?).ok_or(Fault::UnknownStore)
        });
        let file = self.read("store.uri_file", "a path, or nothing", path_of);
        let (uri_source, file_source) = (self.layers.source("store.uri"), self.layers.source("store.uri_file"));
        let one_layer = uri_source.same_layer(file_source);
        if file.as_os_str().is_empty() || (!one_layer && uri_source > file_source) {
            return uri;
        }
        let reason = if one_layer && !uri.is_embedded() {
            Reason::TwoUris
        } else {
            match read_uri_file(&file) {
                Ok(uri) => return uri,
                // Somebody may put the URI itself in the file's place.
                Err(fault) => Reason::UriFile { file: show_text(&file.to_string_lossy()), fault },
            }
        };
        self.problems.push(Problem { source: file_source.clone(), reason });
        uri
    }

    /// Reads one key. A value with a problem leaves the lower layer's in place, so that the other
    /// keys can be judged too.
    fn read<T>(&mut self, key: &'static str, expected: &str, parse: impl Fn(&RawValue) -> Result<T, Fault>) -> T {
        let mut read = None;
        for entry in self.layers.entries(key) {
            match parse(&entry.value) {
                Ok(value) => read = Some(value),
                Err(fault) => self.problems.push(Problem {
                    source: entry.source.clone(),
                    reason: Reason::Invalid { key, value: entry.value.show(), fault, expected: expected.to_owned() },
                }),
            }
        }
        read.unwrap_or_else(|| panic!("config/default.toml has no sound value of {key}: {:?}", self.problems))
    }

    /// What keys must be to each other; judged only between values that are sound by themselves.
    fn judge_relations(&mut self, settings: &Settings) {
        let Settings { ingest, log, page, limits, query, .. } = settings;
        let sizes = [
            ("page.hard_bytes", page.hard_bytes, "page.max_bytes", page.max_bytes),
            // A body and the readings made of it are in memory at the same time.
            ("ingest.bytes_in_flight", ingest.bytes_in_flight / 2, "limits.body_bytes", limits.body_bytes),
            ("log.budget_bytes", log.budget_bytes / 2, "log.segment_bytes", log.segment_bytes),
            ("query.bytes", query.bytes, "query.request_bytes", query.request_bytes),
        ];
        for (low, room, floor, floor_bytes) in sizes {
            if room < floor_bytes && self.are_sound(&[low, floor]) {
                let half = if matches!(low, "page.hard_bytes" | "query.bytes") { "" } else { "half of it, " };
                self.note_below((low, format!("{half}{}", show_size(room))), (floor, show_size(floor_bytes)));
            }
        }
        let (max, default) = ("query.limit_max", "query.limit_default");
        if query.limit_max < query.limit_default && self.are_sound(&[max, default]) {
            self.note_below((max, query.limit_max.to_string()), (default, query.limit_default.to_string()));
        }
        self.judge_needs(settings);
    }

    /// Keys that are of no use without others.
    fn judge_needs(&mut self, settings: &Settings) {
        let Settings { tls, tcp, .. } = settings;
        let speaks_tls = [("tls.listen", tls.listen.is_some()), ("tcp.tls", tcp.tls)];
        let files = [("tls.cert_file", &tls.cert_file), ("tls.key_file", &tls.key_file)];
        let mut needs = Vec::new();
        for (key, _) in speaks_tls.into_iter().filter(|(_, speaks)| *speaks) {
            needs.extend(files.map(|(file, path)| (key, file, path)));
        }
        if tls.client_auth != ClientAuthSetting::Off {
            needs.push(("tls.client_auth", "tls.client_ca_file", &tls.client_ca_file));
        }
        for (key, needed, path) in needs {
            if path.as_os_str().is_empty() && self.are_sound(&[key, needed]) {
                let source = self.layers.source(key).clone();
                self.problems.push(Problem { source, reason: Reason::Needs { key, needed } });
            }
        }
    }

    /// Blames the higher layer: it is the one that broke what the lower ones had right.
    fn note_below(&mut self, low: (&'static str, String), floor: (&'static str, String)) {
        let source = self.layers.source(low.0).max(self.layers.source(floor.0)).clone();
        self.problems.push(Problem { source, reason: Reason::Below { low, floor } });
    }

    fn are_sound(&self, keys: &[&str]) -> bool {
        let is_blamed =
            |problem: &Problem| matches!(problem.reason, Reason::Invalid { key, .. } if keys.contains(&key));
        !self.layers.torn && !self.problems.iter().any(is_blamed)
    }
}

fn within<T: PartialOrd>(value: T, bounds: &RangeInclusive<T>) -> Result<T, Fault> {
    if bounds.contains(&value) { Ok(value) } else { Err(Fault::OutOfBounds) }
}

fn text_of(value: &RawValue) -> Result<&str, Fault> {
    match value {
        RawValue::Text(text) | RawValue::Bare(text) => Ok(text),
        _ => Err(Fault::WrongType),
    }
}

/// A scheme, a host and perhaps a port, and nothing that a browser would not write.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_:[]".contains(&byte);
    host.is_some_and(|host| !host.is_empty() && host.bytes().all(fits))
}

fn path_of(value: &RawValue) -> Result<PathBuf, Fault> {
    match value {
        RawValue::Path(path) => Ok(path.clone()),
        _ => text_of(value).map(PathBuf::from),
    }
}

/// Stricter than the subscriber, which takes a mistyped level for a target and then logs nothing.
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

fn read_uri_file(path: &Path) -> Result<StoreUri, Fault> {
    let text = std::fs::read_to_string(path).map_err(|error| Fault::Unreadable { error: error.to_string() })?;
    match text.trim() {
        "" => Err(Fault::Empty),
        uri => StoreUri::parse(uri).ok_or(Fault::UnknownStore),
    }
}
