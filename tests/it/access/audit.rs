//! Attacks on the audit log: other clients can neither displace administrators' records nor reach a terminal.

use crate::support::prelude::*;

use super::{create, with};

/// Requests sent before their answers are read.
const PIPELINED: usize = 50;

/// Sends a statement `times` times over one connection and expects this status each time.
fn flood(server: &Server, token: &str, statement: &str, times: usize, status: u16) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!(
        "POST /query?q={statement} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Token {token}\r\nContent-Length: 0\r\n\r\n"
    );
    let wanted = format!("HTTP/1.1 {status} ");
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..times / PIPELINED {
        stream.write_all(request.repeat(PIPELINED).as_bytes()).unwrap();
        let mut seen = Vec::new();
        let mut count = 0;
        while count < PIPELINED {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the connection was closed after {count} answers");
            seen.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&seen);
            count = text.matches(&wanted).count();
            assert_eq!(count, text.matches("HTTP/1.1 ").count(), "{text}");
        }
    }
}

fn audit_command(server: &Server, command: &str) -> CommandOutput {
    hourglass(&["audit", command, "--data-dir", path(&server.data_dir())])
}

fn small_trail() -> Server {
    let launch = Launch::embedded().env("HOURGLASS_AUTH_FIRST_TOKEN", "true");
    launch.env("HOURGLASS_AUDIT_MAX_BYTES", "256KiB").start()
}

/// Returns the audit files in the data folder as (name, text).
fn trail(server: &Server) -> Vec<(String, String)> {
    let entries = fs::read_dir(server.data_dir()).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    let logs = named.filter(|(name, path)| name.contains(".log") && path.is_file());
    logs.map(|(name, path)| (name, fs::read_to_string(path).unwrap())).collect()
}

/// Regression: 60,000 refused `DROP DATABASE` with C1 bytes rotated the audit log away and reached terminals.
#[test]
fn a_read_token_deletes_nothing() {
    const TIMES: usize = 2_000;
    let server = small_trail();
    let reader = create(&server, &["--name", "reader", "--read", "a"]);
    let started = Instant::now();
    // U+009B, which starts a terminal control sequence.
    let statement = format!("DROP+DATABASE+%22{}%22", "%C2%9B2J".repeat(20));
    flood(&server, &reader, &statement, TIMES, 403);
    let took = started.elapsed();
    let files = trail(&server);
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    let _ = writeln!(std::io::stderr(), "audit: {TIMES} refused in {took:.1?}, the trail has {bytes} bytes");
    // At most 20 records a minute of at most 300 bytes each, and the two token records.
    let records_max = 20 * (usize::try_from(took.as_secs()).unwrap() / 60 + 2) + 20;
    assert!(bytes < records_max * 300, "{bytes} bytes after {took:?}");
    for (name, text) in &files {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{name} has control characters");
    }
    let printed = audit_command(&server, "list").stdout;
    for name in ["first", "reader"] {
        assert!(printed.contains(&format!("\"action\":\"created\",\"name\":\"{name}\"")), "{printed}");
    }
    audit_command(&server, "verify").expect_success();
}

/// Requests without a known token use neither memory nor audit space.
#[test]
fn unknown_tokens_fill_neither_memory_nor_the_audit_log() {
    const TIMES: usize = 5_000;
    let server = small_trail();
    let before = resident_bytes(server.pid());
    flood(&server, &format!("hg_0123456789ab_{}", "0f".repeat(32)), "SHOW+DATABASES", TIMES, 401);
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 12 << 20, "grown by {grown} bytes");
    let trail: usize = trail(&server).iter().map(|(_, text)| text.len()).sum();
    assert!(trail < 256 << 10, "{trail} bytes of {TIMES} refusals");
    assert!(!server.stderr().contains("panicked"));
}

/// `CREATE DATABASE` of an existing database succeeds, so write tokens can cause many records, in their own files.
#[test]
fn a_write_token_overwrites_no_token() {
    let server = small_trail();
    let writer = create(&server, &["--name", "writer", "--write", "a"]);
    flood(&server, &writer, "CREATE+DATABASE+a", 2_000, 200);
    let files = trail(&server);
    assert!(files.iter().any(|(name, _)| name == "audit.log.3"), "2,000 changes do not fit into 192 KiB");
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes < 256 << 10, "{bytes} bytes");
    let printed = audit_command(&server, "list").stdout;
    assert!(printed.contains("\"name\":\"first\"") && printed.contains("\"name\":\"writer\""), "{printed}");
    audit_command(&server, "verify").expect_success();
}

/// Regression: a line could be removed from the audit log unnoticed, and records lacked the caller and the rights.
#[test]
fn a_removed_audit_record_is_detected() {
    let server = small_trail();
    for name in ["one", "two", "three"] {
        create(&server, &["--name", name, "--read", "climate_*", "--rate", "7/s"]);
    }
    let file = server.data_dir().join("admin.log");
    let text = fs::read_to_string(&file).unwrap();
    let record: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(record["scopes"]["read"][0], "climate_*", "{record}");
    assert_eq!(record["quota"]["readings_per_second"], 7, "{record}");
    assert_eq!(record["user"], run_program(Command::new("id").arg("-un")).stdout.trim(), "{record}");
    let without: String = text.split_inclusive('\n').filter(|line| !line.contains("\"two\"")).collect();
    assert_eq!(without.lines().count(), 3);
    fs::write(&file, without).unwrap();
    let checked = audit_command(&server, "verify");
    let printed = checked.stdout;
    assert_eq!(checked.status, Some(1), "{printed}");
    assert!(printed.contains("admin.log, line 3: the records 3 to 3 are missing before it"), "{printed}");
}

/// Regression: an administrator of one database rotated away what administrators of the service had done, with five
/// settings of 20 MiB of spaces or 7,700 small ones, and the check found nothing.
#[test]
fn a_database_administrator_displaces_no_record_of_the_service() {
    let server = small_trail();
    let first = server.first_token().unwrap();
    let plant = create(&server, &["--name", "plant", "--admin", "plant"]);
    with(&plant, "POST", &server.url("/write?db=plant"), "m v=1").expect(204);
    let settings = |token: &str, spaces: usize| {
        let body = format!("{{\"readings\":\"30d\"{}}}", " ".repeat(spaces));
        with(token, "PATCH", &server.url("/api/v1/databases/plant"), &body).status
    };
    assert_eq!(settings(&first, 0), 200);
    assert_eq!(settings(&plant, 1 << 20), 413);
    let longest = 190 << 10;
    (0..20).for_each(|_| assert_eq!(settings(&plant, longest), 200));
    flood(&server, &plant, "CREATE+DATABASE+plant", 2_000, 200);

    let files = trail(&server);
    assert!(files.iter().any(|(name, _)| name == "audit.log.3"), "the log of other callers is full");
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes < 256 << 10, "{bytes} bytes");
    assert!(files.iter().flat_map(|(_, text)| text.lines()).all(|line| line.len() < 2_200));
    let (_, service) = files.iter().find(|(name, _)| name == "admin.log").unwrap();
    assert_eq!(service.lines().count(), 3, "{service}");
    for part in ["\"name\":\"first\"", "\"name\":\"plant\"", "SETTINGS {"] {
        assert!(service.contains(part), "{service}");
    }
    // The check says what rotations removed, and that nobody else did.
    let checked = audit_command(&server, "verify").expect_success().stdout;
    assert!(checked.contains("audit.log: the records 1 to "), "{checked}");
    assert!(checked.contains("admin.log: 3 records"), "{checked}");
    fs::remove_file(server.data_dir().join("audit.log.2")).unwrap();
    let checked = audit_command(&server, "verify");
    assert!(checked.status == Some(1) && checked.stdout.contains("are missing"), "{}", checked.stdout);
}
