//! Where a backup comes from: a running service, or a store whose service is stopped.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::digest::open_stopped;
use super::post::{GetAnswer, PostAnswer, Target, escaped};
use super::tokens::token_store;
use crate::access::Token;
use crate::backup::folder::Writing;
use crate::backup::form::{FrameReader, Frames, HEAD, Held, Next, NoBackup};
use crate::backup::read::list_days;
use crate::backup::{Parts, ReadBounds, Sensors};
use crate::store::MergedView;

use crate::clock::wall_ms;
use crate::config::Settings;
use crate::ingest::settings_to_json;
use crate::reading::Day;

/// How long a service may answer 503 before the backup gives up.
const BUSY: Duration = Duration::from_secs(120);
/// How long to wait before the service is asked again.
const AGAIN: Duration = Duration::from_millis(500);

pub enum Origin {
    Service(Target),
    Store { store: Arc<MergedView>, settings: Box<Settings> },
}

/// Whether a service said that it could not send all that it had begun to send.
pub fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(NoBackup::Refused(_)))
}

/// A part of a database that a backup keeps in a file of its own.
#[derive(Debug, Clone, Copy)]
pub enum BackupPart<'a> {
    Day(&'a str, Day),
    /// All sensors with their metadata.
    Sensors(&'a str),
}

impl BackupPart<'_> {
    /// The digest that tells whether the part is as it was.
    pub fn mark(self, held: &Held) -> u128 {
        match self {
            Self::Day(..) => held.set.sum,
            Self::Sensors(_) => held.content,
        }
    }

    /// The path of the request for it. The answer is 204 if the part is as it was.
    fn path(self, known: Option<u128>) -> String {
        let known = known.map(|mark| format!("&known={mark:032x}")).unwrap_or_default();
        match self {
            Self::Day(database, day) => format!("/api/v1/backup/day?db={}&day={}{known}", escaped(database), day.0),
            Self::Sensors(database) => format!("/api/v1/backup/sensors?db={}{known}", escaped(database)),
        }
    }
}

/// What there is to back up.
#[derive(Debug, Deserialize)]
pub struct Begun {
    /// Everything acknowledged before is in the backup.
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

#[derive(Deserialize)]
struct Behind {
    behind: Vec<Instance>,
}

#[derive(Deserialize)]
struct Instance {
    host: String,
}

impl Origin {
    /// A store whose service is stopped.
    pub async fn stopped(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self::Store { store: open_stopped(settings).await?, settings: Box::new(settings.clone()) })
    }

    /// Begins: has the service store everything that it acknowledged, and waits for other instances on the same store.
    pub async fn begin(&self, patience: Duration) -> anyhow::Result<Begun> {
        let service = match self {
            Self::Store { store, settings } => {
                let databases = store.raw().databases().await?;
                let tokens = token_store(settings).await?.tokens().await?;
                let settings = self.settings().await?;
                let began_ms = u64::try_from(wall_ms()).unwrap_or_default();
                return Ok(Begun { began_ms, databases, tokens, settings });
            }
            Self::Service(service) => service,
        };
        let before: Begun = json(ask(service, "/api/v1/backup")?)?;
        flush(service)?;
        let (until, mut told) = (Instant::now() + patience, false);
        loop {
            let Behind { behind } = json(ask(service, &format!("/api/v1/backup?since={}", before.began_ms))?)?;
            let hosts: Vec<&str> = behind.iter().map(|instance| &*instance.host).collect();
            if hosts.is_empty() {
                break;
            }
            let hosts = hosts.join(", ");
            if Instant::now() > until {
                bail!(
                    "{hosts}: these instances on the same store have not said within --patience that everything they acknowledged is \
                     stored: stop them or have them flush (POST /api/v1/flush); of a lost folder, remove the entry (docs/reference/data-folder.md#lose)"
                );
            }
            if !std::mem::replace(&mut told, true) {
                eprintln!("hourglass: waiting until other instances have stored everything: {hosts}");
            }
            tokio::time::sleep(AGAIN).await;
        }
        // Databases that were created by what the flush stored.
        let after: Begun = json(ask(service, "/api/v1/backup")?)?;
        Ok(Begun { began_ms: before.began_ms, ..after })
    }

    /// The databases' settings as they are now.
    pub async fn settings(&self) -> anyhow::Result<Value> {
        match self {
            Self::Store { store, .. } => {
                let rows = store.raw().read_settings().await?;
                Ok(settings_to_json(rows.iter().map(|(name, of)| (name, of))))
            }
            Self::Service(service) => Ok(json::<Begun>(ask(service, "/api/v1/backup")?)?.settings),
        }
    }

    /// The days of a database.
    pub async fn days(&self, database: &str) -> anyhow::Result<Vec<Day>> {
        match self {
            Self::Store { store, .. } => Ok(list_days(store, database).await?.into_iter().collect()),
            Self::Service(service) => {
                let Days { days } = json(ask(service, &format!("/api/v1/backup/days?db={}", escaped(database)))?)?;
                Ok(days.into_iter().map(Day).collect())
            }
        }
    }

    /// Writes a part into the file, unless it is as it was by its mark; `None` if it is.
    pub async fn write(
        &self,
        part: BackupPart<'_>,
        known: Option<u128>,
        to: &mut Writing,
    ) -> anyhow::Result<Option<Held>> {
        let (store, settings) = match self {
            Self::Store { store, settings } => (store, settings),
            Self::Service(service) => {
                let answer = ask(service, &part.path(known))?;
                return if answer.status == 204 { Ok(None) } else { through(answer, to).map(Some) };
            }
        };
        let mut frames = Frames::default();
        to.put(HEAD)?;
        match part {
            BackupPart::Day(database, day) => {
                let bounds = ReadBounds::of_memory(settings.query.request_bytes);
                let mut parts = Parts::new(store, database, day.hours(), bounds);
                while let Some(piece) = parts.next().await? {
                    to.put(&frames.piece(&piece))?;
                }
            }
            BackupPart::Sensors(database) => {
                let mut sensors = Sensors::new(store, database);
                while let Some(document) = sensors.next().await? {
                    to.put(&frames.sensor(&document))?;
                }
            }
        }
        let held = frames.held();
        to.put(&frames.end())?;
        Ok((known != Some(part.mark(&held))).then_some(held))
    }

    /// Tells the service that the backup that began then is proved.
    pub fn proved(&self, began_ms: u64) -> anyhow::Result<()> {
        match self {
            Self::Store { settings, .. } => {
                let folder = &settings.server.data_dir;
                crate::backup::proved::keep(folder, began_ms)
                    .with_context(|| format!("writing to {}", folder.display()))
            }
            Self::Service(service) => match service.post(&format!("/api/v1/backup/proved?began={began_ms}"), b"")? {
                PostAnswer { status: 204, .. } => Ok(()),
                answer => bail!("{answer}"),
            },
        }
    }
}

/// Writes the frames of an answer into a file, and returns what they hold.
fn through(answer: GetAnswer, to: &mut Writing) -> anyhow::Result<Held> {
    let mut frames = FrameReader::new(Tee { from: answer.body, to })?;
    loop {
        if let Next::End(held) = frames.read()? {
            return Ok(held);
        }
    }
}

/// Writes what is read into a file.
struct Tee<'a, R> {
    from: R,
    to: &'a mut Writing,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(out)?;
        self.to.put(&out[..read]).map_err(io::Error::other)?;
        Ok(read)
    }
}

/// Has the service store what it acknowledged. Dead letters are told, and are no part of a backup.
fn flush(service: &Target) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        match service.post("/api/v1/flush", b"")? {
            PostAnswer { status: 204, .. } => return Ok(()),
            PostAnswer { status: 409, text } => {
                eprintln!("hourglass: dead letters are no part of the backup: {}", text.trim());
                return Ok(());
            }
            PostAnswer { status: 503, .. } if began.elapsed() < BUSY => std::thread::sleep(AGAIN),
            answer => bail!("not everything that was acknowledged is stored: {answer}"),
        }
    }
}

/// Asks, again and again while the service is busy.
fn ask(service: &Target, path: &str) -> anyhow::Result<GetAnswer> {
    let began = Instant::now();
    loop {
        let answer = service.get(path)?;
        match answer.status {
            200 | 204 => return Ok(answer),
            503 if began.elapsed() < BUSY => std::thread::sleep(AGAIN),
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
    serde_json::from_reader(answer.body).context("the service answered what this version does not understand")
}
