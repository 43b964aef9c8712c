//! Draws line plots as SVG.

use std::fmt::Write;

/// The width of the picture, in SVG units.
const WIDTH: f64 = 540.0;
const HEIGHT: f64 = 262.0;
/// The space on the left for labels.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;
/// Approximate number of ticks per axis.
const TICKS: f64 = 5.0;

pub struct Plot<'a> {
    pub title: &'a str,
    /// The label of the lower axis, with its unit.
    pub x_label: &'a str,
    /// The label of the upright axis, with its unit.
    pub y_label: &'a str,
    /// The scale of the lower axis.
    pub x: Across,
    /// Minimum end of the lower axis. By default it ends at the last point.
    pub x_most: Option<f64>,
    /// Whether the upright axis is logarithmic.
    pub is_log: bool,
    /// The lines; the first one is drawn below the others.
    pub lines: Vec<Line<'a>>,
}

/// The scale of the lower axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Across {
    /// Linear, from 0 on.
    Plain,
    /// Logarithmic, from the decade of the least value, which must be above 0.
    Log,
    /// Percentiles: 90, 99, 99.9 and so on at equal distances.
    Percentile,
}

/// A line.
pub struct Line<'a> {
    /// The name in the legend.
    pub name: &'a str,
    /// The CSS class of the colour.
    pub class: &'a str,
    /// Whether the area below the line is filled.
    pub is_filled: bool,
    /// The points, ordered by x; `None` is a gap.
    pub points: Vec<(f64, Option<f64>)>,
}

/// Converts values to coordinates.
struct Scale {
    x: Across,
    is_log: bool,
    across: (f64, f64),
    up: (f64, f64),
}

/// Maximum number of nines of a percentile axis.
const NINES_MAX: f64 = 5.0;

impl Scale {
    fn of(plot: &Plot) -> Self {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let below_all = |x: &f64| plot.x != Across::Percentile || *x < 100.0;
        let values = || points().filter_map(|(_, value)| *value);
        let farthest = points().map(|(x, _)| *x).filter(below_all).map(|x| nines(x, plot.x)).fold(0.0, f64::max);
        let across = match plot.x {
            Across::Log => decades(points().map(|(x, _)| *x)),
            Across::Plain => (0.0, points().map(|(x, _)| *x).fold(plot.x_most.unwrap_or(1.0), f64::max)),
            Across::Percentile => (0.0, farthest.clamp(2.0, NINES_MAX)),
        };
        let most = values().fold(0.0, f64::max);
        let up = if plot.is_log {
            decades(values())
        } else {
            // Leaves some space above, so that a line at the top is visible.
            let step = step(most * 1.04);
            (0.0, (most * 1.04 / step).ceil().max(1.0) * step)
        };
        Self { x: plot.x, is_log: plot.is_log, across, up }
    }

    fn x(&self, value: f64) -> f64 {
        let value = nines(value, self.x).min(self.across.1);
        LEFT + (value - self.across.0) / (self.across.1 - self.across.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(1e-9).log10().max(self.up.0) } else { value };
        HEIGHT - BOTTOM - (value - self.up.0) / (self.up.1 - self.up.0) * (HEIGHT - TOP - BOTTOM)
    }

    fn x_ticks(&self) -> Vec<(f64, String)> {
        match self.x {
            Across::Percentile => [50.0, 90.0, 99.0, 99.9, 99.99, 99.999]
                .into_iter()
                .filter(|percentile| nines(*percentile, self.x) <= self.across.1)
                .map(|percentile| (percentile, format!("{percentile} %")))
                .collect(),
            Across::Log => {
                every(1.0, self.across.1 - self.across.0).map(|more| power(self.across.0 + more)).map(tick).collect()
            }
            Across::Plain => every(step(self.across.1), self.across.1).map(tick).collect(),
        }
    }

    fn y_ticks(&self) -> Vec<(f64, String)> {
        if self.is_log {
            return every(1.0, self.up.1 - self.up.0).map(|more| power(self.up.0 + more)).map(tick).collect();
        }
        every(step(self.up.1), self.up.1).map(tick).collect()
    }
}

/// The decades of the values above 0, at least one.
fn decades(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
    let least = if least.is_finite() { least.log10().floor() } else { 0.0 };
    (least, values.fold(1e-6, f64::max).log10().ceil().max(least + 1.0))
}

fn power(decade: f64) -> f64 {
    10_f64.powf(decade)
}

fn tick(value: f64) -> (f64, String) {
    (value, short(value))
}

/// The position on an axis. Percentiles: 90 is at 1, 99 at 2. Logarithmic: 10 is at 1. Linear: the value itself.
fn nines(value: f64, x: Across) -> f64 {
    match x {
        Across::Plain => value,
        Across::Log => value.max(1e-9).log10(),
        Across::Percentile => -(1.0 - value / 100.0).max(10_f64.powf(-NINES_MAX)).log10(),
    }
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, so that there are about [`TICKS`].
fn step(most: f64) -> f64 {
    let rough = (most / TICKS).max(1e-6);
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= rough * 0.999);
    times.unwrap_or(10.0) * power
}

fn every(step: f64, most: f64) -> impl Iterator<Item = f64> {
    (0..100_u32).map(move |tick| f64::from(tick) * step).take_while(move |tick| *tick <= most * 1.0001)
}

/// Formats a number for a tick.
fn short(value: f64) -> String {
    let trimmed = |value: f64, decimals: usize| {
        let text = format!("{value:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    match value.abs() {
        million if million >= 1e6 => trimmed(value / 1e6, 2) + " M",
        thousand if thousand >= 1e4 => trimmed(value / 1e3, 1) + " k",
        _ => trimmed(value, 3),
    }
}

impl Plot<'_> {
    /// The plot with its title and legend. Texts are not escaped, because they come from the program itself.
    pub fn html(&self) -> String {
        let legend: Vec<String> = self
            .lines
            .iter()
            .map(|line| {
                let colour = line.class.split(' ').next().unwrap_or_default();
                format!("<span><i style=\"background:var(--{colour})\"></i>{}</span>", line.name)
            })
            .collect();
        format!(
            "<section class=\"card\"><div class=\"head\"><h2>{}</h2><div class=\"legend\">{}</div></div>{}</section>\n",
            self.title,
            legend.concat(),
            self.svg()
        )
    }

    fn svg(&self) -> String {
        let scale = Scale::of(self);
        let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", self.title);
        // Writing to a String cannot fail.
        for (tick, label) in scale.y_ticks() {
            let y = scale.y(tick);
            let _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let _ = write!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0);
        }
        for (tick, label) in scale.x_ticks() {
            let x = scale.x(tick);
            let _ =
                write!(svg, "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{floor}\" y2=\"{}\"/>", floor + 4.0);
            let anchor = if x > right - 20.0 { "end" } else { "middle" };
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{label}</text>", floor + 17.0);
        }
        let _ = write!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor}\" y2=\"{floor}\"/>");
        for line in &self.lines {
            svg += &drawn(line, &scale);
        }
        let middle = f64::midpoint(LEFT, right);
        let _ =
            write!(svg, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>", HEIGHT - 6.0, self.x_label);
        let middle = f64::midpoint(TOP, floor);
        let turned = format!("transform=\"rotate(-90 12 {middle})\"");
        let _ = write!(svg, "<text x=\"12\" y=\"{middle}\" text-anchor=\"middle\" {turned}>{}</text>", self.y_label);
        svg + "</svg>"
    }
}

/// One SVG path per sequence of points without a gap.
fn drawn(line: &Line, scale: &Scale) -> String {
    let mut svg = String::new();
    let floor = HEIGHT - BOTTOM;
    for part in line.points.split(|(_, value)| value.is_none()) {
        let places: Vec<(f64, f64)> =
            part.iter().filter_map(|(x, value)| Some((scale.x(*x), scale.y((*value)?)))).collect();
        let (Some(first), Some(last)) = (places.first(), places.last()) else { continue };
        let text: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let path = text.join(" L");
        if places.len() == 1 {
            let _ = write!(
                svg,
                "<circle class=\"dot {}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"/>",
                line.class, first.0, first.1
            );
            continue;
        }
        if line.is_filled {
            let (from, to) = (first.0, last.0);
            let _ = write!(
                svg,
                "<path class=\"below {}\" d=\"M{from:.1},{floor} L{path} L{to:.1},{floor} Z\"/>",
                line.class
            );
        }
        let _ = write!(svg, "<path class=\"plot {}\" d=\"M{path}\"/>", line.class);
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_numbers_short() {
        assert_eq!([7.0, 100.0, 20_000.0, 0.3].map(step), [2.0, 20.0, 5000.0, 0.1]);
        assert_eq!([0.5, 100.0, 20_000.0, 1_500_000.0, 0.0].map(short), ["0.5", "100", "20 k", "1.5 M", "0"]);
    }

    #[test]
    fn percentiles_have_their_nines() {
        let found = [0.0, 90.0, 99.0, 99.9, 100.0].map(|percentile| nines(percentile, Across::Percentile).round());
        assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 5.0]);
    }

    #[test]
    fn decades_hold_all_that_is_above_nothing() {
        assert_eq!(decades([1.0, 5000.0].into_iter()), (0.0, 4.0));
        assert_eq!(decades([0.0, 1000.0, 100_000.0].into_iter()), (3.0, 5.0));
        assert_eq!((decades([0.0].into_iter()), nines(1000.0, Across::Log)), ((0.0, 1.0), 3.0));
    }

    #[test]
    fn gaps_are_left_out() {
        let points = vec![(0.0, Some(1.0)), (1.0, Some(2.0)), (2.0, None), (3.0, Some(1.0))];
        let line = Line { name: "a", class: "one", is_filled: true, points };
        let plot = Plot {
            title: "t",
            x_label: "s",
            y_label: "n",
            x: Across::Plain,
            x_most: None,
            is_log: false,
            lines: vec![line],
        };
        let html = plot.html();
        assert_eq!((html.matches("class=\"plot").count(), html.matches("<circle").count()), (1, 1));
        assert!(!html.contains("NaN") && !html.contains("inf"));
    }
}
