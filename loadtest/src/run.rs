//! Runs a scenario on a schedule that does not wait for the server. On request, checks that exactly the acked readings
//! are stored.

mod verify;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;

use crate::client::Connection;
use crate::fleet::{Delivery, float, is_selected};
use crate::load::open::{LoadResult, OpenLoop};
use crate::report::{Output, Results};
use crate::scenario::{BUILT_IN, Scenario, Span};
use crate::servers::peer::{Peer, hourglass_peer};
use crate::servers::process;
use crate::servers::programs::ProgramOptions;
use crate::servers::system::{Configuration, System};
use crate::stats::{quantile_ms, to_f64};

/// Run a scenario.
#[derive(Debug, Args)]
pub struct Run {
    /// The name of a built-in scenario, or the path of a TOML file. Without it, the command lists the scenarios.
    scenario: Option<Scenario>,
    /// The host and port of a running hourglass. By default, one is started with a fresh folder.
    #[arg(long)]
    server: Option<String>,
    /// The hourglass to start.
    #[arg(long, value_parser = hourglass_peer(), default_value = "hourglass-embedded")]
    peer: Peer,
    /// Readings per second, instead of the scenario's rate.
    #[arg(long)]
    rate: Option<f64>,
    /// Time for which POSTs are sent, such as 30s, instead of the scenario's duration.
    #[arg(long)]
    duration: Option<Span>,
    /// Number of connections, instead of the scenario's.
    #[arg(long)]
    connections: Option<usize>,
    /// Read everything back after the run, and check that exactly the acked readings are stored.
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    output: Output,
}

/// The bodies of a run, some of which are sent twice.
#[derive(Debug, Clone, Copy)]
struct Posts {
    delivery: Delivery,
    lines: i64,
    twice: f64,
}

impl Posts {
    /// Returns the number of the first line of each POST.
    fn first_lines(self) -> impl Iterator<Item = i64> {
        (0..).scan(-self.lines, move |first, post| {
            if post == 0 || !is_selected(post, self.twice) {
                *first += self.lines;
            }
            Some(*first)
        })
    }

    fn bodies(self) -> impl Iterator<Item = Bytes> {
        self.first_lines().map(move |first| self.delivery.lines(first, self.lines))
    }
}

/// Runs the scenario, or lists all.
pub async fn run(options: Run) -> Result<()> {
    let Some(mut scenario) = options.scenario.clone() else {
        for (name, _) in BUILT_IN {
            println!("{name:<16} {}", name.parse::<Scenario>()?.description);
        }
        return Ok(());
    };
    scenario.rate = options.rate.unwrap_or(scenario.rate);
    scenario.duration = options.duration.unwrap_or(scenario.duration);
    scenario.connections = options.connections.unwrap_or(scenario.connections);
    scenario.check()?;
    let mut results = Results::new();
    let programs = options.programs.programs();
    let mut started = None;
    let address = match &options.server {
        Some(address) => address.clone(),
        None => {
            // Raise the limit, because all devices of a scenario have the same address here.
            let variables = vec![("HOURGLASS_SERVER_CONNECTIONS_PER_ADDRESS", "65536".to_owned())];
            let configuration = Configuration { variables, file: "" };
            let system = System::start_with(options.peer, &programs, &options.programs.folder, configuration).await?;
            results.systems.push(options.peer.row(&programs, "")?);
            started.insert(system).address()?.to_owned()
        }
    };
    if options.verify {
        verify::ensure_empty(&address).await?;
    }
    let Scenario { name, rate, .. } = &scenario;
    println!("{name}: {rate} readings/s for {:?}; {}", scenario.duration.0, scenario.sizes());
    let mut faults = measure(&scenario, &address, started.as_ref(), options.verify, &mut results).await?;
    results.finish(&options.output)?;
    if let Some(mut system) = started {
        system.stop()?;
    }
    faults.dedup();
    if faults.is_empty() { Ok(()) } else { bail!("{}", faults.join("; ")) }
}

/// Sends everything, and returns the violations of the scenario's bounds.
async fn measure(
    scenario: &Scenario,
    address: &str,
    started: Option<&System<'_>>,
    verifies: bool,
    results: &mut Results,
) -> Result<Vec<String>> {
    let duration_s = scenario.duration.0.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, reason = "a count of readings")]
    let readings = (scenario.rate * duration_s) as i64 + 2 * scenario.lines;
    let posts = Posts { delivery: scenario.delivery(readings), lines: scenario.lines, twice: scenario.twice };
    let open_loop = OpenLoop {
        target: address.to_owned(),
        path: format!("/write?db=bench&ack={}", scenario.ack),
        connections: scenario.connections,
        rate: scenario.rate / float(scenario.lines),
        duration: scenario.duration.0,
        reconnect_every: scenario.reconnect_every.map(|every| every.0),
    };
    let before = started.map(System::usage).transpose()?;
    let load_result = open_loop.start(posts.bodies()).await??;
    ensure!(!load_result.acks.is_empty(), "nothing was acked: {:?}", load_result.errors);
    Connection::open(address).await?.deliver("/api/v1/flush", Bytes::new()).await?;
    let drain = Instant::now().saturating_duration_since(load_result.last_ack);

    let lines = float(scenario.lines);
    let acked = to_f64(load_result.outcomes.len() - load_result.unacked_posts()) * lines;
    let mut add = |figure: &str, value: f64| results.add(&scenario.name, figure, "value", value);
    add("readings/s offered", scenario.rate);
    add("readings/s acked in time", to_f64(load_result.acked_in_time) * lines / duration_s);
    add("POSTs never acked", to_f64(load_result.unacked_posts()));
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
        add(&format!("ack {name} ms, from when the POST was due"), quantile_ms(&load_result.acks, share));
    }
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        add(&format!("ack {name} ms, from its last try"), quantile_ms(&load_result.service, share));
    }
    add("p99 ms of the load tester's own lag", quantile_ms(&load_result.own_lag, 0.99));
    add("s until all was stored, after the last ack", drain.as_secs_f64());
    if let (Some(system), Some(before)) = (started, before) {
        let used = system.usage()?;
        add("CPU µs per reading, until stored", (used.cpu_s - before.cpu_s) * 1e6 / acked);
        add("peak MiB of the server", process::peak_mib(system.pid()?)?);
        if let Some(mongod) = system.mongod_pid() {
            add("peak MiB of mongod", process::peak_mib(mongod)?);
        }
    }
    for (kind, count) in &load_result.errors {
        add(&format!("tries failed: {kind}"), to_f64(usize::try_from(*count)?));
    }
    for (second, acks) in load_result.seconds.iter().enumerate() {
        let second = second.to_string();
        let readings = to_f64(usize::try_from(acks.len())?) * lines;
        results.add("by second", &second, "readings acked", readings);
        results.add("by second", &second, "ack p99 ms", quantile_ms(acks, 0.99));
    }
    if let Some(doubt) = load_result.doubt() {
        println!("{doubt}");
    }
    let mut faults = violations(scenario, &load_result, to_f64(load_result.acked_in_time) * lines / duration_s);
    if verifies {
        faults.extend(verify::verify(address, posts, &load_result.outcomes).await.context("reading back")?);
    }
    Ok(faults)
}

/// Returns the violated bounds.
fn violations(scenario: &Scenario, load_result: &LoadResult, achieved: f64) -> Vec<String> {
    let slo = &scenario.slo;
    let mut violations = Vec::new();
    let mut judge = |key: &str, bound: Option<f64>, found: f64, is_met: fn(f64, f64) -> bool| {
        if let Some(bound) = bound.filter(|bound| !is_met(found, *bound)) {
            violations.push(format!("SLO missed: {key} = {bound}, found {found:.3}"));
        }
    };
    judge("ack_p99_ms", slo.ack_p99_ms, load_result.p99_ms(), |found, bound| found <= bound);
    judge("errors_max", slo.errors_max, load_result.error_share(), |found, bound| found <= bound);
    judge("achieved_min", slo.achieved_min, achieved / scenario.rate, |found, bound| found >= bound);
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_follow_each_other_and_some_come_twice() {
        let scenario: Scenario = "late-data".parse().unwrap();
        let first_lines = |twice| {
            let posts = Posts { delivery: scenario.delivery(100), lines: 10, twice };
            posts.first_lines().take(100).collect::<Vec<_>>()
        };
        assert_eq!(first_lines(0.0), (0..100).map(|post| post * 10).collect::<Vec<_>>());
        let twice = first_lines(0.3);
        let copies = twice.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!((15..45).contains(&copies) && twice.windows(2).all(|pair| pair[1] - pair[0] <= 10), "{copies}");
    }
}
