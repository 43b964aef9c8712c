//! `hourglass token`, its file, collection and cache, and the audit log.

use crate::support::prelude::*;

use super::{await_status, create, start_with_auth, token_command, with};

#[test]
fn tokens_are_added_and_revoked_without_a_restart() {
    let server = Server::start("embedded");
    post(&server.url("/write?db=a"), "m v=1", &[]).expect(204);
    let one = create(&server, &["--name", "one", "--admin", "*"]);
    // From now on every request needs a token.
    await_status(&server, "", 401);
    await_status(&server, &one, 200);
    let duplicate = token_command(&server.data_dir(), &["add", "--name", "one", "--read", "a"]);
    duplicate.expect_failure("rotate the token");
    let rotated = token_command(&server.data_dir(), &["rotate", "one", "--keep-old", "1h"]);
    let two = rotated.stdout.trim().to_owned();
    assert_ne!(one, two);
    await_status(&server, &two, 200);
    await_status(&server, &one, 200);
    let rotated = token_command(&server.data_dir(), &["rotate", "one"]);
    let three = rotated.stdout.trim().to_owned();
    await_status(&server, &three, 200);
    await_status(&server, &two, 401);
    let listed = token_command(&server.data_dir(), &["list"]).stdout;
    assert!(listed.starts_with("one ") && listed.contains("valid") && listed.contains("admin *"), "{listed}");
    assert!(listed.contains(&three[..15]) && !listed.contains(&three[16..]), "{listed}");
    token_command(&server.data_dir(), &["revoke", "one"]).expect_success();
    await_status(&server, &three, 401);
    // Revoking the last token does not open the service.
    await_status(&server, "", 401);
    assert_ne!(token_command(&server.data_dir(), &["revoke", "one"]).status, Some(0), "it is revoked already");

    let file = server.data_dir().join("tokens.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let kept = std::fs::read_to_string(&file).unwrap();
    for token in [&one, &two, &three] {
        assert!(!kept.contains(&token[16..]), "a secret is kept");
    }
    let audit = std::fs::read_to_string(server.data_dir().join("admin.log")).unwrap();
    let actions: Vec<String> = audit
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["event"] == "token")
        .map(|line| line["action"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(actions, ["created", "rotated", "rotated", "revoked"]);
}

/// Regression: the first token was printed to stdout, and so ended up in logs.
#[test]
fn the_first_token_is_written_to_a_file_or_read_from_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first");
    let shown = path.to_str().unwrap();
    let launch = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN_FILE", shown);
    // The container image sets this, too.
    let mut server = launch.clone().env("HOURGLASS_AUTH_FIRST_TOKEN", "true").start();
    let made = std::fs::read_to_string(&path).unwrap().trim().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let output = server.stdout() + &server.stderr();
    assert!(!output.contains(&made[16..]) && output.contains(shown), "{output}");
    await_status(&server, "", 401);
    await_status(&server, &made, 200);
    let audit = std::fs::read_to_string(server.data_dir().join("admin.log")).unwrap();
    assert!(audit.contains("\"first\"") && !audit.contains(&made[16..]), "{audit}");
    // The file is ignored once a token exists.
    server.stop();
    std::fs::remove_file(&path).unwrap();
    server.restart_as(launch.clone());
    assert!(!path.exists());
    await_status(&server, &made, 200);

    // A read-only file, as in a mounted Secret.
    let given = format!("hg_0123456789ab_{}", "0f".repeat(32));
    std::fs::write(&path, &given).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o440)).unwrap();
    for store in stores() {
        let server = Launch::with_store(store).env("HOURGLASS_AUTH_FIRST_TOKEN_FILE", shown).start();
        await_status(&server, "", 401);
        await_status(&server, &given, 200);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), given);
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    for (content, reason) in [(Some("my password"), "is no token"), (None, "its folder must exist")] {
        let path = content.map_or_else(|| folder.path().join("none/first"), |_| path.clone());
        content.iter().for_each(|content| std::fs::write(&path, content).unwrap());
        let refused = launch.clone().env("HOURGLASS_AUTH_FIRST_TOKEN_FILE", path.display()).run_to_end();
        assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""));
        let last = refused.stderr.lines().last().unwrap_or_default();
        assert!(last.contains("auth.first_token_file") && last.contains(reason), "{last}");
        assert!(!last.contains("my password"), "{last}");
    }
}

/// Regression: the list did not show the last use, so nobody dared to revoke old tokens. All instances share the time.
#[test]
fn the_list_shows_when_a_token_was_last_used() {
    for store in stores() {
        let mut server = Server::start(&store);
        let data = server.data_dir();
        let token = |arguments: &[&str]| {
            let flags = ["--store", &store, "--data-dir", data.to_str().unwrap()];
            run_program(program().arg("token").args(arguments).args(flags)).expect_success().stdout.trim().to_owned()
        };
        let column = |name: &str| {
            let listed = token(&["list"]);
            let line =
                listed.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{listed}")).to_owned();
            let (_, used) = line.split_once("used").unwrap_or_else(|| panic!("no column: {line}"));
            if line.contains("never used") { None } else { used.split_whitespace().next().map(str::to_owned) }
        };
        let (one, _) =
            (token(&["add", "--name", "one", "--admin", "*"]), token(&["add", "--name", "two", "--read", "*"]));
        assert_eq!((column("one"), column("two")), (None, None));
        // Until the service has read the tokens, it lets everybody in.
        await_status(&server, "", 401);
        await_status(&server, &one, 200);
        let used = poll(TIMEOUT, || column("one")).expect("its use is stored");
        let seconds = used.parse::<jiff::Timestamp>().unwrap().as_second();
        assert!((hourglass::clock::now_seconds() - seconds).abs() < 120, "{used}");
        assert_eq!(column("two"), None);
        // The last use survives a rotation and a restart.
        let rotated = token(&["rotate", "one"]);
        assert!(column("one").is_some());
        server.stop();
        server.restart_as(Launch::with_store(&store));
        assert!(column("one").is_some());
        await_status(&server, &rotated, 200);
        let metrics = with(&rotated, "GET", &server.url("/metrics"), "").expect(200).text().to_owned();
        for sample in [
            "hourglass_access_tokens_valid 2",
            "hourglass_access_token_expiry_seconds inf",
            "hourglass_access_token_age_seconds ",
            "hourglass_access_token_unused_seconds ",
        ] {
            assert!(metrics.to_lowercase().contains(sample), "{sample}: {metrics}");
        }
    }
}

/// Tokens have an expiry when the configuration sets a maximum lifetime.
#[test]
fn tokens_never_outlive_the_configured_maximum() {
    let launch = Launch::embedded().env("HOURGLASS_AUTH_MAX_LIFETIME", "30d").env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let server = launch.start();
    let first = server.first_token().unwrap();
    let data = server.data_dir();
    let create = |name: &str, more: &[&str]| {
        let mut command = program();
        command.args(["token", "add", "--read", "*", "--name", name, "--data-dir"]).arg(&data).args(more);
        let output = run_program(command.env("HOURGLASS_AUTH_MAX_LIFETIME", "30d"));
        (output.status, output.stderr)
    };
    for more in [&[][..], &["--expires", "31d"]] {
        let (code, output) = create("a", more);
        assert!(code == Some(1) && output.contains("auth.max_lifetime") && output.contains("--expires"), "{output}");
    }
    assert_eq!(create("a", &["--expires", "30d"]).0, Some(0));
    let metrics = with(&first, "GET", &server.url("/metrics"), "").expect(200);
    let remaining = sample(&metrics, "hourglass_access_token_expiry_seconds");
    let month = 30.0 * 86400.0;
    assert!(remaining <= month && remaining > month - 600.0, "the first token ends, too: {remaining}");
}

#[test]
fn invalid_arguments_are_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["add", "--name", "x"], "has no rights"),
        (&["add", "--name", "a b", "--read", "a"], "letters, digits"),
        (&["add", "--name", "x", "--read", ""], "name of a database"),
        (&["add", "--name", "x", "--admin", "*", "--sensor-tag", "site=lab"], "exclude each other"),
        (&["add", "--name", "x", "--read", "a", "--sensor-tag", "site"], "KEY=VALUE"),
        (&["add", "--name", "x", "--read", "a", "--expires", "90"], "90d"),
        (&["add", "--name", "x", "--read", "a", "--rate", "5/h"], "5000/s"),
        (&["revoke", "nobody"], "no token named"),
        (&["rotate", "nobody"], "no token named"),
    ];
    for (words, output) in cases {
        let refused = token_command(folder.path(), words);
        let is_refused = refused.status != Some(0) && refused.stdout.is_empty();
        assert!(is_refused && refused.stderr.contains(output), "{words:?}: {refused:?}");
    }
    std::fs::write(folder.path().join("tokens.json"), "{\"format\": 1, \"tokens\": [").unwrap();
    let refused = token_command(folder.path(), &["list"]);
    assert!(refused.status != Some(0) && refused.stderr.contains("cannot be read"), "{refused:?}");
}

/// A service on an open address needs a token, even if the token file is damaged.
#[test]
fn a_damaged_token_file_keeps_the_loaded_tokens() {
    let (mut server, admin) = start_with_auth("");
    std::fs::write(server.data_dir().join("tokens.json"), "nothing of the kind").unwrap();
    wait_until("it is warned of", || {
        server.stderr().contains("reading the tokens failed; the last known tokens apply")
    });
    with(&admin, "GET", &server.url("/api/v1/measurements"), "").expect(200);
    get(&server.url("/api/v1/measurements")).expect(401);
    server.stop();
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let refused = hourglass(&["serve", "--listen", listen, "--data-dir", path(&server.data_dir())]);
        assert!(refused.status != Some(0) && refused.stderr.contains("tokens.json"), "{refused:?}");
    }
}

/// Regression: a first token in an unreadable file left the service open.
#[test]
fn an_unreadable_token_record_grants_nothing() {
    let server = Server::start("embedded");
    get(&server.url("/api/v1/measurements")).expect(200);
    let file = server.data_dir().join("tokens.json");
    std::fs::write(&file, "nothing of the kind").unwrap();
    let status = || get(&server.url("/api/v1/measurements")).status;
    wait_until("it is shut", || status() == 503);
    // A missing file grants nothing, either.
    std::fs::remove_file(&file).unwrap();
    wait_until("it stays shut", || status() == 401);
}

fn mongo_command(uri: &str, folder: &Path, words: &[&str]) -> CommandOutput {
    run_program(program().arg("token").args(words).args(["--store", uri, "--data-dir"]).arg(folder)).expect_success()
}

#[test]
fn instances_on_one_mongodb_share_tokens() {
    let uri = mongod().uri(&fresh_database_name());
    let a = Server::start(&uri);
    let b = Server::start(&uri);
    let made = mongo_command(&uri, &a.data_dir(), &["add", "--name", "shared", "--read", "*", "--write", "*"]);
    let token = made.stdout.trim().to_owned();
    for server in [&a, &b] {
        await_status(server, "", 401);
        await_status(server, &token, 200);
    }
    mongo_command(&uri, &b.data_dir(), &["revoke", "shared"]);
    for server in [&a, &b] {
        await_status(server, &token, 401);
    }
}

#[test]
fn tokens_work_when_mongodb_is_down_at_startup() {
    let mut mongod = Mongod::start();
    let uri = mongod.uri(&fresh_database_name());
    let launch = Launch::with_store(&uri).env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let mut server = launch.clone().start();
    let token = server.first_token().expect("a token in the banner");
    with(&token, "POST", &server.url("/write?db=a"), "m v=1 1").expect(204);
    mongod.kill();
    server.kill();
    server.restart_as(launch);
    assert_eq!(server.first_token(), None, "the first token is made once");
    with(&token, "POST", &server.url("/write?db=a"), "m v=2 2").expect(204);
    request("POST", &server.url("/write?db=a"), b"m v=3 3", &[]).unwrap().expect(401);
    mongod.restart();
}

/// Regression: with MongoDB down and no cached tokens, a service on loopback accepted writes without a token.
#[test]
fn tokens_grant_nothing_until_they_are_loaded() {
    let mut mongod = Mongod::start();
    let uri = mongod.uri(&fresh_database_name());
    let launch = Launch::with_store(&uri).env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    let mut server = launch.start();
    let token = server.first_token().expect("a token in the banner");
    mongod.kill();
    server.kill();
    std::fs::remove_file(server.data_dir().join("tokens.cache.json")).unwrap();
    // Nothing in its settings says that tokens exist.
    server.restart_as(Launch::with_store(&uri));
    for sent in [&[][..], &[("Authorization", format!("Token {token}"))][..]] {
        let headers: Vec<(&str, &str)> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for (method, path, body) in [("POST", "/write?db=a", "m v=1 1"), ("GET", "/api/v1/measurements", "")] {
            let refused = request(method, &server.url(path), body.as_bytes(), &headers).unwrap().expect(503);
            assert!(refused.header("retry-after").is_some() && refused.text().contains("tokens"), "{}", refused.text());
        }
    }
    get(&server.url("/ping")).expect(204);
    mongod.restart();
    await_status(&server, &token, 200);
    request("POST", &server.url("/write?db=a"), b"m v=1 1", &[]).unwrap().expect(401);
}

#[test]
fn refusals_and_deletions_are_audited() {
    let (server, admin) = start_with_auth("");
    for _ in 0..200 {
        get(&server.url("/api/v1/measurements")).expect(401);
    }
    with(&admin, "POST", &server.url("/write?db=a"), "m v=1 1").expect(204);
    with(&admin, "POST", &server.url("/query?db=a&q=DELETE+FROM+m"), "").expect(200);
    with(&admin, "POST", &server.url("/query?q=DROP+DATABASE+%22a%7B%E2%80%AE%22"), "").expect(200);
    let trail = |name: &str| std::fs::read_to_string(server.data_dir().join(name)).unwrap();
    let others = trail("audit.log");
    let audit = trail("admin.log");
    let denied = others.lines().filter(|line| line.contains("\"event\":\"denied\"")).count();
    assert!((1..150).contains(&denied), "{denied} of 201 recorded");
    let records = audit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let changes: Vec<_> = records.filter(|record| record["event"] == "change").collect();
    let audit_records: Vec<_> =
        changes.iter().map(|line| (line["by"].as_str().unwrap(), line["database"].as_str().unwrap())).collect();
    assert_eq!(audit_records, [("first", "a"), ("first", "a{\u{202e}")], "{audit}");
    assert_eq!(changes[0]["outcome"], "done");
    assert!(!audit.contains('\u{202e}'), "{audit}");
    for name in ["admin.log", "audit.log"] {
        assert!(!trail(name).contains(&admin[16..]), "the secret is in {name}");
    }
}
