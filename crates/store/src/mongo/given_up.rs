//! Abandoned writes: their caller stopped waiting, but MongoDB may still execute them. Counted per database (collection
//! prefix), because a removal must wait for them: they must not bring data back after it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The abandoned writes that are still running, per database.
#[derive(Debug, Default)]
pub struct GivenUp {
    at_work: Mutex<HashMap<Box<str>, usize>>,
    changed: Notify,
}

impl GivenUp {
    fn count(&self, of: &str, change: impl FnOnce(usize) -> usize) {
        let mut at_work = self.at_work.lock();
        match change(at_work.get(of).copied().unwrap_or_default()) {
            0 => drop(at_work.remove(of)),
            count => drop(at_work.insert(of.into(), count)),
        }
    }

    fn has(&self, of: &str) -> bool {
        self.at_work.lock().contains_key(of)
    }

    /// Waits until no abandoned write of a database is running.
    pub async fn quiet(&self, of: &str) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.has(of) {
                return;
            }
            changed.await;
        }
    }
}

/// A running write. Dropping it before it ended registers it as abandoned.
pub struct AtWork<T: Send + 'static> {
    task: Option<JoinHandle<T>>,
    of: Box<str>,
    given_up: Arc<GivenUp>,
}

impl<T: Send + 'static> AtWork<T> {
    /// A write of a database, not abandoned yet.
    pub fn new(task: JoinHandle<T>, of: &str, given_up: &Arc<GivenUp>) -> Self {
        Self { task: Some(task), of: of.into(), given_up: given_up.clone() }
    }

    /// Waits until the write has ended.
    pub async fn end(&mut self) -> Result<T, String> {
        let Some(task) = &mut self.task else { return Err("the write has ended already".to_owned()) };
        let ended = task.await.map_err(|failed| failed.to_string());
        self.task = None;
        ended
    }
}

impl<T: Send + 'static> Drop for AtWork<T> {
    fn drop(&mut self) {
        // Without a runtime no write runs, and there will be no removal.
        let (Some(task), Ok(runtime)) = (self.task.take(), Handle::try_current()) else { return };
        let (of, given_up) = (std::mem::take(&mut self.of), self.given_up.clone());
        given_up.count(&of, |count| count + 1);
        runtime.spawn(async move {
            let _ = task.await;
            given_up.count(&of, |count| count.saturating_sub(1));
            given_up.changed.notify_waiters();
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// Regression: a removal took all command permits while it waited, which blocked the writes of every database.
    #[tokio::test]
    async fn a_removal_waits_for_what_was_given_up_in_its_own_database_alone() {
        let given_up = Arc::<GivenUp>::default();
        let (answer, answered) = oneshot::channel::<()>();
        let write = AtWork::new(tokio::spawn(answered), "one", &given_up);
        given_up.quiet("one").await;
        drop(write);
        given_up.quiet("two").await;
        let quiet = tokio::time::timeout(Duration::from_millis(10), given_up.quiet("one")).await;
        assert!(quiet.is_err(), "the abandoned write is still running");
        answer.send(()).expect("the write waits for it");
        given_up.quiet("one").await;
        let mut write = AtWork::new(tokio::spawn(async { 7 }), "one", &given_up);
        assert_eq!(write.end().await, Ok(7));
        drop(write);
        assert!(!given_up.has("one"));
    }
}
