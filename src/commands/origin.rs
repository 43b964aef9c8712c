//! The source of a backup: a running service, or a store whose service is stopped.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::digest::open_stopped;
use super::post::{GetAnswer, PostAnswer, Target, url_encode};
use super::tokens::token_store;
use crate::access::Token;
use crate::backup::form::{BackupError, FileTotals, FrameItem, FrameReader, Frames, HEAD};
use crate::backup::read::list_days;
use crate::backup::{BackupTimes, Parts, ReadBounds, Sensors};
use crate::store::MergedView;

use crate::clock::wall_ms;
use crate::config::Settings;
use crate::ingest::settings_to_json;
use crate::reading::Day;

/// Maximum time of answers with 503 after which the backup gives up.
const BUSY_MAX: Duration = Duration::from_secs(120);
/// Pause before a request is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The source of a backup.
pub enum Origin {
    Service(Target),
    Store { store: Arc<MergedView>, settings: Box<Settings> },
}

/// Returns true if the service broke off a part with an error.
pub fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(BackupError::Refused(_)))
}

/// A part of a database that has a file of its own in a backup.
#[derive(Debug, Clone, Copy)]
pub enum BackupPart<'a> {
    Day(&'a str, Day),
    /// All sensors with their metadata.
    Sensors(&'a str),
}

impl BackupPart<'_> {
    /// Returns the digest that shows whether the part has changed.
    pub fn mark(self, totals: &FileTotals) -> u128 {
        match self {
            Self::Day(..) => totals.set.sum,
            Self::Sensors(_) => totals.content,
        }
    }

    /// Returns the path of the request for the part. The answer is 204 if the part still has the known digest.
    fn path(self, known: Option<u128>) -> String {
        let known = known.map(|mark| format!("&known={mark:032x}")).unwrap_or_default();
        match self {
            Self::Day(database, day) => {
                format!("/api/v1/backup/day?db={}&day={}{known}", url_encode(database), day.0)
            }
            Self::Sensors(database) => format!("/api/v1/backup/sensors?db={}{known}", url_encode(database)),
        }
    }
}

/// The databases and tokens at the start of a backup.
#[derive(Debug, Deserialize)]
pub struct BackupStart {
    /// The time of the start in milliseconds since the epoch. Everything acknowledged before is in the backup.
    pub began_ms: u64,
    pub databases: Vec<String>,
    pub tokens: Vec<Token>,
    /// The databases' settings, as `ingest::settings_to_json` writes them.
    pub settings: Value,
}

#[derive(Deserialize)]
struct Days {
    days: Vec<i64>,
}

/// The instances that have not flushed everything yet.
#[derive(Deserialize)]
struct InstancesBehind {
    behind: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    host: String,
}

impl Origin {
    /// Opens a store whose service is stopped.
    pub async fn open_stopped(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self::Store { store: open_stopped(settings).await?, settings: Box::new(settings.clone()) })
    }

    /// Asks the service to flush everything it acknowledged, and waits until other instances on the store have flushed
    /// too.
    pub async fn begin(&self, patience: Duration) -> anyhow::Result<BackupStart> {
        let service = match self {
            Self::Store { store, settings } => {
                let databases = store.raw().databases().await?;
                let tokens = token_store(settings).await?.tokens().await?;
                let settings = self.settings().await?;
                let began_ms = u64::try_from(wall_ms()).unwrap_or_default();
                return Ok(BackupStart { began_ms, databases, tokens, settings });
            }
            Self::Service(service) => service,
        };
        let before: BackupStart = json(ask(service, "/api/v1/backup")?)?;
        flush(service)?;
        let deadline = Instant::now() + patience;
        let mut has_warned = false;
        loop {
            let InstancesBehind { behind } = json(ask(service, &format!("/api/v1/backup?since={}", before.began_ms))?)?;
            let hosts: Vec<&str> = behind.iter().map(|instance| &*instance.host).collect();
            if hosts.is_empty() {
                break;
            }
            let hosts = hosts.join(", ");
            if Instant::now() > deadline {
                bail!(
                    "{hosts}: these instances on the same store have not flushed everything they acknowledged within --patience: \
                     stop them or make them flush (POST /api/v1/flush); if a folder is lost, remove its entry (docs/reference/data-folder.md#lose)"
                );
            }
            if !std::mem::replace(&mut has_warned, true) {
                eprintln!("hourglass: waiting until other instances have flushed everything: {hosts}");
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        // List again, because the flush may have created databases.
        let after: BackupStart = json(ask(service, "/api/v1/backup")?)?;
        Ok(BackupStart { began_ms: before.began_ms, ..after })
    }

    /// Returns the current settings of the databases.
    pub async fn settings(&self) -> anyhow::Result<Value> {
        match self {
            Self::Store { store, .. } => {
                let rows = store.raw().read_settings().await?;
                Ok(settings_to_json(rows.iter().map(|(name, settings)| (name, settings))))
            }
            Self::Service(service) => Ok(json::<BackupStart>(ask(service, "/api/v1/backup")?)?.settings),
        }
    }

    /// Lists the days of a database.
    pub async fn days(&self, database: &str) -> anyhow::Result<Vec<Day>> {
        match self {
            Self::Store { store, .. } => Ok(list_days(store, database).await?.into_iter().collect()),
            Self::Service(service) => {
                let Days { days } = json(ask(service, &format!("/api/v1/backup/days?db={}", url_encode(database)))?)?;
                Ok(days.into_iter().map(Day).collect())
            }
        }
    }

    /// Writes a part into a file. Returns `None` if the part still has the known digest; the file then has no valid
    /// content.
    pub async fn write(
        &self,
        part: BackupPart<'_>,
        known: Option<u128>,
        target: &mut impl Write,
    ) -> anyhow::Result<Option<FileTotals>> {
        let (store, settings) = match self {
            Self::Store { store, settings } => (store, settings),
            Self::Service(service) => {
                let answer = ask(service, &part.path(known))?;
                return if answer.status == 204 { Ok(None) } else { copy_frames(answer, target).map(Some) };
            }
        };
        let mut frames = Frames::default();
        target.write_all(HEAD)?;
        match part {
            BackupPart::Day(database, day) => {
                let bounds = ReadBounds::for_memory(settings.query.request_bytes);
                let mut parts = Parts::new(store, database, day.hours(), bounds);
                while let Some(piece) = parts.next().await? {
                    target.write_all(&frames.piece(&piece))?;
                }
            }
            BackupPart::Sensors(database) => {
                let mut sensors = Sensors::new(store, database);
                while let Some(document) = sensors.next().await? {
                    target.write_all(&frames.sensor(&document))?;
                }
            }
        }
        let totals = frames.totals();
        target.write_all(&frames.end())?;
        Ok((known != Some(part.mark(&totals))).then_some(totals))
    }

    /// Records that the backup that began at this time is complete, and perhaps proved.
    pub fn record_completed(&self, began_ms: u64, is_proved: bool) -> anyhow::Result<()> {
        match self {
            Self::Store { settings, .. } => {
                let folder = &settings.server.data_dir;
                let recorded = BackupTimes::record(folder, began_ms, is_proved);
                recorded.map(drop).with_context(|| format!("writing to {}", folder.display()))
            }
            Self::Service(service) => {
                let path = format!("/api/v1/backup/completed?began={began_ms}&proved={is_proved}");
                match service.post(&path, b"")? {
                    PostAnswer { status: 204, .. } => Ok(()),
                    answer => bail!("{answer}"),
                }
            }
        }
    }
}

/// Copies the frames of an answer into a file, and returns their totals.
fn copy_frames(answer: GetAnswer, target: &mut impl Write) -> anyhow::Result<FileTotals> {
    let mut frames = FrameReader::new(Tee { source: answer.body, target })?;
    loop {
        if let FrameItem::End(totals) = frames.read()? {
            return Ok(totals);
        }
    }
}

/// A reader that also writes everything it reads into a file.
struct Tee<'a, R, W> {
    source: R,
    target: &'a mut W,
}

impl<R: Read, W: Write> Read for Tee<'_, R, W> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(out)?;
        self.target.write_all(&out[..read])?;
        Ok(read)
    }
}

/// Asks the service to flush everything it acknowledged. Dead letters are reported, because a backup has none.
fn flush(service: &Target) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match service.post("/api/v1/flush", b"")? {
            PostAnswer { status: 204, .. } => return Ok(()),
            PostAnswer { status: 409, text, .. } => {
                eprintln!("hourglass: the backup has no dead letters: {}", text.trim());
                return Ok(());
            }
            PostAnswer { status: 503, .. } if began.elapsed() < BUSY_MAX => std::thread::sleep(RETRY_PAUSE),
            answer => bail!("not everything acknowledged is in the store: {answer}"),
        }
    }
}

/// Sends a GET request, and repeats it while the service is busy.
fn ask(service: &Target, path: &str) -> anyhow::Result<GetAnswer> {
    let began = Instant::now();
    loop {
        let answer = service.get(path)?;
        match answer.status {
            200 | 204 => return Ok(answer),
            503 if began.elapsed() < BUSY_MAX => std::thread::sleep(RETRY_PAUSE),
            status @ (401 | 403) => {
                bail!(
                    "the service answered {status}: {}; give an admin's token with --token-file",
                    answer.text()?.trim()
                )
            }
            status => bail!("the service answered {status}: {}", answer.text()?.trim()),
        }
    }
}

fn json<T: DeserializeOwned>(answer: GetAnswer) -> anyhow::Result<T> {
    serde_json::from_reader(answer.body).context("this version does not understand the answer of the service")
}
