//! The list of endpoints. Routes, the text of `GET /`, metric labels and `/openapi.json` are generated from it, so
//! every served endpoint is documented.

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, Uri};
use axum::routing::{MethodFilter, MethodRouter, on};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use super::admin::{backup, databases, dead_letters, instances, jobs, mappings, rejections, renames, tokens};
use super::api::{
    delete, documents, explain, groups, histogram, lists, meta, overview, readings, sensors, status, summary, tail,
    write,
};
use super::errors::{ApiError, ApiResult, Dialect, PROTOBUF};
use super::influx::{query, v2};
use super::pairs::Pairs;
use super::{App, export, openapi, ui};
use crate::access::Effect;
use crate::lanes::Lane;

/// An endpoint and its documentation.
pub struct Endpoint {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`; `HEAD` is derived from `GET`.
    pub method: &'static str,
    /// The route pattern, with variable parts in braces.
    pub path: &'static str,
    /// One phrase, shown by `GET /` and as the OpenAPI summary.
    pub summary: &'static str,
    /// Query parameters, separated by spaces: keys of `openapi/parameters.json`. A suffix after a hyphen distinguishes
    /// descriptions of parameters with the same name.
    pub query: &'static str,
    /// Media types of the request body.
    pub body: &'static [MediaType],
    /// The answers. The first description of a status takes precedence.
    pub answers: &'static [&'static [DescribedAnswer]],
    /// The effect that the caller's token must allow. It is checked before a body is read.
    pub effect: Effect,
    pub handler: Handler,
}

/// The code that answers requests.
pub enum Handler {
    /// Through the router.
    Route(fn() -> MethodRouter<Arc<App>>),
    /// Directly, without the router: many devices send one reading per request, and routing would take as long as its
    /// validation.
    Write(Dialect),
}

/// A media type and the name of its schema.
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

const LINES: &[MediaType] = &[(TEXT, "File")];
const MESSAGE: &[MediaType] = &[(PROTOBUF, "File")];
const MESSAGES: &[MediaType] = &[json("JsonObject"), (NDJSON, "File"), (TEXT, "File")];
const FORM: &[MediaType] = &[("application/x-www-form-urlencoded", "Form")];
/// The body of errors. Its format depends on the [dialect](Endpoint::error_body) of the endpoint.
pub const FAILED: &[MediaType] = &[json("Error")];
/// Errors of all read endpoints.
const ASKED: &[DescribedAnswer] = &[
    (400, "A parameter is invalid or a limit is exceeded; the error names it.", FAILED),
    (503, "A complete answer is not available at the moment: retry.", FAILED),
];
/// Answer for ranges that end in the past.
pub const NOT_MODIFIED: &[DescribedAnswer] = &[(304, "The answer has not changed (`If-None-Match`).", &[])];
const READ: &[DescribedAnswer] = &[(
    200,
    "Readings. In NDJSON and CSV the header X-Next-Cursor has `next`. Ranges that end in the past have an ETag.",
    &[json("Readings"), (NDJSON, "Text"), (CSV, "Text")],
)];
const WINDOWS: &[DescribedAnswer] = &[(
    200,
    "Windows. In NDJSON and CSV the header X-Next-Cursor has `next`. Ranges that end in the past have an ETag.",
    &[json("Windows"), (NDJSON, "Text"), (CSV, "Text")],
)];
const UNKNOWN: &[DescribedAnswer] = &[(404, "Nothing has this name.", FAILED)];
const NOTHING: &[DescribedAnswer] = &[(404, "No such endpoint.", FAILED)];
const ELSEWHERE: &[DescribedAnswer] = &[(404, "Served only on the status address (status.listen).", FAILED)];
const KEPT: &[DescribedAnswer] = &[(204, "All readings are stored durably.", &[])];
/// Errors of all writes.
const WRITTEN: &[DescribedAnswer] = &[
    (400, "Some readings were rejected, or a parameter is invalid.", FAILED),
    (429, "A quota is used up: retry after the time in `Retry-After`.", FAILED),
    (503, "The write is not acknowledged: retry.", FAILED),
];
/// Errors of Prometheus remote write, which drops what gets a 429.
const PUSHED: &[DescribedAnswer] = &[
    (400, "Some samples were rejected, or a parameter is invalid.", FAILED),
    (415, "The body is not remote write 1.0: protobuf, compressed with snappy.", FAILED),
    (503, "The write is not acknowledged, or a quota is used up: retry.", FAILED),
];
const EXPORTED: &[DescribedAnswer] = &[
    (200, "The data points are stored durably, except those counted in `partial_success`.", MESSAGE),
    (400, "All data points were rejected, the body is not protobuf, or a parameter is invalid.", FAILED),
    (415, "The body is not protobuf, or Content-Encoding is not supported.", FAILED),
];
const UNPROCESSABLE: &[DescribedAnswer] = &[(422, "Some fields have a different type than before.", FAILED)];
/// Errors of all endpoints that read a body.
const BODY_READ: &[DescribedAnswer] = &[
    (413, "The body is too large (limits.body_bytes).", FAILED),
    (415, "The body is CSV where JSON is expected, or its Content-Encoding is not supported.", FAILED),
];

/// Listed before [`WRITTEN`], so that its 400 takes precedence.
const ACKED: &[DescribedAnswer] = &[
    (200, "All readings are stored durably.", &[json("Ack")]),
    (400, "Some readings were rejected, or a parameter is invalid.", &[json("AckOrError")]),
    (403, "The token does not allow this.", &[json("AckOrError")]),
];
const EXPLAINED: &[DescribedAnswer] = &[
    (200, "The answer that the write would get, and the outcome of each line.", &[json("Explanation")]),
    (413, "The body has more than 1,000 lines or 256 KiB.", FAILED),
];
const RESULTS: &[DescribedAnswer] = &[
    (200, "One result per statement.", &[json("Results"), (CSV, "Text"), ("application/csv", "Text")]),
    (400, "The statements cannot be parsed.", &[json("ErrorV1"), (CSV, "Text"), ("application/csv", "Text")]),
    (503, "A complete answer is not available at the moment: retry.", FAILED),
];
pub const META_CHANGED: &[DescribedAnswer] = &[
    (200, "The changed metadata, with its ETag.", &[json("Anything")]),
    (204, "Changed. The token may not read the metadata.", &[]),
    (412, "If-Match or If-None-Match does not match the metadata.", FAILED),
];
const SETTINGS_CHANGED: &[DescribedAnswer] = &[(200, "The settings, or the preview.", &[json("DatabaseOrExpiry")])];
const HEALTHY: &[DescribedAnswer] =
    &[(200, "Writes are acked.", &[json("Health")]), (503, "Writes are not acked.", &[json("Health")])];

macro_rules! endpoints {
    (@handler $method:ident write $dialect:path) => { Handler::Write($dialect) };
    (@handler $method:ident route $handler:path) => { Handler::Route(|| on(MethodFilter::$method, $handler)) };
    ($($method:ident $path:literal, $effect:ident, $summary:literal, $query:literal, $body:expr, $answers:expr, $kind:ident $handler:path;)*) => {
        &[$(Endpoint {
            method: stringify!($method), path: $path, summary: $summary, query: $query, body: $body, answers: $answers,
            effect: Effect::$effect, handler: endpoints!(@handler $method $kind $handler),
        }),*]
    };
}

pub const ENDPOINTS: &[Endpoint] = endpoints! {
    GET "/", Public, "list endpoints; browsers get the page", "", &[],
        &[&[(200, "One line per endpoint, as text or JSON; the page for browsers.", &[(TEXT, "Text"), json("Anything"), ("text/html", "Text")])],
        NOT_MODIFIED], route status::front;
    GET "/ui/{key}", Public, "get a file of the page", "", &[],
        &[&[(200, "The file.", &[("text/javascript", "Text"), ("text/css", "Text"), ("image/svg+xml", "Text"), (TEXT, "Text")])],
        NOT_MODIFIED, NOTHING], route ui::asset;
    GET "/openapi.json", Public, "describe the API as OpenAPI 3.1", "", &[], &[&[(200, "This document.", &[json("Anything")])]],
        route openapi::document;
    POST "/api/v1/readings", Write, "write JSON readings: one object, an array, or NDJSON; or CSV as readings are answered",
        "db rp precision-write ack", &[json("Written")], &[ACKED, WRITTEN, BODY_READ], write Dialect::Native;
    POST "/api/v1/ingest/{key}", Ingest, "write messages as devices send them, through a mapping", "db rp topic ack",
        MESSAGES, &[ACKED, UNKNOWN, WRITTEN, BODY_READ], write Dialect::Native;
    POST "/api/v1/ingest/{key}/{secret}", Ingest, "write messages of a webhook that can set no header", "db rp topic ack",
        MESSAGES, &[ACKED, UNKNOWN, WRITTEN, BODY_READ], write Dialect::Native;
    POST "/api/v1/explain", Write, "dry-run a write: the outcome of each line, without storing it",
        "db rp precision-write accept_partial ack mapping topic", &[(TEXT, "File"), json("WrittenReading")],
        &[EXPLAINED, UNKNOWN, BODY_READ, ASKED], route explain::explain;
    GET "/api/v1/readings", Read, "get raw readings",
        "db sensor measurement tag.KEY from to precision fields order limit cursor max_points thin format guard epoch", &[],
        &[READ, NOT_MODIFIED, ASKED], route readings::readings;
    DELETE "/api/v1/readings", Delete, "delete readings, or count them with dry_run",
        "db sensor measurement tag.KEY from to precision dry_run", &[],
        &[&[(200, "The readings that a deletion would remove.", &[json("DeletionPreview")]),
        (204, "The readings are deleted.", &[])], UNKNOWN, ASKED], route delete::delete;
    GET "/api/v1/export", Read, "export readings as line protocol, with their types",
        "db sensor measurement tag.KEY from to precision fields cursor", &[],
        &[&[(200, "Readings. A comment after each part has the cursor of the next one; the last line is `# end`.", &[(TEXT, "Text")])], ASKED],
        route export::export;
    GET "/api/v1/summary", Read, "get aggregates of readings per time window",
        "db sensor measurement tag.KEY from to precision fields step epoch agg tz group_by fill top bottom limit-summary cursor format guard", &[],
        &[WINDOWS, NOT_MODIFIED, ASKED], route summary::summary;
    GET "/api/v1/histogram", Read, "get the number of values by range, and approximate percentiles",
        "db sensor measurement tag.KEY from to precision field bounds percentiles step-histogram tz epoch group_by", &[],
        &[&[(200, "Counts by range. Ranges that end in the past have an ETag.", &[json("Histogram")])], NOT_MODIFIED, ASKED],
        route histogram::histogram;
    GET "/api/v1/sensors", Read, "list sensors with their fields, latest reading and outlier flag",
        "db contains-sensors outlier silent recent limit cursor epoch", &[], &[&[(200, "Sensors.", &[json("Sensors")])], ASKED],
        route sensors::sensors;
    GET "/api/v1/documents", Administer, "get the stored documents of a sensor, for administrators of the database",
        "db sensor from to precision limit", &[], &[&[(200, "Documents.", &[json("Documents")])], ASKED],
        route documents::documents;
    GET "/api/v1/sensors/{key}/meta", Read, "get the metadata of a sensor", "db", &[],
        &[&[(200, "The metadata, with its ETag.", &[json("Anything")])], ASKED], route meta::show;
    PUT "/api/v1/sensors/{key}/meta", Write, "replace the metadata of a sensor", "db", &[json("Meta")],
        &[META_CHANGED, BODY_READ, ASKED], route meta::change;
    PATCH "/api/v1/sensors/{key}/meta", Write, "change the metadata of a sensor by a merge patch (RFC 7396)", "db",
        &[json("Meta")], &[META_CHANGED, BODY_READ, ASKED], route meta::change;
    GET "/api/v1/meta", Read, "export the metadata of all sensors", "db limit cursor", &[],
        &[&[(200, "Sensors with their metadata.", &[json("SensorMetas")])], ASKED], route meta::export;
    POST "/api/v1/meta", Write, "import metadata of many sensors, as NDJSON or CSV", "db dry_run",
        &[(NDJSON, "File"), (CSV, "File")], &[&[(200, "All lines were accepted.", &[json("MetaImported")]),
        (400, "Some lines were rejected; the others were accepted.", &[json("MetaImportedOrError")])],
        BODY_READ, &[(503, "Not everything is acknowledged: retry.", FAILED)]], route meta::import;
    GET "/api/v1/groups", Read, "list the configured groups of sensors, such as sites", "db", &[],
        &[&[(200, "Groups.", &[json("Groups")])], ASKED], route groups::list;
    GET "/api/v1/groups/{key}", Read, "list the values of a group, each with its number of sensors", "db limit cursor", &[],
        &[&[(200, "Values.", &[json("GroupValues")])], UNKNOWN, ASKED], route groups::values;
    GET "/api/v1/groups/{key}/{value}", Read, "list the sensors of a group value, each with its latest reading",
        "db limit cursor epoch", &[], &[&[(200, "Sensors.", &[json("Sensors")])], UNKNOWN, ASKED], route groups::members;
    GET "/api/v1/latest", Read, "get the latest reading of each sensor",
        "db sensor measurement tag.KEY limit cursor format guard epoch", &[], &[READ, ASKED], route sensors::latest;
    GET "/api/v1/tail", Read, "stream readings as they are acked, as server-sent events",
        "db sensor measurement tag.KEY fields epoch", &[],
        &[&[(200, "One event per reading. `missed` has the number of lost readings, `end` the reason of the end.", &[("text/event-stream", "Text")])], ASKED],
        route tail::tail;
    GET "/api/v1/measurements", Read, "list measurements, each with its number of sensors", "db sensor measurement tag.KEY",
        &[], &[&[(200, "Measurements.", &[json("Measurements")])], ASKED], route lists::measurements;
    GET "/api/v1/tags", Read, "list tag keys and metadata names, each with its number of values and sensors",
        "db sensor measurement tag.KEY metadata", &[], &[&[(200, "Tag keys.", &[json("Tags")])], ASKED], route lists::tags;
    GET "/api/v1/tags/{key}", Read, "list the values of a tag or of metadata (`meta.NAME`), each with its number of sensors",
        "db sensor measurement tag.KEY", &[], &[&[(200, "Values.", &[json("Values")])], NOTHING, ASKED], route lists::tag_values;
    GET "/api/v1/fields", Read, "list fields, each with the type of its values", "db sensor measurement tag.KEY", &[], &[&[(200, "Fields.", &[json("Fields")])], ASKED], route lists::fields;
    GET "/api/v1/caller", Own, "get the caller's name and rights", "", &[], &[&[(200, "The caller.", &[json("Caller")])]], route tokens::caller;
    GET "/api/v1/tokens", AdministerService, "list tokens, without their secrets", "", &[], &[&[(200, "Tokens.", &[json("Tokens")])], ASKED], route tokens::list;
    POST "/api/v1/tokens", AdministerService, "create a token; only this answer has its text", "", &[json("NewToken")],
        &[&[(201, "The token.", &[json("Token")]), (409, "The name is taken, or no token exists yet.", FAILED)],
        BODY_READ, ASKED], route tokens::create;
    POST "/api/v1/tokens/{key}/revoke", AdministerService, "revoke a token at once", "", &[], &[&[(200, "The token.", &[json("Token")]),
        (409, "The token does not exist, or it is the caller's own.", FAILED)], ASKED], route tokens::revoke;
    POST "/api/v1/flush", AdministerService, "store all acked readings now: 204 when done", "", &[],
        &[&[(204, "All readings acked before are in the store.", &[]),
        (409, "All are in the store except dead letters.", &[json("NotStored")]),
        (503, "Not all are in the store yet: retry.", FAILED)]], route write::flush;
    GET "/api/v1/jobs", AdministerService, "list background jobs: state, progress, last success, last error, next run", "", &[],
        &[&[(200, "Jobs.", &[json("Jobs")])], ASKED], route jobs::list;
    GET "/api/v1/jobs/{key}", AdministerService, "get a background job", "", &[], &[&[(200, "The job.", &[json("Job")])], UNKNOWN, ASKED], route jobs::show;
    GET "/api/v1/jobs/refresh/outdated", AdministerService, "list sensors whose copies of metadata are outdated", "db limit cursor", &[],
        &[&[(200, "Sensors; `next` if there may be more.", &[json("OutdatedSensors")])], ASKED], route jobs::outdated;
    POST "/api/v1/jobs/{key}/run", AdministerService, "run a background job now: 200 when done", "run", &[],
        &[&[(200, "The run has ended.", &[json("Job")]), (202, "The run has not ended: call again with `run`.", &[json("Job")])],
        UNKNOWN, ASKED], route jobs::run;
    GET "/api/v1/instances", AdministerService, "list the instances of the cluster", "", &[], &[&[(200, "Instances.", &[json("Instances")])], ASKED], route instances::list;
    POST "/api/v1/instances/drain", AdministerService, "give up the sensors of this instance, and stop it", "", &[],
        &[&[(202, "The drain has begun.", &[]), (409, "There is no cluster.", FAILED)], ASKED], route instances::drain;
    DELETE "/api/v1/instances/{key}", AdministerService, "give up an instance that is gone, with what it has not stored", "", &[],
        &[&[(204, "It was given up.", &[]), (409, "It is alive.", FAILED)], UNKNOWN, ASKED], route instances::retire;
    GET "/api/v1/backup", AdministerService, "start a backup: databases, tokens, and instances with readings that are not stored",
        "since", &[], &[&[(200, "The parts of a backup.", &[json("Anything")])], ASKED], route backup::begin;
    GET "/api/v1/backup/days", AdministerService, "list the UTC days with readings or summaries, for hourglass backup", "db", &[],
        &[&[(200, "Days, counted from 1970-01-01.", &[json("Anything")])], ASKED], route backup::days;
    GET "/api/v1/backup/day", AdministerService, "get all readings and summaries of a database and UTC day, for hourglass backup",
        "db day known", &[], &[&[(200, "The day, in the format of docs/how-to/backup.md.", &[(BYTES, "Text")]),
        (204, "The day has the digest given as `known`.", &[])], ASKED], route backup::day;
    GET "/api/v1/backup/sensors", AdministerService, "get all sensors of a database with their metadata, for hourglass backup", "db known", &[],
        &[&[(200, "The sensors, in the format of docs/how-to/backup.md.", &[(BYTES, "Text")]),
        (204, "The sensors have the digest given as `known`.", &[])], ASKED], route backup::sensors;
    POST "/api/v1/backup/completed", AdministerService, "record a completed backup, for the metrics", "began proved", &[],
        &[&[(204, "Recorded.", &[])], ASKED], route backup::completed;
    GET "/api/v1/dead-letters", AdministerService, "list dead letters: readings that could not be stored, with the reason", "limit cursor", &[],
        &[&[(200, "Dead letters in chunks, each with its reason.", &[json("DeadLetters")])], ASKED], route dead_letters::list;
    GET "/api/v1/rejections", Administer, "list or export rejected lines, for administrators of the database",
        "db-rejections code measurement-rejections contains-rejections from-rejections to-rejections precision limit format-rejections after",
        &[],
        &[&[(200, "The number of rejections by code, and the newest rejections; or an export.", &[json("Rejections"), (TEXT, "Text")])],
        ASKED], route rejections::list;
    DELETE "/api/v1/rejections", Administer, "remove rejections",
        "db code measurement-rejections contains-rejections from-rejections to-rejections precision through", &[],
        &[&[(200, "The number of removed rejections.", &[json("RejectionsRemoved")])], ASKED], route rejections::remove;
    GET "/api/v1/databases", Own, "list the caller's databases with their sensors and settings", "", &[],
        &[&[(200, "Databases, by name.", &[json("Databases")])], ASKED], route databases::list;
    GET "/api/v1/databases/{key}", Administer, "get the settings of a database: retention, sealing, drift, policies", "", &[],
        &[&[(200, "The settings.", &[json("Database")])], UNKNOWN, ASKED], route databases::show;
    PUT "/api/v1/databases/{key}", SetRetention, "replace the settings of a database, or preview the readings that would expire",
        "dry_run", &[json("DatabaseSettings")], &[SETTINGS_CHANGED, UNKNOWN, BODY_READ, ASKED], route databases::change_settings;
    PATCH "/api/v1/databases/{key}", SetRetention, "change some settings of a database, or preview the readings that would expire",
        "dry_run", &[json("DatabaseSettings")], &[SETTINGS_CHANGED, UNKNOWN, BODY_READ, ASKED], route databases::change_settings;
    GET "/api/v1/renames", Administer, "list the renames of a database, for its administrators", "db", &[],
        &[&[(200, "Renames, by their stored names.", &[json("Renames")])], ASKED], route renames::list;
    PUT "/api/v1/renames", ManageSchema, "rename a sensor, measurement, tag key or tag value in answers, or preview the effect",
        "db dry_run", &[json("Rename")],
        &[&[(200, "The number of renamed sensors, with examples.", &[json("Renamed")])], BODY_READ, ASKED], route renames::put;
    DELETE "/api/v1/renames", ManageSchema, "delete a rename", "db dry_run kind from-rename tag measurement-rename", &[],
        &[&[(200, "The number of renamed sensors, with examples.", &[json("Renamed")])], ASKED], route renames::delete;
    GET "/api/v1/mappings", Administer, "list the mappings of a database: its own and the built-in ones, with their text", "db", &[],
        &[&[(200, "Mappings. One of the database's own hides the built-in one of the same name.", &[json("Mappings")])], ASKED],
        route mappings::list;
    PUT "/api/v1/mappings/{key}", ManageSchema, "store a mapping of the database's own, in TOML or JSON", "db",
        &[(TEXT, "File"), json("JsonObject")], &[&[(200, "The mapping.", &[json("Mapping")])], BODY_READ, ASKED],
        route mappings::put;
    DELETE "/api/v1/mappings/{key}", ManageSchema, "remove a mapping of the database's own", "db", &[],
        &[&[(204, "Removed.", &[])], UNKNOWN, ASKED], route mappings::delete;
    POST "/api/v1/mappings/{key}/secrets", Administer, "create a secret for the path of a webhook; only this answer has its text",
        "db", &[json("NewSecret")], &[&[(201, "The secret.", &[json("Token")]),
        (409, "The name is taken, or no token exists yet.", FAILED)], UNKNOWN, BODY_READ, ASKED],
        route mappings::create_secret;
    DELETE "/api/v1/mappings/{key}/secrets/{value}", Administer, "revoke a secret of a mapping at once", "db", &[],
        &[&[(200, "The secret.", &[json("Token")]), (409, "There is no such secret.", FAILED)], ASKED],
        route mappings::revoke_secret;
    GET "/api/v1/overview", Observe, "get an overview for operators: rates, acks, store, WAL, memory, disk, backup", "", &[],
        &[&[(200, "The overview.", &[json("Anything")])]], route overview::overview;
    GET "/api/v1/status", Observe, "get the lag of the store behind the WAL: readings, seconds, bytes", "", &[],
        &[&[(200, "The status.", &[json("Status")])], ELSEWHERE], route status::status;
    POST "/write", Write, "write line protocol, compatible with InfluxDB 1.x", "db rp precision-write ack", LINES,
        &[KEPT, WRITTEN, BODY_READ], write Dialect::V1;
    POST "/api/v2/write", Write, "write line protocol, compatible with InfluxDB 2.x", "bucket precision-write ack", LINES,
        &[KEPT, WRITTEN, BODY_READ, UNPROCESSABLE], write Dialect::V2;
    POST "/api/v1/write", Write, "write samples of Prometheus: remote write 1.0", "db rp ack", MESSAGE, &[KEPT, PUSHED, BODY_READ],
        write Dialect::RemoteWrite;
    POST "/v1/metrics", Write, "write metrics of OpenTelemetry: OTLP in protobuf", "db rp ack", MESSAGE,
        &[EXPORTED, WRITTEN, BODY_READ], write Dialect::Otlp;
    POST "/api/v2/query", Own, "refuse Flux; use /query", "", &[(TEXT, "File"), json("JsonObject")],
        &[&[(400, "Flux is not supported.", FAILED)]], route v2::query;
    GET "/api/v2/buckets", Own, "list databases and policies as buckets of InfluxDB 2.x", "name id offset limit-buckets after-bucket", &[],
        &[&[(200, "Buckets.", &[json("Anything")])], ASKED], route v2::buckets;
    GET "/api/v2/buckets/{key}", Own, "get a bucket by its id", "", &[], &[&[(200, "The bucket.", &[json("Anything")])], UNKNOWN, ASKED],
        route v2::show_bucket;
    POST "/api/v2/buckets", Create, "create a database as a bucket of InfluxDB 2.x", "", &[json("NewBucket")],
        &[&[(201, "The bucket.", &[json("Anything")]), (409, "It exists already.", FAILED)], BODY_READ, ASKED],
        route v2::create_bucket;
    POST "/api/v2/delete", Delete, "delete readings of a bucket by time, measurement and tags", "bucket", &[json("Deletion")],
        &[&[(204, "The readings are deleted.", &[])], UNKNOWN, BODY_READ, ASKED], route v2::delete;
    GET "/api/v2/orgs", Own, "get the one organization, for clients of InfluxDB 2.x", "org", &[],
        &[&[(200, "The organization.", &[json("Anything")])]], route v2::organizations;
    GET "/api/v2/setup", Public, "say that InfluxDB's setup is not needed", "", &[], &[&[(200, "`allowed` is false.", &[json("Anything")])]],
        route v2::setup_state;
    POST "/api/v2/setup", Public, "refuse InfluxDB's setup; it makes no token", "", &[json("Anything")],
        &[&[(409, "Make tokens with hourglass token add.", FAILED)]], route v2::setup;
    POST "/api/v3/write_lp", Write, "write line protocol, compatible with InfluxDB 3", "db precision-write accept_partial ack",
        LINES, &[KEPT, WRITTEN, BODY_READ], write Dialect::V3;
    GET "/query", Own, "run InfluxQL: SELECT, SHOW", "db rp q epoch-influx pretty chunked chunk_size params guard dry_run wait", &[],
        &[RESULTS], route query::query;
    POST "/query", Own, "run InfluxQL, also CREATE, DROP and DELETE; parameters in the URL or in a form",
        "db rp q epoch-influx pretty chunked chunk_size params guard dry_run wait", FORM, &[RESULTS, BODY_READ], route query::query;
    GET "/ping", Public, "answer 204, or the version with ?verbose=true", "verbose", &[],
        &[&[(204, "The service is running.", &[]), (200, "The version.", &[json("Version")])]], route status::ping;
    GET "/health", Public, "check health: acks, WAL, store and databases", "", &[], &[HEALTHY],
        route status::health;
    GET "/ready", Public, "answer 200 while writes are acked, 503 otherwise", "", &[],
        &[&[(200, "Writes are acked.", &[json("Ready")]), (503, "Writes are not acked.", &[json("Ready")])]], route status::ready;
    GET "/settings", Public, "get the settings that QuestDB clients read before they write", "", &[],
        &[&[(200, "Supported versions of line protocol.", &[json("Settings")])]], route status::settings;
    GET "/metrics", Observe, "get metrics for Prometheus", "", &[], &[&[(200, "Metrics.", &[(TEXT, "Text")])], ELSEWHERE], route status::metrics;
};

/// The result of [`find`].
#[derive(Clone, Copy)]
pub struct MatchedEndpoint {
    /// `None` if no endpoint has this path and method.
    pub endpoint: Option<&'static Endpoint>,
    /// The matching route pattern, or `other`. It is never the path itself, so it is safe as a metric label.
    pub route: &'static str,
}

/// Returns true if a body is CSV.
pub fn is_csv(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(CSV)
}

/// Finds the endpoint of a request.
pub fn find(method: &Method, path: &str) -> MatchedEndpoint {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut found = MatchedEndpoint { endpoint: None, route: "other" };
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.matches(path)) {
        found.route = endpoint.path;
        if endpoint.method == method {
            found.endpoint = Some(endpoint);
            break;
        }
    }
    found
}

/// Returns the path without its trailing slash, if only the shorter path is an endpoint.
pub fn without_slash(path: &str) -> Option<&str> {
    let shorter = path.strip_suffix('/')?;
    let is_endpoint = |path: &str| ENDPOINTS.iter().any(|endpoint| endpoint.matches(path));
    (is_endpoint(shorter) && !is_endpoint(path)).then_some(shorter)
}

/// Lists the methods that a path supports.
pub fn methods(path: &str) -> Vec<&'static str> {
    let methods = ENDPOINTS.iter().filter(|endpoint| endpoint.matches(path)).map(|endpoint| endpoint.method);
    methods.flat_map(|method| if method == "GET" { vec!["GET", "HEAD"] } else { vec![method] }).collect()
}

impl Endpoint {
    /// The names of the query parameters. `tag.KEY` stands for all names that begin with `tag.`.
    pub fn parameters(&self) -> impl Iterator<Item = &'static str> {
        self.query.split_whitespace().map(|key| key.split_once('-').map_or(key, |(name, _)| name))
    }

    /// Refuses CSV where only JSON is read. Other media types are not checked, because curl and devices send wrong ones.
    /// `POST /api/v1/readings` takes CSV, but does not list it, because generated Python clients cannot choose between
    /// a file and a list.
    pub fn check_media_type(&self, headers: &HeaderMap) -> ApiResult<()> {
        let is_write = matches!(self.handler, Handler::Write(_));
        let is_json_only = || self.body.iter().all(|(media, _)| matches!(*media, JSON | NDJSON));
        if is_write || self.effect == Effect::Public || self.body.is_empty() || !is_csv(headers) || !is_json_only() {
            return Ok(());
        }
        Err(ApiError::MediaType("the body is CSV: send JSON, or import files of CSV with hourglass import".to_owned()))
    }

    /// Refuses parameters of a native endpoint that has none. Other handlers check theirs themselves.
    pub fn check_no_parameters(&self, uri: &Uri) -> ApiResult<()> {
        if self.query.is_empty() && self.effect != Effect::Public && self.path.starts_with("/api/v1/") {
            Pairs::strict(Pairs::parse_url(uri)?, &[])?;
        }
        Ok(())
    }

    /// The client family that determines the format of errors.
    pub fn dialect(&self) -> Dialect {
        match self.handler {
            Handler::Write(dialect) => dialect,
            Handler::Route(_) if self.path == "/query" => Dialect::V1,
            Handler::Route(_) if self.path.starts_with("/api/v2/") => Dialect::V2,
            Handler::Route(_) => Dialect::Native,
        }
    }

    /// The lane that answers requests. Writes move large bodies to bulk themselves.
    pub fn lane(&self) -> Lane {
        match (&self.handler, self.effect, self.method) {
            (Handler::Write(_), _, _) | (_, Effect::Public | Effect::Observe, _) => Lane::Io,
            (_, _, "GET") => Lane::Query,
            _ if self.path == "/query" => Lane::Query,
            _ => Lane::Bulk,
        }
    }

    /// Returns true if requests without the parameter `db` cover all databases on which the caller may have the effect.
    pub fn covers_all_databases(&self) -> bool {
        self.query.split_whitespace().any(|key| key == "db-rejections")
    }

    /// The body of errors.
    pub fn error_body(&self) -> &'static [MediaType] {
        match self.dialect() {
            Dialect::Native => FAILED,
            Dialect::V1 | Dialect::RemoteWrite => &[(JSON, "ErrorV1")],
            Dialect::V2 => &[(JSON, "ErrorV2")],
            Dialect::V3 => &[(JSON, "ErrorV3")],
            Dialect::Otlp => &[(PROTOBUF, "Text"), (JSON, "Error")],
        }
    }

    /// Returns the token that a request has in its path, if the endpoint takes one there.
    pub fn secret_in_path<'p>(&self, path: &'p str) -> Option<&'p str> {
        self.path.ends_with("/{secret}").then(|| path.rsplit('/').next()).flatten()
    }

    /// Returns true if the pattern matches a path.
    pub fn matches(&self, path: &str) -> bool {
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

/// Minimum size of compressed answers, in bytes. Smaller ones fit into one packet.
const COMPRESSED_BYTES_MIN: u64 = 1024;

/// Builds the router of all endpoints.
pub fn router(app: Arc<App>) -> Router {
    // Compression would delay server-sent events, and the parts of a backup are compressed already.
    let is_worthwhile = SizeAbove::new(COMPRESSED_BYTES_MIN)
        .and(NotForContentType::SSE)
        .and(NotForContentType::const_new("application/octet-stream"));
    // The fastest level, since compression shares the CPU with other requests. Request bodies are not affected.
    let compression = CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_worthwhile);
    let mut router = Router::new();
    for endpoint in ENDPOINTS {
        let route = match endpoint.handler {
            Handler::Route(route) => route(),
            // Writes bypass the router. The empty route answers other methods with 405.
            Handler::Write(_) => MethodRouter::new(),
        };
        // axum merges the routes of several methods on one path.
        router = router.route(endpoint.path, route);
    }
    router = router.fallback(status::not_found).method_not_allowed_fallback(status::wrong_method);
    router.layer(compression).with_state(app)
}
