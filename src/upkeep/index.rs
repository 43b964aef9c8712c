//! Makes the indexes that the configuration declares, and drops those that it does not declare any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;

/// The wait between two looks at all databases: a new one has its indexes within this time.
const PAUSE: Duration = Duration::from_secs(10);

/// The job that keeps declared indexes.
pub struct Index {
    pub store: Arc<dyn MongoExtras>,
    /// The configuration declares indexes. Else the job has no schedule once those are dropped that were declared before.
    pub is_declared: bool,
    pub has_run: bool,
}

impl Job for Index {
    const NAME: &'static str = "index";

    fn interval(&self) -> Option<Duration> {
        (self.is_declared || !self.has_run).then_some(PAUSE)
    }

    fn is_due(&mut self) -> bool {
        !self.has_run
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        for database in self.store.databases().await? {
            let began = Instant::now();
            run.set_left(None);
            run.count("changed", self.store.settle_indexes(&database).await?);
            run.rest(began).await;
        }
        self.has_run = true;
        run.set_left(Some(0));
        Ok(None)
    }
}
