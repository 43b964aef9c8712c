//! The queries in the best API of each HTTP server (native API, InfluxQL, MetricsQL), and parsers of the answers.

use anyhow::{Context, Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::data::{ASKED_S, Answer, Question, SENSOR, SITES, sensor_name};
use crate::servers::http::Product;

impl Product {
    /// The path of a query.
    pub fn path(self, question: Question) -> String {
        let (from, to) = (ASKED_S.start, ASKED_S.end);
        let sensor = sensor_name(SENSOR);
        match self {
            Self::Hourglass => {
                let site = SENSOR % SITES;
                let key = encoded(&format!("climate,sensor={sensor},site=site{site}"));
                let range = format!("from={from}&to={to}&precision=s&epoch=s");
                match question {
                    Question::Windows => format!("/api/v1/summary?db=bench&sensor={key}&fields=temp&step=1h&{range}"),
                    Question::Raw => format!("/api/v1/readings?db=bench&sensor={key}&limit=2000&{range}"),
                    Question::BySite => format!(
                        "/api/v1/summary?db=bench&measurement=climate&fields=temp&agg=avg&group_by=site&step=1h&{range}"
                    ),
                }
            }
            Self::Influx => {
                let (what, of, group) = match question {
                    Question::Windows => ("mean(temp)", format!("sensor = '{sensor}' AND "), " GROUP BY time(1h)"),
                    Question::Raw => ("temp, humidity", format!("sensor = '{sensor}' AND "), ""),
                    Question::BySite => ("mean(temp)", String::new(), " GROUP BY time(1h), site"),
                };
                let statement = format!("SELECT {what} FROM climate WHERE {of}time >= {from}s AND time < {to}s{group}");
                format!("/query?db=bench&epoch=s&q={}", encoded(&statement))
            }
            Self::Victoria => {
                // A window is labelled by its end.
                let range = format!("start={}&end={to}&step=3600", from + 3600);
                let windows = |query: &str| format!("/api/v1/query_range?{range}&query={}", encoded(query));
                match question {
                    Question::Windows => windows(&format!("avg_over_time(climate_temp{{sensor=\"{sensor}\"}}[1h])")),
                    Question::BySite => windows("avg(avg_over_time(climate_temp[1h])) by (site)"),
                    Question::Raw => {
                        let of = encoded(&format!("{{sensor=\"{sensor}\"}}"));
                        format!("/api/v1/export?match[]={of}&start={from}&end={to}")
                    }
                }
            }
        }
    }

    /// Parses an answer.
    pub fn parse(self, question: Question, body: &str) -> Result<Answer> {
        match self {
            Self::Hourglass => hourglass(question, &serde_json::from_str(body)?),
            Self::Influx => influx(question, &serde_json::from_str(body)?),
            Self::Victoria if question == Question::Raw => victoria_raw(body),
            Self::Victoria => victoria(question, &serde_json::from_str(body)?),
        }
    }
}

/// Encodes a text for a query string.
pub fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// A list in an answer.
pub fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("a list is missing")
}

/// A whole number in an answer.
pub fn whole(value: &Value) -> Result<i64> {
    value.as_i64().context("a time is missing")
}

/// A number in an answer.
pub fn number(value: &Value) -> Result<f64> {
    value.as_f64().context("a number is missing")
}

/// A text in an answer.
pub fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("a text is missing")?.to_owned())
}

fn hourglass(question: Question, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["series"])? {
        if question == Question::Raw {
            for reading in list(&series["readings"])? {
                for field in ["temp", "humidity"] {
                    answer
                        .entry(field.to_owned())
                        .or_default()
                        .push((whole(&reading["ts"])?, number(&reading[field])?));
                }
            }
            continue;
        }
        let name = if question == Question::BySite { text(&series["tags"]["site"])? } else { "temp".to_owned() };
        for window in list(&series["windows"])? {
            let mean = number(&window["fields"]["temp"]["avg"])?;
            answer.entry(name.clone()).or_default().push((whole(&window["start"])?, mean));
        }
    }
    Ok(answer)
}

fn influx(question: Question, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["results"][0]["series"])? {
        let names = match question {
            Question::Windows => vec!["temp".to_owned()],
            Question::Raw => vec!["temp".to_owned(), "humidity".to_owned()],
            Question::BySite => vec![text(&series["tags"]["site"])?],
        };
        for row in list(&series["values"])? {
            for (column, name) in names.iter().enumerate() {
                answer.entry(name.clone()).or_default().push((whole(&row[0])?, number(&row[column + 1])?));
            }
        }
    }
    Ok(answer)
}

fn victoria(question: Question, body: &Value) -> Result<Answer> {
    let mut answer = Answer::new();
    for series in list(&body["data"]["result"])? {
        let name = if question == Question::BySite { text(&series["metric"]["site"])? } else { "temp".to_owned() };
        for point in list(&series["values"])? {
            let mean: f64 = text(&point[1])?.parse()?;
            answer.entry(name.clone()).or_default().push((whole(&point[0])? - 3600, mean));
        }
    }
    Ok(answer)
}

/// Parses an export of readings.
pub fn victoria_raw(body: &str) -> Result<Answer> {
    let mut answer = Answer::new();
    for line in body.lines() {
        let series: Value = serde_json::from_str(line)?;
        let name = text(&series["metric"]["__name__"])?.trim_start_matches("climate_").to_owned();
        let (times, values) = (list(&series["timestamps"])?, list(&series["values"])?);
        ensure!(times.len() == values.len(), "times without values");
        for (time, value) in times.iter().zip(values) {
            answer.entry(name.clone()).or_default().push((whole(time)? / 1000, number(value)?));
        }
    }
    // Blocks come in any order.
    answer.values_mut().for_each(|values| values.sort_by_key(|(time, _)| *time));
    Ok(answer)
}
