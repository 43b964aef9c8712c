//! Bodies of Prometheus remote write and of OTLP/HTTP metrics, after decompression: every point stays within the limits,
//! and the same body gives the same points again.

use hourglass::reading::Limits;
use hourglass::wire::Points;
use hourglass::wire::push::{otlp, remote_write};

/// # Panics
/// If a body breaks a property.
pub fn check(data: &[u8]) {
    let limits = Limits { line_bytes: 4096, tags: 8, fields: 20, name_bytes: 64 };
    let samples = count(remote_write::Samples::new(data, limits), &limits);
    assert_eq!(samples, count(remote_write::Samples::new(data, limits), &limits));
    let points = count(otlp::DataPoints::new(data, limits), &limits);
    assert_eq!(points, count(otlp::DataPoints::new(data, limits), &limits));
    // A point or a mistake takes at least the two bytes of its head.
    assert!(samples.0 + samples.1 <= data.len() && points.0 + points.1 <= data.len() * limits.fields);
}

/// Returns the numbers of points and rejections.
fn count<'a>(mut points: impl Points<'a>, limits: &Limits) -> (usize, usize) {
    let mut counts = (0, 0);
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            return counts;
        };
        match point {
            Ok(point) => {
                let sensor = point.sensor(limits).expect("the sensor is valid");
                assert!(sensor.tags.len() <= limits.tags);
                assert!((1..=limits.fields).contains(&point.fields.len()));
                counts.0 += 1;
            }
            Err(rejection) => {
                assert!(!rejection.message().is_empty());
                counts.1 += 1;
            }
        }
    }
}

/// A remote-write series with two samples and a repeated one without, and OTLP gauges, a sum and a histogram.
pub fn seeds() -> Vec<Vec<u8>> {
    let double = |number: u8, value: f64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let fixed = |number: u8, value: u64| [&[number << 3 | 1][..], &value.to_le_bytes()].concat();
    let varint = |number: u8, value: u8| vec![number << 3, value & 0x7f];
    let label = |name: &[u8], value: &[u8]| message(1, &[message(1, name), message(2, value)].concat());
    let sample = |value: f64, time: u8| message(2, &[double(1, value), varint(2, time)].concat());
    let names = [label(b"__name__", b"up"), label(b"job", b"node")].concat();
    let series = message(1, &[&names[..], &sample(1.0, 1), &sample(f64::NAN, 2), &sample(2.5, 3)].concat());
    let writes = [&series[..], &message(1, &names), &message(3, b"x"), &series].concat();
    let attribute = |number: u8, value: &[u8]| message(number, &[message(1, b"k"), message(2, value)].concat());
    let number =
        |value: &[u8]| message(1, &[&fixed(3, 1_768_485_600)[..], value, &attribute(7, &message(1, b"v"))].concat());
    let metric = |kind: u8, points: &[u8]| message(2, &[message(1, b"m"), message(kind, points)].concat());
    let buckets = [message(6, &[1; 24]), message(7, &1.5f64.to_le_bytes()), fixed(4, 3), double(5, 4.5)].concat();
    let metrics =
        [metric(5, &number(&double(4, 1.5))), metric(7, &number(&fixed(6, 7))), metric(9, &message(1, &buckets))];
    let scope = message(2, &[message(1, &message(1, b"lib")), metrics.concat()].concat());
    let resource = message(1, &attribute(1, &varint(2, 1)));
    vec![writes, message(1, &[&resource[..], &scope, &scope].concat()), scope, Vec::new()]
}

/// A field of a protobuf message that is a text or a message.
fn message(number: u8, body: &[u8]) -> Vec<u8> {
    let low = body.len() as u8 & 0x7f;
    let length = if body.len() < 0x80 { vec![low] } else { vec![low | 0x80, (body.len() >> 7) as u8] };
    [&[number << 3 | 2][..], &length, body].concat()
}
