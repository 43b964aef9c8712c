//! The parser of OTLP metrics in protobuf. The name of a metric is the measurement, the attributes of its resource, scope
//! and data point are tags, and each data point is a reading.

use std::borrow::Cow;

use hourglass_model::reading::value::RawValue;
use hourglass_model::reading::{Limits, Precision, Reason, Rejection, Sensor};

use super::protobuf::{Fields, Value, packed_fixed64, put_bytes_field, put_number_field, text};
use super::series::Tags;
use crate::fields::keep_last_of_equal_keys;
use crate::names;
use crate::point::{Point, PointSeries, Points, Skipped};

/// The bit of a data point's flags for a missing value.
const NO_RECORDED_VALUE: u64 = 1;

/// Maximum bytes of the keys of all sensors, per byte of the body. Each data point repeats the tags around it, so a few
/// bytes could cost the time of 64 KiB; usual bodies stay below 20.
const KEY_RATIO_MAX: usize = 200;

/// The kind of a metric's data points.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Of a gauge or a sum.
    Number,
    Histogram,
    ExponentialHistogram,
    Summary,
}

/// A parser that yields the data points of an `ExportMetricsServiceRequest` one at a time.
///
/// Gauges and sums have the field `value`. Histograms and summaries have `count` and `sum`, and as far as they are sent
/// `min`, `max`, `le_BOUND` with the number of values up to a bound, and `quantile_Q`. Values that are not finite are
/// left out, as are attributes that are lists, maps or bytes.
#[derive(Debug)]
pub struct DataPoints<'a> {
    resources: Fields<'a>,
    /// The rest of the current resource, scope and metric.
    scopes: Fields<'a>,
    metrics: Fields<'a>,
    points: Fields<'a>,
    resource_tags: Tags<'a>,
    /// The tags of the resource and the scope.
    scope_tags: Tags<'a>,
    metric: &'a str,
    kind: Kind,
    /// The current reading, which the returned point borrows.
    sensor: Option<Sensor>,
    fields: ReadFields<'a>,
    /// The number of data points so far.
    number: usize,
    /// The bytes that the keys of further sensors may have.
    key_bytes_left: usize,
    skipped: Skipped,
    limits: Limits,
}

impl<'a> DataPoints<'a> {
    /// A parser of `body`, an encoded `ExportMetricsServiceRequest`.
    #[must_use]
    pub fn new(body: &'a [u8], limits: Limits) -> Self {
        Self {
            resources: Fields::new(body),
            scopes: Fields::default(),
            metrics: Fields::default(),
            points: Fields::default(),
            resource_tags: Tags::default(),
            scope_tags: Tags::default(),
            metric: "",
            kind: Kind::Number,
            sensor: None,
            fields: ReadFields { list: Vec::new(), limit: limits.fields },
            number: 0,
            key_bytes_left: body.len().saturating_mul(KEY_RATIO_MAX),
            skipped: Skipped::default(),
            limits,
        }
    }

    /// Advances to the next data point with values, and returns its timestamp. `None` is the end or a pause.
    fn advance(&mut self) -> Option<Result<Option<i64>, Rejection>> {
        self.skipped.reset();
        while !self.skipped.note() {
            if let Some(point) = self.points.next_bytes(1) {
                self.number += 1;
                match point.map_err(|reason| self.reject(reason)).and_then(|point| self.read_point(point)) {
                    Ok(_) if self.fields.list.is_empty() => {}
                    result => return Some(result),
                }
                continue;
            }
            let begun = if let Some(metric) = self.metrics.next_bytes(2) {
                metric.and_then(|metric| self.begin_metric(metric))
            } else if let Some(scope) = self.scopes.next_bytes(2) {
                scope.and_then(|scope| self.begin_scope(scope))
            } else {
                let Some(resource) = self.resources.next_bytes(1) else {
                    self.skipped.reset();
                    return None;
                };
                resource.and_then(|resource| self.begin_resource(resource))
            };
            if let Err(reason) = begun {
                return Some(Err(self.reject(reason)));
            }
        }
        None
    }

    fn begin_resource(&mut self, message: &'a [u8]) -> Result<(), Reason> {
        let mut tags = Tags::default();
        let mut fields = Fields::new(message);
        while let Some(resource) = fields.next_bytes(1).transpose()? {
            let mut attributes = Fields::new(resource);
            while let Some(attribute) = attributes.next_bytes(1).transpose()? {
                set_tag(&mut tags, attribute, &self.limits)?;
            }
        }
        self.resource_tags = tags;
        self.scopes = Fields::new(message);
        Ok(())
    }

    fn begin_scope(&mut self, message: &'a [u8]) -> Result<(), Reason> {
        // Millions of empty scopes must not copy the tags of the resource.
        if message.is_empty() {
            return Ok(());
        }
        let mut tags = self.resource_tags.clone();
        let mut fields = Fields::new(message);
        while let Some(scope) = fields.next_bytes(1).transpose()? {
            for field in Fields::new(scope) {
                match field? {
                    (1, Value::Bytes(name)) => tags.set("otel.scope.name", text(name)?.into(), &self.limits),
                    (2, Value::Bytes(version)) => tags.set("otel.scope.version", text(version)?.into(), &self.limits),
                    (3, Value::Bytes(attribute)) => set_tag(&mut tags, attribute, &self.limits)?,
                    _ => {}
                }
            }
        }
        self.scope_tags = tags;
        self.metrics = Fields::new(message);
        Ok(())
    }

    fn begin_metric(&mut self, message: &'a [u8]) -> Result<(), Reason> {
        let mut name = "";
        let mut data = None;
        for field in Fields::new(message) {
            match field? {
                (1, Value::Bytes(bytes)) => name = text(bytes)?,
                (5 | 7, Value::Bytes(bytes)) => data = Some((Kind::Number, bytes)),
                (9, Value::Bytes(bytes)) => data = Some((Kind::Histogram, bytes)),
                (10, Value::Bytes(bytes)) => data = Some((Kind::ExponentialHistogram, bytes)),
                (11, Value::Bytes(bytes)) => data = Some((Kind::Summary, bytes)),
                _ => {}
            }
        }
        if let Some((kind, points)) = data {
            self.metric = name;
            self.kind = kind;
            self.points = Fields::new(points);
        }
        Ok(())
    }

    /// Reads a data point. Leaves `fields` empty if it has no value.
    fn read_point(&mut self, point: &'a [u8]) -> Result<Option<i64>, Rejection> {
        if self.key_bytes_left == 0 {
            return Err(
                self.reject(Reason::Unsupported("too many data points for such long attributes: send fewer at once"))
            );
        }
        let mut tags = self.scope_tags.clone();
        let timestamp = self.fields.read(self.kind, point, &mut tags, &self.limits);
        let timestamp = timestamp.map_err(|reason| self.reject(reason))?;
        if self.fields.list.is_empty() {
            return Ok(timestamp);
        }
        self.key_bytes_left = self.key_bytes_left.saturating_sub(self.metric.len() + tags.bytes());
        let sensor = tags.sensor(self.metric, &self.limits);
        let sensor = sensor.map_err(|refused| refused.reject(self.number, &self.fields.list, timestamp))?;
        self.sensor = Some(sensor);
        Ok(timestamp)
    }

    /// A rejection of a message that cannot be quoted as a line.
    fn reject(&self, reason: Reason) -> Rejection {
        Rejection::new(self.number.max(1), 0, self.metric.as_bytes(), reason)
    }
}

impl<'a> Points<'a> for DataPoints<'a> {
    const IS_SLOW: bool = true;

    fn is_paused(&self) -> bool {
        self.skipped.is_pause()
    }

    fn next(&mut self) -> Option<Result<Point<'_, 'a>, Rejection>> {
        let timestamp = match self.advance()? {
            Ok(timestamp) => timestamp,
            Err(rejection) => return Some(Err(rejection)),
        };
        let series = PointSeries::Read(self.sensor.as_ref()?);
        let fields = &self.fields.list;
        Some(Ok(Point { number: self.number, text: b"", series, fields, timestamp, has_unit: true }))
    }
}

/// The fields of a data point. Memory is bounded: at most one field more than allowed is kept.
#[derive(Debug)]
struct ReadFields<'a> {
    list: Vec<(Cow<'a, str>, RawValue<'a>)>,
    /// `limits.fields`.
    limit: usize,
}

impl<'a> ReadFields<'a> {
    /// Reads the fields, the tags and the timestamp of a data point.
    fn read(
        &mut self,
        kind: Kind,
        point: &'a [u8],
        tags: &mut Tags<'a>,
        limits: &Limits,
    ) -> Result<Option<i64>, Reason> {
        self.list.clear();
        let mut nanoseconds = 0;
        let mut flags = 0;
        let mut counts = Vec::new();
        let mut bounds = Vec::new();
        for field in Fields::new(point) {
            names::check_fields(self.list.len(), limits)?;
            let (number, value) = field?;
            match (kind, number, value) {
                (_, 3, Value::Fixed64(number)) => nanoseconds = number,
                (Kind::Number | Kind::Summary, 8, Value::Varint(bits)) => flags = bits,
                (Kind::Histogram | Kind::ExponentialHistogram, 10, Value::Varint(bits)) => flags = bits,
                (Kind::Number | Kind::Summary, 7, Value::Bytes(attribute))
                | (Kind::Histogram, 9, Value::Bytes(attribute))
                | (Kind::ExponentialHistogram, 1, Value::Bytes(attribute)) => set_tag(tags, attribute, limits)?,
                (Kind::Number, 4, Value::Fixed64(bits)) => self.push_float("value", bits),
                (Kind::Number, 6, Value::Fixed64(bits)) => self.push("value", RawValue::Integer(bits.cast_signed())),
                (Kind::Number, ..) => {}
                (_, 4, Value::Fixed64(count)) => self.push("count", RawValue::Unsigned(count)),
                (_, 5, Value::Fixed64(bits)) => self.push_float("sum", bits),
                (Kind::Summary, 6, Value::Bytes(quantile)) => self.push_quantile(quantile)?,
                (Kind::Histogram, 11, Value::Fixed64(bits)) => self.push_float("min", bits),
                (Kind::Histogram, 12, Value::Fixed64(bits)) => self.push_float("max", bits),
                (Kind::ExponentialHistogram, 12, Value::Fixed64(bits)) => self.push_float("min", bits),
                (Kind::ExponentialHistogram, 13, Value::Fixed64(bits)) => self.push_float("max", bits),
                (Kind::Histogram, 6, Value::Bytes(packed)) if counts.len() <= self.limit => {
                    counts.extend(packed_fixed64(packed).take(self.limit + 1));
                }
                (Kind::Histogram, 7, Value::Bytes(packed)) if bounds.len() <= self.limit => {
                    bounds.extend(packed_fixed64(packed).take(self.limit + 1));
                }
                _ => {}
            }
        }
        if flags & NO_RECORDED_VALUE != 0 {
            self.list.clear();
        }
        if !self.list.is_empty() {
            self.push_buckets(&bounds, &counts);
            names::check_fields(self.list.len(), limits)?;
            keep_last_of_equal_keys(&mut self.list, &mut Vec::new());
        }
        // Zero means unknown.
        if nanoseconds == 0 {
            return Ok(None);
        }
        let timestamp = i64::try_from(nanoseconds).ok().and_then(|number| Precision::Nanoseconds.to_ns(number));
        timestamp.map(Some).ok_or_else(|| Reason::TimeOutOfRange(nanoseconds.to_string()))
    }

    fn push(&mut self, name: impl Into<Cow<'a, str>>, value: RawValue<'a>) {
        if self.list.len() <= self.limit {
            self.list.push((name.into(), value));
        }
    }

    /// Adds a float. A value that is not finite is left out.
    fn push_float(&mut self, name: impl Into<Cow<'a, str>>, bits: u64) {
        let value = f64::from_bits(bits);
        if value.is_finite() {
            self.push(name, RawValue::Float(value));
        }
    }

    /// Adds the number of values up to each bound. That up to infinity is `count`.
    fn push_buckets(&mut self, bounds: &[u64], counts: &[u64]) {
        let mut total = 0_u64;
        for (bound, count) in bounds.iter().zip(counts) {
            total = total.saturating_add(*count);
            self.push(format!("le_{}", short(f64::from_bits(*bound))), RawValue::Unsigned(total));
        }
    }

    fn push_quantile(&mut self, message: &[u8]) -> Result<(), Reason> {
        let mut quantile = 0.0;
        let mut bits = 0;
        for field in Fields::new(message) {
            match field? {
                (1, Value::Fixed64(number)) => quantile = f64::from_bits(number),
                (2, Value::Fixed64(number)) => bits = number,
                _ => {}
            }
        }
        self.push_float(format!("quantile_{}", short(quantile)), bits);
        Ok(())
    }
}

/// Returns a number as text: `0.5`, and `1e-300` if the digits alone would be long.
fn short(number: f64) -> String {
    let text = number.to_string();
    if text.len() > 24 { format!("{number:e}") } else { text }
}

/// Adds the attribute of a `KeyValue` message to tags, if its value is a text, boolean or number.
fn set_tag<'a>(tags: &mut Tags<'a>, attribute: &'a [u8], limits: &Limits) -> Result<(), Reason> {
    let mut key = "";
    let mut value = Cow::Borrowed("");
    for field in Fields::new(attribute) {
        match field? {
            (1, Value::Bytes(bytes)) => key = text(bytes)?,
            (2, Value::Bytes(bytes)) => value = scalar(bytes)?,
            _ => {}
        }
    }
    tags.set(key, value, limits);
    Ok(())
}

/// Returns the text of an `AnyValue` message; an empty one for lists, maps and bytes.
fn scalar(message: &[u8]) -> Result<Cow<'_, str>, Reason> {
    let mut value = Cow::Borrowed("");
    for field in Fields::new(message) {
        value = match field? {
            (1, Value::Bytes(bytes)) => text(bytes)?.into(),
            (2, Value::Varint(bit)) => (bit != 0).to_string().into(),
            (3, Value::Varint(number)) => number.cast_signed().to_string().into(),
            (4, Value::Fixed64(bits)) => f64::from_bits(bits).to_string().into(),
            _ => continue,
        };
    }
    Ok(value)
}

/// Encodes an `ExportMetricsServiceResponse`. It is empty if everything was accepted.
#[must_use]
pub fn export_response(rejected: usize, message: &str) -> Vec<u8> {
    let mut response = Vec::new();
    if !message.is_empty() {
        let mut partial = Vec::new();
        put_number_field(&mut partial, 1, rejected as u64);
        put_bytes_field(&mut partial, 2, message.as_bytes());
        put_bytes_field(&mut response, 1, &partial);
    }
    response
}

/// Encodes a `google.rpc.Status`.
#[must_use]
pub fn rpc_status(code: u8, message: &str) -> Vec<u8> {
    let mut status = Vec::new();
    put_number_field(&mut status, 1, code.into());
    put_bytes_field(&mut status, 2, message.as_bytes());
    status
}
