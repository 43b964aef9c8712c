//! What this instance asks the others.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use hourglass_members::{ClientAnswer, Opening};

use super::Cluster;
use super::driver::Input;
use super::questions::{Answer, Heard, Question};
use crate::bucket::{CatalogSensor, HourVersions, SensorDocument, UnflushedError};
use crate::ingest::admission::owners::OnPage;
use crate::store::document::decode_sensor_bytes;

/// Pause between two questions whether everything is flushed.
const FLUSH_PAUSE: Duration = Duration::from_millis(100);
/// The time for which a sensor of another instance is remembered after that instance has stored it. Lists that are
/// older than `query.cache_max_age` are read again.
const KEPT: Duration = Duration::from_secs(120);

/// What other instances have said.
#[derive(Default)]
pub struct Learned {
    /// The version of each instance's catalog, by folder.
    versions: BTreeMap<u64, u64>,
    /// The number of hours that each instance has changed in the store.
    pub(super) changes: BTreeMap<u64, u64>,
    /// By database and sensor.
    pub(super) sensors: HashMap<String, BTreeMap<Box<str>, LearnedSensor>>,
}

pub struct LearnedSensor {
    sensor: CatalogSensor,
    heard: Instant,
}

impl Cluster {
    /// Asks all instances, this one included.
    pub(super) async fn ask(&self, question: &Question) -> Result<Vec<Answer>, UnflushedError> {
        let (reply, answer) = oneshot::channel();
        let question = question.encode().into();
        self.input(Input::Ask { question, may_be_incomplete: true, reply });
        let names = |openings: &[Opening]| openings.iter().map(name).collect::<Vec<_>>().join(", ");
        match answer.await {
            Ok(ClientAnswer::Rows { answers, missing, .. }) => {
                let malformed = || UnflushedError::Missing("an answer is malformed".to_owned());
                let answers = answers.iter().map(|answer| Answer::decode(answer).ok_or_else(malformed));
                let now = Instant::now();
                self.left_out.lock().extend(missing.iter().map(|opening| (opening.folder.0, now)));
                answers.collect()
            }
            Ok(ClientAnswer::Missing(missing)) => Err(UnflushedError::Missing(names(&missing))),
            _ => Err(UnflushedError::Missing("the registry is not known".to_owned())),
        }
    }

    /// Forgets cached hours if another instance has changed the store.
    pub(super) fn note_changes(&self, heard: Heard, cached: &HourVersions) {
        if heard.folder == self.own.folder.0 {
            return;
        }
        let mut learned = self.learned.lock();
        if learned.changes.insert(heard.folder, heard.changes).is_some_and(|known| known != heard.changes) {
            cached.note_everything();
        }
    }

    /// Asks for what others have added to their catalogs. Returns true if there is something new.
    pub(super) async fn learn_news(&self, cached: &HourVersions) -> Result<bool, UnflushedError> {
        let since = self.learned.lock().versions.iter().map(|(folder, additions)| (*folder, *additions)).collect();
        let mut is_new = false;
        for answer in self.ask(&Question::News { since }).await? {
            let Answer::News { heard, additions, sensors } = answer else { return Err(refusal(&answer)) };
            if heard.folder != self.own.folder.0 {
                self.note_changes(heard, cached);
                is_new |= self.learn(heard.folder, additions, sensors);
            }
        }
        Ok(is_new)
    }

    fn learn(&self, folder: u64, additions: u64, sensors: Vec<(String, Vec<CatalogSensor>)>) -> bool {
        let mut learned = self.learned.lock();
        let now = Instant::now();
        learned.versions.insert(folder, additions);
        let mut is_new = false;
        for (database, sensors) in sensors {
            let known = learned.sensors.entry(database).or_default();
            for sensor in sensors {
                let key = sensor.sensor.key.clone();
                is_new |= known.get(&key).is_none_or(|known| known.sensor.fields != sensor.fields);
                known.insert(key, LearnedSensor { sensor, heard: now });
            }
        }
        for sensors in learned.sensors.values_mut() {
            sensors.retain(|_, sensor| now - sensor.heard < KEPT);
        }
        learned.sensors.retain(|_, sensors| !sensors.is_empty());
        is_new
    }

    /// Returns the wanted ones of the sensors that others have and the store may lack.
    pub(super) fn learned_sensors(&self, database: &str, wanted: impl Fn(&str) -> bool) -> Vec<CatalogSensor> {
        let learned = self.learned.lock();
        let known = learned.sensors.get(database).into_iter().flatten().filter(|(key, _)| wanted(key));
        known.map(|(_, learned)| learned.sensor.clone()).collect()
    }

    /// Adds to documents of sensors what others have not stored, and the sensors of others that are on the page.
    pub(super) async fn complete_documents(
        &self,
        database: &str,
        documents: &mut BTreeMap<Box<str>, SensorDocument>,
        on_page: Option<OnPage<'_>>,
    ) -> Result<(), UnflushedError> {
        if let Some(is_on_page) = on_page {
            for sensor in self.learned_sensors(database, is_on_page) {
                let key = sensor.sensor.key.clone();
                documents.entry(key).or_insert_with(|| SensorDocument::new(sensor.sensor));
            }
        }
        if documents.is_empty() {
            return Ok(());
        }
        let sensors = documents.keys().map(|key| key.to_string()).collect();
        for answer in self.ask(&Question::Documents { database: database.to_owned(), sensors }).await? {
            let Answer::Documents(others) = answer else { return Err(refusal(&answer)) };
            for bytes in others {
                let malformed = |_| UnflushedError::Missing("a document is malformed".to_owned());
                let other = decode_sensor_bytes(&bytes).map_err(malformed)?;
                if let Some(document) = documents.get_mut(&other.sensor.key) {
                    join_document(document, other, self.recent);
                }
            }
        }
        Ok(())
    }

    /// Asks all others to store what they have. Returns false if they have not within this time.
    pub(super) async fn flush_all(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            if let Ok(answers) = self.ask(&Question::Flush).await
                && answers.iter().all(|answer| matches!(answer, Answer::Flushed))
            {
                return true;
            }
            tokio::time::sleep(FLUSH_PAUSE).await;
        }
        false
    }
}

/// Adds what another instance knows of a sensor, which is the newer part.
fn join_document(document: &mut SensorDocument, other: SensorDocument, recent_max: usize) {
    let is_new = |(name, _): &(std::sync::Arc<str>, _)| !document.fields.iter().any(|(known, _)| known == name);
    let fields: Vec<_> = other.fields.into_iter().filter(is_new).collect();
    document.fields.extend(fields);
    document.first_seen = document.first_seen.into_iter().chain(other.first_seen).min();
    document.last_seen = document.last_seen.max(other.last_seen);
    let readings = document.recent.drain(..).chain(other.recent).map(|reading| (reading.time, reading));
    let by_time: BTreeMap<i64, _> = readings.collect();
    let surplus = by_time.len().saturating_sub(recent_max);
    document.recent = by_time.into_values().skip(surplus).collect();
    document.outlier = other.outlier.or(document.outlier);
    document.meta.merge(&other.meta);
}

fn name(opening: &Opening) -> String {
    format!("{:016x}", opening.folder.0)
}

/// Returns the error for an answer that is none.
pub(super) fn refusal(answer: &Answer) -> UnflushedError {
    match answer {
        Answer::TooMuch => {
            UnflushedError::Missing("one has more than 8 MiB of unflushed readings of a sensor's hour".to_owned())
        }
        _ => UnflushedError::Replaying,
    }
}
