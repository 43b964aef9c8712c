//! Renders the results as a self-contained HTML page: tables, and plots as SVG.

use super::results::{Latencies, Results, SecondRow};
use super::style::STYLE;
use super::svg::{Across, Line, Plot};
use super::text::figure;
use crate::stats::to_f64;

pub fn page(results: &Results) -> String {
    let body = format!(
        "{}{}<div class=\"plots\">\n{}</div>\n{}{}",
        header(results),
        tiles(results),
        plots(results),
        tables(results),
        footer(results)
    );
    framed(&results.scenario.name, &body)
}

/// A page with this title and body.
pub fn framed(name: &str, body: &str) -> String {
    let name = escaped(name);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>{name} · hourglass-loadtest</title>\n<style>{STYLE}</style>\n\
         </head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Escapes a text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn header(results: &Results) -> String {
    let (facts, machine) = (&results.scenario, &results.machine);
    let mut badges = String::new();
    let mut badge = |is_good: bool, text: &str| {
        let class = if is_good { "good" } else { "bad" };
        badges += &format!("<span class=\"badge {class}\">{}</span>", escaped(text));
    };
    if !results.slo.is_empty() {
        let is_met = results.slo.iter().all(|judged| judged.met);
        badge(is_met, if is_met { "SLO met" } else { "SLO missed" });
    }
    if let Some(verified) = &results.verified {
        let is_exact = verified.is_exact();
        badge(is_exact, if is_exact { "acked = stored, verified" } else { "acked is not stored" });
    }
    if let Some(doubt) = results.doubt() {
        badge(false, &doubt);
    }
    format!(
        "<header>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n<p class=\"faint\">{} · hourglass {} ({}) · {} cores, {}, {} GiB, \
         Linux {} · load average before {}</p>\n<div class=\"badges\">{badges}</div>\n</header>\n",
        escaped(&facts.name),
        escaped(&facts.description),
        escaped(&results.began.replace('T', " ").replace('Z', " UTC")),
        escaped(&results.server.version),
        escaped(&results.server.how),
        machine.cores,
        escaped(&machine.cpu),
        machine.memory_gib,
        escaped(&machine.kernel),
        escaped(&machine.load_average_before),
    )
}

fn tiles(results: &Results) -> String {
    let tile = |name: &str, value: String, unit: &str, more: String| {
        format!(
            "<div class=\"card tile\"><span class=\"faint\">{name}</span><b>{value} <small>{unit}</small></b>\
             <span class=\"faint\">{more}</span></div>\n"
        )
    };
    let (totals, ack) = (&results.totals, &results.ack_ms);
    let mut tiles = tile(
        "acked",
        figure(totals.achieved_per_s),
        "/s",
        format!("readings, of {} offered", figure(totals.offered_per_s)),
    );
    tiles +=
        &tile("ack, median", figure(ack.p50), "ms", format!("from the last try {}", figure(results.service_ms.p50)));
    tiles += &tile("ack, p99", figure(ack.p99), "ms", format!("p99.9 {}, max {}", figure(ack.p999), figure(ack.max)));
    if let Some(usage) = &results.usage {
        let seconds = format!("{} s until all was stored", figure(usage.cpu_drained_s));
        tiles += &tile("server CPU", figure(usage.cpu_us_per_reading), "µs/reading", seconds);
        let peak: f64 = usage.peak_mib.values().sum();
        tiles += &tile("peak memory", figure(peak.round()), "MiB", "resident, all processes".to_owned());
    }
    let failed: u64 = results.errors.values().sum();
    tiles += &tile("tries failed", figure(crate::run::schedule::count(failed)), "", format!("of {}", totals.tries));
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

fn plots(results: &Results) -> String {
    let seconds = whole_seconds(results);
    let over_time = |of: fn(&SecondRow) -> Option<f64>| -> Vec<(f64, Option<f64>)> {
        seconds.iter().enumerate().map(|(at, second)| (to_f64(at) + 0.5, of(second))).collect()
    };
    let line = |name, class, is_filled, points| Line { name, class, is_filled, points };
    let curve = |curve: &[(f64, f64)]| curve.iter().map(|(at, ms)| (*at, Some(*ms))).collect::<Vec<_>>();
    let offered = vec![
        (0.0, Some(results.totals.offered_per_s)),
        (results.scenario.duration_s, Some(results.totals.offered_per_s)),
    ];
    let seconds_label = "seconds since the beginning";
    let mut plots = vec![
        Plot {
            title: "Readings acked",
            x_label: seconds_label,
            y_label: "readings per second",
            x: Across::Plain,
            x_most: Some(results.scenario.duration_s),
            is_log: false,
            lines: vec![
                line("achieved", "one", true, over_time(|second| Some(crate::run::schedule::count(second.acked)))),
                line("offered", "two dashed", false, offered),
            ],
        },
        Plot {
            title: "Latency of acks over time",
            x_label: seconds_label,
            y_label: "milliseconds, from due to ack",
            x: Across::Plain,
            x_most: Some(results.scenario.duration_s),
            is_log: true,
            lines: vec![
                line("p99", "two", false, over_time(|second| second.p99_ms)),
                line("median", "one", false, over_time(|second| second.p50_ms)),
            ],
        },
        Plot {
            title: "Latency of acks by percentile",
            x_label: "percentile",
            y_label: "milliseconds",
            x: Across::Percentile,
            x_most: None,
            is_log: true,
            lines: vec![
                line("from due", "two", false, curve(&results.curve)),
                line("from the last try", "one", false, curve(&results.service_curve)),
            ],
        },
    ];
    if results.usage.is_some() {
        plots.push(Plot {
            title: "CPU of the servers",
            x_label: seconds_label,
            y_label: "cores in use",
            x: Across::Plain,
            x_most: Some(results.scenario.duration_s),
            is_log: false,
            lines: vec![line("CPU", "one", true, over_time(|second| second.cpu_s))],
        });
        plots.push(Plot {
            title: "Memory of the servers",
            x_label: seconds_label,
            y_label: "MiB resident",
            x: Across::Plain,
            x_most: Some(results.scenario.duration_s),
            is_log: false,
            lines: vec![line("resident", "three", true, over_time(|second| second.resident_mib))],
        });
    }
    let failed = over_time(|second| Some(crate::run::schedule::count(second.errors)));
    plots.push(Plot {
        title: "Tries that failed",
        x_label: seconds_label,
        y_label: "tries per second",
        x: Across::Plain,
        x_most: Some(results.scenario.duration_s),
        is_log: false,
        lines: vec![line("failed", "two", true, failed)],
    });
    plots.iter().map(Plot::html).collect()
}

/// The seconds of the run, without the last one after the duration, which is rarely complete.
fn whole_seconds(results: &Results) -> Vec<SecondRow> {
    let count = results.seconds.len();
    let is_whole = |at: usize| to_f64(at + 1) <= results.scenario.duration_s || at + 1 < count;
    results.seconds.iter().enumerate().filter(|(at, _)| is_whole(*at)).map(|(_, second)| second.clone()).collect()
}

fn tables(results: &Results) -> String {
    let mut latencies = String::new();
    let mut row = |name: &str, of: &Latencies| {
        let cells = [of.p50, of.p90, of.p99, of.p999, of.max, of.mean];
        let cells: String = cells.iter().map(|ms| format!("<td class=\"number\">{}</td>", figure(*ms))).collect();
        let count = figure(crate::run::schedule::count(of.count));
        latencies += &format!("<tr><th>{}</th>{cells}<td class=\"number\">{count}</td></tr>\n", escaped(name));
    };
    row("ack, from when the POST was due", &results.ack_ms);
    row("ack, from its last try", &results.service_ms);
    for query in &results.queries {
        row(&query.name, &query.answer_ms);
    }
    row("the load tester's own lag", &results.own_lag_ms);
    let heads: String = ["p50", "p90", "p99", "p99.9", "max", "mean", "count"]
        .iter()
        .map(|head| format!("<th class=\"number\">{head}</th>"))
        .collect();
    format!(
        "<section class=\"card wide\"><h2>Latencies, milliseconds</h2><table><thead><tr><th></th>{heads}</tr></thead><tbody>\n\
         {latencies}</tbody></table></section>\n<div class=\"tables\">\n{}{}</div>\n",
        facts(results),
        judged(results)
    )
}

fn section(title: &str, rows: &[(String, String)]) -> String {
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<tr><th>{}</th><td class=\"number\">{value}</td></tr>\n", escaped(name)))
        .collect();
    format!("<section class=\"card\"><h2>{title}</h2><table><tbody>\n{rows}</tbody></table></section>\n")
}

fn facts(results: &Results) -> String {
    let (facts, totals) = (&results.scenario, &results.totals);
    let number = |count: u64| figure(crate::run::schedule::count(count));
    let devices: Vec<String> = facts.devices.iter().map(|(name, count)| format!("{count} {}", escaped(name))).collect();
    let mut rows = vec![
        ("devices".to_owned(), devices.join(", ")),
        ("readings per POST".to_owned(), format!("{}{}", facts.lines, if facts.gzip { ", gzip" } else { "" })),
        ("connections".to_owned(), facts.connections.to_string()),
        ("duration".to_owned(), format!("{} s", facts.duration_s)),
        ("time of readings goes".to_owned(), format!("{} times as fast", figure(facts.speed))),
        ("an ack promises".to_owned(), escaped(&facts.ack)),
        ("seed".to_owned(), facts.seed.to_string()),
        (
            "readings acked".to_owned(),
            format!("{} of {}", number(totals.acked_readings), number(totals.offered_readings)),
        ),
        ("POSTs acked".to_owned(), number(totals.acked_posts)),
        ("connections opened again".to_owned(), number(totals.reconnects)),
        ("all in the store after the last ack".to_owned(), format!("{} s", figure(totals.drain_s))),
    ];
    if let Some(usage) = &results.usage {
        rows.extend(usage.peak_mib.iter().map(|(name, mib)| (format!("peak memory, {name}"), format!("{mib:.0} MiB"))));
        let written = usage.written_bytes_per_reading;
        rows.extend(written.map(|bytes| ("dirtied in files per reading".to_owned(), format!("{} B", figure(bytes)))));
    }
    section("The run", &rows)
}

fn judged(results: &Results) -> String {
    let word = |is_good: bool, good: &str, bad: &str| {
        if is_good { format!("<span class=\"yes\">{good}</span>") } else { format!("<span class=\"no\">{bad}</span>") }
    };
    let mut rows: Vec<(String, String)> = results
        .slo
        .iter()
        .map(|one| {
            let found = format!("{} {}", figure(one.found), word(one.met, "met", "missed"));
            (format!("{} = {}", one.what, one.bound), found)
        })
        .collect();
    let errors = results.errors.iter().map(|(how, count)| (format!("failed: {how}"), count.to_string()));
    rows.extend(errors);
    for query in &results.queries {
        let failed = query.errors.iter().map(|(how, count)| (format!("{}: {how}", query.name), count.to_string()));
        rows.extend(failed);
    }
    if let Some(verified) = &results.verified {
        let number = |count: u64| figure(crate::run::schedule::count(count));
        rows.push(("acked = stored".to_owned(), word(verified.is_exact(), "exactly", "no")));
        rows.push(("readings that must be there".to_owned(), number(verified.expected)));
        rows.push(("sensors".to_owned(), number(verified.sensors)));
        for (name, count) in [
            ("stored, the ack never came", verified.stored_unacked),
            ("missing", verified.missing),
            ("extra", verified.extra),
            ("with other values", verified.different),
            ("counts of summaries wrong", verified.counts_wrong),
        ] {
            rows.push((name.to_owned(), number(count)));
        }
        rows.extend(verified.first.iter().map(|told| (told.clone(), String::new())));
    }
    section("What was expected", &rows)
}

fn footer(results: &Results) -> String {
    format!(
        "<footer class=\"faint\">hourglass-loadtest {}. Latencies count from the moment at which a POST was due, whether or not \
         a connection was free for it then; load tester and server may have shared the machine.</footer>\n",
        escaped(&results.loadtest_version)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::results::tests::results;

    #[test]
    fn the_page_needs_nothing_else_and_shows_texts_as_they_are() {
        let mut results = results();
        results.seconds = vec![SecondRow { acked: 10, p50_ms: Some(1.0), ..SecondRow::default() }; 30];
        let page = page(&results);
        assert!(page.contains("a &lt;test&gt; &amp; no more"));
        assert!(!["http:", "https:", "src=", "url(", "<script", "NaN"].iter().any(|outside| page.contains(outside)));
        assert_eq!(page.matches("<section").count(), page.matches("</section>").count());
    }
}
