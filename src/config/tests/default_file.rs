//! `config/default.toml` and the code have the same keys, defaults and bounds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::owned;
use crate::clock::ClockBounds;
use crate::config::units::{KIB, MIB, parse_duration, parse_size};
use crate::config::*;

/// What each key of the default file expects. To find out, it sets each key to a date, which none accepts. A key that
/// the code does not read is missing here; for one that the default file lacks, `resolve` panics.
fn expectations() -> BTreeMap<&'static str, String> {
    let dated: Vec<String> = DEFAULT
        .lines()
        .map(|line| match line.split_once(" = ") {
            Some((key, _)) if !line.starts_with('#') => format!("{key} = 1979-05-27"),
            _ => line.to_owned(),
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dated.toml");
    std::fs::write(&path, dated.join("\n")).unwrap();
    let problems = load(Some(&path), owned(&[]), &Overrides::default()).unwrap_err();
    let expectation = |problem: Problem| match problem.reason {
        ProblemReason::Invalid { key, fault: ValueFault::WrongType, expected, .. } => (key, expected),
        _ => panic!("{problem}"),
    };
    problems.into_iter().map(expectation).collect()
}

/// The keys of `config/default.toml` with their values as written and the comment lines above them.
fn documented() -> Vec<(String, &'static str, Vec<&'static str>)> {
    let (mut section, mut comment, mut found) = ("", Vec::new(), Vec::new());
    for line in DEFAULT.lines() {
        if let Some(text) = line.strip_prefix('#') {
            comment.push(text.trim());
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
        } else if let Some((key, value)) = line.split_once(" = ") {
            found.push((format!("{section}.{key}"), value, comment.clone()));
        }
        comment.clear();
    }
    found
}

#[test]
fn the_default_file_holds_exactly_the_keys_that_the_code_reads() {
    let mut documented: Vec<String> = documented().into_iter().map(|(key, ..)| key).collect();
    documented.sort();
    let read: Vec<&str> = expectations().into_keys().collect();
    assert_eq!(documented, read);
}

#[test]
fn the_default_file_states_meaning_default_and_bounds_of_each_key() {
    let expectations = expectations();
    for (key, value, comment) in documented() {
        let expected = &expectations[key.as_str()];
        let (head, tail) = expected.split_at(1);
        let last = format!("{}{tail}; default {value}.", head.to_uppercase());
        assert_eq!(comment.last(), Some(&last.as_str()), "{key}");
        assert!(comment.len() >= 2 && !comment[0].is_empty(), "{key} has no meaning");
    }
}

#[test]
fn bounds_are_inclusive_and_nothing_beyond_them_is_accepted() {
    let mut bounded = 0;
    for (key, expected) in expectations() {
        let variable = format!("HOURGLASS_{}", key.to_uppercase().replace('.', "__"));
        let Some((kind, (low, high))) =
            expected.split_once(", ").and_then(|(kind, b)| Some((kind, b.split_once(" to ")?)))
        else {
            continue;
        };
        let below_above = match kind {
            "a whole number" | "\"auto\" or a whole number" => {
                [low.parse::<i64>().unwrap() - 1, high.parse::<i64>().unwrap() + 1].map(|n| n.to_string())
            }
            "a size" | "\"auto\" or a size" => {
                let [low, high] = [low, high].map(|text| parse_size(text).unwrap());
                [low.checked_sub(1), Some(high + 1)].map(|n| n.map_or("-1".into(), |n| n.to_string()))
            }
            "a duration" => {
                let [low, high] = [low, high].map(|text| parse_duration(text).unwrap().as_millis());
                [low.checked_sub(1), Some(high + 1)].map(|n| n.map_or("-1ms".into(), |n| format!("{n}ms")))
            }
            _ => continue,
        };
        bounded += 1;
        let is_refused = |value: &str| {
            let problems = load(None, owned(&[(&variable, value)]), &Overrides::default()).err().unwrap_or_default();
            problems.iter().any(|problem| matches!(problem.reason, ProblemReason::Invalid { .. }))
        };
        assert!(!is_refused(low) && !is_refused(high), "{key}: {low} and {high} are allowed");
        for beyond in below_above {
            assert!(is_refused(&beyond), "{key}: {beyond} is not {expected}");
        }
    }
    assert!(bounded >= 30, "only {bounded} keys have bounds");
}

#[test]
fn the_defaults_are_these() {
    let seconds = Duration::from_secs;
    let expected = Settings {
        server: ServerSettings {
            listen: Some(([127, 0, 0, 1], 8086).into()),
            data_dir: "./data".into(),
            memory: 512 * MIB,
            connections: 1024,
            connections_per_address: 256,
            idle_timeout: seconds(75),
            header_timeout: seconds(10),
            header_bytes: 32 * KIB,
            http2: false,
            body_timeout: seconds(30),
            shutdown_timeout: seconds(30),
            hosts: Vec::new(),
            trusted_proxies: Vec::new(),
        },
        auth: AuthSettings {
            required: AuthRequired::Auto,
            first_token: false,
            first_token_file: PathBuf::new(),
            max_lifetime: Duration::ZERO,
            cache_max_age: seconds(168 * 3600),
        },
        audit: AuditSettings { file_bytes: 16 * MIB, files: 3, refusals_per_second: 10, uses: Duration::ZERO },
        status: StatusSettings { listen: None },
        tls: TlsSettings {
            listen: None,
            cert_file: "".into(),
            key_file: "".into(),
            client_ca_file: "".into(),
            client_crl_file: "".into(),
            client_auth: ClientAuthSetting::Off,
            hsts: seconds(0),
        },
        cors: CorsSettings { origins: Vec::new() },
        tcp: TcpSettings {
            listen: None,
            tls: false,
            database: "default".into(),
            precision: crate::reading::Precision::Nanoseconds,
            idle_timeout: seconds(600),
        },
        store: StoreSettings {
            uri: StoreUri::parse("embedded").unwrap(),
            command_timeout: seconds(5),
            commands_in_flight: 4,
        },
        embedded: EmbeddedSettings { cache_bytes: 19 * MIB, compact_at: 50 },
        ingest: IngestSettings {
            shards: 2,
            bytes_in_flight: 59 * MIB,
            ack: AckSetting::Log,
            drift: DriftSetting::Reject,
            ack_timeout: seconds(15),
            database_share: 25,
            idempotency_window: Duration::from_secs(600),
            idempotency_keys: 10_000,
        },
        wal: WalSettings {
            dir: "".into(),
            segment_bytes: 64 * MIB,
            budget_bytes: 10 * 1024 * MIB,
            queue_bytes: 24 * MIB,
            compress: true,
            horizon: seconds(7 * 24 * 3600),
        },
        clock: ClockBounds { tolerance: Duration::from_millis(250), max_offset: seconds(60) },
        flush: FlushSettings { interval: seconds(60), quiet: seconds(5), tasks: 2 },
        seal: SealSettings {
            form: SealFormSetting::Packed,
            after: seconds(86_400),
            interval: seconds(60),
            direct_min: 32,
            quiet: seconds(600),
        },
        retention: RetentionSettings { readings: seconds(0), summaries: seconds(0), interval: seconds(60) },
        page: PageSettings { max_readings: 3600, max_bytes: MIB, hard_bytes: 4 * MIB },
        memtable: MemtableSettings { max_bytes: 147 * MIB },
        sensors: SensorsSettings {
            recent: 10,
            write_interval: seconds(60),
            outlier_ttl: seconds(24 * 3600),
            silent_after: seconds(0),
        },
        limits: LimitsSettings {
            body_bytes: 25 * MIB,
            line_bytes: 64 * KIB,
            tags: 32,
            fields: 256,
            name_bytes: 1024,
            sensor_fields: 1024,
            sensors: 1_000_000,
            databases: 100,
            deletions: 1000,
            relabels: 256,
            meta_bytes: 8 * KIB,
            max_past: seconds(0),
            max_future: seconds(0),
            undeclared_unit: UndeclaredUnit::Refuse,
        },
        meta: MetaSettings::default(),
        kinds: crate::kinds::Kinds::default(),
        groups: Vec::new(),
        catalog: CatalogSettings { max_bytes: 73 * MIB },
        quota: QuotaSettings {
            database_readings: 0,
            database_new_sensors: 0,
            database_sensors: 0,
            token_databases: 50,
        },
        query: QuerySettings {
            limit_default: 1000,
            limit_max: 100_000,
            span_max: seconds(876_600 * 60 * 60),
            series_max: 100_000,
            cache_max_age: seconds(5),
            cache_bytes: 19 * MIB,
            sensors_max: 1000,
            request_bytes: 44 * MIB,
            bytes: 88 * MIB,
            token_bytes: 66 * MIB,
            concurrent: 16,
            wait: Duration::from_secs(5),
            timeout: seconds(30),
            log_after: seconds(1),
        },
        ui: UiSettings { enabled: true },
        tail: TailSettings { clients: 64, bytes: 2 * MIB },
        rejections: RejectionsSettings {
            max_bytes: 16 * MIB,
            keep: seconds(168 * 3600),
            addresses: AddressesSetting::Full,
        },
        telemetry: TelemetrySettings { log_level: "info".into(), log_format: LogFormat::Auto, log_line_bytes: 500 },
    };
    assert_eq!(Settings::default(), expected);
    // The machine that runs this may be a small one.
    let memory = owned(&[("HOURGLASS_SERVER__MEMORY", "512MiB")]);
    assert_eq!(load(None, memory, &Overrides::default()).unwrap(), (expected, Vec::new()));
}
