//! Commands that ask a service speak TLS: they trust the authority that they are given, and no other, and show a certificate.

use super::{digest, folder, hourglass, path, write};
use crate::support::certificates::{Certificates, shown};
use crate::support::server::Launch;

#[test]
fn a_backup_and_a_copy_are_made_over_tls() {
    let (Some(ours), Some(others)) = (Certificates::new(), Certificates::named("another")) else { return };
    ours.sign("server", "first", ",DNS:localhost");
    ours.sign("client", "client", ",DNS:client");
    let asks = format!("client_auth = \"required\"\nclient_ca_file = {}", shown(&ours.file("ca.pem")));
    for (more, shows) in [(String::new(), false), (asks, true)] {
        let mut server = Launch::embedded().config(ours.config(&more)).start();
        let lines: String = (0..20_000).map(|n| format!("m,s={} v={n}.5 {}\n", n % 7, super::START + n)).collect();
        write(&server, "plant", &lines);
        let port = server.other("https").port();
        let (url, to) = (format!("https://localhost:{port}"), folder("backup"));
        let (ca, cert, key) = (ours.file("ca.pem"), ours.file("client.pem"), ours.file("client.key"));
        let by = ["--ca", path(&ca), "--cert", path(&cert), "--key", path(&key)];
        let by = if shows { &by[..] } else { &by[..2] };
        hourglass(&[&["backup", path(to.path()), "--from", &url, "--prove"], by].concat()).good();
        let copied = to.file("copied");
        hourglass(&[&["sensors", "export", "--db", "plant", "--to", &url], by].concat()).good();
        let said = hourglass(&[&["copy", "--switch", "--from", &url, "--to", path(&copied)], by].concat()).good();
        assert!(said.stdout.contains("takes no more writes"), "{said:?}");
        // Another authority, the system's, another name, no certificate, an address without TLS.
        let other = others.file("ca.pem");
        let backup =
            |url: &str, more: &[&str]| hourglass(&[&["backup", path(&to.file("not")), "--from", url], more].concat());
        backup(&url, &["--ca", path(&other)]).refused("certificate");
        backup(&url, &[]).refused("");
        backup(&format!("https://[::1]:{port}"), by).refused("");
        backup(&server.url(""), by).refused("https://");
        if shows {
            backup(&url, &by[..2]).refused("");
        }
        assert!(server.stop().success());
        assert_eq!(digest("embedded", &server.data_dir()), digest("embedded", &copied));
    }
}
