//! A request's body, read under three bounds: bytes on the wire and after decompression, bytes in
//! flight in the whole service, and time. Nothing is allocated from a length that a client claims.

use std::io::Read;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;

use super::App;
use super::errors::ApiError;
use crate::ingest::Admission;

/// Decompression takes its room in steps of this many bytes.
const STEP: usize = 64 * 1024;

/// Reads and decompresses a body. The returned place in the bytes in flight covers it.
pub async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<(Bytes, Admission), ApiError> {
    let gzip = is_gzip(headers)?;
    let limit = app.options.body_bytes;
    let mut admission = app.ingest.admission();
    let raw = receive(headers, body, &mut admission, limit, app.options.body_timeout).await?;
    app.metrics.body_bytes.increment(raw.len() as u64);
    if !gzip {
        return Ok((raw, admission));
    }
    Ok((decompress(&raw, &mut admission, limit)?.into(), admission))
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, ApiError> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim()) {
        None | Some("" | "identity") => Ok(false),
        Some("gzip" | "x-gzip") => Ok(true),
        Some(other) => Err(ApiError::Encoding(other.chars().take(64).collect())),
    }
}

async fn receive(
    headers: &HeaderMap,
    mut body: Body,
    admission: &mut Admission,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, ApiError> {
    let claimed = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
    if claimed.is_some_and(|claimed| claimed > limit) {
        return Err(ApiError::TooLarge { limit });
    }
    let frames = async {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::Bad(format!("the body broke off: {error}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > limit {
                return Err(ApiError::TooLarge { limit });
            }
            admission.grow(data.len())?;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    };
    tokio::time::timeout(timeout, frames).await.unwrap_or(Err(ApiError::BodyTimeout))
}

fn decompress(raw: &[u8], admission: &mut Admission, limit: usize) -> Result<Vec<u8>, ApiError> {
    let mut decoder = MultiGzDecoder::new(raw);
    let mut bytes = Vec::new();
    loop {
        admission.grow(STEP)?;
        let before = bytes.len();
        let step = decoder.by_ref().take(STEP as u64).read_to_end(&mut bytes);
        step.map_err(|error| ApiError::Bad(format!("the gzip body is damaged: {error}")))?;
        if bytes.len() > limit {
            return Err(ApiError::TooLarge { limit });
        }
        if bytes.len() == before {
            return Ok(bytes);
        }
    }
}
