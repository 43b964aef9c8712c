//! `hourglass copy` from a running service: what is written, corrected, deleted and dropped meanwhile is followed, through kills of
//! the copier, until it switches; then the service takes no more writes and both digests are equal.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::{DAY, PAGES, SEALS, START, delete, digest, filled, flush, folder, hourglass, path, ran, stores, write};
use crate::support::eventually;
use crate::support::http::{get, post, request};
use crate::support::server::{Launch, Server, program};

fn copy(server: &Server, to: &str, data_dir: &Path, config: &Path, more: &[&str]) -> Command {
    let mut command = program();
    command.args(["copy", "--from", &server.url(""), "--to", to, "--every", "1s", "--config", path(config)]);
    if to.starts_with("mongodb") {
        command.args(["--data-dir", path(data_dir)]);
    }
    command.args(more);
    command
}

/// Late readings, corrections, a deletion, a new database, one that is dropped.
fn change(server: &Server, round: u64) {
    write(server, "plant", &format!("climate,s=9 temp={round} {}\n", START + DAY + round));
    write(
        server,
        "plant",
        &format!("climate,s=0 temp=99{round} {}\nclimate,s=1 note=\"r{round}\" {}\n", START + 600, START + 2 * DAY),
    );
    let (from, until) = (START + round * 20_000, START + round * 20_000 + 15_000);
    delete(
        server,
        "plant",
        &format!("DELETE FROM climate WHERE s='{}' AND time > {from}s AND time < {until}s", round % 4),
    );
    write(server, &format!("made{round}"), &format!("m v={round} {START}\n"));
    if round > 1 {
        delete(server, "plant", &format!("DROP DATABASE made{}", round - 1));
    }
}

/// Waits until the copier has said this many times that everything is copied.
fn passes(child: &mut Child, count: usize) {
    let out = child.stdout.as_mut().expect("it is piped");
    let lines = BufReader::new(out).lines().map_while(Result::ok);
    assert_eq!(lines.filter(|line| line.starts_with("everything acknowledged")).take(count).count(), count);
}

#[test]
fn a_running_service_is_followed_through_kills_and_switched() {
    let [embedded, mongo] = stores();
    for (from, seals) in [(embedded, SEALS), (mongo, "")] {
        let mut server = filled(&from, seals);
        let there = folder("there");
        let (config, data_dir) = (there.file("own.toml"), there.file("data"));
        std::fs::write(&config, format!("{PAGES}{seals}")).unwrap();
        let [_, other] = stores();
        let (to, to_store) = if from == "embedded" { (&*other, &*other) } else { (path(&data_dir), "embedded") };
        let mut round = 0;
        for point in ["day_cleared:1", "day_copied:2", "day_copied:4"] {
            ran(copy(&server, to, &data_dir, &config, &[]).env("FAULT_KILL_AT", point)).killed();
            round += 1;
            change(&server, round);
        }
        let mut child = copy(&server, to, &data_dir, &config, &[]).stdout(Stdio::piped()).spawn().unwrap();
        passes(&mut child, 1);
        round += 1;
        change(&server, round);
        passes(&mut child, 1);
        child.kill().unwrap();
        child.wait().unwrap();
        change(&server, round + 1);
        for point in ["read_only:1", "all_copied:1"] {
            ran(copy(&server, to, &data_dir, &config, &["--switch"]).env("FAULT_KILL_AT", point)).killed();
            let answer = post(&server.url("/write?db=plant"), "climate,s=0 temp=1\n", &[]);
            assert!(answer.status == 503 && answer.text().contains("takes no changes"), "{}", answer.text());
            assert!(answer.header("retry-after").is_some());
            // Until the process ends, or somebody says so.
            post(&server.url("/api/v1/read-only?state=off"), "", &[]).expect(200);
            change(&server, round + 2);
        }
        let said = ran(&mut copy(&server, to, &data_dir, &config, &["--switch"])).good().stdout;
        assert!(said.contains("takes no more writes"), "{said}");
        post(&server.url("/write?db=plant"), "climate,s=0 temp=1\n", &[]).expect(503);
        post(&server.url("/query?db=plant&q=DELETE+FROM+climate"), "", &[]).expect(503);
        get(&server.url("/ready")).expect(503);
        flush(&server);
        assert!(server.stop().success());
        assert_eq!(digest(&from, &server.data_dir()), digest(to_store, &data_dir));
        let verified = hourglass(&["verify", "--store", to_store, "--data-dir", path(&data_dir)]);
        assert_eq!(verified.status, Some(0), "{verified:?}");
    }
}

/// A late reading of days ago came between two passes. The next one compared the last two days only, and said that everything
/// acknowledged before it was copied: whoever switched by hand then lost it.
#[test]
fn a_pass_over_the_last_days_does_not_claim_the_others() {
    let server = filled("embedded", "");
    let there = folder("there");
    let (config, data_dir) = (there.file("own.toml"), there.file("data"));
    std::fs::write(&config, PAGES).unwrap();
    let mut child = copy(&server, path(&data_dir), &data_dir, &config, &[]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
    let first = lines.next().expect("a pass over all days");
    write(&server, "plant", &format!("climate,s=0 temp=777 {}\n", START + 7));
    let later: Vec<String> = lines.by_ref().take(2).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    let (everything, _) = first.split_once(" is copied").expect("a time");
    for line in &later {
        assert!(
            line.starts_with(everything) && line.contains("and later, and of new days, everything before"),
            "{line}"
        );
    }
    // Run again, the first pass looks at all days.
    ran(&mut copy(&server, path(&data_dir), &data_dir, &config, &["--switch"])).good();
    assert_eq!(digest("embedded", &data_dir)["total"]["readings"], 1729 + 1);
}

/// Regression: a sensor that has metadata kept the document that an earlier pass had made of its readings, also after these were deleted:
/// the new service showed deleted readings as its latest ones.
#[test]
fn deleted_readings_of_a_sensor_with_metadata_are_not_its_latest_ones() {
    let mut server = filled("embedded", "");
    let there = folder("there");
    let (config, data_dir) = (there.file("own.toml"), there.file("data"));
    std::fs::write(&config, PAGES).unwrap();
    let meta = "/api/v1/sensors/climate%2Cs%3D2/meta?db=plant";
    request("PUT", &server.url(meta), br#"{"site":"lab"}"#, &[]).unwrap().expect(200);
    let mut child = copy(&server, path(&data_dir), &data_dir, &config, &[]).stdout(Stdio::piped()).spawn().unwrap();
    passes(&mut child, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let latest = |server: &Server| {
        let answer = get(&server.url("/api/v1/latest?db=plant&sensor=climate%2Cs%3D2")).expect(200).json();
        answer["series"].as_array().into_iter().flatten().filter(|of| of["readings"] != json!([])).count()
    };
    assert_eq!(latest(&server), 1);
    delete(&server, "plant", &format!("DELETE FROM climate WHERE s='2' AND time >= {}s", START - DAY));
    ran(&mut copy(&server, path(&data_dir), &data_dir, &config, &["--switch"])).good();
    assert!(server.stop().success());
    let mut new = Launch::embedded().config(PAGES).start();
    assert!(new.stop().success());
    std::fs::remove_dir_all(new.data_dir()).unwrap();
    std::fs::rename(&data_dir, new.data_dir()).unwrap();
    new.restart("127.0.0.1:0");
    assert_eq!(latest(&new), 0);
    assert_eq!(get(&new.url(meta)).expect(200).json(), json!({"site": "lab"}));
    assert!(new.stop().success());
}

/// After the last pass, before the copier ended, the service was restarted (by what watches over it), or told to take writes by
/// another copier that failed. The copier said that it took no more and ended with status 0: what it had taken was lost.
#[test]
fn what_a_service_takes_after_the_last_pass_is_copied_too() {
    for restarts in [true, false] {
        let mut server = filled("embedded", "");
        let there = folder("there");
        let (config, data_dir, halt) = (there.file("own.toml"), there.file("data"), there.file("halt"));
        std::fs::write(&config, PAGES).unwrap();
        std::fs::write(&halt, "").unwrap();
        let mut command = copy(&server, path(&data_dir), &data_dir, &config, &["--switch"]);
        command.env("FAULT_HALT_AT", format!("all_copied:{}", halt.display()));
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        eventually("all is copied", Duration::from_secs(60), || halt.with_extension("met").exists().then_some(()));
        let read_only =
            |server: &Server, state| post(&server.url(&format!("/api/v1/read-only?state={state}")), "", &[]);
        match restarts {
            true => {
                let address = server.address();
                server.kill();
                server.restart(address);
            }
            false => drop(read_only(&server, "off").expect(200)),
        }
        write(&server, "plant", &format!("climate,s=0 temp=7 {}\n", START + 5 * DAY));
        if !restarts {
            read_only(&server, "on").expect(200);
        }
        std::fs::remove_file(&halt).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("took writes again meanwhile"), "{ended:?}");
        post(&server.url("/write?db=plant"), "climate,s=0 temp=1\n", &[]).expect(503);
        assert!(server.stop().success());
        assert_eq!(digest("embedded", &server.data_dir()), digest("embedded", &data_dir), "restarts: {restarts}");
    }
}

#[test]
fn a_service_that_shares_its_store_goes_on_taking_writes() {
    let [_, uri] = stores();
    let server = filled(&uri, "");
    let mut other = Launch::with_store(&uri).config(PAGES).start();
    write(&other, "plant", &format!("climate,s=7 temp=1 {START}\n"));
    let read_only = || post(&server.url("/api/v1/read-only?state=on"), "", &[]);
    let refused = read_only();
    assert!(refused.status == 400 && refused.text().contains("other instances"), "{}", refused.text());
    write(&server, "plant", &format!("climate,s=7 temp=2 {START}\n"));
    assert!(other.stop().success());
    read_only().expect(200);
    let answer = post(&server.url("/write?db=plant"), "climate,s=7 temp=2\n", &[]).expect(503);
    assert!(answer.text().contains("takes no changes"), "{}", answer.text());
}
