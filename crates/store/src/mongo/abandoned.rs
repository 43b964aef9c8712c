//! Abandoned writes, whose caller stopped waiting although MongoDB may still execute them. They are counted per database,
//! because a removal waits for them: they could restore data after it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The number of abandoned writes that are still running, by the prefix of a database's collections.
#[derive(Debug, Default)]
pub struct AbandonedWrites {
    running: Mutex<HashMap<Box<str>, usize>>,
    changed: Notify,
}

impl AbandonedWrites {
    fn update_count(&self, prefix: &str, change: impl FnOnce(usize) -> usize) {
        let mut running = self.running.lock();
        match change(running.get(prefix).copied().unwrap_or_default()) {
            0 => drop(running.remove(prefix)),
            count => drop(running.insert(prefix.into(), count)),
        }
    }

    fn has(&self, prefix: &str) -> bool {
        self.running.lock().contains_key(prefix)
    }

    /// Waits until no abandoned write of a database is running.
    pub async fn wait_until_idle(&self, prefix: &str) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.has(prefix) {
                return;
            }
            changed.await;
        }
    }
}

/// A running write. If it is dropped before the write has ended, the write is registered as abandoned.
pub struct RunningWrite<T: Send + 'static> {
    task: Option<JoinHandle<T>>,
    prefix: Box<str>,
    abandoned: Arc<AbandonedWrites>,
}

impl<T: Send + 'static> RunningWrite<T> {
    /// Wraps the task of a write to the database with this collection prefix.
    pub fn new(task: JoinHandle<T>, prefix: &str, abandoned: &Arc<AbandonedWrites>) -> Self {
        Self { task: Some(task), prefix: prefix.into(), abandoned: abandoned.clone() }
    }

    /// Waits until the write has ended.
    pub async fn end(&mut self) -> Result<T, String> {
        let Some(task) = &mut self.task else { return Err("the write has ended already".to_owned()) };
        let ended = task.await.map_err(|failed| failed.to_string());
        self.task = None;
        ended
    }
}

impl<T: Send + 'static> Drop for RunningWrite<T> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        // Without a runtime, no write is running and no removal follows.
        let Ok(runtime) = Handle::try_current() else { return };
        let prefix = std::mem::take(&mut self.prefix);
        let abandoned = self.abandoned.clone();
        abandoned.update_count(&prefix, |count| count + 1);
        runtime.spawn(async move {
            let _ = task.await;
            abandoned.update_count(&prefix, |count| count.saturating_sub(1));
            abandoned.changed.notify_waiters();
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
    async fn a_removal_waits_for_abandoned_writes_of_its_own_database_only() {
        let abandoned = Arc::<AbandonedWrites>::default();
        let (answer, answered) = oneshot::channel::<()>();
        let write = RunningWrite::new(tokio::spawn(answered), "one", &abandoned);
        abandoned.wait_until_idle("one").await;
        drop(write);
        abandoned.wait_until_idle("two").await;
        let idle = tokio::time::timeout(Duration::from_millis(10), abandoned.wait_until_idle("one")).await;
        assert!(idle.is_err(), "the abandoned write is still running");
        answer.send(()).expect("the write waits for the answer");
        abandoned.wait_until_idle("one").await;
        let mut write = RunningWrite::new(tokio::spawn(async { 7 }), "one", &abandoned);
        assert_eq!(write.end().await, Ok(7));
        drop(write);
        assert!(!abandoned.has("one"));
    }
}
