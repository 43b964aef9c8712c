//! Queries: ask every open entry, then the store, then merge.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::{Action, ClientAnswer, FrameBody, QuestionId, RequestId};
use crate::instance::Instance;
use crate::registry::{Deletion, FolderId, Opening, Payload, Registry};

/// The steps of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The copy of the registry is too old.
    NeedsRegistry,
    /// Openings are asked until this time.
    Asking { until_ms: u64 },
    /// Some did not answer. A read of the registry from this time on tells whether they are still open.
    NeedsReread { since_ms: u64 },
    /// The store is asked.
    AskingStore,
    /// The store answered at this time. The copy of the registry must have the deletions that it may have applied.
    NeedsDeletions { store_ms: u64 },
}

/// A client's query.
#[derive(Clone, Debug)]
struct Query {
    question: Payload,
    may_be_incomplete: bool,
    deadline_ms: u64,
    step: Step,
    number: u64,
    /// The openings that were asked and have not answered.
    waiting: BTreeMap<FolderId, Opening>,
    missing: Vec<Opening>,
    answers: Vec<Payload>,
    store: Option<Payload>,
    /// All deletions since the question began. One that was swept meanwhile still hides what was read before.
    deletions: Vec<Deletion>,
}

/// The queries of clients, and the questions of others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queries {
    queries: BTreeMap<RequestId, Query>,
    /// Questions of others that are not answered yet, with their version.
    questions: BTreeMap<QuestionId, u16>,
}

impl Instance {
    pub(crate) fn on_query(&mut self, request: RequestId, question: Payload, may_be_incomplete: bool) {
        if self.is_closing() || self.queries.queries.len() >= self.config.queries_max {
            return self.answer(request, ClientAnswer::Unavailable);
        }
        let query = Query {
            question,
            may_be_incomplete,
            deadline_ms: self.now.boot_ms + self.config.query_timeout_ms,
            step: Step::NeedsRegistry,
            number: self.number(),
            waiting: BTreeMap::new(),
            missing: Vec::new(),
            answers: Vec::new(),
            store: None,
            deletions: Vec::new(),
        };
        self.queries.queries.insert(request, query);
        self.continue_query(request);
    }

    /// Answers all queries before the entry is closed: from then on nobody waits for this opening's beat.
    pub(crate) fn fail_queries(&mut self) {
        for request in std::mem::take(&mut self.queries.queries).into_keys() {
            self.answer(request, ClientAnswer::Unavailable);
        }
    }

    pub(crate) fn tick_queries(&mut self) {
        self.continue_queries();
    }

    /// Moves all queries on, after time has passed or the registry was read.
    pub(crate) fn continue_queries(&mut self) {
        let requests: Vec<RequestId> = self.queries.queries.keys().copied().collect();
        for request in requests {
            self.continue_query(request);
        }
    }

    fn continue_query(&mut self, request: RequestId) {
        let boot_ms = self.now.boot_ms;
        let known = self.registry.as_ref().map_or(&[][..], |registry| &registry.deletions);
        let Some(query) = self.queries.queries.get_mut(&request) else { return };
        for deletion in known {
            if !query.deletions.iter().any(|other| other.is_same(deletion)) {
                query.deletions.push(deletion.clone());
            }
        }
        if boot_ms >= query.deadline_ms {
            return self.end_query(request, ClientAnswer::Unavailable);
        }
        let age_max_ms = self.config.copy_age_max_ms;
        // Others wait only for the beats of listed openings. One that is not listed yet may have missed an entry or a
        // deletion, however new its copy is.
        let has_own_entry = |registry: &Registry| registry.entries.iter().any(|entry| entry.opening == self.opening);
        match query.step {
            Step::NeedsRegistry => match self.registry.clone() {
                Some(registry) if boot_ms <= self.registry_read_ms + age_max_ms && has_own_entry(&registry) => {
                    self.ask(request, &registry);
                }
                _ => self.membership.hurry(),
            },
            Step::Asking { until_ms } if boot_ms >= until_ms => {
                query.step = Step::NeedsReread { since_ms: boot_ms };
                self.membership.hurry();
            }
            Step::NeedsReread { since_ms } => match self.registry.clone() {
                Some(registry) if self.registry_read_ms >= since_ms => self.judge_silence(request, &registry),
                _ => self.membership.hurry(),
            },
            Step::NeedsDeletions { store_ms } => {
                if self.registry_read_ms + age_max_ms >= store_ms {
                    self.merge_answers(request);
                } else {
                    self.membership.hurry();
                }
            }
            Step::Asking { .. } | Step::AskingStore => {}
        }
    }

    /// Asks every open entry, this one included.
    fn ask(&mut self, request: RequestId, registry: &Registry) {
        let Some(mut query) = self.queries.queries.remove(&request) else { return };
        query.step = Step::Asking { until_ms: self.now.boot_ms + self.config.question_timeout_ms };
        let own = self.opening.folder;
        query.waiting.insert(own, self.opening);
        for entry in registry.entries.iter().filter(|entry| entry.opening.folder != own) {
            let folder = entry.opening.folder;
            // One that has been silent for long is named at once. The answer says so, so the copy need not be newer.
            let is_away = query.may_be_incomplete && !self.is_in_grace(entry.opening);
            if !is_away && self.peers.by_folder.get(&folder).is_some_and(|peer| peer.version.is_some()) {
                query.waiting.insert(folder, entry.opening);
                let body = FrameBody::Question { number: query.number, question: query.question.clone() };
                self.send(folder, None, body);
            } else {
                // Nor can one without an address or a common version be asked.
                query.missing.push(entry.opening);
            }
        }
        let text = query.question.clone();
        let is_refused = !query.missing.is_empty() && !query.may_be_incomplete;
        let missing = query.missing.clone();
        self.queries.queries.insert(request, query);
        if is_refused {
            return self.end_query(request, ClientAnswer::Missing(missing));
        }
        self.act(Action::AnswerFromMemory { question: QuestionId::Own(request), text });
    }

    /// Decides about the openings that have not answered.
    fn judge_silence(&mut self, request: RequestId, registry: &Registry) {
        let Some(query) = self.queries.queries.get_mut(&request) else { return };
        if query.waiting.contains_key(&self.opening.folder) {
            return self.end_query(request, ClientAnswer::Unavailable);
        }
        // An entry that was closed in between has everything in the store, which is asked later.
        let silent: BTreeSet<Opening> =
            query.waiting.keys().filter_map(|folder| registry.entry(*folder)).map(|entry| entry.opening).collect();
        let may_be_incomplete = query.may_be_incomplete;
        if !silent.is_empty() && (!may_be_incomplete || silent.iter().any(|opening| self.is_in_grace(*opening))) {
            return self.end_query(request, ClientAnswer::Missing(silent.into_iter().collect()));
        }
        let Some(query) = self.queries.queries.get_mut(&request) else { return };
        query.missing.extend(silent);
        query.step = Step::AskingStore;
        self.act(Action::AskStore { request });
    }

    /// Returns true if an opening was reached within `cluster.query_grace`.
    fn is_in_grace(&self, opening: Opening) -> bool {
        let peer = self.peers.by_folder.get(&opening.folder);
        peer.is_none_or(|peer| self.now.boot_ms < peer.reached_ms + self.config.query_grace_ms)
    }

    pub(crate) fn on_peer_answer(&mut self, from: Opening, number: u64, answer: Payload) {
        let found = self.queries.queries.iter().find(|(_, query)| query.number == number);
        if let Some(request) = found.map(|(request, _)| *request) {
            self.add_answer(request, from, answer);
        }
    }

    pub(crate) fn on_memory_answer(&mut self, question: QuestionId, answer: Payload) {
        match question {
            QuestionId::Own(request) => self.add_answer(request, self.opening, answer),
            QuestionId::Peer { from, number } => {
                if let Some(version) = self.queries.questions.remove(&question) {
                    self.reply(from, version, FrameBody::Answer { number, answer });
                }
            }
        }
    }

    /// Adds the unflushed readings of an opening. A later opening of its folder has replayed them and may answer, too.
    fn add_answer(&mut self, request: RequestId, from: Opening, answer: Payload) {
        let Some(query) = self.queries.queries.get_mut(&request) else { return };
        let is_asking = matches!(query.step, Step::Asking { .. } | Step::NeedsReread { .. });
        if !is_asking || query.waiting.get(&from.folder).is_none_or(|asked| from < *asked) {
            return;
        }
        query.waiting.remove(&from.folder);
        query.answers.push(answer);
        // Only now: what moves from a memtable into the store in between is in both.
        if query.waiting.is_empty() {
            query.step = Step::AskingStore;
            self.act(Action::AskStore { request });
        }
    }

    pub(crate) fn on_store_answer(&mut self, request: RequestId, answer: Option<Payload>) {
        let Some(query) = self.queries.queries.get_mut(&request) else { return };
        if query.step != Step::AskingStore {
            return;
        }
        if answer.is_none() {
            return self.end_query(request, ClientAnswer::Unavailable);
        }
        query.store = answer;
        query.step = Step::NeedsDeletions { store_ms: self.now.boot_ms };
        self.continue_query(request);
    }

    fn merge_answers(&mut self, request: RequestId) {
        let Some(query) = self.queries.queries.remove(&request) else { return };
        let Query { answers, missing, store, deletions, .. } = query;
        let rows = store.map(|store| ClientAnswer::Rows { answers, store, deletions, missing });
        self.answer(request, rows.unwrap_or(ClientAnswer::Unavailable));
    }

    fn end_query(&mut self, request: RequestId, answer: ClientAnswer) {
        self.queries.queries.remove(&request);
        self.answer(request, answer);
    }

    pub(crate) fn on_question(&mut self, from: Opening, version: u16, number: u64, question: Payload) {
        let id = QuestionId::Peer { from, number };
        let is_full = self.queries.questions.len() >= self.config.questions_max;
        if !is_full && self.queries.questions.insert(id, version).is_none() {
            self.act(Action::AnswerFromMemory { question: id, text: question });
        }
    }
}
