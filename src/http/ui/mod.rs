//! The page for people: `GET /` for browsers, and the files that it loads from `/ui/`. All of them are embedded in the binary, compressed
//! once, and tagged, so that a browser that has them is answered 304. Knows nothing of readings: the page asks the API.

use std::collections::HashMap;
use std::io::Write;
use std::sync::{Arc, LazyLock};

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::App;
use super::api::status;
use super::render::answer::knows;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// The page itself, which is served at `/`.
const PAGE: &str = "page.html";

macro_rules! assets {
    ($($kind:ident $name:literal)*) => {
        &[$(($name, $kind, include_bytes!(concat!("assets/", $name)).as_slice())),*]
    };
}

/// Name, media type and content of each file.
const ASSETS: &[(&str, &str, &[u8])] = assets! {
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

/// Headers of every file. The policy lets the page run the scripts of this service and nothing else, talk to this service and to nobody
/// else, and turn no text into markup or code (Trusted Types without any policy).
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

/// A file as it is sent.
struct Asset {
    media_type: &'static str,
    plain: &'static [u8],
    gzip: Bytes,
    /// Weak, since the compressed file has the same tag.
    tag: HeaderValue,
}

static PREPARED: LazyLock<HashMap<&'static str, Asset>> = LazyLock::new(|| {
    let prepare = |&(name, media_type, plain): &(&'static str, &'static str, &'static [u8])| {
        let tag = format!("W/\"{:016x}\"", rapidhash::v3::rapidhash_v3(plain));
        let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("W/\"\""));
        (name, Asset { media_type, plain, gzip: compressed(plain), tag })
    };
    ASSETS.iter().map(prepare).collect()
});

fn compressed(plain: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to a Vec cannot fail.
    let _ = encoder.write_all(plain);
    encoder.finish().unwrap_or_default().into()
}

/// The page, for `GET /` of a browser.
pub fn page(request: &HeaderMap) -> Response {
    let mut response =
        PREPARED.get(PAGE).map_or_else(|| StatusCode::NOT_FOUND.into_response(), |page| page.respond(request));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    response
}

/// `GET /ui/{key}`: a file of the page.
pub async fn asset(State(app): State<Arc<App>>, Path(name): Path<String>, uri: Uri, request: HeaderMap) -> Response {
    match PREPARED.get(&*name).filter(|_| app.settings.ui.enabled && name != PAGE) {
        Some(asset) => asset.respond(&request),
        None => status::unknown(uri).await,
    }
}

impl Asset {
    fn respond(&self, request: &HeaderMap) -> Response {
        let takes_gzip =
            request.get_all(header::ACCEPT_ENCODING).iter().any(|value| value.to_str().is_ok_and(takes_gzip));
        let is_known = self.tag.to_str().is_ok_and(|tag| knows(request, tag));
        let mut response = match (is_known, takes_gzip) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => ([(header::CONTENT_ENCODING, "gzip")], self.gzip.clone()).into_response(),
            (false, false) => self.plain.into_response(),
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.media_type));
        headers.insert(header::ETAG, self.tag.clone());
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        for (name, value) in &HEADERS {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether an `Accept-Encoding` names gzip, with a weight other than zero.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_none_or(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_compressed_for_those_who_take_it() {
        for (accepted, takes) in [
            ("gzip, deflate, br", true),
            ("br;q=1.0, GZIP;q=0.8", true),
            ("gzip;q=0", false),
            ("gzip;q=0.0", false),
            ("deflate", false),
            ("", false),
        ] {
            assert_eq!(takes_gzip(accepted), takes, "{accepted}");
        }
    }

    /// Every browser loads all of it before it shows anything.
    #[test]
    fn the_page_takes_at_most_200_kb() {
        let sum: usize = PREPARED.values().map(|asset| asset.gzip.len()).sum();
        assert!(sum <= 200_000, "{sum} bytes");
        println!("{sum} bytes compressed, {} as they are", ASSETS.iter().map(|asset| asset.2.len()).sum::<usize>());
    }

    #[test]
    fn no_file_has_a_script_or_a_style_inside_or_another_host() {
        for (name, _, bytes) in ASSETS.iter().filter(|asset| !asset.0.starts_with("uPlot")) {
            let text = std::str::from_utf8(bytes).expect("text");
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
