//! Renders the results as Markdown tables.

use std::fmt::Write;

use super::peer::Peer;
use super::question::Question;
use super::results::{OfPeer, Results, Turn};
use crate::stats::{median, three_digits as figure};

/// One row of the first table.
type Figure = (&'static str, fn(&Turn) -> Option<f64>);

const FIGURES: [Figure; 8] = [
    ("bytes per reading: data and indexes", |turn| Some(turn.rest.data + turn.rest.indexes)),
    ("of these, indexes", |turn| Some(turn.rest.indexes)),
    ("of these, free for later writes", |turn| turn.rest.reusable),
    ("data and indexes before `compact`", |turn| turn.rest.before_compaction),
    ("and bytes of log", |turn| Some(turn.rest.log)),
    ("CPU µs per reading, until drained", |turn| Some(turn.load_cpu_us)),
    ("CPU µs per reading, to seal or merge", |turn| Some(turn.settle_cpu_us)),
    ("peak MiB of the server", |turn| Some(f64::from(u32::try_from(turn.peak_mib).unwrap_or(u32::MAX)))),
];

/// Figures with the ratio to VictoriaMetrics in parentheses.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    head(&mut text, "", results);
    for (name, of) in FIGURES {
        row(&mut text, name, results, |peer| {
            let figures: Vec<f64> = peer.rounds.iter().filter_map(of).collect();
            (!figures.is_empty()).then(|| median(figures))
        });
    }
    let _ = writeln!(text);
    head(&mut text, "cold, p50 ms", results);
    for question in Question::ALL {
        row(&mut text, question.name(), results, |peer| p50(peer, question, |answered| &answered.cold_ms));
    }
    if results.peers.iter().any(|peer| p50(peer, Question::ALL[0], |answered| &answered.warm_mongod_ms).is_some()) {
        let _ = writeln!(text);
        head(&mut text, "only hourglass started anew, p50 ms", results);
        for question in Question::ALL {
            row(&mut text, question.name(), results, |peer| {
                let warm = p50(peer, question, |answered| &answered.warm_mongod_ms);
                if peer.peer == Peer::Victoriametrics {
                    p50(peer, question, |answered| &answered.cold_ms)
                } else {
                    warm
                }
            });
        }
    }
    text
}

fn head(text: &mut String, first: &str, results: &Results) {
    let names: Vec<&str> = results.peers.iter().map(|peer| peer.peer.name()).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "| {first} | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
}

fn row(text: &mut String, name: &str, results: &Results, of: impl Fn(&OfPeer) -> Option<f64>) {
    let against = results.peers.iter().find(|peer| peer.peer == Peer::Victoriametrics).and_then(&of);
    let cell = |peer: &OfPeer| match (of(peer), against) {
        (None, _) => "–".to_owned(),
        (Some(value), Some(against)) if peer.peer != Peer::Victoriametrics && against > 0.0 => {
            format!("{} ({})", figure(value), figure(value / against))
        }
        (Some(value), _) => figure(value),
    };
    let cells: Vec<String> = results.peers.iter().map(cell).collect();
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

fn p50(peer: &OfPeer, question: Question, of: fn(&super::results::Answered) -> &Vec<f64>) -> Option<f64> {
    let of_question = |turn: &Turn| {
        turn.questions.iter().filter(move |one| one.question == question).flat_map(of).copied().collect::<Vec<_>>()
    };
    let times: Vec<f64> = peer.rounds.iter().flat_map(of_question).collect();
    (!times.is_empty()).then(|| median(times))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_have_their_ratio_to_victoriametrics() {
        let turn = |bytes: f64, ms: [f64; 3]| {
            json!({"load_s": 1.0, "load_cpu_us": 1.0, "settle_s": 1.0, "settle_cpu_us": 0.5, "peak_mib": 100,
                "mongod_peak_mib": null, "questions": [{"question": "one_number", "cold_ms": ms}],
                "rest": {"data": bytes, "indexes": 0.5, "log": 0.0, "reusable": null, "before_compaction": null}})
        };
        let peer = |peer: &str, turn| json!({"peer": peer, "version": "1", "rounds": [turn]});
        let results: Results = serde_json::from_value(json!({
            "machine": {}, "load_average_before": "", "readings": 1, "sealed_while_loading": false,
            "data": {"days": 1, "sensors": 1, "interval_s": 60, "values": "waves"},
            "peers": [peer("hourglass-embedded", turn(1.5, [9.0, 3.0, 6.0])), peer("victoriametrics", turn(0.5, [2.0, 1.0, 3.0]))]
        }))
        .unwrap();
        let text = markdown(&results);
        assert!(text.contains("| bytes per reading: data and indexes | 2 (2) | 1 |\n"), "{text}");
        assert!(text.contains("| mean of everything | 6 (3) | 2 |\n"), "{text}");
        assert!(text.contains("| latest of one sensor | – | – |\n"), "{text}");
    }
}
