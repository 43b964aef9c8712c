//! A fuzzer for the normal toolchain. It mutates seeds at random and passes them to a target. Unlike libFuzzer, which
//! can run the same targets, it does not measure coverage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::targets::Target;

#[derive(Debug)]
pub struct Outcome {
    /// Number of inputs that the target has run.
    pub executions: u64,
    /// The shortest input found on which the target panics, if there is one.
    pub failure: Option<Vec<u8>>,
}

/// The time or number of inputs after which a run ends.
#[derive(Debug, Clone, Copy)]
pub enum RunLimit {
    /// After this time.
    Time(Duration),
    /// After this many inputs. They are the same in every run.
    Executions(u64),
}

/// Maximum size of a mutated input.
const BYTES_MAX: usize = 8 << 10;
/// Number of latest inputs that are mutated further.
const LATEST: usize = 64;

/// Runs a target on its seeds, and then on mutated ones.
#[must_use]
pub fn run(target: &Target, seed: u64, limit: RunLimit) -> Outcome {
    let mut inputs = Inputs { random: Random::new(seed), seeds: (target.seeds)(), latest: Vec::new(), input_count: 0 };
    let started = Instant::now();
    let mut executions = 0;
    loop {
        let is_done = match limit {
            RunLimit::Time(time) => started.elapsed() >= time,
            RunLimit::Executions(count) => executions >= count,
        };
        if is_done {
            return Outcome { executions, failure: None };
        }
        let input = inputs.next(target.words);
        executions += 1;
        if panics(target, &input) {
            return Outcome { executions, failure: Some(shorten(target, input)) };
        }
    }
}

/// Returns true if the target panics on this input.
#[must_use]
pub fn panics(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).is_err()
}

/// Removes smaller and smaller pieces that are unnecessary for the panic.
fn shorten(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    // Suppress the panic messages of shorter inputs.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut index = 0;
        while index < input.len() {
            let without = [&input[..index], &input[input.len().min(index + piece)..]].concat();
            if panics(target, &without) {
                input = without;
            } else {
                index += piece;
            }
        }
        piece /= 2;
    }
    std::panic::set_hook(hook);
    input
}

struct Inputs {
    random: Random,
    seeds: Vec<Vec<u8>>,
    latest: Vec<Vec<u8>>,
    input_count: usize,
}

impl Inputs {
    fn next(&mut self, words: &[&str]) -> Vec<u8> {
        self.input_count += 1;
        if let Some(seed) = self.seeds.get(self.input_count - 1) {
            return seed.clone();
        }
        let uses_latest = !self.latest.is_empty() && self.random.below(4) == 0;
        let parents = if uses_latest { &self.latest } else { &self.seeds };
        let mut input = self.random.choose(parents).clone();
        let other = self.random.choose(&self.seeds).clone();
        // Make few changes, because an input with many is mostly rejected at the first one.
        for _ in 0..=[0, 0, 1, 1, 2, 3, 5, 9][self.random.below(8)] {
            change(&mut input, &other, words, &mut self.random);
        }
        input.truncate(BYTES_MAX.max(self.seeds.first().map_or(0, Vec::len)));
        if self.latest.len() < LATEST {
            self.latest.push(input.clone());
        } else {
            let index = self.random.below(LATEST);
            self.latest[index].clone_from(&input);
        }
        input
    }
}

fn change(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let index = random.below(input.len() + 1);
    let longest = if random.below(4) == 0 { 200 } else { 6 };
    let end = input.len().min(index + 1 + random.below(longest));
    match random.below(9) {
        0 if index < input.len() => input[index] ^= 1 << random.below(8),
        1 if index < input.len() => input[index] = random.next().to_le_bytes()[0],
        2 => drop(input.drain(index..end)),
        3 => input.truncate(index),
        4 => {
            let piece = input[index..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        5 if !other.is_empty() => {
            let from = random.below(other.len());
            let piece = &other[from..other.len().min(from + 1 + random.below(60))];
            input.splice(index..index, piece.iter().copied());
        }
        6 => input.insert(index, random.next().to_le_bytes()[0]),
        _ if !words.is_empty() => {
            let replaced_end = if random.below(2) == 0 { index } else { end };
            input.splice(index..replaced_end, random.choose(words).bytes());
        }
        _ => input.insert(index, [0, 1, 0x7f, 0x80, 0xff][random.below(5)]),
    }
}
