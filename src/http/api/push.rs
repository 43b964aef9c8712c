//! Prometheus remote write and OTLP metrics: their headers, the decompression of the former, and the answers of the
//! latter.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::http::errors::{ApiError, ApiResult, Dialect, PROTOBUF, respond_partial, v1_message};
use crate::http::server::body::ReadBody;
use crate::ingest::Ack;
use crate::wire::push::otlp::export_response;

/// Maximum ratio of snappy: an element of three bytes makes at most 64.
const SNAPPY_RATIO_MAX: usize = 22;

/// Checks the headers of a push. Removes the `Content-Encoding` of a remote write, because snappy cannot be decompressed
/// while the body arrives.
pub fn check_headers(dialect: Dialect, headers: &mut HeaderMap) -> ApiResult<()> {
    let value = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().trim();
    let content_type = value(header::CONTENT_TYPE);
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    let is_protobuf = media_type.eq_ignore_ascii_case(PROTOBUF);
    match dialect {
        Dialect::RemoteWrite if content_type.contains("io.prometheus.write.v2") => Err(ApiError::MediaType(
            "remote write 2.0 is not supported: send 1.0 (protobuf_message: prometheus.WriteRequest)".to_owned(),
        )),
        Dialect::RemoteWrite if is_protobuf && value(header::CONTENT_ENCODING).eq_ignore_ascii_case("snappy") => {
            headers.remove(header::CONTENT_ENCODING);
            Ok(())
        }
        Dialect::RemoteWrite => Err(ApiError::MediaType(format!(
            "this is for Prometheus remote write 1.0 (Content-Type: {PROTOBUF}, Content-Encoding: snappy): send line protocol to /write, JSON to /api/v1/readings"
        ))),
        Dialect::Otlp if !is_protobuf => Err(ApiError::MediaType(format!(
            "this is for OTLP metrics in protobuf: send Content-Type: {PROTOBUF} (encoding: proto), or line protocol to /write"
        ))),
        _ => Ok(()),
    }
}

/// Returns the bytes of a remote write after decompression, as it claims; 0 if it is damaged.
pub fn plain_bytes(body: &[u8]) -> usize {
    snap::raw::decompress_len(body).unwrap_or(0)
}

/// Decompresses a remote write. Its claimed length is checked before memory is reserved.
pub fn decompress(received: ReadBody, limit: usize) -> ApiResult<ReadBody> {
    let (body, mut admission) = received;
    let damaged = |reason: String| ApiError::Bad(format!("the snappy body is damaged: {reason}"));
    let length = snap::raw::decompress_len(&body).map_err(|error| damaged(error.to_string()))?;
    if length > limit {
        return Err(ApiError::TooLarge { limit, key: "limits.body_bytes" });
    }
    if length > body.len().saturating_mul(SNAPPY_RATIO_MAX) {
        return Err(damaged(format!("{} bytes cannot become {length}", body.len())));
    }
    admission.grow(length)?;
    let mut plain = vec![0; length];
    snap::raw::Decoder::new().decompress(&body, &mut plain).map_err(|error| damaged(error.to_string()))?;
    Ok((plain.into(), admission))
}

/// Answers an OTLP request. Senders do not retry a 400.
pub fn otlp_answer(ack: &Ack) -> Response {
    let Ack { accepted, rejected, .. } = ack;
    let is_undecodable = rejected.reasons.contains_key("protobuf");
    if is_undecodable || *accepted == 0 && rejected.count > 0 {
        return respond_partial(Dialect::Otlp, *accepted, rejected);
    }
    let message = if rejected.count > 0 { v1_message(*accepted, rejected) } else { String::new() };
    let response = export_response(rejected.line_count, &message);
    (StatusCode::OK, [(header::CONTENT_TYPE, PROTOBUF)], response).into_response()
}
