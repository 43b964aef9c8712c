//! The list of endpoints. Routes, the text of `GET /`, metric labels and `/openapi.json` are all generated from it, so
//! an endpoint is served exactly if it is described.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use super::admin::{backup, databases, dead_letters, jobs, rejections, renames, tokens};
use super::api::{explain, groups, lists, meta, overview, readings, sensors, status, summary, tail, write};
use super::errors::Dialect;
use super::influx::query;
use super::server::auth::Needs;
use super::{App, openapi, ui};

pub struct Endpoint {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`; `HEAD` is derived from `GET`.
    pub method: &'static str,
    /// Variable parts are names in braces.
    pub path: &'static str,
    /// One phrase, shown by `GET /` and as the OpenAPI summary.
    pub what: &'static str,
    /// Query parameters, separated by spaces: keys of `openapi/parameters.json`. Those of one name, but with several
    /// descriptions, differ behind a hyphen.
    pub query: &'static str,
    /// Media types of the request body, each with the name of its schema.
    pub body: &'static [MediaType],
    /// The first one of a status counts.
    pub answers: &'static [&'static [DescribedAnswer]],
    /// What the caller must be allowed to do.
    pub needs: Needs,
    pub by: Handler,
}

/// How requests reach the code that answers them.
pub enum Handler {
    /// Through the router.
    Route(fn() -> MethodRouter<Arc<App>>),
    /// Directly to the write handler: many devices send one reading per request, and routing would take as long as
    /// validating it.
    Write(Dialect),
}

/// A media type, and the name of its schema.
pub type MediaType = (&'static str, &'static str);

/// A status, its description, and the media types of its body.
pub type DescribedAnswer = (u16, &'static str, &'static [MediaType]);

const JSON: &str = "application/json";
const NDJSON: &str = "application/x-ndjson";
const CSV: &str = "text/csv";
const TEXT: &str = "text/plain";
const BYTES: &str = "application/octet-stream";

const fn json(schema: &'static str) -> MediaType {
    (JSON, schema)
}

const LINES: &[MediaType] = &[(TEXT, "Text")];
const FORM: &[MediaType] = &[("application/x-www-form-urlencoded", "Form")];
/// The body of failures, which differs by the endpoint's [dialect](Endpoint::failed).
pub const FAILED: &[MediaType] = &[json("Error")];
/// Failures of every read endpoint.
const ASKED: &[DescribedAnswer] = &[
    (400, "A parameter is invalid or a limit is exceeded; the text names it.", FAILED),
    (503, "A complete answer is not available now: try again.", FAILED),
];
/// For ranges that end in the past.
pub const NOT_MODIFIED: &[DescribedAnswer] = &[(304, "The client has this answer already (`If-None-Match`).", &[])];
const READ: &[DescribedAnswer] = &[(
    200,
    "Readings. In NDJSON and CSV the header X-Next-Cursor has `next`. Ranges that end in the past have an ETag.",
    &[json("Readings"), (NDJSON, "Text"), (CSV, "Text")],
)];
const WINDOWS: &[DescribedAnswer] =
    &[(200, "Windows. Ranges that end in the past have an ETag.", &[json("Windows"), (NDJSON, "Text"), (CSV, "Text")])];
const NOTHING: &[DescribedAnswer] = &[(404, "No such endpoint.", FAILED)];
const ELSEWHERE: &[DescribedAnswer] = &[(404, "Served only on the status address (status.listen).", FAILED)];
const KEPT: &[DescribedAnswer] = &[(204, "All readings are stored durably.", &[])];
/// Failures of every write.
const WRITTEN: &[DescribedAnswer] = &[
    (400, "Some readings were rejected, or a parameter is invalid.", FAILED),
    (429, "A quota is used up: try again after the time in `Retry-After`.", FAILED),
    (503, "The write is not acknowledged: send it again.", FAILED),
];
const UNPROCESSABLE: &[DescribedAnswer] = &[(422, "Some fields have another type than before.", FAILED)];
/// Failures of every endpoint that reads a body.
const BODY_READ: &[DescribedAnswer] =
    &[(413, "The body is too large (limits.body_bytes).", FAILED), (415, "Content-Encoding is not supported.", FAILED)];

/// Stands before [`WRITTEN`], whose 400 it replaces.
const ACKED: &[DescribedAnswer] = &[
    (200, "All readings are stored durably.", &[json("Ack")]),
    (400, "Some readings were rejected, or a parameter is invalid.", &[json("AckOrError")]),
    (403, "The token does not allow this.", &[json("AckOrError")]),
];
const EXPLAINED: &[DescribedAnswer] = &[
    (200, "What the write would be answered, and what would become of each line.", &[json("Explanation")]),
    (413, "The body has more than 1,000 lines or 256 KiB.", FAILED),
];
const RESULTS: &[DescribedAnswer] = &[
    (200, "One result per statement.", &[json("Results"), (CSV, "Text"), ("application/csv", "Text")]),
    (400, "The statements cannot be parsed.", &[json("ErrorV1"), (CSV, "Text"), ("application/csv", "Text")]),
    (503, "A complete answer is not available now: try again.", FAILED),
];
pub const META_CHANGED: &[DescribedAnswer] = &[
    (200, "The metadata as it is now, with its ETag.", &[json("Anything")]),
    (204, "Changed. The token may not read what holds now.", &[]),
    (412, "The metadata is not as If-Match or If-None-Match says.", FAILED),
];
const HEALTHY: &[DescribedAnswer] =
    &[(200, "Writes are acked.", &[json("Health")]), (503, "Writes are not acked.", &[json("Health")])];

macro_rules! endpoints {
    (@by $method:ident write $dialect:path) => { Handler::Write($dialect) };
    (@by $method:ident route $handler:path) => { Handler::Route(|| on(MethodFilter::$method, $handler)) };
    ($($method:ident $path:literal, $needs:ident, $what:literal, $query:literal, $body:expr, $answers:expr, $how:ident $by:path;)*) => {
        &[$(Endpoint {
            method: stringify!($method), path: $path, what: $what, query: $query, body: $body, answers: $answers,
            needs: Needs::$needs, by: endpoints!(@by $method $how $by),
        }),*]
    };
}

pub const ENDPOINTS: &[Endpoint] = endpoints! {
    GET "/", Nothing, "this list; for browsers a page", "", &[],
        &[&[(200, "One line per endpoint; JSON and a page for those who prefer them.", &[(TEXT, "Text"), json("Anything"), ("text/html", "Text")])],
        NOT_MODIFIED], route status::front;
    GET "/ui/{key}", Nothing, "a file of the page", "", &[],
        &[&[(200, "The file.", &[("text/javascript", "Text"), ("text/css", "Text"), ("image/svg+xml", "Text"), (TEXT, "Text")])],
        NOT_MODIFIED, NOTHING], route ui::asset;
    GET "/openapi.json", Nothing, "this list as OpenAPI 3.1", "", &[], &[&[(200, "This document.", &[json("Anything")])]],
        route openapi::document;
    POST "/api/v1/readings", Token, "write JSON readings: one object, an array, or NDJSON", "db rp precision-write ack",
        &[json("Written"), (NDJSON, "Text")], &[ACKED, WRITTEN, BODY_READ], write Dialect::Native;
    POST "/api/v1/explain", Token, "what a write of this body would do, without keeping it",
        "db rp precision-write accept_partial ack", &[(TEXT, "Text"), json("Written"), (NDJSON, "Text")],
        &[EXPLAINED, BODY_READ, ASKED], route explain::explain;
    GET "/api/v1/readings", Token, "raw readings",
        "db sensor measurement tag.KEY from to precision fields order limit cursor max_points format guard epoch", &[],
        &[READ, NOT_MODIFIED, ASKED], route readings::readings;
    GET "/api/v1/summary", Token, "summaries of readings per time window",
        "db sensor measurement tag.KEY from to precision fields step epoch agg tz group_by fill format guard", &[],
        &[WINDOWS, NOT_MODIFIED, ASKED], route summary::summary;
    GET "/api/v1/sensors", Token, "sensors with their fields, latest reading and outlier flag",
        "db contains-sensors outlier silent recent limit cursor epoch", &[], &[&[(200, "Sensors.", &[json("Sensors")])], ASKED],
        route sensors::sensors;
    GET "/api/v1/sensors/{key}/meta", Token, "what is said of a sensor: its metadata", "db", &[],
        &[&[(200, "The metadata, with its ETag.", &[json("Anything")])], ASKED], route meta::show;
    PUT "/api/v1/sensors/{key}/meta", Token, "replace the metadata of a sensor", "db", &[json("Meta")],
        &[META_CHANGED, BODY_READ, ASKED], route meta::change;
    PATCH "/api/v1/sensors/{key}/meta", Token, "change the metadata of a sensor by a merge patch (RFC 7396)", "db",
        &[json("Meta")], &[META_CHANGED, BODY_READ, ASKED], route meta::change;
    GET "/api/v1/meta", Token, "the metadata of all sensors that have some", "db limit cursor", &[],
        &[&[(200, "Sensors with their metadata.", &[json("SensorMetas")])], ASKED], route meta::export;
    POST "/api/v1/meta", Token, "change the metadata of many sensors: NDJSON or CSV", "db dry_run",
        &[(NDJSON, "Text"), (CSV, "Text")], &[&[(200, "Every line was taken.", &[json("MetaImported")]),
        (400, "Some lines were refused; the others were taken.", &[json("MetaImportedOrError")])],
        BODY_READ, &[(503, "Not everything is acknowledged: send it again.", FAILED)]], route meta::import;
    GET "/api/v1/groups", Token, "declared groups of sensors, such as those of a site", "db", &[],
        &[&[(200, "Groups.", &[json("Groups")])], ASKED], route groups::list;
    GET "/api/v1/groups/{key}", Token, "the values of a group, each with its number of sensors", "db limit cursor", &[],
        &[&[(200, "Values.", &[json("GroupValues")])], ASKED], route groups::values;
    GET "/api/v1/groups/{key}/{value}", Token, "the sensors of a group's value with the latest reading of each",
        "db limit cursor epoch", &[], &[&[(200, "Sensors.", &[json("Sensors")])], ASKED], route groups::members;
    GET "/api/v1/latest", Token, "the latest reading of each sensor",
        "db sensor measurement tag.KEY limit cursor format guard epoch", &[], &[READ, ASKED], route sensors::latest;
    GET "/api/v1/tail", Token, "readings as they are acked, as server-sent events, until the client leaves",
        "db sensor measurement tag.KEY fields epoch", &[],
        &[&[(200, "One event per reading; `missed` and `end` say what they say.", &[("text/event-stream", "Text")])], ASKED],
        route tail::tail;
    GET "/api/v1/measurements", Token, "measurements, each with its number of sensors", "db sensor measurement tag.KEY", &[],
        &[&[(200, "Measurements.", &[json("Measurements")])], ASKED], route lists::measurements;
    GET "/api/v1/tags", Token, "tag keys, and names of metadata, each with its number of values and sensors",
        "db sensor measurement tag.KEY metadata", &[], &[&[(200, "Tag keys.", &[json("Tags")])], ASKED], route lists::tags;
    GET "/api/v1/tags/{key}", Token, "the values of a tag, or of metadata (`meta.NAME`), each with its number of sensors",
        "db sensor measurement tag.KEY", &[], &[&[(200, "Values.", &[json("Values")])], NOTHING, ASKED], route lists::tag_values;
    GET "/api/v1/fields", Token, "fields, each with the type of its values", "db sensor measurement tag.KEY", &[],
        &[&[(200, "Fields.", &[json("Fields")])], ASKED], route lists::fields;
    GET "/api/v1/caller", Token, "who the caller is to this service, and what it may do", "", &[],
        &[&[(200, "The caller.", &[json("Caller")])]], route tokens::caller;
    GET "/api/v1/tokens", Admin, "all tokens, without their secrets", "", &[], &[&[(200, "Tokens.", &[json("Tokens")])], ASKED],
        route tokens::list;
    POST "/api/v1/tokens", Admin, "make a token, whose text is in this answer and nowhere else", "", &[json("NewToken")],
        &[&[(201, "The token.", &[json("Token")]), (409, "The name is taken, or no token exists yet.", FAILED)],
        BODY_READ, ASKED], route tokens::create;
    POST "/api/v1/tokens/{key}/revoke", Admin, "end a token at once", "", &[], &[&[(200, "The token.", &[json("Token")]),
        (409, "There is no such token, or it is the caller's own.", FAILED)], ASKED], route tokens::revoke;
    POST "/api/v1/flush", Admin, "store all acked readings now: 204 when done", "", &[],
        &[&[(204, "All readings acked before are in the store.", &[]),
        (409, "All are in the store except dead letters.", &[json("NotStored")]),
        (503, "Not all are in the store yet: try again.", FAILED)]], route write::flush;
    GET "/api/v1/jobs", Admin, "background jobs: state, progress, last success, last error, next run", "", &[],
        &[&[(200, "Jobs.", &[json("Jobs")])], ASKED], route jobs::list;
    GET "/api/v1/jobs/{key}", Admin, "one background job", "", &[], &[&[(200, "The job.", &[json("Job")])], ASKED],
        route jobs::show;
    POST "/api/v1/jobs/{key}/run", Admin, "run a background job now: 200 when done", "run", &[],
        &[&[(200, "The run has ended.", &[json("Job")]), (202, "The run is under way: ask again with `run`.", &[json("Job")])],
        ASKED], route jobs::run;
    GET "/api/v1/backup", Admin, "what hourglass backup begins with: databases, tokens, instances that have not stored everything",
        "since", &[], &[&[(200, "What there is to back up.", &[json("Anything")])], ASKED], route backup::begin;
    GET "/api/v1/backup/days", Admin, "the UTC days that have readings or summaries, for hourglass backup", "db", &[],
        &[&[(200, "Days, counted from 1970-01-01.", &[json("Anything")])], ASKED], route backup::days;
    GET "/api/v1/backup/day", Admin, "all readings and summaries of a database and UTC day, for hourglass backup",
        "db day known", &[], &[&[(200, "The day, as docs/how-to/backup.md describes it.", &[(BYTES, "Text")]),
        (204, "The day has the digest given as `known`.", &[])], ASKED], route backup::day;
    GET "/api/v1/backup/sensors", Admin, "all sensors of a database with their metadata, for hourglass backup", "db known", &[],
        &[&[(200, "The sensors, as docs/how-to/backup.md describes them.", &[(BYTES, "Text")]),
        (204, "They have the digest given as `known`.", &[])], ASKED], route backup::sensors;
    POST "/api/v1/backup/proved", Admin, "tells the metric of proved backups that one was", "began", &[],
        &[&[(204, "Noted.", &[])], ASKED], route backup::proved;
    GET "/api/v1/dead-letters", Admin, "dead letters: readings that could not be stored, with the reason", "limit cursor", &[],
        &[&[(200, "Dead letters in chunks, each with its reason.", &[json("DeadLetters")])], ASKED], route dead_letters::list;
    GET "/api/v1/rejections", Token, "rejected lines and readings, for the database's administrators",
        "db-rejections code measurement-rejections contains-rejections from-rejections to-rejections limit format-rejections after",
        &[],
        &[&[(200, "The number of rejections by code, and the newest ones; or an export.", &[json("Rejections"), (TEXT, "Text")])],
        ASKED], route rejections::list;
    DELETE "/api/v1/rejections", Token, "remove rejections that need no more attention",
        "db code measurement-rejections contains-rejections from-rejections to-rejections through", &[],
        &[&[(200, "The number of removed rejections.", &[json("RejectionsRemoved")])], ASKED], route rejections::remove;
    GET "/api/v1/databases/{key}", Token, "how long a database keeps its readings, and its retention policies", "", &[],
        &[&[(200, "The settings.", &[json("Database")])], ASKED], route databases::show;
    PUT "/api/v1/databases/{key}", Token, "change how long a database keeps its readings and its other settings, as far as they are sent, or tell what would expire",
        "dry_run", &[json("DatabaseSettings")],
        &[&[(200, "The settings, or what would expire.", &[json("DatabaseOrExpiry")])], BODY_READ, ASKED],
        route databases::put;
    GET "/api/v1/renames", Token, "the renames of a database, for its administrators", "db", &[],
        &[&[(200, "Renames, by their stored names.", &[json("Renames")])], ASKED], route renames::list;
    PUT "/api/v1/renames", Token, "show a sensor, measurement, tag key or tag value under another name, or tell what that would do",
        "db dry_run", &[json("Rename")],
        &[&[(200, "How many sensors get another name.", &[json("Renamed")])], BODY_READ, ASKED], route renames::put;
    DELETE "/api/v1/renames", Token, "show a stored name again", "db dry_run kind from-rename tag measurement-rename", &[],
        &[&[(200, "How many sensors get another name.", &[json("Renamed")])], ASKED], route renames::delete;
    GET "/api/v1/overview", Metrics, "what an operator asks first: rates, acks, store, log, memory, disk, backup", "", &[],
        &[&[(200, "The overview.", &[json("Anything")])]], route overview::overview;
    GET "/api/v1/status", Metrics, "how far the store is behind the log: readings, seconds, bytes", "", &[],
        &[&[(200, "The status.", &[json("Status")])], ELSEWHERE], route status::status;
    POST "/write", Token, "write line protocol, compatible with InfluxDB 1.x", "db rp precision-write ack", LINES,
        &[KEPT, WRITTEN, BODY_READ], write Dialect::V1;
    POST "/api/v2/write", Token, "write line protocol, compatible with InfluxDB 2.x", "bucket precision-write ack", LINES,
        &[KEPT, WRITTEN, BODY_READ, UNPROCESSABLE], write Dialect::V2;
    POST "/api/v3/write_lp", Token, "write line protocol, compatible with InfluxDB 3", "db precision-write accept_partial ack",
        LINES, &[KEPT, WRITTEN, BODY_READ], write Dialect::V3;
    GET "/query", Token, "InfluxQL: SELECT, SHOW", "db rp q epoch-influx pretty chunked chunk_size params guard dry_run", &[],
        &[RESULTS], route query::query;
    POST "/query", Token, "InfluxQL, also CREATE, DROP and DELETE; parameters in the URL or in a form",
        "db rp q epoch-influx pretty chunked chunk_size params guard dry_run", FORM, &[RESULTS, BODY_READ], route query::query;
    GET "/ping", Nothing, "204, or the version with ?verbose=true", "verbose", &[],
        &[&[(204, "The service is running.", &[]), (200, "The version.", &[json("Version")])]], route status::ping;
    GET "/health", Nothing, "whether writes are acked, and the state of log, store and databases", "", &[], &[HEALTHY],
        route status::health;
    GET "/ready", Nothing, "200 while writes are acked, 503 otherwise", "", &[],
        &[&[(200, "Writes are acked.", &[json("Ready")]), (503, "Writes are not acked.", &[json("Ready")])]], route status::ready;
    GET "/settings", Nothing, "settings that QuestDB clients read before they write", "", &[],
        &[&[(200, "Supported versions of line protocol.", &[json("Settings")])]], route status::settings;
    GET "/metrics", Metrics, "metrics for Prometheus", "", &[], &[&[(200, "Metrics.", LINES)], ELSEWHERE], route status::metrics;
};

/// The result of [`find`].
#[derive(Clone, Copy)]
pub struct MatchedEndpoint {
    /// `None` if no endpoint has this path and method.
    pub endpoint: Option<&'static Endpoint>,
    /// The pattern that matches the path, or `other`; never the path as sent.
    pub route: &'static str,
}

/// Finds the endpoint of a request.
pub fn find(method: &Method, path: &str) -> MatchedEndpoint {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut found = MatchedEndpoint { endpoint: None, route: "other" };
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.is_at(path)) {
        found.route = endpoint.path;
        if endpoint.method == method {
            found.endpoint = Some(endpoint);
            break;
        }
    }
    found
}

/// The path without its trailing slash, if an endpoint is there and none is at the path itself.
pub fn without_slash(path: &str) -> Option<&str> {
    let shorter = path.strip_suffix('/')?;
    let is_there = |path: &str| ENDPOINTS.iter().any(|endpoint| endpoint.is_at(path));
    (is_there(shorter) && !is_there(path)).then_some(shorter)
}

/// The methods that a path supports.
pub fn methods(path: &str) -> Vec<&'static str> {
    let here = ENDPOINTS.iter().filter(|endpoint| endpoint.is_at(path)).map(|endpoint| endpoint.method);
    here.flat_map(|method| if method == "GET" { vec!["GET", "HEAD"] } else { vec![method] }).collect()
}

impl Endpoint {
    /// The names of its query parameters; `tag.KEY` stands for any that begins with `tag.`.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.query.split_whitespace().map(|key| key.split_once('-').map_or(key, |(name, _)| name))
    }

    /// The client family whose format its errors have.
    pub fn dialect(&self) -> Dialect {
        match self.by {
            Handler::Write(dialect) => dialect,
            Handler::Route(_) if self.path == "/query" => Dialect::V1,
            Handler::Route(_) => Dialect::Native,
        }
    }

    /// The body of its failures.
    pub fn failed(&self) -> &'static [MediaType] {
        match self.dialect() {
            Dialect::Native => FAILED,
            Dialect::V1 => &[(JSON, "ErrorV1")],
            Dialect::V2 => &[(JSON, "ErrorV2")],
            Dialect::V3 => &[(JSON, "ErrorV3")],
        }
    }

    /// Whether the pattern matches a path.
    pub fn is_at(&self, path: &str) -> bool {
        match self.path.split_once('{') {
            None => self.path == path,
            Some((before, _)) if !path.starts_with(before) => false,
            Some(_) => {
                let is_variable = |part: &str| part.starts_with('{');
                let mut sent = path.split('/');
                let fits =
                    |part: &str| sent.next().is_some_and(|sent| part == sent || is_variable(part) && !sent.is_empty());
                self.path.split('/').all(fits) && sent.next().is_none()
            }
        }
    }
}

/// Smaller answers are not compressed: they fit into one packet anyway.
const COMPRESSED_FROM: u64 = 1024;

pub fn router(app: Arc<App>) -> Router {
    // Events must not wait for others, and the parts of a backup are packed already.
    let is_worthwhile = SizeAbove::new(COMPRESSED_FROM)
        .and(NotForContentType::SSE)
        .and(NotForContentType::const_new("application/octet-stream"));
    // The fastest level, since compression shares the CPU with other requests. Request bodies are not affected.
    let compression = CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_worthwhile);
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let route = match endpoint.by {
            Handler::Route(route) => route(),
            // Registered only so that other methods on this path get 405.
            Handler::Write(_) => MethodRouter::new(),
        };
        // A path that has several methods has a route for each: axum merges them.
        router = router.route(endpoint.path, route);
    }
    router = router.fallback(status::unknown).method_not_allowed_fallback(status::wrong_method);
    router.layer(compression).with_state(app)
}
