//! Compressed bodies: whatever they hold, a request is answered as the same one with what another decoder makes of it.

use std::io::{Read, Write};

use crate::served::{self, BODY_BYTES};

/// A content encoding, as the other half of its crate reads and writes it.
struct Encoding {
    name: &'static str,
    encode: fn(&[u8]) -> Vec<u8>,
    /// At most so many bytes and one more.
    decode: fn(&[u8], usize) -> std::io::Result<Vec<u8>>,
}

/// A new encoding is a line here.
const ENCODINGS: [Encoding; 4] = [
    Encoding {
        name: "gzip",
        encode: |plain| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory")
        },
        decode: |sent, limit| up_to(flate2::read::MultiGzDecoder::new(sent), limit),
    },
    Encoding {
        name: "deflate",
        encode: |plain| {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory")
        },
        // Bare deflate where the first two bytes are no head of zlib: RFC 1950, 2.2.
        decode: |sent, limit| match sent {
            [first, second, ..]
                if first & 0x0f == 8 && first >> 4 <= 7 && u16::from_be_bytes([*first, *second]).is_multiple_of(31) =>
            {
                let mut decoder = flate2::bufread::ZlibDecoder::new(sent);
                let plain = up_to(&mut decoder, limit)?;
                to_the_end(plain, decoder.into_inner(), limit)
            }
            _ => {
                let mut decoder = flate2::bufread::DeflateDecoder::new(sent);
                let plain = up_to(&mut decoder, limit)?;
                to_the_end(plain, decoder.into_inner(), limit)
            }
        },
    },
    Encoding {
        name: "zstd",
        encode: |plain| zstd::stream::encode_all(plain, 1).expect("memory"),
        decode: |sent, limit| {
            let mut decoder = zstd::stream::read::Decoder::new(sent)?;
            decoder.window_log_max(23)?;
            up_to(decoder, limit)
        },
    },
    Encoding { name: "identity", encode: <[u8]>::to_vec, decode: |sent, limit| up_to(sent, limit) },
];

fn up_to(decoder: impl Read, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    decoder.take(limit as u64 + 1).read_to_end(&mut plain)?;
    Ok(plain)
}

/// What was decoded, unless something follows its end.
fn to_the_end(plain: Vec<u8>, rest: &[u8], limit: usize) -> std::io::Result<Vec<u8>> {
    if plain.len() <= limit && !rest.is_empty() {
        return Err(std::io::Error::other("something follows its end"));
    }
    Ok(plain)
}

/// The first byte chooses encoding and endpoint, the second how the body is cut into chunks, the third whether the rest
/// is the body as sent, or what is to be compressed.
///
/// # Panics
/// Where the answer is not that to the decoded body.
pub fn check(data: &[u8]) {
    let Some(([choice, cut, form], rest)) = data.split_first_chunk::<3>() else { return };
    let encoding = &ENCODINGS[usize::from(choice & 0x0f) % ENCODINGS.len()];
    let path = ["/write", "/api/v2/write", "/api/v3/write_lp", "/api/v1/readings"][usize::from(choice >> 6)];
    // Repeated, what is to be compressed becomes longer than the limit.
    let repeated = || rest.repeat(1 << (form >> 4));
    let sent = if form & 1 == 0 { rest.to_vec() } else { (encoding.encode)(&repeated()) };
    if sent.len() > BODY_BYTES {
        return;
    }
    let found = served::ask(&request(path, encoding.name, &sent, *cut));
    // Clients that say gzip of every body send an empty one as nothing at all.
    let decoded = if sent.is_empty() { Ok(Vec::new()) } else { (encoding.decode)(&sent, BODY_BYTES) };
    match decoded {
        Ok(plain) if plain.len() > BODY_BYTES => assert_eq!(found.status, 413, "{}", shown(&found)),
        Ok(plain) => assert_eq!(found, served::ask(&request(path, "identity", &plain, 0)), "{}", shown(&found)),
        // Damage behind more than is allowed need not be found.
        Err(_) => assert!(matches!(found.status, 400 | 413), "{}", shown(&found)),
    }
}

fn shown(answer: &served::Answer) -> String {
    format!("{} {}", answer.status, String::from_utf8_lossy(&answer.body))
}

/// With its length stated, or in chunks of so many bytes.
fn request(path: &str, encoding: &str, body: &[u8], cut: u8) -> Vec<u8> {
    let head = format!("POST {path}?db=d HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-encoding: {encoding}\r\n");
    let mut request = head.into_bytes();
    if cut == 0 {
        request.extend(format!("content-length: {}\r\n\r\n", body.len()).as_bytes());
        request.extend(body);
        return request;
    }
    request.extend(b"transfer-encoding: chunked\r\n\r\n");
    // A body of single bytes is sent, too, but not of 64 KiB of them.
    for chunk in body.chunks(usize::from(cut).max(body.len() / 1000)) {
        request.extend(format!("{:x}\r\n", chunk.len()).as_bytes());
        request.extend(chunk);
        request.extend(b"\r\n");
    }
    request.extend(b"0\r\n\r\n");
    request
}
