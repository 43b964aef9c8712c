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

/// Returns the number of sensors and the lines per body of a case.
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
        [name, generated, ingested] => {
            case(name).zip(generated.parse::<usize>().ok().zip(ingested.parse::<usize>().ok()))
        }
        _ => None,
    };
    let Some(((sensors, lines), (generated, ingested))) = parsed else {
        eprintln!("usage: hourglass-benches gateway|wide|single GENERATED INGESTED | hourly FOLDER TIMES");
        return ExitCode::FAILURE;
    };
    let mut fleet = Fleet::new(sensors);
    let path = Path::with_fleet(&mut fleet);
    let bodies = fleet.bodies(generated, lines);
    println!("{} readings ingested", path.ingest_all(&bodies[..ingested.div_ceil(lines).min(bodies.len())]));
    path.exit()
}
