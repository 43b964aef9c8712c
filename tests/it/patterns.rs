//! Runs the pages of docs/patterns.md in order: shell blocks on a service with MongoDB, `js` blocks in `mongosh`; the
//! output must match. Also runs `mongosh` queries of other pages.

use crate::readme::{Block, blocks, run};
use crate::support::packages;
use crate::support::prelude::*;

/// The pages, each of which continues the ones before.
fn pages() -> Vec<String> {
    let contents = fs::read_to_string(root().join("docs/patterns.md")).unwrap();
    let linked = contents.split("](patterns/").skip(1).filter_map(|rest| rest.split_once(')'));
    linked.map(|(page, _)| format!("docs/patterns/{page}")).collect()
}

#[test]
fn every_documented_pattern_runs_on_mongod() {
    let (Some(mongosh), Some(_)) = (packages::require(Package::Mongosh), packages::require(Package::Curl)) else {
        return;
    };
    let all: Vec<Block> = pages().iter().flat_map(|page| blocks(page)).collect();
    const SMALL: &str = "[store]\ncommand_timeout = \"2s\"\n[page]\nmax_readings = 60\n[sensors]\nrecent = 5\nwrite_interval = \"1s\"\n";
    let tables = all.iter().filter(|block| block.language == "toml");
    let config: String = tables.map(|block| format!("{}\n", block.text)).collect();
    let database = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&database).config(format!("{SMALL}{config}")).start();
    let address = server.address().to_string();
    let mut shown = 0;
    for mut block in all {
        let mut command = match block.language.as_str() {
            "sh" => {
                block.text = block.text.replace("127.0.0.1:8086", &address);
                let mut command = Command::new("sh");
                command.args(["-ec", &block.text]);
                command
            }
            "js" => {
                assert!(block.shows.is_some(), "nothing is said to be printed by\n{}", block.text);
                shown += 1;
                let mut command = Command::new(&mongosh);
                command.args(["--quiet", "--norc", &database, "--eval", &block.text]);
                command
            }
            "toml" => continue,
            other => panic!("no test runs {other} blocks:\n{}", block.text),
        };
        command.env("HOME", server.data_dir());
        run(command, &block);
    }
    assert!(shown >= 15, "only {shown} blocks for mongosh");
}

fn mongosh_output(mongosh: &Path, database: &str, text: &str) -> String {
    let mut command = Command::new(mongosh);
    command.args(["--quiet", "--norc", database, "--eval", text]).env("HOME", env!("CARGO_TARGET_TMPDIR"));
    let output = command.output().expect("mongosh can be run");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Returns the `js` blocks of a page.
fn documented_statements(page: &str) -> Vec<String> {
    blocks(page).into_iter().filter(|block| block.language == "js").map(|block| block.text).collect()
}

#[test]
fn the_queries_of_the_metadata_page_work() {
    let Some(mongosh) = packages::require(Package::Mongosh) else { return };
    let database = mongod().uri(&fresh_database_name());
    let config = "[seal]\ninterval = \"24h\"\n[sensors]\nwrite_interval = \"50ms\"\n\
                  [[meta.copy]]\nname = \"site\"\n[[groups]]\nname = \"site\"\nby = \"meta.site\"\n";
    let server = Launch::with_store(&database).config(config).start();
    for (sensor, site) in [("s1", "lab"), ("s2", "roof")] {
        let path = format!("/api/v1/sensors/climate%2Csensor%3D{sensor}/meta?db=plant");
        let headers = [("x-hourglass-ack", "store")];
        request("PUT", &server.url(&path), format!("{{\"site\":\"{site}\"}}").as_bytes(), &headers)
            .unwrap()
            .expect(200);
        let line = format!("climate,sensor={sensor} temp=19.5 1768489140\n");
        post(&server.url("/write?db=plant&precision=s"), line, &[]).expect(204);
    }
    flush(&server);
    let [pages, group] = &*documented_statements("docs/how-to/metadata.md") else {
        panic!("docs/how-to/metadata.md has other questions")
    };
    let found = mongosh_output(&mongosh, &database, pages);
    assert!(found.contains("sensor: 'climate,sensor=s1'") && found.contains("temp: {"), "{found}");
    assert!(!found.contains("s2"), "{found}");
    // As shown in the comment below it.
    let expected = "latest: { ts: ISODate('2026-01-15T14:59:00.000Z'), temp: 19.5 }";
    wait_until("the group is written", || {
        let found = mongosh_output(&mongosh, &database, group);
        let has = |text: &str| found.contains(text);
        has("_id: 'site lab '") && has("sensor: 'climate,sensor=s1'") && has(expected) && !has("s2")
    });
}

#[test]
fn a_lost_log_is_found_and_removed_as_documented() {
    let Some(mongosh) = packages::require(Package::Mongosh) else { return };
    let database = mongod().uri(&fresh_database_name());
    let mut server = Launch::with_store(&database).start();
    let [remove, watermarks] = &*documented_statements("docs/reference/data-folder.md") else {
        panic!("docs/reference/data-folder.md has other questions")
    };
    let (find, remove) = remove.split_once('\n').expect("two lines");
    wait_until("the WAL is registered", || mongosh_output(&mongosh, &database, find).contains("opening:"));
    server.kill();
    let found = mongosh_output(&mongosh, &database, watermarks);
    assert!(found.contains("host: '") && found.contains("stored: ISODate('20"), "{found}");
    let found = mongosh_output(&mongosh, &database, find);
    let opening = found.split_once("opening: '").and_then(|(_, rest)| rest.split_once('\'')).expect(&found).0;
    let removed = mongosh_output(&mongosh, &database, &remove.replace("5f0c6f1b2d3e4a59", opening));
    assert!(removed.contains("modifiedCount: 1"), "{removed}");
    assert_eq!(mongosh_output(&mongosh, &database, find).trim(), "[]", "{opening}");
}
