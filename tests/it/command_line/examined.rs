//! `doctor` finds the problems of `serve` without starting it.

use super::{EXIT_CONFIG, run};
use crate::support::prelude::*;

#[test]
fn a_valid_configuration_is_probed_without_traces() {
    let folder = Folder::new("examined");
    let data = folder.file("data");
    let store = mongod().uri(&fresh_database_name());
    let flags = ["--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap(), "--store"];
    for (store, more) in [("embedded", &[][..]), (&store, &["clock offset", "MongoDB  "])] {
        let flags = [&flags[..], &[store]].concat();
        let (code, printed, complaints) = run(&[&["doctor"][..], &flags].concat(), &[]);
        assert_eq!((code, printed.lines().last()), (0, Some("nothing is wrong: serve would start")), "{complaints}");
        for figure in ["server.data_dir free", "server.data_dir fsync", "open files"].iter().chain(more) {
            assert!(printed.lines().any(|line| line.starts_with(figure)), "{figure}: {printed}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A mistake in a config file and variables, with the key and a part of the expected message.
struct Mistake {
    config: String,
    variables: Vec<(&'static str, String)>,
    /// True if it shows without network, ports and disk.
    is_plain: bool,
    message: &'static [&'static str],
}

fn plain(config: &str, message: &'static [&'static str]) -> Mistake {
    Mistake { config: config.to_owned(), variables: Vec::new(), is_plain: true, message }
}

fn probed(config: impl Into<String>, message: &'static [&'static str]) -> Mistake {
    Mistake { config: config.into(), variables: Vec::new(), is_plain: false, message }
}

fn variable(name: &'static str, message: &'static [&'static str]) -> Mistake {
    Mistake { config: String::new(), variables: vec![(name, "x".to_owned())], is_plain: true, message }
}

/// Mistakes in the configuration itself.
fn plain_mistakes(folder: &Folder) -> Vec<Mistake> {
    let empty = folder.file("empty");
    std::fs::write(&empty, "\n").unwrap();
    let empty = shown(&empty);
    vec![
        plain(
            "[tls]\nlisten = \"127.0.0.1:9\"\ncert_file = \"c\"\nkey_file = \"k\"\n[tcp]\nlisten = \":9\"\n",
            &["tcp.listen", "the port is that of tls.listen"],
        ),
        plain("[cors]\norigins = \"https://Dash.example.org/\"\n", &["cors.origins", "not a scheme and a host"]),
        plain("[tls]\nlisten = \":0\"\nkey_file = \"k\"\n", &["tls.listen needs tls.cert_file"]),
        plain("[tls]\nlisten = \":0\"\ncert_file = \"c\"\n", &["tls.listen needs tls.key_file"]),
        plain("[tcp]\ntls = true\n", &["tcp.tls needs tls.cert_file"]),
        plain("[tls]\nclient_auth = \"required\"\n", &["tls.client_auth needs tls.client_ca_file"]),
        plain("[tls]\nclient_crl_file = \"l\"\n", &["tls.client_crl_file needs tls.client_auth"]),
        plain(
            "[ingest]\nbytes_in_flight = \"32MiB\"\n[limits]\nbody_bytes = \"25MiB\"\n",
            &["ingest.bytes_in_flight (half of it is 16MiB) must be at least limits.body_bytes"],
        ),
        plain(
            "[wal]\nbudget_bytes = \"100MiB\"\n",
            &["wal.budget_bytes (half of it is 50MiB) must be at least wal.segment_bytes"],
        ),
        plain("[store]\nuri = \"mongodb://user:p@ss@127.0.0.1:9/d\"\n", &["store.uri", "write %40"]),
        plain("[store]\nuri_file = \"/nowhere/uri\"\n", &["store.uri_file", "cannot be read"]),
        plain(&format!("[store]\nuri_file = {empty}\n"), &["store.uri_file", "empty"]),
        plain(
            &format!("[store]\nuri = \"mongodb://h\"\nuri_file = {empty}\n"),
            &["store.uri and store.uri_file are both set"],
        ),
        plain("[query]\npoints_max = 10\n", &["unknown key query.points_max"]),
        plain("[telemetry]\nlog_level = \"inof\"\n", &["telemetry.log_level"]),
        variable("HOURGLASS_STORE_URL", &["HOURGLASS_STORE_URL", "did you mean HOURGLASS_STORE_URI?"]),
        variable("HOURGLASS_DATA_DIR", &["did you mean HOURGLASS_SERVER_DATA_DIR?"]),
    ]
}

fn file_mistakes(folder: &Folder, data: &str) -> Vec<Mistake> {
    let file = folder.file("a-file");
    let first = folder.file("first");
    std::fs::write(&file, "nothing").unwrap();
    std::fs::write(&first, "my password").unwrap();
    let unreadable = folder.file("unreadable");
    std::fs::create_dir(&unreadable).unwrap();
    std::fs::write(unreadable.join("tokens.json"), "no tokens").unwrap();
    // An expired token.
    let old = folder.file("old");
    let made = run(&["token", "add", "--name", "a", "--read", "*", "--data-dir", old.to_str().unwrap()], &[]);
    assert_eq!(made.0, 0, "{}", made.2);
    let tokens = std::fs::read_to_string(old.join("tokens.json")).unwrap();
    let (before, after) = tokens.split_once("\"created\": ").unwrap();
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    std::fs::write(old.join("tokens.json"), format!("{before}\"created\": 1000{after}")).unwrap();
    let always = "[auth]\nrequired = \"always\"\n";
    let mut mistakes = vec![
        probed(format!("[wal]\ndir = {}\n", shown(&file)), &["wal.dir", "is a file, and a folder is needed"]),
        probed("[wal]\ndir = \"/proc/hourglass-log\"\n", &["wal.dir = /proc/hourglass-log"]),
        probed(
            format!("[server]\ndata_dir = {}\n", shown(&unreadable)),
            &["server.data_dir", "tokens.json cannot be read"],
        ),
        probed(format!("[auth]\nfirst_token_file = {}\n", shown(&first)), &["auth.first_token_file", "is no token"]),
        probed(
            "[auth]\nfirst_token_file = \"/nowhere/first\"\n",
            &["auth.first_token_file", "there is no folder /nowhere"],
        ),
        probed(always, &["tokens are required", "auth.required"]),
        probed(
            format!("{always}max_lifetime = \"1h\"\n[server]\ndata_dir = {}\n", shown(&old)),
            &["auth.max_lifetime"],
        ),
        probed(
            "[limits]\nbody_bytes = \"60MiB\"\n[wal]\nsegment_bytes = \"32MiB\"\n",
            &["limits.body_bytes (60MiB) is more than wal.segment_bytes"],
        ),
        probed("[limits]\nbody_bytes = \"16KiB\"\n", &["limits.line_bytes (64KiB) is more than limits.body_bytes"]),
        probed("[server]\ntrusted_proxies = \"0.0.0.0/0\"\n", &["server.trusted_proxies: 0.0.0.0/0 is every address"]),
        probed("[server]\nhosts = \"*\"\n", &["server.hosts: \"*\" lets pages of any site"]),
        probed(
            "[server]\nconnections = 100\nconnections_per_address = 256\n",
            &["server.connections_per_address (256) is more than server.connections"],
        ),
    ];
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let config = "[server]\ndata_dir = \"/dev/shm/hourglass-examined\"\n[wal]\nbudget_bytes = \"1TiB\"\n";
        mistakes.push(probed(config, &["wal.budget_bytes", "more than the whole disk"]));
    }
    assert!(!data.is_empty());
    mistakes
}

fn network_mistakes() -> Vec<Mistake> {
    let store = |uri: &str| format!("[store]\nuri = {uri:?}\ncommand_timeout = \"2s\"\n");
    let set = mongod().uri(&fresh_database_name());
    let (start, name) = set.split_once("replicaSet=").expect("a replica set");
    let name = name.split('&').next().unwrap_or_default();
    let strange = format!("{start}replicaSet=another-{name}");
    vec![
        probed(
            "[[mqtt]]\nurl = \"mqtt://127.0.0.1:9\"\nclient_id = \"one\"\ntopics = [\"a\"]\nmappings = [\"plain\"]\n\
             database = \"d\"\n",
            &["[[mqtt]] one: 127.0.0.1:9", "refused"],
        ),
        probed("[status]\nlisten = \"192.0.2.1:9\"\n", &["status.listen", "this machine has no such address"]),
        probed(store("mongodb://127.0.0.1:9/d?serverSelectionTimeoutMS=300"), &["store.uri"]),
        probed(store("mongodb://127.0.0.1:9/d?tls=true&tlsCAFile=/nowhere/ca.pem"), &["store.uri"]),
        probed(store(&strange), &["store.uri"]),
    ]
}

fn certificate_mistakes(certificates: &Certificates, others: &Certificates) -> Vec<Mistake> {
    certificates.sign("server", "server", "");
    certificates.sign("other", "other", "");
    let ended = jiff::Timestamp::now().as_second() - 3600;
    certificates.sign_until("expired", "server", "", ended);
    certificates.sign_until("client", "client", "", ended + 90_000);
    others.sign_until("client", "client", "", ended + 90_000);
    let own_list = certificates.list_revoked();
    let other_list = others.list_revoked();
    assert!(own_list != other_list);
    let tls = |certificate: &str, key: &str, more: &str| {
        let certificate = shown(&certificates.file(certificate));
        let key = shown(&certificates.file(key));
        format!("[tls]\nlisten = \"127.0.0.1:0\"\ncert_file = {certificate}\nkey_file = {key}\n{more}")
    };
    let clients = |authority: &Path, more: &str| {
        tls(
            "server.pem",
            "server.key",
            &format!("client_auth = \"required\"\nclient_ca_file = {}\n{more}", shown(authority)),
        )
    };
    let list = |file: &Path| format!("client_crl_file = {}\n", shown(file));
    let authority = certificates.file("ca.pem");
    let key = certificates.file("server.key");
    vec![
        probed(tls("none.pem", "none.key", ""), &["cannot read tls.cert_file"]),
        probed(tls("server.pem", "other.key", ""), &["cannot use tls.cert_file with tls.key_file"]),
        probed(tls("server.key", "server.key", ""), &["tls.cert_file"]),
        probed(tls("server.pem", "server.pem", ""), &["tls.key_file"]),
        probed(tls("expired.pem", "expired.key", ""), &["tls.cert_file: the certificate has expired"]),
        probed(clients(&key, ""), &["tls.client_ca_file"]),
        probed(clients(&authority, &list(&authority)), &["tls.client_crl_file"]),
        probed(clients(&authority, &list(&other_list)), &["tls.client_crl_file", "has no revocation list"]),
    ]
}

/// Regression: `config check` accepted most of these, and `serve` then refused them.
#[test]
fn every_config_mistake_is_reported_by_its_key() {
    let folder = Folder::new("mistakes");
    let data = folder.file("data");
    let data = data.to_str().unwrap();
    let mut mistakes = plain_mistakes(&folder);
    mistakes.extend(file_mistakes(&folder, data));
    mistakes.extend(network_mistakes());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    mistakes.push(probed(format!("[tcp]\nlisten = \"{address}\"\n"), &["tcp.listen", "is it in use"]));
    let certificates = Certificates::new().zip(Certificates::named("another signer"));
    if let Some((own, others)) = &certificates {
        mistakes.extend(certificate_mistakes(own, others));
    }
    let distinct: std::collections::BTreeSet<&[&str]> = mistakes.iter().map(|mistake| mistake.message).collect();
    assert!(distinct.len() >= 30, "{} mistakes", distinct.len());
    let file = folder.file("hourglass.toml");
    for Mistake { config, variables, is_plain, message } in &mistakes {
        // Sections of the table come first, so the listener is set in the environment.
        std::fs::write(&file, config).unwrap();
        let mut environment = vec![("HOURGLASS_SERVER_LISTEN", "127.0.0.1:0")];
        environment.extend(variables.iter().map(|(name, value)| (*name, value.as_str())));
        let flags: &[&str] = if config.contains("data_dir") { &[] } else { &["--data-dir", data] };
        let flags = [&["--config", file.to_str().unwrap()], flags].concat();
        let (code, _, complaints) = run(&[&["config", "check"], &flags[..]].concat(), &environment);
        assert_eq!(code, if *is_plain { EXIT_CONFIG } else { 0 }, "{message:?}: {complaints}");
        let (code, _, complaints) = run(&[&["doctor"], &flags[..]].concat(), &environment);
        assert_eq!(code, EXIT_CONFIG, "{message:?}: {complaints}");
        let mentions_all = |line: &&str| message.iter().all(|part| line.contains(part));
        assert_eq!(complaints.lines().filter(mentions_all).count(), 1, "{message:?}: {complaints}");
        assert!(!complaints.contains("my password") && !complaints.contains("p@ss"), "{complaints}");
        assert!(!Path::new(data).exists(), "{message:?}: something is left");
    }
    // With the right list, the only problem is that the certificate expires within a week.
    let Some((own, _)) = &certificates else { return };
    let authority = shown(&own.file("ca.pem"));
    let list = shown(&own.file("crl.pem"));
    let more = format!("client_auth = \"required\"\nclient_ca_file = {authority}\nclient_crl_file = {list}\n");
    std::fs::write(&file, own.config(&more)).unwrap();
    let flags = ["doctor", "--listen", "127.0.0.1:0", "--data-dir", data, "--config"];
    let (code, _, complaints) = run(&[&flags[..], &[file.to_str().unwrap()]].concat(), &[]);
    let first = complaints.lines().next().unwrap_or_default();
    assert!(first.contains("tls.cert_file: the certificate expires soon"), "{complaints}");
    assert!(code == EXIT_CONFIG && complaints.contains("1 problem;"), "{complaints}");
}

#[test]
fn locked_and_unreadable_files_are_reported() {
    let folder = Folder::new("held");
    let data = folder.file("data");
    let log = data.join("log");
    std::fs::create_dir_all(&log).unwrap();
    let lock = std::fs::File::create(log.join("lock")).unwrap();
    let flags = ["doctor", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    assert_eq!(run(&flags, &[]).0, 0, "it is not locked");
    lock.lock().unwrap();
    let (code, _, complaints) = run(&flags, &[]);
    assert!(
        code == EXIT_CONFIG
            && complaints.contains("server.data_dir")
            && complaints.contains("in use by another process"),
        "{complaints}"
    );
    lock.unlock().unwrap();
    // Fewer descriptors than connections.
    let mut few = Command::new("prlimit");
    let hourglass = program();
    few.arg("--nofile=200:200").arg(hourglass.get_program()).args(flags);
    let complaints = few.output().expect("prlimit, of util-linux");
    let text = String::from_utf8(complaints.stderr).unwrap();
    assert!(complaints.status.code() == Some(EXIT_CONFIG) && text.contains("server.connections needs"), "{text}");
}
