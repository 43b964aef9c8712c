//! Sums are exact and rounded once, independent of order, flushes and pages. The oracle is Python's `Fraction`.

use hourglass::bucket::exact::{ExactSum, SumRest};

use crate::support::prelude::*;

const DATABASE: &str = "sums";
/// Flushes only on request; an hour of 9,000 readings has several pages.
const CONFIG: &str = "[flush]\ninterval = \"1h\"\n[page]\nmax_readings = 2000\n[store]\ncommand_timeout = \"60s\"\n";

struct World {
    server: Server,
}

fn worlds() -> [World; 2] {
    stores().map(|store| World { server: Launch::with_store(store).config(CONFIG).start() })
}

impl World {
    fn write(&self, lines: &str) {
        write_to(&self.server, "db=sums", lines);
    }

    /// Returns sum and mean of a field in one window, as text.
    fn sum(&self, sensor: &str, range: (i64, i64), step: &str) -> [String; 2] {
        let found = windows(&self.server, DATABASE, sensor, Some(range), step);
        let [window] = &found.values().collect::<Vec<_>>()[..] else { panic!("one window: {found:?}") };
        [&window["v"].sum, &window["v"].avg].map(|text| text.get().to_owned())
    }

    /// The same by InfluxQL.
    fn by_statement(&self, sensor: &str, range: (i64, i64)) -> Vec<serde_json::Value> {
        let statement =
            format!("SELECT sum(v), mean(v) FROM {sensor} WHERE time >= {} AND time < {}", range.0, range.1);
        let query = encode(&statement);
        let answer = self.server.fetch(&format!("/query?db=sums&epoch=ns&q={query}"));
        answer["results"][0]["series"][0]["values"][0].as_array().expect("a row")[1..].to_vec()
    }
}

/// Regression: sums near 2^63 changed with a flush, because a page kept the sum as a double.
#[test]
fn a_sum_of_integers_is_the_same_after_a_flush() {
    for world in worlds() {
        let line = |number: i64, value: i64| format!("m v={value}i {}\n", START + number);
        let lines =
            [line(0, i64::MAX), line(1, i64::MAX), line(2, 1), line(HOUR, -i64::MAX), line(HOUR + 1, -i64::MAX)];
        world.write(&lines.concat());
        let range = (START, START + 2 * HOUR);
        for when in ["before", "after"] {
            assert_eq!(world.sum("m", range, "2h"), ["1", "0.2"], "{when} the flush");
            assert_eq!(world.by_statement("m", range), [json!(1), json!(0.2)], "{when} the flush");
            flush(&world.server);
        }
    }
}

/// Numbers of very different sizes, so that the sum of doubles depends on the order.
fn number(n: i64) -> f64 {
    let value = ((n * 7919) % 9001 - 4500) as f64 / 1000.0;
    match n % 50 {
        0 => value * 1e12,
        1 => value * 1e-9,
        _ => value,
    }
}

const COUNT: i64 = 9000;

/// Writes them in some order, with this many flushes in between.
fn write_numbers(world: &World, sensor: &str, order: impl Fn(i64) -> i64, flushes: usize) {
    let lines: Vec<String> =
        (0..COUNT).map(order).map(|n| format!("{sensor} v={:?} {}\n", number(n), START + n * 400_000_000)).collect();
    for part in lines.chunks(lines.len() / (flushes + 1)) {
        world.write(&part.concat());
        if flushes > 0 {
            flush(&world.server);
        }
    }
}

/// Regression: three orders of 9,000 floats in several pages had three different sums and ETags.
#[test]
fn a_sum_of_floats_depends_on_neither_order_nor_flushes_nor_pages() {
    let all: Vec<f64> = (0..COUNT).map(number).collect();
    let Some(expected) = fractions(&[all]) else { return };
    let expected = expected[0][0];
    let mean = expected / COUNT as f64;
    for world in worlds() {
        write_numbers(&world, "rising", |n| n, 0);
        write_numbers(&world, "falling", |n| COUNT - 1 - n, 3);
        write_numbers(&world, "mixed", |n| n * 4001 % COUNT, 7);
        let check = |when: &str| {
            for sensor in ["rising", "falling", "mixed"] {
                for range in [(START, START + HOUR), (START - 5 * HOUR, START + HOUR)] {
                    let found = world.sum(sensor, range, "24h").map(|text| text.parse::<f64>().expect("a number"));
                    assert_eq!(
                        found.map(f64::to_bits),
                        [expected, mean].map(f64::to_bits),
                        "{sensor} {when}: {found:?}"
                    );
                    assert_eq!(world.by_statement(sensor, range), [expected, mean].map(serde_json::Value::from));
                }
            }
        };
        check("before the flush");
        let path = "/api/v1/summary?db=sums&sensor=rising&step=1h&from=2026-01-15T13:00:00Z&to=2026-01-15T16:00:00Z";
        let tag = get(&world.server.url(path)).expect(200).header("etag").expect("a tag").to_owned();
        flush(&world.server);
        check("after it");
        let known = [("if-none-match", tag.as_str())];
        request("GET", &world.server.url(path), b"", &known).expect("an answer").expect(304);
    }
}

/// Returns the exact sums by Python's fractions, each as rounded parts; `None` without Python.
fn fractions(lists: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    const SCRIPT: &str = "
import sys
from fractions import Fraction
for line in sys.stdin:
    rest = sum((Fraction(float.fromhex(text)) for text in line.split()), Fraction(0))
    parts = []
    while rest:
        part = rest.numerator / rest.denominator
        parts.append(part.hex())
        rest -= Fraction(part)
    print(*parts)
";
    let named = std::env::var("HOURGLASS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let Some(python) = on_path(Path::new(&named)) else {
        not_run("python3");
        return None;
    };
    let text = |list: &Vec<f64>| list.iter().map(|v| hex(*v)).collect::<Vec<_>>().join(" ") + "\n";
    let input: String = lists.iter().map(text).collect();
    let output = run_with_input(Command::new(python).args(["-c", SCRIPT]), input.as_bytes()).expect_success().stdout;
    Some(output.lines().map(|line| line.split_whitespace().map(of_hex).collect()).collect())
}

/// Formats a double like Python's `float.hex`, except for the position of the point.
fn hex(double: f64) -> String {
    let fraction = double.to_bits() & ((1 << 52) - 1);
    let exponent = double.to_bits() >> 52 & 0x7ff;
    let hidden: u64 = if exponent == 0 { 0 } else { 1 << 52 };
    let sign = if double.is_sign_negative() { "-" } else { "" };
    format!("{sign}0x{:x}p{}", fraction | hidden, i64::try_from(exponent.max(1)).expect("small") - 1075)
}

fn of_hex(text: &str) -> f64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let (digits, exponent) = digits.strip_prefix("0x").and_then(|rest| rest.split_once('p')).expect("a double");
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number = u64::from_str_radix(&format!("{whole}{fraction}"), 16).expect("hexadecimal digits");
    let exponent = exponent.parse::<i32>().expect("a number") - 4 * i32::try_from(fraction.len()).expect("few");
    sign * crate::support::exact::times_power_of_two(number as f64, exponent)
}

/// Compares sums and residues with Python's, over all exponents.
#[test]
fn sums_and_residues_equal_python_fractions() {
    let bits =
        |random: &mut Random| (random.below(1 << 32).cast_unsigned() << 32) | random.below(1 << 32).cast_unsigned();
    let mut random = Random::new(12);
    let mut lists: Vec<Vec<f64>> = Vec::new();
    for round in 0..300 {
        let count = 1 + random.below(60);
        let one = |random: &mut Random| match round % 3 {
            0 => (random.below(2_000_000) as f64 - 1e6) / 1000.0,
            1 => f64::from_bits(bits(random)),
            _ => f64::from_bits(bits(random) & !(0x7ff << 52) | (990 + bits(random) % 70) << 52),
        };
        lists.push((0..count).map(|_| one(&mut random)).filter(|v| v.is_finite() && v.abs() < 1e300).collect());
    }
    let Some(expected) = fractions(&lists) else { return };
    assert_eq!(expected.len(), lists.len());
    for (list, expected) in lists.iter().zip(expected) {
        let mut sum = ExactSum::default();
        list.iter().for_each(|value| sum.add(*value));
        let (rounded, rest) = sum.parts();
        let found: Vec<u64> = std::iter::once(rounded).chain(rest.doubles(rounded)).map(f64::to_bits).collect();
        let first = expected.first().copied().unwrap_or(0.0);
        let expected: Vec<u64> = std::iter::once(first).chain(expected.into_iter().skip(1)).map(f64::to_bits).collect();
        assert_eq!(found, expected, "{list:?}");
        let read = SumRest::from_doubles(rounded, rest.doubles(rounded)).expect("parts");
        assert_eq!(ExactSum::from_rounded(rounded, &read), sum);
    }
}

/// Regression: differences, spreads and sums of integers wrapped at 64 bits, as in InfluxDB.
#[test]
fn integers_beyond_64_bits_become_floats() {
    let world = World { server: Launch::embedded().config(CONFIG).start() };
    let least = i64::MIN;
    let most = i64::MAX;
    world.write(&format!("m v={most}i {START}\nm v={least}i {}\nm v={most}i {}\n", START + 1, START + 2));
    let values = |columns: &str| -> Vec<f64> {
        let shown = world.server.fetch(&format!("/query?db=sums&q={}", encode(&format!("SELECT {columns} FROM m"))));
        let rows = shown["results"][0]["series"][0]["values"].as_array().expect("rows").clone();
        rows.iter().map(|row| row[1].as_f64().expect("a number")).collect()
    };
    let two_to_64 = 2_f64.powi(64);
    assert_eq!(values("spread(v)"), [two_to_64]);
    assert_eq!(values("difference(v)"), [-two_to_64, two_to_64]);
    assert_eq!(values("v * 2"), [two_to_64, -two_to_64, two_to_64]);
}
