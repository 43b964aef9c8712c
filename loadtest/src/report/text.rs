//! Formats the results for a terminal.

use std::fmt::Write;

use super::results::{Latencies, Results, Verified};
use crate::run::Planned;

/// Printed before a run.
pub fn heading(planned: &Planned, how: &str, version: &str) -> String {
    let scenario = &planned.scenario;
    let devices: u64 = scenario.measurements.iter().map(|one| u64::from(one.devices)).sum();
    format!(
        "{}: {}\n{} readings/s of {} devices for {:?}, {} per POST over {} connections, seed {}; hourglass {version} ({how})",
        planned.name,
        scenario.description,
        figure(scenario.rate()),
        devices,
        scenario.duration.0,
        scenario.lines,
        scenario.connections,
        planned.seed,
    )
}

/// Printed after a run.
pub fn summary(results: &Results) -> String {
    let totals = &results.totals;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "readings/s   {} offered, {} achieved; {} of {} readings acked in {} POSTs",
        figure(totals.offered_per_s),
        figure(totals.achieved_per_s),
        totals.acked_readings,
        totals.offered_readings,
        totals.acked_posts,
    );
    text += &latencies("ack ms", &results.ack_ms, "from the moment at which a POST was due");
    text += &latencies("service ms", &results.service_ms, "from its last try");
    for query in &results.queries {
        let failed: u64 = query.errors.values().sum();
        let what = format!("{failed} failed, {} B each", figure(query.answer_bytes));
        text += &latencies(&query.name, &query.answer_ms, &what);
    }
    let errors: Vec<String> = results.errors.iter().map(|(how, count)| format!("{how}: {count}")).collect();
    let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
    let _ = writeln!(text, "tries failed {errors} (of {} tries; {} reconnects)", totals.tries, totals.reconnects);
    if totals.unsent_readings > 0 || totals.given_up_posts > 0 {
        let (unsent, given_up) = (totals.unsent_readings, totals.given_up_posts);
        let _ = writeln!(text, "left behind  {unsent} readings never sent, {given_up} POSTs given up");
    }
    let _ = writeln!(text, "in the store {:.2} s after the last ack", totals.drain_s);
    text += &usage(results);
    for judged in &results.slo {
        let (met, what, bound) = (if judged.met { "met" } else { "MISSED" }, &judged.what, judged.bound);
        let _ = writeln!(text, "SLO          {met}: {what} = {bound}, found {}", figure(judged.found));
    }
    if let Some(verified) = &results.verified {
        text += &told(verified);
    }
    if let Some(doubt) = results.doubt() {
        let _ = writeln!(text, "DOUBT        {doubt}");
    }
    text.trim_end().to_owned()
}

fn latencies(name: &str, of: &Latencies, what: &str) -> String {
    let Latencies { p50, p90, p99, p999, max, .. } = of;
    format!("{name:<12} p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2} ({what})\n")
}

fn usage(results: &Results) -> String {
    let Some(usage) = &results.usage else { return String::new() };
    let peaks: Vec<String> = usage.peak_mib.iter().map(|(name, mib)| format!("{name} {mib:.0} MiB")).collect();
    let written = usage.written_bytes_per_reading.map_or_else(String::new, |bytes| format!(", {bytes:.1} B dirtied"));
    format!(
        "server       {:.2} s CPU until all was stored, {:.2} us{written} per reading; peak {}\n",
        usage.cpu_drained_s,
        usage.cpu_us_per_reading,
        peaks.join(", ")
    )
}

fn told(verified: &Verified) -> String {
    let Verified { sensors, expected, stored, stored_unacked, missing, extra, different, counts_wrong, .. } = verified;
    if verified.is_exact() {
        let unacked =
            if *stored_unacked > 0 { format!(", and {stored_unacked} whose ack never came") } else { String::new() };
        return format!(
            "verified     acked = stored: {expected} readings of {sensors} sensors{unacked}, every value ({:.1} s)\n",
            verified.took_s
        );
    }
    let mut text = format!(
        "VERIFIED     acked is NOT stored: {expected} readings acked, {stored} stored; {missing} missing, {extra} extra, \
         {different} with other values, {counts_wrong} counts wrong\n"
    );
    for difference in &verified.first {
        let _ = writeln!(text, "             {difference}");
    }
    text
}

/// Why a run failed.
pub fn verdict(results: &Results) -> String {
    let missed: Vec<&str> =
        results.slo.iter().filter(|judged| !judged.met).map(|judged| judged.what.as_str()).collect();
    let mut said = Vec::new();
    if !missed.is_empty() {
        said.push(format!("the scenario's SLO was missed: {}", missed.join(", ")));
    }
    if results.verified.as_ref().is_some_and(|verified| !verified.is_exact()) {
        said.push("what is stored is not what was acked".to_owned());
    }
    said.join("; ")
}

/// Formats with about four significant digits and separated thousands.
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        below if below >= 100.0 || below.fract() == 0.0 => 0,
        below if below >= 10.0 => 1,
        below if below >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let mut apart = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) && !apart.ends_with('-') {
            apart.push(',');
        }
        apart.push(digit);
    }
    if rest.is_empty() { apart } else { format!("{apart}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_about_four_digits() {
        let shown = [0.0, 0.1234, 1.234, 23.456, 300.4, 1_523_456.0, -123.0].map(figure);
        assert_eq!(shown, ["0", "0.1234", "1.23", "23.5", "300", "1,523,456", "-123"]);
    }
}
