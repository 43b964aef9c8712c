//! Renders the results as Markdown tables.

use std::fmt::Write;

use super::contender::Contender;
use super::figures::{Figures, Results, Row, WorkSize};
use super::offered::OfferedFigures;
use crate::stats::{three_digits as figure, to_f64};

/// The systems with which all others are compared.
const AGAINST: [Contender; 2] = [Contender::Victoria, Contender::Influx];

/// The head of the first table. `docs/benchmarks.md` explains the columns.
const HEAD: &str = "\
| | acked/s | drained/s | CPU µs | written B | ack p50 ms | p99 ms | offered p50 ms | p99 ms | peak MiB | kept B |
|---|---|---|---|---|---|---|---|---|---|---|
";

/// The figures with ratios, then the systems.
pub fn markdown(results: &Results) -> String {
    let mut text = HEAD.to_owned();
    for work in &results.works {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.work == work.name).collect();
        let offered = rows.iter().find_map(|row| row.offered.as_ref()).map_or_else(String::new, |offered| {
            format!("; offered: {} readings/s for {} s", figure(offered.per_s), figure(offered.seconds))
        });
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| **{}**: {} readings of {} sensors, {} per POST, {} connections{offered} | | | | | | | | | | |",
            work.name,
            figure(to_f64(work.readings)),
            figure(to_f64(work.sensors)),
            figure(to_f64(work.lines)),
            work.connections
        );
        for row in &rows {
            text += &line(row, work, &rows);
        }
    }
    text += "\n### Versions\n\n| | version | year | at the ack a reading is |\n|---|---|---|---|\n";
    for server in &results.servers {
        let year = server.year.map_or_else(|| "not known".to_owned(), |year| year.to_string());
        let _ = writeln!(text, "| {} | {} | {year} | {} |", server.name, server.version, server.durability);
    }
    text
}

fn line(row: &Row, work: &WorkSize, rows: &[&Row]) -> String {
    let cell = |of: fn(&Figures) -> f64| with_ratios(row, rows, |row| Some(of(&row.median)));
    let offered = |of: fn(&OfferedFigures) -> f64| move |row: &Row| row.offered.as_ref().map(of);
    let never_acked = match row.offered.as_ref().map_or(0.0, |offered| offered.never_acked) {
        posts if posts > 0.0 => format!(", {} POSTs never acked", figure(posts)),
        _ => String::new(),
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
        "| {}{share} | {} | {} | {} | {} | {} | {} | {} | {}{never_acked} | {memory} | {} |\n",
        row.server,
        cell(|figures| figures.acked_per_s),
        cell(|figures| figures.drained_per_s),
        cell(|figures| figures.cpu_us),
        cell(|figures| figures.written_bytes),
        figure(row.median.p50_ms),
        cell(|figures| figures.p99_ms),
        offered(|offered| offered.p50_ms)(row).map_or_else(|| "–".to_owned(), figure),
        with_ratios(row, rows, offered(|offered| offered.p99_ms)),
        cell(|figures| figures.kept_bytes)
    )
}

/// A figure, and its ratio to that of each system in [`AGAINST`].
fn with_ratios(row: &Row, rows: &[&Row], of: impl Fn(&Row) -> Option<f64>) -> String {
    let Some(value) = of(row) else { return "–".to_owned() };
    let ratio = |other: &Contender| {
        let other = rows.iter().find(|row| row.server == other.name()).filter(|other| other.server != row.server);
        other.and_then(|other| of(other)).map_or_else(|| "–".to_owned(), |other| figure(value / other))
    };
    let ratios: Vec<String> = AGAINST.iter().map(ratio).collect();
    format!("{} ({})", figure(value), ratios.join("; "))
}

fn of_server(figures: &Figures) -> f64 {
    figures.server_mib.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_without_an_offered_rate_are_still_shown_and_later_ones_with_it() {
        let figures = json!({
            "acked_per_s": 10.0, "drained_per_s": 10.0, "cpu_us": 1.0, "written_bytes": 1.0, "dirtied_bytes": 1.0,
            "p50_ms": 1.0, "p99_ms": 2.0, "server_mib": 1.0, "mongod_mib": null, "kept_bytes": 1.0, "refused": 0.0
        });
        let row = |server| json!({"work": "w", "server": server, "readings": 5, "median": figures, "rounds": []});
        let mut results: Results = serde_json::from_value(json!({
            "machine": {}, "load_average_before": "", "servers": [], "rows": [row("InfluxDB"), row("VictoriaMetrics")],
            "works": [{"name": "w", "sensors": 1, "readings": 5, "lines": 1, "connections": 1}]
        }))
        .unwrap();
        let cells = |results: &Results| {
            let text = markdown(results);
            let line = text.lines().find(|line| line.starts_with("| InfluxDB")).unwrap().to_owned();
            let columns = text.lines().find(|line| line.starts_with("| |")).unwrap().matches('|').count();
            assert_eq!(line.matches('|').count(), columns);
            line.split('|').map(|cell| cell.trim().to_owned()).skip(8).take(2).collect::<Vec<_>>()
        };
        assert_eq!(cells(&results), ["–", "–"]);
        for (row, p99_ms) in results.rows.iter_mut().zip([6.0, 3.0]) {
            row.offered = Some(OfferedFigures { per_s: 5.0, p50_ms: 2.5, p99_ms, ..OfferedFigures::default() });
        }
        assert_eq!(cells(&results), ["2.50", "6 (2; –)"]);
    }
}
