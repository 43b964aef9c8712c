//! The list of rejected lines, for those who administer the database that they were sent to.

use std::collections::HashSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::App;
use super::errors::{ApiError, Dialect};
use super::parameters::{By, Pairs, Parameters};
use super::params;
use super::replay::unreadable;
use crate::access::Caller;
use crate::bucket::settings::owner;
use crate::ingest::{KeptLine, KeptRejection, measurement_of};
use crate::reading::time::{TIMESTAMP_MIN, write_rfc3339};

/// Rejections per answer: by default, and at most.
const LIMITS: (usize, usize) = (100, 1000);

/// `GET /api/v1/rejections`.
pub async fn list(State(app): State<Arc<App>>, Extension(by): By, query: Pairs) -> Response {
    match listed(app, by, query).await {
        Ok(body) => Json(body).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn listed(app: Arc<App>, by: Caller, query: Pairs) -> Result<Value, ApiError> {
    let parameters = Parameters::of(&app, query, params::REJECTIONS, by.clone())?;
    let limit = parameters.limit(LIMITS.0, LIMITS.1)?;
    let database = parameters.get("db");
    if !database.map_or_else(|| by.may_manage_some(), |database| by.may_manage(database)) {
        let what =
            database.map_or_else(|| "rejections".to_owned(), |database| format!("rejections of database {database:?}"));
        return Err(ApiError::Forbidden(format!(
            "{} may not see {what}: it takes a token created with --admin",
            by.name()
        )));
    }
    let wanted = Wanted::of(&parameters, &by, database.map(str::to_owned))?;
    let mut rejections = app.ingest.rejections().list(|rejection| wanted.is(rejection), limit);
    // Of each request the list has the first line of each code only.
    if wanted.contains.is_some() || wanted.measurement.is_some() {
        let read = move || app.ingest.rejections().list_lines(|line| wanted.is_line(line), limit);
        let lines = tokio::task::spawn_blocking(read).await;
        let lines = lines.map_err(|ended| ApiError::Unreadable(ended.to_string()))?.map_err(unreadable)?;
        rejections = united(rejections, lines, limit);
    }
    Ok(json!({ "rejections": rejections.iter().map(|rejection| shown(rejection)).collect::<Vec<_>>() }))
}

/// Both, newest first, each line once.
fn united(told: Vec<Arc<KeptRejection>>, lines: Vec<KeptRejection>, limit: usize) -> Vec<Arc<KeptRejection>> {
    let id = |of: &KeptRejection| (of.time, of.database.clone(), of.token.clone(), of.line, of.code.clone());
    let known: HashSet<_> = told.iter().map(|of| id(of)).collect();
    let others = lines.into_iter().filter(|of| !known.contains(&id(of))).map(Arc::new);
    let mut all: Vec<_> = told.into_iter().chain(others).collect();
    all.sort_by_key(|of| std::cmp::Reverse(of.time));
    all.truncate(limit);
    all
}

/// Which rejections a request is about.
pub struct Wanted {
    /// All that the caller administers if `None`.
    database: Option<String>,
    by: Caller,
    since: i64,
    code: Option<String>,
    measurement: Option<String>,
    contains: Option<String>,
}

impl Wanted {
    pub fn of(parameters: &Parameters, by: &Caller, database: Option<String>) -> Result<Self, ApiError> {
        let since = parameters.time("since", TIMESTAMP_MIN)?;
        let text = |name: &str| parameters.get(name).map(str::to_owned);
        let [code, measurement, contains] = ["code", "measurement", "contains"].map(text);
        Ok(Self { database, by: by.clone(), since, code, measurement, contains })
    }

    fn is(&self, rejection: &KeptRejection) -> bool {
        let KeptRejection { database, time, code, text, reason, .. } = rejection;
        self.matches((database, *time, code), || rejection.measurement(), (text, reason))
    }

    /// Whether it is about a line that is kept whole.
    pub fn is_line(&self, line: &KeptLine) -> bool {
        let KeptLine { database, received, code, text, reason, .. } = line;
        self.matches((database, *received, code), || measurement_of(text), (text, reason))
    }

    fn matches(
        &self,
        (database, time, code): (&str, i64, &str),
        measurement: impl Fn() -> String,
        (text, reason): (&str, &str),
    ) -> bool {
        let may_see = self
            .database
            .as_ref()
            .map_or_else(|| self.by.may_manage(database), |wanted| wanted == database || wanted == owner(database));
        may_see
            && time >= self.since
            && self.code.as_ref().is_none_or(|wanted| wanted == code)
            && self.measurement.as_ref().is_none_or(|wanted| *wanted == measurement())
            && self.contains.as_ref().is_none_or(|part| text.contains(part) || reason.contains(part))
    }
}

fn shown(rejection: &KeptRejection) -> Value {
    let KeptRejection { time, database, token, address, line, column, text, reason, code, count, replayed } = rejection;
    let mut received = String::new();
    write_rfc3339(&mut received, *time);
    json!({
        "time": received, "database": database, "token": token, "address": address, "line": line, "column": column,
        "text": text, "reason": reason, "code": code, "count": count, "replayed": replayed,
    })
}
