//! `GET /api/v1/tail`: each chosen acked reading once, reports of missed ones, and no forbidden readings.

use super::write;
use crate::access::{create, start_with_auth, with};
use crate::support::prelude::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A streaming client: an open connection, read line by line.
pub(super) struct TailClient {
    lines: BufReader<TcpStream>,
    status: u16,
    /// Id of the last event.
    id: String,
}

/// Kind and data of an event.
type Event = (String, Value);

impl TailClient {
    /// Connects and reads the head, and the first comment of an endless answer.
    pub(super) fn open(server: &Server, query: &str, headers: &[(&str, &str)]) -> TailClient {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(
            stream,
            "GET /api/v1/tail?{query} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n",
            server.address()
        )
        .unwrap();
        let mut client = TailClient { lines: BufReader::new(stream), status: 0, id: String::new() };
        client.status = client.line().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        while !client.line().unwrap().is_empty() {}
        if client.status == 200 {
            while !client.line().unwrap().starts_with(": acked readings") {}
        }
        client
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Returns the next line, without chunk sizes; `None` at the end.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Returns the next event; `None` once the stream has ended.
    fn next(&mut self) -> Option<Event> {
        let mut kind = "message".to_owned();
        loop {
            let line = self.line()?;
            if let Some(id) = line.strip_prefix("id: ") {
                id.clone_into(&mut self.id);
            } else if let Some(named) = line.strip_prefix("event: ") {
                named.clone_into(&mut kind);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((kind, serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Returns the field `v` of the next reading.
    #[track_caller]
    fn value(&mut self) -> i64 {
        let (kind, payload) = self.next().expect("an event");
        assert_eq!(kind, "message", "{payload}");
        payload["reading"]["v"].as_i64().unwrap_or_else(|| panic!("{payload}"))
    }
}

#[test]
fn a_stream_sends_the_chosen_readings_once_and_in_order() {
    let server = Launch::embedded().start();
    let mut all = TailClient::open(&server, "epoch=s", &[]);
    let mut some = TailClient::open(&server, "measurement=m&tag.site=lab&fields=v", &[]);
    let mut other = TailClient::open(&server, "db=other", &[]);
    for round in 0..50 {
        let lines =
            format!("m,site=lab v={}i,w=1i 100\nm,site=roof v={}i 100\nn,site=lab w=1i 100", 2 * round, 2 * round + 1);
        write(&server, &lines);
    }
    get(&server.url("/health")).expect(200);
    request("POST", &server.url("/write?db=other"), b"m v=7i 1", &[]).unwrap().expect(204);
    for round in 0..50 {
        assert_eq!(some.value(), 2 * round);
        // Shards are unordered relative to each other; a sensor belongs to one shard.
        let mut heard: Vec<String> = (0..3).map(|_| all.next().unwrap().1.to_string()).collect();
        heard.sort();
        let expected = [
            json!({ "sensor": "m,site=lab", "tags": { "site": "lab" }, "reading": { "ts": 100, "v": 2 * round, "w": 1 } }),
            json!({ "sensor": "m,site=roof", "tags": { "site": "roof" }, "reading": { "ts": 100, "v": 2 * round + 1 } }),
            json!({ "sensor": "n,site=lab", "tags": { "site": "lab" }, "reading": { "ts": 100, "w": 1 } }),
        ];
        let mut expected: Vec<String> = expected.iter().map(Value::to_string).collect();
        expected.sort();
        assert_eq!(heard, expected);
    }
    assert_eq!(other.value(), 7, "of its database alone");
}

#[test]
fn a_reconnect_misses_nothing_or_reports_a_gap() {
    let server = Launch::embedded().start();
    let mut client = TailClient::open(&server, "", &[]);
    write(&server, "m v=1i 1\nm v=2i 2\nm v=3i 3");
    assert_eq!((client.value(), client.value()), (1, 2));
    let id = client.id.clone();
    drop(client);
    write(&server, "m v=4i 4");
    let mut reconnected = TailClient::open(&server, "", &[("Last-Event-ID", &id)]);
    assert_eq!((reconnected.value(), reconnected.value()), (3, 4), "the rest of the same write, and the next one");
    let mut lost = TailClient::open(&server, "", &[("Last-Event-ID", "1-0")]);
    assert_eq!(lost.next().unwrap(), ("missed".to_owned(), json!({ "readings": null })));
}

/// A client that does not read delays no write, and later learns how many readings it missed.
#[test]
fn a_slow_stream_reports_the_missed_readings() {
    let server = Launch::embedded().env("HOURGLASS_TAIL_BYTES", "256KiB").env("HOURGLASS_TAIL_CLIENTS", "4").start();
    let mut slow = TailClient::open(&server, "", &[]);
    let mut written = 0_i64;
    let text = "x".repeat(4000);
    // 40 MB, more than the kernel's buffers take, in records that fit into the ring.
    for _ in 0..500 {
        let line = |at: i64| format!("m v={at}i,text=\"{text}\" {}", at + 1);
        write(&server, &(written..written + 20).map(line).collect::<Vec<_>>().join("\n"));
        written += 20;
    }
    let mut heard = 0;
    let mut missed = 0;
    let mut unknown = false;
    let mut last = -1;
    while heard + missed < written && !unknown {
        match slow.next().expect("an event") {
            (kind, payload) if kind == "missed" => match payload["readings"].as_i64() {
                Some(count) => missed += count,
                None => unknown = true,
            },
            (_, payload) => {
                let value = payload["reading"]["v"].as_i64().unwrap();
                assert!(value > last, "{value} after {last}");
                (heard, last) = (heard + 1, value);
            }
        }
    }
    assert!(missed > 0 || unknown, "{heard} heard of {written}: it was not slow enough");
    assert!(unknown || heard + missed == written, "{heard} heard and {missed} missed of {written}");
}

/// Regression: one record overflowed a client's queue, so a fast reader got 171 of 3,000 readings.
#[test]
fn a_fast_reader_misses_nothing() {
    // The ring has 8 MiB, and each client 8 KiB.
    let server = Launch::embedded().env("HOURGLASS_TAIL_BYTES", "16MiB").env("HOURGLASS_TAIL_CLIENTS", "1024").start();
    let rounds = 3;
    let lines = 5000;
    let text = "x".repeat(40_000);
    let mut client = TailClient::open(&server, "", &[]);
    let line = |at: i64| match at % lines {
        7 => format!("m v={at}i,text=\"{text}\" {}", at + 1),
        _ => format!("m v={at}i {}", at + 1),
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                write(&server, &(round * lines..(round + 1) * lines).map(line).collect::<Vec<_>>().join("\n"));
            }
        });
        (0..rounds * lines).for_each(|at| assert_eq!(client.value(), at));
    });
}

#[test]
fn streams_are_limited_and_leaving_makes_room() {
    let server = Launch::embedded().env("HOURGLASS_TAIL_CLIENTS", "2").env("HOURGLASS_QUERY_CONCURRENT", "1").start();
    let ears = [TailClient::open(&server, "", &[]), TailClient::open(&server, "", &[])];
    let refused = get(&server.url("/api/v1/tail")).expect(503).json();
    assert!(refused["error"].as_str().unwrap().contains("tail.clients") && refused["code"] == "busy", "{refused}");
    get(&server.url("/api/v1/measurements")).expect(200);
    drop(ears);
    wait_until("room again", || TailClient::open(&server, "", &[]).status == 200);
    for (query, word) in [("tag.meta.site=lab", "metadata"), ("limit=3", "unknown parameter"), ("tag.a=~(", "regex")] {
        let refused = get(&server.url(&format!("/api/v1/tail?{query}"))).expect(400).json();
        assert!(refused["error"].as_str().unwrap().contains(word), "{refused}");
    }
}

#[test]
fn a_stream_ends_with_its_token_and_respects_its_rights() {
    let (server, admin) = start_with_auth("");
    let pinned = create(&server, &["--name", "pinned", "--read", "a", "--sensor-tag", "site=lab"]);
    let of_other = create(&server, &["--name", "other", "--read", "b"]);
    let [pinned, of_other] = [pinned, of_other].map(|token| format!("Token {token}"));
    assert_eq!(TailClient::open(&server, "db=a", &[]).status, 401);
    assert_eq!(TailClient::open(&server, "db=a", &[("Authorization", &of_other)]).status, 403);
    let mut client = TailClient::open(&server, "db=a", &[("Authorization", &pinned)]);
    with(&admin, "POST", &server.url("/write?db=a"), "m,site=roof v=1i\nm,site=lab v=2i").expect(204);
    assert_eq!(client.value(), 2, "the other sensor is hidden");
    with(&admin, "POST", &server.url("/api/v1/tokens/pinned/revoke"), "").expect(200);
    let (kind, payload) = client.next().expect("an end");
    assert_eq!(kind, "end", "{payload}");
    assert!(client.next().is_none(), "nothing follows");
}

/// Regression: a stream of one sensor went on after a rename to a name that the token may not read.
#[test]
fn a_stream_uses_shown_names_and_hides_forbidden_ones() {
    let (server, admin) = start_with_auth("");
    let pinned = create(&server, &["--name", "pinned", "--read", "*", "--sensor-tag", "room=lab"]);
    let [pinned, all] = [&pinned, &admin].map(|token| format!("Token {token}"));
    let write = |room: &str, value: i64| {
        let line = format!("climate,room={room},sensor=s1 v={value}i {value}");
        with(&admin, "POST", &server.url("/write?db=a&precision=s"), &line).expect(204);
    };
    let mut theirs =
        TailClient::open(&server, "db=a&sensor=climate,room%3Dlab,sensor%3Ds1", &[("Authorization", &pinned)]);
    let mut old = TailClient::open(&server, "db=a&tag.room=lab", &[("Authorization", &all)]);
    let mut new = TailClient::open(&server, "db=a&tag.room=hall", &[("Authorization", &all)]);
    write("lab", 1);
    assert_eq!((theirs.value(), old.value()), (1, 1));
    let hall = json!({"kind": "tag_value", "tag": "room", "from": "lab", "to": "hall"}).to_string();
    with(&admin, "PUT", &server.url("/api/v1/renames?db=a"), &hall).expect(200);
    write("lab", 2);
    write("hall", 3);
    assert_eq!((new.value(), new.value()), (2, 3));
    let entry = "/api/v1/renames?db=a&kind=tag_value&tag=room&from=lab";
    with(&admin, "DELETE", &server.url(entry), "").expect(200);
    write("lab", 4);
    assert_eq!((theirs.value(), old.value()), (4, 4), "readings shown as room=hall are hidden");
}

#[test]
fn a_silent_stream_stays_open_and_delays_no_stop() {
    let mut server = Launch::embedded().env("HOURGLASS_SERVER_IDLE_TIMEOUT", "100ms").start();
    let mut client = TailClient::open(&server, "", &[]);
    // Longer than the idle timeout, which is checked every second.
    let start = Instant::now();
    poll(Duration::from_secs(20), || (start.elapsed() > Duration::from_secs(3)).then_some(()));
    write(&server, "m v=1i 1");
    assert_eq!(client.value(), 1);
    // An unfinished request would fail the stop.
    assert!(server.stop().success());
    assert_eq!(client.next().map(|(kind, _)| kind).as_deref(), Some("end"));
}
