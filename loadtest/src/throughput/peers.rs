//! Writes the same readings to hourglass and other servers, each alone on the machine with a fresh folder: first as
//! fast as possible, round by round, then at one rate for all. A lost reading ends the run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::{ensure_stored, measure};
use crate::fleet::{Delivery, float, round_up};
use crate::load::closed::Load;
use crate::load::open::OpenLoop;
use crate::report::{Output, Results, load_average};
use crate::scenario::Scenario;
use crate::servers::peer::Peer;
use crate::servers::programs::{ProgramOptions, Programs};
use crate::servers::system::System;
use crate::stats::{quantile_ms, three_digits, to_f64};

/// Minimum number of turns at the offered rate, to show how much they differ.
const TURNS_MIN: usize = 3;
/// The offered rate, as a share of the maximum rate of the slowest.
const SHARE: f64 = 0.5;

/// Write the same readings to hourglass and other servers.
#[derive(Debug, Args)]
pub struct Peers {
    /// Number of rounds; each server runs each scenario once per round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A scenario, by name or path. You can repeat this flag.
    #[arg(long = "scenario", default_values = ["gateway-batches", "wide-fleet", "device-posts"])]
    scenarios: Vec<Scenario>,
    /// Factor of the number of readings; use a small one for a quick test.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Maximum seconds of load at half the rate of the slowest server, in as many turns as there are rounds, but at
    /// least 3; 0 skips this part.
    #[arg(long, default_value_t = 10)]
    offered_seconds: u64,
    /// A system to measure. You can repeat this flag.
    #[arg(long = "peer", value_enum, default_values_t = Peer::WRITERS)]
    peers: Vec<Peer>,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

/// The readings of a scenario for a peer.
struct Work {
    load: Load,
    /// The table and the row of its figures.
    table: String,
    row: String,
    peer: Peer,
}

pub async fn run(options: Peers) -> Result<()> {
    ensure!(options.rounds > 0 && options.scale > 0.0, "no rounds or no readings");
    let programs = options.programs.programs();
    let mut results = Results::new();
    results.against = [Peer::Victoriametrics, Peer::Influxdb].map(|peer| peer.name().to_owned()).into();
    for peer in &options.peers {
        results.systems.push(peer.row(&programs, peer.durability())?);
    }
    for round in 0..options.rounds {
        for scenario in &options.scenarios {
            for peer in rotate(&options.peers, round) {
                let Some(work) = Work::new(scenario, peer, options.scale) else { continue };
                println!("round {}, {}: {} (load average {})", round + 1, scenario.name, work.row, load_average());
                work.run_at_maximum(&programs, &options, &mut results).await.with_context(|| work.row.clone())?;
                results.write(&options.output)?;
            }
        }
    }
    for scenario in options.scenarios.iter().filter(|_| options.offered_seconds > 0) {
        for turn in 0..options.rounds.max(TURNS_MIN) {
            for peer in rotate(&options.peers, turn).filter(|peer| peer.product().is_some()) {
                let Some(work) = Work::new(scenario, peer, options.scale) else { continue };
                let Some(rate) = work.rate(&results, &options.peers) else { continue };
                println!("{rate:.0}/s offered, {}: {} (load average {})", scenario.name, work.row, load_average());
                work.run_at_rate(&programs, &options, rate, &mut results).await.with_context(|| work.row.clone())?;
            }
        }
    }
    results.finish(&options.output)
}

/// Returns the peers in another order in each turn, so that none follows the same one every time.
fn rotate(peers: &[Peer], turn: usize) -> impl Iterator<Item = Peer> {
    let first = turn % peers.len();
    peers[first..].iter().chain(&peers[..first]).copied()
}

impl Work {
    /// Returns `None` if the peer does not take part.
    #[expect(clippy::cast_possible_truncation, reason = "a count of readings")]
    fn new(scenario: &Scenario, peer: Peer, scale: f64) -> Option<Self> {
        let readings = round_up(((float(scenario.readings) * scale) as i64).max(1), scenario.lines);
        let table = format!("{}: {} readings, {}", scenario.name, three_digits(float(readings)), scenario.sizes());
        let is_native = peer == Peer::MongodbTimeseries;
        if is_native && scenario.native_part == 0 {
            return None;
        }
        let part = if is_native { round_up(readings / scenario.native_part, scenario.lines) } else { readings };
        let delivery = Delivery::in_time_order(scenario.fleet(readings));
        let posts = usize::try_from(part / scenario.lines).ok()?;
        let load = Load { posts, lines: scenario.lines, connections: scenario.connections, ..Load::all(delivery) };
        let row = match part == readings {
            true => peer.name().to_owned(),
            false => format!("{}, the first {}", peer.name(), three_digits(float(part))),
        };
        Some(Self { load, table, row, peer })
    }

    fn readings(&self) -> Result<i64> {
        Ok(i64::try_from(self.load.posts)? * self.load.lines)
    }

    /// Sends everything as fast as it is acked, and checks that it is stored.
    async fn run_at_maximum(&self, programs: &Programs, options: &Peers, results: &mut Results) -> Result<()> {
        let mut system = System::start(self.peer, programs, &options.programs.folder).await?;
        let bytes_before = system.data_bytes()?;
        // The title and the row have the number of readings.
        for (column, value) in measure(&system, self.load).await?.into_iter().filter(|figure| figure.0 != "readings") {
            results.add(&self.table, &self.row, column, value);
        }
        ensure_stored(&system, self.load.delivery.fleet, self.readings()?).await?;
        system.stop()?;
        let stored_bytes = (system.data_bytes()? - bytes_before) / float(self.readings()?);
        results.add(&self.table, &self.row, "kept B", stored_bytes);
        Ok(())
    }

    /// Returns half the maximum rate of the slowest server over HTTP, in readings per second.
    fn rate(&self, results: &Results, peers: &[Peer]) -> Option<f64> {
        let over_http = peers.iter().filter(|peer| peer.product().is_some());
        let maximum_rates = over_http.filter_map(|peer| results.median(&self.table, peer.name(), "acked/s"));
        maximum_rates.min_by(f64::total_cmp).map(|slowest| slowest * SHARE)
    }

    /// Sends at this rate, and checks that the acked readings are stored.
    async fn run_at_rate(&self, programs: &Programs, options: &Peers, rate: f64, results: &mut Results) -> Result<()> {
        let mut system = System::start(self.peer, programs, &options.programs.folder).await?;
        let Load { delivery, lines, posts, connections, .. } = self.load;
        let open_loop = OpenLoop {
            target: system.address()?.to_owned(),
            path: self.peer.product().context("not over HTTP")?.write_path().to_owned(),
            connections,
            rate: rate / float(lines),
            duration: Duration::from_secs(options.offered_seconds),
            reconnect_every: None,
        };
        let load_result = open_loop.start((0..posts).map(move |post| delivery.body(post, lines))).await??;
        let mut add = |column, value| results.add(&self.table, &self.row, column, value);
        add("offered/s", rate);
        add("offered p50 ms", quantile_ms(&load_result.acks, 0.5));
        add("offered p99 ms", load_result.p99_ms());
        if let Some(doubt) = load_result.doubt() {
            println!("{doubt}");
        }
        let unacked_posts = load_result.unacked_posts();
        if unacked_posts == 0 {
            system.flush().await?;
            let readings = i64::try_from(load_result.outcomes.len())? * lines;
            ensure_stored(&system, delivery.fleet, readings).await?;
        } else {
            add("POSTs never acked", to_f64(unacked_posts));
        }
        system.stop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_slowest_is_offered_and_the_native_collection_does_not_count() {
        let scenario: Scenario = "gateway-batches".parse().unwrap();
        let work = |peer| Work::new(&scenario, peer, 0.01).unwrap();
        let mut results = Results::new();
        let table = work(Peer::Influxdb).table;
        for (peer, acked_per_s) in
            [(Peer::MongodbTimeseries, 10.0), (Peer::Influxdb, 300.0), (Peer::HourglassEmbedded, 200.0)]
        {
            results.add(&table, &work(peer).row, "acked/s", acked_per_s);
        }
        assert_eq!(work(Peer::Influxdb).rate(&results, &Peer::WRITERS), Some(100.0));
        assert_eq!(work(Peer::Influxdb).rate(&Results::new(), &Peer::WRITERS), None);
        assert_eq!(work(Peer::MongodbTimeseries).row, "MongoDB time series, the first 5,000");
    }

    #[test]
    fn nobody_inserts_readings_one_by_one_with_a_driver() {
        let scenario: Scenario = "device-posts".parse().unwrap();
        assert!(Work::new(&scenario, Peer::MongodbTimeseries, 1.0).is_none());
        assert_eq!(Work::new(&scenario, Peer::Influxdb, 1.0).unwrap().load.posts, 100_000);
    }
}
