//! A blocking HTTP client without connection reuse, so that a restart is harmless. Every status is an answer.

use std::sync::OnceLock;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::Agent;
use ureq::http::{HeaderMap, Method, Request};

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Headers, by lower-case name.
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a header is text"))
    }

    /// Notices about the answer; empty if there are none.
    pub fn notice(&self) -> &str {
        self.header("x-hourglass-notice").unwrap_or_default()
    }

    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let parsed = serde_json::from_slice(&self.body);
        parsed.unwrap_or_else(|error| panic!("status {}, no JSON ({error}): {}", self.status, self.text()))
    }

    /// Returns the error in the mandatory headers: `nosniff`, and no caching except revalidation with an ETag.
    pub fn header_fault(&self) -> Option<String> {
        let all = |name: &str| self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        let sniffed: Vec<&str> = all("x-content-type-options");
        let kept: Vec<&str> = all("cache-control");
        let expected = if self.headers.contains_key("etag") { "private, no-cache" } else { "no-store" };
        (sniffed != ["nosniff"] || kept != [expected]).then(|| format!("{}: {sniffed:?}, {kept:?}", self.status))
    }

    /// Panics with the body if the status differs; otherwise returns the answer.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self
    }
}

/// Percent-encodes a text for a URL.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[track_caller]
pub fn get(url: &str) -> Answer {
    answer(url, request("GET", url, b"", &[]))
}

#[track_caller]
pub fn post(url: &str, body: impl AsRef<[u8]>, headers: &[(&str, &str)]) -> Answer {
    answer(url, request("POST", url, body.as_ref(), headers))
}

/// Sends a request. Fails without a whole answer: refused, reset, cut, or after two minutes.
pub fn request(method: &str, url: &str, body: &[u8], headers: &[(&str, &str)]) -> Result<Answer, ureq::Error> {
    let mut request = Request::builder().method(Method::try_from(method).expect("a method's name")).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = if body.is_empty() && matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE") {
        agent().run(request.body(()).expect("a valid request"))?
    } else {
        agent().run(request.body(body).expect("a valid request"))?
    };
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec()?;
    Ok(Answer { status, headers, body })
}

#[track_caller]
fn answer(url: &str, outcome: Result<Answer, ureq::Error>) -> Answer {
    outcome.unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn agent() -> &'static Agent {
    static AGENT: OnceLock<Agent> = OnceLock::new();
    AGENT.get_or_init(|| {
        let config = Agent::config_builder().http_status_as_error(false);
        let config = config.max_redirects(0).max_redirects_will_error(false).proxy(None);
        let config = config.max_idle_connections(0).timeout_global(Some(Duration::from_secs(120)));
        config.build().new_agent()
    })
}
