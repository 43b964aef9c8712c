//! The running requests: their list, and how they are ended.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Budgets, RequestBudget};
use crate::access::{Caller, Effect};

/// A request in the list of running ones.
#[derive(Debug)]
pub struct RunningQuery {
    pub id: u64,
    /// The first 200 bytes.
    pub text: String,
    pub database: String,
    pub duration: Duration,
}

impl Budgets {
    /// Lists the running requests that the caller may see: its own, and all for administrators of the service.
    #[must_use]
    pub fn running(&self, caller: &Caller) -> Vec<RunningQuery> {
        let running: Vec<_> = self.running.lock().values().filter_map(Weak::upgrade).collect();
        let visible = running.into_iter().filter(|request| request.is_visible(caller));
        let shown = |request: Arc<RequestBudget>| RunningQuery {
            id: request.id,
            text: request.text.clone(),
            database: request.database.get().cloned().unwrap_or_default(),
            duration: request.began.elapsed(),
        };
        visible.map(shown).collect()
    }

    /// Ends a running request. Returns false if the caller sees none with this number.
    #[must_use]
    pub fn kill(&self, id: u64, caller: &Caller) -> bool {
        let request = self.running.lock().get(&id).and_then(Weak::upgrade);
        let Some(request) = request.filter(|request| request.is_visible(caller)) else { return false };
        request.killed.notify_one();
        true
    }
}

impl RequestBudget {
    fn is_visible(&self, caller: &Caller) -> bool {
        self.who == caller.name() || caller.allows(Effect::AdministerService, None)
    }
}
