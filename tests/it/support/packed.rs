//! Bodies as clients pack them, by every encoding that is read. Knows no server.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

/// Packs a piece, so many times over, as one member.
pub type Pack = fn(&[u8], usize) -> Vec<u8>;

/// Every encoding by its name in `Content-Encoding`; clients say `deflate` of two.
pub const ENCODINGS: [(&str, Pack); 4] = [("gzip", gzip), ("deflate", zlib), ("deflate", deflate), ("zstd", zstd)];

/// What `gzip` makes of a piece, so many times over.
pub fn gzip(piece: &[u8], times: usize) -> Vec<u8> {
    filled(GzEncoder::new(Vec::new(), Compression::default()), piece, times).finish().expect("memory takes all")
}

fn zlib(piece: &[u8], times: usize) -> Vec<u8> {
    filled(ZlibEncoder::new(Vec::new(), Compression::default()), piece, times).finish().expect("memory takes all")
}

/// Without the head and the checksum that the name means.
fn deflate(piece: &[u8], times: usize) -> Vec<u8> {
    filled(DeflateEncoder::new(Vec::new(), Compression::default()), piece, times).finish().expect("memory takes all")
}

fn zstd(piece: &[u8], times: usize) -> Vec<u8> {
    let encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("a level that there is");
    filled(encoder, piece, times).finish().expect("memory takes all")
}

fn filled<Encoder: Write>(mut encoder: Encoder, piece: &[u8], times: usize) -> Encoder {
    for _ in 0..times {
        encoder.write_all(piece).expect("memory takes all");
    }
    encoder
}
