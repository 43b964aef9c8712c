//! Questions: what another instance holds in memory and the store may lack.
//!
//! ```text
//! question := 0 news: count:varint (folder:varint since:varint)…
//!           | 1 readings: database:text hours:2 varint (zigzag) count:varint sensor:text…
//!           | 2 flush | 3 documents: database:text count:varint sensor:text…
//! answer   := 0 news: heard additions:varint count:varint database…
//!           | 1 readings: heard count:varint sensor…
//!           | 2 flushed | 3 wait: not yet | 4 too much | 5 documents: count:varint bson:bytes…
//! heard    := folder:varint changes:varint
//! database := name:text count:varint (key:text count:varint (field:text family:u8)…)…
//! sensor   := count:varint hour…                          UnflushedHour::encode
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use crate::bucket::{CatalogSensor, UnflushedHour, UnflushedReadings};
use crate::ingest::Ingest;
use crate::reading::varint::{put_bytes, put_texts, put_varint, take_bytes, take_text, take_varint, unzigzag, zigzag};
use crate::reading::{Family, Hour, Sensor};
use crate::store::document::sensor_document;

/// Maximum bytes of an answer.
pub const ANSWER_BYTES: usize = 8 << 20;
/// Questions of others that are answered at a time.
pub const ANSWERS_MAX: usize = 4;
/// The time that a flush for another instance may take before the answer is [`Answer::Wait`]. It is asked again.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// A question of another instance or of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Sensors and fields since a version of the catalog, by folder. An unknown folder gets what is not stored.
    News { since: Vec<(u64, u64)> },
    /// Unflushed readings.
    Readings { database: String, sensors: Vec<String>, hours: Range<Hour> },
    /// Flush everything.
    Flush,
    /// The documents of those of the sensors whose stored ones are outdated.
    Documents { database: String, sensors: Vec<String> },
}

/// The state of the instance that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// The id of its folder.
    pub folder: u64,
    /// The number of hours that it had changed in the store. It is read after the rest of the answer, so it counts all
    /// that the answer lacks for that reason.
    pub changes: u64,
}

/// The answer to a question.
#[derive(Debug, Clone)]
pub enum Answer {
    News {
        heard: Heard,
        /// The version of its catalog.
        additions: u64,
        /// Sensors whose documents are not stored as it knows them, by database.
        sensors: Vec<(String, Vec<CatalogSensor>)>,
    },
    /// For each sensor its unflushed hours.
    Readings {
        heard: Heard,
        hours: Vec<Vec<UnflushedHour>>,
    },
    Flushed,
    /// Acked readings are still being replayed or flushed.
    Wait,
    /// The answer exceeds [`ANSWER_BYTES`].
    TooMuch,
    /// Documents as they would be stored.
    Documents(Vec<Vec<u8>>),
}

impl Heard {
    fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.folder);
        put_varint(out, self.changes);
    }

    fn decode(bytes: &[u8], position: &mut usize) -> Option<Self> {
        Some(Self { folder: take_varint(bytes, position)?, changes: take_varint(bytes, position)? })
    }
}

impl Question {
    /// Encodes the question.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::News { since } => {
                out.push(0);
                put_varint(&mut out, since.len() as u64);
                for (folder, version) in since {
                    put_varint(&mut out, *folder);
                    put_varint(&mut out, *version);
                }
            }
            Self::Readings { database, sensors, hours } => {
                out.push(1);
                put_bytes(&mut out, database.as_bytes());
                put_varint(&mut out, zigzag(hours.start.0));
                put_varint(&mut out, zigzag(hours.end.0));
                put_texts(&mut out, sensors.iter().map(String::as_str));
            }
            Self::Flush => out.push(2),
            Self::Documents { database, sensors } => {
                out.push(3);
                put_bytes(&mut out, database.as_bytes());
                put_texts(&mut out, sensors.iter().map(String::as_str));
            }
        }
        out
    }

    /// Decodes a question; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut position = 1;
        let at = &mut position;
        Some(match bytes.first()? {
            0 => {
                let count = take_varint(bytes, at)?;
                let since = (0..count).map(|_| Some((take_varint(bytes, at)?, take_varint(bytes, at)?)));
                Self::News { since: since.collect::<Option<_>>()? }
            }
            1 => {
                let database = take_text(bytes, at)?.to_owned();
                let start = Hour(unzigzag(take_varint(bytes, at)?));
                let end = Hour(unzigzag(take_varint(bytes, at)?));
                let count = take_varint(bytes, at)?;
                let sensors = (0..count).map(|_| take_text(bytes, at).map(str::to_owned)).collect::<Option<_>>()?;
                Self::Readings { database, sensors, hours: start..end }
            }
            2 => Self::Flush,
            3 => {
                let database = take_text(bytes, at)?.to_owned();
                let count = take_varint(bytes, at)?;
                let sensors = (0..count).map(|_| take_text(bytes, at).map(str::to_owned)).collect::<Option<_>>()?;
                Self::Documents { database, sensors }
            }
            _ => return None,
        })
    }
}

impl Answer {
    /// Encodes the answer.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::News { heard, additions, sensors } => {
                out.push(0);
                heard.encode(&mut out);
                put_varint(&mut out, *additions);
                put_varint(&mut out, sensors.len() as u64);
                for (database, sensors) in sensors {
                    put_bytes(&mut out, database.as_bytes());
                    put_varint(&mut out, sensors.len() as u64);
                    sensors.iter().for_each(|sensor| put_sensor(&mut out, sensor));
                }
            }
            Self::Readings { heard, hours: sensors } => {
                out.push(1);
                heard.encode(&mut out);
                put_varint(&mut out, sensors.len() as u64);
                for hours in sensors {
                    put_varint(&mut out, hours.len() as u64);
                    hours.iter().for_each(|hour| hour.encode(&mut out));
                }
            }
            Self::Flushed => out.push(2),
            Self::Wait => out.push(3),
            Self::TooMuch => out.push(4),
            Self::Documents(documents) => {
                out.push(5);
                put_varint(&mut out, documents.len() as u64);
                documents.iter().for_each(|document| put_bytes(&mut out, document));
            }
        }
        if out.len() > ANSWER_BYTES { vec![4] } else { out }
    }

    /// Decodes an answer; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut position = 1;
        let at = &mut position;
        Some(match bytes.first()? {
            0 => {
                let heard = Heard::decode(bytes, at)?;
                let additions = take_varint(bytes, at)?;
                let databases = take_varint(bytes, at)?;
                let mut database = || {
                    let name = take_text(bytes, at)?.to_owned();
                    let count = take_varint(bytes, at)?;
                    Some((name, (0..count).map(|_| take_sensor(bytes, at)).collect::<Option<_>>()?))
                };
                let sensors = (0..databases).map(|_| database()).collect::<Option<_>>()?;
                Self::News { heard, additions, sensors }
            }
            1 => {
                let heard = Heard::decode(bytes, at)?;
                let count = take_varint(bytes, at)?;
                let mut sensor = || {
                    let hours = take_varint(bytes, at)?;
                    (0..hours).map(|_| UnflushedHour::decode(bytes, at)).collect::<Option<Vec<_>>>()
                };
                Self::Readings { heard, hours: (0..count).map(|_| sensor()).collect::<Option<_>>()? }
            }
            2 => Self::Flushed,
            3 => Self::Wait,
            4 => Self::TooMuch,
            5 => {
                let count = take_varint(bytes, at)?;
                let documents = (0..count).map(|_| take_bytes(bytes, at).map(<[u8]>::to_vec));
                Self::Documents(documents.collect::<Option<_>>()?)
            }
            _ => return None,
        })
    }
}

fn put_sensor(out: &mut Vec<u8>, sensor: &CatalogSensor) {
    put_bytes(out, sensor.sensor.key.as_bytes());
    put_varint(out, sensor.fields.len() as u64);
    for (name, family) in &sensor.fields {
        put_bytes(out, name.as_bytes());
        out.push(match family {
            Family::Number => 0,
            Family::Boolean => 1,
            Family::String => 2,
        });
    }
}

fn take_sensor(bytes: &[u8], position: &mut usize) -> Option<CatalogSensor> {
    let sensor = Arc::new(Sensor::from_key(take_text(bytes, position)?)?);
    let count = take_varint(bytes, position)?;
    let mut field = || {
        let name: Arc<str> = take_text(bytes, position)?.into();
        *position += 1;
        let family = match bytes.get(*position - 1)? {
            0 => Family::Number,
            1 => Family::Boolean,
            2 => Family::String,
            _ => return None,
        };
        Some((name, family))
    };
    let fields = (0..count).map(|_| field()).collect::<Option<_>>()?;
    Some(CatalogSensor { sensor, fields, is_stored: false, meta: None, has_more_meta: true })
}

impl Cluster {
    /// Answers a question from this instance's memory. `None` if it ends, or the question is malformed.
    pub async fn answer(&self, text: &[u8]) -> Option<Vec<u8>> {
        let ingest = self.ingest.upgrade()?;
        let _turn = self.answers.acquire().await.ok()?;
        let answer = match Question::decode(text)? {
            Question::News { since } => {
                let since = since.iter().find(|(folder, _)| *folder == self.own.folder.0).map(|(_, version)| *version);
                self.news(&ingest, since)
            }
            Question::Readings { database, sensors, hours } => {
                let keys: Vec<&str> = sensors.iter().map(String::as_str).collect();
                match ingest.unflushed(&database, &keys, hours).await {
                    Ok(hours) => Answer::Readings { heard: self.heard(&ingest), hours },
                    Err(_) => Answer::Wait,
                }
            }
            Question::Flush => match ingest.flush_own(FLUSH_TIMEOUT).await {
                Ok(()) => Answer::Flushed,
                Err(_) => Answer::Wait,
            },
            Question::Documents { database, sensors } => {
                let keys: Vec<&str> = sensors.iter().map(String::as_str).collect();
                match ingest.outdated_documents(&database, &keys).await {
                    Ok(documents) => {
                        Answer::Documents(documents.iter().map(|document| sensor_document(document, None)).collect())
                    }
                    Err(_) => Answer::Wait,
                }
            }
        };
        Some(answer.encode())
    }

    fn news(&self, ingest: &Ingest, since: Option<u64>) -> Answer {
        let Ok(version) = ingest.catalog_version(None) else { return Answer::Wait };
        let since = since.unwrap_or(version.additions);
        let of_database = |database: Arc<crate::catalog::Database>| {
            let sensors: Vec<CatalogSensor> = ingest.catalog.news(&database, since);
            let sensors: Vec<CatalogSensor> = sensors.into_iter().filter(|sensor| !sensor.fields.is_empty()).collect();
            (!sensors.is_empty() || database.has_unflushed()).then(|| (database.name.to_string(), sensors))
        };
        let sensors = ingest.catalog.databases().into_iter().filter_map(of_database).collect();
        Answer::News { heard: self.heard(ingest), additions: version.additions, sensors }
    }

    fn heard(&self, ingest: &Ingest) -> Heard {
        Heard { folder: self.own.folder.0, changes: ingest.changes().now() }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn questions_and_answers_come_back() {
        let hours = Hour(-3)..Hour(500_000);
        let questions = [
            Question::News { since: vec![(u64::MAX, 7)] },
            Question::Readings { database: "d".to_owned(), sensors: vec!["m,a=b".to_owned(), String::new()], hours },
            Question::Flush,
            Question::Documents { database: "d".to_owned(), sensors: vec!["m".to_owned()] },
        ];
        for question in questions {
            assert_eq!(Question::decode(&question.encode()), Some(question));
        }
        let sensor = Arc::new(Sensor::from_key("m,a=b").unwrap());
        let fields = vec![(Arc::from("x"), Family::Number), (Arc::from("y"), Family::String)];
        let sensor = CatalogSensor { sensor, fields, is_stored: false, meta: None, has_more_meta: true };
        let heard = Heard { folder: 9, changes: 3 };
        let news = Answer::News { heard, additions: 4, sensors: vec![("d".to_owned(), vec![sensor])] };
        for answer in [
            news,
            Answer::Readings { heard, hours: vec![Vec::new()] },
            Answer::Wait,
            Answer::Documents(vec![vec![5], Vec::new()]),
        ] {
            let bytes = answer.encode();
            assert_eq!(format!("{:?}", Answer::decode(&bytes).unwrap()), format!("{answer:?}"));
        }
    }
}
