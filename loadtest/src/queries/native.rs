//! A time-series collection of MongoDB, queried by aggregation.

use std::time::{Duration, Instant};

use anyhow::Result;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{TimeseriesGranularity, TimeseriesOptions};
use mongodb::{Collection, IndexModel};

use super::data::{ASKED_S, Answer, MINUTES, Question, SENSOR, minute, sensor_name};
use crate::servers::mongod::Mongod;

/// Minutes of readings per command.
const LOT: usize = 10;

/// The time-series collection.
pub fn collection(mongod: &Mongod) -> Collection<Document> {
    mongod.client().database("native").collection("climate")
}

/// Creates the collection with an index by sensor, and inserts all readings.
pub async fn load(mongod: &Mongod) -> Result<()> {
    let database = mongod.client().database("native");
    let options = TimeseriesOptions::builder()
        .time_field("ts".to_owned())
        .meta_field(Some("meta".to_owned()))
        .granularity(Some(TimeseriesGranularity::Minutes))
        .build();
    database.create_collection("climate").timeseries(options).await?;
    let collection = collection(mongod);
    collection.create_index(IndexModel::builder().keys(doc! { "meta.sensor": 1, "ts": 1 }).build()).await?;
    for from in (0..MINUTES).step_by(LOT) {
        let to = MINUTES.min(from + i64::try_from(LOT)?);
        let documents = (from..to).flat_map(minute).map(|reading| {
            let meta = doc! { "sensor": reading.sensor, "site": reading.site };
            let ts = DateTime::from_millis(reading.time * 1000);
            doc! { "ts": ts, "meta": meta, "temp": reading.temp, "humidity": reading.humidity }
        });
        collection.insert_many(documents).ordered(false).await?;
    }
    Ok(())
}

/// Runs a query. The time is until the last document is read.
pub async fn ask(collection: &Collection<Document>, question: Question) -> Result<(Duration, Answer)> {
    let pipeline = pipeline(question);
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
        match question {
            Question::Raw => {
                for field in ["temp", "humidity"] {
                    answer.entry(field.to_owned()).or_default().push((time, row.get_f64(field)?));
                }
            }
            _ => {
                let name = row.get_str("site").unwrap_or("temp").to_owned();
                answer.entry(name).or_default().push((time, row.get_f64("mean")?));
            }
        }
    }
    Ok((took, answer))
}

fn pipeline(question: Question) -> Vec<Document> {
    let date = |seconds: i64| DateTime::from_millis(seconds * 1000);
    let range = doc! { "$gte": date(ASKED_S.start), "$lt": date(ASKED_S.end) };
    let of_sensor = doc! { "$match": { "meta.sensor": sensor_name(SENSOR), "ts": range.clone() } };
    let hour = doc! { "$dateTrunc": { "date": "$ts", "unit": "hour" } };
    let flat = doc! { "$project": { "_id": 0, "time": "$_id.time", "site": "$_id.site", "mean": 1 } };
    match question {
        Question::Windows => vec![
            of_sensor,
            doc! { "$group": { "_id": { "time": hour }, "mean": { "$avg": "$temp" } } },
            doc! { "$sort": { "_id.time": 1 } },
            flat,
        ],
        Question::Raw => vec![
            of_sensor,
            doc! { "$sort": { "ts": 1 } },
            doc! { "$project": { "_id": 0, "time": "$ts", "temp": 1, "humidity": 1 } },
        ],
        Question::BySite => vec![
            doc! { "$match": { "ts": range } },
            doc! { "$group": { "_id": { "site": "$meta.site", "time": hour }, "mean": { "$avg": "$temp" } } },
            doc! { "$sort": { "_id.site": 1, "_id.time": 1 } },
            flat,
        ],
    }
}
