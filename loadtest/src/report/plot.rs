//! Draws a line plot as SVG.

use std::fmt::Write;

use crate::stats::three_digits;

/// The size of the picture, and the space for labels, in SVG units.
const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;
/// Approximate number of ticks of an axis.
const TICKS: f64 = 5.0;
/// The lower axis is logarithmic if its values differ by more than this factor.
const LINEAR_MAX: f64 = 100.0;

/// A line through the points, which are ordered by x.
pub fn plot(points: &[(f64, f64)]) -> String {
    let first = points.first().map_or(0.0, |(x, _)| *x);
    let last = points.last().map_or(1.0, |(x, _)| *x);
    let is_log = first > 0.0 && last / first > LINEAR_MAX;
    let scale = |x: f64| if is_log { x.log10() } else { x };
    let from = scale(first);
    let width = (scale(last) - from).max(f64::MIN_POSITIVE);
    let step = step(points.iter().map(|(_, y)| *y).fold(0.0, f64::max));
    let max = (points.iter().map(|(_, y)| *y).fold(0.0, f64::max) / step).ceil().max(1.0) * step;
    let left = |x: f64| LEFT + (scale(x) - from) / width * (WIDTH - LEFT - RIGHT);
    let top = |y: f64| HEIGHT - BOTTOM - y / max * (HEIGHT - TOP - BOTTOM);

    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    let mut tick = 0.0;
    // Writing to a String cannot fail.
    while tick <= max * 1.001 {
        let y = top(tick);
        let _ =
            write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>", WIDTH - RIGHT);
        let label = three_digits(tick);
        let _ = write!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y + 4.0);
        tick += step;
    }
    // Labels would overlap if every point of a long line had one.
    let every = points.len().div_ceil(6).max(1);
    for (x, _) in points.iter().step_by(every) {
        let label = three_digits(*x);
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>", left(*x), HEIGHT - 8.0);
    }
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{:.1},{:.1}", left(*x), top(*y))).collect();
    let _ = write!(svg, "<polyline class=\"line\" points=\"{}\"/>", path.join(" "));
    for (x, y) in points {
        let _ = write!(svg, "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"/>", left(*x), top(*y));
    }
    svg + "</svg>"
}

/// The distance of ticks for values up to `max`: 1, 2 or 5 times a power of ten.
fn step(max: f64) -> f64 {
    let rough = max.max(f64::MIN_POSITIVE.sqrt()) / TICKS;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_points_lie_within_the_picture() {
        assert_eq!([3.0, 47.0, 1_234_567.0].map(step), [1.0, 10.0, 500_000.0]);
        for points in [vec![(1.0, 5.0), (1000.0, 7.5), (1e6, 0.0)], vec![(0.0, 0.0), (1.0, 0.0)], vec![(3.0, 1.0)]] {
            let svg = plot(&points);
            assert_eq!(svg.matches("<circle").count(), points.len());
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
