//! The query parameters by name, each with its form and what it means: the endpoints judge requests by these lists, and
//! `/openapi.json` shows them. Those with examples make a question that is answered when they are taken together.

/// A query parameter.
#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    /// Its name; `tag.KEY` stands for one per tag.
    pub name: &'static str,
    /// Its JSON Schema.
    pub schema: &'static str,
    /// What it means, for people.
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
const SENSOR: Parameter = parameter(
    "sensor",
    TEXT,
    "One sensor by its key, the measurement and the sorted tags, as in line protocol: `climate,sensor=temp-01`.",
);
const MEASUREMENT: Parameter =
    parameter("measurement", r#"{"type":"string","examples":["climate"]}"#, "All sensors of a measurement.");
const TAG: Parameter = parameter(
    TAG_NAME,
    r#"{"type":"object","propertyNames":{"pattern":"^tag\\.[a-z]+!?$"},"additionalProperties":{"type":"string"}}"#,
    "Sensors by their tags, any number of them: `tag.site=lab`, `tag.site!=lab`, `tag.room=~^r[0-9]+$`, `tag.room!~^r`.",
);
const FROM: Parameter = parameter(
    "from",
    r#"{"type":"string","examples":["2026-01-15T14:00:00Z"]}"#,
    "The first time: RFC 3339, an integer since 1970, `now` or `-24h`. All there is when missing.",
);
const TO: Parameter = parameter(
    "to",
    r#"{"type":"string","examples":["2026-01-16T00:00:00Z"]}"#,
    "The time before which the range ends, in the same forms. 9223372036854775807 is behind the last that there is.",
);
const READ_PRECISION: Parameter = parameter(
    "precision",
    r#"{"type":"string","enum":["auto","n","ns","u","us","ms","s","m","h"]}"#,
    "The unit of integers in `from` and `to`; by their magnitude when missing.",
);
const FIELDS: Parameter = parameter(
    "fields",
    r#"{"type":"string","examples":["temp,humidity"]}"#,
    "Only these fields, with commas between them.",
);
const EPOCH: Parameter = parameter(
    "epoch",
    r#"{"type":"string","enum":["ns","u","ms","s"]}"#,
    "Times as integers of this unit; RFC 3339 when missing.",
);
const FORMAT: Parameter = parameter(
    "format",
    r#"{"type":"string","enum":["json","ndjson","csv"]}"#,
    "How the answer is written. Wins over `Accept`.",
);
const LIMIT: Parameter =
    parameter("limit", r#"{"type":"integer","minimum":1,"examples":[100]}"#, "At most so many in this part.");
const CURSOR: Parameter = parameter("cursor", TEXT, "`next` of the part before, as it was given.");
const STEP: Parameter =
    parameter("step", r#"{"type":"string","examples":["15m","1h","1d"]}"#, "The windows' length; `1h` when missing.");
const ORDER: Parameter = parameter(
    "order",
    r#"{"type":"string","enum":["asc","desc"]}"#,
    "Whether each sensor's earliest or latest readings come first.",
);
const MAX_POINTS: Parameter = parameter(
    "max_points",
    r#"{"type":"integer","minimum":1}"#,
    "At most so many readings of each sensor, for a chart: per pixel those with the least and the greatest value of each field.",
);
const AGG: Parameter = parameter(
    "agg",
    r#"{"type":"string","examples":["count,max,p95"]}"#,
    "Of count, min, max, sum, avg, first, last, stddev, median, mode, and percentiles such as p95.",
);
const ZONE: Parameter =
    parameter("tz", r#"{"type":"string","examples":["Europe/Berlin"]}"#, "Windows on the clocks of this zone.");
const GROUP_BY: Parameter = parameter(
    "group_by",
    r#"{"type":"string","examples":["none","site","*"]}"#,
    "A series per sensor (`none`), per value of these tags, or one for all of a measurement (`*`).",
);
const FILL: Parameter = parameter(
    "fill",
    r#"{"type":"string","examples":["none","null","previous","linear","0"]}"#,
    "What windows without readings show.",
);
const OUTLIER: Parameter = parameter("outlier", FLAG, "Only sensors that outgrow their pages.");
const RECENT: Parameter = parameter("recent", FLAG, "With the latest readings of each.");
const WRITE_PRECISION: Parameter = parameter(
    "precision",
    r#"{"type":"string","enum":["auto","n","ns","u","us","ms","s","m","h"]}"#,
    "The unit of the timestamps.",
);
const ACK: Parameter = parameter(
    "ack",
    r#"{"type":"string","enum":["log","store"]}"#,
    "What the answer promises; also by `X-Hourglass-Ack`.",
);
const BUCKET: Parameter = parameter("bucket", r#"{"type":"string","examples":["default"]}"#, "The database.");
const POLICY: Parameter =
    parameter("rp", r#"{"type":"string","enum":["autogen"]}"#, "The retention policy: there is one.");
const PARTIAL: Parameter = parameter("accept_partial", FLAG, "Whether good lines are kept beside bad ones.");
const STATEMENTS: Parameter = parameter(
    "q",
    r#"{"type":"string","examples":["SHOW DATABASES","SELECT mean(temp) FROM climate"]}"#,
    "Statements of InfluxQL.",
);
const INFLUX_EPOCH: Parameter =
    parameter("epoch", r#"{"type":"string","enum":["ns","u","ms","s","m","h"]}"#, "Times as integers of this unit.");
const PRETTY: Parameter = parameter("pretty", FLAG, "With line breaks and indentation.");
const CHUNKED: Parameter = parameter("chunked", FLAG, "A JSON object per chunk of rows.");
const CHUNK_SIZE: Parameter = parameter("chunk_size", r#"{"type":"integer","minimum":1}"#, "Rows of a chunk.");
const BOUND: Parameter =
    parameter("params", r#"{"type":"string","examples":["{\"least\":20}"]}"#, "Values of `$name`, as a JSON object.");
const VERBOSE: Parameter = parameter("verbose", FLAG, "Answers the version.");

/// Of `GET /api/v1/readings`.
pub const READINGS: &[Parameter] =
    &[DB, SENSOR, MEASUREMENT, TAG, FROM, TO, READ_PRECISION, FIELDS, ORDER, LIMIT, CURSOR, MAX_POINTS, FORMAT, EPOCH];
/// Of `GET /api/v1/summary`.
pub const SUMMARY: &[Parameter] =
    &[DB, SENSOR, MEASUREMENT, TAG, FROM, TO, READ_PRECISION, FIELDS, STEP, EPOCH, AGG, ZONE, GROUP_BY, FILL, FORMAT];
/// Of `GET /api/v1/latest`.
pub const LATEST: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG, LIMIT, CURSOR, FORMAT, EPOCH];
/// Of `GET /api/v1/sensors`.
pub const SENSORS: &[Parameter] = &[DB, OUTLIER, RECENT, LIMIT, CURSOR, EPOCH];
/// Of `GET /api/v1/dead-letters`.
pub const DEAD_LETTERS: &[Parameter] = &[LIMIT, CURSOR];
/// Of the lists of what there is to ask about.
pub const LISTS: &[Parameter] = &[DB, SENSOR, MEASUREMENT, TAG];
/// Of `POST /write` and `POST /api/v1/readings`.
pub const WRITE: &[Parameter] = &[DB, POLICY, WRITE_PRECISION, ACK];
/// Of `POST /api/v2/write`.
pub const WRITE_V2: &[Parameter] = &[BUCKET, WRITE_PRECISION, ACK];
/// Of `POST /api/v3/write_lp`.
pub const WRITE_V3: &[Parameter] = &[DB, WRITE_PRECISION, PARTIAL, ACK];
/// Of `/query`.
pub const QUERY: &[Parameter] = &[DB, POLICY, STATEMENTS, INFLUX_EPOCH, PRETTY, CHUNKED, CHUNK_SIZE, BOUND];
/// Of `GET /ping`.
pub const PING: &[Parameter] = &[VERBOSE];
