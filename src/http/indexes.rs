//! The indexes that the configuration declares, with the queries that use them.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::Response;
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::format::Format;
use super::json::comma;
use super::parameters::{By, Pairs, Parameters};
use super::text::Text;
use crate::bucket::DeclaredIndex;

/// `GET /api/v1/indexes`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    let listed = async {
        let parameters = Parameters::of(&app, query, &[], by)?;
        let budget = parameters.budget(&app);
        let mut text = Text::new(&budget)?;
        text.out.push_str("{\"indexes\":[");
        let mut number = 0;
        // Only MongoDB has indexes.
        let extras = app.store.raw().clone().mongo_extras();
        let databases = if extras.is_some() { app.query.databases().await? } else { Vec::new() };
        for database in &databases {
            let Some(extras) = &extras else { break };
            for index in extras.declared_indexes(database).await.map_err(crate::query::QueryError::from)? {
                comma(&mut text.out, number);
                number += 1;
                text.out.push_str(&shown(&index).to_string());
                text.row().await?;
            }
        }
        text.out.push_str("]}");
        budget.answered();
        Ok(text.respond(Format::Json.media_type())?)
    };
    listed.await.unwrap_or_else(|error: ApiError| error.respond(Dialect::Native))
}

fn shown(index: &DeclaredIndex) -> Value {
    let DeclaredIndex { database, collection, name, keys, only, query, is_ready } = index;
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
    json!({
        "database": database, "collection": collection, "name": name, "keys": parsed(keys), "only": parsed(only), "query": query,
        "state": if *is_ready { "ready" } else { "missing" },
    })
}
