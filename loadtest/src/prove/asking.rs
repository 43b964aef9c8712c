//! Reads everything from a system by its best API: native API, InfluxQL, export and MetricsQL, or aggregation. The
//! standard library parses all numbers exactly.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::reading::{FIELDS, HOUR_MS, Range, Sample, Window};
use super::writer::Subject;
use crate::client::{Answer, url_encode};
use crate::servers::http::Product;

/// Maximum time of answers with 503, for example while a system replays its WAL.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Maximum readings per answer of hourglass.
const LIMIT: usize = 100_000;

/// A number, or a text with a number.
type Number = Option<Box<RawValue>>;

impl Subject<'_> {
    /// Returns every value of a range, including duplicates.
    pub async fn samples(&self, range: Range) -> Result<Vec<Sample>> {
        match self.system.peer.product() {
            Some(Product::Hourglass) => self.hourglass_samples(range).await,
            Some(Product::Influx) => self.influx_samples(range).await,
            Some(Product::Victoria) => self.victoria_samples(range).await,
            None => self.native_samples(range).await,
        }
    }

    /// Returns the values at each step, as for a client that queries single timestamps.
    pub async fn values(&self, range: Range, step_s: i64) -> Result<Vec<Sample>> {
        if self.system.peer.product() != Some(Product::Victoria) {
            return self.samples(range).await;
        }
        let mut samples = Vec::new();
        for field in FIELDS {
            let query = format!("last_over_time(climate_{field}[{step_s}s])");
            let last = Range { from: range.from, to: range.to - step_s * 1000 };
            for (sensor, time, value) in self.victoria_query(&query, last, step_s).await? {
                samples.push(Sample { sensor, time, field: field.to_owned(), value });
            }
        }
        Ok(samples)
    }

    /// Returns count, sum and mean per hour of each field of each sensor. The range must be whole hours.
    pub async fn windows(&self, range: Range) -> Result<Vec<Window>> {
        match self.system.peer.product() {
            Some(Product::Hourglass) => self.hourglass_windows(range).await,
            Some(Product::Influx) => self.influx_windows(range).await,
            Some(Product::Victoria) => self.victoria_windows(range).await,
            None => self.native_windows(range).await,
        }
    }

    async fn ask(&self, path: &str) -> Result<Answer> {
        let deadline = Instant::now() + BUSY_MAX;
        loop {
            let answer = self.system.connect().await?.ask(path).await?;
            if answer.status == 200 {
                return Ok(answer);
            }
            let body = String::from_utf8_lossy(&answer.body).into_owned();
            ensure!(answer.status == 503 && Instant::now() < deadline, "{path} was answered {}: {body}", answer.status);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn hourglass_samples(&self, Range { from, to }: Range) -> Result<Vec<Sample>> {
        #[derive(Deserialize)]
        struct Line {
            sensor: String,
            reading: BTreeMap<String, Number>,
        }
        let mut samples = Vec::new();
        let mut cursor = String::new();
        loop {
            let answer = self
                .ask(&format!(
                    "/api/v1/readings?db=bench&measurement=climate&from={from}&to={to}&precision=ms&epoch=ms\
                     &format=ndjson&limit={LIMIT}{cursor}"
                ))
                .await?;
            for line in std::str::from_utf8(&answer.body)?.lines() {
                let Line { sensor, mut reading } = serde_json::from_str(line)?;
                let time = whole(&reading.remove("ts").flatten())?;
                for (field, value) in &reading {
                    let sensor = short_name(&sensor);
                    samples.push(Sample { sensor, time, field: field.clone(), value: number(value)? });
                }
            }
            match answer.header("x-next-cursor") {
                Some(next) => cursor = format!("&cursor={}", url_encode(next)),
                None => return Ok(samples),
            }
        }
    }

    async fn hourglass_windows(&self, Range { from, to }: Range) -> Result<Vec<Window>> {
        #[derive(Deserialize)]
        struct Summaries {
            series: Vec<Series>,
            next: Option<String>,
        }
        #[derive(Deserialize)]
        struct Series {
            sensor: String,
            windows: Vec<SeriesWindow>,
        }
        #[derive(Deserialize)]
        struct SeriesWindow {
            start: i64,
            fields: BTreeMap<String, Aggregates>,
        }
        #[derive(Deserialize)]
        struct Aggregates {
            count: Number,
            sum: Number,
            avg: Number,
        }
        let answer = self
            .ask(&format!(
                "/api/v1/summary?db=bench&measurement=climate&step=1h&agg=count,sum,avg&from={from}&to={to}\
                 &precision=ms&epoch=ms"
            ))
            .await?;
        let summaries: Summaries = serde_json::from_slice(&answer.body)?;
        ensure!(summaries.next.is_none(), "the answer has another page");
        let mut windows = Vec::new();
        for series in &summaries.series {
            for window in &series.windows {
                for (field, aggregates) in &window.fields {
                    windows.push(Window {
                        sensor: short_name(&series.sensor),
                        start: window.start,
                        field: field.clone(),
                        count: number(&aggregates.count)?,
                        sum: number(&aggregates.sum)?,
                        mean: number(&aggregates.avg)?,
                    });
                }
            }
        }
        Ok(windows)
    }

    async fn influx(&self, columns: &str, Range { from, to }: Range, group: &str) -> Result<Vec<InfluxSeries>> {
        #[derive(Deserialize)]
        struct InfluxAnswer {
            results: Vec<Results>,
        }
        #[derive(Deserialize)]
        struct Results {
            #[serde(default)]
            series: Vec<InfluxSeries>,
            error: Option<String>,
        }
        let statement =
            format!("SELECT {columns} FROM climate WHERE time >= {from}ms AND time < {to}ms GROUP BY {group}");
        let answer = self.ask(&format!("/query?db=bench&epoch=ms&q={}", url_encode(&statement))).await?;
        let answer: InfluxAnswer = serde_json::from_slice(&answer.body)?;
        let results = answer.results.into_iter().next().context("no result")?;
        ensure!(results.error.is_none(), "{statement}: {:?}", results.error);
        Ok(results.series)
    }

    async fn influx_samples(&self, range: Range) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for series in self.influx(&FIELDS.join(", "), range, "sensor").await? {
            for row in &series.values {
                let time = whole(row.first().context("an empty row")?)?;
                for (field, value) in FIELDS.iter().zip(&row[1..]).filter(|(_, value)| value.is_some()) {
                    let sensor = series.sensor()?;
                    samples.push(Sample { sensor, time, field: (*field).to_owned(), value: number(value)? });
                }
            }
        }
        Ok(samples)
    }

    async fn influx_windows(&self, range: Range) -> Result<Vec<Window>> {
        let mut windows = Vec::new();
        for field in FIELDS {
            let columns = format!("count({field}), sum({field}), mean({field})");
            for series in self.influx(&columns, range, "sensor, time(1h)").await? {
                for row in &series.values {
                    let [time, count, sum, mean] = row.as_slice() else { anyhow::bail!("a row of {}", row.len()) };
                    let or_zero = |value: &Number| value.as_ref().map_or(Ok(0.0), |value| text_number(value));
                    windows.push(Window {
                        sensor: series.sensor()?,
                        start: whole(time)?,
                        field: field.to_owned(),
                        count: number(count)?,
                        sum: or_zero(sum)?,
                        mean: or_zero(mean)?,
                    });
                }
            }
        }
        Ok(windows)
    }

    async fn victoria_samples(&self, Range { from, to }: Range) -> Result<Vec<Sample>> {
        #[derive(Deserialize)]
        struct Line {
            metric: BTreeMap<String, String>,
            values: Vec<Number>,
            timestamps: Vec<i64>,
        }
        let selector = url_encode("{__name__=~\"climate_.*\"}");
        // Ranges include both ends, and times are in seconds.
        let seconds = |ms: i64| format!("{}.{:03}", ms.div_euclid(1000), ms.rem_euclid(1000));
        let start = seconds(from);
        let end = seconds(to - 1);
        let answer = self.ask(&format!("/api/v1/export?match[]={selector}&start={start}&end={end}")).await?;
        let mut samples = Vec::new();
        for line in std::str::from_utf8(&answer.body)?.lines() {
            let Line { metric, values, timestamps } = serde_json::from_str(line)?;
            let name = |label: &str| metric.get(label).cloned().with_context(|| format!("no {label} in {metric:?}"));
            let field = name("__name__")?.trim_start_matches("climate_").to_owned();
            let sensor = name("sensor")?;
            ensure!(values.len() == timestamps.len(), "times without values");
            for (time, value) in timestamps.into_iter().zip(&values) {
                let value = number(value)?;
                samples.push(Sample { sensor: sensor.clone(), time, field: field.clone(), value });
            }
        }
        Ok(samples)
    }

    /// Returns sensor, time and value of every point, at every step of a range.
    async fn victoria_query(&self, query: &str, range: Range, step_s: i64) -> Result<Vec<(String, i64, f64)>> {
        #[derive(Deserialize)]
        struct VictoriaAnswer {
            data: Data,
        }
        #[derive(Deserialize)]
        struct Data {
            result: Vec<Series>,
        }
        #[derive(Deserialize)]
        struct Series {
            metric: BTreeMap<String, String>,
            values: Vec<(i64, Number)>,
        }
        let start = range.from / 1000;
        let end = range.to / 1000;
        // VictoriaMetrics documents `nocache` for queries after a backfill.
        let cache = if self.is_cached { "" } else { "&nocache=1" };
        let path =
            format!("/api/v1/query_range?start={start}&end={end}&step={step_s}{cache}&query={}", url_encode(query));
        let answer: VictoriaAnswer = serde_json::from_slice(&self.ask(&path).await?.body)?;
        let mut points = Vec::new();
        for series in answer.data.result {
            let sensor = series.metric.get("sensor").context("a series without a sensor")?;
            for (time, value) in &series.values {
                points.push((sensor.clone(), time * 1000, number(value)?));
            }
        }
        Ok(points)
    }

    async fn victoria_windows(&self, Range { from, to }: Range) -> Result<Vec<Window>> {
        let mut windows = Vec::new();
        for field in FIELDS {
            // A window is labelled by its end.
            let ends = Range { from: from + HOUR_MS, to };
            let mut by_place: BTreeMap<(String, i64), [f64; 3]> = BTreeMap::new();
            for (place, function) in ["count", "sum", "avg"].iter().enumerate() {
                let query = format!("{function}_over_time(climate_{field}[1h])");
                for (sensor, time, value) in self.victoria_query(&query, ends, HOUR_MS / 1000).await? {
                    by_place.entry((sensor, time - HOUR_MS)).or_default()[place] = value;
                }
            }
            windows.extend(by_place.into_iter().map(|((sensor, start), [count, sum, mean])| Window {
                sensor,
                start,
                field: field.to_owned(),
                count,
                sum,
                mean,
            }));
        }
        Ok(windows)
    }

    async fn native_samples(&self, range: Range) -> Result<Vec<Sample>> {
        let mut cursor =
            self.system.collection()?.find(between(range)).sort(doc! { "ts": 1, "_id": 1 }).batch_size(10_000).await?;
        let mut samples = Vec::new();
        while cursor.advance().await? {
            let document: Document = cursor.deserialize_current()?;
            let time = document.get_datetime("ts")?.timestamp_millis();
            let sensor = document.get_document("meta")?.get_str("sensor")?;
            for field in FIELDS.iter().filter(|field| document.contains_key(**field)) {
                let value = document.get_f64(field)?;
                samples.push(Sample { sensor: sensor.to_owned(), time, field: (*field).to_owned(), value });
            }
        }
        Ok(samples)
    }

    async fn native_windows(&self, range: Range) -> Result<Vec<Window>> {
        let collection = self.system.collection()?;
        let mut windows = Vec::new();
        for field in FIELDS {
            let value = format!("${field}");
            let pipeline = [
                doc! { "$match": between(range) },
                doc! { "$group": {
                    "_id": { "sensor": "$meta.sensor", "start": { "$dateTrunc": { "date": "$ts", "unit": "hour" } } },
                    "count": { "$sum": { "$cond": [{ "$eq": [{ "$type": &value }, "double"] }, 1, 0] } },
                    "sum": { "$sum": &value },
                    "mean": { "$avg": &value },
                } },
            ];
            let mut cursor = collection.aggregate(pipeline).batch_size(10_000).await?;
            while cursor.advance().await? {
                let row: Document = cursor.deserialize_current()?;
                let id = row.get_document("_id")?;
                windows.push(Window {
                    sensor: id.get_str("sensor")?.to_owned(),
                    start: id.get_datetime("start")?.timestamp_millis(),
                    field: field.to_owned(),
                    count: bson_number(row.get("count"))?,
                    sum: bson_number(row.get("sum"))?,
                    mean: bson_number(row.get("mean"))?,
                });
            }
        }
        Ok(windows)
    }
}

/// A series of an answer to InfluxQL.
#[derive(Deserialize)]
struct InfluxSeries {
    tags: BTreeMap<String, String>,
    values: Vec<Vec<Number>>,
}

impl InfluxSeries {
    fn sensor(&self) -> Result<String> {
        self.tags.get("sensor").cloned().context("a series without a sensor")
    }
}

fn between(Range { from, to }: Range) -> Document {
    doc! { "ts": { "$gte": DateTime::from_millis(from), "$lt": DateTime::from_millis(to) } }
}

fn bson_number(value: Option<&Bson>) -> Result<f64> {
    match value {
        Some(Bson::Double(value)) => Ok(*value),
        Some(Bson::Int32(value)) => Ok(f64::from(*value)),
        other => anyhow::bail!("{other:?} in place of a number"),
    }
}

/// Returns `s0001` of `climate,sensor=s0001`.
fn short_name(key: &str) -> String {
    key.rsplit('=').next().unwrap_or_default().to_owned()
}

fn text_number(raw: &RawValue) -> Result<f64> {
    let text = raw.get().trim_matches('"');
    text.parse().with_context(|| format!("{text} in place of a number"))
}

fn number(raw: &Number) -> Result<f64> {
    text_number(raw.as_ref().context("a number is missing")?)
}

fn whole(raw: &Number) -> Result<i64> {
    let text = raw.as_ref().context("a time is missing")?.get();
    text.parse().with_context(|| format!("{text} in place of a time"))
}
