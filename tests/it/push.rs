//! Prometheus remote write and OTLP metrics: what a real Prometheus and a real exporter push, statuses by their
//! specifications, and hostile bodies.

use crate::deploy::prometheus::{Prometheus, program};
use crate::support::packed::gzip;
use crate::support::prelude::*;

const REMOTE_WRITE: [(&str, &str); 2] = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
const OTLP: [(&str, &str); 1] = [("content-type", "application/x-protobuf")];

fn snappy(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(body).unwrap()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field of a protobuf message: a message or a text.
fn field(number: u64, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [varint(number << 3 | 2), varint(body.len() as u64), body.to_vec()].concat()
}

fn fixed64(number: u64, value: u64) -> Vec<u8> {
    [varint(number << 3 | 1), value.to_le_bytes().to_vec()].concat()
}

fn double(number: u64, value: f64) -> Vec<u8> {
    fixed64(number, value.to_bits())
}

/// A series of a `WriteRequest`, with samples in milliseconds.
fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in labels {
        body.extend(field(1, [field(1, name), field(2, value)].concat()));
    }
    for (value, time) in samples {
        body.extend(field(2, [double(1, *value), varint(2 << 3), varint(time.cast_unsigned())].concat()));
    }
    field(1, body)
}

/// A request with one scope of a resource `service.name=shop`.
fn export(metrics: &[Vec<u8>]) -> Vec<u8> {
    let service = field(1, [field(1, "service.name"), field(2, field(1, "shop"))].concat());
    field(1, [field(1, service), field(2, metrics.concat())].concat())
}

/// A gauge with one point per value, in nanoseconds from START on.
fn gauge(name: &str, values: &[f64]) -> Vec<u8> {
    let point = |(n, value): (usize, &f64)| field(1, [fixed64(3, START as u64 + n as u64), double(4, *value)].concat());
    let points: Vec<u8> = values.iter().enumerate().flat_map(point).collect();
    field(2, [field(1, name), field(5, points)].concat())
}

fn push(server: &Server, body: &[u8]) -> Answer {
    post(&server.url("/api/v1/write?db=d"), snappy(body), &REMOTE_WRITE)
}

fn export_to(server: &Server, body: &[u8]) -> Answer {
    post(&server.url("/v1/metrics?db=d"), body, &OTLP)
}

#[test]
fn samples_are_stored_and_rejected_one_by_one() {
    let server = Launch::embedded().start();
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    let good = [
        series(&[("__name__", "up"), ("job", "a")], &[(1.0, 1_768_485_600_000), (stale, 1_768_485_601_000)]),
        series(&[("__name__", "up"), ("job", "b")], &[(f64::INFINITY, 1_768_485_600_000), (0.0, 1_768_485_600_001)]),
    ]
    .concat();
    let answer = push(&server, &good).expect(204);
    assert!(answer.body.is_empty());
    push(&server, &good).expect(204);
    let bad = series(&[("__name__", "up"), ("job", "a\nb")], &[(1.0, 1_768_485_600_000)]);
    let answer = push(&server, &[bad, series(&[("__name__", "up")], &[(2.5, 5)])].concat()).expect(400);
    assert!(answer.text().contains("partial write") && answer.text().contains("U+000A"), "{}", answer.text());
    for (sensor, time, value) in [
        ("up", 5_000_000, "2.5"),
        ("up,job=a", 1_768_485_600_000_000_000, "1"),
        ("up,job=b", 1_768_485_600_001_000_000, "0"),
    ] {
        let stored = readings(&server, "d", sensor, None, 10);
        assert_eq!(stored, [(time, BTreeMap::from([("value".to_owned(), value.to_owned())]))], "{sensor}");
    }
    // Values of another type than the field has are rejected with their line.
    write(&server, "text,job=a value=\"x\" 1768485600");
    push(&server, &series(&[("__name__", "text"), ("job", "a")], &[(1.5, 1_768_485_600_000)])).expect(400);
    let kept = || server.fetch("/api/v1/rejections?db=d&code=family")["rejections"].clone();
    wait_until("the rejection is listed", || kept().as_array().is_some_and(|kept| !kept.is_empty()));
    assert_eq!(kept()[0]["text"], "text,job=a value=1.5 1768485600000000000", "{}", kept());
}

/// Bodies beyond 64 KiB after decompression are parsed as bulk work.
#[test]
fn large_pushes_are_complete() {
    let server = Launch::embedded().start();
    let sample = |n: i64| series(&[("__name__", "many"), ("s", &(n % 7).to_string())], &[(n as f64, n)]);
    push(&server, &(0..5_000).flat_map(sample).collect::<Vec<u8>>()).expect(204);
    let values: Vec<f64> = (0..5_000).map(f64::from).collect();
    let answer = post(
        &server.url("/v1/metrics?db=d"),
        gzip(&export(&[gauge("points", &values)]), 1),
        &[OTLP[0], ("content-encoding", "gzip")],
    );
    assert!(answer.expect(200).body.is_empty());
    for name in ["many", "points"] {
        assert_eq!(influxql(&server, &format!("SELECT count(value) FROM {name}"))[0]["values"][0][1], 5_000, "{name}");
    }
}

#[test]
fn data_points_are_stored_and_rejected_one_by_one() {
    let server = Launch::embedded().start();
    let answer = export_to(&server, &export(&[gauge("load", &[0.5, f64::NAN, 1.5])])).expect(200);
    assert_eq!((answer.header("content-type"), &*answer.body), (Some("application/x-protobuf"), &[][..]));
    assert_eq!(readings(&server, "d", "load,service.name=shop", None, 10).len(), 2);
    export_to(&server, b"").expect(200);

    // `partial_success` with `rejected_data_points` and `error_message`.
    let mixed = export(&[gauge("", &[1.0, 2.0]), gauge("load", &[2.5])]);
    let answer = export_to(&server, &mixed).expect(200);
    assert!(answer.body[0] == 10 && answer.body[1..7].windows(3).any(|bytes| bytes == [8, 2, 18]), "{:?}", answer.body);
    assert!(String::from_utf8_lossy(&answer.body).contains("expected a measurement"));

    // A `google.rpc.Status` with its code and message.
    for (body, reason) in
        [(export(&[gauge("", &[1.0])]), "expected a measurement"), (vec![10, 200], "invalid protobuf")]
    {
        let answer = export_to(&server, &body).expect(400);
        assert_eq!(
            (answer.header("content-type"), &answer.body[..3]),
            (Some("application/x-protobuf"), &[8, 3, 18][..])
        );
        assert!(String::from_utf8_lossy(&answer.body).contains(reason), "{reason}");
    }
}

#[test]
fn other_bodies_are_refused_with_directions() {
    let server = Launch::embedded().start();
    let v2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request";
    for (headers, direction) in [
        (vec![], "/write"),
        (vec![("content-type", "application/x-protobuf")], "snappy"),
        (vec![REMOTE_WRITE[0], ("content-encoding", "gzip")], "snappy"),
        (vec![("content-type", "application/json"), REMOTE_WRITE[1]], "/api/v1/readings"),
        (vec![("content-type", v2), REMOTE_WRITE[1]], "prometheus.WriteRequest"),
    ] {
        let answer = post(&server.url("/api/v1/write"), "m v=1", &headers).expect(415);
        assert!(answer.text().contains(direction), "{headers:?}: {}", answer.text());
    }
    let v1 = "application/x-protobuf;proto=prometheus.WriteRequest";
    post(&server.url("/api/v1/write"), snappy(b""), &[("content-type", v1), REMOTE_WRITE[1]]).expect(204);
    let answer = post(&server.url("/v1/metrics"), "{}", &[("content-type", "application/json")]).expect(415);
    assert!(String::from_utf8_lossy(&answer.body).contains("application/x-protobuf"));
    let answer = post(&server.url("/v1/metrics"), "x", &[OTLP[0], ("content-encoding", "br")]).expect(415);
    assert!(String::from_utf8_lossy(&answer.body).contains("gzip"));
}

/// Prometheus drops what gets a 429, and senders of OTLP retry it.
#[test]
fn quotas_are_answered_as_senders_need_it() {
    let server = Launch::embedded().config("[quota]\ndatabase_readings = 1\n").start();
    let samples: Vec<(f64, i64)> = (0..1_000).map(|n| (1.0, n)).collect();
    push(&server, &series(&[("__name__", "m")], &samples)).expect(204);
    let answer = push(&server, &series(&[("__name__", "m")], &[(1.0, 1)])).expect(503);
    assert!(answer.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    let answer = export_to(&server, &export(&[gauge("m", &[1.0])])).expect(429);
    assert!(answer.header("retry-after").is_some());
    assert_eq!((answer.header("content-type"), &answer.body[..2]), (Some("application/x-protobuf"), &[8, 8][..]));
}

#[test]
fn hostile_bodies_are_refused_in_little_memory() {
    let server = Launch::embedded().config("[limits]\nbody_bytes = \"32MiB\"\n").start();
    let raw = |body: &[u8]| post(&server.url("/api/v1/write?db=d"), body, &REMOTE_WRITE);
    let good = series(&[("__name__", "m")], &[(1.0, 1)]);
    let packed = snappy(&good.repeat(100));
    raw(&[]).expect(400);
    raw(&packed[..packed.len() / 2]).expect(400);
    // Claimed lengths: 4 GiB less one byte, more than 32 bits have, and 16 MiB of a few bytes.
    for (claimed, status) in [(0xffff_ffff, 413), (0x1_0000_0000, 400), (16 << 20, 400)] {
        let answer = raw(&[varint(claimed), b"\x00x".to_vec()].concat()).expect(status);
        assert!(answer.text().contains("snappy") || answer.text().contains("body_bytes"), "{}", answer.text());
    }
    // A million labels in one series, a million series without samples, and deep nesting.
    forget_peak(server.pid());
    let before = peak_bytes(server.pid());
    let label = field(1, [field(1, "a"), field(2, "b")].concat());
    let labels = field(1, [label.repeat(1_000_000), series(&[], &[(1.0, 1)])[2..].to_vec()].concat());
    assert!(push(&server, &labels).expect(400).text().contains("limits.tags"));
    push(&server, &field(1, []).repeat(1_000_000)).expect(204);
    let nested = (0..2_000).fold(good.clone(), |body, _| field(1, body));
    assert!([204, 400].contains(&push(&server, &nested).status));
    let attributes = field(1, [field(1, "a"), field(2, field(1, "b"))].concat()).repeat(1_000_000);
    let resource = field(1, [field(1, attributes), field(2, gauge("g", &[1.0]))].concat());
    let answer = export_to(&server, &resource);
    assert_eq!(answer.status, 200, "an attribute sent again replaces itself");
    export_to(&server, &(0..2_000).fold(good.clone(), |body, _| field(1, body)));
    let grown = peak_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 160 << 20, "{grown} bytes");
    // Neither UTF-8 nor protobuf.
    let invalid = field(1, field(1, [field(1, b"\xff\xfe"), field(2, "b")].concat()));
    assert!(push(&server, &[good.clone(), invalid, good.clone()].concat()).expect(400).text().contains("UTF-8"));
    push(&server, &[good, vec![0xff; 20]].concat()).expect(400);
    assert_eq!(influxql(&server, "SELECT count(value) FROM m")[0]["values"][0][1], 1);
}

/// Scrapes the service's own metrics and pushes them back. Each stored sample equals the one that Prometheus keeps.
#[test]
fn a_real_prometheus_pushes_what_it_scraped() {
    let Some(program) = program() else { return };
    let server = Launch::embedded().start();
    let address = server.address();
    let config = format!(
        "global: {{scrape_interval: 200ms}}\n\
         scrape_configs: [{{job_name: own, static_configs: [{{targets: ['{address}']}}]}}]\n\
         remote_write: [{{url: 'http://{address}/api/v1/write?db=d', queue_config: {{batch_send_deadline: 200ms}}}}]\n"
    );
    let prometheus = Prometheus::start_with(&program, &config);
    let name = "hourglass_http_requests_total";
    let pushes = format!("{name}{{route=\"/api/v1/write\",status=\"204\"}}");
    wait_until("some pushes are scraped", || {
        let count = |series: &Value| series["value"][1].as_str().and_then(|count| count.parse().ok()).unwrap_or(0.0);
        prometheus.ask(&pushes).first().is_some_and(|series| count(series) >= 5.0)
    });
    let url =
        server.url(&format!("/query?db=d&epoch=ms&q={}", encode(&format!("SELECT value FROM {name} GROUP BY *"))));
    let stored = get(&url).expect(200).json()["results"][0]["series"].clone();
    let mut compared = 0;
    for series in prometheus.ask(&format!("{name}[10m]")) {
        let mut labels = series["metric"].clone();
        labels.as_object_mut().unwrap().remove("__name__");
        let Some(found) = stored.as_array().unwrap().iter().find(|stored| stored["tags"] == labels) else { continue };
        let samples = series["values"].as_array().unwrap().iter();
        let samples: Vec<(i64, f64)> = samples
            .map(|sample| {
                ((sample[0].as_f64().unwrap() * 1e3).round() as i64, sample[1].as_str().unwrap().parse().unwrap())
            })
            .collect();
        let rows = found["values"].as_array().unwrap().iter();
        let rows: Vec<(i64, f64)> = rows.map(|row| (row[0].as_i64().unwrap(), row[1].as_f64().unwrap())).collect();
        // Prometheus pushes what it scraped since its start, and the last samples are on their way.
        let first =
            samples.iter().position(|sample| *sample == rows[0]).unwrap_or_else(|| panic!("{labels}: {rows:?}"));
        assert_eq!(samples[first..][..rows.len()], rows, "{labels}");
        compared += rows.len();
    }
    assert!(compared >= 5, "{compared} samples");
    assert!(server.fetch("/api/v1/rejections?db=d")["rejections"].as_array().unwrap().is_empty());
}
