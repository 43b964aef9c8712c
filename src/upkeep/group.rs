//! Keeps groups' documents as the sensors' documents say. The store notes which of these it writes; what is known only there
//! would be lost with the process, and a walk at the start and every hour looks at all sensors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run, Step};
use crate::bucket::{Regrouped, StorageError, Store};

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
    raw: Arc<dyn Store>,
    next_walk: Instant,
}

/// The position of a run: it walks all sensors if that is due, and in between and then looks at those whose documents were
/// written.
#[derive(Default)]
pub struct GroupWalk {
    is_begun: bool,
    databases: VecDeque<String>,
    /// The last sensor of the first database that was looked at.
    after: String,
}

impl Group {
    #[must_use]
    pub fn new(raw: Arc<dyn Store>) -> Self {
        Self { raw, next_walk: Instant::now() }
    }

    async fn look(&self, database: &str, walk: &mut GroupWalk, run: &Run) -> Result<(), StorageError> {
        let mut tries = 1;
        let (done, last) = loop {
            match self.raw.regroup_after(database, &walk.after, TOGETHER).await {
                Err(error) if error.is_transient() && tries < TRIES => tokio::time::sleep(PAUSE).await,
                looked => break looked?,
            }
            tries += 1;
        };
        show(&done, run);
        if last.is_none() {
            walk.databases.pop_front();
        }
        walk.after = last.unwrap_or_default();
        Ok(())
    }
}

fn show(done: &Regrouped, run: &Run) {
    run.count("sensors", done.sensors);
    run.count("documents", done.documents);
    run.set_left(Some(done.left));
}

impl Job for Group {
    const NAME: &'static str = "group";
    type Walk = GroupWalk;

    fn interval(&self) -> Option<Duration> {
        Some(PAUSE)
    }

    async fn step(&mut self, walk: &mut GroupWalk, run: &Run) -> Result<Step, JobError> {
        if !walk.is_begun && (run.is_asked || self.next_walk <= Instant::now()) {
            walk.databases = self.raw.databases().await?.into();
            self.next_walk = Instant::now() + WALK;
        }
        walk.is_begun = true;
        if let Some(database) = walk.databases.front().cloned()
            && let Err(error) = self.look(&database, walk, run).await
        {
            self.next_walk = Instant::now();
            return Err(error.into());
        }
        let done = self.raw.regroup(TOGETHER).await?;
        show(&done, run);
        if done.is_incomplete {
            self.next_walk = Instant::now();
        }
        Ok(if done.left > 0 || !walk.databases.is_empty() { Step::More } else { Step::Done })
    }
}
