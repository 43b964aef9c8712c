//! `/openapi.json`: describes the endpoints as OpenAPI 3.1. Descriptions of parameters and schemas of bodies are in the
//! JSON files of `openapi/`.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::endpoints::{DescribedAnswer, ENDPOINTS, Endpoint, FAILED, META_CHANGED, MediaType, NOT_MODIFIED};
use crate::access::Effect;

/// The document without its paths and schemas.
const DOCUMENT: &str = include_str!("openapi/document.json");
const PARAMETERS: &str = include_str!("openapi/parameters.json");
const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Answers of all endpoints that need a token.
const REFUSED: &[(u16, &str)] = &[
    (401, "The request has no valid token."),
    (
        403,
        "The token does not allow this; or the origin of a web page (cors.origins) or the host name of a request without a token (server.hosts) is not allowed.",
    ),
    (503, "The tokens are not loaded yet: retry."),
];
/// Answers of all endpoints before routing. Those of the HTTP parser have no body.
const UNREAD: &[(u16, &str)] = &[
    (400, "The request head is ambiguous or invalid, for example because of two Authorization headers."),
    (431, "The request head is larger than 32 KiB or has more than 64 headers."),
];

/// `GET /openapi.json`.
pub async fn document() -> Response {
    static TEXT: LazyLock<String> = LazyLock::new(|| build().to_string());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

fn build() -> Value {
    let parameters = parse(PARAMETERS);
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.to_lowercase()] = operation(endpoint, &parameters);
    }
    let mut document = parse(DOCUMENT);
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["paths"] = paths.into();
    document["components"]["schemas"] = parse(SCHEMAS);
    document
}

fn operation(endpoint: &Endpoint, descriptions: &Value) -> Value {
    let in_path = endpoint.path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }),
    );
    let in_query = endpoint.query.split_whitespace().map(|key| descriptions[key].clone());
    let parameters: Vec<Value> = in_path.chain(in_query).chain(header_parameter(endpoint)).collect();
    let mut responses = Map::new();
    for (status, description, content) in answers(endpoint) {
        let mut response = json!({ "description": description });
        if !content.is_empty() {
            response["content"] = content_by_type(content);
        }
        let is_unread = UNREAD.iter().any(|(unread, _)| *unread == status);
        // Answers before routing have the same format for all endpoints.
        if is_unread && content != FAILED {
            let schema = &mut response["content"]["application/json"]["schema"];
            *schema = json!({ "anyOf": [schema.take(), reference("schemas", "Error")] });
        }
        let headers: Map<_, _> =
            response_headers(endpoint, status).map(|name| (name.to_owned(), reference("headers", name))).collect();
        if !headers.is_empty() {
            response["headers"] = headers.into();
        }
        responses.insert(status.to_string(), response);
    }
    let mut operation = json!({
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if endpoint.effect != Effect::Public {
        // The empty alternative is for a service without tokens.
        operation["security"] = json!([{ "token": [] }, { "basic": [] }, { "password": [] }, {}]);
    }
    if !endpoint.body.is_empty() {
        operation["requestBody"] = json!({ "content": content_by_type(endpoint.body) });
    }
    operation
}

/// Returns the name of the operation in generated clients: the method and the words of the path, without `/api/v1` unless
/// another endpoint has the rest of the path.
fn operation_id(endpoint: &Endpoint) -> String {
    let is_free = |rest: &&str| ENDPOINTS.iter().all(|other| other.path != *rest);
    let path = endpoint.path.strip_prefix("/api/v1").filter(is_free);
    let path = path.unwrap_or_else(|| endpoint.path.trim_start_matches("/api"));
    let mut words: Vec<&str> =
        path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        words.push("front");
    }
    format!("{}_{}", endpoint.method.to_lowercase(), words.join("_"))
}

fn has_parameter(endpoint: &Endpoint, parameter: &str) -> bool {
    endpoint.parameters().any(|name| name == parameter)
}

/// Returns true if the endpoint stores readings.
fn is_write(endpoint: &Endpoint) -> bool {
    has_parameter(endpoint, "ack") && endpoint.path != "/api/v1/explain"
}

/// Describes the request header that only this endpoint evaluates.
fn header_parameter(endpoint: &Endpoint) -> Option<Value> {
    let (name, description) = if is_write(endpoint) {
        (
            "Idempotency-Key",
            "A key for this body and its retries, so that undated readings get the same times again. Also as X-Hourglass-Request-Id.",
        )
    } else if endpoint.answers.contains(&META_CHANGED) {
        ("If-Match", "The ETag of the metadata to change. If the metadata has changed since, the answer is 412.")
    } else if endpoint.path == "/api/v1/tail" {
        ("Last-Event-ID", "The id of the last received event. The stream continues after it.")
    } else {
        return None;
    };
    let schema = json!({ "type": "string", "minLength": 1, "maxLength": 255 });
    Some(json!({ "name": name, "in": "header", "schema": schema, "description": description }))
}

/// The endpoint's own answers, and the shared ones for other statuses.
fn answers(endpoint: &Endpoint) -> Vec<DescribedAnswer> {
    // Errors have the format of the endpoint's clients.
    let error = endpoint.error_body();
    let with_dialect = |content: &'static [MediaType]| if content == FAILED { error } else { content };
    let own = endpoint.answers.iter().copied().flatten();
    let own = own.map(|(status, text, content)| (*status, *text, with_dialect(content)));
    let refused: &[(u16, &'static str)] = if endpoint.effect == Effect::Public { &[] } else { REFUSED };
    let refused = refused.iter().map(|(status, text)| (*status, *text, error));
    let unread = UNREAD.iter().map(|(status, text)| (*status, *text, FAILED));
    let mut answers: Vec<DescribedAnswer> = Vec::new();
    for answer in own.chain(refused).chain(unread) {
        if answers.iter().all(|(status, ..)| *status != answer.0) {
            answers.push(answer);
        }
    }
    answers
}

/// The headers that an answer with this status may have.
fn response_headers(endpoint: &Endpoint, status: u16) -> impl Iterator<Item = &'static str> {
    let is_past = endpoint.answers.contains(&NOT_MODIFIED) && matches!(status, 200 | 304);
    let changes_meta = endpoint.answers.contains(&META_CHANGED) && matches!(status, 200 | 204);
    let shows_meta = endpoint.path == "/api/v1/sensors/{key}/meta" && status == 200;
    let imports_meta = endpoint.method == "POST" && endpoint.path == "/api/v1/meta";
    let is_query = endpoint.path == "/query";
    let is_acked = is_write(endpoint) && matches!(status, 200 | 204 | 400 | 422);
    let is_formatted = has_parameter(endpoint, "format") && status == 200;
    let is_warned = is_acked || changes_meta || (is_query || imports_meta) && matches!(status, 200 | 400);
    let headers = [
        ("ETag", is_past || shows_meta),
        ("Retry-After", endpoint.effect != Effect::Public && matches!(status, 429 | 503)),
        ("WWW-Authenticate", status == 401),
        ("X-Hourglass-Ack", is_acked || endpoint.method == "POST" && status == 503),
        ("X-Hourglass-Notice", is_formatted || is_query && status == 200),
        ("X-Hourglass-Warning", is_warned),
        ("X-Next-Cursor", is_formatted && has_parameter(endpoint, "cursor")),
    ];
    headers.into_iter().filter(|(_, is_sent)| *is_sent).map(|(name, _)| name)
}

fn content_by_type(content: &[MediaType]) -> Value {
    let entry = |(media, schema): &MediaType| ((*media).to_owned(), json!({ "schema": reference("schemas", schema) }));
    content.iter().map(entry).collect::<Map<_, _>>().into()
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// Parses a JSON constant of this program. A test parses all of them, so the default is never used.
fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endpoints of the native API that list items without a cursor, or in another way: see docs/reference/http-api.md.
    const OWN_PARTS: [&str; 2] = ["/api/v1/documents", "/api/v1/rejections"];

    /// Calls `visit` for the name of each property in a schema.
    fn properties(schema: &Value, visit: &mut impl FnMut(&str)) {
        if let Some(named) = schema.get("properties").and_then(Value::as_object) {
            named.keys().for_each(|name| visit(name));
        }
        let parts = schema.as_object().into_iter().flatten().map(|(_, part)| part);
        parts.chain(schema.as_array().into_iter().flatten()).for_each(|part| properties(part, visit));
    }

    /// Regression: endpoints differed in what a caller can rely on, such as the names of units and of JSON members.
    #[test]
    fn native_endpoints_follow_the_conventions() {
        let schemas = parse(SCHEMAS);
        let parameters = parse(PARAMETERS);
        let is_native = |endpoint: &&Endpoint| endpoint.path.starts_with("/api/v1/");
        for endpoint in ENDPOINTS.iter().filter(is_native) {
            let Endpoint { method, path, effect, .. } = endpoint;
            let has = |name| has_parameter(endpoint, name);
            let bodies = endpoint.answers.iter().copied().flatten().filter(|(status, ..)| *status == 200);
            let bodies: Vec<&str> = bodies.flat_map(|(_, _, content)| *content).map(|(_, schema)| *schema).collect();
            assert_eq!(has("from") && has("to"), has("precision") && *effect != Effect::Write, "{method} {path}");
            assert!(!has("limit") || has("cursor") || OWN_PARTS.contains(path), "{method} {path}: limit has a cursor");
            let is_json = |name: &&str| !matches!(*name, "Text" | "File" | "Anything");
            for schema in bodies.iter().copied().filter(is_json) {
                let has_next = schemas[schema]["properties"].get("next").is_some();
                assert_eq!(has_next, has("cursor"), "{method} {path}: {schema} has next if there is a cursor");
            }
            let removes = matches!(effect, Effect::Delete | Effect::SetRetention);
            assert!(!removes || has("dry_run"), "{method} {path}: what removes readings has a preview");
            for schema in endpoint.body.iter().map(|(_, schema)| *schema).chain(bodies) {
                properties(&schemas[schema], &mut |name| {
                    let is_snake = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
                    assert!(is_snake, "{method} {path}: {name} in {schema}");
                });
            }
        }
        // Flags are texts, because they may be given without a value.
        for (key, parameter) in parameters.as_object().expect("an object") {
            assert_ne!(parameter["schema"]["type"], "boolean", "{key}");
        }
        let units = |key: &str| parameters[key]["schema"]["enum"].as_array().cloned().unwrap_or_default();
        let without_auto = |key| units(key).into_iter().filter(|unit| unit != "auto").collect::<Vec<_>>();
        assert_eq!(units("epoch"), without_auto("precision"));
        assert_eq!(units("precision"), units("precision-write"));
    }

    #[test]
    fn all_references_resolve() {
        let document = build();
        let text = document.to_string();
        for part in text.split("\"#/").skip(1) {
            let path = part.split('"').next().expect("a path");
            assert!(document.pointer(&format!("/{path}")).is_some_and(|found| !found.is_null()), "{path}");
        }
        let ids: std::collections::BTreeSet<String> = ENDPOINTS.iter().map(operation_id).collect();
        assert_eq!(ids.len(), ENDPOINTS.len(), "operation ids are unique");
        assert!(["get_front", "post_write", "post_v1_write", "get_dead_letters"].iter().all(|id| ids.contains(*id)));
        // Generators make classes without a name of a type that is only null.
        assert!(!text.contains(r#""type":"null""#), "a type says what it is");
        let parameters = parse(PARAMETERS);
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
