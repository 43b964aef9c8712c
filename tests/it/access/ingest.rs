//! Secrets in the paths of webhooks: the little that they allow, and the places where they are never shown.

use crate::support::prelude::*;

use super::{create, start_with_auth, token_command, with};

/// A webhook that writes plain values.
const SECRETS: &str = "/api/v1/mappings/plain/secrets?db=plant";
const TOPIC: &str = "topic=home/lab/temp";

/// Creates the secret `webhook` of the mapping `plain`. Returns its text and its path.
fn create_secret(server: &Server, owner: &str) -> (String, String) {
    let made = with(owner, "POST", &server.url(SECRETS), r#"{"name":"webhook"}"#).expect(201).json();
    let text = |key: &str| made[key].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    assert_eq!(made["scopes"]["ingest"], json!({"mapping": "plain", "database": "plant"}));
    assert_eq!(text("path"), format!("/api/v1/ingest/plain/{}", text("token")));
    (text("token"), text("path"))
}

fn post_message(server: &Server, path: &str, parameters: &str) -> Answer {
    http::post(&server.url(&format!("{path}?{parameters}")), "21.5", &[])
}

#[test]
fn a_path_secret_writes_through_one_mapping_and_does_nothing_else() {
    let (server, admin) = start_with_auth("");
    let owner = create(&server, &["--name", "owner", "--admin", "plant"]);
    let stranger = create(&server, &["--name", "stranger", "--admin", "other", "--write", "plant"]);
    with(&stranger, "POST", &server.url(SECRETS), r#"{"name":"webhook"}"#).expect(403);
    let (secret, path) = create_secret(&server, &owner);
    assert_eq!(post_message(&server, &path, TOPIC).expect(200).json()["accepted"], 1);
    let latest = with(&admin, "GET", &server.url("/api/v1/latest?db=plant&measurement=home"), "").expect(200).json();
    assert_eq!(latest["series"][0]["readings"][0]["temp"], 21.5, "{latest}");
    // Only this mapping and this database, not even one of its policies.
    let other = post_message(&server, &path.replace("plain", "zigbee2mqtt"), TOPIC).expect(403);
    assert!(other.text().contains("webhook may not write through this mapping"), "{}", other.text());
    for parameters in ["db=other&topic=home/lab/temp", "rp=week&topic=home/lab/temp"] {
        post_message(&server, &path, parameters).expect(403);
    }
    // The names of tokens are not reused by administrators of one database, and each name has one secret.
    for name in ["webhook", "stranger"] {
        with(&owner, "POST", &server.url(SECRETS), &json!({ "name": name }).to_string()).expect(409);
    }
    // In a header, it allows the same.
    with(&secret, "POST", &server.url(&format!("/api/v1/ingest/plain?{TOPIC}")), "22").expect(200);
    let described = server.fetch("/openapi.json");
    for (path, operations) in described["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let is_public = operation["security"].is_null();
            if is_public || path.starts_with("/api/v1/ingest/") {
                continue;
            }
            let url = server.url(&format!("{}?db=plant", path.replace(['{', '}'], "")));
            with(&secret, &method.to_uppercase(), &url, "").expect(403);
        }
    }
    // A path is no place for other tokens.
    let refused = post_message(&server, &format!("/api/v1/ingest/plain/{owner}"), TOPIC).expect(403);
    assert!(refused.text().contains("in a header"), "{}", refused.text());
}

/// Regression: an administrator with a quota made a secret without one, which also outlived its creator.
#[test]
fn a_path_secret_has_the_quota_and_the_end_of_its_creator() {
    let (server, _) = start_with_auth("");
    let flags = ["--name", "owner", "--admin", "plant", "--rate", "7/s", "--expires", "1h"];
    let owner = create(&server, &flags);
    let made = with(&owner, "POST", &server.url(SECRETS), r#"{"name":"webhook","expires_in":"9d"}"#).expect(201).json();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let files = fs::read_dir(server.data_dir()).unwrap().map(|entry| entry.unwrap().path()).filter(is_log);
    let audited: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let record = audited.lines().find(|line| line.contains("\"name\":\"webhook\"")).unwrap();
    assert!(record.contains("\"readings_per_second\":7"), "{record}");
    assert!(made["expires"].is_string(), "{made}");
    let listed = with(&owner, "GET", &server.url("/api/v1/mappings?db=plant"), "").expect(200).json();
    assert!(!listed.to_string().contains("\"expires\":null"), "{listed}");
}

#[test]
fn a_wrong_path_secret_is_refused_as_a_wrong_token() {
    let (server, _) = start_with_auth("");
    let owner = create(&server, &["--name", "owner", "--admin", "plant"]);
    let (secret, path) = create_secret(&server, &owner);
    let flipped = secret[..secret.len() - 1].to_owned() + if secret.ends_with('0') { "1" } else { "0" };
    let unknown = secret.replacen(&secret[3..15], "000000000000", 1);
    for wrong in [&*flipped, &*unknown, "secret", "hg_", "%68g_1"] {
        let in_path = post_message(&server, &format!("/api/v1/ingest/plain/{wrong}"), TOPIC).expect(401);
        let in_header = with(wrong, "POST", &server.url("/api/v1/ingest/plain"), "21.5").expect(401);
        assert_eq!(in_path.text(), in_header.text());
        assert_eq!(in_path.header("www-authenticate"), in_header.header("www-authenticate"));
    }
    let listed = with(&owner, "GET", &server.url("/api/v1/mappings?db=plant"), "").expect(200);
    assert!(!listed.text().contains(&secret));
    let listed = listed.json();
    let mapping = listed["mappings"].as_array().unwrap().iter().find(|mapping| mapping["name"] == "plain").unwrap();
    assert_eq!((&mapping["secrets"][0]["name"], &mapping["secrets"][0]["state"]), (&json!("webhook"), &json!("valid")));
    // Only by its own mapping.
    let one = |mapping: &str| server.url(&format!("/api/v1/mappings/{mapping}/secrets/webhook?db=plant"));
    with(&owner, "DELETE", &one("chirpstack"), "").expect(409);
    assert_eq!(with(&owner, "DELETE", &one("plain"), "").expect(200).json()["state"], "revoked");
    post_message(&server, &path, TOPIC).expect(401);
    // The name can be used again.
    create_secret(&server, &owner);
}

#[test]
fn a_command_creates_a_path_secret() {
    let (server, _) = start_with_auth("");
    let words = ["add", "--name", "hook", "--ingest", "plain", "--db", "plant"];
    let added = token_command(&server.data_dir(), &words).expect_success();
    let path = format!("/api/v1/ingest/plain/{}", added.stdout.trim());
    wait_until("the secret is valid", || post_message(&server, &path, TOPIC).status == 200);
    let listed = token_command(&server.data_dir(), &["list"]).expect_success();
    assert!(listed.stdout.contains("ingest plain into plant"), "{}", listed.stdout);
    for more in [&["--write", "plant"][..], &["--admin", "*"]] {
        let refused = token_command(&server.data_dir(), &[&words[..], more].concat());
        assert!(refused.stderr.contains("cannot be used with"), "{}", refused.stderr);
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Sends a request with a path secret to each place that could show it, and looks for it in all that the service writes.
#[test]
fn a_path_secret_is_never_shown() {
    let (server, admin) = start_with_auth("[telemetry]\nlog_level = \"trace\"\n");
    let owner = create(&server, &["--name", "owner", "--admin", "plant"]);
    let (secret, path) = create_secret(&server, &owner);
    let (_, hidden) = secret.rsplit_once('_').unwrap();
    let mut shown = Vec::new();
    post_message(&server, &path, TOPIC).expect(200);
    // Error answers: another method, a longer path, a bad message and parameter, another database, a wrong body.
    for (method, path, body) in [
        ("GET", path.clone(), ""),
        ("PUT", path.clone(), ""),
        ("POST", format!("{path}/x"), ""),
        ("POST", format!("{path}//"), ""),
        ("POST", format!("{path}?topic={secret}"), "{"),
        ("POST", format!("{path}?what={secret}"), "1"),
        ("POST", format!("{path}?db=other"), "1"),
        ("POST", path.replace("plain", "none"), "1"),
    ] {
        let answer = request(method, &server.url(&path), body.as_bytes(), &[]).unwrap();
        assert!(answer.status >= 400, "{method} {path}: {}", answer.status);
        shown.push((format!("{method} {path}"), answer.text().to_owned()));
    }
    // A slow request.
    let mut slow = TcpStream::connect(server.address()).unwrap();
    let head =
        format!("POST {path}?{TOPIC} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n2");
    slow.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    slow.write_all(b"2").unwrap();
    wait_until("the slow request is logged", || server.stderr().contains("slow request"));
    for path in ["/metrics", "/api/v1/rejections?db=plant", "/api/v1/mappings?db=plant", "/api/v1/tokens"] {
        shown.push((path.to_owned(), with(&admin, "GET", &server.url(path), "").expect(200).text().to_owned()));
    }
    shown.push(("stderr".to_owned(), server.stderr()));
    shown.push(("stdout".to_owned(), server.stdout()));
    let data_dir = server.data_dir();
    for file in files(&data_dir) {
        shown.push((file.display().to_string(), String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned()));
    }
    for (place, text) in &shown {
        assert!(!text.contains(hidden), "{place} shows the secret");
    }
    // The audit trail names it instead.
    let audit = shown.iter().filter(|(place, _)| place.ends_with("audit.log") || place.ends_with("admin.log"));
    let audit: String = audit.map(|(_, text)| &**text).collect();
    for expected in [r#""name":"webhook""#, r#""by":"owner""#, r#""ingest":{"mapping":"plain","database":"plant"}"#] {
        assert!(audit.contains(expected), "{expected} is not in {audit}");
    }
    assert!(audit.contains(r#""route":"/api/v1/ingest/{key}/{secret}","token":"webhook""#), "{audit}");
}
