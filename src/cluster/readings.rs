//! What queries see of the memory of all instances.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Cluster;
use super::others::refusal;
use super::questions::{Answer, Question};
use crate::bucket::{CatalogSensor, CatalogVersion, HourVersions, UnflushedError, UnflushedHour, UnflushedReadings};
use crate::ingest::{Ingest, merge_sensors};
use crate::reading::Hour;

/// The unflushed readings of all instances.
pub struct ClusterReadings {
    own: Arc<Ingest>,
    cluster: Arc<Cluster>,
}

impl std::fmt::Debug for ClusterReadings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterReadings")
    }
}

impl ClusterReadings {
    #[must_use]
    pub fn new(own: Arc<Ingest>, cluster: Arc<Cluster>) -> Self {
        Self { own, cluster }
    }

    /// Adds the fields of learned sensors to sensors that this instance knows.
    fn join(
        &self,
        database: &str,
        mut sensors: Vec<CatalogSensor>,
        wanted: impl Fn(&str) -> bool,
    ) -> Vec<CatalogSensor> {
        merge_sensors(&mut sensors, self.cluster.learned_sensors(database, wanted));
        sensors
    }
}

#[async_trait]
impl UnflushedReadings for ClusterReadings {
    async fn unflushed(
        &self,
        database: &str,
        sensors: &[&str],
        hours: Range<Hour>,
    ) -> Result<Vec<Vec<UnflushedHour>>, UnflushedError> {
        let mut all = vec![ByHour::new(); sensors.len()];
        // What is left to be asked: all sensors at first, and parts of them if an answer would be too long.
        let mut left = vec![(0..sensors.len(), hours)];
        while let Some((places, hours)) = left.pop() {
            let question = Question::Readings {
                database: database.to_owned(),
                sensors: sensors[places.clone()].iter().map(|sensor| (*sensor).to_owned()).collect(),
                hours: hours.clone(),
            };
            let answers = self.cluster.ask(&question).await?;
            if answers.iter().any(|answer| matches!(answer, Answer::TooMuch)) {
                left.extend(halves(places, hours).ok_or_else(|| refusal(&Answer::TooMuch))?);
                continue;
            }
            for answer in answers {
                let Answer::Readings { heard, hours } = answer else { return Err(refusal(&answer)) };
                self.cluster.note_changes(heard, self.own.changes());
                hours.into_iter().zip(&mut all[places.clone()]).for_each(|(hours, all)| join_hours(all, hours));
            }
        }
        Ok(all.into_iter().map(|hours| hours.into_values().collect()).collect())
    }

    fn catalog_sensors(&self, database: &str, version: CatalogVersion) -> Vec<CatalogSensor> {
        self.join(database, self.own.catalog_sensors(database, version), |_| true)
    }

    fn catalog_sensor(&self, database: &str, sensor: &str) -> Option<CatalogSensor> {
        let own = self.own.catalog_sensor(database, sensor);
        self.join(database, Vec::from_iter(own), |key| key == sensor).pop()
    }

    fn databases(&self) -> Vec<String> {
        let mut names = self.own.databases();
        names.extend(self.cluster.learned.lock().sensors.keys().cloned());
        names
    }

    fn catalog_version(&self, database: Option<&str>) -> Result<CatalogVersion, UnflushedError> {
        let version = self.own.catalog_version(database)?;
        // Lists that were read before an instance was met may lack what it has stored since.
        let deletions = version.deletions + (self.cluster.learned.lock().changes.len() as u64).wrapping_shl(32);
        Ok(CatalogVersion { deletions, ..version })
    }

    async fn refresh(&self) -> Result<(), UnflushedError> {
        if self.cluster.learn_news(self.own.changes()).await? {
            self.own.catalog.note_news();
        }
        Ok(())
    }

    fn left_out(&self, within: Duration) -> Vec<String> {
        self.cluster.left_out(within)
    }

    fn changes(&self) -> &HourVersions {
        self.own.changes()
    }
}

/// The unflushed readings of one sensor.
type ByHour = BTreeMap<Hour, UnflushedHour>;

fn join_hours(all: &mut ByHour, hours: Vec<UnflushedHour>) {
    for hour in hours {
        match all.entry(hour.hour) {
            Entry::Vacant(place) => drop(place.insert(hour)),
            Entry::Occupied(mut known) => known.get_mut().join(&hour),
        }
    }
}

/// Halves the sensors of a question, or the hours of a single one; `None` if it is about one hour.
fn halves(places: Range<usize>, hours: Range<Hour>) -> Option<[(Range<usize>, Range<Hour>); 2]> {
    if places.len() > 1 {
        let middle = places.start + places.len() / 2;
        return Some([(places.start..middle, hours.clone()), (middle..places.end, hours)]);
    }
    let middle = Hour(hours.start.0 + (hours.end.0.saturating_sub(hours.start.0)) / 2);
    (middle > hours.start).then(|| [(places.clone(), hours.start..middle), (places, middle..hours.end)])
}
