//! TLS by real clients: curl and openssl.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::certificates::{Certificates, shown};
use crate::support::http::post;
use crate::support::packages::{Package, require};
use crate::support::raw::{PATIENCE, Raw};
use crate::support::series::metric;
use crate::support::server::{Launch, Server, program as hourglass};
use crate::support::{eventually, http};

/// What curl says: whether it got an answer, the status and headers, and its own words.
struct Said {
    whole: bool,
    text: String,
}

fn curl(program: &Path, certificates: &Certificates, url: &str, more: &[&str]) -> Said {
    let mut command = Command::new(program);
    command.args(["--silent", "--show-error", "--include", "--max-time", "20", "--cacert"]);
    command.arg(certificates.file("ca.pem")).args(more).arg(url);
    let output = command.output().expect("curl can be run");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Said { whole: output.status.success(), text }
}

/// A server by the pair `server`, with these lines in its section `[tls]` and others behind it.
fn secure(certificates: &Certificates, more: &str) -> Server {
    certificates.sign("server", "first", "");
    Launch::embedded().config(certificates.config(more)).start()
}

fn url(server: &Server, path: &str) -> String {
    format!("https://{}{path}", server.other("https"))
}

#[test]
fn https_is_served_beside_http_by_tls_1_2_and_up() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    let server = secure(&certificates, "hsts = \"24h\"");
    let kept = curl(&program, &certificates, &url(&server, "/write"), &["-d", "m v=1 1"]);
    assert!(kept.whole && kept.text.starts_with("HTTP/1.1 204"), "{}", kept.text);
    assert!(kept.text.to_lowercase().contains("strict-transport-security: max-age=86400\r\n"), "{}", kept.text);
    let plain = curl(&program, &certificates, &server.url("/ping"), &[]);
    assert!(plain.whole && !plain.text.to_lowercase().contains("strict-transport"), "{}", plain.text);
    let ends = metric(&server, "hourglass_edge_tls_certificate_not_after_timestamp_seconds");
    let days = (ends - hourglass::clock::now_seconds() as f64) / 86_400.0;
    assert!((1.9..=2.0).contains(&days), "signed for two days, and ends in {days}");
    for (version, spoken) in [("-tls1_3", true), ("-tls1_2", true), ("-tls1_1 -cipher ALL:@SECLEVEL=0", false)] {
        let (_, said) = certificates.look(server.other("https"), version);
        assert_eq!(said.contains("BEGIN CERTIFICATE"), spoken, "{version}: {said}");
    }
}

#[test]
fn http2_is_spoken_where_it_is_wanted() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    for (config, by_tls, by_plain) in [("", "HTTP/1.1 204", false), ("[server]\nhttp2 = true", "HTTP/2 204", true)] {
        let server = secure(&certificates, config);
        let said = curl(&program, &certificates, &url(&server, "/write"), &["--http2", "-d", "m v=1 1"]);
        assert!(said.text.starts_with(by_tls), "{config:?}: {}", said.text);
        // Over HTTP/2, which has no header `Host`, what came from a page of the service's own was refused.
        let page = format!("origin: {}", url(&server, ""));
        let said = curl(&program, &certificates, &url(&server, "/write"), &["--http2", "-H", &page, "-d", "m v=1 1"]);
        assert!(said.text.starts_with(by_tls), "{config:?}: {}", said.text);
        let known = curl(&program, &certificates, &server.url("/ping"), &["--http2-prior-knowledge"]);
        assert_eq!(known.text.starts_with("HTTP/2 204"), by_plain, "{config:?}: {}", known.text);
        let old = curl(&program, &certificates, &server.url("/ping"), &["--http1.1"]);
        assert!(old.text.starts_with("HTTP/1.1 204"), "{config:?}: {}", old.text);
    }
}

/// Without TLS a SIGHUP, such as a unit's reload or a lost terminal sends, ended the service.
#[test]
fn a_hangup_ends_nobody() {
    let mut server = Launch::embedded().start();
    server.signal("HUP");
    eventually("what came of it", PATIENCE, || server.stderr().contains("SIGHUP: there is no").then_some(()));
    http::get(&server.url("/ping")).expect(204);
}

/// A handshake has ten seconds, however it does not come to its end: nobody holds a place by one.
#[test]
fn a_handshake_without_an_end_is_given_up() {
    let Some(certificates) = Certificates::new() else { return };
    let server = secure(&certificates, "");
    // A record of the handshake, 16 KiB long, in which a ClientHello of TLS 1.2 or up begins.
    let hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03";
    let open = |opening: &[u8]| {
        let mut raw = Raw::open(server.other("https"));
        raw.send(opening);
        raw
    };
    let (mut silent, mut torn, mut dripping) = (open(b""), open(hello), open(hello));
    eventually("the dripping one is closed", PATIENCE, || {
        let closed = !dripping.try_send("#") || dripping.is_closed();
        post(&server.url("/write"), "m v=1 1", &[]).expect(204);
        closed.then_some(())
    });
    assert_eq!((silent.rest(), torn.rest()), (String::new(), String::new()));
    assert_eq!(metric(&server, "hourglass_edge_connections_closed_total{reason=\"handshake\"}"), 3.0);
    assert!(certificates.look(server.other("https"), "").1.contains("BEGIN CERTIFICATE"));
}

#[test]
fn clients_show_a_certificate_where_it_is_wanted() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    let Some(strangers) = Certificates::new() else { return };
    certificates.sign("client", "gw-1", ",DNS:gw-1.example.org");
    strangers.sign("client", "gw-1", "");
    let ca = shown(&certificates.file("ca.pem"));
    for (wanted, without) in [("optional", true), ("required", false)] {
        let server = secure(&certificates, &format!("client_ca_file = {ca}\nclient_auth = \"{wanted}\""));
        let ping = |signed: Option<&Certificates>| {
            let files = signed.map(|by| ["client.pem", "client.key"].map(|name| by.file(name).display().to_string()));
            let more: Vec<&str> = match &files {
                Some([certificate, key]) => vec!["--cert", certificate, "--key", key],
                None => Vec::new(),
            };
            curl(&program, &certificates, &url(&server, "/ping"), &more).text.starts_with("HTTP/1.1 204")
        };
        assert!(ping(Some(&certificates)), "{wanted}");
        assert!(!ping(Some(&strangers)), "{wanted}");
        assert_eq!(ping(None), without, "{wanted}");
    }
}

/// Its name is that of a token: no secret is sent.
#[test]
fn a_clients_certificate_says_whose_token_it_is() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    certificates.sign("client", "gw-1", "");
    certificates.sign("other", "gw-2", "");
    let ca = shown(&certificates.file("ca.pem"));
    let server = secure(&certificates, &format!("client_ca_file = {ca}\nclient_auth = \"optional\""));
    let token = |words: &[&str]| {
        let made = hourglass().arg("token").args(words).arg("--data-dir").arg(server.data_dir()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    token(&["create", "--name", "gw-1", "--write", "a"]);
    let write = |name: &str, database: &str| {
        let [certificate, key] =
            [".pem", ".key"].map(|end| certificates.file(&format!("{name}{end}")).display().to_string());
        let more = ["-d", "m v=1 1", "--cert", &certificate, "--key", &key];
        let said = curl(&program, &certificates, &url(&server, &format!("/write?db={database}")), &more).text;
        said.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    eventually("the token counts", PATIENCE, || {
        (write("client", "a") == "204" && write("other", "a") == "401").then_some(())
    });
    assert_eq!(write("client", "b"), "403");
    let nobody = curl(&program, &certificates, &url(&server, "/write?db=a"), &["-d", "m v=1 1"]);
    assert!(nobody.text.starts_with("HTTP/1.1 401"), "{}", nobody.text);
    token(&["revoke", "gw-1"]);
    eventually("the token counts no more", PATIENCE, || (write("client", "a") == "401").then_some(()));
}

/// A connection that is open through it all goes on; what is bad is not taken.
#[test]
fn new_files_are_taken_and_bad_ones_are_not() {
    let Some(certificates) = Certificates::new() else { return };
    let mut server = secure(&certificates, "");
    certificates.sign("second", "second", "");
    certificates.sign("third", "third", "");
    let address = server.other("https");
    let mut open = Command::new(require(Package::Openssl).unwrap())
        .args(["s_client", "-quiet", "-connect", &address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl can be run");
    let mut ask = open.stdin.take().unwrap();
    ask.write_all(b"GET /ping HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    let serves = |name: &str| certificates.look(address, "").1.contains(&format!("subject=CN = {name}"));
    assert!(serves("first"));

    // Found by themselves.
    certificates.replace("server", "second");
    eventually("the second pair is served", PATIENCE, || serves("second").then_some(()));
    // A key that belongs to another certificate.
    std::fs::copy(certificates.file("third.key"), certificates.file("server.key")).unwrap();
    server.signal("HUP");
    let refused = || metric(&server, "hourglass_edge_tls_loads_total{outcome=\"refused\"}");
    eventually("the bad pair is refused", PATIENCE, || (refused() >= 1.0).then_some(()));
    assert!(serves("second") && server.stderr().contains("the old ones stay in use"));
    // At once when asked to.
    certificates.replace("server", "third");
    server.signal("HUP");
    eventually("the third pair is served", PATIENCE, || serves("third").then_some(()));

    ask.write_all(b"GET /ping HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").unwrap();
    let said = open.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&said).matches("HTTP/1.1 204").count(), 2, "the open connection went on");
}

#[test]
fn what_cannot_be_served_with_stops_the_start() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "first", "");
    certificates.sign("other", "other", "");
    let path = |name: &str| shown(&certificates.file(name));
    let config = |certificate: &str, key: &str, more: &str| {
        format!("[tls]\nlisten = \"127.0.0.1:0\"\ncert_file = {certificate}\nkey_file = {key}\n{more}\n")
    };
    for (config, said) in [
        (config(&path("server.pem"), &path("other.key"), ""), "cannot use tls.cert_file with tls.key_file"),
        (config(&path("nowhere.pem"), &path("server.key"), ""), "tls.cert_file = "),
        (config(&path("server.pem"), &path("server.pem"), ""), "tls.key_file = "),
        (config("\"\"", &path("server.key"), ""), "tls.listen needs tls.cert_file, which is not set"),
        (
            config(&path("server.pem"), &path("server.key"), "client_auth = \"required\""),
            "tls.client_auth needs tls.client_ca_file, which is not set",
        ),
    ] {
        let ended = Launch::embedded().config(&config).run_to_end();
        assert!(!ended.status.success() && ended.stderr.contains(said), "{config}: {}", ended.stderr);
    }
}
