//! `/openapi.json`: the list of endpoints as OpenAPI 3.1. The schemas of bodies are in `openapi/schemas.json`.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::endpoints::{DescribedAnswer, ENDPOINTS, Endpoint, FAILED, META_CHANGED, MediaType, NOT_MODIFIED};
use super::params::{Parameter, TAG_NAME};
use super::server::auth::Needs;

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Answers of every endpoint that needs a token.
const REFUSED: &[(u16, &str)] = &[
    (401, "The request has no valid token."),
    (
        403,
        "The token does not allow this; or a web page of another site asks (cors.origins), or, where no token is needed, a name that is none of the service's (server.hosts).",
    ),
    (503, "The tokens are not loaded yet: try again."),
];
/// Answers of every endpoint, given before routing; those of the HTTP parser have no body.
const UNREAD: &[(u16, &str)] = &[
    (400, "The request's head is ambiguous or invalid, for example with two Authorization headers."),
    (431, "The request's head is larger than 32 KiB or has more than 64 headers."),
];

const ABOUT: &str = "Stores time series in hourly buckets with exact summaries, and answers range queries. \
    Request bodies may be compressed (Content-Encoding: gzip, deflate or zstd). Answers over 1 KiB are compressed for \
    clients that accept gzip. Every answer has the request's id in X-Request-Id; the client may choose the id. Every answer has \
    X-Content-Type-Options: nosniff, and Cache-Control: `private, no-cache` beside an ETag, else `no-store`.";

/// Answer headers that depend on the status, with their descriptions.
const HEADERS: &[(&str, &str)] = &[
    ("ETag", "Of the page, and of ranges that end in the past, for If-None-Match; of metadata for If-Match."),
    ("Retry-After", "Seconds to wait before a retry."),
    ("WWW-Authenticate", "The challenge for browsers."),
    ("X-Hourglass-Ack", "The ack level reached: `log` or `store`."),
    ("X-Hourglass-Notice", "In NDJSON and CSV: names of the request that nobody knows, and which ones there are."),
    (
        "X-Hourglass-Warning",
        "Quotas that are nearly used up, timestamps that look like another unit than the declared one, and parameters that are ignored.",
    ),
    ("X-Next-Cursor", "In NDJSON and CSV: the cursor of the next part, if there is one."),
];

/// `GET /openapi.json`.
pub async fn document() -> Response {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| describe().to_string());
    ([(header::CONTENT_TYPE, "application/json")], document.as_str()).into_response()
}

fn describe() -> Value {
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_lowercase()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "hourglass",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": parsed(SCHEMAS),
            "headers": headers(),
            "securitySchemes": {
                "token": {
                    "type": "apiKey", "in": "header", "name": "Authorization", "description": "`Token …` or `Bearer …`.",
                },
                "basic": { "type": "http", "scheme": "basic", "description": "The token is the password; the user is ignored." },
                "password": { "type": "apiKey", "in": "query", "name": "p", "description": "The token, as InfluxDB 1.x clients send the password." },
            },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let in_path = endpoint.path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }),
    );
    let parameters: Vec<Value> = in_path.chain(endpoint.query.iter().map(in_query)).chain(in_head(endpoint)).collect();
    let mut responses = Map::new();
    for (status, what, content) in answers(endpoint) {
        let mut response = json!({ "description": what });
        if !content.is_empty() {
            response["content"] = by_type(content);
        }
        let unread = UNREAD.iter().any(|(unread, _)| *unread == status);
        // Given before routing, so these have the same shape for all endpoints.
        if unread && content != FAILED {
            let schema = &mut response["content"]["application/json"]["schema"];
            *schema = json!({ "anyOf": [schema.take(), reference("Error")] });
        }
        let named: Vec<&str> = headers_of(endpoint, status).collect();
        if !named.is_empty() {
            let reference =
                |name: &&str| ((*name).to_owned(), json!({ "$ref": format!("#/components/headers/{name}") }));
            response["headers"] = named.iter().map(reference).collect::<Map<_, _>>().into();
        }
        responses.insert(status.to_string(), response);
    }
    let words: Vec<&str> = endpoint.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty()).collect();
    let mut operation = json!({
        "operationId": format!("{}_{}", endpoint.method.to_lowercase(), words.join("_")),
        "summary": endpoint.what,
        "parameters": parameters,
        "responses": responses,
    });
    if endpoint.needs != Needs::Nothing {
        // The empty alternative: a service that requires no token.
        operation["security"] = json!([{ "token": [] }, { "basic": [] }, { "password": [] }, {}]);
    }
    if !endpoint.body.is_empty() {
        operation["requestBody"] = json!({ "content": by_type(endpoint.body) });
    }
    operation
}

/// Whether it takes readings.
fn is_write(endpoint: &Endpoint) -> bool {
    endpoint.query.iter().any(|parameter| parameter.name == "ack") && endpoint.path != "/api/v1/explain"
}

/// What the head of a request may say beside what all requests may.
fn in_head(endpoint: &Endpoint) -> Option<Value> {
    let (name, what) = if is_write(endpoint) {
        (
            "Idempotency-Key",
            "A key for this body and its retries: undated readings get the same times again. Also as X-Hourglass-Request-Id.",
        )
    } else if endpoint.answers.contains(&META_CHANGED) {
        ("If-Match", "The ETag of the metadata that the change is of: if it is another by now, the answer is 412.")
    } else if endpoint.path == "/api/v1/tail" {
        ("Last-Event-ID", "The id of the last event that the client has: the stream goes on behind it.")
    } else {
        return None;
    };
    let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255 });
    Some(json!({ "name": name, "in": "header", "schema": schema, "description": what }))
}

/// The endpoint's own answers, and the shared ones that it does not describe itself.
fn answers(endpoint: &Endpoint) -> Vec<DescribedAnswer> {
    let mut answers: Vec<DescribedAnswer> = endpoint.answers.iter().copied().flatten().copied().collect();
    // Shared failures have the error shape of this endpoint's clients.
    let failed = answers.iter().find(|(status, ..)| *status == 503).map_or(FAILED, |(_, _, content)| content);
    let refused =
        REFUSED.iter().filter(|_| endpoint.needs != Needs::Nothing).map(|(status, what)| (*status, *what, failed));
    let unread = UNREAD.iter().map(|(status, what)| (*status, *what, FAILED));
    for shared in refused.chain(unread) {
        if answers.iter().all(|(status, ..)| *status != shared.0) {
            answers.push(shared);
        }
    }
    answers
}

/// The headers that an answer with this status may have.
fn headers_of(endpoint: &Endpoint, status: u16) -> impl Iterator<Item = &'static str> {
    let (token, past) = (endpoint.needs != Needs::Nothing, endpoint.answers.contains(&NOT_MODIFIED));
    let (changes, changes_meta) = (endpoint.method == "POST", endpoint.answers.contains(&META_CHANGED));
    let imports_meta = changes && endpoint.path == "/api/v1/meta";
    let shows_meta = status == 200 && endpoint.path == "/api/v1/sensors/{key}/meta";
    let taken = is_write(endpoint) && matches!(status, 200 | 204 | 400 | 422);
    let takes = |name: &str| endpoint.query.iter().any(|parameter| parameter.name == name);
    let parts = takes("cursor") && takes("format");
    let is_query = endpoint.path == "/query";
    let has = move |name: &str| match name {
        "ETag" => shows_meta || (past && matches!(status, 200 | 304)),
        "Retry-After" => token && matches!(status, 429 | 503),
        "WWW-Authenticate" => status == 401,
        "X-Hourglass-Ack" => taken || (changes && status == 503),
        "X-Hourglass-Notice" => (takes("format") || is_query) && status == 200,
        "X-Hourglass-Warning" => {
            taken
                || (is_query || imports_meta) && matches!(status, 200 | 400)
                || changes_meta && matches!(status, 200 | 204)
        }
        _ => parts && status == 200,
    };
    HEADERS.iter().map(|(name, _)| *name).filter(move |name| has(name))
}

fn headers() -> Value {
    let described = |(name, what): &(&str, &str)| {
        ((*name).to_owned(), json!({ "description": what, "schema": { "type": "string" } }))
    };
    HEADERS.iter().map(described).collect::<Map<_, _>>().into()
}

fn in_query(parameter: &Parameter) -> Value {
    let mut described = json!({
        "name": parameter.name, "in": "query", "description": parameter.what, "schema": parsed(parameter.schema),
    });
    if parameter.name == TAG_NAME {
        // Each property of the object is a separate parameter.
        described["style"] = json!("form");
        described["explode"] = json!(true);
    }
    described
}

fn by_type(content: &[MediaType]) -> Value {
    let of_type = |(media, schema): &MediaType| ((*media).to_owned(), json!({ "schema": reference(schema) }));
    content.iter().map(of_type).collect::<Map<_, _>>().into()
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// Parses a constant of this program; a test parses all of them, so the default is never used.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_there_and_is_json() {
        let schemas: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("JSON");
        for endpoint in ENDPOINTS {
            for parameter in endpoint.query {
                serde_json::from_str::<Value>(parameter.schema).expect(parameter.name);
            }
            let answers = endpoint.answers.iter().copied().flatten().flat_map(|(_, _, content)| *content);
            for (_, schema) in answers.chain(endpoint.body) {
                assert!(schemas.contains_key(*schema), "{schema}");
            }
        }
        let text = describe().to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            let name = part.split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
        }
    }
}
