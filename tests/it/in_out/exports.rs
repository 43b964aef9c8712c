//! `hourglass export`, and what is imported from it.

use super::{ALL_TYPES, command, kill_once_there, many_lines, run};
use crate::support::prelude::*;

/// Types, nanoseconds and texts survive each format.
#[test]
fn an_export_imports_to_an_equal_digest() {
    let mut server = Server::start("embedded");
    write_to(&server, "db=d", ALL_TYPES);
    let folder = Folder::new("export");
    let names = ["all.lp", "all.csv", "all.ndjson", "all.lp.gz", "all.csv.zst"];
    for name in names {
        let exported = run(&server, &["export", path(&folder.file(name))]).expect_success();
        assert_eq!(exported.stderr, "6 rows exported\n", "{name}");
        assert!(!folder.file(&format!("{name}.progress")).exists(), "{name}");
    }
    run(&server, &["export", path(&folder.file("all.lp"))]).expect_failure("all.lp exists: remove it");
    let lines = run(&server, &["export"]).expect_success().stdout;
    assert_eq!(lines, fs::read_to_string(folder.file("all.lp")).unwrap());
    assert!(!lines.contains("# "), "{lines}");
    let some = run(
        &server,
        &[
            "export",
            "--measurement",
            "climate",
            "--from",
            "2026-01-15T00:00:00.000000002Z",
            "--format",
            "ndjson",
            "--fields",
            "temp,on",
        ],
    );
    assert_eq!(
        some.expect_success().stdout,
        "{\"fields\":{\"on\":false,\"temp\":-0.1},\"measurement\":\"climate\",\"tags\":{\"room\":\"lab 1\",\"sensor\":\"s,1\"},\"ts\":\"2026-01-15T00:00:00.000000002Z\"}\n\
        {\"fields\":{\"on\":\"text beside booleans\"},\"measurement\":\"climate\",\"tags\":{\"sensor\":\"s3\"},\"ts\":\"2026-01-15T00:01:00Z\"}\n"
    );
    server.stop();
    let expected = digest("embedded", &server.data_dir());
    for name in &names {
        let mut copy = Server::start("embedded");
        let imported = run(&copy, &["import", path(&folder.file(name))]).expect_success();
        assert!(imported.stdout.starts_with("6 rows read, 6 written, 0 refused"), "{name}: {imported:?}");
        copy.stop();
        assert_eq!(digest("embedded", &copy.data_dir()), expected, "{name}");
    }
}

#[test]
fn a_killed_export_continues_after_its_last_part() {
    let server = Server::start("embedded");
    let folder = Folder::new("export");
    let file = folder.file("many.lp");
    fs::write(&file, many_lines(150_000)).unwrap();
    run(&server, &["import", path(&file)]).expect_success();
    for name in ["x.lp", "x.csv.gz"] {
        let out = folder.file(name);
        let whole = folder.file(&format!("whole-{name}"));
        run(&server, &["export", path(&whole)]).expect_success();
        let progress = folder.file(&format!("{name}.progress"));
        assert!(kill_once_there(&mut command(&server, &["export", path(&out)]), &progress), "it ended too early");
        let ended = run(&server, &["export", path(&out)]).expect_success();
        assert_eq!(ended.stderr, "150000 rows exported\n");
        assert!(fs::read(&out).unwrap() == fs::read(&whole).unwrap(), "{name}");
    }
}

/// An answer that ends without its last line is no export.
#[test]
fn the_endpoint_continues_at_a_cursor_and_ends_with_a_mark() {
    let server = Server::start("embedded");
    write(&server, "m,s=1 v=1 1\nm,s=2 v=2i 2");
    let export =
        |parameters: &str| get(&server.url(&format!("/api/v1/export?db=d{parameters}"))).expect(200).text().to_owned();
    assert_eq!(export(""), "m,s=1 v=1.0 1000000000\nm,s=2 v=2i 2000000000\n# end\n");
    assert_eq!(export("&tag.s=2"), "m,s=2 v=2i 2000000000\n# end\n");
    assert_eq!(export("&measurement=none"), "# end\n");
    // The cursor of the second reading: its time and its key in base64.
    assert_eq!(export("&cursor=77359400.bSxzPTI"), "m,s=2 v=2i 2000000000\n# end\n");
    get(&server.url("/api/v1/export?db=d&cursor=x")).expect(400);
}
