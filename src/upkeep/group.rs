//! Keeps groups' documents as the sensors' documents say. The store notes which of these it writes; what is known only there
//! would be lost with the process, and a walk at the start and every hour looks at all sensors.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{DatabaseWalk, Job, JobError, Run, Step};
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

/// The walk of a run through all sensors, ended at once if that is not due; `None` before this is known.
type GroupWalk = Option<DatabaseWalk>;

impl Group {
    #[must_use]
    pub fn new(store: Arc<dyn MongoExtras>) -> Self {
        Self { store, next_walk: Instant::now() }
    }

    /// Looks at all sensors, some at a time; returns false at the end.
    async fn look(&self, walk: &mut DatabaseWalk, run: &Run) -> Result<bool, StorageError> {
        let Some(database) = walk.current(&*self.store).await? else { return Ok(false) };
        let mut tries = 1;
        let (done, last) = loop {
            match self.store.regroup_after(&database, &walk.after, TOGETHER).await {
                Err(error) if error.is_transient() && tries < TRIES => tokio::time::sleep(PAUSE).await,
                looked => break looked?,
            }
            tries += 1;
        };
        show(&done, run);
        walk.go_on(last);
        Ok(true)
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
        let began = Instant::now();
        let walk = walk.get_or_insert_with(|| {
            if !run.is_asked && self.next_walk > began {
                return DatabaseWalk::ended();
            }
            self.next_walk = began + WALK;
            DatabaseWalk::default()
        });
        let goes_on = self.look(walk, run).await.inspect_err(|_| self.next_walk = began)?;
        // Also between the steps of a walk, which does not begin anew because another instance was faster here.
        let done = match self.store.regroup(TOGETHER).await {
            Err(error) if goes_on && error.is_transient() => return Ok(Step::More),
            Err(error) => {
                self.next_walk = if goes_on { began } else { self.next_walk };
                return Err(error.into());
            }
            Ok(done) => done,
        };
        show(&done, run);
        if done.is_incomplete {
            self.next_walk = began;
        }
        Ok(if goes_on || done.left > 0 { Step::More } else { Step::Done })
    }
}
