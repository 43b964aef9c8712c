//! The kept rejections in memory. Where one must go, it is the oldest of the sender that has most, so that a sender of
//! many bad lines pushes out its own.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::RejectionOptions;
use super::lines::KeptLine;
use super::senders::token_of;

/// Bytes of a rejection beside its texts, and of its place in the maps.
const FIXED_BYTES: usize = 256;

/// A rejected line or reading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptRejection {
    /// In nanoseconds since the epoch.
    pub time: i64,
    pub database: String,
    /// The name of the sender's token.
    pub token: Option<String>,
    /// As `rejections.addresses` shows it.
    pub address: Option<String>,
    /// In the request, from 1.
    pub line: usize,
    /// From 1; 0 for the whole line.
    pub column: usize,
    /// The beginning of the line.
    pub text: String,
    pub reason: String,
    /// Of [`crate::reading::Reason::label`].
    pub code: String,
    /// How many of this request were rejected with this code.
    pub count: u64,
    /// How many of those were replayed since.
    #[serde(default)]
    pub replayed: u64,
}

impl KeptRejection {
    /// The measurement, as far as the line tells it.
    #[must_use]
    pub fn measurement(&self) -> String {
        measurement_of(&self.text)
    }

    fn bytes(&self) -> usize {
        let texts = [&self.database, &self.text, &self.reason, &self.code];
        let optional = [&self.token, &self.address];
        FIXED_BYTES
            + texts.iter().map(|text| text.len()).sum::<usize>()
            + optional.iter().map(|text| text.as_ref().map_or(0, String::len)).sum::<usize>()
    }
}

/// Whether a line is JSON and not line protocol, in which names may begin with a bracket, too.
#[must_use]
pub fn is_json(line: &str) -> bool {
    let begins = |open: char, next: [char; 2]| {
        let behind = line.trim_start().strip_prefix(open);
        behind.is_some_and(|behind| behind.trim_start().starts_with(next))
    };
    begins('{', ['"', '}']) || begins('[', ['{', ']'])
}

/// The measurement of a line, as far as it tells it.
#[must_use]
pub fn measurement_of(line: &str) -> String {
    let text = line.trim_start();
    if !is_json(text) {
        return line_protocol_name(text);
    }
    // The text may be cut off, so it is not parsed as a whole.
    let behind = text.split_once("\"measurement\"").and_then(|(_, behind)| behind.trim_start().strip_prefix(':'));
    let value = behind.map(|behind| serde_json::Deserializer::from_str(behind).into_iter::<String>().next());
    value.flatten().and_then(Result::ok).unwrap_or_default()
}

/// The text up to the first comma or space that is not escaped, without the escapes.
fn line_protocol_name(text: &str) -> String {
    let (mut name, mut characters) = (String::new(), text.chars().peekable());
    while let Some(character) = characters.next() {
        match character {
            ',' | ' ' => break,
            '\\' => name.push(characters.next_if(|next| matches!(next, ',' | ' ')).unwrap_or('\\')),
            other => name.push(other),
        }
    }
    name
}

/// Those of one sender, oldest first, with numbers that rise over all senders.
#[derive(Debug, Default)]
struct OfSender {
    bytes: usize,
    held: VecDeque<(u64, Arc<KeptRejection>)>,
}

/// All of them.
#[derive(Debug)]
pub struct Kept {
    count_max: usize,
    bytes_max: usize,
    keep_ns: i64,
    senders: HashMap<Arc<str>, OfSender>,
    count: usize,
    bytes: usize,
    next: u64,
}

impl Kept {
    pub fn new(options: &RejectionOptions) -> Self {
        Self {
            count_max: options.max_count,
            bytes_max: options.max_bytes,
            keep_ns: i64::try_from(options.keep.as_nanos()).unwrap_or(i64::MAX),
            senders: HashMap::new(),
            count: 0,
            bytes: 0,
            next: 0,
        }
    }

    pub fn push(&mut self, sender: Arc<str>, rejection: KeptRejection) {
        let bytes = rejection.bytes();
        let of_sender = self.senders.entry(sender).or_default();
        of_sender.held.push_back((self.next, Arc::new(rejection)));
        of_sender.bytes += bytes;
        self.next += 1;
        self.count += 1;
        self.bytes += bytes;
        if self.count > self.count_max || self.bytes > self.bytes_max {
            // Some more than needed, so that not each further one looks at all senders.
            let (count, bytes) = (self.count_max - self.count_max / 16, self.bytes_max - self.bytes_max / 16);
            while self.count > count || self.bytes > bytes {
                let Some(sender) = self.largest() else { return };
                self.drop_oldest(&sender);
            }
        }
    }

    /// The sender with most bytes, of the token with most bytes.
    fn largest(&self) -> Option<Arc<str>> {
        let mut tokens: HashMap<&str, usize> = HashMap::new();
        for (key, of_sender) in &self.senders {
            *tokens.entry(token_of(key)).or_default() += of_sender.bytes;
        }
        let size = |(key, of_sender): &(&Arc<str>, &OfSender)| {
            let oldest = of_sender.held.front().map(|(number, _)| Reverse(*number));
            (tokens.get(token_of(key)).copied(), of_sender.bytes, oldest)
        };
        self.senders.iter().max_by_key(size).map(|(key, _)| key.clone())
    }

    fn drop_oldest(&mut self, sender: &Arc<str>) {
        let Some(of_sender) = self.senders.get_mut(sender) else { return };
        if let Some((_, dropped)) = of_sender.held.pop_front() {
            of_sender.bytes -= dropped.bytes();
            self.bytes -= dropped.bytes();
            self.count -= 1;
        }
        if of_sender.held.is_empty() {
            self.senders.remove(sender);
        }
    }

    /// Drops what is too old; whether there was any.
    pub fn expire(&mut self, now: i64) -> bool {
        let since = now.saturating_sub(self.keep_ns);
        self.retain(|rejection| rejection.time >= since)
    }

    /// Drops those of a database; whether there were any.
    pub fn forget(&mut self, database: &str) -> bool {
        self.retain(|rejection| rejection.database != database)
    }

    /// Counts lines that were replayed with the rejections of their requests; whether there were any.
    pub fn count_replayed<'a>(&mut self, lines: impl Iterator<Item = &'a KeptLine>) -> bool {
        type Request<'a> = (&'a str, i64, &'a str, Option<&'a str>);
        let mut replayed: HashMap<Request<'_>, u64> = HashMap::new();
        for line in lines {
            let token = line.token.as_ref().map(|token| &*token.name);
            *replayed.entry((&line.database, line.received, &line.code, token)).or_default() += 1;
        }
        let mut any = false;
        for (_, rejection) in self.senders.values_mut().flat_map(|of_sender| &mut of_sender.held) {
            let KeptRejection { database, time, code, token, .. } = &**rejection;
            let of = (&**database, *time, &**code, token.as_deref());
            let Some(more) = replayed.get(&of).copied() else { continue };
            let rejection = Arc::make_mut(rejection);
            rejection.replayed = rejection.count.min(rejection.replayed + more);
            any = true;
        }
        any
    }

    fn retain(&mut self, stays: impl Fn(&KeptRejection) -> bool) -> bool {
        let before = self.count;
        for of_sender in self.senders.values_mut() {
            of_sender.held.retain(|(_, rejection)| stays(rejection));
            of_sender.bytes = of_sender.held.iter().map(|(_, rejection)| rejection.bytes()).sum();
        }
        self.senders.retain(|_, of_sender| !of_sender.held.is_empty());
        self.count = self.senders.values().map(|of_sender| of_sender.held.len()).sum();
        self.bytes = self.senders.values().map(|of_sender| of_sender.bytes).sum();
        self.count != before
    }

    /// At most so many, newest first.
    pub fn newest(&self, is_wanted: impl Fn(&KeptRejection) -> bool, limit: usize) -> Vec<Arc<KeptRejection>> {
        let all = self.senders.values().flat_map(|of_sender| &of_sender.held);
        let mut seen: Vec<_> = all.filter(|(_, rejection)| is_wanted(rejection)).collect();
        seen.sort_unstable_by_key(|(number, _)| Reverse(*number));
        seen.into_iter().take(limit).map(|(_, rejection)| rejection.clone()).collect()
    }
}
