//! The command line: flags, configuration, banner, exit statuses, and the state after each kind of stop.

mod examined;
mod folders;
mod modes;

use crate::support::packages;
use crate::support::prelude::*;

/// `EX_CONFIG` of sysexits.h: an invalid configuration, not a crash.
const EXIT_CONFIG: i32 = 78;
/// `EX_UNAVAILABLE`: an address or the data folder is in use.
const EXIT_UNAVAILABLE: i32 = 69;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command: Command = program();
    let Output { status, stdout, stderr } =
        command.args(arguments).envs(environment.iter().copied()).output().expect("hourglass can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("hourglass writes UTF-8");
    (status.code().expect("it ends by itself"), text(stdout), text(stderr))
}

fn write(server: &Server, lines: &str) {
    http::post(&server.url("/write?db=d"), lines, &[]).expect(204);
}

fn readings(server: &Server, sensor: &str) -> Vec<Value> {
    let url = server.url(&format!("/api/v1/readings?db=d&epoch=ns&limit=100000&sensor={sensor}"));
    let answer = http::get(&url).expect(200).json();
    answer["series"][0]["readings"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

/// Regression: `serve` first printed three lines about its memory.
#[test]
fn startup_prints_the_memory_budget_and_its_parts_on_request() {
    for (level, has_parts) in [("info", false), ("debug", true)] {
        let server = Launch::embedded().config(format!("[telemetry]\nlog_level = \"{level}\"\n")).start();
        let log = server.stderr();
        assert!(log.contains("\"memory_mib\":"), "{log}");
        assert_eq!(log.contains("parts_mib"), has_parts, "{log}");
    }
}

#[test]
fn version_and_help_describe_the_program() {
    // Tests have the feature for faults; a release also names its commit.
    let version = format!("hourglass {} (debug, faults)\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run(&["version"], &[]), (0, version.clone(), String::new()));
    assert_eq!(run(&["--version"], &[]), (0, version, String::new()));
    let (code, help, _) = run(&["--help"], &[]);
    assert_eq!(code, 0);
    for word in ["serve", "verify", "backup", "config", "First steps: "] {
        assert!(help.contains(word), "{word}: {help}");
    }
    let (code, help, _) = run(&["serve", "--help"], &[]);
    assert_eq!(code, 0);
    for flag in ["--config <FILE>", "--listen <ADDR:PORT>", "--data-dir <DIR>", "--store <STORE>"] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    let (code, help, _) = run(&["verify", "--help"], &[]);
    assert_eq!(code, 0);
    for flag in ["--config <FILE>", "--data-dir <DIR>", "--store <STORE>", "--repair"] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    for arguments in [&[][..], &["sing"], &["serve", "--nope"], &["config"]] {
        assert_eq!(run(arguments, &[]).0, 2, "{arguments:?}");
    }
}

/// Commands with one request share their flags and variables, and print lines or JSON.
#[test]
fn commands_ask_a_running_service_and_print_what_it_answers() {
    let server = Server::start("embedded");
    write(&server, "m,s=1 v=1 1768435200000000000");
    write(&server, "m,s=2 v=1 1768435200000000000");
    let url = server.url("");
    let asked = |arguments: &[&str]| {
        let (code, printed, complaint) = run(arguments, &[("HOURGLASS_SERVER", &url), ("HOURGLASS_DB", "d")]);
        assert_eq!((code, complaint.as_str()), (0, ""), "{arguments:?}");
        printed
    };
    assert_eq!(asked(&["db", "list"]), "database\nd\n");
    let shown = asked(&["db", "show", "d"]);
    assert!(shown.contains("name: d\n") && shown.contains("kept: inf\n"), "{shown}");
    assert_eq!(asked(&["db", "flush"]), "");
    let listed = asked(&["sensor", "list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("sensor  last seen") && lines[1].starts_with("m,s=1"), "{listed}");
    let json: Value =
        serde_json::from_str(&asked(&["sensor", "list", "--contains", "s=2", "--output", "json"])).unwrap();
    assert_eq!(json["sensors"][0]["sensor"], "m,s=2", "{json}");
    let (code, _, complaint) = run(&["db", "show", "nosuch", "--server", &url], &[]);
    assert_eq!(code, 1, "{complaint}");
    assert!(complaint.starts_with("hourglass: the service answered 4"), "{complaint}");
}

#[test]
fn config_default_prints_the_documented_file_and_that_file_is_sound() {
    let (code, printed, complaint) = run(&["config", "show-defaults"], &[]);
    assert_eq!((code, complaint.as_str()), (0, ""));
    assert_eq!(printed, include_str!("../../config/default.toml"));
    let folder = Folder::new("config");
    let file = folder.file("default.toml");
    std::fs::write(&file, printed).unwrap();
    let file = file.to_str().unwrap();
    let sound = format!("{file}: the configuration is valid\n");
    assert_eq!(run(&["config", "check", "--config", file], &[]), (0, sound, String::new()));
    assert_eq!(run(&["config", "check"], &[]), (0, "the configuration is valid\n".to_owned(), String::new()));
}

#[test]
fn check_config_lists_every_problem_and_serve_starts_with_none() {
    let folder = Folder::new("config");
    let file = folder.file("hourglass.toml");
    let text = r#"
[server]
listen = "nowhere"
port = 8086
[ingest]
ack_timeout = "5"
[query]
concurrent = 0
[colour]
red = true
"#;
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let data = folder.file("data");
    let environment = [("HOURGLASS_LIMITS_TAGZ", "3"), ("HOURGLASS_LIMITS_FIELDS", "none")];
    let flags = ["--config", file, "--store", "postgres://me:secret@h/d", "--data-dir", data.to_str().unwrap()];
    for command in [&["config", "check"][..], &["serve"]] {
        let (code, printed, complaint) = run(&[command, &flags].concat(), &environment);
        assert_eq!((code, printed.as_str()), (EXIT_CONFIG, ""), "{command:?}: {complaint}");
        let lines: Vec<&str> = complaint.lines().collect();
        let expected = [
            format!("hourglass: {file}:3: server.listen = \"nowhere\": not an address and port; "),
            format!("hourglass: {file}:4: unknown key server.port"),
            format!("hourglass: {file}:6: ingest.ack_timeout = \"5\": no unit (ms, s, m, h, d, w); "),
            format!("hourglass: {file}:8: query.concurrent = 0: out of bounds; expected a whole number, 1 to 1024"),
            format!("hourglass: {file}:10: unknown key colour.red"),
            "hourglass: variable HOURGLASS_LIMITS_FIELDS: limits.fields = \"none\": not a whole number; ".to_owned(),
            "hourglass: variable HOURGLASS_LIMITS_TAGZ: names no key; did you mean HOURGLASS_LIMITS_TAGS?".to_owned(),
            "hourglass: flag --store: store.uri = \"postgres://***@h/d\": unknown store; ".to_owned(),
            "hourglass: 8 problems in the configuration; nothing was started".to_owned(),
        ];
        assert_eq!(lines.len(), expected.len(), "{command:?}: {complaint}");
        for (line, expected) in lines.iter().zip(&expected) {
            assert!(line.starts_with(expected), "{command:?}:\n{line}\n{expected}");
        }
    }
    assert!(!data.exists(), "nothing was started");
    let (code, _, complaint) = run(&["config", "check", "--config", "no-such-file.toml"], &[]);
    assert_eq!(code, EXIT_CONFIG);
    assert!(complaint.starts_with("hourglass: no-such-file.toml: cannot be read: "), "{complaint}");
}

#[test]
fn an_address_beyond_loopback_needs_a_token() {
    let refused = Launch::embedded().listen("0.0.0.0:0").run_to_end();
    assert_eq!(refused.status.code(), Some(EXIT_CONFIG));
    assert_eq!(refused.stdout, "");
    let complaint = "hourglass: tokens are required, because other machines can reach 0.0.0.0:0 or because of auth.required, and \
                there is no valid token. Create one first: hourglass token add --name first --admin '*'";
    assert!(refused.stderr.contains(complaint), "{}", refused.stderr);
    let always = Launch::embedded().env("HOURGLASS_AUTH_REQUIRED", "always").run_to_end();
    assert!(
        always.status.code() == Some(EXIT_CONFIG) && always.stderr.contains("hourglass token add"),
        "{}",
        always.stderr
    );
}

#[test]
fn a_taken_port_is_named_with_a_hint() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let refused = Launch::embedded().listen(address).run_to_end();
    assert_eq!(refused.status.code(), Some(EXIT_UNAVAILABLE));
    let start =
        format!("hourglass: listening on {address}: is it in use? Choose a free address with --listen ADDR:PORT: ");
    assert!(refused.stderr.starts_with(&start), "{}", refused.stderr);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
}

/// Both curl commands of the banner are run verbatim.
#[test]
fn the_commands_of_the_banner_work() {
    let server = Server::start("embedded");
    let banner = server.stdout();
    let base = server.url("");
    let lines: Vec<&str> = banner.lines().collect();
    assert_eq!(lines[0], format!("hourglass {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(lines[1].trim(), format!("store    embedded in {}", server.data_dir().display()));
    assert_eq!(lines[2].trim(), format!("serving  {base}  (page: {base}/, metrics: {base}/metrics)"));
    let milliseconds = lines.last().unwrap().strip_prefix("ready in ").and_then(|rest| rest.strip_suffix(" ms"));
    assert!(milliseconds.is_some_and(|number| number.parse::<u64>().is_ok()), "{banner}");
    let curls: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(curls.len(), 2, "{banner}");
    if packages::require(Package::Curl).is_none() {
        return;
    }
    let complaint: Vec<Value> = curls
        .iter()
        .map(|curl| {
            let output = Command::new("sh").args(["-c", &format!("{curl} -sS --noproxy '*'")]).output().expect("sh");
            serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{curl}: {error}: {}", String::from_utf8_lossy(&output.stderr)))
        })
        .collect();
    assert_eq!(complaint[0], json!({"accepted": 1, "rejected": []}));
    assert_eq!(complaint[1]["series"][0]["readings"][0]["value"], json!(22.5));
    assert_eq!(complaint[1]["series"][0]["sensor"], json!("readings,sensor=temp-01"));
}

#[test]
fn a_second_process_on_a_data_folder_is_refused() {
    let server = Server::start("embedded");
    write(&server, "m v=1 1");
    let data = server.data_dir();
    let (code, printed, complaint) =
        run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()], &[]);
    assert_eq!((code, printed.as_str()), (EXIT_UNAVAILABLE, ""), "{complaint}");
    let file = data.join("hourglass.redb");
    let expected = format!(
        "hourglass: opening the embedded store: another process has {} open; one process at a time can use a data folder\n",
        file.display()
    );
    assert_eq!(complaint, expected);
    write(&server, "m v=2 2");
    assert_eq!(readings(&server, "m").len(), 2);
}

#[test]
fn both_stop_signals_exit_with_zero_and_keep_acked_readings() {
    let mut server = Server::start("embedded");
    for (number, signal) in ["TERM", "INT", "TERM"].into_iter().enumerate() {
        write(&server, &format!("m n={number}i {number}\nm,run={number} n={number}i 1"));
        let status = server.stop_by(signal);
        let log = server.stderr();
        assert_eq!(status.code(), Some(0), "SIG{signal}: {log}");
        // Regression: every stop took all of `server.shutdown_timeout`, because shards waited for each other.
        assert!(log.contains("stopped") && !log.contains("not finished within"), "{log}");
        server.restart();
        let kept: Vec<Value> = readings(&server, "m").iter().map(|reading| reading["n"].clone()).collect();
        assert_eq!(kept, (0..=number).collect::<Vec<_>>(), "SIG{signal}");
        assert_eq!(readings(&server, &format!("m,run={number}")).len(), 1, "SIG{signal}");
    }
}

/// Regression: an unfinished head used up the stop timeout, exited with 1 and left sensor documents unwritten.
#[test]
fn an_unfinished_request_does_not_delay_the_stop() {
    let mut server = Launch::embedded().config("[server]\nshutdown_timeout = \"4s\"\n").start();
    write(&server, "m v=1 1");
    let mut half = TcpStream::connect(server.address()).unwrap();
    half.write_all(b"GET /ping HTTP/1.1\r\nHo").unwrap();
    // A later answer shows that the server has accepted the connection.
    assert_eq!(readings(&server, "m").len(), 1);
    assert!(server.stop().success(), "{}", server.stderr());
}
