//! `hourglass write` and `hourglass import`.

use super::{command, run};
use super::{kill_once_there, many_lines};
use crate::support::packed::gzip;
use crate::support::prelude::*;

#[test]
fn write_sends_lines_csv_and_ndjson_from_files_and_the_standard_input() {
    let server = Server::start("embedded");
    let sent = |arguments: &[&str], input: &[u8]| run_with_input(&mut command(&server, arguments), input);
    let lines =
        sent(&["write", "--precision", "s"], b"m,s=1 v=1 1768435200\nm,s=1 v= 1768435201\nm,s=1 v=2i 1768435202");
    assert_eq!(lines.status, Some(1), "{lines:?}");
    assert!(lines.stderr.starts_with("-:2: ") && lines.stderr.ends_with("2 rows written, 1 refused\n"), "{lines:?}");
    let csv = "time;s;v;ok;zip\n2026-01-15 00:00:03;1;3;true;00123\n2026-01-15T00:00:04Z;1;x;;\n";
    let flags =
        ["--format", "csv", "--measurement", "m", "--tags", "s", "--types", "zip=string,v=number", "--delimiter", ";"];
    let table = sent(&[&["write"], &flags[..]].concat(), csv.as_bytes());
    assert_eq!(table.status, Some(1), "{table:?}");
    assert!(table.stderr.contains("-:3: column v: \"x\" is no number"), "{table:?}");
    let folder = Folder::new("write");
    let file = folder.file("rows.ndjson.gz");
    let rows = "{\"measurement\":\"m\",\"s\":\"1\",\"v\":5.0,\"ts\":\"2026-01-15T00:00:05Z\"}\n\
                {\"measurement\":\"m\",\"tags\":{\"s\":\"1\"},\"fields\":{\"v\":6},\"ts\":1768435206}";
    fs::write(&file, gzip(rows.as_bytes(), 1)).unwrap();
    run(&server, &["write", "--tags", "s", path(&file)]).expect_success();
    let stored = influxql(&server, "SELECT v, ok, zip FROM m GROUP BY *");
    let rows = [
        json!([1768435200, 1, null, null]),
        json!([1768435202, 2, null, null]),
        json!([1768435203, 3, true, "00123"]),
        json!([1768435205, 5, null, null]),
        json!([1768435206, 6, null, null]),
    ];
    assert_eq!(stored[0]["values"], json!(rows), "{stored}");
    assert_eq!(stored.as_array().unwrap().len(), 1, "{stored}");
}

/// A pipe that stays open must not hold back the rows that it has.
#[test]
fn write_sends_the_rows_of_an_open_pipe_as_they_come() {
    let server = Server::start("embedded");
    let mut child = command(&server, &["write"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    for number in 1..=3 {
        writeln!(pipe, "m v={number} {number}").unwrap();
        wait_until("the row is there", || influxql(&server, "SELECT count(v) FROM m")[0]["values"][0][1] == number);
    }
    drop(pipe);
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_import_keeps_refused_rows_and_compares_the_rest() {
    let server = Server::start("embedded");
    let folder = Folder::new("import");
    let file = folder.file("some.lp");
    // More refused rows than an answer lists, and one that the command refuses.
    let mut lines = "m,s=1 v=1 1768435200000000000\n".to_owned();
    for number in 0..250 {
        writeln!(lines, "m,s=1 v=\"{number}\" {}", 1_768_435_201_000_000_000_u64 + number).unwrap();
    }
    lines += "m,s=1 v=2 1768435300000000000\nnot a line\nm,s=1 v=3\nm,s=1 v=4 1768435400000000000";
    fs::write(&file, &lines).unwrap();
    let dry = run(&server, &["import", path(&file), "--dry-run"]);
    assert!(dry.stdout.ends_with("255 rows read, 2 refused; nothing was sent\n"), "{dry:?}");
    let imported = run(&server, &["import", path(&file)]);
    assert_eq!(imported.status, Some(1), "{imported:?}");
    assert!(imported.stdout.starts_with("255 rows read, 3 written, 252 refused"), "{imported:?}");
    assert!(
        imported.stdout.ends_with("1 fields have values of several types, and were not compared\n"),
        "{imported:?}"
    );
    assert!(!folder.file("some.lp.progress").exists());
    let refused = fs::read_to_string(folder.file("some.lp.refused")).unwrap();
    assert_eq!(refused.lines().filter(|line| line.starts_with("m,s=1 v=\"")).count(), 250);
    assert!(refused.contains("# line 253: ") && refused.contains("\n# not a line\n"), "{refused}");
    // The file can be corrected and imported.
    let fixed = folder.file("fixed.lp");
    fs::write(&fixed, refused.replace("v=\"", "w=\"")).unwrap();
    let again = run(&server, &["import", path(&fixed), "--quiet"]).expect_success();
    assert!(again.stdout.contains("1 fields have equal counts and sums in the service, 0 differ"), "{again:?}");
    let one = influxql(&server, "SELECT count(v), count(w) FROM m");
    assert_eq!(one[0]["values"][0][1], 3);
    assert_eq!(one[0]["values"][0][2], 250);
}

#[test]
fn a_killed_import_continues_and_counts_nothing_twice() {
    let server = Server::start("embedded");
    let folder = Folder::new("import");
    let file = folder.file("many.lp");
    let lines = many_lines(150_000);
    fs::write(&file, format!("{}bad line\n", lines)).unwrap();
    let import = || command(&server, &["import", path(&file)]);
    assert!(kill_once_there(&mut import(), &folder.file("many.lp.progress")), "it ended too early");
    let rest = run_program(&mut import());
    assert!(rest.stderr.contains("hourglass: continuing after "), "{rest:?}");
    assert!(rest.stdout.starts_with("150001 rows read, 150000 written, 1 refused"), "{rest:?}");
    assert!(rest.stdout.contains("3 fields have equal counts and sums in the service, 0 differ"), "{rest:?}");
    let other = command(&server, &["import", path(&file), "--db", "other"]);
    fs::write(folder.file("many.lp.progress"), "[\"something else\",{}]").unwrap();
    run_program(&mut { other }).expect_failure("remove it to begin anew");
}

/// The format of `influx_inspect export`, with statements, policies and comments in the middle.
#[test]
fn exports_of_influxdb_go_to_their_databases_and_policies() {
    let server = Server::start("embedded");
    let folder = Folder::new("import");
    let file = folder.file("influx.gz");
    let lines = "# INFLUXDB EXPORT: 1677-09-21T00:12:43Z - 2262-04-11T23:47:16Z\n# DDL\n\
        CREATE DATABASE plant WITH NAME autogen\nCREATE RETENTION POLICY year ON plant DURATION 4000w REPLICATION 1\n# DML\n\
        # CONTEXT-DATABASE:plant\n# CONTEXT-RETENTION-POLICY:autogen\n# writing tsm data\n\
        climate,sensor=s1 temp=1 1768435200000000000\nclimate,sensor=s1 humidity=2i 1768435200000000000\n\
        # CONTEXT-DATABASE:plant\n# CONTEXT-RETENTION-POLICY:year\nclimate,sensor=s1 temp=3 1768435200000000000\n\
        # CONTEXT-DATABASE:plant\n# CONTEXT-RETENTION-POLICY:ever\nclimate,sensor=s1 temp=4 1768435200000000000\n";
    fs::write(&file, gzip(lines.as_bytes(), 1)).unwrap();
    let imported = run_program(command(&server, &["import", path(&file)]).env_remove("HOURGLASS_DB")).expect_success();
    assert!(imported.stdout.contains("4 fields have equal counts and sums in the service, 0 differ"), "{imported:?}");
    let policies = server.fetch("/query?q=SHOW+RETENTION+POLICIES+ON+plant");
    let policies = policies["results"][0]["series"][0]["values"].as_array().unwrap().clone();
    let names: Vec<(&str, &str)> =
        policies.iter().map(|row| (row[0].as_str().unwrap(), row[1].as_str().unwrap())).collect();
    assert_eq!(names, [("autogen", "0s"), ("ever", "0s"), ("year", "672000h0m0s")]);
    for (policy, expected) in [("autogen", 1), ("year", 3), ("ever", 4)] {
        let answer = server.fetch(&format!("/query?db=plant&q=SELECT+temp+FROM+{policy}.climate"));
        assert_eq!(answer["results"][0]["series"][0]["values"][0][1], expected, "{policy}: {answer}");
    }
    // Another database in place of that of the file.
    run(&server, &["import", path(&file), "--db", "copy"]).expect_success();
    assert_eq!(server.fetch("/api/v1/readings?db=copy&measurement=climate")["series"][0]["readings"][0]["humidity"], 2);
}

#[test]
fn guessed_columns_are_shown_first() {
    let server = Server::start("embedded");
    let folder = Folder::new("import");
    let file = folder.file("table.csv");
    fs::write(&file, "Timestamp,device,temp,on\n2026-01-15T00:00:00Z,d1,21,true\n2026-01-15T00:01:00Z,d1,21.5,\n")
        .unwrap();
    run(&server, &["import", path(&file)]).expect_failure("name it with --measurement");
    run(&server, &["import", path(&file), "--tags", "nosuch"]).expect_failure("there is no column \"nosuch\"");
    let arguments = ["import", path(&file), "--measurement", "climate", "--tags", "device"];
    let shown = run(&server, &arguments).expect_success();
    let expected = "CSV is read as\n  measurement  climate\n  time         Timestamp\n  tags         device\n  \
        fields       temp (number), on (boolean)\n  first row    climate,device=d1 temp=21i,on=true 1768435200000000000\n";
    assert!(shown.stderr.contains(expected), "{shown:?}");
    assert!(shown.stdout.contains("2 fields have equal counts and sums"), "{shown:?}");
}
