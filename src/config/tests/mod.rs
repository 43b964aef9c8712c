//! Tests all layers together: their order, and every class of problem.

mod default_file;
mod mqtt;

use std::path::Path;
use std::time::Duration;

use super::units::{GIB, KIB, MIB};
use super::*;

/// Loads a file with this text, variables and flags. Returns problems as printed, without the file's folder.
fn load_all(file: &str, variables: &[(&str, &str)], flags: &Overrides) -> Result<Settings, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    std::fs::write(&path, file).unwrap();
    let shown = |problem: &Problem| problem.to_string().replace(&format!("{}/", folder.path().display()), "");
    load(Some(&path), owned(variables), flags).map_err(|problems| problems.iter().map(shown).collect())
}

fn owned(variables: &[(&str, &str)]) -> impl Iterator<Item = (String, String)> {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
}

fn check_file(file: &str, problems: &[&str]) {
    assert_eq!(load_all(file, &[], &Overrides::default()).unwrap_err(), problems, "{file}");
}

fn check_variable(name: &str, value: &str, problems: &[&str]) {
    let found = load_all("", &[(name, value)], &Overrides::default()).err().unwrap_or_default();
    assert_eq!(found, problems, "{name}={value}");
}

fn with_store(uri: &str) -> Overrides {
    Overrides { store: Some(uri.into()), ..Overrides::default() }
}

#[test]
fn each_layer_overrides_the_one_before() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"/file\"\nconnections = 7\n[query]\nconcurrent = 3\n";
    let variables = [("HOURGLASS_SERVER_LISTEN", "127.0.0.1:2"), ("HOURGLASS_QUERY_CONCURRENT", "4")];
    let flags = Overrides { listen: Some("127.0.0.1:3".into()), ..Overrides::default() };
    let settings = load_all(file, &variables, &flags).unwrap();
    assert_eq!(settings.server.listen.unwrap().port(), 3, "the flag's");
    assert_eq!(settings.query.concurrent, 4, "the variable's");
    assert_eq!(
        (settings.server.connections, settings.server.data_dir.as_path()),
        (7, Path::new("/file")),
        "the file's"
    );
    assert_eq!(settings.limits.fields, 256, "the default");

    let flags = Overrides { data_dir: Some("/flag".into()), ..with_store("mongodb://h") };
    let settings = load_all(file, &[("HOURGLASS_STORE_URI", "embedded")], &flags).unwrap();
    assert_eq!(settings.server.data_dir, Path::new("/flag"));
    assert_eq!(settings.store.uri.expose(), "mongodb://h");
}

#[test]
fn variables_are_read_by_the_keys_type() {
    let variables = [
        ("HOURGLASS_INGEST_BYTES_IN_FLIGHT", "1GiB"),
        ("HOURGLASS_LIMITS_BODY_BYTES", "1000000"),
        ("HOURGLASS_FLUSH_INTERVAL", "10ms"),
        ("HOURGLASS_AUTH_FIRST_TOKEN", "true"),
        ("HOURGLASS_SERVER_LISTEN", "0.0.0.0:8086"),
        ("HOURGLASS_TELEMETRY_LOG_LEVEL", "warn, hourglass_store=DEBUG"),
        ("HOURGLASS_TELEMETRY_LOG_FORMAT", "json"),
    ];
    let settings = load_all("", &variables, &Overrides::default()).unwrap();
    assert_eq!(settings.ingest.bytes_in_flight, GIB);
    assert_eq!(settings.limits.body_bytes, 1_000_000);
    assert_eq!(settings.flush.interval, Duration::from_millis(10));
    assert!(settings.exposed_address().is_some() && settings.auth.first_token);
    assert_eq!(settings.telemetry.log_level, "warn,hourglass_store=DEBUG");
    assert_eq!(settings.telemetry.log_format, LogFormat::Json);
}

#[test]
fn toml_is_read_in_all_its_spellings() {
    let file = "quota.database_sensors = 1_000\nlimits = { body_bytes = 0x100000, line_bytes = '2KiB' }\n[sensors]\n";
    let settings = load_all(file, &[], &Overrides::default()).unwrap();
    assert_eq!(settings.quota.database_sensors, 1000);
    assert_eq!((settings.limits.body_bytes, settings.limits.line_bytes), (MIB, 2 * KIB));
}

#[test]
fn problems_state_source_fault_and_expected_value() {
    let bounds = "expected a whole number, 1 to 1024";
    let cases = [
        ("[query]\n\nconcurrent = 1025", format!("my.toml:3: query.concurrent = 1025: out of bounds; {bounds}")),
        ("query.concurrent = -1", format!("my.toml:1: query.concurrent = -1: out of bounds; {bounds}")),
        ("query.concurrent = '2'", format!("my.toml:1: query.concurrent = \"2\": wrong type; {bounds}")),
        ("query.concurrent = 2.0", format!("my.toml:1: query.concurrent = (float): wrong type; {bounds}")),
        ("[query.concurrent]", format!("my.toml:1: query.concurrent = (table): wrong type; {bounds}")),
        (
            "flush.interval = 2",
            "my.toml:1: flush.interval = 2: no unit (ms, s, m, h, d, w); expected a duration, 10ms to 1h".into(),
        ),
        (
            "flush.interval = '2ms'",
            "my.toml:1: flush.interval = \"2ms\": out of bounds; expected a duration, 10ms to 1h".into(),
        ),
        (
            "memtable.max_bytes = '1 GiB'",
            "my.toml:1: memtable.max_bytes = \"1 GiB\": \"1 \" is not a whole number; expected \"auto\" or a size, 1MiB to 1TiB".into(),
        ),
        (
            "memtable.max_bytes = 1000",
            "my.toml:1: memtable.max_bytes = 1000: out of bounds; expected \"auto\" or a size, 1MiB to 1TiB".into(),
        ),
        (
            "auth.first_token = 'yes'",
            "my.toml:1: auth.first_token = \"yes\": wrong type; expected true or false".into(),
        ),
        (
            "server.listen = 'localhost'",
            "my.toml:1: server.listen = \"localhost\": not an address and port; expected an IP address and port, or a \
             port of localhost, such as localhost:8086, or nothing"
                .into(),
        ),
        (
            "server.hosts = 'hourglass, http://a:80'",
            "my.toml:1: server.hosts = \"hourglass, http://a:80\": not a host name without a port, such as \
             hourglass.example.org; expected host names without ports, comma-separated, or nothing"
                .into(),
        ),
        ("server.data_dir = ''", "my.toml:1: server.data_dir = \"\": empty; expected a path".into()),
        (
            "store.uri = 'postgres://h'",
            "my.toml:1: store.uri = \"postgres://h\": unknown store; expected \"embedded\", mongodb://… or \
             mongodb+srv://…"
                .into(),
        ),
        (
            "telemetry.log_format = 'xml'",
            "my.toml:1: telemetry.log_format = \"xml\": not one of the allowed words; expected \"auto\", \"text\" or \"json\"".into(),
        ),
        (
            "telemetry.log_level = 'warn,inof'",
            "my.toml:1: telemetry.log_level = \"warn,inof\": \"inof\" is not understood; expected a level (off, error, \
             warn, info, debug, trace) or target=level, comma-separated"
                .into(),
        ),
    ];
    for (file, problem) in cases {
        check_file(file, &[&problem]);
    }
    check_variable(
        "HOURGLASS_QUERY_CONCURRENT",
        "two",
        &[&format!("variable HOURGLASS_QUERY_CONCURRENT: query.concurrent = \"two\": not a whole number; {bounds}")],
    );
    check_variable(
        "HOURGLASS_AUTH_FIRST_TOKEN",
        "yes",
        &["variable HOURGLASS_AUTH_FIRST_TOKEN: auth.first_token = \"yes\": not one of the allowed words; \
           expected true or false"],
    );
    let flags = Overrides { listen: Some("80860".into()), ..Overrides::default() };
    assert_eq!(
        load_all("", &[], &flags).unwrap_err(),
        [
            "flag --listen: server.listen = \"80860\": not an address and port; expected an IP address and port, or a port \
          of localhost, such as localhost:8086, or nothing"
        ]
    );
}

/// Regression: `--listen localhost:8086`, `:8086` and `8086` were refused.
#[test]
fn a_port_alone_is_on_loopback() {
    for (listen, expected) in [
        ("localhost:8086", "127.0.0.1:8086"),
        (":8086", "127.0.0.1:8086"),
        ("8086", "127.0.0.1:8086"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("[::1]:0", "[::1]:0"),
    ] {
        let flags = Overrides { listen: Some(listen.into()), ..Overrides::default() };
        let settings = load_all("", &[], &flags).unwrap();
        assert_eq!(settings.server.listen, expected.parse().ok(), "{listen}");
    }
    for listen in ["localhost", ":", "", "localhost:", "otherhost:8086", "::8086", "localhost::1", "+8086", "70000"] {
        let flags = Overrides { listen: Some(listen.into()), ..Overrides::default() };
        assert!(load_all("", &[], &flags).is_err(), "{listen}");
    }
}

#[test]
fn plain_http_can_be_off_only_with_tls() {
    let tls = "tls.listen = ':8443'\ntls.cert_file = 'c'\ntls.key_file = 'k'\n";
    let settings = load_all(&format!("{tls}server.listen = ''"), &[], &Overrides::default()).unwrap();
    assert_eq!((settings.server.listen, settings.front().port()), (None, 8443));
    let flags = Overrides { listen: Some(String::new()), ..Overrides::default() };
    for (file, flags) in
        [("server.listen = ''\ntcp.listen = ':1'\nstatus.listen = ':2'", Overrides::default()), ("", flags)]
    {
        let problems = load_all(file, &[], &flags).unwrap_err();
        assert!(problems.len() == 1 && problems[0].contains("server.listen is empty"), "{problems:?}");
    }
}

#[test]
fn proxies_are_addresses_and_networks() {
    for (text, expected) in [
        ("", Some(vec![])),
        ("10.0.0.7", Some(vec![("10.0.0.7", 32)])),
        ("10.0.0.0/8, ::1,2001:db8::/32", Some(vec![("10.0.0.0", 8), ("::1", 128), ("2001:db8::", 32)])),
        ("0.0.0.0/0", Some(vec![("0.0.0.0", 0)])),
        ("::ffff:10.0.0.0/104", Some(vec![("10.0.0.0", 8)])),
        ("10.0.0.7/8", None),
        ("10.0.0.0/33", None),
        ("10.0.0.0/", None),
        ("10.0.0.0/-1", None),
        ("::1/129", None),
        ("proxy.example.org", None),
        ("10.0.0.1:80", None),
    ] {
        let found = load_all(&format!("server.trusted_proxies = '{text}'"), &[], &Overrides::default());
        let found = found.map(|settings| settings.server.trusted_proxies).ok();
        let expected = expected.map(|networks| {
            networks.into_iter().map(|(address, bits)| (address.parse().unwrap(), bits)).collect::<Vec<_>>()
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn an_unknown_key_is_reported_with_the_nearest_known_one() {
    let cases = [
        ("[query]\nconcurent = 3", "my.toml:2: unknown key query.concurent; did you mean query.concurrent?"),
        ("[qury]\nconcurrent = 3", "my.toml:2: unknown key qury.concurrent; did you mean query.concurrent?"),
        ("listen = '127.0.0.1:1'", "my.toml:1: unknown key listen; did you mean server.listen?"),
        ("[clusters]", "my.toml:1: unknown key clusters"),
        ("[server.listen]\nport = 1", "my.toml:2: unknown key server.listen.port; did you mean server.listen?"),
        ("server = 5", "my.toml:1: server is a section, written [server]"),
        ("[[server]]\nlisten = '127.0.0.1:1'", "my.toml:1: server is a section, written [server]"),
    ];
    for (file, problem) in cases {
        check_file(file, &[problem]);
    }
}

#[test]
fn an_unknown_variable_is_a_problem_unless_an_orchestrator_sets_it() {
    let ours = "HOURGLASS_QUERY_CONCURENT";
    check_variable(ours, "3", &[&format!("variable {ours}: names no key; did you mean HOURGLASS_QUERY_CONCURRENT?")]);
    check_variable("HOURGLASS_CLUSTER_SIZE", "3", &["variable HOURGLASS_CLUSTER_SIZE: names no key"]);
    // Variables of Kubernetes for services named hourglass and hourglass-pods, of the tests, and of other programs.
    for (foreign, value) in [
        ("HOURGLASS_PORT", "tcp://10.0.0.7:8086"),
        ("HOURGLASS_SERVICE_HOST", "10.0.0.7"),
        ("HOURGLASS_SERVICE_PORT", "8086"),
        ("HOURGLASS_SERVICE_PORT_HTTP", "8086"),
        ("HOURGLASS_PORT_8086_TCP", "tcp://10.0.0.7:8086"),
        ("HOURGLASS_PORT_8086_TCP_PROTO", "tcp"),
        ("HOURGLASS_PORT_8086_TCP_PORT", "8086"),
        ("HOURGLASS_PODS_SERVICE_HOST", "None"),
        ("HOURGLASS_PODS_PORT", "tcp://10.0.0.7:8086"),
        ("HOURGLASS_PODS_PORT_8086_TCP_ADDR", "10.0.0.7"),
        ("HOURGLASS_TEST_MONGOD", "3"),
        ("HOURGLASS_TEST_A__B", "3"),
        ("X__Y", "3"),
        ("MY_HOURGLASS_STORE_URI", "3"),
    ] {
        check_variable(foreign, value, &[]);
    }
}

/// Regression: `HOURGLASS_STORE_URL` was ignored, and readings went to the embedded store.
#[test]
fn no_variable_with_our_prefix_is_ignored() {
    for (variable, meant) in [
        ("HOURGLASS_STORE_URL", Some("HOURGLASS_STORE_URI")),
        ("HOURGLASS_STROE_URI", Some("HOURGLASS_STORE_URI")),
        ("HOURGLASS_STORE_URI_FIEL", Some("HOURGLASS_STORE_URI_FILE")),
        ("HOURGLASS_STORE__URI", Some("HOURGLASS_STORE_URI")),
        ("HOURGLASS_SERVER_LISTEN_", Some("HOURGLASS_SERVER_LISTEN")),
        ("HOURGLASS_SERVER_DATA__DIR", Some("HOURGLASS_SERVER_DATA_DIR")),
        ("HOURGLASS_DATA_DIR", Some("HOURGLASS_SERVER_DATA_DIR")),
        ("HOURGLASS_LISTEN", Some("HOURGLASS_SERVER_LISTEN")),
        ("HOURGLASS_server__listen", Some("HOURGLASS_SERVER_LISTEN")),
        ("HOURGLASS_QUERY_CONCURENT", Some("HOURGLASS_QUERY_CONCURRENT")),
        // Not as Kubernetes sets it.
        ("HOURGLASS_PORT", None),
        ("HOURGLASS_SERVER_PORT", None),
        ("HOURGLASS_", None),
        ("HOURGLASS_COLOUR", None),
    ] {
        let found = load_all("", &[(variable, "3")], &Overrides::default()).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        let start = format!("variable {variable}: names no key");
        match meant {
            Some(meant) => assert_eq!(found[0], format!("{start}; did you mean {meant}?")),
            None => assert!(found[0].starts_with(&start), "{}", found[0]),
        }
    }
}

#[test]
fn unreadable_files_and_invalid_toml_are_problems() {
    let missing = load(Some(Path::new("/nowhere/my.toml")), owned(&[]), &Overrides::default()).unwrap_err();
    assert_eq!(missing.len(), 1);
    assert!(missing[0].to_string().starts_with("/nowhere/my.toml: cannot be read: "), "{}", missing[0]);

    let torn = "[query]\nconcurrent = \n[limits]\nfields = 1 2\n";
    let problems = load_all(torn, &[("HOURGLASS_QUERY_CONCURRENT", "0")], &Overrides::default()).unwrap_err();
    assert_eq!(problems.len(), 3, "{problems:?}");
    for (problem, start) in
        problems.iter().zip(["my.toml:2: not valid TOML: ", "my.toml:4: not valid TOML: ", "variable "])
    {
        assert!(problem.starts_with(start), "{problem}");
    }

    let twice = load_all("limits.fields = 1\nlimits.fields = 2", &[], &Overrides::default()).unwrap_err();
    assert!(twice.len() == 1 && twice[0].starts_with("my.toml:2: not valid TOML: duplicate key"), "{twice:?}");
}

#[test]
fn all_problems_are_reported_at_once_in_the_order_of_the_layers() {
    let file =
        "[limits]\nfields = 0\nbody_byte = 1\n\n[memtable]\nmax_bytes = \"1X\"\n[server]\nlisten = \"0.0.0.0\"\n";
    let variables = [("HOURGLASS_LIMITS_FIELDS", "many"), ("HOURGLASS_NO_SUCH", "1")];
    let found = load_all(file, &variables, &with_store("redis://h")).unwrap_err();
    let starts = [
        "my.toml:2: limits.fields = 0: out of bounds",
        "my.toml:3: unknown key limits.body_byte; did you mean limits.body_bytes?",
        "my.toml:6: memtable.max_bytes = \"1X\": unknown unit \"X\"",
        "my.toml:8: server.listen = \"0.0.0.0\": not an address and port",
        "variable HOURGLASS_LIMITS_FIELDS: limits.fields = \"many\": not a whole number",
        "variable HOURGLASS_NO_SUCH: names no key",
        "flag --store: store.uri = \"redis://h\": unknown store",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (problem, start) in found.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}");
    }
}

#[test]
fn relations_between_keys_hold() {
    check_file(
        "limits.body_bytes = '65MiB'\ningest.bytes_in_flight = '128MiB'",
        &["my.toml:2: ingest.bytes_in_flight (half of it is 64MiB) must be at least limits.body_bytes (65MiB)"],
    );
    // Defaults also adapt to a related key.
    let settings = load_all("limits.body_bytes = '65MiB'\nquery.bytes = '2MiB'", &[], &Overrides::default()).unwrap();
    assert_eq!((settings.ingest.bytes_in_flight, settings.query.request_bytes), (130 << 20, 1 << 20));
    check_file(
        "[wal]\nbudget_bytes = '100MiB'",
        &["my.toml:2: wal.budget_bytes (half of it is 50MiB) must be at least wal.segment_bytes (64MiB)"],
    );
    // The rules of `PATCH /api/v1/databases/NAME` apply. Summaries can be limited if readings are unlimited.
    check_file(
        "[retention]\nreadings = '30d'\nsummaries = '10d'",
        &["my.toml:3: retention.summaries (240h) must be at least retention.readings (720h)"],
    );
    check_file(
        "[retention]\nreadings = '10m'\nsummaries = '59m'",
        &[
            "my.toml:2: retention.readings = 10m: out of bounds; expected 0s, or a duration of at least 1h",
            "my.toml:3: retention.summaries = 59m: out of bounds; expected 0s, or a duration of at least 1h",
        ],
    );
    let sound = load_all("[retention]\nsummaries = '10d'", &[], &Overrides::default());
    assert!(sound.is_ok(), "{sound:?}");
    assert!(load_all("wal.budget_bytes = '128MiB'", &[], &Overrides::default()).is_ok());
    // A value that is invalid on its own is not compared.
    let one =
        load_all("[wal]\nbudget_bytes = '128KiB'\nsegment_bytes = '1KB'", &[], &Overrides::default()).unwrap_err();
    assert!(one.len() == 1 && one[0].contains("out of bounds"), "{one:?}");
}

#[test]
fn the_uri_can_be_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("uri");
    std::fs::write(&secret, "mongodb://user:pw@host/db\n").unwrap();
    let secret = secret.to_str().unwrap();
    let uri = |file: &str, variables: &[(&str, &str)], flags: &Overrides| {
        load_all(file, variables, flags).map(|settings| settings.store.uri.expose().to_owned())
    };
    let none = Overrides::default();
    let by_file = format!("[store]\nuri_file = '{secret}'\n");
    let from_file = Ok("mongodb://user:pw@host/db".to_owned());
    assert_eq!(uri(&by_file, &[], &none), from_file);
    assert_eq!(uri(&format!("{by_file}uri = 'embedded'"), &[], &none), from_file, "the default beside it");
    assert_eq!(uri("store.uri = 'mongodb://a'", &[("HOURGLASS_STORE_URI_FILE", secret)], &none), from_file);
    // The higher layer wins, so a flag can override the file.
    assert_eq!(uri(&by_file, &[], &with_store("embedded")), Ok("embedded".into()));
    assert_eq!(uri(&by_file, &[("HOURGLASS_STORE_URI", "mongodb://b")], &none), Ok("mongodb://b".into()));
    assert_eq!(uri(&by_file, &[("HOURGLASS_STORE_URI_FILE", "")], &none), Ok("embedded".into()));
    assert_eq!(
        uri(&format!("{by_file}uri = 'mongodb://a'"), &[], &none),
        Err(vec!["my.toml:2: store.uri and store.uri_file are both set; keep one of them".into()])
    );
}

#[test]
fn an_invalid_uri_file_is_a_problem_that_hides_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("uri");
    for (text, fault) in
        [("", "empty"), (" \n", "empty"), ("user:pw@host", "unknown store"), ("embedde", "unknown store")]
    {
        std::fs::write(&path, text).unwrap();
        let found = load(None, owned(&[("HOURGLASS_STORE_URI_FILE", path.to_str().unwrap())]), &Overrides::default());
        let found = found.unwrap_err();
        let expected = format!("variable HOURGLASS_STORE_URI_FILE: store.uri_file = {path:?}: {fault}");
        assert_eq!(found[0].to_string(), expected);
        assert!(!format!("{found:?}").contains("user:pw"), "{found:?}");
    }
    check_missing(folder.path().join("missing").to_str().unwrap());
}

fn check_missing(path: &str) {
    let found = load_all(&format!("store.uri_file = '{path}'"), &[], &Overrides::default()).unwrap_err();
    assert!(found.len() == 1 && found[0].starts_with("my.toml:1: store.uri_file = "), "{found:?}");
    assert!(found[0].contains("cannot be read: "), "{found:?}");
}

#[test]
fn no_problem_shows_credentials() {
    let uri = "mongodb://user:pw@host";
    let files = [
        format!("store.uri = 'x{uri}'"),
        format!("store.uri = ['{uri}']"),
        format!("store.uri = '{uri}'\nstore.uri_file = 'f'"),
        format!("store.uri_file = '{uri}'"),
        format!("store.url = '{uri}'"),
        format!("server.listen = '{uri}'"),
        format!("server.data_dir = '{uri}'\ntelemetry.log_level = '{uri}'"),
        format!("store.uri = '{uri}"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    for file in files {
        std::fs::write(&path, &file).unwrap();
        let problems = load(Some(&path), owned(&[("HOURGLASS_STORE_URL", uri)]), &Overrides::default()).unwrap_err();
        for problem in problems {
            let shown = format!("{problem} {problem:?}");
            assert!(!shown.contains("user:pw"), "{file}: {shown}");
        }
    }
}

/// Variables join section and key by an underscore, which names also contain.
#[test]
fn each_key_has_a_variable_of_its_own() {
    let keys = keys();
    let variables: std::collections::BTreeSet<String> =
        keys.iter().map(|key| layers::variable_name(key.name)).collect();
    assert_eq!(variables.len(), keys.len());
}

#[test]
fn only_tests_can_set_constants() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.toml");
    for key in keys() {
        let text = format!("{} = {}\n", key.name, key.default);
        for sets_constants in [false, true] {
            let mut problems = Vec::new();
            let mut layers = Layers::defaults(sets_constants);
            layers.add_file(&path, &text, &mut problems);
            layers.add_environment(owned(&[(&layers::variable_name(key.name), "x")]), &mut problems);
            let expected = if key.is_constant && !sets_constants { 2 } else { 0 };
            assert_eq!(problems.len(), expected, "{}: {problems:?}", key.name);
        }
    }
}
