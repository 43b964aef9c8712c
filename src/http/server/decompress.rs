//! Decompresses a body while it arrives. Only the output is stored, after it was admitted. Memory is never allocated
//! from a length that a client claims.

use std::io::{self, Write};

use axum::http::{HeaderMap, header};
use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use crate::http::errors::{ApiError, ApiResult};

/// Output buffer size, in bytes.
const BUFFER_BYTES: usize = 16 << 10;
/// Maximum zstd window: 2^23 bytes (8 MiB) of decoder memory, enough for the program `zstd` up to level 19.
const ZSTD_WINDOW_LOG: u32 = 23;

/// A `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    /// One or several members.
    Gzip,
    /// zlib (RFC 9110), or raw deflate, as some clients send.
    Deflate,
    /// One or several frames.
    Zstd,
}

impl Encoding {
    /// Parses `Content-Encoding`. Several encodings are an error.
    pub fn from_headers(headers: &HeaderMap) -> ApiResult<Self> {
        let mut values = headers.get_all(header::CONTENT_ENCODING).iter();
        let Some(value) = values.next() else { return Ok(Self::Identity) };
        let name = value.to_str().unwrap_or("?").trim();
        let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known));
        let known = [
            (Self::Identity, &["", "identity"][..]),
            (Self::Gzip, &["gzip", "x-gzip"]),
            (Self::Deflate, &["deflate"]),
            (Self::Zstd, &["zstd"]),
        ];
        let found = known.into_iter().find(|(_, names)| is(names)).filter(|_| values.next().is_none());
        found.map(|(encoding, _)| encoding).ok_or_else(|| ApiError::Encoding(name.chars().take(64).collect()))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Identity => "plain",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    fn damaged_error(self, reason: impl std::fmt::Display) -> ApiError {
        ApiError::Bad(format!("the {} body is damaged: {reason}", self.name()))
    }
}

/// The receiver of decompressed bytes.
pub trait ByteSink {
    /// Appends bytes.
    ///
    /// # Errors
    /// If a limit is exceeded.
    fn push(&mut self, data: &[u8]) -> ApiResult<()>;
}

/// The decoder of one body.
pub enum Decoding<K: ByteSink> {
    Identity(K),
    Gzip(Box<MultiGzDecoder<SinkWriter<K>>>),
    Deflate(Deflate<K>),
    Zstd(Zstd<K>),
}

impl<K: ByteSink> Decoding<K> {
    pub fn new(encoding: Encoding, sink: K) -> ApiResult<Self> {
        Ok(match encoding {
            Encoding::Identity => Self::Identity(sink),
            Encoding::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(SinkWriter { sink, error: None }))),
            Encoding::Deflate => Self::Deflate(Deflate { sink, first: Vec::new(), inflate: None, has_ended: false }),
            Encoding::Zstd => {
                let mut decoder = Decoder::new().map_err(|error| encoding.damaged_error(error))?;
                let window = DParameter::WindowLogMax(ZSTD_WINDOW_LOG);
                decoder.set_parameter(window).map_err(|error| encoding.damaged_error(error))?;
                Self::Zstd(Zstd { sink, decoder, is_complete: true })
            }
        })
    }

    /// Decodes the next bytes of the body.
    pub fn push(&mut self, data: &[u8]) -> ApiResult<()> {
        match self {
            Self::Identity(sink) => sink.push(data),
            Self::Gzip(decoder) => decoder.write_all(data).map_err(|error| gzip_error(decoder, &error)),
            Self::Deflate(deflate) => deflate.push(data),
            Self::Zstd(zstd) => zstd.push(data),
        }
    }

    /// Returns the sink.
    ///
    /// # Errors
    /// If the body is incomplete.
    pub fn finish(self) -> ApiResult<K> {
        match self {
            Self::Identity(sink) => Ok(sink),
            Self::Gzip(mut decoder) => {
                decoder.try_finish().map_err(|error| gzip_error(&mut decoder, &error))?;
                let finished = decoder.finish().map_err(|error| Encoding::Gzip.damaged_error(error))?;
                Ok(finished.sink)
            }
            Self::Deflate(deflate) if deflate.has_ended => Ok(deflate.sink),
            Self::Deflate(_) => Err(Encoding::Deflate.damaged_error("it is truncated")),
            Self::Zstd(zstd) if zstd.is_complete => Ok(zstd.sink),
            Self::Zstd(_) => Err(Encoding::Zstd.damaged_error("it is truncated")),
        }
    }
}

/// Adapts a sink to [`Write`]. It keeps the [`ApiError`] of the sink, which does not fit into an `io::Error`.
pub struct SinkWriter<K: ByteSink> {
    sink: K,
    error: Option<ApiError>,
}

impl<K: ByteSink> Write for SinkWriter<K> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self.sink.push(data) {
            Ok(()) => Ok(data.len()),
            Err(error) => {
                self.error = Some(error);
                Err(io::Error::other("refused"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the error of the sink, else that of the decoder.
fn gzip_error<K: ByteSink>(decoder: &mut MultiGzDecoder<SinkWriter<K>>, error: &io::Error) -> ApiError {
    decoder.get_mut().error.take().unwrap_or_else(|| Encoding::Gzip.damaged_error(error))
}

/// zlib or raw deflate, distinguished by the first two bytes.
pub struct Deflate<K: ByteSink> {
    sink: K,
    /// Bytes before the format is known: at most one.
    first: Vec<u8>,
    inflate: Option<Decompress>,
    has_ended: bool,
}

impl<K: ByteSink> Deflate<K> {
    fn push(&mut self, data: &[u8]) -> ApiResult<()> {
        if self.inflate.is_some() {
            return self.inflate(data);
        }
        self.first.extend_from_slice(data);
        if self.first.len() < 2 {
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        self.inflate = Some(Decompress::new(is_zlib([first[0], first[1]])));
        self.inflate(&first)
    }

    fn inflate(&mut self, mut data: &[u8]) -> ApiResult<()> {
        let Some(inflate) = &mut self.inflate else { return Ok(()) };
        let mut piece = [0; BUFFER_BYTES];
        loop {
            if self.has_ended {
                if data.is_empty() {
                    return Ok(());
                }
                return Err(Encoding::Deflate.damaged_error("data follows its end"));
            }
            let before_in = inflate.total_in();
            let before_out = inflate.total_out();
            let status = inflate
                .decompress(data, &mut piece, FlushDecompress::None)
                .map_err(|error| Encoding::Deflate.damaged_error(error))?;
            let count = |after: u64, before: u64| usize::try_from(after - before).unwrap_or(usize::MAX);
            let read = count(inflate.total_in(), before_in);
            let written = count(inflate.total_out(), before_out);
            self.sink.push(&piece[..written])?;
            data = &data[read..];
            self.has_ended = status == Status::StreamEnd;
            // The input is consumed and the buffer is not full, so the decoder holds no more output.
            if !self.has_ended && data.is_empty() && written < BUFFER_BYTES {
                return Ok(());
            }
            if !self.has_ended && read == 0 && written == 0 {
                return Err(Encoding::Deflate.damaged_error("the decoder makes no progress"));
            }
        }
    }
}

/// Returns true for a zlib header: method deflate, a valid window size, and a correct header checksum. A raw deflate
/// stream begins like this only with a stored block whose padding bits are not zero, which no encoder writes.
fn is_zlib([first, second]: [u8; 2]) -> bool {
    first & 0x0f == 8 && first >> 4 <= 7 && (u16::from(first) << 8 | u16::from(second)) % 31 == 0
}

/// One or several zstd frames.
pub struct Zstd<K: ByteSink> {
    sink: K,
    decoder: Decoder<'static>,
    /// True if the input so far ends with a complete frame.
    is_complete: bool,
}

impl<K: ByteSink> Zstd<K> {
    fn push(&mut self, mut data: &[u8]) -> ApiResult<()> {
        let mut piece = [0; BUFFER_BYTES];
        loop {
            let status =
                self.decoder.run_on_buffers(data, &mut piece).map_err(|error| Encoding::Zstd.damaged_error(error))?;
            self.sink.push(&piece[..status.bytes_written])?;
            data = &data[status.bytes_read..];
            if status.bytes_read > 0 || status.bytes_written > 0 {
                self.is_complete = status.remaining == 0;
            }
            // The decoder can hold more output only if the buffer is full.
            if data.is_empty() && status.bytes_written < BUFFER_BYTES {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const LIMIT: usize = 200_000;

    #[derive(Default)]
    struct Sink(Vec<u8>);

    impl ByteSink for Sink {
        fn push(&mut self, data: &[u8]) -> ApiResult<()> {
            if self.0.len() + data.len() > LIMIT {
                return Err(ApiError::TooLarge { limit: LIMIT, key: "a limit" });
            }
            self.0.extend_from_slice(data);
            Ok(())
        }
    }

    /// The same bytes in every encoding.
    fn compress_all(plain: &[u8]) -> Vec<(Encoding, Vec<u8>)> {
        macro_rules! by {
            ($encoder:ident) => {{
                let mut encoder = $encoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }};
        }
        let zstd = zstd::stream::encode_all(plain, 3).unwrap();
        vec![
            (Encoding::Gzip, by!(GzEncoder)),
            (Encoding::Deflate, by!(ZlibEncoder)),
            (Encoding::Deflate, by!(DeflateEncoder)),
            (Encoding::Zstd, zstd),
        ]
    }

    fn unpack(encoding: Encoding, pieces: &[&[u8]]) -> ApiResult<Vec<u8>> {
        let mut decoding = Decoding::new(encoding, Sink::default())?;
        for piece in pieces {
            decoding.push(piece)?;
        }
        decoding.finish().map(|sink| sink.0)
    }

    #[test]
    fn bodies_decode_in_any_pieces_and_truncated_ones_fail() {
        let plain: Vec<u8> = (0..5000).flat_map(|n| format!("m,s={} v={n} {n}\n", n % 7).into_bytes()).collect();
        for (encoding, bytes) in compress_all(&plain) {
            for size in [1, 2, 3, 1000, bytes.len()] {
                let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
                assert_eq!(unpack(encoding, &pieces).unwrap(), plain, "{encoding:?} by {size}");
            }
            for end in [1, 2, 20, bytes.len() / 2, bytes.len() - 1] {
                let torn = unpack(encoding, &[&bytes[..end]]).unwrap_err();
                assert!(
                    torn.to_string().contains(&format!("the {} body is damaged", encoding.name())),
                    "{end}: {torn:?}"
                );
            }
            let mut followed = bytes.clone();
            followed.extend(b"m v=1\n");
            assert!(unpack(encoding, &[&followed]).is_err(), "{encoding:?}");
        }
    }

    #[test]
    fn several_members_and_frames_count_together() {
        for (encoding, bytes) in compress_all(&[b'#'; LIMIT / 2 - 10]) {
            if encoding != Encoding::Deflate {
                assert_eq!(unpack(encoding, &[&bytes, &bytes]).unwrap().len(), LIMIT - 20, "{encoding:?}");
                let three = unpack(encoding, &[&bytes, &bytes, &bytes]).unwrap_err();
                assert!(matches!(three, ApiError::TooLarge { .. }), "{encoding:?}: {three:?}");
            }
        }
        // A skippable frame may hold anything.
        let mut skipped = vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        skipped.extend(zstd::stream::encode_all(&b"m v=1"[..], 3).unwrap());
        assert_eq!(unpack(Encoding::Zstd, &[&skipped]).unwrap(), b"m v=1");
    }

    #[test]
    fn a_decompression_bomb_is_refused_at_the_limit() {
        for (encoding, bytes) in compress_all(&vec![0; 50 << 20]) {
            let bomb = unpack(encoding, &[&bytes]).unwrap_err();
            assert!(matches!(bomb, ApiError::TooLarge { .. }), "{encoding:?}: {bomb:?}");
        }
        // A frame that declares a window of 1 GiB is refused.
        let claim = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa0, 0x01, 0x00, 0x00];
        assert!(matches!(unpack(Encoding::Zstd, &[&claim]), Err(ApiError::Bad(_))));
    }

    #[test]
    fn a_list_of_encodings_is_refused() {
        let parse = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, value.parse().unwrap());
            }
            Encoding::from_headers(&headers).ok()
        };
        assert_eq!(parse(&[]), Some(Encoding::Identity));
        for (name, encoding) in [
            ("", Encoding::Identity),
            ("identity", Encoding::Identity),
            ("GZIP", Encoding::Gzip),
            ("x-gzip", Encoding::Gzip),
            ("deflate", Encoding::Deflate),
            ("zstd", Encoding::Zstd),
        ] {
            assert_eq!(parse(&[name]), Some(encoding), "{name}");
            assert_eq!(parse(&[name, "gzip"]), None, "{name}");
        }
        for unknown in ["br", "gzip, gzip", "gzip,", "snappy"] {
            assert_eq!(parse(&[unknown]), None, "{unknown}");
        }
    }
}
