//! Queries of stored readings, the same for every system, with checked answers.

mod clickhouse;
mod dialect;
mod disk_usage;
pub mod history;
mod native;
pub mod queries;
mod question;
mod sealing;

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use self::question::{Answer, Query, difference};
use crate::client::{Connection, url_encode};
use crate::fleet::{HOUR_S, sensor_key, sensor_name};
use crate::servers::http::Product;
use crate::servers::system::System;

/// Checks answers. Keeps the expected answers that do not depend on a sensor.
#[derive(Default)]
struct Checker(HashMap<&'static str, Answer>);

impl Checker {
    fn check(&mut self, query: &Query, found: &Answer) -> Result<()> {
        let name = query.question.name();
        let difference = if query.question.is_single_sensor() {
            difference(&query.expected(), found)
        } else {
            difference(self.0.entry(name).or_insert_with(|| query.expected()), found)
        };
        difference.map_or(Ok(()), |difference| bail!("a wrong answer to {name:?}: {difference}"))
    }

    /// Runs a query, checks the answer, and returns the milliseconds from the first byte sent to the last byte
    /// received.
    async fn ask(&mut self, connection: &mut Connection, product: Product, query: &Query) -> Result<f64> {
        let path = dialect::path(product, query);
        let started = Instant::now();
        let body = connection.get(&path).await?;
        let took = started.elapsed();
        let answer =
            dialect::parse(product, query, &body).with_context(|| format!("{path} was answered {body:.500}"))?;
        self.check(query, &answer)?;
        Ok(took.as_secs_f64() * 1000.0)
    }
}

/// Returns a connection after a query of one hour of the last sensor. The query opens files, and no other query covers
/// its data.
async fn connect_warm(system: &System<'_>, product: Product, query: &Query) -> Result<Connection> {
    let from = query.fleet.start_s;
    let to = from + HOUR_S;
    let sensor = query.fleet.sensors - 1;
    let name = sensor_name(sensor);
    let path = match product {
        Product::Hourglass => {
            let key = url_encode(&sensor_key(sensor));
            format!("/api/v1/summary?db=bench&sensor={key}&from={from}&to={to}&precision=s")
        }
        Product::Influx => {
            let statement = format!("SELECT mean(temp) FROM climate WHERE sensor='{name}' AND time < {to}s");
            format!("/query?db=bench&q={}", url_encode(&statement))
        }
        Product::Victoria => {
            let query = format!("avg_over_time(climate_temp{{sensor=\"{name}\"}}[1h])");
            format!("/api/v1/query?nocache=1&time={to}&query={}", url_encode(&query))
        }
    };
    let mut connection = system.connect().await?;
    connection.get(&path).await?;
    Ok(connection)
}
