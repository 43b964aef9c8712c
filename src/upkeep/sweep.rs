//! Repeats deletions that every WAL has passed, and then forgets them. One instance runs this for all.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::job::{Job, JobError, Run};
use crate::buffer::deleter::Deleter;
use crate::members::member::Member;

/// The job that repeats remembered deletions.
pub struct Sweep {
    pub member: Arc<Member>,
    pub deleter: Arc<Deleter>,
}

impl Job for Sweep {
    const NAME: &'static str = "sweep";

    fn interval(&self) -> Option<Duration> {
        Some(self.member.pause())
    }

    async fn run(&mut self, run: &Run) -> Result<Option<Duration>, JobError> {
        let remembered = self.member.registry_view.deletion_count();
        run.set_left(Some(remembered as u64));
        let passed = if remembered > 0 { self.member.passed_deletions().await? } else { Vec::new() };
        self.deleter.unswept.lock().retain(|stamp, _| passed.iter().any(|deletion| deletion.stamp == *stamp));
        let mut failed = None;
        for deletion in passed {
            let began = Instant::now();
            match self.deleter.sweep(&deletion).await {
                Ok(()) => {
                    self.member.forget(&deletion).await?;
                    run.count("deletions", 1);
                }
                // A failure in one database does not stop the others.
                Err(error) => failed = Some(error),
            }
            run.pause(began).await;
        }
        failed.map_or(Ok(None), |error| Err(error.into()))
    }
}
