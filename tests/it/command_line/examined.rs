//! `check-config --probe` and `doctor` find what `serve` would meet, and start nothing.

use std::net::TcpListener;

use super::{EXIT_CONFIG, run};
use crate::support::certificates::{Certificates, shown};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::process::Folder;

/// `check-config` said of each of these that it is valid, and `serve` then refused: a token missing for 0.0.0.0, a
/// certificate missing, a key that does not fit, one port three times, an unwritable folder, a file as folder,
/// `user:p@ss@` in the URI, a port that is taken. The first two of the table need no network, port or disk.
#[test]
fn what_would_end_a_start_is_found_without_starting() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "server", "");
    certificates.sign("other", "other", "");
    let tls = |certificate: &str, key: &str| {
        let (certificate, key) = (shown(&certificates.file(certificate)), shown(&certificates.file(key)));
        format!("[tls]\nlisten = \"127.0.0.1:0\"\ncert_file = {certificate}\nkey_file = {key}\n")
    };
    let folder = Folder::new("examined");
    let (file, data) = (folder.file("hourglass.toml"), folder.file("data"));
    let a_file = folder.file("file");
    std::fs::write(&a_file, "").unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let data = data.to_str().unwrap();
    let thrice =
        "[server]\nlisten = \"127.0.0.1:9\"\n[status]\nlisten = \"127.0.0.1:9\"\n[tcp]\nlisten = \"0.0.0.0:9\"\n";
    let free = ["--listen", "127.0.0.1:0"];
    let (pair, missing) = (tls("server.pem", "other.key"), tls("none.pem", "none.key"));
    for (config, flags, plain, expected) in [
        (thrice, vec!["--data-dir", data], true, "status.listen = 127.0.0.1:9: the port is that of server.listen"),
        ("", vec!["--data-dir", data, "--store", "mongodb://user:p@ss@127.0.0.1:9/d"], true, "write %40"),
        ("", vec!["--data-dir", data, "--listen", "0.0.0.0:0"], false, "tokens are required"),
        (missing.as_str(), [&free[..], &["--data-dir", data]].concat(), false, "cannot read tls.cert_file"),
        (
            pair.as_str(),
            [&free[..], &["--data-dir", data]].concat(),
            false,
            "cannot use tls.cert_file with tls.key_file",
        ),
        ("", [&free[..], &["--data-dir", "/proc/hourglass"]].concat(), false, "server.data_dir = /proc/hourglass"),
        (
            "",
            [&free[..], &["--data-dir", a_file.to_str().unwrap()]].concat(),
            false,
            "is a file, and a folder is needed",
        ),
        ("", vec!["--data-dir", data, "--listen", &taken], false, "is it in use"),
    ] {
        std::fs::write(&file, config).unwrap();
        let of = |command: &[&str]| run(&[command, &["--config", file.to_str().unwrap()], &flags].concat(), &[]);
        let (code, _, said) = of(&["check-config"]);
        assert_eq!(code, if plain { EXIT_CONFIG } else { 0 }, "{expected}: {said}");
        for command in [&["check-config", "--probe"][..], &["doctor"]] {
            let (code, _, said) = of(command);
            assert_eq!(code, EXIT_CONFIG, "{expected}: {said}");
            assert!(said.lines().any(|line| line.contains(expected)), "{expected}: {said}");
            assert!(!said.contains("p@ss"), "{said}");
        }
        let (code, printed, said) = of(&["serve"]);
        assert!(code != 0 && printed.is_empty(), "serve refuses it, too: {said}");
        // `serve` makes the folder before it refuses; what it left is not counted against the next.
        let _ = std::fs::remove_dir_all(data);
    }
}

#[test]
fn a_sound_configuration_is_measured_and_nothing_is_left() {
    let folder = Folder::new("examined");
    let data = folder.file("data");
    let store = mongod().uri(&fresh_database_name());
    let flags = ["--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap(), "--store"];
    for (store, more) in [("embedded", &[][..]), (&store, &["clock offset", "MongoDB  "])] {
        let flags = [&flags[..], &[store]].concat();
        let (code, printed, said) = run(&[&["check-config", "--probe"][..], &flags].concat(), &[]);
        assert_eq!((code, printed.as_str()), (0, "nothing is wrong: serve would start\n"), "{said}");
        let (code, printed, said) = run(&[&["doctor"][..], &flags].concat(), &[]);
        assert_eq!(code, 0, "{said}");
        for figure in ["server.data_dir free", "server.data_dir fsync", "open files"].iter().chain(more) {
            assert!(printed.lines().any(|line| line.starts_with(figure)), "{figure}: {printed}");
        }
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}
