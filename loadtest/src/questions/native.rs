//! A time-series collection of MongoDB, queried by aggregation.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Collection, IndexModel};

use super::question::{Answer, Query, Question};
use crate::fleet::{Fleet, sensor_name};
use crate::load::closed::Load;
use crate::servers::system::System;
use crate::throughput::native::send;

/// Creates an index by sensor, and inserts all readings.
pub async fn load(system: &System<'_>, load: Load) -> Result<()> {
    system.collection()?.create_index(IndexModel::builder().keys(doc! { "meta.sensor": 1, "ts": 1 }).build()).await?;
    send(system, load).await.map(drop)
}

/// Runs a query. The time is until the last document is read.
pub async fn ask(collection: &Collection<Document>, query: &Query) -> Result<(Duration, Answer)> {
    let pipeline = pipeline(query)?;
    let started = Instant::now();
    let mut cursor = collection.aggregate(pipeline).batch_size(10_000).await?;
    let mut rows = Vec::new();
    while cursor.advance().await? {
        rows.push(cursor.current().to_owned());
    }
    let took = started.elapsed();
    let mut answer = Answer::new();
    for row in rows {
        let row = Document::try_from(row.as_ref())?;
        let time = row.get_datetime("time")?.timestamp_millis() / 1000;
        if let Ok(mean) = row.get_f64("mean") {
            let name = row.get_str("site").unwrap_or("temp").to_owned();
            answer.entry(name).or_default().push((time, mean));
            continue;
        }
        for field in Fleet::FIELDS {
            answer.entry(field.to_owned()).or_default().push((time, row.get_f64(field)?));
        }
    }
    Ok((took, answer))
}

fn pipeline(query: &Query) -> Result<Vec<Document>> {
    let date = |seconds: i64| DateTime::from_millis(seconds * 1000);
    let range = doc! { "$gte": date(query.from), "$lt": date(query.to) };
    let of_sensor = doc! { "$match": { "meta.sensor": sensor_name(query.sensor), "ts": range.clone() } };
    let hour = doc! { "$dateTrunc": { "date": "$ts", "unit": "hour" } };
    let flat = doc! { "$project": { "_id": 0, "time": "$_id.time", "site": "$_id.site", "mean": 1 } };
    Ok(match query.question {
        Question::SensorHourly => vec![
            of_sensor,
            doc! { "$group": { "_id": { "time": hour }, "mean": { "$avg": "$temp" } } },
            doc! { "$sort": { "_id.time": 1 } },
            flat,
        ],
        Question::SensorRawDay => vec![
            of_sensor,
            doc! { "$sort": { "ts": 1 } },
            doc! { "$project": { "_id": 0, "time": "$ts", "temp": 1, "humidity": 1 } },
        ],
        Question::SitesHourly => vec![
            doc! { "$match": { "ts": range } },
            doc! { "$group": { "_id": { "site": "$meta.site", "time": hour }, "mean": { "$avg": "$temp" } } },
            doc! { "$sort": { "_id.site": 1, "_id.time": 1 } },
            flat,
        ],
        other => bail!("{} is not asked of a time-series collection", other.name()),
    })
}
