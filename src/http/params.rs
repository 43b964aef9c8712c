//! The query parameters of all endpoints, with their schemas and descriptions. Endpoints check requests against these
//! lists, and `/openapi.json` shows them. The examples of one endpoint, taken together, form a valid request.

#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// `tag.KEY` stands for any parameter that begins with `tag.`.
    pub name: &'static str,
    /// JSON Schema.
    pub schema: &'static str,
    /// The description in `/openapi.json`.
    pub what: &'static str,
}

const fn parameter(name: &'static str, schema: &'static str, what: &'static str) -> Parameter {
    Parameter { name, schema, what }
}

const TEXT: &str = r#"{"type":"string"}"#;
const FLAG: &str = r#"{"type":"string","enum":["true","false"]}"#;

/// Stands for all parameters that begin with `tag.`.
pub const TAG_NAME: &str = "tag.KEY";

const DB: Parameter =
    parameter("db", r#"{"type":"string","examples":["default"]}"#, "The database; `default` when missing.");
const REJECTED_DB: Parameter = parameter(
    "db",
    r#"{"type":"string","examples":["default"]}"#,
    "The database; all that the caller administers when missing.",
);
const REJECTED_CODE: Parameter =
    parameter("code", r#"{"type":"string","examples":["syntax"]}"#, "Only rejections with this code.");
const REJECTED_OF: Parameter = parameter(
    "measurement",
    r#"{"type":"string","examples":["climate"]}"#,
    "Only rejections of lines that begin with this measurement, as far as the line tells it.",
);
const CONTAINS: Parameter =
    parameter("contains", TEXT, "Only rejections whose line, as far as it is kept, or reason contains this text.");
const SENSOR_CONTAINS: Parameter = parameter(
    "contains",
    TEXT,
    "Only sensors whose key, or a text of whose metadata, contains this text, in whatever case.",
);
const RECEIVED_FROM: Parameter = parameter(
    "from",
    r#"{"type":"string","examples":["-24h"]}"#,
    "Only rejections received at or after this time: RFC 3339, an integer since 1970, or a duration before now such as `-24h`.",
);
const RECEIVED_TO: Parameter = parameter("to", TEXT, "Only rejections received before this time.");
const REJECTED_FORMAT: Parameter = parameter(
    "format",
    r#"{"type":"string","enum":["json","lp"]}"#,
    "`lp`: line protocol, oldest first, each line below a comment with the reason.",
);
const REJECTED_AFTER: Parameter =
    parameter("after", TEXT, "Only rejections after the one with this id; the last line of an export has it.");
const REJECTED_THROUGH: Parameter = parameter(
    "through",
    r#"{"type":"string","examples":["1768485600000000000"]}"#,
    "The id of the last rejection that is removed.",
);
const SENSOR: Parameter = parameter(
    "sensor",
    TEXT,
    "One sensor by its key: the measurement and the sorted tags, as in line protocol: `climate,sensor=temp-01`.",
);
const MEASUREMENT: Parameter =
    parameter("measurement", r#"{"type":"string","examples":["climate"]}"#, "All sensors of a measurement.");
const TAG: Parameter = parameter(
    TAG_NAME,
    r#"{"type":"object","propertyNames":{"pattern":"^tag\\.[a-z]+!?$"},"additionalProperties":{"type":"string"}}"#,
    "Sensors by tag; may be given several times: `tag.site=lab`, `tag.site!=lab`, `tag.room=~^r[0-9]+$`, `tag.room!~^r`.",
);
const RENAME_KIND: Parameter = parameter(
    "kind",
    r#"{"type":"string","enum":["sensor","measurement","tag_key","tag_value"],"examples":["tag_value"]}"#,
    "The kind of the entry.",
);
const RENAME_FROM: Parameter =
    parameter("from", r#"{"type":"string","examples":["lab"]}"#, "The stored name of the entry.");
const RENAME_TAG: Parameter =
    parameter("tag", r#"{"type":"string","examples":["room"]}"#, "The stored key of the tag of an entry for a value.");
const RENAME_MEASUREMENT: Parameter =
    parameter("measurement", TEXT, "The stored measurement to which an entry for a value is limited.");
const FROM: Parameter = parameter(
    "from",
    r#"{"type":"string","examples":["2026-01-15T14:00:00Z"]}"#,
    "Start of the range, inclusive: RFC 3339, a date (its midnight in `tz`, else in UTC), an integer since 1970, `now`, or a duration before now such as `-24h`. Unlimited when missing.",
);
const TO: Parameter = parameter(
    "to",
    r#"{"type":"string","examples":["2026-01-16T00:00:00Z"]}"#,
    "End of the range, exclusive, in the same forms. 9223372036854775807 is after the last possible timestamp.",
);
const READ_PRECISION: Parameter = parameter(
    "precision",
    r#"{"type":"string","enum":["auto","n","ns","u","us","ms","s","m","h"]}"#,
    "The unit of integers in `from` and `to`; guessed from their magnitude when missing.",
);
const FIELDS: Parameter = parameter(
    "fields",
    r#"{"type":"string","examples":["temp,humidity"]}"#,
    "Only these fields, a list separated by commas.",
);
const EPOCH: Parameter = parameter(
    "epoch",
    r#"{"type":"string","enum":["ns","u","ms","s"]}"#,
    "Timestamps as integers in this unit; RFC 3339 when missing.",
);
const FORMAT: Parameter = parameter(
    "format",
    r#"{"type":"string","enum":["json","ndjson","csv"]}"#,
    "The format of the answer. Has precedence over `Accept`.",
);
const GUARD: Parameter = parameter(
    "guard",
    r#"{"type":"string","enum":["spreadsheet"]}"#,
    "In CSV: quotes all text, and puts an apostrophe before text that a spreadsheet would take for a formula. Numbers, booleans and times stay as they are.",
);
const LIMIT: Parameter =
    parameter("limit", r#"{"type":"integer","minimum":1,"examples":[100]}"#, "Most items in this part of the answer.");
const CURSOR: Parameter = parameter("cursor", TEXT, "The value of `next` in the previous part, unchanged.");
const RUN: Parameter = parameter("run", TEXT, "The value of `run` in an answer 202, to wait for the same run.");
const STEP: Parameter =
    parameter("step", r#"{"type":"string","examples":["15m","1h","1d"]}"#, "Length of a window; `1h` when missing.");
const ORDER: Parameter = parameter(
    "order",
    r#"{"type":"string","enum":["asc","desc"]}"#,
    "Whether the earliest (`asc`) or latest (`desc`) readings of each sensor come first.",
);
const MAX_POINTS: Parameter = parameter(
    "max_points",
    r#"{"type":"integer","minimum":1}"#,
    "For a chart: at most this many readings per sensor, chosen as those with the least and greatest value of each field per pixel.",
);
const AGG: Parameter = parameter(
    "agg",
    r#"{"type":"string","examples":["count,max,p95"]}"#,
    "Functions, separated by commas: count, min, max, sum, avg (or mean), first, last, stddev, median, mode, or percentiles such as p95. Texts and booleans have count, first, last and mode.",
);
const ZONE: Parameter =
    parameter("tz", r#"{"type":"string","examples":["Europe/Berlin"]}"#, "The time zone in which windows begin.");
const GROUP_BY: Parameter = parameter(
    "group_by",
    r#"{"type":"string","examples":["none","site","*"]}"#,
    "One series per sensor (`none`), per combination of values of these tags, or one per measurement (`*`).",
);
const FILL: Parameter = parameter(
    "fill",
    r#"{"type":"string","examples":["none","null","previous","linear","0"]}"#,
    "The value of windows without readings.",
);
const OUTLIER: Parameter = parameter("outlier", FLAG, "Only sensors whose recent hours overflowed a page (outliers).");
const SILENT: Parameter = parameter(
    "silent",
    FLAG,
    "Only sensors whose latest reading is older than the config key `sensors.silent_after`, or than three intervals of their kind.",
);
const METADATA: Parameter = parameter("metadata", FLAG, "Include names of metadata, as `meta.NAME`.");
const RECENT: Parameter = parameter("recent", FLAG, "Include the recent readings of each sensor.");
const WRITE_PRECISION: Parameter = parameter(
    "precision",
    r#"{"type":"string","enum":["auto","n","ns","u","us","ms","s","m","h"]}"#,
    "The unit of the timestamps.",
);
const ACK: Parameter = parameter(
    "ack",
    r#"{"type":"string","enum":["log","store"]}"#,
    "When to answer: once the write is durable in the log (`log`) or in the store (`store`). Also as header `X-Hourglass-Ack`.",
);
const BUCKET: Parameter = parameter("bucket", r#"{"type":"string","examples":["default"]}"#, "The database.");
const POLICY: Parameter = parameter(
    "rp",
    r#"{"type":"string","examples":["autogen"]}"#,
    "The retention policy; the database's default one when missing. `autogen` is the database itself.",
);
const DRY_RUN: Parameter = parameter("dry_run", FLAG, "Changes nothing, and tells what would go.");
const PARTIAL: Parameter = parameter("accept_partial", FLAG, "Whether valid lines are stored if others are rejected.");
const STATEMENTS: Parameter = parameter(
    "q",
    r#"{"type":"string","examples":["SHOW DATABASES","SELECT mean(temp) FROM climate"]}"#,
    "InfluxQL statements, separated by semicolons.",
);
const INFLUX_EPOCH: Parameter =
    parameter("epoch", r#"{"type":"string","enum":["ns","u","ms","s","m","h"]}"#, "Times as integers in this unit.");
const PRETTY: Parameter = parameter("pretty", FLAG, "With line breaks and indentation.");
const CHUNKED: Parameter = parameter("chunked", FLAG, "One JSON object per chunk of rows.");
const CHUNK_SIZE: Parameter = parameter("chunk_size", r#"{"type":"integer","minimum":1}"#, "Rows per chunk.");
const BOUND: Parameter =
    parameter("params", r#"{"type":"string","examples":["{\"least\":20}"]}"#, "Values of `$name`, as a JSON object.");
const SINCE: Parameter = parameter(
    "since",
    r#"{"type":"integer","minimum":0,"examples":[1768435200000]}"#,
    "Lists the instances that may not have stored everything they acknowledged before this time, in milliseconds since 1970.",
);
const DAY: Parameter =
    parameter("day", r#"{"type":"integer","examples":[20468]}"#, "The UTC day, counted from 1970-01-01.");
const KNOWN: Parameter = parameter(
    "known",
    TEXT,
    "The digest in the last backup, of this day or of these sensors (`content`): if it is still the same, the answer is 204.",
);
const BEGAN: Parameter = parameter(
    "began",
    r#"{"type":"integer","minimum":0,"examples":[1768435200000]}"#,
    "When the backup began, in milliseconds since 1970.",
);
const VERBOSE: Parameter = parameter("verbose", FLAG, "Answer with the version instead of 204.");

/// Of `GET /api/v1/readings`.
pub const READINGS: &[Parameter] = &[
    DB,
    SENSOR,
    MEASUREMENT,
    TAG,
    FROM,
    TO,
    READ_PRECISION,
    FIELDS,
    ORDER,
    LIMIT,
    CURSOR,
    MAX_POINTS,
    FORMAT,
    GUARD,
    EPOCH,
];
/// Of `GET /api/v1/summary`.
pub const SUMMARY: &[Parameter] = &[
    DB,
    SENSOR,
    MEASUREMENT,
    TAG,
    FROM,
    TO,
    READ_PRECISION,
    FIELDS,
    STEP,
    EPOCH,
    AGG,
    ZONE,
    GROUP_BY,
    FILL,
    FORMAT,
    GUARD,
];
/// Of `GET /api/v1/latest`.
pub const LATEST: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG, LIMIT, CURSOR, FORMAT, GUARD, EPOCH];
/// Of `GET /api/v1/tail`.
pub const TAIL: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG, FIELDS, EPOCH];
/// Of `GET /api/v1/sensors`.
pub const SENSORS: &[Parameter] = &[DB, SENSOR_CONTAINS, OUTLIER, SILENT, RECENT, LIMIT, CURSOR, EPOCH];
/// Of `GET /api/v1/sensors/KEY/meta`.
pub const META: &[Parameter] = &[DB];
/// Of changes of it.
pub const META_CHANGE: &[Parameter] = &[DB];
/// Of `POST /api/v1/meta`.
pub const META_IMPORT: &[Parameter] = &[DB, DRY_RUN];
/// Of `GET /api/v1/groups`.
pub const GROUPS: &[Parameter] = &[DB];
/// Of `GET /api/v1/groups/NAME`.
pub const GROUP: &[Parameter] = &[DB, LIMIT, CURSOR];
/// Of `GET /api/v1/groups/NAME/VALUE`.
pub const GROUP_MEMBERS: &[Parameter] = &[DB, LIMIT, CURSOR, EPOCH];
/// Of `GET /api/v1/meta`.
pub const META_EXPORT: &[Parameter] = &[DB, LIMIT, CURSOR];
/// Of `PUT /api/v1/databases/NAME`.
pub const DATABASE: &[Parameter] = &[DRY_RUN];
/// Of `GET /api/v1/renames`.
pub const RENAMES: &[Parameter] = &[DB];
/// Of `PUT /api/v1/renames`.
pub const RENAME: &[Parameter] = &[DB, DRY_RUN];
/// Of `DELETE /api/v1/renames`.
pub const RENAME_DELETED: &[Parameter] = &[DB, DRY_RUN, RENAME_KIND, RENAME_FROM, RENAME_TAG, RENAME_MEASUREMENT];
/// Of `GET /api/v1/dead-letters`.
pub const DEAD_LETTERS: &[Parameter] = &[LIMIT, CURSOR];
/// Of `GET /api/v1/rejections`.
pub const REJECTIONS: &[Parameter] = &[
    REJECTED_DB,
    REJECTED_CODE,
    REJECTED_OF,
    CONTAINS,
    RECEIVED_FROM,
    RECEIVED_TO,
    LIMIT,
    REJECTED_FORMAT,
    REJECTED_AFTER,
];
/// Of `DELETE /api/v1/rejections`.
pub const REJECTIONS_DONE: &[Parameter] =
    &[DB, REJECTED_CODE, REJECTED_OF, CONTAINS, RECEIVED_FROM, RECEIVED_TO, REJECTED_THROUGH];
/// Of `POST /api/v1/jobs/NAME/run`.
pub const JOB_RUN: &[Parameter] = &[RUN];
/// Of the lists of measurements, of a tag's values, and of fields.
pub const LISTS: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG];
/// Of `GET /api/v1/tags`.
pub const TAGS: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG, METADATA];
/// Of `POST /write` and `POST /api/v1/readings`.
pub const WRITE: &[Parameter] = &[DB, POLICY, WRITE_PRECISION, ACK];
/// Of `POST /api/v1/explain`.
pub const EXPLAIN: &[Parameter] = &[DB, POLICY, WRITE_PRECISION, PARTIAL, ACK];
/// Of `POST /api/v2/write`.
pub const WRITE_V2: &[Parameter] = &[BUCKET, WRITE_PRECISION, ACK];
/// Of `POST /api/v3/write_lp`.
pub const WRITE_V3: &[Parameter] = &[DB, WRITE_PRECISION, PARTIAL, ACK];
/// Of `/query`.
pub const QUERY: &[Parameter] =
    &[DB, POLICY, STATEMENTS, INFLUX_EPOCH, PRETTY, CHUNKED, CHUNK_SIZE, BOUND, GUARD, DRY_RUN];
/// Of `GET /api/v1/backup`.
pub const BACKUP: &[Parameter] = &[SINCE];
/// Of `GET /api/v1/backup/days`.
pub const BACKUP_DAYS: &[Parameter] = &[DB];
/// Of `GET /api/v1/backup/day`.
pub const BACKUP_DAY: &[Parameter] = &[DB, DAY, KNOWN];
/// Of `GET /api/v1/backup/sensors`.
pub const BACKUP_SENSORS: &[Parameter] = &[DB, KNOWN];
/// Of `POST /api/v1/backup/proved`.
pub const BACKUP_PROVED: &[Parameter] = &[BEGAN];
/// Of `GET /ping`.
pub const PING: &[Parameter] = &[VERBOSE];
