//! TLS with real clients: curl and openssl.

use std::process::{ChildStdin, ChildStdout};

use crate::access::token_command;
use crate::support::prelude::*;

/// Result of curl: success, status and headers, and its messages.
struct CurlResponse {
    whole: bool,
    text: String,
}

fn curl(program: &Path, certificates: &Certificates, url: &str, more: &[&str]) -> CurlResponse {
    let mut command = Command::new(program);
    command.args(["--silent", "--show-error", "--include", "--max-time", "20", "--cacert"]);
    command.arg(certificates.file("ca.pem")).args(more).arg(url);
    let output = command.output().expect("curl can be run");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    CurlResponse { whole: output.status.success(), text }
}

/// Starts a server with the pair `server`, `more` in its `[tls]` section and other sections after it.
fn start_with_tls(certificates: &Certificates, more: &str) -> Server {
    certificates.sign("server", "first", "");
    Launch::embedded().config(certificates.config(more)).start()
}

/// Starts a server with `client_auth` set to `optional` or `required`.
fn start_with_client_auth(certificates: &Certificates, wanted: &str) -> Server {
    let ca = shown(&certificates.file("ca.pem"));
    start_with_tls(certificates, &format!("client_ca_file = {ca}\nclient_auth = \"{wanted}\""))
}

fn url(server: &Server, path: &str) -> String {
    format!("https://{}{path}", server.scheme_address("https"))
}

#[test]
fn https_is_served_beside_http_by_tls_1_2_and_up() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    let server = start_with_tls(&certificates, "hsts = \"24h\"");
    let kept = curl(&program, &certificates, &url(&server, "/write"), &["-d", "m v=1 1"]);
    assert!(kept.whole && kept.text.starts_with("HTTP/1.1 204"), "{}", kept.text);
    assert!(kept.text.to_lowercase().contains("strict-transport-security: max-age=86400\r\n"), "{}", kept.text);
    let plain = curl(&program, &certificates, &server.url("/ping"), &[]);
    assert!(plain.whole && !plain.text.to_lowercase().contains("strict-transport"), "{}", plain.text);
    let ends = metric(&server, "hourglass_edge_tls_certificate_not_after_timestamp_seconds");
    let days = (ends - hourglass::clock::now_seconds() as f64) / 86_400.0;
    assert!((1.9..=2.0).contains(&days), "signed for two days, and ends in {days}");
    for (version, spoken) in [("-tls1_3", true), ("-tls1_2", true), ("-tls1_1 -cipher ALL:@SECLEVEL=0", false)] {
        let (_, response) = certificates.look(server.scheme_address("https"), version);
        assert_eq!(response.contains("BEGIN CERTIFICATE"), spoken, "{version}: {response}");
    }
}

/// Regression: plain HTTP could not be disabled, so tokens could be sent in clear text.
#[test]
fn https_can_be_served_without_http() {
    let alone = Launch::embedded().listen("").run_to_end();
    assert_eq!(alone.status.code(), Some(78));
    assert!(alone.stderr.contains("server.listen is empty") && alone.stderr.contains("tls.listen"), "{}", alone.stderr);
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    certificates.sign("server", "first", "");
    let more = "[tcp]\nlisten = \"127.0.0.1:0\"\n[status]\nlisten = \"127.0.0.1:0\"\n";
    let server = Launch::embedded().config(certificates.config(more)).listen("").start();
    let banner = server.stdout();
    let https = format!("https://{}", server.scheme_address("https"));
    assert!(banner.contains(&format!("serving  {https} ")) && banner.matches("http://").count() == 1, "{banner}");
    let kept = curl(&program, &certificates, &url(&server, "/write"), &["-d", "m v=1 1"]);
    assert!(kept.whole && kept.text.starts_with("HTTP/1.1 204"), "{}", kept.text);
    // Only health and metrics have a plain address.
    http::get(&server.url("/metrics")).expect(200);
    http::get(&server.url("/api/v1/sensors")).expect(404);
    let mut lines = Raw::open(server.scheme_address("tcp"));
    lines.send("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let response = lines.rest();
    assert!(response.contains(&https), "{response}");
    // Commands need no plain address.
    let job_list = |more: &[&str]| hourglass(&[&["job", "list", "--server", &https], more].concat());
    job_list(&["--ca", path(&certificates.file("ca.pem"))]).expect_success();
    assert_ne!(job_list(&[]).status, Some(0), "the system knows this authority");
}

#[test]
fn http2_is_used_when_it_is_enabled() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    for (config, by_tls, by_plain) in [("", "HTTP/1.1 204", false), ("[server]\nhttp2 = true", "HTTP/2 204", true)] {
        let server = start_with_tls(&certificates, config);
        let response = curl(&program, &certificates, &url(&server, "/write"), &["--http2", "-d", "m v=1 1"]);
        assert!(response.text.starts_with(by_tls), "{config:?}: {}", response.text);
        // Regression: over HTTP/2, which has no `Host` header, the own page was refused.
        let page = format!("origin: {}", url(&server, ""));
        let response =
            curl(&program, &certificates, &url(&server, "/write"), &["--http2", "-H", &page, "-d", "m v=1 1"]);
        assert!(response.text.starts_with(by_tls), "{config:?}: {}", response.text);
        let known = curl(&program, &certificates, &server.url("/ping"), &["--http2-prior-knowledge"]);
        assert_eq!(known.text.starts_with("HTTP/2 204"), by_plain, "{config:?}: {}", known.text);
        let old = curl(&program, &certificates, &server.url("/ping"), &["--http1.1"]);
        assert!(old.text.starts_with("HTTP/1.1 204"), "{config:?}: {}", old.text);
    }
}

/// Regression: without TLS, a SIGHUP of a reload or a lost terminal ended the service.
#[test]
fn a_hangup_signal_stops_no_service() {
    let mut server = Launch::embedded().start();
    server.signal("HUP");
    wait_until("what came of it", || server.stderr().contains("SIGHUP: there is no"));
    http::get(&server.url("/ping")).expect(204);
}

/// A handshake has ten seconds in total, so it cannot hold a place.
#[test]
fn an_unfinished_handshake_times_out() {
    let Some(certificates) = Certificates::new() else { return };
    let server = start_with_tls(&certificates, "");
    // A 16 KiB handshake record with the start of a ClientHello of TLS 1.2 or newer.
    let hello = b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03";
    let open = |opening: &[u8]| {
        let mut raw = Raw::open(server.scheme_address("https"));
        raw.send(opening);
        raw
    };
    let mut silent = open(b"");
    let mut torn = open(hello);
    let mut dripping = open(hello);
    wait_until("the dripping one is closed", || {
        let closed = !dripping.try_send("#") || dripping.is_closed();
        post(&server.url("/write"), "m v=1 1", &[]).expect(204);
        closed
    });
    assert_eq!((silent.rest(), torn.rest()), (String::new(), String::new()));
    assert_eq!(metric(&server, "hourglass_edge_connections_closed_total{reason=\"handshake\"}"), 3.0);
    assert!(certificates.look(server.scheme_address("https"), "").1.contains("BEGIN CERTIFICATE"));
}

#[test]
fn client_certificates_are_required_when_configured() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    let Some(strangers) = Certificates::new() else { return };
    certificates.sign("client", "gw-1", ",DNS:gw-1.example.org");
    strangers.sign("client", "gw-1", "");
    for (wanted, without) in [("optional", true), ("required", false)] {
        let server = start_with_client_auth(&certificates, wanted);
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

/// Regression: a common name equal to a token's name granted its rights, though authorities need not check it.
#[test]
fn a_certificate_acts_as_its_bound_token() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    certificates.sign("named", "gw-1", "");
    certificates.sign("pinned", "gw-2", "");
    certificates.sign("dns", "gw-3", ",DNS:GW-3.example.org,DNS:gw-1");
    let server = start_with_client_auth(&certificates, "optional");
    let run = |words: &[&str]| token_command(&server.data_dir(), words);
    let token = |words: &[&str]| drop(run(words).expect_success());
    let pinned = format!("sha256:{}", certificates.fingerprint("pinned"));
    token(&["add", "--name", "gw-1", "--write", "a", "--certificate", &pinned]);
    let write = |name: &str, database: &str| {
        let [certificate, key] =
            [".pem", ".key"].map(|end| certificates.file(&format!("{name}{end}")).display().to_string());
        let more = ["-d", "m v=1 1", "--cert", &certificate, "--key", &key];
        let response = curl(&program, &certificates, &url(&server, &format!("/write?db={database}")), &more).text;
        response.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    // Until the token is known everybody may write; then only bound certificates, whatever their common or DNS names.
    wait_until("the token is valid", || {
        write("pinned", "a") == "204" && write("named", "a") == "401" && write("dns", "a") == "401"
    });
    assert_eq!(write("pinned", "b"), "403");
    let nobody = curl(&program, &certificates, &url(&server, "/write?db=a"), &["-d", "m v=1 1"]);
    assert!(nobody.text.starts_with("HTTP/1.1 401"), "{}", nobody.text);
    // A certificate belongs to one token.
    let refused = run(&["add", "--name", "gw-2", "--write", "a", "--certificate", &pinned]);
    refused.expect_failure("hourglass token bind gw-1");
    let refused = run(&["bind", "gw-1", "--certificate", "cn:gw-1"]);
    assert!(refused.status != Some(0) && refused.stderr.contains("expected sha256:"), "{refused:?}");

    token(&["bind", "gw-1", "--certificate", "dns:gw-3.example.org"]);
    wait_until("the token is bound to the other one", || write("dns", "a") == "204" && write("pinned", "a") == "401");
    token(&["revoke", "gw-1"]);
    wait_until("the token is revoked", || write("dns", "a") == "401");
}

/// Regression: a stream stayed open after its token was bound to another certificate.
#[test]
fn a_stream_ends_when_its_certificate_is_unbound() {
    let (Some(program), Some(certificates)) = (require(Package::Curl), Certificates::new()) else { return };
    certificates.sign("old", "gw", "");
    certificates.sign("new", "gw", "");
    let server = start_with_client_auth(&certificates, "optional");
    let token = |words: &[&str]| drop(token_command(&server.data_dir(), words).expect_success());
    let [old, new] = ["old", "new"].map(|name| format!("sha256:{}", certificates.fingerprint(name)));
    token(&["add", "--name", "gw", "--read", "a", "--certificate", &old]);
    wait_until("the token is valid", || {
        let nobody = curl(&program, &certificates, &url(&server, "/api/v1/measurements?db=a"), &[]);
        nobody.text.starts_with("HTTP/1.1 401")
    });
    let mut listening = Command::new(&program)
        .args(["--silent", "--no-buffer", "--max-time", "20", "--cacert"])
        .arg(certificates.file("ca.pem"))
        .arg("--cert")
        .arg(certificates.file("old.pem"))
        .arg("--key")
        .arg(certificates.file("old.key"))
        .arg(url(&server, "/api/v1/tail?db=a"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl can be run");
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with(": acked readings")), "it was let in");
    token(&["bind", "gw", "--certificate", &new]);
    let rest: Vec<String> = lines.collect();
    let ended = listening.wait().expect("curl ends");
    assert!(ended.success() && rest.iter().any(|line| line == "event: end"), "{ended}: {rest:?}");
}

/// A connection by `openssl s_client` with a client certificate, for repeated requests.
struct TlsClient {
    child: std::process::Child,
    ask: ChildStdin,
    answers: ChildStdout,
}

impl TlsClient {
    fn open(certificates: &Certificates, name: &str, server: &Server, version: &str) -> TlsClient {
        let [certificate, key] = ["pem", "key"].map(|end| certificates.file(&format!("{name}.{end}")));
        TlsClient::with(server, &[version, "-cert", path(&certificate), "-key", path(&key)])
    }

    fn with(server: &Server, more: &[&str]) -> TlsClient {
        let mut command = Command::new(require(Package::Openssl).unwrap());
        command.args(["s_client", "-quiet", "-connect", &server.scheme_address("https").to_string()]).args(more);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("openssl can be run");
        let ask = child.stdin.take().unwrap();
        let answers = child.stdout.take().unwrap();
        TlsClient { child, ask, answers }
    }

    /// Returns the status of another `GET /ping`; empty once the connection is closed.
    fn ping(&mut self) -> String {
        let _ = self.ask.write_all(b"GET /ping HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && self.answers.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned()
    }

    /// Returns the first status that is not 204.
    fn refusal(&mut self) -> String {
        eventually("a refusal", || Some(self.ping()).filter(|status| status != "204"))
    }

    /// Reads until the other end closes.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).expect("text, and then the end");
        rest
    }
}

impl Drop for TlsClient {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

/// Regression: an expired certificate worked for ever on open connections and resumed sessions.
#[test]
fn an_expired_certificate_ends_its_connections() {
    let Some(certificates) = Certificates::new() else { return };
    let server = start_with_client_auth(&certificates, "required");
    let end = hourglass::clock::now_seconds() + 6;
    certificates.sign_until("client", "gw-1", "", end);
    let mut talks = ["-tls1_2", "-tls1_3"].map(|version| TlsClient::open(&certificates, "client", &server, version));
    for talk in &mut talks {
        assert_eq!(talk.ping(), "204", "the certificate is good for some seconds");
    }
    for mut talk in talks {
        let status = talk.refusal();
        let late = hourglass::clock::now_seconds() - end;
        let rest = talk.rest();
        println!("refused {late} s after the end: {status} {rest}");
        assert_eq!((status.as_str(), late >= 1), ("403", true), "refused {late} s after the end");
        assert!(rest.contains("has expired since this connection was opened"), "{rest}");
    }
    assert_eq!(TlsClient::open(&certificates, "client", &server, "-tls1_3").ping(), "", "no handshake either");
}

/// A resumed session skips the checks of the client certificate.
#[test]
fn sessions_are_resumed_only_without_client_certificates() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("client", "gw-1", "");
    let ca = shown(&certificates.file("ca.pem"));
    for (config, resumed) in [
        (String::new(), true),
        (format!("client_ca_file = {ca}\nclient_auth = \"optional\""), false),
        (format!("client_ca_file = {ca}\nclient_auth = \"required\""), false),
    ] {
        let server = start_with_tls(&certificates, &config);
        for version in ["-tls1_2", "-tls1_3"] {
            let session = certificates.file(&format!("session{version}"));
            let _ = std::fs::remove_file(&session);
            let connect = |flag: &str| {
                let mut command = Command::new(require(Package::Openssl).unwrap());
                let address = server.scheme_address("https").to_string();
                command.args(["s_client", "-ign_eof", version, "-connect", &address, "-cert"]);
                command.arg(certificates.file("client.pem")).arg("-key").arg(certificates.file("client.key"));
                let ask = b"GET /ping HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
                run_with_input(command.arg(flag).arg(&session), ask).stdout
            };
            let first = connect("-sess_out");
            assert!(first.contains("HTTP/1.1 204") && first.contains("New, TLSv1."), "{version}: {first}");
            // With TLS 1.3 a session exists only if the server sent a ticket.
            assert!(resumed || version == "-tls1_2" || !session.exists(), "{version}: a ticket was sent");
            if session.exists() {
                let second = connect("-sess_in");
                assert!(second.contains("HTTP/1.1 204"), "{version}: {second}");
                assert_eq!(second.contains("Reused, TLSv1."), resumed, "{version} {config:?}: {second}");
            } else {
                assert!(!resumed, "{version}: there is no session to resume");
            }
        }
    }
}

/// Regression: certificates could only be revoked by replacing the authority.
#[test]
fn a_revoked_certificate_ends_its_connections() {
    let Some(certificates) = Certificates::new() else { return };
    let end = hourglass::clock::now_seconds() + 24 * 3600;
    for name in ["lost", "kept"] {
        certificates.sign_until(name, name, "", end);
    }
    let ca = shown(&certificates.file("ca.pem"));
    let crl = certificates.list_revoked();
    let lists = shown(&crl);
    let config = format!("client_ca_file = {ca}\nclient_crl_file = {lists}\nclient_auth = \"required\"");
    let server = start_with_tls(&certificates, &config);
    let open = |name: &str| TlsClient::open(&certificates, name, &server, "-tls1_3");
    let mut lost = open("lost");
    let mut kept = open("kept");
    assert_eq!((lost.ping(), kept.ping()), ("204".to_owned(), "204".to_owned()));

    certificates.revoke("lost");
    certificates.list_revoked();
    let status = lost.refusal();
    let rest = lost.rest();
    assert!(status == "403" && rest.contains("it was revoked (tls.client_crl_file)"), "{status} {rest}");
    assert_eq!((open("lost").ping(), open("kept").ping(), kept.ping()), (String::new(), "204".into(), "204".into()));

    // An invalid list is not loaded, and revoked certificates stay revoked.
    std::fs::write(&crl, "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n").unwrap();
    let refused = || metric(&server, "hourglass_edge_tls_loads_total{outcome=\"refused\"}");
    wait_until("the bad list is refused", || refused() >= 1.0);
    assert!(server.stderr().contains("cannot use tls.client_crl_file"), "{}", server.stderr());
    assert_eq!((open("lost").ping(), open("kept").ping()), (String::new(), "204".to_owned()));
}

/// Open connections survive reloads, and invalid files are not loaded.
#[test]
fn certificates_are_reloaded_unless_they_are_invalid() {
    let Some(certificates) = Certificates::new() else { return };
    let mut server = start_with_tls(&certificates, "");
    certificates.sign("second", "second", "");
    certificates.sign("third", "third", "");
    let address = server.scheme_address("https");
    let mut open = TlsClient::with(&server, &[]);
    assert_eq!(open.ping(), "204");
    let serves = |name: &str| certificates.look(address, "").1.contains(&format!("subject=CN = {name}"));
    assert!(serves("first"));

    // Detected automatically.
    certificates.replace("server", "second");
    wait_until("the second pair is served", || serves("second"));
    // A key of another certificate.
    std::fs::copy(certificates.file("third.key"), certificates.file("server.key")).unwrap();
    server.signal("HUP");
    let refused = || metric(&server, "hourglass_edge_tls_loads_total{outcome=\"refused\"}");
    wait_until("the bad pair is refused", || refused() >= 1.0);
    assert!(serves("second") && server.stderr().contains("the old ones stay in use"));
    // At once on SIGHUP.
    certificates.replace("server", "third");
    server.signal("HUP");
    wait_until("the third pair is served", || serves("third"));

    assert_eq!(open.ping(), "204", "the open connection went on");
}

#[test]
fn an_unusable_certificate_stops_the_start() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "first", "");
    certificates.sign("other", "other", "");
    let path = |name: &str| shown(&certificates.file(name));
    let config = |certificate: &str, key: &str, more: &str| {
        format!("[tls]\nlisten = \"127.0.0.1:0\"\ncert_file = {certificate}\nkey_file = {key}\n{more}\n")
    };
    for (config, response) in [
        (config(&path("server.pem"), &path("other.key"), ""), "cannot use tls.cert_file with tls.key_file"),
        (config(&path("nowhere.pem"), &path("server.key"), ""), "tls.cert_file = "),
        (config(&path("server.pem"), &path("server.pem"), ""), "tls.key_file = "),
        (config("\"\"", &path("server.key"), ""), "tls.listen needs tls.cert_file, which is not set"),
        (
            config(&path("server.pem"), &path("server.key"), "client_auth = \"required\""),
            "tls.client_auth needs tls.client_ca_file, which is not set",
        ),
        (
            config(&path("server.pem"), &path("server.key"), &format!("client_crl_file = {}", path("ca.pem"))),
            "tls.client_crl_file needs tls.client_auth, which is not set",
        ),
        (
            config(
                &path("server.pem"),
                &path("server.key"),
                &format!("client_ca_file = {0}\nclient_crl_file = {0}\nclient_auth = \"optional\"", path("ca.pem")),
            ),
            "tls.client_crl_file = ",
        ),
    ] {
        let ended = Launch::embedded().config(&config).run_to_end();
        assert!(!ended.status.success() && ended.stderr.contains(response), "{config}: {}", ended.stderr);
    }
}
