//! The one list of endpoints. Routes, what `GET /` says of them, the labels of their metrics and `/openapi.json` are all
//! made of it: what is served is described, and the other way round.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodRouter, get, post};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::SizeAbove;

use super::auth::Needs;
use super::errors::Dialect;
use super::known::{self, Parameter};
use super::{App, dead_letters, influx_query, lists, openapi, readings, sensors, status, summary, write};

/// An endpoint.
pub struct Endpoint {
    /// GET or POST.
    pub method: &'static str,
    /// With names in braces for what varies.
    pub path: &'static str,
    /// In one sentence.
    pub what: &'static str,
    /// What it takes in the URL.
    pub query: &'static [Parameter],
    /// What it takes as a body: media types, each with the name of its schema.
    pub body: &'static [Content],
    /// What it may answer.
    pub answers: &'static [&'static [Answer]],
    /// Whether its answers are worth compressing.
    pub compressed: bool,
    /// What whoever asks must be allowed.
    pub needs: Needs,
    /// Who answers.
    pub by: By,
}

/// Who answers an endpoint's requests.
pub enum By {
    /// Its route.
    Route(fn() -> MethodRouter<Arc<App>>),
    /// Whoever takes line protocol, by a short way: many devices send a single reading per request, and finding its route
    /// would take as long as judging it.
    Lines(Dialect),
}

/// A media type, and the name of its schema.
pub type Content = (&'static str, &'static str);

/// A status with what it means and the bodies it comes with.
pub type Answer = (u16, &'static str, &'static [Content]);

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";
const TEXT: &str = "text/plain";

const fn json(schema: &'static str) -> Content {
    (JSON, schema)
}

const LINES: &[Content] = &[(TEXT, "Text")];
const FORM: &[Content] = &[("application/x-www-form-urlencoded", "Form")];
/// The body of most failures.
pub const FAILED: &[Content] = &[json("Error")];
/// What every question may come to.
const ASKED: &[Answer] = &[
    (400, "A parameter that cannot be used, or a limit; the text names it.", FAILED),
    (503, "The answer cannot be complete now: try again.", FAILED),
];
/// Of ranges that are over.
pub const KNOWN: &[Answer] = &[(304, "The client has this answer already (`If-None-Match`).", &[])];
const READ: &[Answer] = &[(
    200,
    "Readings. In NDJSON and CSV the header X-Next-Cursor has `next`; of ranges that are over there is an ETag.",
    &[json("Readings"), (NDJSON, "Text"), (CSV, "Text")],
)];
const WINDOWS: &[Answer] =
    &[(200, "Windows; of ranges that are over with an ETag.", &[json("Windows"), (NDJSON, "Text"), (CSV, "Text")])];
const NOTHING: &[Answer] = &[(404, "No such endpoint.", FAILED)];
const ELSEWHERE: &[Answer] = &[(404, "It has an address of its own (status.listen).", FAILED)];
const KEPT: &[Answer] = &[(204, "All readings are kept.", &[])];
/// What every write may come to, but for its own shape of errors.
const WRITTEN: &[Answer] = &[
    (400, "Some readings were not kept, or a parameter cannot be used.", FAILED),
    (413, "The body is too large (limits.body_bytes).", FAILED),
    (415, "An encoding that is not known.", FAILED),
    (429, "A quota is used up: try again when `Retry-After` says.", FAILED),
    (503, "Nothing is promised: send it again.", FAILED),
];
const FAILED_V2: &[Content] = &[json("ErrorV2")];
const WRITTEN_V2: &[Answer] = &[
    (400, "Some readings were not kept, or a parameter cannot be used.", FAILED_V2),
    (413, "The body is too large (limits.body_bytes).", FAILED_V2),
    (415, "An encoding that is not known.", FAILED_V2),
    (422, "Some fields were of another type than they had been.", FAILED_V2),
    (429, "A quota is used up: try again when `Retry-After` says.", FAILED_V2),
    (503, "Nothing is promised: send it again.", FAILED_V2),
];
const FAILED_V3: &[Content] = &[json("ErrorV3")];
const WRITTEN_V3: &[Answer] = &[
    (400, "Some readings were not kept, or a parameter cannot be used.", FAILED_V3),
    (413, "The body is too large (limits.body_bytes).", FAILED_V3),
    (415, "An encoding that is not known.", FAILED_V3),
    (429, "A quota is used up: try again when `Retry-After` says.", FAILED_V3),
    (503, "Nothing is promised: send it again.", FAILED_V3),
];
const ACKED: &[Answer] = &[
    (200, "All readings are kept.", &[json("Ack")]),
    (400, "Some readings were not kept, or a parameter cannot be used.", &[json("AckOrError")]),
    (403, "The token does not allow this.", &[json("AckOrError")]),
    (413, "The body is too large (limits.body_bytes).", FAILED),
    (415, "An encoding that is not known.", FAILED),
    (429, "A quota is used up: try again when `Retry-After` says.", FAILED),
    (503, "Nothing is promised: send it again.", FAILED),
];
const RESULTS: &[Answer] = &[
    (200, "A result per statement.", &[json("Results"), (CSV, "Text"), ("application/csv", "Text")]),
    (400, "The statements cannot be parsed.", &[json("Error"), (CSV, "Text"), ("application/csv", "Text")]),
    (503, "The answer cannot be complete now: try again.", FAILED),
];
const FORM_READ: &[Answer] =
    &[(413, "The body is too large (limits.body_bytes).", FAILED), (415, "An encoding that is not known.", FAILED)];
const HEALTHY: &[Answer] =
    &[(200, "Writes are acked.", &[json("Health")]), (503, "Writes are not acked.", &[json("Health")])];

macro_rules! endpoints {
    (@by lines $dialect:ident) => { By::Lines(Dialect::$dialect) };
    (@by route $route:expr) => { By::Route(|| $route) };
    ($($method:literal $path:literal, $needs:ident, $what:literal, $query:expr, $body:expr, $answers:expr, $compressed:expr, $how:ident $by:tt;)*) => {
        &[$(Endpoint {
            method: $method, path: $path, what: $what, query: $query, body: $body, answers: $answers,
            compressed: $compressed, needs: Needs::$needs, by: endpoints!(@by $how $by),
        }),*]
    };
}

/// Every endpoint.
pub const ENDPOINTS: &[Endpoint] = endpoints! {
    "GET" "/", Nothing, "this list", &[], &[], &[&[(200, "A line per endpoint.", LINES)]], true, route (get(status::endpoints));
    "GET" "/openapi.json", Nothing, "this list for programs: OpenAPI 3.1", &[], &[],
        &[&[(200, "This.", &[json("Anything")])]], true, route (get(openapi::document));
    "POST" "/api/v1/readings", Token, "write JSON readings: one object, an array, or NDJSON", known::WRITE,
        &[json("Written"), (NDJSON, "Text")], &[ACKED], false, route (post(write::native));
    "GET" "/api/v1/readings", Token, "raw readings", known::READINGS, &[], &[READ, KNOWN, ASKED], true, route (get(readings::readings));
    "GET" "/api/v1/summary", Token, "windows: summaries by step", known::SUMMARY, &[], &[WINDOWS, KNOWN, ASKED], true,
        route (get(summary::summary));
    "GET" "/api/v1/sensors", Token, "sensors with their fields, latest reading and outlier mark", known::SENSORS, &[],
        &[&[(200, "Sensors.", &[json("Sensors")])], ASKED], true, route (get(sensors::sensors));
    "GET" "/api/v1/latest", Token, "the latest reading of each sensor", known::LATEST, &[], &[READ, ASKED], true,
        route (get(sensors::latest));
    "GET" "/api/v1/measurements", Token, "measurements with how many sensors they have", known::LISTS, &[],
        &[&[(200, "Measurements.", &[json("Measurements")])], ASKED], true, route (get(lists::measurements));
    "GET" "/api/v1/tags", Token, "tag keys with how many values and sensors they have", known::LISTS, &[],
        &[&[(200, "Tag keys.", &[json("Tags")])], ASKED], true, route (get(lists::tags));
    "GET" "/api/v1/tags/{key}", Token, "a tag's values with how many sensors they have", known::LISTS, &[],
        &[&[(200, "Values.", &[json("Values")])], NOTHING, ASKED], true, route (get(lists::tag_values));
    "GET" "/api/v1/fields", Token, "fields with the type of their values", known::LISTS, &[],
        &[&[(200, "Fields.", &[json("Fields")])], ASKED], true, route (get(lists::fields));
    "POST" "/api/v1/flush", Admin, "204 when all that was acked before is in the store", &[], &[],
        &[&[(204, "It is.", &[]), (409, "All but dead letters, which cannot be stored.", &[json("NotStored")]),
            (503, "It is not yet.", FAILED)]], false, route (post(write::flush));
    "GET" "/api/v1/dead-letters", Admin, "readings that could not be stored, by lots with the reason", known::DEAD_LETTERS,
        &[], &[&[(200, "Lots.", &[json("DeadLetters")])], ASKED], true, route (get(dead_letters::list));
    "GET" "/api/v1/status", Metrics, "how far the store is behind: readings, seconds, bytes of the log", &[], &[],
        &[&[(200, "So far.", &[json("Status")])], ELSEWHERE], true, route (get(status::status));
    "POST" "/write", Token, "line protocol, as InfluxDB 1.x takes it", known::WRITE, LINES, &[KEPT, WRITTEN], false,
        lines V1;
    "POST" "/api/v2/write", Token, "line protocol, as InfluxDB 2.x takes it", known::WRITE_V2, LINES, &[KEPT, WRITTEN_V2], false,
        lines V2;
    "POST" "/api/v3/write_lp", Token, "line protocol, as InfluxDB 3 takes it", known::WRITE_V3, LINES, &[KEPT, WRITTEN_V3], false,
        lines V3;
    "GET" "/query", Token, "InfluxQL: SELECT, SHOW", known::QUERY, &[], &[RESULTS], true, route (get(influx_query::by_get));
    "POST" "/query", Token, "InfluxQL, CREATE DATABASE too; parameters in the URL or in a form", known::QUERY, FORM, &[RESULTS, FORM_READ], true,
        route (post(influx_query::by_post));
    "GET" "/ping", Nothing, "204, or the version with ?verbose=true", known::PING, &[],
        &[&[(204, "Here.", &[]), (200, "The version.", &[json("Version")])]], false, route (get(status::ping));
    "GET" "/health", Nothing, "whether writes are acked, and how the store does", &[], &[], &[HEALTHY], false, route (get(status::health));
    "GET" "/ready", Nothing, "200 while writes are acked, 503 otherwise", &[], &[],
        &[&[(200, "Writes are acked.", &[json("Ready")]), (503, "Writes are not acked.", &[json("Ready")])]], false,
        route (get(status::ready));
    "GET" "/settings", Nothing, "what QuestDB's clients ask before they write", &[], &[],
        &[&[(200, "Versions of line protocol.", &[json("Settings")])]], false, route (get(status::settings));
    "GET" "/metrics", Metrics, "metrics for Prometheus", &[], &[], &[&[(200, "Metrics.", LINES)], ELSEWHERE], true, route (get(status::metrics));
};

/// What there is at a path.
#[derive(Clone, Copy)]
pub struct Found {
    /// The endpoint for the method; `None` where there is none.
    pub endpoint: Option<&'static Endpoint>,
    /// The pattern that the path fits, or `other`: never the path as sent.
    pub route: &'static str,
}

/// What a request is about.
pub fn find(method: &Method, path: &str) -> Found {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut found = Found { endpoint: None, route: "other" };
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.is_at(path)) {
        found.route = endpoint.path;
        if endpoint.method == method {
            found.endpoint = Some(endpoint);
            break;
        }
    }
    found
}

/// The methods that a path is answered to.
pub fn methods(path: &str) -> Vec<&'static str> {
    let here = ENDPOINTS.iter().filter(|endpoint| endpoint.is_at(path)).map(|endpoint| endpoint.method);
    here.flat_map(|method| if method == "GET" { vec!["GET", "HEAD"] } else { vec![method] }).collect()
}

impl Endpoint {
    /// Whether its pattern takes a path.
    pub fn is_at(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            None => self.path == path,
            Some((before, _)) => path.strip_prefix(before).is_some_and(|rest| !rest.is_empty() && !rest.contains('/')),
        }
    }
}

/// An answer of fewer bytes is sent as it is: it fits into a packet anyway.
const COMPRESSED_FROM: u64 = 1024;

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    // Fast, as answers are built and compressed while others wait; writes are not touched.
    let compression =
        CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(SizeAbove::new(COMPRESSED_FROM));
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let route = match endpoint.by {
            By::Route(route) => route(),
            // Here for those alone who ask by another method.
            By::Lines(_) => MethodRouter::new(),
        };
        let route = if endpoint.compressed { route.layer(compression.clone()) } else { route };
        router = router.route(endpoint.path, route);
    }
    router.fallback(status::unknown).method_not_allowed_fallback(status::wrong_method).with_state(app)
}
