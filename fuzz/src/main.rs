//! `cargo run -p hourglass-fuzz -- TARGET… [--seconds N] [--seed N]` runs the named targets, or all, each for this
//! time. It prints a line for each, and exits with 1 if one panicked. `-- TARGET --input FILE` runs a single input.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hourglass_fuzz::driver::{self, RunLimit};
use hourglass_fuzz::targets::{self, Target};

/// The stack size of the threads that serve connections. An input that needs more would crash a server.
const STACK_BYTES: usize = 2 << 20;

struct Arguments {
    targets: Vec<Target>,
    seconds: u64,
    seed: u64,
    input: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = match parse_arguments(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            let names: Vec<&str> = targets::ALL.iter().map(|target| target.name).collect();
            eprintln!("{wrong}\nusage: hourglass-fuzz [TARGET…] [--seconds N] [--seed N] [--input FILE]");
            eprintln!("targets: {}", names.join(" "));
            return ExitCode::from(2);
        }
    };
    let all = arguments.targets.clone().into_iter().map(|target| {
        let seconds = arguments.seconds;
        let seed = arguments.seed;
        let input = arguments.input.clone();
        let run = move || match input {
            Some(file) => run_input(&target, &file),
            None => fuzz(&target, seconds, seed),
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        thread.is_ok_and(|thread| thread.join().unwrap_or(false))
    });
    // Run all targets, even after a failure.
    let failed = all.filter(|is_passed| !is_passed).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fuzz(target: &Target, seconds: u64, seed: u64) -> bool {
    let started = Instant::now();
    let outcome = driver::run(target, seed, RunLimit::Time(Duration::from_secs(seconds)));
    let took = started.elapsed().as_secs_f64();
    let is_passed = outcome.failure.is_none();
    println!(
        "fuzz target={} executions={} seconds={took:.1} seed={seed} failures={}",
        target.name,
        outcome.executions,
        u8::from(!is_passed)
    );
    if let Some(input) = outcome.failure {
        let file = PathBuf::from(format!("fuzz-{}-{seed}.input", target.name));
        let saved =
            std::fs::write(&file, &input).map_or_else(|error| error.to_string(), |()| file.display().to_string());
        println!("fuzz target={} fails at b\"{}\" ({saved})", target.name, input.escape_ascii());
    }
    is_passed
}

fn run_input(target: &Target, file: &std::path::Path) -> bool {
    match std::fs::read(file) {
        Ok(input) => !driver::panics(target, &input),
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            false
        }
    }
}

fn parse_arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut arguments = Arguments { targets: Vec::new(), seconds: 10, seed: clock.as_secs(), input: None };
    while let Some(argument) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |value: String| value.parse().map_err(|_| format!("{value:?} is not a number"));
        match &*argument {
            "--seconds" => arguments.seconds = number(value()?)?,
            "--seed" => arguments.seed = number(value()?)?,
            "--input" => arguments.input = Some(value()?.into()),
            name => {
                let known = targets::ALL.into_iter().find(|target| target.name == name);
                arguments.targets.push(known.ok_or_else(|| format!("there is no target {name:?}"))?);
            }
        }
    }
    if arguments.targets.is_empty() {
        arguments.targets = targets::ALL.to_vec();
    }
    Ok(arguments)
}
