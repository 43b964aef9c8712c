//! Client commands over TLS: they trust only the given authority and present a certificate.

use super::write;
use crate::support::prelude::*;

#[test]
fn backups_work_over_tls() {
    let (Some(ours), Some(others)) = (Certificates::new(), Certificates::named("another")) else { return };
    ours.sign("server", "first", ",DNS:localhost");
    ours.sign("client", "client", ",DNS:client");
    let asks = format!("client_auth = \"required\"\nclient_ca_file = {}", shown(&ours.file("ca.pem")));
    for (more, shows) in [(String::new(), false), (asks, true)] {
        let server = Launch::embedded().config(ours.config(&more)).start();
        let lines: String = (0..20_000).map(|n| format!("m,s={} v={n}.5 {}\n", n % 7, super::START + n)).collect();
        write(&server, "plant", &lines);
        let port = server.scheme_address("https").port();
        let url = format!("https://localhost:{port}");
        let folder = Folder::new("backup");
        let ca = ours.file("ca.pem");
        let cert = ours.file("client.pem");
        let key = ours.file("client.key");
        let tls_flags = ["--ca", path(&ca), "--cert", path(&cert), "--key", path(&key)];
        let tls_flags = if shows { &tls_flags[..] } else { &tls_flags[..2] };
        hourglass(&[&["backup", "create", path(folder.path()), "--server", &url, "--prove"], tls_flags].concat())
            .expect_success();
        hourglass(&[&["sensor", "export", "--db", "plant", "--server", &url], tls_flags].concat()).expect_success();
        // Wrong authority, the system's authorities, wrong name, no certificate, and an address without TLS.
        let other = others.file("ca.pem");
        let backup = |url: &str, more: &[&str]| {
            hourglass(&[&["backup", "create", path(&folder.file("not")), "--server", url], more].concat())
        };
        backup(&url, &["--ca", path(&other)]).expect_failure("certificate");
        backup(&url, &[]).expect_failure("");
        backup(&format!("https://[::1]:{port}"), tls_flags).expect_failure("");
        backup(&server.url(""), tls_flags).expect_failure("https://");
        if shows {
            backup(&url, &tls_flags[..2]).expect_failure("");
        }
    }
}
