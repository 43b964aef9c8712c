//! The fault proxy works as documented.

use crate::support::prelude::*;

const PATIENCE: Duration = Duration::from_secs(10);
/// Time without bytes that counts as silence.
const SILENCE: Duration = Duration::from_millis(200);

/// Starts an echo server on threads that end with their connections.
fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port can be had");
    let port = listener.local_addr().expect("a listener has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    port
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// Sends the text and reads it back; the error has the part that arrived.
fn say(stream: &mut TcpStream, text: &str) -> Result<String, (String, ErrorKind)> {
    let mut heard = Vec::new();
    let mut buffer = [0; 4096];
    let failed = |heard: &[u8], kind| (String::from_utf8_lossy(heard).into_owned(), kind);
    stream.write_all(text.as_bytes()).map_err(|error| failed(&[], error.kind()))?;
    while heard.len() < text.len() {
        match stream.read(&mut buffer) {
            Ok(0) => return Err(failed(&heard, ErrorKind::UnexpectedEof)),
            Ok(read) => heard.extend_from_slice(&buffer[..read]),
            Err(error) => return Err(failed(&heard, error.kind())),
        }
    }
    Ok(String::from_utf8(heard).expect("an echo"))
}

#[test]
fn bytes_pass_the_proxy_and_delays_delay_them() {
    let proxy = Proxy::start(echo());
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, "one"), Ok("one".to_owned()));
    proxy.set(Fault::Delay(Duration::from_millis(150)));
    // Regression: on a busy machine one direction read the word before it knew of the switch. A first word wakes both.
    assert_eq!(say(&mut stream, "two"), Ok("two".to_owned()));
    let begun = Instant::now();
    assert_eq!(say(&mut stream, "three"), Ok("three".to_owned()));
    assert!(begun.elapsed() >= Duration::from_millis(300), "there and back in {:?}", begun.elapsed());
    proxy.set(Fault::Pass);
    let long = "long ".repeat(100_000);
    let mut other = connect(&proxy);
    let mut sender = other.try_clone().expect("a second handle");
    let expected = long.clone();
    let sending = std::thread::spawn(move || sender.write_all(long.as_bytes()));
    let mut heard = vec![0; expected.len()];
    other.read_exact(&mut heard).expect("all of it comes back");
    assert!(heard == expected.as_bytes());
    sending.join().expect("the sender does not panic").expect("all of it is sent");
}

#[test]
fn a_reply_is_cut_after_the_given_byte() {
    let proxy = Proxy::start(echo());
    for after in [0, 1, 4] {
        let mut stream = connect(&proxy);
        assert_eq!(say(&mut stream, "before the switch"), Ok("before the switch".to_owned()));
        proxy.set(Fault::CutReply { after });
        let (heard, kind) = say(&mut stream, "abcdefgh").expect_err("the reply is cut");
        // A reset may overtake earlier bytes, but no later ones may arrive.
        assert!("abcdefgh"[..after].starts_with(&heard), "{heard:?} of {after}");
        assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{kind:?}");
        proxy.set(Fault::Pass);
    }
}

#[test]
fn replies_are_cut_from_one_request_on() {
    let proxy = Proxy::start(echo());
    let mut stream = connect(&proxy);
    assert_eq!(say(&mut stream, "before the switch"), Ok("before the switch".to_owned()));
    proxy.set(Fault::CutReplyTo(b"cde"));
    assert_eq!(say(&mut stream, "another"), Ok("another".to_owned()));
    let (heard, kind) = say(&mut stream, "abcdefgh").expect_err("the reply is cut");
    assert_eq!(heard, "");
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{kind:?}");
    assert!(say(&mut connect(&proxy), "another").is_err());
    proxy.set(Fault::Pass);
    assert_eq!(say(&mut connect(&proxy), "another"), Ok("another".to_owned()));
}

#[test]
fn a_black_hole_discards_bytes_for_good() {
    let proxy = Proxy::start(echo());
    let mut open = connect(&proxy);
    assert_eq!(say(&mut open, "one"), Ok("one".to_owned()));
    proxy.set(Fault::BlackHole);
    let mut new = connect(&proxy);
    for stream in [&mut open, &mut new] {
        stream.set_read_timeout(Some(SILENCE)).expect("a timeout can be set");
        assert_eq!(say(stream, "lost"), Err((String::new(), ErrorKind::WouldBlock)));
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    }
    proxy.set(Fault::Pass);
    for mut stream in [open, new] {
        let (heard, kind) = say(&mut stream, "after").expect_err("what was swallowed cannot go on");
        assert_eq!(heard, "");
        assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{kind:?}");
    }
    assert_eq!(say(&mut connect(&proxy), "two"), Ok("two".to_owned()));
}

#[test]
fn connections_are_reset_or_refused_and_come_back() {
    let proxy = Proxy::start(echo());
    for fault in [Fault::Reset, Fault::Refuse] {
        let mut open = connect(&proxy);
        assert_eq!(say(&mut open, "one"), Ok("one".to_owned()));
        proxy.set(fault);
        let error = open.read(&mut [0]).expect_err("an open connection is reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{fault:?}");
        let new = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()));
        match (fault, new) {
            (Fault::Refuse, new) => {
                assert_eq!(new.expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
            }
            // The reset may come before or after the connection is established.
            (_, new) => assert!(new.and_then(|mut new| new.read(&mut [0])).is_err(), "{fault:?}"),
        }
        proxy.set(Fault::Pass);
        assert_eq!(say(&mut connect(&proxy), "two"), Ok("two".to_owned()));
    }
}
