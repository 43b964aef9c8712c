//! Updates the documents of groups from those of sensors. The store notes changed sensors in memory. A walk through all
//! sensors, at the start and every hour, finds the changes that were lost with a process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;
use crate::bucket::{GroupUpdateProgress, StorageError};

/// The interval at which changed sensors are processed.
const PAUSE: Duration = Duration::from_millis(200);
/// The interval of walks through all sensors.
const WALK_INTERVAL: Duration = Duration::from_secs(3600);
/// Number of sensors per transaction. A step of 256 took 0.1 s in an unoptimized build on two shared cores.
const BATCH_SENSORS: usize = 256;
/// Maximum number of attempts for a step of a walk that conflicts with other instances.
const ATTEMPTS_MAX: usize = 5;

/// The job that updates the documents of groups.
pub struct Group {
    store: Arc<dyn MongoExtras>,
    next_walk: Instant,
}

impl Group {
    #[must_use]
    pub fn new(store: Arc<dyn MongoExtras>) -> Self {
        Self { store, next_walk: Instant::now() }
    }

    /// Walks through all sensors in batches.
    async fn walk(&mut self, run: &Run) -> Result<(), StorageError> {
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(sensor) = after {
                let began = Instant::now();
                let mut attempt = 1;
                let step = loop {
                    match self.store.regroup_after(&database, &sensor, BATCH_SENSORS).await {
                        Err(error) if error.is_transient() && attempt < ATTEMPTS_MAX => {
                            tokio::time::sleep(PAUSE).await;
                        }
                        result => break result?,
                    }
                    attempt += 1;
                };
                show(&step.progress, run);
                after = step.last_key;
                // Process changed sensors during the walk too. A conflict here does not restart the walk.
                match self.regroup(run).await {
                    Err(error) if !error.is_transient() => return Err(error),
                    _ => {}
                }
                run.pause(began).await;
            }
        }
        Ok(())
    }

    /// Processes a batch of changed sensors. Returns the number of sensors that are left.
    async fn regroup(&mut self, run: &Run) -> Result<u64, StorageError> {
        let began = Instant::now();
        let done = self.store.regroup(BATCH_SENSORS).await?;
        show(&done, run);
        if done.is_incomplete {
            self.next_walk = began;
        }
        Ok(done.left)
    }
}

fn show(done: &GroupUpdateProgress, run: &Run) {
    run.count("sensors", done.sensors);
    run.count("documents", done.documents);
    run.set_left(Some(done.left));
}

impl Job for Group {
    const NAME: &'static str = "group";

    fn interval(&self) -> Option<Duration> {
        Some(PAUSE)
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let began = Instant::now();
        if run.is_asked || self.next_walk <= began {
            self.next_walk = began + WALK_INTERVAL;
            self.walk(run).await.inspect_err(|_| self.next_walk = began)?;
        }
        loop {
            let began = Instant::now();
            if self.regroup(run).await? == 0 {
                return Ok(None);
            }
            run.pause(began).await;
        }
    }
}
