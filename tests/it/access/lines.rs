//! TCP lines: the first line carries the token.

use crate::support::prelude::*;

use super::{await_status, create, start_with_auth, token_command, with};

const LISTEN: &str = "[tcp]\nlisten = \"127.0.0.1:0\"\ndatabase = \"a\"\n";

fn connect(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.scheme_address("tcp")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Returns the text sent before the server closes the connection.
fn farewell(mut stream: TcpStream) -> String {
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply
}

fn count(server: &Server, admin: &str) -> usize {
    let answer = with(admin, "GET", &server.url("/api/v1/readings?db=a&measurement=m"), "").expect(200).json();
    answer["series"].as_array().unwrap().iter().map(|series| series["readings"].as_array().unwrap().len()).sum()
}

#[test]
fn tcp_lines_need_a_write_token() {
    let (server, admin) = start_with_auth(LISTEN);
    let lab = create(&server, &["--name", "lab", "--write", "a", "--sensor-tag", "site=lab"]);
    for (text, reply) in [
        ("m,site=lab v=1 1\n".to_owned(), "ERROR authorization failed"),
        ("auth wrong\nm,site=lab v=1 1\n".to_owned(), "ERROR authorization failed"),
        (format!("auth {lab} db=b\nm,site=lab v=1 1\n"), "ERROR lab may not write to database \"b\""),
    ] {
        let farewell = farewell(connect(&server, &text));
        assert!(farewell.starts_with(reply) && !farewell.contains(&lab[16..]), "{text}: {farewell}");
    }
    assert_eq!(count(&server, &admin), 0);
    let mut open = connect(&server, &format!("auth {lab}\nm,site=lab v=1 1\nm,site=plant v=1 1\nm v=1 1\n"));
    wait_until("its reading is there", || count(&server, &admin) == 1);
    // Connections outlive tokens, but later lines are refused.
    token_command(&server.data_dir(), &["revoke", "lab"]).expect_success();
    await_status(&server, &lab, 401);
    let _ = open.write_all(b"m,site=lab v=2 2\n");
    assert!(farewell(open).starts_with("ERROR authorization failed"));
    assert_eq!(count(&server, &admin), 1);
}

/// The server stops reading from a sender over its quota until the debt is paid; no line is lost.
#[test]
fn a_quota_slows_a_connection_down() {
    let (server, admin) = start_with_auth(LISTEN);
    let slow = create(&server, &["--name", "slow", "--write", "a", "--rate", "100/s"]);
    let lines = |from: usize, to: usize| (from..to).map(|n| format!("m v={n} {n}\n")).collect::<String>();
    let mut stream = connect(&server, &format!("auth {slow}\n{}", lines(0, 600)));
    wait_until("the first readings are stored", || count(&server, &admin) == 600);
    stream.write_all(lines(600, 610).as_bytes()).unwrap();
    wait_until("the rest is there", || count(&server, &admin) == 610);
    let metrics = with(&admin, "GET", &server.url("/metrics"), "").expect(200);
    let refused = "hourglass_access_quota_total{outcome=\"refused\",scope=\"token\",resource=\"readings\"}";
    assert!(metrics.text().contains(refused), "it had to wait");
}
