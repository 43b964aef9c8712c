//! Clients: each writes, corrects, deletes and asks for its own sensors, one operation after the other.

use hourglass_members::{Ack, ClientAnswer, Opening, RequestId};

use crate::oracle::{Attempt, Delete, Write};
use crate::world::{Message, Scheduled, World};

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// The index of the write.
    Write(usize),
    /// The index of the deletion.
    Delete(usize),
    Query {
        may_be_incomplete: bool,
    },
    Retire(Opening),
}

pub enum ClientEvent {
    Next,
    Retry,
    Answer { request: RequestId, answer: ClientAnswer },
    Timeout(RequestId),
}

/// The number of sensors of a client, and of times of a sensor.
const SENSORS: u64 = 2;
const TIMES: u64 = 2;
/// Sensors of writes with request keys begin here.
pub const KEYED: u64 = 1_000_000;

#[derive(Default)]
pub struct Client {
    operation: Option<Operation>,
    attempt: Option<RequestId>,
    tries_left: u32,
    last_node: usize,
    is_busy: bool,
}

impl World {
    pub fn add_client(&mut self) {
        let index = self.clients.len();
        self.clients.push(Client { is_busy: true, ..Client::default() });
        let delay_us = self.random.between(2_000_000, 4_000_000);
        self.after(delay_us, Scheduled::Client(index, ClientEvent::Next));
    }

    /// Adds a client that does only what it is told.
    pub fn add_idle_client(&mut self) {
        self.clients.push(Client::default());
    }

    /// Lets the operator give up a node that is still away.
    pub fn retire(&mut self, node: usize) {
        let opening = self.store.registry.entry(self.nodes[node].folder).map(|entry| entry.opening);
        let is_away = self.nodes[node].process.is_none() || self.nodes[node].is_frozen;
        let other = self.random.index(self.nodes.len());
        if let Some(opening) = opening.filter(|_| is_away && other != node && !self.is_healed) {
            self.ask(self.operator, other, Operation::Retire(opening));
        }
    }

    /// Lets the first client carry out an operation by itself.
    pub fn ask(&mut self, client: usize, node: usize, operation: Operation) -> RequestId {
        self.clients[client].operation = Some(operation);
        self.clients[client].tries_left = 0;
        self.start_attempt(client, node)
    }

    pub fn run_client(&mut self, client: usize, event: ClientEvent) {
        match event {
            ClientEvent::Next => {
                if self.clients[client].operation.is_none() && !self.is_healed {
                    let operation = self.choose_operation(client);
                    self.clients[client].operation = Some(operation);
                    self.clients[client].tries_left = 6;
                    self.retry(client);
                }
            }
            ClientEvent::Retry => self.retry(client),
            ClientEvent::Timeout(request) => {
                if self.clients[client].attempt == Some(request) {
                    self.fail(client);
                }
            }
            ClientEvent::Answer { request, answer } => {
                let is_retire = matches!(self.history.attempts[request.0 as usize].operation, Operation::Retire(_));
                if self.clients[client].attempt != Some(request) {
                    return;
                }
                let is_done = !matches!(answer, ClientAnswer::Unavailable | ClientAnswer::Missing(_));
                if is_done || is_retire {
                    self.finish(client);
                } else {
                    self.fail(client);
                }
            }
        }
    }

    fn choose_operation(&mut self, client: usize) -> Operation {
        let first = client as u64 * SENSORS;
        match self.random.between(0, 99) {
            choice @ 0..30 => Operation::Query { may_be_incomplete: choice < 25 },
            30..35 => {
                let sensor = first + self.random.between(0, SENSORS - 1);
                self.history.deletes.push(Delete { sensor, ..Delete::default() });
                Operation::Delete(self.history.deletes.len() - 1)
            }
            35..45 => {
                let id = self.history.writes.len();
                let keys = vec![(KEYED + id as u64, 0)];
                self.history.add_write(Write::new(keys, Ack::Logged, true));
                Operation::Write(id)
            }
            choice => {
                let id = self.history.writes.len();
                let mut keys = vec![(first + self.random.between(0, SENSORS - 1), self.random.between(0, TIMES - 1))];
                if self.random.is_hit(300) {
                    keys.push((first + self.random.between(0, SENSORS - 1), TIMES));
                }
                let ack = if choice < 52 { Ack::Stored } else { Ack::Logged };
                self.history.add_write(Write::new(keys, ack, false));
                Operation::Write(id)
            }
        }
    }

    fn retry(&mut self, client: usize) {
        // Clients keep to one receiver for some time, and then choose another one.
        let mut node = self.clients[client].last_node % self.nodes.len();
        if self.random.is_hit(400) || self.nodes[node].is_gone {
            node = self.random.index(self.nodes.len());
        }
        self.clients[client].last_node = node;
        self.start_attempt(client, node);
    }

    fn start_attempt(&mut self, client: usize, node: usize) -> RequestId {
        let request = RequestId(self.history.attempts.len() as u64);
        let Some(operation) = self.clients[client].operation else { return request };
        self.history.add_attempt(Attempt::new(client, operation, self.now_us));
        self.trace(|| format!("client {client} sends {request:?} to {node}: {operation:?}"));
        self.clients[client].attempt = Some(request);
        let delay_us = self.random.between(200, 3_000);
        let message = Message::Request(request);
        self.after(delay_us, Scheduled::ToNode { node, incarnation: None, message });
        // Above the deadline of a request.
        let is_long = match operation {
            Operation::Write(write) => self.history.writes[write].ack == Ack::Stored,
            _ => true,
        };
        let timeout_us = if is_long { 11_000_000 } else { self.random.between(2_050_000, 4_000_000) };
        self.after(timeout_us, Scheduled::Client(client, ClientEvent::Timeout(request)));
        request
    }

    fn fail(&mut self, client: usize) {
        self.clients[client].attempt = None;
        if self.clients[client].tries_left == 0 || self.is_healed {
            return self.finish(client);
        }
        self.clients[client].tries_left -= 1;
        self.clients[client].last_node += 1;
        let delay_us = self.random.between(1_000, 300_000);
        self.after(delay_us, Scheduled::Client(client, ClientEvent::Retry));
    }

    fn finish(&mut self, client: usize) {
        self.clients[client].attempt = None;
        self.clients[client].operation = None;
        if !self.clients[client].is_busy {
            return;
        }
        let delay_us = if self.random.is_hit(600) { 0 } else { self.random.between(1_000, 500_000) };
        self.after(delay_us, Scheduled::Client(client, ClientEvent::Next));
    }
}
