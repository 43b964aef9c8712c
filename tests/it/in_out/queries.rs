//! `hourglass query`, `tail`, `completions`, `man` and `healthcheck --server`.

use super::{command, run};
use crate::support::prelude::*;

#[test]
fn queries_print_tables_csv_and_json() {
    let config = "[[kinds]]\nname = \"thermometer\"\nmeasurement = \"climate\"\nunits = { temp = \"°C\" }\n";
    let server = Launch::embedded().config(config).start();
    write(
        &server,
        "climate,s=a temp=21.5 1768435200\nclimate,s=a temp=22.5 1768435260\nclimate,s=b temp=19 1768435200",
    );
    let table = |arguments: &[&str]| run(&server, &[&["query", "--output", "table"], arguments].concat());
    let readings = table(&["--measurement", "climate", "--tag", "s=a"]).expect_success().stdout;
    let expected = "sensor       tag.s  ts                    temp (°C)\n\
                    climate,s=a  a      2026-01-15T00:00:00Z  21.5\n\
                    climate,s=a  a      2026-01-15T00:01:00Z  22.5\n";
    assert_eq!(readings, expected);
    let summary = table(&["--measurement", "climate", "--agg", "max", "--group-by", "*", "--step", "1d"]);
    assert!(summary.stdout.contains("temp.max (°C)") && summary.stdout.contains("  22.5\n"), "{summary:?}");
    let series = table(&["SELECT max(temp) FROM climate GROUP BY s; SELECT temp FROM climate WHERE s = 'b'"]);
    let expected = "climate s=a\ntime                  max\n2026-01-15T00:01:00Z  22.5\n\
                    climate s=b\ntime                  max\n2026-01-15T00:00:00Z  19\n\
                    climate\ntime                  temp (°C)\n2026-01-15T00:00:00Z  19\n";
    assert_eq!(series.expect_success().stdout, expected);
    // Not on a terminal, the default is CSV.
    let csv = run(&server, &["query", "SELECT temp FROM climate WHERE s = 'b'"]).expect_success();
    assert_eq!(csv.stdout, "name,tags,time,temp\nclimate,,1768435200000000000,19\n");
    let json = run(&server, &["query", "--output", "json", "SELECT nosuch("]);
    assert_eq!(json.status, Some(1), "{json:?}");
    let failed = table(&["SHOW RETENTION POLICIES ON nosuch"]);
    assert!(failed.status == Some(1) && failed.stderr.contains("nosuch"), "{failed:?}");
    run(&server, &["query"]).expect_failure("name a statement, or select sensors");
    assert_eq!(run(&server, &["query", "SELECT 1", "--measurement", "m"]).status, Some(2));
}

#[test]
fn tail_prints_readings_as_they_come() {
    let server = Server::start("embedded");
    let tail = |arguments: &[&str]| {
        let mut command = command(&server, &[&["tail"], arguments].concat());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        // Nothing says that the listener is there, so readings are sent until it has seen some.
        let mut number = 0;
        let mut child = Some(child);
        wait_until("it has seen enough", || {
            number += 1;
            write(&server, format!("m,s=a v={number}i {number}\nother v=1 {number}"));
            child.as_mut().unwrap().try_wait().unwrap().is_some()
        });
        String::from_utf8(child.take().unwrap().wait_with_output().unwrap().stdout).unwrap()
    };
    let printed = tail(&["--measurement", "m", "--count", "2"]);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.contains("Z m,s=a v=")), "{printed}");
    let printed = tail(&["--measurement", "m", "--count", "1", "--json"]);
    let event: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(event["sensor"], "m,s=a", "{event}");
}

#[test]
fn completions_and_manual_pages_name_all_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = hourglass(&["completions", shell]).expect_success().stdout;
        assert!(script.contains("import") && script.contains("db"), "{shell}: {script}");
    }
    let page = hourglass(&["man"]).expect_success().stdout;
    assert!(page.starts_with(".ie") && page.contains("hourglass"), "{page}");
    let folder = Folder::new("man");
    hourglass(&["man", path(folder.path())]).expect_success();
    for name in ["hourglass.1", "hourglass-import.1", "hourglass-db-show.1"] {
        assert!(folder.file(name).exists(), "{name}");
    }
}

#[test]
fn healthcheck_asks_at_a_url() {
    let server = Server::start("embedded");
    let url = server.url("");
    let healthy = hourglass(&["healthcheck", "--server", &url]).expect_success();
    assert_eq!(healthy.stdout, format!("ready: {url}/ready (--server)\n"));
    drop(server);
    hourglass(&["healthcheck", "--server", &url]).expect_failure("hourglass: asking ");
    assert_eq!(hourglass(&["healthcheck", "--server", &url, "--listen", "127.0.0.1:1"]).status, Some(2));
}
