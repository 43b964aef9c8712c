//! Retention policies in InfluxQL, writes and imports; answers are those of InfluxDB 1.6.

use crate::support::prelude::*;

use super::{DAY, HOUR, STORES, answer, ask, run, start, values};

#[track_caller]
fn error(server: &Server, statement: &str, error: &str) {
    assert_eq!(ask(server, "", statement), json!({"statement_id": 0, "error": error}), "{statement}");
}

fn policies(server: &Server, database: &str) -> Value {
    let mut result = ask(server, "", &format!("SHOW RETENTION POLICIES ON {database}"));
    result["series"][0]["values"].take()
}

/// Regression: `CREATE DATABASE w WITH DURATION 7d NAME week` was ignored, and `/write?db=w&rp=week` was 400.
#[test]
fn policies_are_created_altered_and_dropped_as_in_influxdb() {
    for store in STORES {
        let server = start(&store());
        error(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1", "database not found: w");
        error(&server, "CREATE DATABASE \"a/b\"", "invalid name");
        run(&server, "CREATE DATABASE w");
        run(&server, "CREATE DATABASE w");
        assert_eq!(policies(&server, "w"), json!([["autogen", "0s", "168h0m0s", 1, true]]));
        let too_short = "retention policy duration must be at least 1h0m0s";
        let shards = "retention policy duration must be greater than the shard duration";
        error(&server, "CREATE RETENTION POLICY week ON w DURATION 30m REPLICATION 1", too_short);
        error(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1 SHARD DURATION 8d", shards);
        run(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
        run(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
        let exists = "retention policy already exists";
        error(&server, "CREATE RETENTION POLICY week ON w DURATION 8d REPLICATION 1", exists);
        error(&server, "CREATE RETENTION POLICY \"a/b\" ON w DURATION 1d REPLICATION 1", "invalid name");
        error(&server, "CREATE RETENTION POLICY \"\" ON w DURATION 1d REPLICATION 1", "invalid name");
        run(&server, "CREATE RETENTION POLICY frac ON w DURATION 1h30m30s500ms REPLICATION 1");
        run(&server, "CREATE RETENTION POLICY long ON w DURATION 200d REPLICATION 1 DEFAULT");
        error(&server, "ALTER RETENTION POLICY week ON w DURATION 30m", too_short);
        error(&server, "ALTER RETENTION POLICY week ON w DURATION 2h", shards);
        run(&server, "ALTER RETENTION POLICY week ON w DURATION 9d");
        error(&server, "ALTER RETENTION POLICY nope ON w DURATION 8d", "retention policy not found: nope");
        error(&server, "ALTER RETENTION POLICY week ON nope DURATION 8d", "database not found: nope");
        // Regression: a policy could be altered as if it were a database with policies.
        error(&server, "ALTER RETENTION POLICY autogen ON \"w/week\" DURATION 8d", "database not found: w/week");
        run(&server, "ALTER RETENTION POLICY autogen ON w DURATION 30d");
        // Stored, shown, and reported to be without effect.
        let reply = ask(&server, "", "ALTER RETENTION POLICY week ON w REPLICATION 3 SHARD DURATION 2h");
        let text = "REPLICATION and SHARD DURATION: kept and shown, without effect";
        assert_eq!(reply["notice"], text, "{reply}");
        assert_eq!(
            policies(&server, "w"),
            json!([
                ["autogen", "720h0m0s", "168h0m0s", 1, false],
                ["frac", "1h30m30.5s", "1h0m0s", 1, false],
                ["long", "4800h0m0s", "168h0m0s", 1, true],
                ["week", "216h0m0s", "2h0m0s", 3, false],
            ])
        );
        run(&server, "DROP RETENTION POLICY nope ON w");
        run(&server, "DROP RETENTION POLICY long ON w");
        run(&server, "DROP RETENTION POLICY frac ON w");
        let own = "the retention policy autogen is the database itself: DROP DATABASE drops it";
        error(&server, "DROP RETENTION POLICY autogen ON w", own);
        let left = json!([["autogen", "720h0m0s", "168h0m0s", 1, true], ["week", "216h0m0s", "2h0m0s", 3, false]]);
        assert_eq!(policies(&server, "w"), left);
        run(&server, "CREATE DATABASE x WITH DURATION 7d NAME week");
        run(&server, "CREATE DATABASE x WITH DURATION 7d NAME week");
        let conflict = "retention policy conflicts with an existing policy";
        error(&server, "CREATE DATABASE x WITH DURATION 8d NAME week", conflict);
        run(&server, "CREATE DATABASE x");
        assert_eq!(policies(&server, "x")[1], json!(["week", "168h0m0s", "24h0m0s", 1, true]));
        run(&server, "CREATE DATABASE y WITH DURATION 2h");
        error(&server, "CREATE DATABASE y WITH DURATION 3h", conflict);
        assert_eq!(policies(&server, "y"), json!([["autogen", "2h0m0s", "1h0m0s", 1, true]]));
        let databases = ask(&server, "", "SHOW DATABASES");
        assert_eq!(databases["series"][0]["values"], json!([["w"], ["x"], ["y"]]));
    }
}

#[test]
fn policies_keep_their_readings_apart() {
    for store in STORES {
        let server = start(&store());
        let time = now() - HOUR;
        let write = |path: &str, value: i64| post(&server.url(path), format!("m,s=a v={value}i {time}"), &[]);
        run(&server, "CREATE DATABASE w");
        run(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
        run(&server, "CREATE RETENTION POLICY day ON w DURATION 1d REPLICATION 1");
        write("/write?db=w", 1).expect(204);
        write("/write?db=w&rp=week", 2).expect(204);
        write("/api/v2/write?bucket=w/day", 3).expect(204);
        for (parameters, select, found) in [
            ("db=w", "SELECT v FROM m", 1),
            ("db=w", "SELECT v FROM autogen.m", 1),
            ("db=w", "SELECT v FROM week.m", 2),
            ("db=w", "SELECT v FROM w.week.m", 2),
            ("", "SELECT v FROM w.\"day\".m", 3),
            ("db=w&rp=week", "SELECT v FROM m", 2),
            ("db=w&rp=day", "SELECT v FROM w..m", 3),
            ("db=w&rp=week", "SELECT v FROM \"day\".m", 3),
        ] {
            assert_eq!(values(&server, parameters, select), [found], "{parameters} {select}");
        }
        // The native API names the policy after a slash.
        for (name, found) in [("w", 1), ("w/autogen", 1), ("w%2Fweek", 2), ("w/day", 3)] {
            let found_too = server.fetch(&format!("/api/v1/readings?db={name}&measurement=m"));
            assert_eq!(found_too["series"][0]["readings"][0]["v"], found, "{name}: {found_too}");
        }
        run(&server, "ALTER RETENTION POLICY week ON w DEFAULT");
        write("/write?db=w", 4).expect(204);
        assert_eq!(values(&server, "db=w", "SELECT v FROM m"), [4]);
        assert_eq!(values(&server, "db=w&rp=week", "SELECT v FROM m"), [4]);
        assert_eq!(values(&server, "db=w", "SELECT v FROM autogen.m"), [1]);
        assert_eq!(values(&server, "db=w", "SELECT v FROM w..m"), [4]);
        let found = server.fetch("/api/v1/readings?db=w&measurement=m");
        assert_eq!(found["series"][0]["readings"][0]["v"], 4);
        // Missing policies are reported.
        let nope = "retention policy not found: nope";
        assert_eq!(write("/write?db=w&rp=nope", 5).expect(400).json(), json!({"error": nope}));
        assert_eq!(write("/write?db=nope&rp=nope", 5).expect(400).json(), json!({"error": nope}));
        let slash = write("/write?db=w/week", 5).expect(400).json();
        assert!(slash["error"].as_str().expect("a text").starts_with("database not found: \"w/week\""), "{slash}");
        assert_eq!(ask(&server, "db=w", "SELECT v FROM nope.m")["error"], nope);
        assert_eq!(ask(&server, "db=w&rp=nope", "SELECT v FROM m")["error"], nope);
        assert_eq!(ask(&server, "db=w/week", "SELECT v FROM m")["error"], "database not found: w/week");
        assert_eq!(ask(&server, "db=w", "SHOW FIELD KEYS FROM nope.m")["error"], nope);
        assert_eq!(ask(&server, "", "DROP DATABASE \"w/week\"")["error"], "invalid name");
    }
}

#[test]
fn listings_and_deletions_cover_one_policy_or_all() {
    for store in STORES {
        let server = start(&store());
        let time = now() - HOUR;
        run(&server, "CREATE DATABASE w");
        run(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
        post(&server.url("/write?db=w"), format!("both,s=a v=1i {time}\nown,s=b v=1i {time}"), &[]).expect(204);
        post(&server.url("/write?db=w&rp=week"), format!("both,s=c n=1i {time}\nweeks,s=d v=1i {time}"), &[])
            .expect(204);
        let rows = |parameters: &str, statement: &str| {
            let result = ask(&server, parameters, statement);
            let series = result["series"].as_array().cloned().unwrap_or_default();
            let rows = series.iter().flat_map(|series| series["values"].as_array().cloned().unwrap_or_default());
            let texts = rows.map(|row| row.as_array().expect("a row").last().expect("a cell").to_string());
            texts.map(|text| text.trim_matches('"').to_owned()).collect::<Vec<_>>().join(" ")
        };
        for (parameters, statement, listed) in [
            ("db=w", "SHOW MEASUREMENTS", "both own weeks"),
            ("", "SHOW MEASUREMENTS ON w.week", "both weeks"),
            ("", "SHOW MEASUREMENTS ON w.autogen", "both own"),
            ("db=w", "SHOW SERIES", "both,s=a both,s=c own,s=b weeks,s=d"),
            ("db=w", "SHOW SERIES FROM week.both", "both,s=c"),
            ("db=w", "SHOW SERIES FROM both", "both,s=a both,s=c"),
            ("db=w", "SHOW TAG VALUES FROM week.both, own WITH KEY = s", "c b"),
            ("db=w", "SHOW FIELD KEYS FROM week.both", "integer"),
            // Regression: a source's own policy was ignored if the request named another one.
            ("db=w&rp=autogen", "SHOW SERIES FROM week.both", "both,s=c"),
            ("db=w&rp=week", "SHOW SERIES FROM autogen.both, weeks", "both,s=a weeks,s=d"),
            ("db=w", "SHOW SERIES CARDINALITY", "4"),
        ] {
            assert_eq!(rows(parameters, statement), listed, "{statement}");
        }
        for statement in ["DELETE FROM week.both", "DROP SERIES FROM week.both"] {
            let refused = answer(&server, "db=w", statement).expect(400).json();
            let text = "error parsing query: retention policy not supported at line 1, char 1";
            assert_eq!(refused["error"], text, "{statement}");
        }
        // With rp, only of this policy; without, of all, as in InfluxDB.
        assert_eq!(ask(&server, "db=w&rp=week", "DROP SERIES FROM weeks")["error"], Value::Null);
        assert_eq!(rows("db=w", "SHOW MEASUREMENTS"), "both own");
        assert_eq!(ask(&server, "db=w&rp=week", "DELETE FROM both WHERE s = 'a'")["error"], Value::Null);
        assert_eq!(rows("db=w", "SHOW SERIES FROM both"), "both,s=a both,s=c");
        assert_eq!(ask(&server, "db=w", "DROP MEASUREMENT both")["error"], Value::Null);
        assert_eq!(rows("db=w", "SHOW SERIES"), "own,s=b");
        // A dropped database takes its policies and settings along.
        post(&server.url("/write?db=w&rp=week"), format!("weeks v=1i {time}"), &[]).expect(204);
        run(&server, "DROP DATABASE w");
        assert_eq!(rows("", "SHOW DATABASES"), "");
        run(&server, "CREATE DATABASE w");
        assert_eq!(policies(&server, "w"), json!([["autogen", "0s", "168h0m0s", 1, true]]));
        let gone = post(&server.url("/write?db=w&rp=week"), "m v=1", &[]).expect(400).json();
        assert_eq!(gone["error"], "retention policy not found: week");
        assert_eq!(rows("db=w", "SHOW MEASUREMENTS"), "");
    }
}

/// Regression: the losses of ALTER and DROP RETENTION POLICY could not be previewed.
#[test]
fn a_dry_run_counts_the_readings_that_a_policy_would_lose() {
    let server = start("embedded");
    let time = now() - DAY / 2;
    run(&server, "CREATE DATABASE w");
    run(&server, "CREATE RETENTION POLICY week ON w DURATION 7d REPLICATION 1");
    for (rp, age) in [("autogen", 0), ("week", 0), ("week", 3)] {
        post(&server.url(&format!("/write?db=w&rp={rp}")), format!("m,s=a v=1i {}", time - age * DAY), &[]).expect(204);
    }
    flush(&server);
    let losses = |statement: &str| {
        let result = ask(&server, "dry_run=true", statement);
        assert!(result["error"].is_null(), "{statement}: {result}");
        result["series"][0]["values"].clone()
    };
    assert_eq!(losses("DROP RETENTION POLICY week ON w"), json!([["w/week", 1, 2, 0]]));
    assert_eq!(losses("DROP RETENTION POLICY nothing ON w"), Value::Null);
    assert_eq!(losses("DROP DATABASE w"), json!([["w", 1, 1, 0], ["w/week", 1, 2, 0]]));
    let shorter = "ALTER RETENTION POLICY week ON w DURATION 2d";
    wait_until("the sensor's document is written", || losses(shorter)[0][1] == 1);
    let row = losses(shorter)[0].clone();
    assert_eq!(
        (&row[0], &row[2], &row[5], &row[6]),
        (&json!("w/week"), &json!(1), &Value::Null, &Value::Null),
        "{row}"
    );
    assert_eq!(losses("ALTER RETENTION POLICY week ON w DURATION 6d")[0][2], 0);
    for (statement, error) in [
        ("DROP RETENTION POLICY autogen ON w", "autogen is the database itself"),
        ("ALTER RETENTION POLICY day ON w DURATION 2d", "retention policy not found: day"),
        ("ALTER RETENTION POLICY week ON w DURATION 2m", "must be at least 1h"),
    ] {
        let result = ask(&server, "dry_run=true", statement);
        assert!(result["error"].as_str().is_some_and(|losses| losses.contains(error)), "{statement}: {result}");
    }
    assert_eq!(policies(&server, "w")[1], json!(["week", "168h0m0s", "24h0m0s", 1, false]));
    assert_eq!(values(&server, "db=w", "SELECT v FROM week.m"), [1, 1]);
}

/// Regression: an import of a database with a named policy was refused in every batch.
#[test]
fn the_influx_shell_imports_named_policies() {
    let Some(influx) = require(Package::InfluxShell) else { return };
    let server = start("embedded");
    let folder = Folder::new("import");
    let time = now() - DAY;
    // As `influx_inspect export` writes it.
    let export = format!(
        "# INFLUXDB EXPORT: 1677-09-21T00:12:43Z - 2262-04-11T23:47:16Z\n# DDL\nCREATE DATABASE w WITH NAME autogen\n\
         CREATE DATABASE w WITH NAME \"a week\"\n# DML\n# CONTEXT-DATABASE:w\n# CONTEXT-RETENTION-POLICY:autogen\n\
         # writing tsm data\nm,s=a v=1i {time}\n# CONTEXT-DATABASE:w\n# CONTEXT-RETENTION-POLICY:a week\n\
         # writing tsm data\nm,s=a v=2i {time}\nm,s=a v=3i {}\n",
        time + 1
    );
    let file = folder.file("export.txt");
    std::fs::write(&file, export).expect("a file");
    let mut command = Command::new(influx);
    command.args(["-host", "127.0.0.1", "-port", &server.address().port().to_string(), "-import", "-path"]).arg(&file);
    command.env("HOME", folder.path()).env("NO_PROXY", "*");
    let output = command.output().expect("influx can be run");
    let reply = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && reply.contains("Processed 2 commands"), "{reply}");
    assert!(reply.contains("Processed 3 inserts") && reply.contains("Failed 0 inserts"), "{reply}");
    assert_eq!(values(&server, "db=w", "SELECT v FROM m"), [1]);
    assert_eq!(values(&server, "db=w", "SELECT v FROM \"a week\".m"), [2, 3]);
}

/// A database of an older version whose name has a slash becomes a policy.
#[test]
fn a_policy_set_by_the_api_is_visible_in_influxql() {
    let server = start("embedded");
    server.set("w/week", r#"{"readings":"7d"}"#).expect(200);
    post(&server.url("/api/v1/readings?db=w/week"), r#"{"measurement":"m","fields":{"v":7}}"#, &[]).expect(200);
    assert_eq!(values(&server, "db=w", "SELECT v FROM week.m"), [7]);
    assert_eq!(policies(&server, "w")[1], json!(["week", "168h0m0s", "24h0m0s", 1, false]));
    let unknown = post(&server.url("/api/v1/readings?db=w/day"), r#"{"measurement":"m","fields":{"v":7}}"#, &[]);
    assert_eq!(unknown.expect(400).json()["error"], "retention policy not found: day");
}
