//! Checks that a server has all readings, so that no result includes lost ones.

use anyhow::{Context, Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::work::Work;
use crate::bodies::START_S;
use crate::servers::http::{HttpServer, Product};

/// The fields of a reading.
const FIELDS: [&str; 2] = ["temp", "humidity"];

/// Fails unless the server has every field of the first `readings` readings.
pub async fn check(server: &mut HttpServer, work: &Work, readings: usize) -> Result<()> {
    for field in FIELDS {
        let count = count(server, work.end_s(readings), field).await?;
        ensure!(count == readings.to_string(), "{count} values of {field} instead of {readings}");
    }
    Ok(())
}

async fn count(server: &mut HttpServer, end_s: i64, field: &str) -> Result<String> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let path = match server.product() {
        Product::Hourglass | Product::Influx => {
            // Without a range, hourglass on MongoDB would need longer for 100,000 sensors than a query may take.
            let range = format!("time >= {START_S}s AND time < {end_s}s");
            format!("/query?db=bench&q={}", encoded(&format!("SELECT count({field}) FROM climate WHERE {range}")))
        }
        Product::Victoria => {
            let query = encoded(&format!("sum(count_over_time(climate_{field}[30d]))"));
            format!("/api/v1/query?time={end_s}&query={query}")
        }
    };
    let (status, answer) = server.connection().get(&path).await?;
    ensure!(status == 200, "{path} was answered {status}: {answer}");
    let answer: Value = serde_json::from_str(&answer)?;
    let count = match server.product() {
        Product::Hourglass | Product::Influx => &answer["results"][0]["series"][0]["values"][0][1],
        Product::Victoria => &answer["data"]["result"][0]["value"][1],
    };
    let text = count.as_str().map(str::to_owned).or_else(|| count.as_u64().map(|count| count.to_string()));
    text.with_context(|| format!("no count in {answer}"))
}
