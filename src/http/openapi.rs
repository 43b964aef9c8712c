//! `/openapi.json`: the list of endpoints as OpenAPI 3.1. Schemas of bodies stand in `openapi/schemas.json`.

use std::sync::OnceLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::auth::Needs;
use super::endpoints::{Content, ENDPOINTS, Endpoint, FAILED};
use super::known::{Parameter, TAG_NAME};

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// What everybody may be answered who has to have a token.
const REFUSED: &[(&str, &str)] = &[
    ("401", "A token is needed, and there is none that counts."),
    ("403", "The token does not allow this."),
    ("429", "A quota is used up: try again when `Retry-After` says."),
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
            "description": "Readings in, exact hourly buckets kept, ranges and summaries out.",
        },
        "paths": paths,
        "components": {
            "schemas": parsed(SCHEMAS),
            "securitySchemes": {
                "token": {
                    "type": "apiKey", "in": "header", "name": "Authorization", "description": "`Token …` or `Bearer …`.",
                },
                "basic": { "type": "http", "scheme": "basic", "description": "Any user; the token is the password." },
                "password": { "type": "apiKey", "in": "query", "name": "p", "description": "As clients of InfluxDB 1.x have it." },
            },
        },
    })
}

fn operation(endpoint: &Endpoint) -> Value {
    let in_path = endpoint.path.split(['{', '}']).skip(1).step_by(2).map(
        |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }),
    );
    let parameters: Vec<Value> = in_path.chain(endpoint.query.iter().map(in_query)).collect();
    let mut responses = Map::new();
    for (status, what, content) in endpoint.answers.iter().copied().flatten() {
        let mut response = json!({ "description": what });
        if !content.is_empty() {
            response["content"] = by_type(content);
        }
        responses.insert(status.to_string(), response);
    }
    if endpoint.needs != Needs::Nothing {
        let failed = endpoint.answers.iter().copied().flatten().find(|(status, ..)| *status == 503);
        let failed = by_type(failed.map_or(FAILED, |(_, _, content)| content));
        for (status, what) in REFUSED {
            responses.insert((*status).to_owned(), json!({ "description": what, "content": failed }));
        }
    }
    let words: Vec<&str> = endpoint.path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty()).collect();
    let mut operation = json!({
        "operationId": format!("{}_{}", endpoint.method.to_lowercase(), words.join("_")),
        "summary": endpoint.what,
        "parameters": parameters,
        "responses": responses,
    });
    if endpoint.needs != Needs::Nothing {
        // The last one: where no token is needed.
        operation["security"] = json!([{ "token": [] }, { "basic": [] }, { "password": [] }, {}]);
    }
    if !endpoint.body.is_empty() {
        operation["requestBody"] = json!({ "content": by_type(endpoint.body) });
    }
    operation
}

fn in_query(parameter: &Parameter) -> Value {
    let mut described = json!({
        "name": parameter.name, "in": "query", "description": parameter.what, "schema": parsed(parameter.schema),
    });
    if parameter.name == TAG_NAME {
        // Each property is a parameter of its own.
        described["style"] = json!("form");
        described["explode"] = json!(true);
    }
    described
}

fn by_type(content: &[Content]) -> Value {
    let of_type = |(media, schema): &Content| {
        let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
        ((*media).to_owned(), json!({ "schema": schema }))
    };
    content.iter().map(of_type).collect::<Map<_, _>>().into()
}

/// A constant of this program; a test reads all of them.
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
