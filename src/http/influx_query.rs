//! `/query` as far as clients need it before they write: `SHOW DATABASES` and `CREATE DATABASE`.
//! Anything else is answered with an error that names it.

use std::sync::Arc;

use axum::extract::{Form, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, body::Bytes};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};

/// Most bytes of a query, and most statements in it.
const QUERY_BYTES_MAX: usize = 64 * 1024;
const STATEMENTS_MAX: usize = 16;

/// What `/query` takes; what it does not know it ignores.
#[derive(Debug, Default, Deserialize)]
pub struct QueryParameters {
    q: Option<String>,
}

/// `GET /query`.
pub async fn by_get(State(app): State<Arc<App>>, method: Method, Query(url): Query<QueryParameters>) -> Response {
    answer(&app, &method, url.q).await
}

/// `POST /query`: `q` in the URL or in a form body.
pub async fn by_post(
    State(app): State<Arc<App>>,
    method: Method,
    Query(url): Query<QueryParameters>,
    request: axum::extract::Request,
) -> Response {
    let q = match url.q {
        Some(q) => Ok(Some(q)),
        None => form_q(&app, request).await,
    };
    match q {
        Ok(q) => answer(&app, &method, q).await,
        Err(error) => error.respond(Dialect::V1),
    }
}

async fn form_q(app: &App, request: axum::extract::Request) -> Result<Option<String>, ApiError> {
    let (parts, mut body) = request.into_parts();
    let (body, _admission): (Bytes, _) = super::body::read(app, &parts.headers, &mut body).await?;
    if body.len() > QUERY_BYTES_MAX {
        return Err(ApiError::Bad(format!("the query is over {QUERY_BYTES_MAX} bytes")));
    }
    let request = axum::extract::Request::from_parts(parts, body.into());
    let form = <Form<QueryParameters> as axum::extract::FromRequest<()>>::from_request(request, &()).await;
    // A body that is no form has no `q`.
    Ok(form.ok().and_then(|form| form.0.q))
}

async fn answer(app: &App, method: &Method, q: Option<String>) -> Response {
    let Some(q) = q.filter(|q| !q.trim().is_empty()) else {
        return ApiError::Bad("missing required parameter \"q\"".to_owned()).respond(Dialect::V1);
    };
    let statements = statements(&q);
    if statements.len() > STATEMENTS_MAX {
        return ApiError::Bad(format!("more than {STATEMENTS_MAX} statements in one query")).respond(Dialect::V1);
    }
    let mut results = Vec::new();
    for (id, statement) in statements.iter().enumerate() {
        let result = match Statement::parse(statement) {
            Ok(statement) => run(app, method, statement).await,
            Err(message) => Err(ApiError::Bad(message)),
        };
        results.push(match result {
            Ok(mut result) => {
                result["statement_id"] = json!(id);
                result
            }
            // What waiting mends must not look like an answer.
            Err(error) if error.status() == StatusCode::SERVICE_UNAVAILABLE => return error.respond(Dialect::V1),
            Err(error) => json!({ "statement_id": id, "error": error.message() }),
        });
    }
    Json(json!({ "results": results })).into_response()
}

async fn run(app: &App, method: &Method, statement: Statement) -> Result<Value, ApiError> {
    match statement {
        Statement::ShowDatabases => {
            let mut names = app.query.databases().await?;
            // Those whose first readings are not in the store yet.
            names.extend(app.ingest.database_names());
            names.sort_unstable();
            names.dedup();
            let values: Vec<[String; 1]> = names.into_iter().map(|name| [name]).collect();
            Ok(json!({ "series": [{ "name": "databases", "columns": ["name"], "values": values }] }))
        }
        Statement::CreateDatabase(_) if method != Method::POST => {
            Err(ApiError::Bad("CREATE DATABASE changes something: send it by POST".to_owned()))
        }
        Statement::CreateDatabase(name) => {
            app.ingest.create_database(&name).await?;
            Ok(json!({}))
        }
    }
}

/// The statements known here.
#[derive(Debug, PartialEq)]
enum Statement {
    ShowDatabases,
    CreateDatabase(String),
}

impl Statement {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = words(text)?.into_iter();
        let mut keyword = || words.next().unwrap_or_default();
        match (keyword().to_uppercase().as_str(), keyword().to_uppercase().as_str()) {
            ("SHOW", "DATABASES") if words.len() == 0 => Ok(Self::ShowDatabases),
            ("CREATE", "DATABASE") => {
                let name = words.next().ok_or("error parsing query: found EOF, expected identifier")?;
                // WITH DURATION and so on: there is one retention policy, which keeps everything.
                match words.next() {
                    None => Ok(Self::CreateDatabase(name)),
                    Some(with) if with.eq_ignore_ascii_case("WITH") => Ok(Self::CreateDatabase(name)),
                    Some(other) => Err(format!("error parsing query: found {other}, expected WITH")),
                }
            }
            _ => Err(format!("not supported: {}: this version knows SHOW DATABASES and CREATE DATABASE", text.trim())),
        }
    }
}

/// The statements of a query, which semicolons outside of double quotes separate.
fn statements(q: &str) -> Vec<&str> {
    let mut quoted = false;
    let separator = move |c: char| {
        quoted ^= c == '"';
        c == ';' && !quoted
    };
    q.split(separator).map(str::trim).filter(|statement| !statement.is_empty()).collect()
}

/// Words and double-quoted identifiers, unescaped.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let mut word = String::new();
            let mut characters = quoted.char_indices();
            let end = loop {
                match characters.next() {
                    Some((at, '"')) => break at,
                    Some((_, '\\')) => word.extend(characters.next().map(|(_, c)| c)),
                    Some((_, c)) => word.push(c),
                    None => return Err("error parsing query: unterminated identifier".to_owned()),
                }
            };
            words.push(word);
            rest = quoted[end + 1..].trim_start();
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(rest.len());
            words.push(rest[..end].to_owned());
            rest = rest[end..].trim_start();
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_send_before_they_write() {
        let create = |name: &str| Ok(Statement::CreateDatabase(name.to_owned()));
        for (text, expected) in [
            ("SHOW DATABASES", Ok(Statement::ShowDatabases)),
            ("show databases", Ok(Statement::ShowDatabases)),
            ("CREATE DATABASE \"my db\"", create("my db")),
            ("CREATE DATABASE \"a\\\"b;c\"", create("a\"b;c")),
            ("CREATE DATABASE telegraf WITH REPLICATION 1", create("telegraf")),
            ("create database x", create("x")),
        ] {
            assert_eq!(Statement::parse(text), expected, "{text}");
        }
        for text in
            ["DROP DATABASE x", "SELECT * FROM cpu", "CREATE DATABASE", "CREATE DATABASE \"x", "SHOW DATABASES x"]
        {
            assert!(Statement::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            statements("SHOW DATABASES; CREATE DATABASE \"a;b\" ;"),
            ["SHOW DATABASES", "CREATE DATABASE \"a;b\""]
        );
    }
}
