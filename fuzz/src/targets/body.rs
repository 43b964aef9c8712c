//! Compressed bodies: the answer must be the same as to the uncompressed body that a reference decoder produces.

use std::io::{Read, Write};

use crate::served::{self, BODY_BYTES};

/// A content encoding, with a reference decoder and an encoder.
struct Encoding {
    name: &'static str,
    encode: fn(&[u8]) -> Vec<u8>,
    /// Decodes at most one byte more than the limit.
    decode: fn(&[u8], usize) -> std::io::Result<Vec<u8>>,
}

/// To add an encoding, add a line here.
const ENCODINGS: [Encoding; 4] = [
    Encoding {
        name: "gzip",
        encode: |plain| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory")
        },
        decode: |sent, limit| read_up_to(flate2::read::MultiGzDecoder::new(sent), limit),
    },
    Encoding {
        name: "deflate",
        encode: |plain| {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory")
        },
        // Raw deflate if the first two bytes are not a zlib header (RFC 1950, 2.2).
        decode: |sent, limit| match sent {
            [first, second, ..]
                if first & 0x0f == 8 && first >> 4 <= 7 && u16::from_be_bytes([*first, *second]).is_multiple_of(31) =>
            {
                let mut decoder = flate2::bufread::ZlibDecoder::new(sent);
                let plain = read_up_to(&mut decoder, limit)?;
                reject_trailing_bytes(plain, decoder.into_inner(), limit)
            }
            _ => {
                let mut decoder = flate2::bufread::DeflateDecoder::new(sent);
                let plain = read_up_to(&mut decoder, limit)?;
                reject_trailing_bytes(plain, decoder.into_inner(), limit)
            }
        },
    },
    Encoding {
        name: "zstd",
        encode: |plain| zstd::stream::encode_all(plain, 1).expect("memory"),
        decode: |sent, limit| {
            let mut decoder = zstd::stream::read::Decoder::new(sent)?;
            decoder.window_log_max(23)?;
            read_up_to(decoder, limit)
        },
    },
    Encoding { name: "identity", encode: <[u8]>::to_vec, decode: |sent, limit| read_up_to(sent, limit) },
];

fn read_up_to(decoder: impl Read, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

/// Returns the decoded bytes, or an error if data follows the end of the stream.
fn reject_trailing_bytes(plain: Vec<u8>, rest: &[u8], limit: usize) -> std::io::Result<Vec<u8>> {
    if plain.len() <= limit && !rest.is_empty() {
        return Err(std::io::Error::other("something follows its end"));
    }
    Ok(plain)
}

/// Checks a body. The first byte selects the encoding and the endpoint, and the second the size of chunks. The third
/// one decides if the rest is already compressed.
///
/// # Panics
/// If the answer differs from that to the decoded body.
pub fn check(data: &[u8]) {
    let Some(([choice, cut, form], rest)) = data.split_first_chunk::<3>() else { return };
    let encoding = &ENCODINGS[usize::from(choice & 0x0f) % ENCODINGS.len()];
    let path = ["/write", "/api/v2/write", "/api/v3/write_lp", "/api/v1/readings"][usize::from(choice >> 6)];
    // Repeated, so that it can exceed the limit.
    let repeated = || rest.repeat(1 << (form >> 4));
    let sent = if form & 1 == 0 { rest.to_vec() } else { (encoding.encode)(&repeated()) };
    if sent.len() > BODY_BYTES {
        return;
    }
    let found = served::ask(&request(path, encoding.name, &sent, *cut));
    // Some clients declare gzip for every body and send an empty body without compressing it.
    let decoded = if sent.is_empty() { Ok(Vec::new()) } else { (encoding.decode)(&sent, BODY_BYTES) };
    match decoded {
        Ok(plain) if plain.len() > BODY_BYTES => assert_eq!(found.status, 413, "{}", describe(&found)),
        Ok(plain) => assert_eq!(found, served::ask(&request(path, "identity", &plain, 0)), "{}", describe(&found)),
        // The server need not find damage behind the limit.
        Err(_) => assert!(matches!(found.status, 400 | 413), "{}", describe(&found)),
    }
}

fn describe(answer: &served::Answer) -> String {
    format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
}

/// Returns a request with a Content-Length, or in chunks of `cut` bytes.
fn request(path: &str, encoding: &str, body: &[u8], cut: u8) -> Vec<u8> {
    let head = format!(
        "POST {path}?db=d HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-encoding: {encoding}\r\n"
    );
    let mut request = head.into_bytes();
    if cut == 0 {
        request.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend(body);
        return request;
    }
    request.extend(b"transfer-encoding: chunked\r\n\r\n");
    // Chunks of one byte are possible, but at most about 1000 chunks.
    for chunk in body.chunks(usize::from(cut).max(body.len() / 1000)) {
        request.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend(chunk);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    request
}
