//! Files in `deploy/` name existing metrics, keys and versions; ports stay on loopback; expressions find series.

mod packages;
pub mod prometheus;

use crate::support::prelude::*;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns every file under `deploy/` as (path, text).
fn deployed() -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).expect("a folder can be listed") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                walk(&path, found);
                continue;
            }
            let name = path.strip_prefix(root()).expect("it lies in there").display().to_string();
            found.push((name, fs::read_to_string(&path).expect("every file of deploy/ is text")));
        }
    }
    let mut found = Vec::new();
    walk(&root().join("deploy"), &mut found);
    found.sort();
    assert!(found.len() >= 15, "deploy/ has only {} files", found.len());
    found
}

/// Returns the words of a text that consist of matching characters.
fn words(text: &str, is_part: fn(char) -> bool) -> impl Iterator<Item = &str> {
    text.split(move |c: char| !is_part(c)).filter(|word| !word.is_empty())
}

fn dashboard(name: &str) -> Value {
    let text = read(&format!("deploy/grafana/dashboards/{name}.json"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Collects all texts under this key, at any depth, in the order of the panels.
fn texts_of<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| texts_of(value, key, found)),
        Value::Object(entries) => {
            for (name, value) in entries {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts_of(value, key, found),
                }
            }
        }
        _ => {}
    }
}

/// Replaces Grafana's variables and macros as Grafana does.
fn substituted(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// Returns the PromQL of the health dashboard, for all instances.
fn dashboard_expressions() -> Vec<String> {
    let health = dashboard("hourglass");
    let mut found = Vec::new();
    texts_of(&health, "expr", &mut found);
    let values = [("$instance", ".*"), ("$__rate_interval", "1m")];
    let expressions: Vec<String> = found.iter().map(|text| substituted(text, &values)).collect();
    assert!(expressions.len() >= 30, "{} expressions", expressions.len());
    expressions
}

/// Returns the InfluxQL of the sensors dashboard as sent for `climate`, `temp` and `sensor`; tag filters with all and
/// two values.
pub fn dashboard_statements() -> Vec<String> {
    let sensors = dashboard("sensors");
    let mut found = Vec::new();
    texts_of(&sensors, "query", &mut found);
    let mut statements = Vec::new();
    for text in found {
        for chosen in [".*", "(temp-01|temp-02)"] {
            let statement = substituted(
                text,
                &[
                    ("$timeFilter", "time >= 1768485600000ms and time <= 1768489200000ms"),
                    ("$__interval", "1m"),
                    ("$measurement", "climate"),
                    ("$field", "temp"),
                    ("$tag", "sensor"),
                    ("$value", chosen),
                ],
            );
            // A remaining `$` is the end of a regular expression.
            assert!(!statement.replace("$/", "/").contains('$'), "an unknown variable or macro: {statement}");
            if !statements.contains(&statement) {
                statements.push(statement);
            }
        }
    }
    statements
}

/// Returns the names in `src/telemetry/metrics.rs`, and the histograms among them.
fn known_metrics() -> (BTreeSet<String>, BTreeSet<String>) {
    let source = read("src/telemetry/metrics.rs");
    let parts: Vec<&str> = source.split('"').collect();
    let literals = || parts.windows(2).filter(|pair| pair[1].starts_with("hourglass_"));
    let is_histogram = |before: &str| ["histogram!(", "spread("].iter().any(|call| before.trim_end().ends_with(call));
    let all = literals().map(|pair| pair[1].to_owned()).collect();
    (all, literals().filter(|pair| is_histogram(pair[0])).map(|pair| pair[1].to_owned()).collect())
}

#[test]
fn every_metric_in_deploy_exists() {
    // Metrics of the crate metrics-process; the test with a real Prometheus checks that they exist.
    const PROCESS_METRICS: [&str; 5] = [
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ];
    let (metrics, histograms) = known_metrics();
    assert!(metrics.len() > 30 && histograms.len() > 4, "{metrics:?} {histograms:?}");
    let part_of_histogram = |name: &str| {
        ["_bucket", "_sum", "_count"].iter().filter_map(|end| name.strip_suffix(end)).any(|n| histograms.contains(n))
    };
    let mut seen = 0;
    // The release has the names of a Python package, too.
    for (file, text) in deployed().into_iter().filter(|(file, _)| file != "deploy/release") {
        for name in words(&text, |c| c.is_ascii_alphanumeric() || c == '_') {
            let exists = match name.split_once('_') {
                Some(("hourglass", _)) => metrics.contains(name) || part_of_histogram(name),
                Some(("process", _)) => PROCESS_METRICS.contains(&name),
                _ => continue,
            };
            assert!(exists, "{file} names {name}");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} names of metrics were found");
}

#[test]
fn every_config_key_in_deploy_exists() {
    let default: toml::Table = read("config/default.toml").parse().expect("the default configuration is TOML");
    let has = |section: &str, key: &str| default[section].get(key).is_some();
    let mut variables = 0;
    let mut dotted = 0;
    for (file, text) in deployed() {
        for word in words(&text, |c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            if let Some(name) = word.strip_prefix("HOURGLASS_") {
                let name = name.to_lowercase();
                let (section, key) = name.split_once('_').unwrap_or_else(|| panic!("{file}: {word}"));
                assert!(default.contains_key(section) && has(section, key), "{file} sets {word}");
                variables += 1;
            } else if let Some((section, key)) = word.trim_end_matches('.').split_once('.')
                && default.contains_key(section)
                && !["json", "log"].contains(&key)
            {
                assert!(has(section, key), "{file} names {word}");
                dotted += 1;
            }
        }
    }
    assert!(variables >= 8 && dotted >= 10, "{variables} variables, {dotted} keys were found");
}

/// Regression: the package pinned every default, so that no upgrade could change one.
#[test]
fn the_configuration_of_the_package_has_only_comments_and_they_are_valid() {
    let text = read("deploy/package/hourglass.toml");
    let table: toml::Table = text.parse().expect("it is TOML");
    assert!(table.values().all(|section| section.as_table().is_some_and(toml::Table::is_empty)), "{table:?}");
    let lines = text.lines().map(|line| line.strip_prefix('#').filter(|key| !key.starts_with(' ')).unwrap_or(line));
    let folder = Folder::new("package-config");
    let file = folder.file("hourglass.toml");
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).expect("a file can be written");
    let checked = program().args(["config", "check", "--config"]).arg(&file).output().expect("hourglass can be run");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// The alerts of the Prometheus operator are those of `prometheus/`, by the command at the top of its file.
#[test]
fn the_prometheus_rule_has_the_alerts() {
    let Some(python) = require(Package::PyYaml) else { return };
    let head = read("deploy/kubernetes/optional/rules.yaml");
    let command = head.lines().find_map(|line| line.strip_prefix("#   ")).expect("a command");
    let (command, _) = command.split_once(" | kubectl").expect("it applies the rule");
    let made = run_program(Command::new("sh").args(["-c", command]).current_dir(root())).stdout;
    let folder = Folder::new("rules");
    fs::write(folder.file("rule.yaml"), made).expect("a file can be written");
    let compare = "import sys, yaml\nrule, alerts = (yaml.safe_load(open(name)) for name in sys.argv[1:])\n\
                   assert rule['kind'] == 'PrometheusRule' and rule['spec'] == alerts, rule";
    let alerts = root().join("deploy/prometheus/alerts.yml");
    let mut command = Command::new(python);
    run_program(command.args(["-c", compare]).arg(folder.file("rule.yaml")).arg(alerts)).expect_success();
}

#[test]
fn the_config_map_is_a_valid_configuration() {
    let manifest = read("deploy/kubernetes/10-config.yaml");
    let (_, block) = manifest.split_once("hourglass.toml: |\n").expect("the file stands in the ConfigMap");
    let lines = block.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let toml: String = lines.map(|line| format!("{}\n", line.get(4..).unwrap_or(""))).collect();
    let folder = Folder::new("config-map");
    let file = folder.file("hourglass.toml");
    let uri = folder.file("mongodb-uri");
    let mounted = "/etc/hourglass/store/mongodb-uri";
    assert!(toml.contains(mounted), "{toml}");
    fs::write(&uri, "mongodb://a:27017,b:27017/plant?replicaSet=rs0\n").expect("a file can be written");
    fs::write(&file, toml.replace(mounted, &uri.display().to_string())).expect("a file can be written");
    let printed = program().args(["config", "check", "--config"]).arg(&file).output().expect("hourglass can be run");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
}

/// Regression: the image had no health check, and compose used a shell feature that not all shells have.
#[test]
fn the_container_is_healthy_while_writes_are_acked() {
    let compose = read("deploy/compose.yaml");
    let image = read("deploy/docker/Dockerfile");
    assert!(compose.contains("\n      test: [CMD, hourglass, healthcheck]\n"), "{compose}");
    let check = image.lines().find(|line| line.starts_with("HEALTHCHECK ")).expect("the image has a health check");
    assert!(check.ends_with(r#" CMD ["/usr/local/bin/hourglass", "healthcheck"]"#), "{check}");
    let status = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let launch = Launch::embedded().env("HOURGLASS_STATUS_LISTEN", status);
    let mut server = launch.start();
    let service = server.address();
    let ask = |variables: &[(&str, String)]| {
        let output = program().arg("healthcheck").envs(variables.iter().cloned()).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(printed.concat().lines().count(), 1, "{printed:?}");
        (output.status.code(), printed.concat())
    };
    // As set by the image: on all addresses, so the check must find the right one.
    let any = |address: std::net::SocketAddr| format!("0.0.0.0:{}", address.port());
    let of_service = ("HOURGLASS_SERVER_LISTEN", any(service));
    let of_status = ("HOURGLASS_STATUS_LISTEN", any(status));
    for (variables, answer) in [
        (&[of_service.clone()][..], format!("ready: http://{service}/ready (server.listen)\n")),
        (&[of_service.clone(), of_status.clone()], format!("ready: http://{status}/ready (status.listen)\n")),
    ] {
        assert_eq!(ask(variables), (Some(0), answer));
    }
    let nowhere = ask(&[("HOURGLASS_SERVER_LISTEN", "127.0.0.1:0".to_owned())]);
    assert!(nowhere.0 == Some(1) && nowhere.1.contains("server.listen has port 0"), "{nowhere:?}");
    let wrong = ask(&[("HOURGLASS_SERVER_LISTEN", "nowhere".to_owned())]);
    assert!(wrong.0 == Some(1) && wrong.1.contains("server.listen"), "{wrong:?}");

    // A hanging service; the check must end.
    server.signal("STOP");
    let hangs = ask(&[of_service.clone(), of_status.clone()]);
    assert!(hangs.0 == Some(1) && hangs.1.contains("no answer within 3s"), "{hangs:?}");
    server.signal("CONT");
    server.stop();
    let gone = ask(&[of_service, of_status]);
    assert!(gone.0 == Some(1) && gone.1.contains("Connection refused"), "{gone:?}");
}

/// A service that answers with another status is reported with its reason.
#[test]
fn a_service_that_refuses_writes_is_unhealthy_with_the_reason() {
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = refusing.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = refusing.accept().unwrap();
        let mut request = [0; 1024];
        let read = stream.read(&mut request).unwrap();
        let body = r#"{"status":"refusing","message":"the disk is full"}"#;
        write!(stream, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    let checked = program().args(["healthcheck", "--listen", &address]).output().unwrap();
    assert!(answering.join().unwrap().starts_with("GET /ready HTTP/1.1\r\n"));
    let printed = String::from_utf8(checked.stderr).unwrap();
    let expected = format!("hourglass: not ready: 503: the disk is full (http://{address}/ready, server.listen)\n");
    assert_eq!((checked.status.code(), printed), (Some(1), expected));
}

/// Returns the log of a service that warns once about its data folder and ends because its port is taken.
fn warned(variables: &[(String, String)], on_terminal: bool) -> String {
    let folder = Folder::new("logged");
    fs::create_dir(folder.file("old")).unwrap();
    fs::write(folder.file("old").join("tokens.json"), "").unwrap();
    let data = folder.file("new");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let data = data.to_str().unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--listen", &address, "--data-dir", data];
    let mut command = program();
    command.args(arguments);
    if on_terminal {
        let line = format!("{} {}", command.get_program().to_str().unwrap(), arguments.join(" "));
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &line, "/dev/null"]);
        for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
            script.env_remove(name);
        }
        command = script;
    }
    command.envs(variables.iter().cloned()).stdin(std::process::Stdio::null());
    let printed = command.output().expect("hourglass, and script of util-linux, can be run");
    String::from_utf8([printed.stdout, printed.stderr].concat()).unwrap()
}

/// Regression: the same service logged JSON under journald, and text in a container with a terminal.
#[test]
fn the_log_is_json_under_journald_and_in_containers() {
    let pair = |line: &str| {
        let (name, value) = line.trim().trim_end_matches(" \\").trim_start_matches("ENV ").split_once('=')?;
        name.starts_with("HOURGLASS_").then(|| (name.to_owned(), value.to_owned()))
    };
    let image = read("deploy/docker/Dockerfile");
    let of_image: Vec<(String, String)> = image.lines().filter_map(pair).collect();
    assert!(of_image.len() >= 4, "{of_image:?}");
    let unit = read("deploy/systemd/hourglass.service");
    let of_unit: Vec<_> = unit.lines().filter_map(|line| line.strip_prefix("Environment=")).filter_map(pair).collect();
    assert!(!of_unit.is_empty() && !unit.contains("StandardError=") && !unit.contains("TTYPath="), "{of_unit:?}");
    let format = |variables: Vec<(String, String)>| {
        let of_log = |(name, _): &(String, String)| name.starts_with("HOURGLASS_TELEMETRY_");
        variables.into_iter().filter(of_log).collect::<Vec<_>>()
    };
    let of_image = format(of_image);
    let of_unit = format(of_unit);
    // The stderr of journald is never a terminal.
    for (variables, on_terminal, is_json) in
        [(&of_unit, false, true), (&of_image, false, true), (&of_image, true, true), (&vec![], true, false)]
    {
        let printed = warned(variables, on_terminal);
        let line = printed.lines().find(|line| line.contains("is near")).unwrap_or_else(|| panic!("{printed}"));
        let parsed = serde_json::from_str::<Value>(line);
        assert_eq!(parsed.is_ok_and(|line| line["level"] == "WARN"), is_json, "{on_terminal}: {printed}");
    }
    assert!(read("deploy/kubernetes/10-config.yaml").contains("log_format = \"json\""));
}

/// Regression: a driver error of 3 kB and a client's key of 31 KB were logged in full.
#[test]
fn every_log_line_is_short_and_json() {
    // The error names each of the hosts, twice.
    let hosts: Vec<String> = (1..=40).map(|port| format!("127.0.0.1:{port}")).collect();
    let uri = format!("mongodb://{}/d?replicaSet=rs&serverSelectionTimeoutMS=300", hosts.join(","));
    let launch = Launch::with_store(uri).env("HOURGLASS_TELEMETRY_LOG_LEVEL", "debug");
    let long = launch.clone().env("HOURGLASS_TELEMETRY_LOG_LINE_BYTES", "64KiB").start().stderr();
    assert!(long.lines().any(|line| line.len() > 1000), "there is something to cut: {long}");
    let away = launch.start();
    let embedded =
        Launch::embedded().config("[query]\nlog_after = \"0s\"\n[telemetry]\nlog_level = \"debug\"\n").start();
    for hostile in ["\u{1}", "é", "\"", "\\\\", "𝄞"] {
        let key = hostile.repeat(300);
        let line = format!("m,{key}=\u{202e}{key} v=1 1\n{key}\n");
        request("POST", &embedded.url("/write?db=d"), line.as_bytes(), &[]).unwrap();
        let query = format!("{{\"q\":{}}}", Value::from(key));
        request("POST", &embedded.url("/query?db=d"), query.as_bytes(), &[]).unwrap();
    }
    for server in [&away, &embedded] {
        let printed = server.stderr();
        assert!(printed.lines().count() >= 1, "nothing is logged");
        for line in printed.lines() {
            assert!(line.len() < 500, "{}: {line}", line.len());
            let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert!(["timestamp", "level", "message"].iter().all(|field| line[field].is_string()), "{line}");
        }
    }
    assert!(away.stderr().contains('…'), "{}", away.stderr());
}

/// Returns the number after a key that must occur once.
fn seconds_of(file: &str, key: &str) -> u64 {
    let text = read(file);
    let (_, after) = text.split_once(key).unwrap_or_else(|| panic!("{file} has no {key}"));
    assert!(!after.contains(key), "{file} has {key} twice");
    let number: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
    number.parse().unwrap_or_else(|_| panic!("{file}: no number after {key}"))
}

#[test]
fn stop_timeouts_exceed_the_longest_stop() {
    let shutdown = seconds_of("config/default.toml", "\nshutdown_timeout = \"");
    for (file, key) in [
        ("deploy/compose.yaml", "cut off.\n    stop_grace_period:"),
        ("deploy/docker/Dockerfile", "docker run -d --name hourglass --stop-timeout"),
        ("deploy/kubernetes/30-statefulset.yaml", "terminationGracePeriodSeconds:"),
        ("deploy/systemd/hourglass.service", "TimeoutStopSec="),
    ] {
        assert!(seconds_of(file, key) >= shutdown + 10, "{file}: {key}");
    }
}

/// Regression: a service with an invalid config was restarted for ever, and stopping pods refused requests.
#[test]
fn an_invalid_config_is_not_retried_and_pods_drain_before_they_stop() {
    let folder = Folder::new("wrong-config");
    let toml = folder.file("wrong.toml");
    fs::write(&toml, "[query]\nconcurrent = 0\n").unwrap();
    let wrong = program().arg("serve").arg("--config").arg(&toml).output().unwrap();
    let misused = program().args(["serve", "--no-such-flag"]).output().unwrap();
    let unit = read("deploy/systemd/hourglass.service");
    let (_, statuses) = unit.split_once("\nRestartPreventExitStatus=").expect("the key");
    let statuses: Vec<&str> = statuses.lines().next().unwrap_or_default().split(' ').collect();
    let ended = [misused, wrong].map(|ended| ended.status.code().expect("an exit status").to_string());
    assert_eq!(statuses, ended);
    let manifest = "deploy/kubernetes/30-statefulset.yaml";
    let (pause, grace) =
        (seconds_of(manifest, "command: [sleep, \""), seconds_of(manifest, "terminationGracePeriodSeconds:"));
    let shutdown = seconds_of("config/default.toml", "\nshutdown_timeout = \"");
    assert!(pause > 0 && grace >= pause + shutdown + 10, "{pause} {grace} {shutdown}");
}

#[test]
fn ports_are_published_on_loopback_and_images_are_pinned() {
    let compose = read("deploy/compose.yaml");
    let ports: Vec<&str> = compose.lines().filter(|line| line.trim_start().starts_with("ports:")).collect();
    assert_eq!(ports.len(), 3, "hourglass, Prometheus and Grafana");
    for line in ports {
        assert!(line.contains("[\"127.0.0.1:") && !line.contains(','), "{line}");
    }
    let manifest = read("deploy/kubernetes/30-statefulset.yaml");
    let images = compose.lines().chain(manifest.lines()).filter_map(|line| line.trim().strip_prefix("image: "));
    let images: Vec<&str> = images.collect();
    let own = format!("hourglass:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(images.iter().filter(|image| **image == own).count(), 3, "{own} in {images:?}");
    for image in images {
        let tag = image.rsplit_once(':').expect("an image has a tag").1.trim_start_matches('v');
        assert_eq!(tag.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3, "{image}");
    }
}

#[test]
fn the_dashboards_are_complete() {
    let provisioned = read("deploy/grafana/provisioning/datasources/hourglass.yaml");
    for name in ["hourglass", "sensors"] {
        let board = dashboard(name);
        let panels = board["panels"].as_array().expect("a dashboard has panels");
        let mut ids = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().filter(|title| !title.is_empty()).expect("a panel has a title");
            assert!(ids.insert(panel["id"].as_u64()), "{name}, {title}: its id is another one's");
            let at = |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{name}, {title}: {side}"));
            for cell in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
                assert!(cell.0 < 24 && taken.insert(cell), "{name}, {title} lies on another panel at {cell:?}");
            }
            let is_row = panel["type"] == "row";
            assert!(is_row || panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}, {title}");
            assert!(is_row || panel["targets"].as_array().is_some_and(|t| !t.is_empty()), "{name}, {title}");
        }
        let mut uids = Vec::new();
        texts_of(&board, "uid", &mut uids);
        for uid in uids.iter().filter(|uid| **uid != board["uid"]) {
            assert!(provisioned.contains(&format!("    uid: {uid}\n")), "{name}: no datasource {uid}");
        }
    }
}

#[test]
fn the_sensors_dashboard_sends_the_tested_statements() {
    let statements = dashboard_statements();
    let kept = read("tests/deploy/statements.txt");
    let kept: Vec<&str> = kept.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    assert_eq!(
        statements,
        kept,
        "tests/deploy/statements.txt is to be what the dashboard asks:\n{}",
        statements.join("\n")
    );
}

#[test]
fn every_alert_has_a_test_that_fires_it() {
    let cases = ["alerts_test", "alerts_days_test"].map(|name| read(&format!("deploy/prometheus/{name}.yml"))).concat();
    let mut alerts = 0;
    for line in read("deploy/prometheus/alerts.yml").lines() {
        let Some(alert) = line.trim().strip_prefix("- alert: ") else { continue };
        let fires = format!("- alertname: {alert}\n");
        let case = cases.split_once(&fires).unwrap_or_else(|| panic!("{alert} has no case")).1;
        let expected = case.split("- alertname").next().expect("a split has a first part");
        assert!(expected.contains("exp_alerts:\n          - exp_labels:"), "{alert}: {expected}");
        alerts += 1;
    }
    assert!(alerts >= 10, "{alerts} alerts");
}

#[test]
fn every_alert_has_a_section_in_the_runbook() {
    let alerts = read("deploy/prometheus/alerts.yml");
    let named = |prefix: &str| -> Vec<String> {
        let names = alerts.lines().filter_map(|line| line.trim().strip_prefix(prefix));
        names.map(str::to_owned).collect()
    };
    let names = named("- alert: ");
    let pages = read("docs/how-to/alerts.md");
    let sections: Vec<&str> = pages.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, names, "in the order of the alerts");
    let links: Vec<String> =
        names.iter().map(|name| format!("docs/how-to/alerts.md#{}", name.to_lowercase())).collect();
    assert_eq!(named("runbook_url: "), links);
}
