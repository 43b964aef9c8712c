//! Renders the results as Markdown tables.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::figures::{Figures, Filled, Results, SeriesRow};
use crate::stats::{three_digits, to_f64};

/// The table shows every fifth part of filling a store; the HTML page shows all.
const SHOWN: usize = 5;

/// All tables.
pub fn markdown(results: &Results) -> String {
    let machine = &results.machine;
    let scale = if results.scale == 1.0 { String::new() } else { format!(", **everything times {}**", results.scale) };
    let mut text = format!(
        "{}, alone and on a fresh folder for each row, as much as it takes (closed loop); {} cores ({}) that it shares with the \
         load, {} GiB, Linux {}, load before {}{scale}. CPU of all server processes per reading until all is in the store; memory is \
         the most that was resident.\n",
        results.server(),
        machine.cores,
        machine.cpu,
        machine.memory_gib,
        machine.kernel,
        machine.load_average_before
    );
    for series in &results.series {
        text += &table(series);
        for point in series.points.iter().filter(|point| !point.filling.is_empty()) {
            text += &filling(&point.filling);
        }
    }
    text
}

fn table(series: &SeriesRow) -> String {
    let mut text = format!(
        "\n| {} | readings | acked/s | drained/s | CPU µs | ack p50 ms | p99 ms | peak MiB | after MiB | disk MiB |\n",
        series.varied
    );
    text += "|---|---|---|---|---|---|---|---|---|---|\n";
    for point in &series.points {
        let Figures { readings, acked_per_s, drained_per_s, p50_ms, p99_ms, .. } = point;
        let measured = [to_f64(*readings), *acked_per_s, *drained_per_s];
        let measured = measured.map(three_digits).join(" | ");
        let acks = [*p50_ms, *p99_ms].map(three_digits).join(" | ");
        let memory = [&point.peak_mib, &point.resident_mib].map(|mib| by_process(mib, 0)).join(" | ");
        let (at, cpu, disk) = (three_digits(to_f64(point.at)), by_process(&point.cpu_us, 2), mib(point.disk_bytes));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {at} | {measured} | {cpu} | {acks} | {memory} | {disk} |");
    }
    text
}

fn filling(parts: &[Filled]) -> String {
    let mut text =
        "\n| readings stored, while filling | acked/s | CPU µs | p99 ms | resident MiB | disk MiB |\n".to_owned();
    text += "|---|---|---|---|---|---|\n";
    for (_, part) in parts.iter().enumerate().filter(|(at, _)| (at + 1) % SHOWN == 0 || at + 1 == parts.len()) {
        let cells = [to_f64(part.stored), part.acked_per_s, part.cpu_us, part.p99_ms, part.resident_mib.round()];
        let _ = writeln!(text, "| {} | {} |", cells.map(three_digits).join(" | "), mib(part.disk_bytes));
    }
    text
}

/// The figure of hourglass, and that of mongod if there is one, with at most this many decimals.
fn by_process(figures: &BTreeMap<String, f64>, decimals: i32) -> String {
    let unit = 10_f64.powi(decimals);
    let rounded = |value: f64| (value * unit).round() / unit;
    let told = |(name, value): (&String, &f64)| match name.as_str() {
        "hourglass" => three_digits(rounded(*value)),
        other => format!("{other} {}", three_digits(rounded(*value))),
    };
    figures.iter().map(told).collect::<Vec<_>>().join(" + ")
}

fn mib(bytes: f64) -> String {
    three_digits((bytes / f64::from(1 << 20)).round())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::figures::SeriesRow;
    use crate::report::machine::Machine;

    /// Example results with a value for everything.
    pub fn results() -> Results {
        let two = |hourglass, mongod| {
            let of = [("hourglass".to_owned(), hourglass), ("mongod".to_owned(), mongod)];
            BTreeMap::from(of)
        };
        let point = |at, filling| Figures {
            at,
            readings: 2_000_000,
            acked_per_s: 1_234_567.0,
            cpu_us: two(1.5, 0.25),
            peak_mib: two(400.0, 300.0),
            filling,
            ..Figures::default()
        };
        let part = |stored| Filled { stored, acked_per_s: 1e6, disk_bytes: 3e9, ..Filled::default() };
        let row = |name: &str, points| SeriesRow { name: name.to_owned(), varied: name.to_owned(), points };
        let sensors = row("sensors", vec![point(1000, Vec::new()), point(1_000_000, Vec::new())]);
        let stored = row("stored", vec![point(0, Vec::new()), point(10, vec![part(5), part(10)])]);
        Results {
            loadtest_version: "1".to_owned(),
            began: "2026-01-15T00:00:00Z".to_owned(),
            machine: Machine::this(),
            store: "mongodb".to_owned(),
            version: "1<2".to_owned(),
            mongod_version: Some("6".to_owned()),
            scale: 0.5,
            series: vec![sensors, stored],
        }
    }

    #[test]
    fn every_point_has_a_line_with_all_columns() {
        let text = markdown(&results());
        let tables: Vec<Vec<&str>> =
            text.split("\n\n").skip(1).map(|table| table.lines().collect::<Vec<_>>()).collect();
        assert_eq!(tables.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 3]);
        for table in tables {
            let columns: Vec<usize> = table.iter().map(|line| line.matches('|').count()).collect();
            assert!(columns.iter().all(|count| *count == columns[0]), "{table:#?}");
        }
        assert!(
            text.contains("| 1,000,000 | 2,000,000 | 1,230,000 |") && text.contains("1.50 + mongod 0.25"),
            "{text}"
        );
        assert!(text.contains("times 0.5"));
    }

    #[test]
    fn the_page_shows_every_series_and_needs_nothing_else() {
        let page = crate::growth::page::page(&results());
        assert_eq!(page.matches("<svg").count(), 4 + 4 + 4);
        assert!(
            page.contains("1&lt;2") && !["http", "src=", "url(", "NaN", "inf"].iter().any(|one| page.contains(one))
        );
        let text = serde_json::to_string(&results()).unwrap();
        let again: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), text);
    }
}
