//! Renders the results as a self-contained HTML page: plots of the cost of each quantity, and the tables.

use std::collections::BTreeMap;

use super::figures::{Figures, Filled, Results, SeriesRow};
use crate::report::html::{escaped, framed};
use crate::report::svg::{Across, Line, Plot};
use crate::stats::{three_digits, to_f64};

/// The page.
pub fn page(results: &Results) -> String {
    let mut body = header(results);
    for series in &results.series {
        body += &section(&format!("By {}", series.varied), &plots(series), &table(series));
        for point in series.points.iter().filter(|point| !point.filling.is_empty()) {
            body += &section("While the store is filled", &filling_plots(&point.filling), "");
        }
    }
    framed("How cost grows", &body)
}

fn header(results: &Results) -> String {
    let machine = &results.machine;
    let scale = if results.scale == 1.0 { String::new() } else { format!(" · everything times {}", results.scale) };
    format!(
        "<header>\n<h1>How cost grows</h1>\n<p class=\"lead\">{}, as much as it takes, alone and on a fresh folder for each \
         point</p>\n<p class=\"faint\">{} · {} cores, {}, {} GiB, Linux {} · load average before {} · the load tester shares the \
         machine{scale}</p>\n</header>\n",
        escaped(&results.server()),
        escaped(&results.began.replace('T', " ").replace('Z', " UTC")),
        machine.cores,
        escaped(&machine.cpu),
        machine.memory_gib,
        escaped(&machine.kernel),
        escaped(&machine.load_average_before)
    )
}

fn section(title: &str, plots: &str, table: &str) -> String {
    format!("<header><h1>{}</h1></header>\n<div class=\"plots\">\n{plots}</div>\n{table}", escaped(title))
}

/// A line of a plot: its name, its colour's class and its points.
fn line<'a>(name: &'a str, class: &'a str, points: Vec<(f64, Option<f64>)>) -> Line<'a> {
    Line { name, class, is_filled: false, points }
}

fn plots(series: &SeriesRow) -> String {
    // A logarithmic axis cannot show 0.
    let x = if series.points.iter().any(|point| point.at == 0) { Across::Plain } else { Across::Log };
    let points = |of: &dyn Fn(&Figures) -> f64| -> Vec<(f64, Option<f64>)> {
        series.points.iter().map(|point| (to_f64(point.at), Some(of(point)))).collect()
    };
    let of_process = |figures: fn(&Figures) -> &BTreeMap<String, f64>, name: &str| {
        points(&|point| figures(point).get(name).copied().unwrap_or(0.0))
    };
    let by_process = |figures: fn(&Figures) -> &BTreeMap<String, f64>| {
        let is_there = |name: &str| series.points.iter().any(|point| figures(point).contains_key(name));
        let known = [("hourglass", "one"), ("mongod", "two")].into_iter().filter(|(name, _)| is_there(name));
        known.map(|(name, class)| line(name, class, of_process(figures, name))).collect::<Vec<_>>()
    };
    // A logarithmic axis if the values differ by a large factor; otherwise small values could not be told apart.
    let (most, least) = series.points.iter().fold((0.0_f64, f64::INFINITY), |(most, least), point| {
        (most.max(point.acked_per_s), least.min(point.acked_per_s))
    });
    let is_wide = most > 8.0 * least;
    let plot = |title, y_label, is_log, lines| {
        Plot { title, x_label: &series.varied, y_label, x, x_most: None, is_log, lines }.html()
    };
    let rates = vec![
        line("drained", "three", points(&|point| point.drained_per_s)),
        line("acked", "one", points(&|point| point.acked_per_s)),
    ];
    let acks =
        vec![line("p99", "two", points(&|point| point.p99_ms)), line("median", "one", points(&|point| point.p50_ms))];
    [
        plot("Readings per second", "readings per second", is_wide, rates),
        plot("CPU per reading until stored", "microseconds", is_wide, by_process(|point| &point.cpu_us)),
        plot("Latency of acks", "milliseconds", true, acks),
        plot("Most memory", "MiB resident", false, by_process(|point| &point.peak_mib)),
    ]
    .concat()
}

fn filling_plots(parts: &[Filled]) -> String {
    let plot = |title, y_label, of: &dyn Fn(&Filled) -> f64| {
        let points = parts.iter().map(|part| (to_f64(part.stored), Some(of(part)))).collect();
        let lines = vec![line(y_label, "one", points)];
        Plot { title, x_label: "readings stored", y_label, x: Across::Plain, x_most: None, is_log: false, lines }.html()
    };
    [
        plot("Readings acked", "readings per second", &|part| part.acked_per_s),
        plot("CPU per reading, all processes", "microseconds", &|part| part.cpu_us),
        plot("Memory, all processes", "MiB resident", &|part| part.resident_mib),
        plot("Files", "MiB on disk", &|part| part.disk_bytes / f64::from(1 << 20)),
    ]
    .concat()
}

fn table(series: &SeriesRow) -> String {
    let heads = ["readings", "acked/s", "drained/s", "CPU µs", "ack p50 ms", "p99 ms", "peak MiB", "disk MiB", "503s"];
    let heads: String = heads.iter().map(|head| format!("<th class=\"number\">{head}</th>")).collect();
    let row = |point: &Figures| {
        let peak: f64 = point.peak_mib.values().sum();
        let cells = [
            to_f64(point.readings),
            point.acked_per_s,
            point.drained_per_s,
            point.cpu_us_of_all(),
            point.p50_ms,
            point.p99_ms,
            peak.round(),
            (point.disk_bytes / f64::from(1 << 20)).round(),
            to_f64(point.refused),
        ];
        let cells: String =
            cells.iter().map(|cell| format!("<td class=\"number\">{}</td>", three_digits(*cell))).collect();
        format!("<tr><th>{}</th>{cells}</tr>\n", three_digits(to_f64(point.at)))
    };
    let rows: String = series.points.iter().map(row).collect();
    format!(
        "<section class=\"card wide\"><table><thead><tr><th>{}</th>{heads}</tr></thead><tbody>\n{rows}</tbody></table></section>\n",
        escaped(&series.varied)
    )
}
