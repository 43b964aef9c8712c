//! Computes the results of a run from what was recorded.

use jiff::Timestamp;

use super::Planned;
use super::driving::Driven;
use super::recorder::{Second, percentile_of_classes};
use super::scenario::Slo;
use super::schedule::count;
use super::senders::DROPPED;
use super::target::Target;
use super::watching::Sample;
use crate::report::results::{
    FORMAT, Judged, Latencies, QueryRow, Results, ScenarioFacts, SecondRow, ServerFacts, Totals, UsageRow, curve, round,
};

/// All results, except those of reading back.
pub fn results(planned: &Planned, target: &Target, driven: &Driven) -> Results {
    let recorder = &driven.recorder;
    let totals = totals(driven);
    let ack_ms = Latencies::of(&recorder.corrected);
    let slo = judged(&planned.scenario.slo, &totals, &ack_ms, error_share(driven), &driven.queries);
    Results {
        format: FORMAT,
        loadtest_version: env!("CARGO_PKG_VERSION").to_owned(),
        began: Timestamp::try_from(driven.began).map(|began| format!("{began:.0}")).unwrap_or_default(),
        scenario: facts(planned),
        machine: driven.machine.clone(),
        server: ServerFacts {
            how: target.how.to_owned(),
            version: target.version.clone(),
            watched_by: if driven.drained.is_some() { driven.watched.how() } else { "unknown" }.to_owned(),
        },
        errors: recorder.errors.clone(),
        service_ms: Latencies::of(&recorder.service),
        own_lag_ms: Latencies::of(&recorder.own_lag),
        curve: curve(&recorder.corrected),
        service_curve: curve(&recorder.service),
        seconds: seconds(&recorder.seconds, &driven.samples),
        queries: driven.queries.clone(),
        usage: usage(driven),
        totals,
        ack_ms,
        slo,
        verified: None,
    }
}

fn facts(planned: &Planned) -> ScenarioFacts {
    let scenario = &planned.scenario;
    ScenarioFacts {
        name: planned.name.clone(),
        description: scenario.description.clone(),
        fingerprint: planned.fingerprint.clone(),
        seed: planned.seed,
        start_ns: planned.start,
        rate_per_s: round(scenario.rate()),
        speed: round(scenario.rate() / scenario.natural_rate()),
        duration_s: scenario.duration.0.as_secs_f64(),
        connections: scenario.connections,
        lines: scenario.lines,
        gzip: scenario.gzip,
        ack: scenario.ack.name().to_owned(),
        devices: scenario.measurements.iter().map(|one| (one.name.clone(), one.devices)).collect(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of readings")]
fn totals(driven: &Driven) -> Totals {
    let (recorder, schedule) = (&driven.recorder, driven.schedule);
    // The last POST is complete even if only a part of it was due.
    let offered_readings = recorder.tried_readings.max(schedule.offered().round() as u64);
    let duration_s = schedule.duration.as_secs_f64();
    Totals {
        offered_readings,
        tried_posts: recorder.tried_posts,
        tried_readings: recorder.tried_readings,
        tried_bytes: recorder.tried_bytes,
        tries: recorder.tries,
        acked_posts: recorder.acked_posts,
        acked_readings: recorder.acked_readings,
        achieved_per_s: round(count(recorder.acked_in_time) / duration_s),
        offered_per_s: round(schedule.rate),
        given_up_posts: recorder.given_up,
        unsent_readings: offered_readings - recorder.tried_readings,
        reconnects: recorder.reconnects,
        drain_s: round(driven.drain.as_secs_f64()),
    }
}

/// The share of failed attempts, without those whose connection the scenario dropped.
fn error_share(driven: &Driven) -> f64 {
    let dropped = driven.recorder.errors.get(DROPPED).copied().unwrap_or(0);
    let failed = driven.recorder.error_count() - dropped;
    count(failed) / count(driven.recorder.tries.max(1))
}

/// A row for each second with data, with the resources that the servers used in it.
fn seconds(seconds: &[Second], samples: &[Option<Sample>]) -> Vec<SecondRow> {
    let row = |(at, second): (usize, &Second)| {
        let (before, after) = (samples.get(at).copied().flatten(), samples.get(at + 1).copied().flatten());
        let cpu_s = before.zip(after).map(|(before, after)| {
            // Samples are not exactly one second apart.
            round((after.cpu_s - before.cpu_s).max(0.0) / (after.at - before.at).as_secs_f64().max(0.1))
        });
        let of = |share| percentile_of_classes(second.classes.iter(), share).map(round);
        SecondRow {
            acked: second.readings,
            errors: second.errors,
            p50_ms: of(0.5),
            p99_ms: of(0.99),
            cpu_s,
            resident_mib: after.map(|sample| round(sample.resident_mib)),
            classes: second.classes.iter().map(|(class, of_class)| (*class, *of_class)).collect(),
        }
    };
    seconds.iter().enumerate().map(row).collect()
}

fn usage(driven: &Driven) -> Option<UsageRow> {
    let first = driven.samples.iter().flatten().next()?;
    let (sent, drained) = (driven.sent?, driven.drained?);
    let readings = count(driven.recorder.acked_readings.max(1));
    let cpu_drained_s = drained.cpu_s - first.cpu_s;
    let mut peak_mib = driven.watched.peaks().unwrap_or_default();
    if peak_mib.is_empty() {
        let all = driven.samples.iter().flatten().chain([&sent, &drained]);
        let most = all.map(|sample| sample.resident_mib).fold(0.0, f64::max);
        peak_mib.insert("seen in /metrics".to_owned(), round(most));
    }
    Some(UsageRow {
        cpu_sending_s: round(sent.cpu_s - first.cpu_s),
        cpu_drained_s: round(cpu_drained_s),
        cpu_us_per_reading: round(cpu_drained_s * 1e6 / readings),
        peak_mib,
        written_bytes_per_reading: driven.dirtied_bytes.map(|bytes| round(count(bytes) / readings)),
    })
}

/// Every bound of the scenario, with the measured value.
fn judged(slo: &Slo, totals: &Totals, ack_ms: &Latencies, errors: f64, queries: &[QueryRow]) -> Vec<Judged> {
    let most = |what: &str, bound: Option<f64>, found: f64| {
        bound.map(|bound| Judged { what: what.to_owned(), bound, found: round(found), met: found <= bound })
    };
    let achieved = totals.achieved_per_s / totals.offered_per_s;
    let achieved_judged = slo.achieved_min.map(|bound| Judged {
        what: "achieved_min".to_owned(),
        bound,
        found: round(achieved),
        // POSTs that were due at the very end can hardly be acked within the duration.
        met: round(achieved) >= bound,
    });
    // A POST that was never acked exceeds any bound.
    let is_complete = totals.unsent_readings == 0 && totals.given_up_posts == 0;
    let ack_p99 = if is_complete { ack_ms.p99 } else { ack_ms.p99.max(ack_ms.max) };
    let query_p99 = queries.iter().map(|row| row.answer_ms.p99).fold(0.0, f64::max);
    let query_errors: u64 = queries.iter().flat_map(|row| row.errors.values()).sum();
    let asked: u64 = queries.iter().map(|row| row.answer_ms.count).sum::<u64>() + query_errors;
    let query_errors = count(query_errors) / count(asked.max(1));
    [
        most("ack_p99_ms", slo.ack_p99_ms, ack_p99),
        most("query_p99_ms", slo.query_p99_ms, query_p99),
        most("errors_max", slo.errors_max, errors.max(query_errors)),
        achieved_judged,
    ]
    .into_iter()
    .flatten()
    .collect()
}
