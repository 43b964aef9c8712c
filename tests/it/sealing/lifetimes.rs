//! Lifetime summaries in sensors' documents equal a plain model on both stores, and are gone after a deletion until
//! they are folded again.

use super::{PAGES, Random, START};
use crate::support::jobs;
use crate::support::prelude::*;

/// Days are sealed, and summaries are folded, on request.
const SEALS: &str = "[seal]\nafter = \"1s\"\ninterval = \"1h\"\nquiet = \"0s\"\n";
const SENSORS: usize = 3;
/// The readings begin this many days before [`START`], so that there are past months.
const DAYS: u64 = 75;
const DAY: u64 = 86_400;

/// The numbers of a sensor by time in seconds and field.
type Readings = BTreeMap<u64, BTreeMap<&'static str, f64>>;

/// Returns what a sensor's document has at `name`; null if it has nothing.
fn of_document(server: &Server, sensor: &str, name: &str) -> Value {
    let found = server.fetch(&format!("/api/v1/documents?db=d&sensor={}", encode(sensor)));
    let documents = found["documents"].as_array().expect("documents");
    let document = documents.iter().find(|shown| shown["collection"] == "sensors").expect("the sensor's document");
    document["document"][name].clone()
}

fn lifetime(server: &Server, sensor: usize) -> Value {
    of_document(server, &format!("climate,s={sensor}"), "lifetime")
}

fn expected(readings: &Readings) -> BTreeMap<String, [f64; 6]> {
    let mut fields = BTreeMap::<String, Vec<f64>>::new();
    for (name, value) in readings.values().flatten() {
        fields.entry((*name).to_owned()).or_default().push(*value);
    }
    let figures = |values: Vec<f64>| {
        let count = values.len() as f64;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        [count, min, max, values.iter().sum::<f64>() / count, values[0], values[values.len() - 1]]
    };
    fields.into_iter().map(|(name, values)| (name, figures(values))).collect()
}

fn figures(lifetime: &Value) -> BTreeMap<String, [f64; 6]> {
    let figures = |figures: &Value| {
        ["count", "min", "max", "avg", "first", "last"].map(|name| figures[name].as_f64().expect("a number"))
    };
    let fields = lifetime["fields"].as_object().unwrap_or_else(|| panic!("no summaries: {lifetime}"));
    fields.iter().map(|(name, field)| (name.clone(), figures(field))).collect()
}

#[track_caller]
fn assert_folded(server: &Server, model: &[Readings], when: &str) {
    for (sensor, readings) in model.iter().enumerate() {
        let found = lifetime(server, sensor);
        if readings.is_empty() && found.is_null() {
            continue;
        }
        assert_eq!(figures(&found), expected(readings), "{when}: sensor {sensor}: {found}");
        let ms =
            |name: &str| found[name]["$date"].as_str().map(|time| bson::DateTime::parse_rfc3339_str(time).unwrap());
        let seconds = |name: &str| u64::try_from(ms(name).expect("a time").timestamp_millis() / 1000).unwrap();
        let (first, last) = (readings.first_key_value().unwrap().0, readings.last_key_value().unwrap().0);
        assert!(seconds("from") <= *first && *last < seconds("to"), "{when}: {found}");
        assert!(ms("asOf") <= Some(bson::DateTime::now()), "{when}: {found}");
    }
}

/// Checks that no summary includes a deleted reading, for summaries that were up to date before the deletion.
#[track_caller]
fn assert_not_stale(server: &Server, model: &[Readings], when: &str) -> usize {
    let mut removed = 0;
    for (sensor, readings) in model.iter().enumerate() {
        match lifetime(server, sensor) {
            Value::Null => removed += 1,
            found => assert_eq!(figures(&found), expected(readings), "{when}: sensor {sensor}"),
        }
    }
    removed
}

fn fold(server: &Server) {
    flush(server);
    wait_until("the deletion is forgotten", || metric(server, "hourglass_registry_deletions") == 0.0);
    jobs::seal(server);
}

/// Writes random readings into the server and the model: some alone, and many in one hour, which takes several pages.
fn write_random(server: &Server, model: &mut [Readings], random: &mut Random) {
    let mut lines = String::new();
    for (sensor, readings) in model.iter_mut().enumerate() {
        let busy_hour = START - DAYS * DAY + random.below(DAYS * 24) * 3600;
        for n in 0..130 {
            let time = if n < 40 { START - random.below(DAYS * 1440) * 60 } else { busy_hour + random.below(1800) };
            let value = random.below(1000) as f64 / 4.0;
            let reading = readings.entry(time).or_default();
            reading.insert("temp", value);
            let mut more = String::from(",note=\"n\"");
            if random.below(2) == 0 {
                let hum = random.below(100);
                reading.insert("hum", hum as f64);
                more = format!(",hum={hum}i");
            }
            lines += &format!("climate,s={sensor} temp={value}{more} {time}\n");
        }
    }
    post(&server.url("/write?db=d&precision=s"), lines, &[]).expect(204);
}

tests! {
    fn lifetimes_equal_a_model_embedded() => compare_with_model("embedded".to_owned());
    fn lifetimes_equal_a_model_in_mongodb() => compare_with_model(mongod().uri(&fresh_database_name()));
}

/// Writes and deletes in turns. Later rounds bring late readings and other values of stored readings.
fn compare_with_model(store: String) {
    let server = Launch::with_store(store).config(format!("{PAGES}{SEALS}")).start();
    let mut model = vec![Readings::new(); SENSORS];
    let mut random = Random(7);
    let mut removed = 0;
    for round in 0..scaled(4, 60) {
        write_random(&server, &mut model, &mut random);
        fold(&server);
        assert_folded(&server, &model, &format!("round {round}, written"));
        let sensor = usize::try_from(random.below(SENSORS as u64)).unwrap();
        let of_sensor = &mut model[sensor];
        let condition = if round % 2 == 0 {
            let from = START - random.below(DAYS) * DAY - random.below(1440) * 60;
            let to = from + (1 + random.below(10)) * DAY / 2;
            of_sensor.retain(|time, _| !(from..to).contains(time));
            format!("time >= {from}s AND time < {to}s")
        } else {
            of_sensor.retain(|_, reading| reading.get("hum").is_none_or(|hum| *hum <= 80.0));
            "hum > 80".to_owned()
        };
        execute(&server, "d", &format!("DELETE FROM climate WHERE s='{sensor}' AND {condition}"));
        removed += assert_not_stale(&server, &model, &format!("round {round}, {condition}"));
        fold(&server);
        assert_folded(&server, &model, &format!("round {round}, deleted"));
    }
    assert!(removed >= 4, "only {removed} summaries were removed by deletions");
}

#[test]
fn hour_pages_are_folded_too() {
    for store in stores() {
        let server = Launch::with_store(store).config(format!("{PAGES}{SEALS}form = \"off\"\n")).start();
        let mut model = vec![Readings::new(); SENSORS];
        write_random(&server, &mut model, &mut Random(5));
        fold(&server);
        assert_folded(&server, &model, "past hours");
        let time = u64::try_from(now() / 1_000_000_000).unwrap();
        write_to(&server, "db=d&precision=s", format!("climate,s=2 temp=-5 {time}\n"));
        model[2].entry(time).or_default().insert("temp", -5.0);
        wait_until("the document has the reading", || of_document(&server, "climate,s=2", "latest")["temp"] == -5.0);
        fold(&server);
        assert_folded(&server, &model, "this hour");
    }
}

/// Nothing rewrites the documents of sensors without new readings.
#[test]
fn only_sensors_with_new_days_are_folded_again() {
    for store in stores() {
        let server = Launch::with_store(store).config(format!("{PAGES}{SEALS}")).start();
        let mut model = vec![Readings::new(); SENSORS];
        write_random(&server, &mut model, &mut Random(1));
        fold(&server);
        let revs = || (0..SENSORS).map(|n| of_document(&server, &format!("climate,s={n}"), "rev")).collect::<Vec<_>>();
        let before = revs();
        fold(&server);
        assert_eq!(revs(), before, "nothing is new");
        // Late, and of a month that has totals.
        write_to(&server, "db=d&precision=s", format!("climate,s=1 temp=-9 {}\n", START - 40 * DAY + 7));
        model[1].entry(START - 40 * DAY + 7).or_default().insert("temp", -9.0);
        fold(&server);
        assert_folded(&server, &model, "late");
        let after = revs();
        assert_eq!((&after[0], &after[2]), (&before[0], &before[2]), "the others are left alone");
    }
}

#[test]
fn the_number_of_fields_is_capped() {
    for store in stores() {
        let launch = Launch::with_store(store);
        let config = |fields: usize| launch.clone().config(format!("[sensors]\nlifetime_fields = {fields}\n{SEALS}"));
        let mut server = config(2).start();
        let line = |value: u64| format!("climate,s=0 d={value},a=1,text=\"x\",c=2i,b=3 {}\n", START + value);
        write_to(&server, "db=d&precision=s", line(1));
        for (fields, names) in [(2, vec!["a", "b"]), (256, vec!["a", "b", "c", "d"]), (1, vec!["a"])] {
            if fields != 2 {
                server.stop();
                server.restart_as(config(fields));
                write_to(&server, "db=d&precision=s", line(fields as u64));
            }
            fold(&server);
            assert_eq!(figures(&lifetime(&server, 0)).into_keys().collect::<Vec<_>>(), names);
        }
        server.stop();
        server.restart_as(config(0));
        fold(&server);
        assert_eq!(lifetime(&server, 0), Value::Null, "turned off");
    }
}

#[test]
fn expired_readings_leave_the_summaries_unless_summaries_are_kept() {
    for store in stores() {
        let server =
            Launch::with_store(store).config(format!("{PAGES}{SEALS}[retention]\ninterval = \"50ms\"\n")).start();
        let today = u64::try_from(now() / 1_000_000_000).unwrap() / DAY * DAY;
        let mut model = vec![Readings::new(); 2];
        for (sensor, ages) in [(0, vec![40, 20, 9, 3, 1]), (1, vec![2, 1])] {
            for age in ages {
                let time = today - age * DAY + 60;
                write_to(&server, "db=d&precision=s", format!("climate,s={sensor} temp={age} {time}\n"));
                model[sensor].entry(time).or_default().insert("temp", age as f64);
            }
        }
        fold(&server);
        server.set("d", r#"{"readings":"7d","summaries":"30d"}"#).expect(200);
        wait_until("readings have expired", || jobs::progress(&server, "strip", "databases") == 1);
        model[0].retain(|time, _| *time > today - 30 * DAY);
        wait_until("summaries have expired", || jobs::progress(&server, "expire", "deletions") == 1);
        fold(&server);
        assert_folded(&server, &model, "with kept summaries");
        let other = lifetime(&server, 1);
        server.set("d", r#"{"readings":"7d","summaries":null}"#).expect(200);
        wait_until("all have expired", || jobs::progress(&server, "expire", "deletions") == 2);
        wait_until("the expiry is forgotten", || metric(&server, "hourglass_registry_deletions") == 0.0);
        model[0].retain(|time, _| *time > today - 7 * DAY);
        assert_eq!(assert_not_stale(&server, &model, "expired"), 1);
        assert_eq!(lifetime(&server, 1), other, "a deletion of earlier times changes nothing");
        fold(&server);
        assert_folded(&server, &model, "expired");
    }
}

/// Readings are deleted while a fold that has read them is about to write.
#[test]
fn a_fold_beside_a_deletion_restores_nothing() {
    for store in stores() {
        let is_shared = store != "embedded";
        let launch = Launch::with_store(store).config(format!("{PAGES}{SEALS}"));
        let halt = Halt::new();
        let folding = halt.launch(launch.clone(), "lifetimes_folded").start();
        // With MongoDB, another instance deletes.
        let other = is_shared.then(|| launch.start());
        let deleting = other.as_ref().unwrap_or(&folding);
        let mut model = vec![Readings::new(); SENSORS];
        write_random(deleting, &mut model, &mut Random(3));
        flush(deleting);
        halt.set();
        let url = run_url(&folding, "seal");
        let request = std::thread::spawn(move || post(&url, "", &[]));
        halt.await_met("the summaries are folded");
        let half = START - DAYS * DAY / 2;
        execute(deleting, "d", &format!("DELETE FROM climate WHERE s='1' AND time < {half}s"));
        model[1].retain(|time, _| *time >= half);
        wait_until("the deletion is forgotten", || metric(deleting, "hourglass_registry_deletions") == 0.0);
        halt.lift();
        request.join().expect("an answer");
        wait_until("the run has ended", || jobs::job(&folding, "seal")["state"] == "waiting");
        assert_not_stale(&folding, &model, "beside a deletion");
        fold(&folding);
        assert_folded(&folding, &model, "folded again");
    }
}
