//! A digest covers the set of readings: equal in both stores and all forms, and sensitive to every bit.

use crate::support::prelude::*;

use super::{PAGES, SEALS, START, digest, line, three_days, write};

#[test]
fn equal_readings_have_equal_digests_in_every_form() {
    let mut digests = Vec::new();
    for (store, config) in [
        ("embedded".to_owned(), format!("{PAGES}{SEALS}")),
        ("embedded".to_owned(), PAGES.to_owned()),
        (mongod().uri(&fresh_database_name()), format!("{PAGES}{SEALS}")),
        (mongod().uri(&fresh_database_name()), String::new()),
    ] {
        let seals = config.contains("[seal]");
        let mut server = Launch::with_store(&store).config(config).start();
        write(&server, "plant", &three_days());
        flush(&server);
        if seals {
            // So that later corrections and deletions hit sealed days.
            let is_sealed = || server.stderr().contains("days sealed").then_some(());
            eventually("days are sealed", is_sealed);
        }
        write(&server, "plant", &(0..40).map(|n| line(n % 4, n * 4321 / 600 * 600 + n % 4, n)).collect::<String>());
        execute(&server, "plant", &format!("DELETE FROM climate WHERE s='2' AND time < {}s", START + 7200));
        flush(&server);
        assert!(server.stop().success(), "{}", server.stderr());
        digests.push(digest(&store, &server.data_dir()));
    }
    let first = &digests[0];
    assert_eq!(first["databases"][0]["sensors"], 4, "{first}");
    assert!(first["databases"][0]["readings"].as_u64().unwrap() > 1600, "{first}");
    for other in &digests[1..] {
        assert_eq!(first, other);
    }
}

#[test]
fn one_bit_of_one_value_changes_the_digest() {
    for store in stores() {
        let mut server = Launch::with_store(&store).config(PAGES).start();
        write(&server, "plant", &three_days());
        assert!(server.stop().success());
        let before = digest(&store, &server.data_dir());
        server.restart();
        // The first value is 0.25; the next greater double differs in one bit.
        let next = f64::from_bits(0.25_f64.to_bits() | 1);
        write(&server, "plant", &format!("climate,s=0 temp={next:e} {START}\n"));
        assert!(server.stop().success());
        let after = digest(&store, &server.data_dir());
        assert_eq!(before["total"]["cells"], after["total"]["cells"]);
        assert_ne!(before["total"]["digest"], after["total"]["digest"]);
        assert_ne!(before["databases"][0]["digest"], after["databases"][0]["digest"]);
        server.restart();
        write(&server, "plant", &line(0, 0, 0));
        assert!(server.stop().success());
        assert_eq!(before, digest(&store, &server.data_dir()), "as it was");
    }
}

/// With 100 readings a second, an hour exceeds the request memory and is read in parts.
#[test]
fn an_hour_that_is_larger_than_memory_is_read_in_parts() {
    let mut server = Launch::embedded().start();
    for from in (0..40_000).step_by(10_000) {
        let lines: String =
            (from..from + 10_000).map(|n| format!("fast v={n}.5,w={n}i {}\n", START * 1000 + n * 10)).collect();
        post(&server.url("/write?db=plant&precision=ms"), lines, &[]).expect(204);
    }
    assert!(server.stop().success());
    let folder = server.data_dir();
    let whole = digest("embedded", &folder);
    assert_eq!(whole["total"]["readings"], 40_000);
    let config = folder.join("small.toml");
    std::fs::write(&config, "[query]\nrequest_bytes = \"1MiB\"\n").unwrap();
    let arguments = ["backup", "digest", "--output", "json", "--data-dir", path(&folder), "--config", path(&config)];
    let small: serde_json::Value = serde_json::from_str(&hourglass(&arguments).expect_success().stdout).unwrap();
    assert_eq!(whole, small);
}

#[test]
fn a_digest_names_what_it_leaves_out() {
    let mut server = Launch::embedded().config("[flush]\ninterval = \"1h\"\nquiet = \"10m\"\n").start();
    write(&server, "plant", "m v=1 1768435200\n");
    server.kill();
    let folder = server.data_dir();
    let ran = hourglass(&["backup", "digest", "--data-dir", path(&folder)]).expect_success();
    assert!(ran.stderr.contains("wal flush") && ran.stdout.contains("0 readings"), "{ran:?}");
    hourglass(&["wal", "flush", "--data-dir", path(&folder)]).expect_success();
    assert!(
        hourglass(&["backup", "digest", "--data-dir", path(&folder)]).expect_success().stdout.contains("1 readings")
    );
}
