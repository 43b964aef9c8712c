//! Compressed bodies in every supported encoding.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// Compresses `times` repetitions of a piece as one member.
pub type Pack = fn(&[u8], usize) -> Vec<u8>;

/// Encodings by their name in `Content-Encoding`; clients use `deflate` for two.
pub const ENCODINGS: [(&str, Pack); 4] = [("gzip", gzip), ("deflate", zlib), ("deflate", deflate), ("zstd", zstd)];

pub fn gzip(piece: &[u8], times: usize) -> Vec<u8> {
    filled(GzEncoder::new(Vec::new(), Compression::default()), piece, times)
        .finish()
        .expect("writing to memory succeeds")
}

fn zlib(piece: &[u8], times: usize) -> Vec<u8> {
    filled(ZlibEncoder::new(Vec::new(), Compression::default()), piece, times)
        .finish()
        .expect("writing to memory succeeds")
}

/// Without the header and the checksum of zlib.
fn deflate(piece: &[u8], times: usize) -> Vec<u8> {
    filled(DeflateEncoder::new(Vec::new(), Compression::default()), piece, times)
        .finish()
        .expect("writing to memory succeeds")
}

fn zstd(piece: &[u8], times: usize) -> Vec<u8> {
    let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("a level that there is");
    filled(encoder, piece, times).finish().expect("writing to memory succeeds")
}

fn filled<Encoder: Write>(mut encoder: Encoder, piece: &[u8], times: usize) -> Encoder {
    for _ in 0..times {
        encoder.write_all(piece).expect("writing to memory succeeds");
    }
    encoder
}
