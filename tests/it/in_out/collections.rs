//! `hourglass import mongodb://…`, from collections of other applications in a real MongoDB.

use mongodb::bson::{self, DateTime, oid::ObjectId};
use mongodb::options::{TimeseriesOptions, WriteConcern};

use super::{command, kill_once_there, run};
use crate::support::prelude::*;

const START: i64 = 1_768_435_200_000;

fn date(seconds: i64) -> DateTime {
    DateTime::from_millis(START + seconds * 1000)
}

/// Inserts documents into a collection of a new database, and returns its address.
fn filled(collection: &str, is_time_series: bool, documents: Vec<Document>) -> String {
    let uri = mongod().uri(&fresh_database_name());
    in_mongo(&uri, async |mongo| {
        if is_time_series {
            let options = TimeseriesOptions::builder().time_field("ts").meta_field("meta".to_owned()).build();
            mongo.create_collection(collection).timeseries(options).await.expect("a collection");
        }
        let inserts = mongo.collection::<Document>(collection);
        inserts.insert_many(documents).write_concern(WriteConcern::nodes(1)).await.expect("documents");
    });
    uri
}

fn decimal(text: &str) -> bson::Decimal128 {
    text.parse().expect("a decimal number")
}

#[test]
fn a_native_time_series_collection_is_imported_with_its_types() {
    let server = Server::start("embedded");
    let folder = Folder::new("collections");
    let s1 = doc! { "sensor": "s1", "place": { "site": "lab 1" } };
    let s2 = doc! { "sensor": "s2" };
    let documents = vec![
        doc! { "ts": date(0), "meta": &s1, "temp": 21.5, "n": 1, "on": true, "note": "x", "air": { "co2": 400_i64 } },
        doc! { "ts": date(0), "meta": &s2, "temp": 22, "price": decimal("21.10"), "seen": date(5) },
        doc! { "ts": date(1), "meta": &s2, "price": decimal("1.2345678901234567"), "temp": 1 },
        doc! { "ts": date(2), "meta": &s2, "temp": f64::NAN },
        doc! { "ts": date(3), "meta": &s1, "temp": "warm" },
        doc! { "ts": date(-START / 1000 - 1), "meta": &s1, "n": i64::MIN },
    ];
    let uri = filled("weather", true, documents);
    let import = |arguments: &[&str]| {
        let mut import = command(&server, &[&["import", &uri, "--collection", "weather"], arguments].concat());
        run_program(import.current_dir(folder.path()))
    };
    let dry = import(&["--dry-run"]);
    let guess = "time-series collection weather is read as\n  measurement  weather\n  time         ts\n  \
        tags         meta.place.site, meta.sensor\n  fields       air_co2 (number), n (number), note (string), \
        on (boolean), price (number), temp (string)\n  left out     _id, seen\n";
    assert!(dry.stderr.starts_with(guess), "{dry:?}");
    let first = "weather,place_site=lab\\ 1,sensor=s1 n=-9223372036854775808i -1000000000\n";
    assert!(dry.stderr.contains(first), "{dry:?}");
    assert!(dry.stdout.ends_with("6 rows read, 2 refused; nothing was sent\n"), "{dry:?}");
    assert_eq!(influxql(&server, "SELECT count(*) FROM weather"), Value::Null);
    let imported = import(&["--types", "temp=number"]);
    assert_eq!(imported.status, Some(1), "{imported:?}");
    assert!(imported.stdout.starts_with("6 rows read, 3 written, 3 refused"), "{imported:?}");
    assert!(imported.stdout.contains("6 fields have equal counts and sums in the service, 0 differ"), "{imported:?}");
    let refused = fs::read_to_string(folder.file("weather.refused")).unwrap();
    for reason in [
        "price: the decimal number 1.2345678901234567 has more than 15 digits",
        "temp: NaN is no number",
        "field temp: \"warm\" is no number",
    ] {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    let stored = influxql(&server, "SELECT * FROM weather WHERE time < '2030-01-01' GROUP BY *");
    assert_eq!(stored[0]["tags"], json!({ "place_site": "", "sensor": "s2" }), "{stored}");
    assert_eq!(stored[0]["columns"], json!(["time", "air_co2", "n", "note", "on", "price", "temp"]));
    assert_eq!(stored[0]["values"], json!([[START / 1000, null, null, null, null, 21.1, 22]]));
    assert_eq!(stored[1]["values"][1], json!([START / 1000, 400, 1, "x", true, null, 21.5]), "{stored}");
}

/// Buckets with an array of documents, and with parallel arrays.
#[test]
fn home_made_buckets_are_guessed_and_shown_first() {
    let server = Server::start("embedded");
    let folder = Folder::new("collections");
    let reading = |second: i64| doc! { "ts": date(second), "temp": 20.0 + second as f64, "air": { "hum": 40 } };
    let bucket = |sensor: &str, first: i64| {
        let readings: Vec<Document> = (first..first + 3).map(reading).collect();
        doc! { "_id": format!("{sensor} {first}"), "sensor": sensor, "day": "2026-01-15", "start": date(first),
        "count": 3, "readings": readings, "tags": ["a"] }
    };
    let mut documents = vec![bucket("s1", 0), bucket("s1", 3), bucket("s2", 0)];
    documents.push(doc! { "_id": "s3", "sensor": "s3" });
    documents.push(doc! { "_id": 4, "sensor": "s4", "readings": [{ "ts": date(0), "temp": date(1) }, { "temp": 1 }] });
    let uri = filled("buckets", false, documents);
    let import = |uri: &str, arguments: &[&str]| {
        let mut import = command(&server, &[&["import", uri, "--collection"], arguments].concat());
        run_program(import.current_dir(folder.path()))
    };
    let imported = import(&uri, &["buckets", "--measurement", "climate"]);
    let guess = "collection buckets, array readings, is read as\n  measurement  climate\n  time         readings.ts\n  \
        tags         sensor\n  fields       air_hum (number), temp (number)\n  left out     _id, count, day, start, tags\n  \
        first row    climate,sensor=s1 air_hum=40i,temp=23.0 1768435203000000000\n";
    assert!(imported.stderr.starts_with(guess), "{imported:?}");
    assert!(imported.stdout.starts_with("12 rows read, 9 written, 3 refused"), "{imported:?}");
    assert!(imported.stdout.contains("2 fields have equal counts and sums in the service, 0 differ"), "{imported:?}");
    let refused = fs::read_to_string(folder.file("buckets.refused")).unwrap();
    for reason in ["readings: expected an array", "readings.temp is a date: leave it out", "no time at readings.ts"] {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    assert_eq!(influxql(&server, "SELECT count(temp), sum(temp) FROM climate")[0]["values"][0][2], 198);
    // Times in seconds, as Python has them, and a path for the measurement.
    let arrays = doc! { "_id": { "device": ObjectId::from_bytes([7; 12]), "day": date(0) }, "kind": "power",
    "v": { "time": [START as f64 / 1000.0, START as f64 / 1000.0 + 0.25], "kwh": [1, 2], "labels": ["a"] } };
    let uneven = doc! { "kind": "power", "v": { "time": [1], "kwh": [1, 2] } };
    let uri = filled("arrays", false, vec![arrays, uneven]);
    let imported = import(&uri, &["arrays", "--measurement-column", "kind", "--types", "v.labels=skip", "--quiet"]);
    assert!(imported.stderr.contains("collection arrays, parallel arrays, is read as\n"), "{imported:?}");
    assert!(imported.stderr.contains("tags         _id.device\n"), "{imported:?}");
    assert!(imported.stdout.starts_with("3 rows read, 2 written, 1 refused"), "{imported:?}");
    let refused = fs::read_to_string(folder.file("arrays.refused")).unwrap();
    assert!(refused.contains("# line 3: v.kwh has 2 values, but v.time has 1\n"), "{refused}");
    let answer = server.fetch(&format!("/query?db=d&epoch=ms&q={}", encode("SELECT kwh, device FROM power")));
    let rows = &answer["results"][0]["series"][0]["values"];
    let device = "070707070707070707070707";
    assert_eq!(*rows, json!([[START, 1, device], [START + 250, 2, device]]), "{answer}");
}

#[test]
fn documents_with_one_reading_are_imported_by_flags_or_a_guess() {
    let server = Server::start("embedded");
    let folder = Folder::new("collections");
    let document = |number: i64| {
        let time = START / 1000 + number;
        doc! { "sensorId": number % 2, "site": "lab", "note": format!("n{number}"), "at": time, "v": { "t": number } }
    };
    let uri = filled("points", false, (0..8).map(document).collect());
    let import = |arguments: &[&str]| {
        let mut import = command(&server, &[&["import", &uri], arguments].concat());
        run_program(import.current_dir(folder.path()))
    };
    import(&[]).expect_failure("name one with --collection: points");
    import(&["--collection", "pints"]).expect_failure("there is no collection \"pints\", only points");
    import(&["--collection", "points"]).expect_failure("no member is the time: name one with --time, of [");
    import(&["--collection", "points", "--time", "v.at"]).expect_failure("there is no member \"v.at\", only [");
    import(&["--collection", "points", "--time", "at", "--types", "t=float"]).expect_failure("no member \"t\", only [");
    let flags = ["--collection", "points", "--time", "at"];
    let dry = import(&[&flags[..], &["--dry-run"]].concat()).expect_success();
    let guess = "  tags         sensorId, site\n  fields       note (string), v_t (number)\n  left out     _id\n";
    assert!(dry.stderr.contains(guess), "{dry:?}");
    let more = ["--precision", "s", "--tags", "sensorId", "--types", "note=skip,site=skip"];
    let imported = import(&[&flags[..], &more].concat()).expect_success();
    assert!(imported.stdout.starts_with("8 rows read, 8 written, 0 refused"), "{imported:?}");
    let stored = influxql(&server, "SELECT * FROM points WHERE sensorId = '1' LIMIT 1");
    assert_eq!(stored[0]["columns"], json!(["time", "sensorId", "v_t"]), "{stored}");
    assert_eq!(stored[0]["values"], json!([[START / 1000 + 1, "1", 1]]));
    // The password is not printed, and neither is it in a file.
    let secret = uri.replace("mongodb://", "mongodb://somebody:geheim@");
    let failed = run(&server, &["import", &secret, "--collection", "points"]);
    let failed = failed.expect_failure("mongodb://***@127.0.0.1");
    assert!(failed.stderr.contains("the login was rejected") && !failed.output().contains("geheim"), "{failed:?}");
}

/// Identifiers of several types, and many sensors with equal times.
#[test]
fn a_killed_import_of_a_collection_continues_and_counts_nothing_twice() {
    let server = Server::start("embedded");
    let folder = Folder::new("collections");
    let bucket = |number: i64| {
        let readings: Vec<Document> = (0..50)
            .map(|index| doc! { "ts": date(number * 50 + index), "v": index as f64 / 8.0, "n": index })
            .collect();
        let sensor = format!("s{}", number % 3);
        match number % 2 {
            0 => doc! { "_id": number, "sensor": sensor, "readings": readings },
            _ => doc! { "_id": format!("{number:05}"), "sensor": sensor, "readings": readings },
        }
    };
    let native = |number: i64| {
        let meta = doc! { "s": number % 10 };
        doc! { "ts": date(number / 10), "meta": meta, "v": number as f64 / 8.0, "n": number }
    };
    for (collection, documents, count) in [
        ("buckets", (0..1000).map(bucket).collect::<Vec<_>>(), 50_000),
        ("native", (0..50_000).map(native).collect(), 50_000),
    ] {
        let uri = filled(collection, collection == "native", documents);
        let import = || {
            let mut import = command(&server, &["import", &uri, "--collection", collection]);
            import.current_dir(folder.path());
            import
        };
        let state = folder.file(&format!("{collection}.progress"));
        assert!(kill_once_there(&mut import(), &state), "{collection}: it ended too early");
        let other = run_program(import().args(["--types", "n=skip,readings.n=skip"]));
        other.expect_failure("remove it to begin anew");
        let rest = run_program(&mut import()).expect_success();
        assert!(rest.stderr.contains("hourglass: continuing after "), "{rest:?}");
        assert!(rest.stdout.starts_with(&format!("{count} rows read, {count} written, 0 refused")), "{rest:?}");
        assert!(rest.stdout.contains("2 fields have equal counts and sums in the service, 0 differ"), "{rest:?}");
        assert!(!state.exists());
    }
}
