//! `hourglass import influx://…`, from a real InfluxDB 1.x.

use super::command;
use crate::support::prelude::*;

/// Two policies, several shards, all types, and a tag that some sensors lack.
#[test]
fn a_database_of_influxdb_is_imported_with_its_policies_and_types() {
    let Some(influxd) = Influxd::start() else { return };
    let run = |statement: &str| {
        let answer = post(&influxd.url(&format!("/query?q={}", encode(statement))), "", &[]).expect(200).json();
        assert!(answer["results"][0]["error"].is_null(), "{statement}: {answer}");
        answer
    };
    run("CREATE DATABASE \"my plant\"");
    run("CREATE RETENTION POLICY year ON \"my plant\" DURATION 200w REPLICATION 1 DEFAULT");
    let mut lines = String::new();
    for number in 0..5000_u64 {
        let time = 1_768_435_200_000_000_000 + number * 600_000_000_000 + number;
        writeln!(
            lines,
            "climate,s={} temp={},n={number}i,on={},note=\"a \\\"{number}\\\"\" {time}",
            number % 7,
            number as f64 / 8.0,
            number % 2 == 0
        )
        .unwrap();
        writeln!(lines, "energy\\ use,s=1,unit=k\\ w kwh={number} {time}").unwrap();
    }
    post(&influxd.url("/write?db=my%20plant&rp=autogen"), &lines, &[]).expect(204);
    post(&influxd.url("/write?db=my%20plant&rp=year"), "climate,s=9 temp=1 1768435200000000000", &[]).expect(204);
    let server = Server::start("embedded");
    let folder = Folder::new("migration");
    let url = format!("influx://127.0.0.1:{}/my%20plant", influxd.port());
    let import = || {
        let mut import = command(&server, &["import", &url]);
        import.env_remove("HOURGLASS_DB").current_dir(folder.path());
        import
    };
    let imported = run_program(&mut import()).expect_success();
    assert!(
        imported.stderr.contains("database my plant: autogen.climate (4 fields), autogen.energy use (1 fields)"),
        "{imported:?}"
    );
    assert!(imported.stdout.starts_with("10001 rows read, 10001 written, 0 refused"), "{imported:?}");
    assert!(imported.stdout.contains("6 fields have equal counts and sums in the service, 0 differ"), "{imported:?}");
    // Repeating it changes nothing.
    run_program(&mut import()).expect_success();
    for statement in [
        "SELECT count(temp), sum(n), mean(temp), last(note) FROM autogen.climate GROUP BY time(7d), s fill(none)",
        "SELECT * FROM autogen.climate WHERE s = '3' LIMIT 50 OFFSET 100",
        "SELECT count(\"on\") FROM autogen.climate WHERE \"on\" = true GROUP BY s",
        "SELECT max(kwh), min(kwh) FROM autogen.\"energy use\" GROUP BY unit",
        "SELECT * FROM climate",
        "SHOW FIELD KEYS FROM autogen.climate",
        "SHOW TAG VALUES WITH KEY = unit",
    ] {
        let path = format!("/query?db=my%20plant&epoch=ns&q={}", encode(statement));
        let expected = get(&influxd.url(&path)).expect(200).json();
        assert!(!expected["results"][0]["series"].is_null(), "{statement}: {expected}");
        assert_eq!(server.fetch(&path), expected, "{statement}");
    }
    let policies = server.fetch(&format!("/query?q={}", encode("SHOW RETENTION POLICIES ON \"my plant\"")));
    let rows = policies["results"][0]["series"][0]["values"].as_array().unwrap().clone();
    let year = rows.iter().find(|row| row[0] == "year").unwrap();
    assert_eq!((&year[1], &year[4]), (&json!("33600h0m0s"), &json!(true)));
}
