//! `backup create --stopped` and `copy` of a MongoDB database stop if any instance's WAL has unflushed records.

use crate::support::prelude::*;

use super::{PAGES, START, digest, restore, write};

/// Regression: only the WAL in `--data-dir` was checked, and 1,440 acked readings of another instance were missing.
#[test]
fn unflushed_wals_of_other_instances_stop_backup_and_copy() {
    let store = mongod().uri(&fresh_database_name());
    // Nothing is flushed without a request.
    let lazy = PAGES.replace("100ms", "1h").replace("50ms", "10m");
    let [mut stopped, mut other] = [(); 2].map(|()| Launch::with_store(&store).config(&lazy).start());
    let lines: String = (0..1440).map(|n| format!("m v={n} {}\n", START + n * 60)).collect();
    write(&other, "plant", &lines);
    assert!(stopped.stop().success());
    let there = Folder::new("stopped");
    let own = stopped.data_dir();
    let kept = there.file("kept");
    let copied = there.file("copied");
    let backup = || {
        let arguments =
            ["backup", "create", path(&kept), "--stopped", "--store", &store, "--data-dir", path(&own), "--prove"];
        hourglass(&arguments)
    };
    let copy =
        || hourglass(&["backup", "copy", "--source", &store, "--target", path(&copied), "--data-dir", path(&own)]);
    let host = format!("{}: these instances", instance_identity(&store));
    for () in [(), ()] {
        backup().expect_failure(&host);
        copy().expect_failure(&host);
        let digest_run = hourglass(&["backup", "digest", "--store", &store, "--data-dir", path(&own)]).expect_success();
        assert!(digest_run.stderr.contains("may be incomplete") && digest_run.stderr.contains(&host), "{digest_run:?}");
        other.kill();
    }
    hourglass(&["wal", "flush", "--store", &store, "--data-dir", path(&other.data_dir())]).expect_success();
    backup().expect_success();
    copy().expect_success();
    let expected = digest(&store, &own);
    assert_eq!(expected["total"]["readings"], 1440, "{expected}");
    assert_eq!(digest("embedded", &copied), expected);
    let restored = there.file("restored");
    restore(&kept, "embedded", &restored).expect_success();
    assert_eq!(digest("embedded", &restored), expected);
}

/// Returns host and process id of the only registered instance.
fn instance_identity(store: &str) -> String {
    let registry = find(store, "registry", doc! {}).remove(0);
    let logs = registry.get_array("logs").unwrap().iter().filter_map(|log| log.as_document());
    let mut open = logs.filter(|log| !log.contains_key("takenBy"));
    let host = open.next().unwrap().get_str("host").unwrap().to_owned();
    assert!(open.next().is_none(), "{registry}");
    host
}
