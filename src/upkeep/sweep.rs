//! Repeats deletions that every WAL has passed, and then forgets them. One instance does it for all.

use std::sync::Arc;
use std::time::Duration;

use super::job::{Job, JobError, Run, Step};
use crate::bucket::StorageError;
use crate::bucket::deletions::RememberedDeletion;
use crate::buffer::deleter::Deleter;
use crate::members::member::Member;

/// The job that repeats remembered deletions.
pub struct Sweep {
    pub member: Arc<Member>,
    pub deleter: Arc<Deleter>,
}

/// The deletions that are left in a run; `None` before they were listed.
#[derive(Default)]
pub struct SweepWalk {
    passed: Option<Vec<RememberedDeletion>>,
    /// A failure in one database, which does not stop the others.
    failed: Option<StorageError>,
}

impl Job for Sweep {
    const NAME: &'static str = "sweep";
    type Walk = SweepWalk;

    fn interval(&self) -> Option<Duration> {
        Some(self.member.pause())
    }

    async fn step(&mut self, walk: &mut SweepWalk, run: &Run) -> Result<Step, JobError> {
        let Some(passed) = &mut walk.passed else {
            let remembered = self.member.registry_view.remembered();
            run.set_left(Some(remembered as u64));
            let mut passed = if remembered > 0 { self.member.passed_deletions().await? } else { Vec::new() };
            passed.reverse();
            walk.passed = Some(passed);
            return Ok(Step::More);
        };
        let Some(deletion) = passed.pop() else {
            return walk.failed.take().map_or(Ok(Step::Done), |error| Err(error.into()));
        };
        match self.deleter.sweep(&deletion).await {
            Ok(()) => {
                self.member.forget(&deletion).await?;
                run.count("deletions", 1);
            }
            Err(error) => walk.failed = Some(error),
        }
        Ok(Step::More)
    }
}
