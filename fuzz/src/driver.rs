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

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub enum Until {
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
pub fn run(target: &Target, seed: u64, until: Until) -> Outcome {
    let mut inputs = Inputs { random: Random::new(seed), seeds: (target.seeds)(), latest: Vec::new(), given: 0 };
    let started = Instant::now();
    let mut executions = 0;
    loop {
        let over = match until {
            Until::Time(time) => started.elapsed() >= time,
            Until::Executions(most) => executions >= most,
        };
        if over {
            return Outcome { executions, failure: None };
        }
        let input = inputs.next(target.words);
        executions += 1;
        if panics(target, &input) {
            return Outcome { executions, failure: Some(shortened(target, input)) };
        }
    }
}

/// Returns true if the target panics on this input.
#[must_use]
pub fn panics(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).is_err()
}

/// Removes smaller and smaller pieces that are unnecessary for the panic.
fn shortened(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    // Suppress the panic messages of shortened inputs.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut piece = input.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < input.len() {
            let without = [&input[..at], &input[input.len().min(at + piece)..]].concat();
            if panics(target, &without) {
                input = without;
            } else {
                at += piece;
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
    given: usize,
}

impl Inputs {
    fn next(&mut self, words: &[&str]) -> Vec<u8> {
        self.given += 1;
        if let Some(seed) = self.seeds.get(self.given - 1) {
            return seed.clone();
        }
        let from_latest = !self.latest.is_empty() && self.random.below(4) == 0;
        let parents = if from_latest { &self.latest } else { &self.seeds };
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
            let at = self.random.below(LATEST);
            self.latest[at].clone_from(&input);
        }
        input
    }
}

fn change(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let longest = if random.below(4) == 0 { 200 } else { 6 };
    let end = input.len().min(at + 1 + random.below(longest));
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next().to_le_bytes()[0],
        2 => drop(input.drain(at..end)),
        3 => input.truncate(at),
        4 => {
            let piece = input[at..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        5 if !other.is_empty() => {
            let from = random.below(other.len());
            let piece = &other[from..other.len().min(from + 1 + random.below(60))];
            input.splice(at..at, piece.iter().copied());
        }
        6 => input.insert(at, random.next().to_le_bytes()[0]),
        _ if !words.is_empty() => {
            let over = if random.below(2) == 0 { at } else { end };
            input.splice(at..over, random.choose(words).bytes());
        }
        _ => input.insert(at, [0, 1, 0x7f, 0x80, 0xff][random.below(5)]),
    }
}
