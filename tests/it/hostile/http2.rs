//! Hostile HTTP/2 frames: too many streams, rapid resets, large heads. Memory stays flat.

use crate::support::prelude::*;

use super::{Memory, with_good_client};

/// Hostile connections at a time.
const CONNECTIONS: usize = 16;
const ROUNDS: usize = 8;
/// Maximum concurrent streams (`STREAMS_MAX` in `src/http/server/mod.rs`); many more end the connection.
const STREAMS: usize = 64;
const FEW_MORE: usize = 36;
const FLOOD: usize = 10_000;
/// Maximum memory growth: a few buffers per connection and unreturned memory; 20 MiB when measured.
const GROWTH_BYTES: u64 = 48 << 20;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Types, flags and reasons of frames (RFC 9113).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// Starts of answers in HPACK (RFC 7541): a table index, or three Huffman-coded digits.
const STATUS_200: &[u8] = &[0x88];
const STATUS_204: &[u8] = &[0x89];
const STATUS_431: &[u8] = &[0x48, 0x83, 0x69, 0x90, 0xff];

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let four = |number: usize| u32::try_from(number).expect("short").to_be_bytes();
    [&four(payload.len())[1..], &[kind, flags], &four(stream), payload].concat()
}

/// Returns the id of a connection's n-th stream.
fn stream(n: usize) -> usize {
    2 * n + 1
}

/// Returns the head of `POST /write?db=d` with a body to follow.
fn head() -> Vec<u8> {
    // :method and :scheme are in the table, as are the names of :path and :authority.
    [&[0x83, 0x86, 0x04][..], &text(b"/write?db=d"), &[0x01], &text(b"localhost")].concat()
}

/// Encodes a literal HPACK string with its length.
fn text(bytes: &[u8]) -> Vec<u8> {
    let mut coded = vec![u8::try_from(bytes.len().min(127)).expect("seven bits")];
    if let Some(mut rest) = bytes.len().checked_sub(127) {
        while rest >= 128 {
            coded.push(u8::try_from(rest % 128).expect("seven bits") | 128);
            rest /= 128;
        }
        coded.push(u8::try_from(rest).expect("seven bits"));
    }
    [coded, bytes.to_vec()].concat()
}

/// Encodes a header of this size: `0x00`, or `0x40` to index it.
fn header(how: u8, bytes: usize) -> Vec<u8> {
    [vec![how], text(b"x"), text(&vec![b'x'; bytes])].concat()
}

/// A received frame: type, stream and payload.
type Frame = (u8, usize, Vec<u8>);

struct Connection(Raw);

impl Connection {
    fn open(server: &Server) -> Connection {
        let mut raw = Raw::open(server.address());
        raw.0.set_write_timeout(Some(PATIENCE)).unwrap();
        raw.send([PREFACE, &frame(SETTINGS, 0, 0, &[])].concat());
        Connection(raw)
    }

    /// Returns the next frame, or `None` at the end of the connection.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let mut payload = vec![0; number(&head[..3])];
        self.fill(&mut payload)?;
        Some((head[3], number(&head[5..]), payload))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Option<()> {
        match self.0.0.read_exact(buffer) {
            Ok(()) => Some(()),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("neither answered nor closed within {PATIENCE:?}")
            }
            Err(_) => None,
        }
    }

    /// Reads `count` frames of a type, by stream.
    fn take(&mut self, kind: u8, count: usize) -> Vec<(usize, Vec<u8>)> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let (frame_kind, stream, payload) = self.next().expect("the connection is kept");
            if frame_kind == kind {
                taken.push((stream, payload));
            }
        }
        taken
    }

    /// Sends bytes that need not be read and waits for the end of the connection.
    fn end_by(&mut self, bytes: Vec<u8>) {
        self.0.try_send(bytes);
        while self.next().is_some() {}
    }
}

/// Lets many clients do the same at a time, repeatedly.
fn harm(what: &str, one: impl Fn(&Server) + Sync) {
    let server = Launch::embedded().config("[server]\nhttp2 = true\n").start();
    let before = Memory::measure(&server);
    with_good_client(&server, what, || {
        std::thread::scope(|threads| {
            for _ in 0..CONNECTIONS {
                threads.spawn(|| (0..ROUNDS).for_each(|_| one(&server)));
            }
        });
    });
    Memory::assert_growth_at_most(&server, before, GROWTH_BYTES);
}

#[test]
fn excess_streams_are_refused_and_the_others_answered() {
    let open = |from: usize, to: usize| -> Vec<u8> {
        (from..to).flat_map(|n| frame(HEADERS, END_HEADERS, stream(n), &head())).collect()
    };
    harm("streams", |server| {
        let mut client = Connection::open(server);
        client.0.send(open(0, STREAMS + FEW_MORE));
        for (n, refused) in client.take(RST_STREAM, FEW_MORE).into_iter().enumerate() {
            assert_eq!(refused, (stream(STREAMS + n), REFUSED_STREAM.to_vec()));
        }
        let body = |n: usize| frame(DATA, END_STREAM, stream(n), format!("m v={n} {n}").as_bytes());
        client.0.send((0..STREAMS).flat_map(body).collect::<Vec<u8>>());
        for (number, answer) in client.take(HEADERS, STREAMS) {
            assert!(answer.starts_with(STATUS_204), "{number}: {answer:x?}");
        }
        client.end_by(open(STREAMS + FEW_MORE, FLOOD));
    });
}

/// Regression: two connections that read nothing of 64 answers each held 2.4 GB.
#[test]
fn stalled_streams_respect_the_answer_budget() {
    let server = super::queries::with_data("[server]\nhttp2 = true\n");
    let before = super::queries::reset_and_measure(&server);
    // SETTINGS_INITIAL_WINDOW_SIZE of 0: no byte of a body may be sent.
    let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let path = format!("/query?db=h&q={}", encode("SELECT t FROM long LIMIT 100"));
    // :method GET and :scheme are in the table.
    let get = [&[0x82, 0x86, 0x04][..], &text(path.as_bytes()), &[0x01], &text(b"localhost")].concat();
    let both = [(); 2].map(|()| {
        let mut client = Connection::open(&server);
        client.0.send(no_window.clone());
        let ask = |n: usize| frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &get);
        client.0.send((0..STREAMS).flat_map(ask).collect::<Vec<u8>>());
        let heads = client.take(HEADERS, STREAMS);
        assert!(heads.iter().any(|(_, head)| head.starts_with(STATUS_200)), "{heads:x?}");
        client
    });
    Memory::assert_growth_at_most(&server, before, super::queries::GROWTH_BYTES);
    drop(both);
}

/// Rapid reset (CVE-2023-44487): each request costs two frames and never counts as concurrent.
#[test]
fn rapid_resets_end_the_connection() {
    let reset = |n: usize| [frame(HEADERS, END_HEADERS, stream(n), &head()), frame(RST_STREAM, 0, stream(n), &CANCEL)];
    let flood: Vec<u8> = (0..FLOOD).flat_map(reset).flatten().collect();
    harm("rapid resets", |server| Connection::open(server).end_by(flood.clone()));
}

#[test]
fn an_oversized_head_is_431() {
    let fields = header(0, 1000).repeat(20);
    harm("large heads", |server| {
        let mut client = Connection::open(server);
        client.0.send(frame(HEADERS, END_STREAM, stream(0), &[head(), fields[..10_000].to_vec()].concat()));
        client.0.send(frame(CONTINUATION, END_HEADERS, stream(0), &fields[10_000..]));
        let (_, answer) = client.take(HEADERS, 1).remove(0);
        assert!(answer.starts_with(STATUS_431), "{answer:x?}");
    });
}

/// An indexed header, repeated ten thousand times by one byte each: 40 MB.
#[test]
fn a_header_bomb_ends_the_connection() {
    let remembered = [head(), header(0x40, 3900), vec![0xbe; FLOOD]].concat();
    harm("heads that unpack", |server| {
        Connection::open(server).end_by(frame(HEADERS, END_HEADERS | END_STREAM, stream(0), &remembered));
    });
}

#[test]
fn an_endless_head_ends_the_connection() {
    let more = frame(CONTINUATION, 0, stream(0), &header(0, 1000)).repeat(FLOOD);
    let endless = [frame(HEADERS, END_STREAM, stream(0), &head()), more].concat();
    harm("endless heads", |server| Connection::open(server).end_by(endless.clone()));
}
