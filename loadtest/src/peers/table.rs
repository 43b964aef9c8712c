//! The results as tables for people, in Markdown.

use std::fmt::Write;

use super::contender::Contender;
use super::figures::{Figures, Results, Row, WorkSize};
use crate::stats::to_f64;

/// Those that all others are compared with.
const AGAINST: [Contender; 2] = [Contender::Victoria, Contender::Influx];

/// What the columns are.
const LEGEND: &str = "\
Medians; in parentheses times VictoriaMetrics, times InfluxDB. Readings/s to the last ack, and until all is in the store
(InfluxDB, VictoriaMetrics, MongoDB: until they rest); until then the CPU of all server processes and what the disk was
given to write, per reading; by how much the folders have grown per reading when everybody was stopped, with oplog and WAL.

| | acked/s | drained/s | CPU µs | written B | ack p50 ms | p99 ms | peak MiB | kept B |
";

/// What was measured, with ratios, then who was measured.
pub fn markdown(results: &Results) -> String {
    let mut text = LEGEND.to_owned();
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for work in &results.works {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| **{}**: {} readings of {} sensors, {} per POST, {} connections | | | | | | | | |",
            work.name,
            figure(to_f64(work.readings)),
            figure(to_f64(work.sensors)),
            figure(to_f64(work.lines)),
            work.connections
        );
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.work == work.name).collect();
        for row in &rows {
            text += &line(row, work, &rows);
        }
    }
    text += "\n| | version | year | at the ack a reading is |\n|---|---|---|---|\n";
    for server in &results.servers {
        let year = server.year.map_or_else(|| "not known".to_owned(), |year| year.to_string());
        let _ = writeln!(text, "| {} | {} | {year} | {} |", server.name, server.version, server.durability);
    }
    text
}

fn line(row: &Row, work: &WorkSize, rows: &[&Row]) -> String {
    let cell = |of: fn(&Figures) -> f64| {
        let value = of(&row.median);
        let ratios: Vec<String> = AGAINST
            .iter()
            .map(|other| match rows.iter().find(|row| row.server == other.name()) {
                Some(other) if other.server != row.server => figure(value / of(&other.median)),
                _ => "–".to_owned(),
            })
            .collect();
        format!("{} ({})", figure(value), ratios.join("; "))
    };
    let memory = match (row.median.server_mib, row.median.mongod_mib) {
        (Some(_), Some(mongod)) => format!("{} + mongod {}", cell(of_server), figure(mongod)),
        (None, Some(mongod)) => format!("mongod {}", figure(mongod)),
        _ => cell(of_server),
    };
    let share = match row.readings {
        all if all == work.readings => String::new(),
        part => format!(", the first {}", figure(to_f64(part))),
    };
    format!(
        "| {}{share} | {} | {} | {} | {} | {} | {} | {memory} | {} |\n",
        row.server,
        cell(|figures| figures.acked_per_s),
        cell(|figures| figures.drained_per_s),
        cell(|figures| figures.cpu_us),
        cell(|figures| figures.written_bytes),
        figure(row.median.p50_ms),
        cell(|figures| figures.p99_ms),
        cell(|figures| figures.kept_bytes)
    )
}

fn of_server(figures: &Figures) -> f64 {
    figures.server_mib.unwrap_or_default()
}

/// About three digits that count, thousands apart.
fn figure(value: f64) -> String {
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
    fn figures_have_about_three_digits() {
        let shown = [0.123, 9.876, 12.34, 300.4, 9_999.0, 1_523_456.0, 100_000.0, 64.0].map(figure);
        assert_eq!(shown, ["0.12", "9.88", "12.3", "300", "9,999", "1,520,000", "100,000", "64"]);
    }
}
