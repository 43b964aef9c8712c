//! Statistics over measured figures.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Maximum latency of the histogram: one hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// Returns an empty histogram of microseconds with three significant digits.
pub fn histogram() -> Histogram<u64> {
    // This cannot fail: the upper bound is at least twice the lower one, and the digits are between 0 and 5.
    let new = Histogram::new_with_bounds(1, LONGEST_US, 3);
    new.unwrap_or_else(|error| unreachable!("a histogram's bounds: {error}"))
}

/// Converts a duration to microseconds. Rounds up, so that no duration is 0.
pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

/// Returns a quantile in milliseconds, or 0 if the histogram is empty.
pub fn quantile_ms(times: &Histogram<u64>, share: f64) -> f64 {
    Duration::from_micros(times.value_at_quantile(share)).as_secs_f64() * 1000.0
}

/// Returns the median. For an even count, it is the mean of the two middle figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    match (figures.len(), figures.len() / 2) {
        (0, _) => 0.0,
        (count, middle) if count % 2 == 1 => figures[middle],
        (_, middle) => f64::midpoint(figures[middle - 1], figures[middle]),
    }
}

/// Converts a count to a float.
#[expect(clippy::cast_precision_loss, reason = "for people to read")]
pub fn to_f64(count: usize) -> f64 {
    count as f64
}

/// Formats with about three significant digits and separated thousands.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        below if below < 10.0 && below.fract() != 0.0 => 2,
        below if below < 100.0 && below.fract() != 0.0 => 1,
        _ => 0,
    };
    let unit = if value >= 10_000.0 { 10_f64.powf(value.log10().floor() - 2.0) } else { 1.0 };
    let rounded = if decimals == 0 { (value / unit).round() * unit } else { value };
    let text = format!("{rounded:.decimals$}");
    let whole = text.split('.').next().unwrap_or_default().len();
    let mut apart = String::new();
    for (place, digit) in text.chars().enumerate() {
        if place > 0 && place < whole && (whole - place) % 3 == 0 {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median([]), 0.0);
    }

    #[test]
    fn figures_have_about_three_digits() {
        let shown = [0.123, 9.876, 12.34, 300.4, 9_999.0, 1_523_456.0, 100_000.0, 64.0].map(three_digits);
        assert_eq!(shown, ["0.12", "9.88", "12.3", "300", "9,999", "1,520,000", "100,000", "64"]);
    }
}
