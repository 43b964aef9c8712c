//! A fuzzer that needs no toolchain of its own: it takes seeds, changes them at random, and feeds them to a target. It does
//! not see which code they reach; libFuzzer does, and takes the same targets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::random::Random;
use crate::targets::Target;

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// Inputs that were given to the target.
    pub executions: u64,
    /// The shortest input found for which the target panics, if there is one.
    pub failure: Option<Vec<u8>>,
}

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    /// After so much time.
    Time(Duration),
    /// After so many inputs, always the same ones.
    Executions(u64),
}

/// Longest input that mutation makes.
const BYTES_MAX: usize = 8 << 10;
/// How many of the latest inputs are changed further.
const LATEST: usize = 64;

/// Feeds a target: its seeds as they are, then changed ones.
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

/// Whether the target panics at this input.
#[must_use]
pub fn panics(target: &Target, input: &[u8]) -> bool {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).is_err()
}

/// Leaves out what is not needed for a panic, in smaller and smaller pieces.
fn shortened(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    // Every try that fails says so on standard error, which is enough of it once.
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
        let mut input = self.random.of(parents).clone();
        let other = self.random.of(&self.seeds).clone();
        // Few changes as a rule: most inputs with many are wrong at the first place and nowhere else.
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

/// One change at one place.
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
            input.splice(at..over, random.of(words).bytes());
        }
        _ => input.insert(at, [0, 1, 0x7f, 0x80, 0xff][random.below(5)]),
    }
}
