//! Rejected lines are fixed by a rule and written again, with the rights that their senders have now. A dry run says what would
//! become of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::App;
use super::body;
use super::errors::{ApiError, Dialect};
use super::influx_query::Address;
use super::parameters::{By, DEFAULT_DATABASE, Pairs, Parameters};
use super::params;
use super::rejections::Wanted;
use super::write::flag;
use crate::access::{Caller, Event};
use crate::bucket::settings::named_in_full;
use crate::clock::{now_ns, now_seconds};
use crate::faults;
use crate::ingest::{Arrival, ExplainedPoint, IngestError, KeptLine, is_json, plain};
use crate::reading::time::write_rfc3339;
use crate::reading::{Limits, Precision, ValueType};
use crate::wire::json::Items;
use crate::wire::line_protocol::{Lines, write_line};
use crate::wire::{Point, Points};

/// Lines of a request: by default, and at most.
const LIMITS: (usize, usize) = (100, 1000);
/// Most bytes of a request's lines, as of a body that is explained, and the memory that they take.
const BYTES: usize = 256 << 10;
const MEMORY: usize = 48 * BYTES;
/// Most characters of a value in a reason.
const VALUE_CHARS: usize = 100;

/// How lines are changed before they are written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    /// The unit of timestamps.
    precision: Option<String>,
    /// New names of fields by the old ones.
    rename: BTreeMap<String, String>,
    /// Types of fields by their names as sent.
    cast: BTreeMap<String, String>,
}

/// A checked [`Rule`].
#[derive(Debug, Default)]
struct Fix {
    precision: Option<Precision>,
    rename: BTreeMap<String, String>,
    cast: BTreeMap<String, (String, ValueType)>,
}

/// What became of a line.
struct Outcome {
    line: KeptLine,
    /// As line protocol in nanoseconds, or why it could not be changed.
    after: Result<String, String>,
    /// Why it is not taken.
    refused: Vec<String>,
}

/// `POST /api/v1/rejections/replay`.
pub async fn replay(
    State(app): State<Arc<App>>,
    Extension(by): By,
    Extension(address): Address,
    query: Pairs,
    headers: HeaderMap,
    mut body: Body,
) -> Response {
    let replayed = async {
        let parameters = Parameters::of(&app, query, params::REPLAY, by.clone())?;
        let database = parameters.get("db").unwrap_or(DEFAULT_DATABASE).to_owned();
        if !by.may_manage(&database) {
            return Err(ApiError::Forbidden(format!(
                "{} may not replay rejections of database {database:?}: it takes a token created with --admin",
                by.name()
            )));
        }
        let is_dry = flag("dry_run", parameters.get("dry_run"))?.unwrap_or(true);
        let (bytes, mut admission) = body::read(&app, &headers, &mut body).await?;
        let fix = Fix::of(&bytes)?;
        admission.grow(MEMORY)?;
        // What is asked for may outlive the client: what is written is marked.
        let task = tokio::spawn(go_through(app.clone(), by.clone(), parameters, database.clone(), fix, is_dry));
        let told = match task.await {
            Ok(told) => told,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(IngestError::Stopping.into()),
        };
        if !is_dry {
            let statement = "REPLAY REJECTIONS".to_owned();
            let outcome = told.as_ref().map_or_else(ApiError::message, |told| format!("{} written", told["taken"]));
            app.audit.note(&Event::Change { by: by.name(), address, statement, database: &database, outcome });
        }
        told
    };
    match replayed.await {
        Ok(told) => Json(told).into_response(),
        Err(error) => error.respond(Dialect::Native),
    }
}

async fn go_through(
    app: Arc<App>,
    by: Caller,
    parameters: Parameters,
    database: String,
    fix: Fix,
    is_dry: bool,
) -> Result<Value, ApiError> {
    let wanted = Wanted::of(&parameters, &by, Some(database))?;
    let limit = parameters.limit(LIMITS.0, LIMITS.1)?;
    let after = parameters.get("cursor").filter(|cursor| !cursor.is_empty()).map_or(Ok(0), str::parse);
    let after = after
        .map_err(|_| ApiError::Bad("parameter cursor is invalid: use the value of `next` unchanged".to_owned()))?;
    let _turn = app.ingest.rejections().replay_turn().await;
    let kept = app.ingest.rejections().lines().clone();
    let read = tokio::task::spawn_blocking(move || kept.read(after, |line| wanted.is_line(line), (limit, BYTES)));
    let (lines, more) = read.await.map_err(|ended| ApiError::Unreadable(ended.to_string()))?.map_err(unreadable)?;
    let next = lines.last().filter(|_| more).map(|line| line.id.to_string());
    let mut outcomes: Vec<Outcome> = lines.into_iter().map(|line| fix.outcome(line)).collect();
    for group in by_sender(&outcomes, &fix) {
        judge(&app, &mut outcomes, &group, is_dry).await?;
    }
    let taken = outcomes.iter().filter(|outcome| outcome.is_taken()).count();
    Ok(json!({
        "dry_run": is_dry, "taken": taken, "refused": outcomes.len() - taken, "next": next,
        "lines": outcomes.iter().map(Outcome::shown).collect::<Vec<_>>(),
    }))
}

/// The error of kept lines that cannot be read.
pub fn unreadable(error: std::io::Error) -> ApiError {
    ApiError::Unreadable(format!("the kept rejected lines: {error}"))
}

/// Lines of one sender for one database that are judged together, by their places.
struct Group {
    places: Vec<usize>,
    declared: bool,
    /// Whether each is a field of a reading whose other fields are stored.
    rest: bool,
}

fn by_sender(outcomes: &[Outcome], fix: &Fix) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<_, usize> = HashMap::new();
    for (place, Outcome { line, .. }) in outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_taken()) {
        let declared = line.declared || fix.precision.is_some();
        let rest = line.field.is_some();
        let number = *known.entry((&line.database, &line.token, declared, rest)).or_insert_with(|| {
            groups.push(Group { places: Vec::new(), declared, rest });
            groups.len() - 1
        });
        groups[number].places.push(place);
    }
    groups
}

/// Judges the lines of a group as if their sender sent them now, and writes those that are taken whole unless it is a dry run.
async fn judge(app: &App, outcomes: &mut [Outcome], group: &Group, is_dry: bool) -> Result<(), ApiError> {
    let first = &outcomes[group.places[0]].line;
    let database = first.database.clone();
    let token = first.token.as_ref().map(|token| (&*token.name, token.created));
    let by = match app.access.earlier_sender(token, now_seconds()) {
        Ok(by) if by.may_write(&database) => by,
        Ok(by) => {
            let why = format!("the sender {} may not write to database {database:?}", by.name());
            refuse_all(outcomes, &group.places, &why);
            return Ok(());
        }
        Err(denied) => {
            let who = token.map_or_else(|| "no token".to_owned(), |(name, _)| format!("the token {name}"));
            let why = format!("it was sent with {who}, with which nothing can be written now: {}", denied.label());
            refuse_all(outcomes, &group.places, &why);
            return Ok(());
        }
    };
    let lines = text_of(outcomes, &group.places);
    // As it was written to, whatever policy is the default by now.
    let named = named_in_full(&database);
    let arrival = |received| Arrival {
        database: &named,
        precision: Precision::Nanoseconds,
        declared: group.declared,
        rest: group.rest,
        received,
        // A line that is judged otherwise than a moment ago keeps the others back, too: the next replay judges anew.
        partial: false,
        ack: None,
        key: None,
        patient: false,
        by: &by,
        address: None,
    };
    let partial = Arrival { partial: true, ..arrival(now_ns()) };
    let explained = app
        .ingest
        .explain(partial, |limits| Lines::new(lines.as_bytes(), Precision::Nanoseconds, limits), lines.len())
        .await;
    match explained {
        Ok(explanation) => {
            if let Some(error) = explanation.refused {
                refuse_all(outcomes, &group.places, &error.to_string());
                return Ok(());
            }
            for (place, point) in group.places.iter().zip(&explanation.points) {
                outcomes[*place].refused = reasons(point);
            }
        }
        Err(error) => {
            refuse_all(outcomes, &group.places, &error.to_string());
            return Ok(());
        }
    }
    let taken: Vec<usize> = group.places.iter().copied().filter(|place| outcomes[*place].is_taken()).collect();
    if is_dry || taken.is_empty() {
        return Ok(());
    }
    let lines = text_of(outcomes, &taken);
    let mut admission = app.ingest.admission();
    admission.grow(lines.len())?;
    let written = app
        .ingest
        .take(arrival(now_ns()), |limits| Lines::new(lines.as_bytes(), Precision::Nanoseconds, limits), admission)
        .await;
    match written {
        Ok(ack) if ack.rejected.count == 0 => {}
        Ok(ack) => {
            let why = ack.rejected.told.first().map(|told| told.reason.to_string()).unwrap_or_default();
            refuse_all(outcomes, &taken, &why);
            return Ok(());
        }
        Err(error) => {
            refuse_all(outcomes, &taken, &error.to_string());
            return Ok(());
        }
    }
    faults::point("rejections_written");
    let (kept, ids) = (app.ingest.rejections().lines().clone(), taken.iter().map(|place| outcomes[*place].line.id));
    let ids: Vec<u64> = ids.collect();
    let marked = tokio::task::spawn_blocking(move || kept.mark_done(ids)).await;
    faults::point("rejections_marked");
    marked.map_err(|ended| ApiError::Unreadable(ended.to_string()))?.map_err(unreadable)?;
    app.ingest.rejections().note_replayed(taken.iter().map(|place| &outcomes[*place].line));
    Ok(())
}

fn refuse_all(outcomes: &mut [Outcome], places: &[usize], why: &str) {
    for place in places {
        outcomes[*place].refused = vec![why.to_owned()];
    }
}

fn text_of(outcomes: &[Outcome], places: &[usize]) -> String {
    places.iter().filter_map(|place| outcomes[*place].after.as_deref().ok()).collect()
}

/// Why a line would not be kept whole: a replay of the rest would be lost sight of.
fn reasons(point: &ExplainedPoint) -> Vec<String> {
    let mut reasons: Vec<String> = point.rejections.iter().map(|rejection| rejection.reason.to_string()).collect();
    if reasons.is_empty() && point.time.is_none() {
        reasons.push("it would not be kept".to_owned());
    }
    reasons
}

/// A value as its sender writes it, on one line, and not at any length.
fn written(value: &crate::reading::Value) -> String {
    use crate::reading::Value;
    let text = match value {
        Value::Float(number) => number.to_string(),
        Value::Integer(number) => number.to_string(),
        Value::Unsigned(number) => number.to_string(),
        Value::Boolean(is) => is.to_string(),
        Value::String(text) => format!("\"{text}\""),
    };
    plain(&text, VALUE_CHARS)
}

impl Outcome {
    fn is_taken(&self) -> bool {
        self.after.is_ok() && self.refused.is_empty()
    }

    fn shown(&self) -> Value {
        let Self { line, after, refused } = self;
        let mut received = String::new();
        write_rfc3339(&mut received, line.received);
        let token = line.token.as_ref().map(|token| &token.name);
        let shown = |text: &str| plain(text, usize::MAX);
        let why = after.as_ref().err().into_iter().chain(refused).collect::<Vec<_>>();
        json!({
            "id": line.id.to_string(), "time": received, "database": line.database, "token": token, "address": line.address,
            "line": line.number, "field": line.field, "code": line.code, "reason": line.reason, "before": shown(&line.text),
            "after": after.as_deref().ok().map(|after| shown(after.trim_end_matches('\n'))), "taken": self.is_taken(),
            "refused": why,
        })
    }
}

impl Fix {
    /// Of a request's body; an empty one changes nothing.
    fn of(body: &[u8]) -> Result<Self, ApiError> {
        if body.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let bad = |error: &dyn std::fmt::Display| {
            let form = r#"{"precision":"ms","rename":{"tmp":"temp"},"cast":{"temp":"float"}}"#;
            ApiError::Bad(format!("the body is no rule such as {form}: {error}"))
        };
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(|error| bad(&error))?;
        let rule = Rule::deserialize(Value::Object(object)).map_err(|error| bad(&error))?;
        let Rule { precision, rename, cast } = rule;
        let unit = |name: &String| {
            let unknown = || bad(&format!("invalid precision {name:?} (use auto, ns, u, ms, s, m or h)"));
            Precision::from_name(name).ok_or_else(unknown)
        };
        let of_type = |(field, name): (String, String)| match ValueType::from_name(&name) {
            Some(of) => Ok((field, (name, of))),
            None => Err(bad(&format!("unknown type {name:?} (use float, integer, boolean or string)"))),
        };
        let precision = precision.as_ref().map(unit).transpose()?;
        Ok(Self { precision, rename, cast: cast.into_iter().map(of_type).collect::<Result<_, _>>()? })
    }

    fn outcome(&self, line: KeptLine) -> Outcome {
        let after = self.changed(&line);
        Outcome { line, after, refused: Vec::new() }
    }

    /// The line as the rule makes it, in line protocol with a timestamp in nanoseconds.
    fn changed(&self, line: &KeptLine) -> Result<String, String> {
        let precision =
            self.precision.or_else(|| Precision::from_name(&line.precision)).unwrap_or(Precision::Nanoseconds);
        // Judged by the limits when it is explained.
        let unlimited = Limits { line_bytes: usize::MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };
        let text = line.text.as_bytes();
        if is_json(&line.text) {
            self.written(line, Items::new(text, precision, unlimited))
        } else {
            self.written(line, Lines::new(text, precision, unlimited))
        }
    }

    fn written<'a>(&self, line: &KeptLine, mut points: impl Points<'a>) -> Result<String, String> {
        let point = points.next().ok_or("there is no reading in it")?;
        let text = self.write(line, &point.map_err(|rejection| rejection.reason.to_string())?)?;
        match points.next() {
            None => Ok(text),
            Some(_) => Err("there is more than one reading in it".to_owned()),
        }
    }

    fn write(&self, line: &KeptLine, point: &Point<'_, '_>) -> Result<String, String> {
        let limits = Limits { line_bytes: usize::MAX, tags: usize::MAX, fields: usize::MAX, name_bytes: usize::MAX };
        let sensor = point.sensor(&limits).map_err(|rejection| rejection.reason.to_string())?;
        let mut fields: Vec<(&str, crate::reading::Value)> = Vec::new();
        let is_left = |name: &str| line.field.as_deref().is_none_or(|only| only == name);
        for (name, value) in point.fields.iter().filter(|(name, _)| is_left(name)) {
            let mut value = value.clone().into_value();
            if let Some((type_name, to)) = self.cast.get(&**name) {
                let is_none = || format!("the value of {name:?} is no {type_name}: {}", written(&value));
                value = to.cast(&value).ok_or_else(is_none)?;
            }
            let new = self.rename.get(&**name).map_or(&**name, String::as_str);
            // The other fields of a reading of which one was rejected are stored under their names.
            let is_stored = |other: &str| line.field.is_some() && other != &**name && other == new;
            if fields.iter().any(|(other, _)| *other == new) || point.fields.iter().any(|(other, _)| is_stored(other)) {
                return Err(format!("two fields would be named {new:?}"));
            }
            fields.push((new, value));
        }
        // The other fields of the reading are stored at this time.
        let own = line.time.filter(|_| line.field.is_some());
        let time = own.or(point.timestamp).unwrap_or_else(|| line.undated_time());
        let mut text = String::new();
        write_line(&mut text, &sensor.key, fields.iter().map(|(name, value)| (*name, value)), time);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::written;
    use crate::reading::Value;

    /// A reason quoted what the program calls a value: `is no float: String("19.3 %")`.
    #[test]
    fn a_value_is_told_as_it_was_written() {
        assert_eq!(written(&Value::String("19.3 %".into())), "\"19.3 %\"");
        assert_eq!(written(&Value::Float(21.5)), "21.5");
        assert_eq!(written(&Value::Integer(-3)), "-3");
        assert_eq!(written(&Value::Boolean(true)), "true");
        assert_eq!(written(&Value::String("a\nb\u{9b}".into())), "\"a\\u{a}b\\u{9b}\"");
        assert_eq!(written(&Value::String("x".repeat(5000).into())).chars().count(), 101);
    }
}
