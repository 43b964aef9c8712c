//! Creates the indexes and validators that the configuration declares, and drops those that it no longer declares.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::bucket::store::MongoExtras;

/// The interval at which all databases are checked, within which a new database gets its indexes.
const PAUSE: Duration = Duration::from_secs(10);

/// Maximum number of documents or indexes that the job's note or problem names.
const LISTED_MAX: usize = 20;

/// The job that creates and drops declared indexes.
pub struct Index {
    pub store: Arc<dyn MongoExtras>,
    /// True if the configuration declares indexes. Otherwise the job runs once, to drop those that were declared
    /// before.
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
        let mut exempt = Vec::new();
        let mut refused = Vec::new();
        for database in self.store.databases().await? {
            let began = Instant::now();
            run.set_left(None);
            let settled = self.store.settle_indexes(&database).await?;
            run.count("changed", settled.changed);
            refused.extend(settled.refused);
            exempt.extend(settled.exempt.into_iter().map(|id| format!("{database}: {id}")));
            run.pause(began).await;
        }
        exempt.truncate(LISTED_MAX);
        run.note((!exempt.is_empty()).then(|| format!("exempt from their kind: {}", exempt.join("; "))));
        if !refused.is_empty() {
            refused.truncate(LISTED_MAX);
            run.report(format!("MongoDB refuses these indexes: {}", refused.join("; ")));
        }
        self.has_run = true;
        run.set_left(Some(0));
        Ok(None)
    }
}
