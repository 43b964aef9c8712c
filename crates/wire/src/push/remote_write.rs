//! The parser of Prometheus remote write 1.0, after decompression. The label `__name__` is the measurement, the other
//! labels are tags, and each sample is a reading with the field `value`.

use std::borrow::Cow;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Precision, Reason, Rejection, Sensor};

use super::protobuf::{Fields, Value, text};
use super::series::{RefusedSensor, Tags};
use crate::point::{Point, PointSeries, Points, Skipped};

/// The label with the name of the metric.
const NAME_LABEL: &str = "__name__";
/// Field numbers of the messages.
const TIME_SERIES: u64 = 1;
const LABELS: u64 = 1;
const SAMPLES: u64 = 2;
const HISTOGRAMS: u64 = 4;

/// A parser that yields the samples of a `WriteRequest` one at a time.
///
/// It leaves out values that are not finite, which no summary can include: NaN, infinities, and the NaN that marks the
/// end of a series. Metadata and exemplars are ignored.
#[derive(Debug)]
pub struct Samples<'a> {
    request: Fields<'a>,
    /// The rest of the current series.
    series: Fields<'a>,
    sensor: Result<Sensor, RefusedSensor>,
    /// The field of the current sample, which the returned point borrows.
    field: [(Cow<'a, str>, RawValue<'a>); 1],
    /// The number of samples so far.
    number: usize,
    skipped: Skipped,
    limits: Limits,
}

impl<'a> Samples<'a> {
    /// A parser of `body`, an encoded `WriteRequest`.
    #[must_use]
    pub fn new(body: &'a [u8], limits: Limits) -> Self {
        Self {
            request: Fields::new(body),
            series: Fields::default(),
            sensor: Tags::default().sensor("", &limits),
            field: [(Cow::Borrowed("value"), RawValue::Float(0.0))],
            number: 0,
            skipped: Skipped::default(),
            limits,
        }
    }

    /// Advances to the next finite sample of a valid sensor, and returns its timestamp. `None` is the end or a pause.
    fn advance(&mut self) -> Option<Result<i64, Rejection>> {
        self.skipped.reset();
        while !self.skipped.note() {
            let Some(field) = self.series.next() else {
                let Some(series) = self.request.next_bytes(TIME_SERIES) else {
                    self.skipped.reset();
                    return None;
                };
                if let Err(reason) = series.and_then(|series| self.begin(series)) {
                    return Some(Err(self.reject(reason)));
                }
                continue;
            };
            let sample = match field {
                Ok((SAMPLES, Value::Bytes(sample))) => read_sample(sample),
                Ok((HISTOGRAMS, _)) => {
                    Err(Reason::Unsupported("native histograms are not supported: set send_native_histograms to false"))
                }
                Ok(_) => continue,
                Err(reason) => Err(reason),
            };
            self.number += 1;
            match sample {
                Ok((value, _)) if !value.is_finite() => {}
                Ok((value, timestamp)) => {
                    self.field[0].1 = RawValue::Float(value);
                    return Some(match &self.sensor {
                        Ok(_) => Ok(timestamp),
                        Err(refused) => Err(refused.reject(self.number, &self.field, Some(timestamp))),
                    });
                }
                Err(reason) => return Some(Err(self.reject(reason))),
            }
        }
        None
    }

    /// Reads the labels of a series, which may be anywhere in it.
    fn begin(&mut self, series: &'a [u8]) -> Result<(), Reason> {
        // If the series is damaged, no sensor is known.
        self.sensor = Tags::default().sensor("", &self.limits);
        let mut measurement = "";
        let mut tags = Tags::default();
        let mut fields = Fields::new(series);
        while let Some(label) = fields.next_bytes(LABELS).transpose()? {
            let (name, value) = read_label(label)?;
            if name == NAME_LABEL {
                measurement = value;
            } else {
                tags.push(name, value, &self.limits);
            }
        }
        self.sensor = tags.sensor(measurement, &self.limits);
        self.series = Fields::new(series);
        Ok(())
    }

    /// A rejection of a series or sample that cannot be quoted as a line.
    fn reject(&self, reason: Reason) -> Rejection {
        let measurement = self.sensor.as_ref().map_or("", |sensor| &sensor.measurement);
        Rejection::new(self.number.max(1), 0, measurement.as_bytes(), reason)
    }
}

impl<'a> Points<'a> for Samples<'a> {
    const IS_SLOW: bool = true;

    fn is_paused(&self) -> bool {
        self.skipped.is_pause()
    }

    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let timestamp = match self.advance()? {
            Ok(timestamp) => timestamp,
            Err(rejection) => return Some(Err(rejection)),
        };
        let series = PointSeries::Read(self.sensor.as_ref().ok()?);
        let timestamp = Some(timestamp);
        Some(Ok(Point { number: self.number, text: b"", series, fields: &self.field, timestamp, has_unit: true }))
    }
}

/// Reads the name and the value of a label.
fn read_label(label: &[u8]) -> Result<(&str, &str), Reason> {
    let mut name = "";
    let mut value = "";
    for field in Fields::new(label) {
        match field? {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (2, Value::Bytes(bytes)) => value = text(bytes)?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Reads the value of a sample, and its timestamp in nanoseconds. Absent fields are zero.
fn read_sample(sample: &[u8]) -> Result<(f64, i64), Reason> {
    let mut value = 0.0;
    let mut milliseconds = 0;
    for field in Fields::new(sample) {
        match field? {
            (1, Value::Fixed64(bits)) => value = f64::from_bits(bits),
            (2, Value::Varint(number)) => milliseconds = number.cast_signed(),
            _ => {}
        }
    }
    let timestamp = Precision::Milliseconds.to_ns(milliseconds);
    Ok((value, timestamp.ok_or_else(|| Reason::TimeOutOfRange(milliseconds.to_string()))?))
}
