//! Parsing line protocol only.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use hourglass::reading::{Limits, Precision};
use hourglass::wire::Points;
use hourglass::wire::line_protocol::{Lines, parse_series};
use hourglass_benches::Fleet;

const LINES: usize = 5000;

#[divan::bench]
fn parse(bencher: Bencher<'_, '_>) {
    let body = Fleet::new(1000).body(LINES);
    bencher.counter(ItemsCount::new(LINES)).bench_local(|| {
        let mut lines = Lines::new(black_box(body.as_bytes()), Precision::Nanoseconds, Limits::default());
        let mut good = 0;
        while let Some(line) = lines.next() {
            good += usize::from(black_box(line).is_ok());
        }
        good
    });
}

/// The extra cost of an unknown sensor: building it from its key.
#[divan::bench]
fn parse_series_of_unknown_sensors(bencher: Bencher<'_, '_>) {
    let body = Fleet::new(LINES).body(LINES);
    let series: Vec<&str> = body.lines().filter_map(|line| line.split(' ').next()).collect();
    bencher.counter(ItemsCount::new(LINES)).bench_local(|| {
        for series in &series {
            let _ = black_box(parse_series(black_box(series), &Limits::default()));
        }
    });
}
