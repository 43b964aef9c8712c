//! The web page: `GET /` for browsers, and its files under `/ui/`. All files are embedded in the binary and have an
//! ETag. The page reads its data from the API.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::App;
use super::api::status;
use super::render::answer::has_tag;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// The page, served at `/`.
const PAGE: &str = "page.html";

macro_rules! assets {
    ($($kind:ident $name:literal)*) => {
        &[$(Asset { name: $name, media_type: $kind, content: include_bytes!(concat!("assets/", $name)) }),*]
    };
}

/// A file of the page.
struct Asset {
    name: &'static str,
    media_type: &'static str,
    content: &'static [u8],
}

const ASSETS: &[Asset] = assets! {
    HTML "page.html"
    STYLE "page.css"
    IMAGE "icon.svg"
    SCRIPT "main.js"
    SCRIPT "dom.js"
    SCRIPT "api.js"
    SCRIPT "state.js"
    SCRIPT "format.js"
    SCRIPT "quote.js"
    SCRIPT "snippets.js"
    SCRIPT "chart.js"
    SCRIPT "stream.js"
    SCRIPT "key.js"
    SCRIPT "filters.js"
    SCRIPT "copies.js"
    SCRIPT "connect.js"
    SCRIPT "explore.js"
    SCRIPT "series.js"
    SCRIPT "states.js"
    SCRIPT "live.js"
    SCRIPT "sensors.js"
    SCRIPT "rejections.js"
    SCRIPT "explain.js"
    SCRIPT "health.js"
    SCRIPT "settings.js"
    SCRIPT "uPlot.iife.min.js"
    STYLE "uPlot.min.css"
    TEXT "uPlot.LICENSE"
};

/// Headers of all files. The Content-Security-Policy allows only scripts of this service and requests to this service,
/// and forbids turning text into markup or code (Trusted Types without a policy).
static HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Answers `GET /` of a browser with the page.
pub fn page(request: &HeaderMap) -> Response {
    let mut response = file(PAGE, request).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response());
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// `GET /ui/{key}`: a file of the page.
pub async fn asset(State(app): State<Arc<App>>, Path(name): Path<String>, uri: Uri, request: HeaderMap) -> Response {
    let found = if app.settings.ui.enabled && name != PAGE { file(&name, &request) } else { None };
    match found {
        Some(response) => response,
        None => status::not_found(uri).await,
    }
}

fn file(name: &str, request: &HeaderMap) -> Option<Response> {
    let Asset { media_type, content, .. } = ASSETS.iter().find(|asset| asset.name == name)?;
    // A weak tag, because the compressed file has the same one.
    let tag = format!("W/\"{:016x}\"", rapidhash::v3::rapidhash_v3(content));
    let mut response =
        if has_tag(request, &tag) { StatusCode::NOT_MODIFIED.into_response() } else { content.into_response() };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::ETAG, HeaderValue::from_str(&tag).ok()?);
    for (name, value) in &HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_no_inline_scripts_or_styles_and_no_other_hosts() {
        for Asset { name, content, .. } in ASSETS.iter().filter(|asset| !asset.name.starts_with("uPlot")) {
            let text = std::str::from_utf8(content).expect("text");
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "localStorage",
            ] {
                assert!(!text.contains(forbidden), "{name}: {forbidden}");
            }
            if *name == PAGE {
                assert!(!text.contains("style=") && !text.contains("<style") && !text.contains(" on"), "{name}");
                assert!(
                    !text.contains("//") || text.matches("//").count() == text.matches("http://www.w3.org").count(),
                    "{name}"
                );
            }
        }
    }
}
