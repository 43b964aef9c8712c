//! Bodies through the whole ingest path. `validate` minus `lines::parse` is the cost of admission: finding the sensor,
//! checking fields, filling the batch.

use divan::Bencher;
use divan::counter::ItemsCount;
use hourglass_benches::{Fleet, Path};

const LINES: usize = 5000;

/// Validates bodies. The argument is the number of sensors, which are all known and used in turn.
#[divan::bench(args = [1_000, 100_000])]
fn validate(bencher: Bencher<'_, '_>, sensors: usize) {
    let mut fleet = Fleet::new(sensors);
    let path = Path::with_fleet(&mut fleet);
    let mut bodies = fleet.bodies(sensors.max(LINES), LINES);
    bodies.iter_mut().for_each(|body| body.push_str("climate temp=\n"));
    let mut next_bodies = bodies.iter().cycle();
    bencher
        .counter(ItemsCount::new(LINES))
        .with_inputs(|| next_bodies.next().map_or("", String::as_str))
        .bench_local_values(|body| path.validate(body));
}

/// Ingests bodies up to the ack. The arguments are the number of sensors and of lines per body. The shards free the
/// batches later.
#[divan::bench(args = [(1_000, 5_000), (100_000, 5_000), (1_000, 1)])]
fn ack(bencher: Bencher<'_, '_>, sizes: (usize, usize)) {
    let (sensors, lines) = sizes;
    let mut fleet = Fleet::new(sensors);
    let path = Path::with_fleet(&mut fleet);
    bencher.counter(ItemsCount::new(lines)).with_inputs(|| fleet.body(lines)).bench_local_values(|body| {
        path.ingest(&body);
        body
    });
}
