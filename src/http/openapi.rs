//! `/openapi.json`: the list of endpoints as OpenAPI 3.1. What the list does not say, the descriptions of parameters and
//! the schemas of bodies among it, is in the JSON files of `openapi/`.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::endpoints::{DescribedAnswer, ENDPOINTS, Endpoint, FAILED, META_CHANGED, MediaType, NOT_MODIFIED};
use super::server::auth::Needs;

/// The document without its paths and schemas.
const DOCUMENT: &str = include_str!("openapi/document.json");
const PARAMETERS: &str = include_str!("openapi/parameters.json");
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

/// `GET /openapi.json`.
pub async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| describe().to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

fn describe() -> Value {
    let parameters = parsed(PARAMETERS);
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_lowercase()] = operation(endpoint, &parameters);
    }
    let mut document = parsed(DOCUMENT);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["paths"] = paths.into();
    document["components"]["schemas"] = parsed(SCHEMAS);
    document
}

fn operation(endpoint: &Endpoint, described: &Value) -> Value {
    let in_path = endpoint.path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }),
    );
    let in_query = endpoint.query.split_whitespace().map(|key| described[key].clone());
    let parameters: Vec<Value> = in_path.chain(in_query).chain(in_head(endpoint)).collect();
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
            *schema = json!({ "anyOf": [schema.take(), reference("schemas", "Error")] });
        }
        let headers: Map<_, _> =
            headers_of(endpoint, status).map(|name| (name.to_owned(), reference("headers", name))).collect();
        if !headers.is_empty() {
            response["headers"] = headers.into();
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

fn takes(endpoint: &Endpoint, parameter: &str) -> bool {
    endpoint.parameters().any(|name| name == parameter)
}

/// Whether it takes readings.
fn is_write(endpoint: &Endpoint) -> bool {
    takes(endpoint, "ack") && endpoint.path != "/api/v1/explain"
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
    // Failures have the error shape of this endpoint's clients.
    let failed = endpoint.failed();
    let shaped = |content: &'static [MediaType]| if content == FAILED { failed } else { content };
    let own = endpoint.answers.iter().copied().flatten();
    let own = own.map(|(status, what, content)| (*status, *what, shaped(content)));
    let refused: &[(u16, &'static str)] = if endpoint.needs == Needs::Nothing { &[] } else { REFUSED };
    let refused = refused.iter().map(|(status, what)| (*status, *what, failed));
    let unread = UNREAD.iter().map(|(status, what)| (*status, *what, FAILED));
    let mut answers: Vec<DescribedAnswer> = Vec::new();
    for answer in own.chain(refused).chain(unread) {
        if answers.iter().all(|(status, ..)| *status != answer.0) {
            answers.push(answer);
        }
    }
    answers
}

/// The headers that an answer with this status may have.
fn headers_of(endpoint: &Endpoint, status: u16) -> impl Iterator<Item = &'static str> {
    let is_past = endpoint.answers.contains(&NOT_MODIFIED) && matches!(status, 200 | 304);
    let changes_meta = endpoint.answers.contains(&META_CHANGED) && matches!(status, 200 | 204);
    let shows_meta = endpoint.path == "/api/v1/sensors/{key}/meta" && status == 200;
    let imports_meta = endpoint.method == "POST" && endpoint.path == "/api/v1/meta";
    let is_query = endpoint.path == "/query";
    let is_acked = is_write(endpoint) && matches!(status, 200 | 204 | 400 | 422);
    let is_formatted = takes(endpoint, "format") && status == 200;
    let is_warned = is_acked || changes_meta || (is_query || imports_meta) && matches!(status, 200 | 400);
    let headers = [
        ("ETag", is_past || shows_meta),
        ("Retry-After", endpoint.needs != Needs::Nothing && matches!(status, 429 | 503)),
        ("WWW-Authenticate", status == 401),
        ("X-Hourglass-Ack", is_acked || endpoint.method == "POST" && status == 503),
        ("X-Hourglass-Notice", is_formatted || is_query && status == 200),
        ("X-Hourglass-Warning", is_warned),
        ("X-Next-Cursor", is_formatted && takes(endpoint, "cursor")),
    ];
    headers.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name)
}

fn by_type(content: &[MediaType]) -> Value {
    let of_type =
        |(media, schema): &MediaType| ((*media).to_owned(), json!({ "schema": reference("schemas", schema) }));
    content.iter().map(of_type).collect::<Map<_, _>>().into()
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Parses a constant of this program; a test looks into all of them, so the default is never used.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_referred_to_is_there() {
        let document = describe();
        let text = document.to_string();
        for part in text.split("\"#/").skip(1) {
            let path = part.split('"').next().expect("a path");
            assert!(document.pointer(&format!("/{path}")).is_some_and(|found| !found.is_null()), "{path}");
        }
        let parameters = parsed(PARAMETERS);
        for endpoint in ENDPOINTS {
            for (key, name) in endpoint.query.split_whitespace().zip(endpoint.parameters()) {
                assert_eq!(parameters[key]["name"], name, "{key}");
            }
        }
        for key in parameters.as_object().expect("an object").keys() {
            assert!(ENDPOINTS.iter().any(|one| one.query.split_whitespace().any(|used| used == key)), "{key}");
        }
    }
}
