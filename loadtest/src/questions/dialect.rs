//! The queries in the API of each HTTP server (native API, InfluxQL, MetricsQL) and in ClickHouse's SQL, and parsers of
//! the answers.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::question::{Answer, CHART_S, Query, Question};
use crate::client::url_encode;
use crate::fleet::{Fleet, sensor_key, sensor_name};
use crate::servers::http::Product;

/// Returns the path of a query. No server answers it from a cache of answers.
pub fn path(product: Product, query: &Query) -> String {
    match product {
        Product::Hourglass => hourglass_path(query),
        Product::Influx => format!("/query?db=bench&epoch=s&q={}", url_encode(&statement(query))),
        Product::Victoria => victoria_path(query),
    }
}

pub fn parse(product: Product, query: &Query, body: &str) -> Result<Answer> {
    match product {
        Product::Hourglass if query.question == Question::OneNumber => influx(query, &serde_json::from_str(body)?),
        Product::Hourglass => hourglass(query, &serde_json::from_str(body)?),
        Product::Influx => influx(query, &serde_json::from_str(body)?),
        Product::Victoria if query.question == Question::SensorRawDay => victoria_raw(body),
        Product::Victoria => victoria(query, &serde_json::from_str(body)?),
    }
}

fn hourglass_path(query: &Query) -> String {
    let Query { from, to, .. } = query;
    let key = url_encode(&sensor_key(query.sensor));
    let range = format!("from={from}&to={to}&precision=s&epoch=s");
    let windows =
        |which: &str, step: &str| format!("/api/v1/summary?db=bench&{which}&fields=temp&agg=avg&step={step}&{range}");
    let sensor = format!("sensor={key}");
    let sites = "measurement=climate&group_by=site";
    match query.question {
        Question::SensorHourly => windows(&sensor, "1h"),
        Question::SensorDaily => windows(&sensor, "1d"),
        Question::SitesHourly | Question::SitesLastDay => windows(sites, "1h"),
        Question::SitesDaily => windows(sites, "1d"),
        Question::SensorRawDay => format!("/api/v1/readings?db=bench&{sensor}&limit=100000&{range}"),
        Question::SensorChart => {
            format!("/api/v1/readings?db=bench&{sensor}&fields=temp&max_points={}&{range}", points_max(query))
        }
        Question::OneNumber => format!("/query?db=bench&epoch=s&q={}", url_encode(&statement(query))),
        Question::LatestOfAll => {
            format!("/api/v1/latest?db=bench&measurement=climate&limit={}&epoch=s", query.fleet.sensors)
        }
        Question::LatestOfOne => format!("/api/v1/latest?db=bench&{sensor}&epoch=s"),
    }
}

/// Returns a query in InfluxQL.
fn statement(query: &Query) -> String {
    let Query { from, to, .. } = query;
    let condition = format!("sensor = '{}'", sensor_name(query.sensor));
    let range = format!("time >= {from}s AND time < {to}s");
    match query.question {
        Question::SensorHourly => {
            format!("SELECT mean(temp) FROM climate WHERE {condition} AND {range} GROUP BY time(1h)")
        }
        Question::SensorDaily => {
            format!("SELECT mean(temp) FROM climate WHERE {condition} AND {range} GROUP BY time(1d)")
        }
        Question::SensorRawDay => format!("SELECT temp, humidity FROM climate WHERE {condition} AND {range}"),
        Question::SensorChart => {
            format!("SELECT min(temp), max(temp) FROM climate WHERE {condition} AND {range} GROUP BY time(3h)")
        }
        Question::SitesHourly | Question::SitesLastDay => {
            format!("SELECT mean(temp) FROM climate WHERE {range} GROUP BY time(1h), site")
        }
        Question::SitesDaily => format!("SELECT mean(temp) FROM climate WHERE {range} GROUP BY time(1d), site"),
        Question::OneNumber => format!("SELECT mean(temp) FROM climate WHERE {range}"),
        Question::LatestOfAll => "SELECT last(temp) FROM climate GROUP BY sensor".to_owned(),
        Question::LatestOfOne => format!("SELECT last(temp) FROM climate WHERE {condition} GROUP BY sensor"),
    }
}

/// Returns a query in ClickHouse's SQL. Its rows have the name of a series, a time and a value.
pub fn sql(query: &Query) -> String {
    let Query { from, to, .. } = query;
    let range = format!("time >= toDateTime({from}) AND time < toDateTime({to})");
    let condition = format!("sensor = '{}'", sensor_name(query.sensor));
    let step = query.step_s();
    let window = format!("toUnixTimestamp(toStartOfInterval(time, INTERVAL {step} SECOND)) AS t");
    match query.question {
        Question::SensorHourly | Question::SensorDaily => {
            format!(
                "SELECT 'temp', {window}, avg(temp) FROM climate WHERE {condition} AND {range} GROUP BY t ORDER BY t"
            )
        }
        Question::SensorRawDay => format!(
            "SELECT p.1, t, p.2 FROM (SELECT toUnixTimestamp(time) AS t, arrayJoin([('temp', temp), ('humidity', \
             toFloat64(humidity))]) AS p FROM climate WHERE {condition} AND {range}) ORDER BY t"
        ),
        Question::SensorChart => format!(
            "SELECT p.1, t, p.2 FROM (SELECT {window}, arrayJoin([('min', min(temp)), ('max', max(temp))]) AS p \
             FROM climate WHERE {condition} AND {range} GROUP BY t) ORDER BY t"
        ),
        Question::SitesHourly | Question::SitesDaily | Question::SitesLastDay => {
            format!("SELECT site, {window}, avg(temp) FROM climate WHERE {range} GROUP BY site, t ORDER BY t")
        }
        Question::OneNumber => format!("SELECT 'mean', 0, avg(temp) FROM climate WHERE {range}"),
        Question::LatestOfAll => "SELECT sensor, 0, argMax(temp, time) FROM climate GROUP BY sensor".to_owned(),
        Question::LatestOfOne => {
            format!("SELECT sensor, 0, argMax(temp, time) FROM climate WHERE {condition} GROUP BY sensor")
        }
    }
}

fn victoria_path(query: &Query) -> String {
    let Query { from, to, .. } = query;
    let step = query.step_s();
    let selector = format!("{{sensor=\"{}\"}}", sensor_name(query.sensor));
    // A window is labelled by its end.
    let windows = |query: &str| {
        format!("/api/v1/query_range?nocache=1&start={}&end={to}&step={step}&query={}", from + step, url_encode(query))
    };
    let instant = |query: &str| format!("/api/v1/query?nocache=1&time={to}&query={}", url_encode(query));
    match query.question {
        Question::SensorHourly | Question::SensorDaily => {
            windows(&format!("avg_over_time(climate_temp{selector}[{step}s])"))
        }
        Question::SensorChart => windows(&format!("rollup(climate_temp{selector}[{step}s])")),
        Question::SensorRawDay => format!("/api/v1/export?match[]={}&start={from}&end={to}", url_encode(&selector)),
        Question::SitesHourly | Question::SitesDaily | Question::SitesLastDay => {
            windows(&format!("avg(avg_over_time(climate_temp[{step}s])) by (site)"))
        }
        // All sensors have as many readings.
        Question::OneNumber => instant(&format!("avg(avg_over_time(climate_temp[{step}s]))")),
        Question::LatestOfAll => instant("climate_temp"),
        Question::LatestOfOne => instant(&format!("climate_temp{selector}")),
    }
}

fn hourglass(query: &Query, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["series"])? {
        match query.question {
            Question::SensorRawDay => {
                for reading in list(&series["readings"])? {
                    for field in Fleet::FIELDS {
                        let point = (whole(&reading["ts"])?, number(&reading[field])?);
                        answer.entry(field.to_owned()).or_default().push(point);
                    }
                }
            }
            Question::SensorChart => extremes(query, list(&series["readings"])?, &mut answer)?,
            Question::LatestOfAll | Question::LatestOfOne => {
                let latest = number(&series["readings"][0]["temp"])?;
                answer.insert(text(&series["tags"]["sensor"])?, vec![(0, latest)]);
            }
            _ => {
                let name =
                    if query.question.is_single_sensor() { "temp".to_owned() } else { text(&series["tags"]["site"])? };
                for window in list(&series["windows"])? {
                    let mean = number(&window["fields"]["temp"]["avg"])?;
                    answer.entry(name.clone()).or_default().push((whole(&window["start"])?, mean));
                }
            }
        }
    }
    Ok(answer)
}

/// Returns the minimum and maximum of each window of a chart, from its thinned readings.
fn extremes(query: &Query, readings: &[Value], answer: &mut Answer) -> Result<()> {
    let count_max = usize::try_from(points_max(query))?;
    ensure!(readings.len() <= count_max, "{} readings instead of at most {count_max}", readings.len());
    let from = query.from;
    for (name, pick) in [("min", f64::min as fn(f64, f64) -> f64), ("max", f64::max)] {
        let windows: &mut Vec<(i64, f64)> = answer.entry(name.to_owned()).or_default();
        for reading in readings {
            let time = whole(&reading["ts"])?;
            let value = number(&reading["temp"])?;
            let start = from + (time - from) / query.step_s() * query.step_s();
            match windows.last_mut() {
                Some((last, extreme)) if *last == start => *extreme = pick(*extreme, value),
                _ => windows.push((start, value)),
            }
        }
    }
    Ok(())
}

fn influx(query: &Query, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["results"][0]["series"])? {
        let (names, has_time) = match query.question {
            Question::SensorHourly | Question::SensorDaily => (vec!["temp".to_owned()], true),
            Question::SensorRawDay => (Fleet::FIELDS.map(str::to_owned).to_vec(), true),
            Question::SensorChart => (vec!["min".to_owned(), "max".to_owned()], true),
            Question::SitesHourly | Question::SitesDaily | Question::SitesLastDay => {
                (vec![text(&series["tags"]["site"])?], true)
            }
            Question::OneNumber => (vec!["mean".to_owned()], false),
            Question::LatestOfAll | Question::LatestOfOne => (vec![text(&series["tags"]["sensor"])?], false),
        };
        for row in list(&series["values"])? {
            let time = if has_time { whole(&row[0])? } else { 0 };
            for (column, name) in names.iter().enumerate() {
                answer.entry(name.clone()).or_default().push((time, number(&row[column + 1])?));
            }
        }
    }
    Ok(answer)
}

fn victoria(query: &Query, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["data"]["result"])? {
        let labels = &series["metric"];
        let name = match query.question {
            Question::SensorChart => text(&labels["rollup"])?,
            Question::SitesHourly | Question::SitesDaily | Question::SitesLastDay => text(&labels["site"])?,
            Question::OneNumber => "mean".to_owned(),
            Question::LatestOfAll | Question::LatestOfOne => text(&labels["sensor"])?,
            _ => "temp".to_owned(),
        };
        if name == "avg" {
            continue;
        }
        if let Ok(points) = list(&series["values"]) {
            for point in points {
                let time = whole(&point[0])? - query.step_s();
                answer.entry(name.clone()).or_default().push((time, text(&point[1])?.parse()?));
            }
        } else {
            answer.insert(name, vec![(0, text(&series["value"][1])?.parse()?)]);
        }
    }
    Ok(answer)
}

/// Parses rows of ClickHouse: a name, a time and a value, tab-separated.
pub fn rows(body: &str) -> Result<Answer> {
    let mut answer = Answer::new();
    for row in body.lines() {
        let [name, time, value] = row.split('\t').collect::<Vec<_>>()[..] else {
            anyhow::bail!("a row of ClickHouse is {row:?}")
        };
        answer.entry(name.to_owned()).or_default().push((time.parse()?, value.parse()?));
    }
    Ok(answer)
}

/// Two readings per window of a chart, and the first and the last of the range.
fn points_max(query: &Query) -> i64 {
    (query.to - query.from) / CHART_S * 2 + 2
}

/// Parses an export of readings.
fn victoria_raw(body: &str) -> Result<Answer> {
    let mut answer = Answer::new();
    for line in body.lines() {
        let series: Value = serde_json::from_str(line)?;
        let name = text(&series["metric"]["__name__"])?.trim_start_matches("climate_").to_owned();
        let times = list(&series["timestamps"])?;
        let values = list(&series["values"])?;
        ensure!(times.len() == values.len(), "times without values");
        for (time, value) in times.iter().zip(values) {
            answer.entry(name.clone()).or_default().push((whole(time)? / 1000, number(value)?));
        }
    }
    // Blocks come in any order.
    answer.values_mut().for_each(|values| values.sort_by_key(|(time, _)| *time));
    Ok(answer)
}

/// Returns a list of an answer.
fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("a list is missing")
}

/// Returns an integer of an answer.
fn whole(value: &Value) -> Result<i64> {
    value.as_i64().context("a time is missing")
}

/// Returns a number of an answer.
fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("a number is missing")
}

/// Returns a text of an answer.
fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("a text is missing")?.to_owned())
}
