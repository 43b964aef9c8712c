//! Request keys: all receivers date the undated lines of one request alike.

use std::collections::BTreeMap;

use crate::events::{Action, ClientAnswer, KeyRow, RequestId};
use crate::instance::Instance;

/// A request that waits for the row of its key.
#[derive(Clone, Copy, Debug)]
struct KeyedWrite {
    body_hash: u64,
    deadline_ms: u64,
}

/// The requests that wait for their keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    waiting: BTreeMap<RequestId, KeyedWrite>,
}

impl Instance {
    pub(crate) fn on_keyed_write(&mut self, request: RequestId, read_boot_ms: u64, key: u64, row: KeyRow) {
        let deadline_ms = read_boot_ms + self.config.request_timeout_ms;
        let is_full = self.keys.waiting.len() >= self.config.requests_max;
        if is_full || !self.may_ack() || self.now.boot_ms >= deadline_ms {
            return self.answer(request, ClientAnswer::Unavailable);
        }
        self.keys.waiting.insert(request, KeyedWrite { body_hash: row.body_hash, deadline_ms });
        self.act(Action::UpsertKey { request, key, row });
    }

    pub(crate) fn on_key_answer(&mut self, request: RequestId, row: Option<KeyRow>) {
        let Some(write) = self.keys.waiting.remove(&request) else { return };
        match row {
            Some(row) if row.body_hash == write.body_hash => {
                self.act(Action::Split { request, base_ms: row.base_ms });
            }
            Some(_) => self.answer(request, ClientAnswer::KeyConflict),
            // Without the row nobody knows the dates that another receiver gave to the lines.
            None => self.answer(request, ClientAnswer::Unavailable),
        }
    }

    pub(crate) fn tick_keys(&mut self) {
        let boot_ms = self.now.boot_ms;
        let is_over = |write: &KeyedWrite| boot_ms >= write.deadline_ms;
        let over: Vec<RequestId> =
            self.keys.waiting.iter().filter(|(_, write)| is_over(write)).map(|(request, _)| *request).collect();
        for request in over {
            self.keys.waiting.remove(&request);
            self.answer(request, ClientAnswer::Unavailable);
        }
    }
}
