//! The program whose instructions `callgrind.sh` counts. It generates bodies, ingests a part of them up to their acks,
//! and ends, so that two runs with the same bodies differ only by the ingested part. With `hourly`, it queries sealed
//! days instead.

use std::process::ExitCode;

use hourglass_benches::{Fleet, Path, history};
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Sensors with sealed days.
const HISTORY_SENSORS: usize = 300;

/// Number of sensors, and lines per body.
fn case(name: &str) -> Option<(usize, usize)> {
    match name {
        "gateway" => Some((1_000, 5_000)),
        "wide" => Some((100_000, 5_000)),
        "single" => Some((1_000, 1)),
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, folder, times] = arguments.as_slice()
        && let ("hourly", Ok(times)) = (name.as_str(), times.parse())
    {
        println!("{} windows", history::hourly_by_site(folder.as_ref(), HISTORY_SENSORS, times));
        return ExitCode::SUCCESS;
    }
    let parsed = match arguments.as_slice() {
        [name, made, taken] => case(name).zip(made.parse::<usize>().ok().zip(taken.parse::<usize>().ok())),
        _ => None,
    };
    let Some(((sensors, lines), (made, taken))) = parsed else {
        eprintln!("usage: hourglass-benches gateway|wide|single READINGS-MADE READINGS-TAKEN | hourly FOLDER TIMES");
        return ExitCode::FAILURE;
    };
    let mut fleet = Fleet::new(sensors);
    let path = Path::knowing(&mut fleet);
    let bodies = fleet.bodies(made, lines);
    println!("{} readings taken", path.take_all(&bodies[..taken.div_ceil(lines).min(bodies.len())]));
    path.end()
}
