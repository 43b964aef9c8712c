//! Runs the `js` blocks of docs/explanation/sealed-days.md on sealed days, also with a chunk beside a day.

use super::START;
use super::decoder::documents;
use crate::readme::blocks;
use crate::support::prelude::*;

const PAGE: &str = "docs/explanation/sealed-days.md";
/// Chunks stay until a seal is requested.
const CONFIG: &str =
    "[seal]\nform = \"columns\"\ninterval = \"24h\"\nquiet = \"24h\"\n[sensors]\nwrite_interval = \"100ms\"\n";

/// Returns readings of an hour of 10 degrees, then of an hour of 40: every five seconds of one sensor, and every minute
/// of another one, whose day is plain.
fn lines(minutes: std::ops::Range<u64>) -> String {
    let line = |second: u64| {
        let temp = if second < 3600 { 10 } else { 40 };
        let sensors = if second.is_multiple_of(60) { &["s1", "s2"][..] } else { &["s1"] };
        let line = |sensor| format!("climate,room=lab,sensor={sensor} temp={temp} {}\n", START + second);
        sensors.iter().map(line).collect::<String>()
    };
    (minutes.start * 60..minutes.end * 60).step_by(5).map(line).collect()
}

#[test]
fn the_documented_queries_work_on_sealed_days() {
    let Some(mongosh) = require(Package::Mongosh) else { return };
    let database = fresh_database_name();
    let server = Launch::with_store(mongod().uri(&database)).config(CONFIG).start();
    let write = |minutes| {
        post(&server.url("/write?db=plant&precision=s"), lines(minutes), &[]).expect(204);
        flush(&server);
    };
    write(0..80);
    let days = || documents(&database, "plant.days");
    wait_until("the days are sealed", || {
        // Once its WAL has nothing of the day.
        ask_job(&server, "seal");
        days().len() == 2 && !days().iter().any(|day| day.contains_key("chunk"))
    });
    write(80..120);
    let days = days();
    let chunks = days.iter().filter(|day| day.contains_key("chunk")).count();
    assert_eq!((days.len(), chunks), (4, 2), "two days and two chunks: {days:?}");

    let queries: Vec<String> =
        blocks(PAGE).into_iter().filter(|block| block.language == "js").map(|b| b.text).collect();
    let answers = queries.iter().map(|text| {
        let mut command = Command::new(&mongosh);
        command.args(["--quiet", "--norc", &mongod().uri(&database), "--eval", text]).env("HOME", server.data_dir());
        let output = command.output().expect("mongosh can be run");
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    });
    let answers: Vec<String> = answers.collect();
    let [plain, warm, means] = &*answers else { panic!("{PAGE} has other questions: {queries:?}") };
    // The first twenty minutes of the second hour, and the first twenty readings that mongosh shows.
    for warm in [plain, warm] {
        assert_eq!((warm.matches("temp: 40").count(), warm.contains("temp: 10")), (20, false), "{warm}");
    }
    assert!(means.contains("mean: [ 10, 40 ]") && means.matches("mean").count() == 1, "{means}");
}
