//! Endpoints for `hourglass backup`. The readings of a day and the sensors of a database are streamed while they are
//! read, within half of a request's memory. Only one stream is sent at a time.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::access::TokenStoreError;
use crate::backup::form::{Frames, HEAD};
use crate::backup::read::list_days;
use crate::backup::{BackupTimes, Parts, ReadBounds, Sensors, SetDigest};
use crate::blocking;
use crate::bucket::registry::settled_before;
use crate::bucket::{StorageError, Store};
use crate::faults;
use crate::http::App;
use crate::http::errors::{ApiError, ApiResult};
use crate::http::parameters::Parameters;
use crate::ingest::settings_to_json;
use crate::query::{Budget, HeldBytes, QueryError};
use crate::reading::{Day, Hour};
use crate::store::MergedView;

/// Maximum difference between the clocks of two instances: twice the default of `clock.tolerance`, plus a margin.
const CLOCK_SKEW_MS: u64 = 1000;
/// The days of all valid timestamps.
const VALID_DAYS: RangeInclusive<i64> = -106_752..=106_751;

fn storage_error(error: StorageError) -> ApiError {
    ApiError::Query(QueryError::Storage(error))
}

/// `GET /api/v1/backup`.
pub async fn begin(parameters: Parameters) -> ApiResult<Json<Value>> {
    let app = &parameters.app;
    let opening = app.ingest.member.opening;
    let now_ms = app.ingest.member.clock.now_ms();
    let since = parameters.count("since", usize::MAX)?.and_then(|since| u64::try_from(since).ok());
    let lagging =
        list_lagging_instances(&**app.store.raw(), opening, since.unwrap_or(now_ms)).await.map_err(storage_error)?;
    if since.is_some() {
        return Ok(Json(json!({ "behind": lagging })));
    }
    let tokens = app.access.stored().await;
    let tokens = tokens.map_err(|error: TokenStoreError| ApiError::Unreadable(error.to_string()))?;
    parameters.requester.note(app, "BACKUP".to_owned(), "", "begun");
    let databases = app.store.raw().databases().await.map_err(storage_error)?;
    let rows = app.store.raw().read_settings().await.map_err(storage_error)?;
    let settings = settings_to_json(rows.iter().map(|(name, settings)| (name, settings)));
    Ok(Json(json!({
        "began_ms": now_ms, "databases": databases, "tokens": tokens, "settings": settings, "behind": lagging,
    })))
}

/// Lists the other instances that may have unstored readings acknowledged before this time.
async fn list_lagging_instances(store: &dyn Store, own: u64, since_ms: u64) -> Result<Vec<Value>, StorageError> {
    if !store.has_other_writers() {
        return Ok(Vec::new());
    }
    let required = settled_before(since_ms.saturating_add(CLOCK_SKEW_MS));
    let logs = store.read_registry().await?.logs;
    let lagging = logs.iter().filter(|log| log.opening != own && log.takeover.is_none() && log.watermark < required);
    Ok(lagging.map(|log| json!({ "host": log.host, "opening": format!("{:016x}", log.opening) })).collect())
}

/// `GET /api/v1/backup/days`.
pub async fn days(parameters: Parameters) -> ApiResult<Json<Value>> {
    let days = list_days(&parameters.app.store, &parameters.stored_database()?).await.map_err(storage_error)?;
    Ok(Json(json!({ "days": days.iter().map(|day| day.0).collect::<Vec<_>>() })))
}

/// `GET /api/v1/backup/day`.
pub async fn day(parameters: Parameters) -> ApiResult<Response> {
    let app = parameters.app.clone();
    let database = parameters.stored_database()?;
    let text = parameters.get("day").unwrap_or_default();
    let day = text.parse().ok().filter(|day| VALID_DAYS.contains(day)).map(Day);
    let day =
        day.ok_or_else(|| ApiError::Bad(format!("parameter day: {text:?} is not a day counted from 1970-01-01")))?;
    let known = known_digest(&parameters)?;
    let permit = SendPermit::wait(&parameters).await?;
    let bounds = ReadBounds::for_memory(app.backup_bytes());
    let hours = day.hours();
    if let Some(known) = known
        && known == compute_digest(&app.store, &database, hours.clone(), bounds).await.map_err(storage_error)?
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(stream(app, database, Some((hours, bounds)), permit))
}

/// Parses the digest of the last backup.
fn known_digest(parameters: &Parameters) -> ApiResult<Option<u128>> {
    let known = parameters.get("known").map(|digest| u128::from_str_radix(digest, 16)).transpose();
    known.map_err(|_| ApiError::Bad("parameter known is not a digest of 32 hexadecimal digits".to_owned()))
}

/// Makes an answer with the readings of some hours, or with all sensors. Reads one part ahead.
fn stream(app: Arc<App>, database: String, hours: Option<(Range<Hour>, ReadBounds)>, permit: SendPermit) -> Response {
    let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
    let parts = futures_util::stream::poll_fn(move |context| {
        receiver.poll_recv(context).map(|part| part.map(Ok::<_, std::convert::Infallible>))
    });
    tokio::spawn(async move {
        let sent = match hours {
            Some((hours, bounds)) => send_day(&app.store, &database, hours, bounds, &sender).await,
            None => send_sensors(&app.store, &database, &sender).await,
        };
        if let Err(error) = sent {
            tracing::warn!(%error, database, "cannot read a part of a backup");
            // The refusal takes the place of the end.
            let _ = sender.send(Frames::refusal(&error).into()).await;
        }
        drop(permit);
    });
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(parts)).into_response()
}

/// `GET /api/v1/backup/sensors`.
pub async fn sensors(parameters: Parameters) -> ApiResult<Response> {
    let app = parameters.app.clone();
    let database = parameters.stored_database()?;
    let known = known_digest(&parameters)?;
    let permit = SendPermit::wait(&parameters).await?;
    if let Some(known) = known {
        let mut sensors = Sensors::new(&app.store, &database);
        let mut frames = Frames::default();
        while let Some(document) = sensors.next().await.map_err(storage_error)? {
            drop(frames.sensor(&document));
        }
        if frames.totals().content == known {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    Ok(stream(app, database, None, permit))
}

/// The turn and the memory for sending a part of a backup, held until the part is sent, which answers the request.
struct SendPermit {
    _permit: Option<OwnedSemaphorePermit>,
    _memory: HeldBytes,
    budget: Budget,
}

impl Drop for SendPermit {
    fn drop(&mut self) {
        self.budget.finish();
    }
}

impl SendPermit {
    /// Waits until no other part of a backup is sent, and reserves the memory.
    async fn wait(parameters: &Parameters) -> ApiResult<Self> {
        let app = &parameters.app;
        let permit = app.backups.clone().acquire_owned().await.ok();
        let budget = app.query.begin(&parameters.requester.caller, "backup");
        Ok(Self { _permit: permit, _memory: budget.hold(app.backup_bytes())?, budget })
    }
}

/// Sends all sensors, unless the client disconnects.
async fn send_sensors(store: &MergedView, database: &str, sender: &mpsc::Sender<Bytes>) -> Result<(), StorageError> {
    let mut sensors = Sensors::new(store, database);
    let mut frames = Frames::default();
    let mut bytes = HEAD.to_vec();
    loop {
        let batch = sensors.next_batch().await?;
        if batch.is_empty() {
            bytes.extend(frames.end());
            // A client detects a missing end.
            let _ = sender.send(bytes.into()).await;
            return Ok(());
        }
        for document in &batch {
            bytes.extend(frames.sensor(document));
        }
        if sender.send(std::mem::take(&mut bytes).into()).await.is_err() {
            return Ok(());
        }
    }
}

async fn compute_digest(
    store: &MergedView,
    database: &str,
    hours: Range<Hour>,
    bounds: ReadBounds,
) -> Result<u128, StorageError> {
    let mut parts = Parts::new(store, database, hours, bounds);
    let mut digest = SetDigest::default();
    while let Some(piece) = parts.next().await? {
        digest += run_blocking(move || piece.digest()).await?;
    }
    Ok(digest.sum)
}

/// Runs CPU or file work on a blocking thread.
async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, StorageError> {
    let done = blocking::spawn(work).await;
    done.map_err(|error| StorageError::Unavailable(error.to_string()))
}

/// Sends a day, unless the client disconnects.
async fn send_day(
    store: &MergedView,
    database: &str,
    hours: Range<Hour>,
    bounds: ReadBounds,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), StorageError> {
    let mut parts = Parts::new(store, database, hours, bounds);
    let mut frames = Frames::default();
    let mut bytes = HEAD.to_vec();
    while sender.send(bytes.into()).await.is_ok() {
        let Some(piece) = parts.next().await? else {
            // A client detects a missing end.
            let _ = sender.send(frames.end().into()).await;
            break;
        };
        (frames, bytes) = run_blocking(move || {
            let bytes = frames.piece(&piece);
            (frames, bytes)
        })
        .await?;
        faults::point("part_sent");
    }
    Ok(())
}

/// `POST /api/v1/backup/completed`.
pub async fn completed(parameters: Parameters) -> ApiResult<StatusCode> {
    let began = parameters.get("began").and_then(|began| began.parse::<u64>().ok());
    let began = began.ok_or_else(|| {
        ApiError::Bad("parameter began is missing or invalid: send milliseconds since 1970".to_owned())
    })?;
    let folder = parameters.app.settings.server.data_dir.clone();
    let is_proved = parameters.flag("proved")?;
    let recorded = run_blocking(move || BackupTimes::record(&folder, began, is_proved)).await.map_err(storage_error)?;
    let times =
        recorded.map_err(|error| ApiError::Unreadable(format!("the time of the last completed backup: {error}")))?;
    parameters.app.metrics.backups(times.completed, times.proved);
    Ok(StatusCode::NO_CONTENT)
}
