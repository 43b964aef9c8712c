//! Keeps groups' documents as the sensors' documents say. The store notes which of these it writes; what is known only there
//! would be lost with the process, and a walk at the start and every hour looks at all sensors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;
use crate::bucket::{Regrouped, StorageError};

/// How often it is looked for sensors whose documents were written.
const PAUSE: Duration = Duration::from_millis(200);
/// The wait between two walks through all sensors.
const WALK: Duration = Duration::from_secs(3600);
/// Sensors that are looked at together, in one transaction. A step of 256 took 0.1 s in an unoptimized build on two shared cores.
const TOGETHER: usize = 256;
/// How often a step of a walk is tried while other instances are faster.
const TRIES: usize = 5;

/// The job that keeps groups' documents.
pub struct Group {
    store: Arc<dyn MongoExtras>,
    next_walk: Instant,
}

impl Group {
    #[must_use]
    pub fn new(store: Arc<dyn MongoExtras>) -> Self {
        Self { store, next_walk: Instant::now() }
    }

    /// Looks at all sensors, some at a time.
    async fn look(&mut self, run: &Run) -> Result<(), StorageError> {
        for database in self.store.databases().await? {
            let mut after = Some(String::new());
            while let Some(sensor) = after {
                let began = Instant::now();
                let mut tries = 1;
                let (done, last) = loop {
                    match self.store.regroup_after(&database, &sensor, TOGETHER).await {
                        Err(error) if error.is_transient() && tries < TRIES => tokio::time::sleep(PAUSE).await,
                        looked => break looked?,
                    }
                    tries += 1;
                };
                show(&done, run);
                after = last;
                // Also during a walk, which does not begin anew because another instance was faster here.
                match self.regroup(run).await {
                    Err(error) if !error.is_transient() => return Err(error),
                    _ => {}
                }
                run.rest(began).await;
            }
        }
        Ok(())
    }

    /// Sees to some sensors whose documents were written; returns how many are left.
    async fn regroup(&mut self, run: &Run) -> Result<u64, StorageError> {
        let began = Instant::now();
        let done = self.store.regroup(TOGETHER).await?;
        show(&done, run);
        if done.is_incomplete {
            self.next_walk = began;
        }
        Ok(done.left)
    }
}

fn show(done: &Regrouped, run: &Run) {
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
            self.next_walk = began + WALK;
            self.look(run).await.inspect_err(|_| self.next_walk = began)?;
        }
        loop {
            let began = Instant::now();
            if self.regroup(run).await? == 0 {
                return Ok(None);
            }
            run.rest(began).await;
        }
    }
}
