//! Throughput of readings that are sent as fast as they are acked, and its cost, with the same figures for every system
//! and load.

pub mod growth;
pub mod native;
pub mod peers;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::client::url_encode;
use crate::fleet::{Fleet, HOUR_S, float, round_up};
use crate::load::closed::{Load, SendResult};
use crate::servers::http::Product;
use crate::servers::process;
use crate::servers::system::System;
use crate::stats::{quantile_ms, to_f64};

/// Figures by column, in the order of the table.
type Figures = Vec<(&'static str, f64)>;

/// Sends a load, waits until all of it is in its final storage, and returns the figures.
async fn measure(system: &System<'_>, load: Load) -> Result<Figures> {
    let written_before = synced_bytes(system.folder().path())?;
    let before = system.usage()?;
    let mongod_before = mongod_cpu_s(system)?;
    let sent = match system.peer.product() {
        Some(product) => load.send(system.address()?, product.write_path()).await?,
        None => native::send(system, load).await?,
    };
    // Opening a thousand connections takes seconds. Only the CPU figures include it.
    let acked = Instant::now();
    let drained = system.drain().await?;
    let written = synced_bytes(system.folder().path())? - written_before;
    let readings = load.readings(sent.items);
    let drained_s = (sent.took + drained.time.saturating_duration_since(acked)).as_secs_f64();
    let SendResult { acks, took, .. } = &sent;
    let mut figures = vec![
        ("readings", readings),
        ("acked/s", readings / took.as_secs_f64()),
        ("drained/s", readings / drained_s),
        ("CPU µs", (drained.cpu_s - before.cpu_s) * 1e6 / readings),
    ];
    if let Some(pid) = system.mongod_pid() {
        figures.push(("of it mongod", (mongod_cpu_s(system)? - mongod_before) * 1e6 / readings));
        figures.push(("mongod peak MiB", process::peak_mib(pid)?));
    }
    figures.push(("written B", written / readings));
    figures.push(("ack p50 ms", quantile_ms(acks, 0.5)));
    figures.push(("ack p99 ms", quantile_ms(acks, 0.99)));
    if system.peer.product().is_some() {
        figures.push(("peak MiB", process::peak_mib(system.pid()?)?));
        figures.push(("MiB after", process::resident_mib(system.pid()?)?.floor()));
    }
    if sent.refused > 0 {
        figures.push(("answers 503", to_f64(sent.refused)));
    }
    Ok(figures)
}

/// Returns the CPU seconds of mongod, or 0 if there is none.
fn mongod_cpu_s(system: &System<'_>) -> Result<f64> {
    Ok(process::cpu_seconds(system.mongod_pid().as_slice())?.iter().sum())
}

/// Returns the bytes written to the disk of a folder, after a sync. This includes other processes, so they must be
/// idle.
fn synced_bytes(folder: &Path) -> Result<f64> {
    let status = Command::new("sync").arg("--file-system").arg(folder).status().context("running sync")?;
    ensure!(status.success(), "sync ended: {status}");
    process::disk_written_bytes(folder)
}

/// Checks that the system has every field of the first `readings` readings.
async fn ensure_stored(system: &System<'_>, fleet: Fleet, readings: i64) -> Result<()> {
    let Some(product) = system.peer.product() else {
        let count = system.collection()?.count_documents(mongodb::bson::doc! {}).await?;
        ensure!(i64::try_from(count)? == readings, "{count} readings instead of {readings}");
        return Ok(());
    };
    for field in Fleet::FIELDS {
        let [count, _] = totals(system, product, fleet, field).await?;
        ensure!(count == float(readings), "{count} values of {field} instead of {readings}");
    }
    Ok(())
}

/// Returns the count and the sum of all values of a field.
pub async fn totals(system: &System<'_>, product: Product, fleet: Fleet, field: &str) -> Result<[f64; 2]> {
    // Use whole hours, which are answered from summaries.
    let start = fleet.start_s;
    let end = start + round_up(fleet.end_s() - start, HOUR_S);
    let mut totals = [0.0; 2];
    for (total, function) in totals.iter_mut().zip(["count", "sum"]) {
        let path = match product {
            Product::Hourglass | Product::Influx => {
                let range = format!("time >= {start}s AND time < {end}s");
                let statement = format!("SELECT {function}({field}) FROM climate WHERE {range}");
                format!("/query?db=bench&q={}", url_encode(&statement))
            }
            Product::Victoria => {
                let query = format!("sum({function}_over_time(climate_{field}[{}s]))", end - start);
                format!("/api/v1/query?nocache=1&time={end}&query={}", url_encode(&query))
            }
        };
        let answer: serde_json::Value = serde_json::from_str(&system.get(&path).await?)?;
        let value = match product {
            Product::Hourglass | Product::Influx => &answer["results"][0]["series"][0]["values"][0][1],
            Product::Victoria => &answer["data"]["result"][0]["value"][1],
        };
        let text = value.as_str().and_then(|text| text.parse().ok());
        *total = value.as_f64().or(text).with_context(|| format!("no {function} in {answer}"))?;
    }
    Ok(totals)
}
