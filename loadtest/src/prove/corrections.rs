//! Checks that corrections win: sends another value of one of two fields for the same timestamps, while the first value
//! is in memory, and after an orderly stop. Reads the result several times, and again after another stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::Result;

use super::reading::{FIELDS, Range, Reading, Sample, sensor_name, yesterday};
use super::writer::Subject;

/// Timestamps of each kind. Below 50, because VictoriaMetrics may adjust the ends of longer ranges.
const TIMESTAMPS: u32 = 40;
/// Seconds between two timestamps.
const STEP_S: i64 = 60;
/// Number of reads after each step.
const READS: usize = 5;

/// A kind of correction. Its index is the number of its sensor.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    is_raised: bool,
    is_later: bool,
}

const KINDS: [Kind; 4] = [
    Kind { name: "raised at once", is_raised: true, is_later: false },
    Kind { name: "lowered at once", is_raised: false, is_later: false },
    Kind { name: "raised after a restart", is_raised: true, is_later: true },
    Kind { name: "lowered after a restart", is_raised: false, is_later: true },
];

/// The results of one kind of correction.
#[derive(Debug, Clone, Default)]
pub struct CorrectionCounts {
    pub kind: String,
    pub corrections: u64,
    /// Corrections that the first read after the ack returns.
    pub read_first: u64,
    /// Corrections that the last read returns, after an orderly stop.
    pub read_at_end: u64,
    /// Timestamps for which reads after the correction differ from each other.
    pub unstable: u64,
    /// Timestamps for which the last read returns both values.
    pub both_values: u64,
    /// Timestamps whose other, uncorrected field is unchanged.
    pub other_field_unchanged: u64,
}

/// The value of the corrected field, by sensor and time.
type Values = BTreeMap<(String, i64), f64>;

pub async fn prove(subject: &mut Subject<'_>) -> Result<Vec<CorrectionCounts>> {
    let from = yesterday();
    let range = Range { from, to: from + i64::from(TIMESTAMPS) * STEP_S * 1000 };
    let originals: Vec<Reading> =
        (0..4).flat_map(|sensor| (0..TIMESTAMPS).map(move |n| original(from, sensor, n))).collect();
    subject.write(&originals).await?;
    subject.make_visible().await?;
    let mut reads = Vec::new();
    subject.write(&corrections(from, false)).await?;
    read(subject, range, &mut reads).await?;
    subject.system.restart().await?;
    read(subject, range, &mut reads).await?;
    let before_later = reads.len();
    subject.write(&corrections(from, true)).await?;
    read(subject, range, &mut reads).await?;
    subject.system.restart().await?;
    read(subject, range, &mut reads).await?;
    let samples = subject.samples(range).await?;
    let counts = KINDS.iter().enumerate().map(|(sensor, kind)| {
        let reads = if kind.is_later { &reads[before_later..] } else { &reads[..] };
        judge(*kind, u32::try_from(sensor).unwrap_or(0), from, reads, &samples)
    });
    Ok(counts.collect())
}

fn original(from: i64, sensor: u32, number: u32) -> Reading {
    let time = from + i64::from(number) * STEP_S * 1000;
    Reading { sensor, time, temp: f64::from(2000 + number) / 100.0, humidity: Some(f64::from(40 + number)) }
}

fn correction(from: i64, sensor: u32, number: u32, kind: Kind) -> Reading {
    let temp = f64::from(if kind.is_raised { 3050 } else { 1050 } + number) / 100.0;
    Reading { temp, humidity: None, ..original(from, sensor, number) }
}

fn corrections(from: i64, is_later: bool) -> Vec<Reading> {
    let kinds = (0..).zip(KINDS).filter(|(_, kind)| kind.is_later == is_later);
    kinds.flat_map(|(sensor, kind)| (0..TIMESTAMPS).map(move |number| correction(from, sensor, number, kind))).collect()
}

async fn read(subject: &mut Subject<'_>, range: Range, reads: &mut Vec<Values>) -> Result<()> {
    subject.make_visible().await?;
    for _ in 0..READS {
        let samples = subject.values(range, STEP_S).await?;
        let temps = samples.into_iter().filter(|sample| sample.field == FIELDS[0]);
        // If both values are returned, a client takes the last one.
        reads.push(temps.map(|sample| ((sample.sensor, sample.time), sample.value)).collect());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

fn judge(kind: Kind, sensor: u32, from: i64, reads: &[Values], samples: &[Sample]) -> CorrectionCounts {
    let name = sensor_name(sensor);
    let right: Vec<(Reading, f64)> =
        (0..TIMESTAMPS).map(|n| (original(from, sensor, n), correction(from, sensor, n, kind).temp)).collect();
    let is_read = |read: Option<&Values>, (reading, temp): &(Reading, f64)| {
        read.and_then(|read| read.get(&(name.clone(), reading.time))) == Some(temp)
    };
    let count = |holds: &dyn Fn(&(Reading, f64)) -> bool| {
        u64::try_from(right.iter().filter(|one| holds(one)).count()).unwrap_or(u64::MAX)
    };
    let returned = |time: i64, field: &str| -> BTreeSet<u64> {
        let is_returned = |sample: &&Sample| sample.sensor == name && sample.time == time && sample.field == field;
        samples.iter().filter(is_returned).map(|sample| sample.value.to_bits()).collect()
    };
    CorrectionCounts {
        kind: kind.name.to_owned(),
        corrections: u64::from(TIMESTAMPS),
        read_first: count(&|one| is_read(reads.first(), one)),
        read_at_end: count(&|one| is_read(reads.last(), one)),
        unstable: count(&|(reading, _)| {
            let key = (name.clone(), reading.time);
            let seen: BTreeSet<Option<u64>> =
                reads.iter().map(|read| read.get(&key).map(|value| value.to_bits())).collect();
            seen.len() > 1
        }),
        both_values: count(&|(reading, _)| returned(reading.time, FIELDS[0]).len() > 1),
        other_field_unchanged: count(&|(reading, _)| {
            let expected: BTreeSet<u64> = reading.humidity.map(f64::to_bits).into_iter().collect();
            returned(reading.time, FIELDS[1]) == expected
        }),
    }
}
