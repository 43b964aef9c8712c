//! Messages encoded by `prost` are read as the same points, and hostile ones are rejected.

mod messages;

use proptest::prelude::*;
use prost::Message;

use self::messages::*;
use super::otlp::DataPoints;
use super::remote_write::Samples;
use crate::Points;
use hourglass_model::reading::Limits;

/// Renders the points of a body, one line each, and rejections with their number.
fn render<'a>(mut points: impl Points<'a>) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            break;
        };
        lines.push(match point {
            Ok(point) => point.refuse(0, hourglass_model::reading::Reason::NotUtf8).text,
            Err(rejection) => format!("{} of {:?}", rejection.message(), rejection.text),
        });
    }
    lines
}

fn samples(request: &WriteRequest) -> Vec<String> {
    render(Samples::new(&request.encode_to_vec(), Limits::default()))
}

fn data_points(request: &ExportRequest) -> Vec<String> {
    render(DataPoints::new(&request.encode_to_vec(), Limits::default()))
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    let label = |(name, value): &(&str, &str)| Label { name: (*name).to_owned(), value: (*value).to_owned() };
    let sample = |(value, timestamp): &(f64, i64)| Sample { value: *value, timestamp: *timestamp };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples.iter().map(sample).collect(),
        histograms: Vec::new(),
    }
}

/// Regression: bodies of messages without a point, 20 KB on the wire, kept a thread for 16 s: the parser skipped all of
/// them before it returned.
#[test]
fn messages_without_a_point_are_skipped_with_pauses() {
    let empty = (0..1_000).map(|_| ResourceMetrics::default());
    let point = Number { time: 5, value: Some(number::Value::Integer(1)), ..Number::default() };
    let data = Some(metric::Data::Gauge(Numbers { points: vec![point] }));
    let metrics = vec![Metric { name: "last".to_owned(), data }];
    let last = ResourceMetrics {
        scope_metrics: vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }],
        ..ResourceMetrics::default()
    };
    let body = ExportRequest { resource_metrics: empty.chain([last]).collect() }.encode_to_vec();
    let mut points = DataPoints::new(&body, Limits::default());
    let pauses = (0..).take_while(|_| points.next().is_none() && points.is_paused()).count();
    assert_eq!(pauses, 1_000 / crate::point::SKIPPED_MAX);
    assert!(points.next().is_none() && !points.is_paused());

    let series: Vec<_> =
        (0..1_000).map(|_| series(&[], &[])).chain([series(&[("__name__", "up")], &[(1.0, 5)])]).collect();
    assert_eq!(samples(&WriteRequest { timeseries: series, metadata: Vec::new() }), ["up value=1.0 5000000"]);
}

/// Regression: the digits of a subnormal bound made a name of 335 bytes out of 9, and each rejected field wrote them all.
#[test]
fn extreme_bounds_have_short_names() {
    let quantile = |quantile: f64| Quantile { quantile, value: 1.0 };
    let quantiles = [0.5, 5e-324, f64::MAX].map(quantile).to_vec();
    let summary = Summary { time: 5, count: 1, sum: 1.0, quantiles, ..Summary::default() };
    let data = Some(metric::Data::Summary(Summaries { points: vec![summary] }));
    let metrics = vec![Metric { name: "m".to_owned(), data }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..ScopeMetrics::default() }];
    let resource = ResourceMetrics { scope_metrics, ..ResourceMetrics::default() };
    let lines = data_points(&ExportRequest { resource_metrics: vec![resource] });
    let names = "quantile_0.5=1.0,quantile_5e-324=1.0,quantile_1.7976931348623157e308=1.0";
    assert!(lines[0].contains(names), "{lines:?}");
}

#[test]
fn a_sample_is_a_reading_of_its_series() {
    let request = WriteRequest {
        timeseries: vec![
            series(&[("__name__", "up"), ("job", "a b"), ("instance", "h:1"), ("empty", "")], &[(1.0, 5), (0.5, -6)]),
            // Neither a number that summaries can include nor a reason to refuse the others.
            series(
                &[("__name__", "gone")],
                &[(f64::from_bits(0x7ff0_0000_0000_0002), 7), (f64::INFINITY, 8), (3.0, 9)],
            ),
        ],
        metadata: vec![b"ignored".to_vec()],
    };
    assert_eq!(
        samples(&request),
        [
            r"up,instance=h:1,job=a\ b value=1.0 5000000",
            r"up,instance=h:1,job=a\ b value=0.5 -6000000",
            "gone value=3.0 9000000"
        ]
    );
}

#[test]
fn a_rejected_sample_does_not_affect_the_others() {
    let long = "x".repeat(2_000);
    let mut native = series(&[("__name__", "native")], &[(1.0, 1)]);
    native.histograms.push(vec![8, 1]);
    let many: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "x")).collect();
    let request = WriteRequest {
        timeseries: vec![
            series(&[("job", "nameless")], &[(1.0, 1)]),
            series(&[("__name__", "m"), ("a", "1"), ("a", "2")], &[(1.0, 1), (2.0, 2)]),
            series(&[("__name__", "m"), ("a", "new\nline")], &[(1.0, 1)]),
            series(&[("__name__", &long)], &[(1.0, 1)]),
            series(&many, &[(1.0, 1)]),
            series(&[("__name__", "late")], &[(1.0, i64::MAX)]),
            native,
            series(&[("__name__", "good")], &[(1.0, 1)]),
        ],
        metadata: Vec::new(),
    };
    let lines = samples(&request);
    assert_eq!(lines[0], r#"line 1: expected a measurement, found '"' of ",job=nameless value=1.0 1000000""#);
    assert_eq!(lines[1], r#"line 2: duplicate tags: the key "a" appears twice of "m value=1.0 1000000""#);
    assert!(lines[3].contains("U+000A") && lines[3].contains("new\\nline value"), "{}", lines[3]);
    assert!(lines[4].contains("limits.name_bytes") && lines[4].len() < 400, "{}", lines[4]);
    assert!(lines[5].starts_with("line 6: tags: 40 exceeds the limit of 32 (limits.tags)"), "{}", lines[5]);
    assert!(lines[6].starts_with("line 7: time outside range: 9223372036854775807"), "{}", lines[6]);
    assert_eq!(lines[7], "native value=1.0 1000000");
    assert!(lines[8].contains("send_native_histograms"), "{}", lines[8]);
    assert_eq!(lines[9..], ["good value=1.0 1000000"]);
}

/// Regression: each sample of a refused series, a few bytes, wrote the series' key of up to 64 KiB anew.
#[test]
fn a_long_refused_key_is_not_repeated_for_each_sample() {
    let long = "é".repeat(500);
    let names: Vec<String> = (0..20).map(|n| format!("k{n:02}")).collect();
    let mut labels: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*long)).collect();
    labels.extend([("__name__", "m"), ("z", "new\nline")]);
    let timeseries = vec![series(&labels, &[(1.0, 1), (2.0, 2)])];
    let body = WriteRequest { timeseries, metadata: Vec::new() }.encode_to_vec();
    let mut points = Samples::new(&body, Limits::default());
    for _ in 0..2 {
        let rejection = points.next().expect("a sample").expect_err("a tag is invalid");
        let whole = rejection.whole.expect("a text").0;
        assert!(whole.len() < 1_100 && whole.starts_with("m,k00=é") && whole.ends_with('…'), "{whole}");
    }
    assert!(points.next().is_none());
}

#[test]
fn a_damaged_message_is_one_rejection() {
    let good = WriteRequest { timeseries: vec![series(&[("__name__", "good")], &[(1.0, 1)])], metadata: Vec::new() };
    let good = good.encode_to_vec();
    let message = |bytes: &[u8]| [&[10, u8::try_from(bytes.len()).expect("short")], bytes].concat();
    for (damaged, reason) in [
        (&[10, 9, 1][..], "it ends within a field"),
        (&[10, 0xff], "it ends within a number"),
        (&[11], "unknown wire type"),
        (&[10, 4, 10, 2, 0xc3, 0x28], "not valid UTF-8"),
    ] {
        let body = [good.clone(), message(damaged), good.clone()].concat();
        let lines = render(Samples::new(&body, Limits::default()));
        assert_eq!(lines.len(), 3, "{damaged:?}: {lines:?}");
        assert!(lines[1].contains(reason), "{damaged:?}: {}", lines[1]);
        // What follows cannot be found without the length.
        let lines = render(Samples::new(&[good.clone(), vec![10, 0xff], good.clone()].concat(), Limits::default()));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(render(DataPoints::new(&message(damaged), Limits::default())).len() <= 1);
    }
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn word(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::Text(value.to_owned()))
}

/// A request with metrics of one scope of one resource.
fn export(metrics: Vec<Metric>) -> ExportRequest {
    let resource = Resource { attributes: vec![word("service.name", "shop"), word("zone", "a"), word("empty", "")] };
    let scope = Scope { name: "meter".to_owned(), version: String::new(), attributes: vec![word("zone", "b")] };
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
    ExportRequest { resource_metrics: vec![ResourceMetrics { resource: Some(resource), scope_metrics }] }
}

fn metric(name: &str, data: metric::Data) -> Metric {
    Metric { name: name.to_owned(), data: Some(data) }
}

fn number(value: number::Value) -> Number {
    Number { attributes: Vec::new(), time: 7, value: Some(value), flags: 0 }
}

#[test]
fn a_data_point_is_a_reading_with_the_attributes_around_it() {
    let attributes = vec![
        word("zone", "c"),
        attribute("ok", any_value::Value::Flag(true)),
        attribute("port", any_value::Value::Integer(-80)),
        attribute("load", any_value::Value::Float(0.5)),
        attribute("list", any_value::Value::Other(vec![10, 2, 10, 0])),
    ];
    let gauge = Numbers {
        points: vec![
            Number { attributes, ..number(number::Value::Float(1.5)) },
            Number { flags: 1, ..number(number::Value::Float(0.0)) },
            number(number::Value::Float(f64::NAN)),
            Number { time: 0, ..number(number::Value::Integer(-3)) },
            Number { time: u64::MAX, ..number(number::Value::Integer(1)) },
        ],
    };
    let around = "otel.scope.name=meter,";
    let metrics = vec![metric("g", metric::Data::Gauge(gauge.clone())), metric("s", metric::Data::Sum(gauge))];
    assert_eq!(
        data_points(&export(metrics))[..4],
        [
            format!("g,load=0.5,ok=true,{around}port=-80,service.name=shop,zone=c value=1.5 7"),
            format!("g,{around}service.name=shop,zone=b value=-3i"),
            "line 5: time outside range: 18446744073709551615 does not fit 1677-09-21 to 2262-04-11; is the precision \
             right? of \"g\""
                .to_owned(),
            format!("s,load=0.5,ok=true,{around}port=-80,service.name=shop,zone=c value=1.5 7"),
        ]
    );
}

#[test]
fn histograms_and_summaries_are_fields() {
    let histogram = Histogram {
        time: 7,
        count: 6,
        sum: Some(4.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        min: Some(0.25),
        max: None,
        attributes: vec![word("zone", "h")],
    };
    let many = Histogram { bucket_counts: vec![1; 1_000], explicit_bounds: vec![1.0; 1_000], ..histogram.clone() };
    let exponential =
        Exponential { time: 7, count: 2, sum: None, min: Some(1.0), max: Some(2.0), attributes: Vec::new() };
    let quantiles = vec![Quantile { quantile: 0.5, value: 3.0 }, Quantile { quantile: 1.0, value: f64::NAN }];
    let summary = Summary { time: 7, count: 2, sum: 9.0, quantiles, attributes: Vec::new() };
    let request = export(vec![
        metric("h", metric::Data::Histogram(Histograms { points: vec![histogram, many] })),
        metric("e", metric::Data::Exponential(Exponentials { points: vec![exponential] })),
        metric("q", metric::Data::Summary(Summaries { points: vec![summary] })),
    ]);
    let tags = "otel.scope.name=meter,service.name=shop,zone";
    let lines = data_points(&request);
    assert_eq!(lines[0], format!("h,{tags}=h count=6i,sum=4.5,min=0.25,le_0.5=1i,le_10=3i 7"));
    assert!(lines[1].contains("limits.fields"), "{}", lines[1]);
    assert_eq!(lines[2], format!("e,{tags}=b count=2i,min=1.0,max=2.0 7"));
    assert_eq!(lines[3], format!("q,{tags}=b count=2i,sum=9.0,quantile_0.5=3.0 7"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_encoded_request_yields_its_samples(
        all in prop::collection::vec(
            (
                "[a-z_:]{1,8}",
                prop::collection::btree_map("[a-z][a-zé ,=]{0,6}", "[a-zé ,=\"]{1,6}", 0..5),
                prop::collection::vec((any::<f64>(), -1_000_000_000_000..1_000_000_000_000_i64), 0..4),
            ),
            0..5,
        )
    ) {
        let timeseries = all.iter().map(|(name, labels, samples)| {
            let labels = labels.iter().map(|(key, value)| (&**key, &**value));
            series(&labels.chain([("__name__", &**name)]).collect::<Vec<_>>(), samples)
        });
        let request = WriteRequest { timeseries: timeseries.collect(), metadata: Vec::new() };
        let body = request.encode_to_vec();
        let mut points = Samples::new(&body, Limits::default());
        for (name, labels, samples) in &all {
            for (value, timestamp) in samples.iter().filter(|(value, _)| value.is_finite()) {
                let point = points.next().expect("a point").expect("a valid one");
                let sensor = point.sensor(&Limits::default()).expect("a sensor").into_owned();
                prop_assert_eq!(&*sensor.measurement, name.as_str());
                let tags: Vec<(&str, &str)> = sensor.tags.iter().map(|(key, value)| (&**key, &**value)).collect();
                prop_assert_eq!(tags, labels.iter().map(|(key, value)| (&**key, &**value)).collect::<Vec<_>>());
                prop_assert_eq!(point.timestamp, Some(timestamp * 1_000_000));
                prop_assert_eq!(point.fields, &[("value".into(), hourglass_model::reading::value::RawValue::Float(*value))]);
            }
        }
        prop_assert!(points.next().is_none());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), nested in 0..5_usize) {
        let mut body = bytes;
        for _ in 0..nested {
            body = Wrapped { body: vec![body] }.encode_to_vec();
        }
        render(Samples::new(&body, Limits::default()));
        render(DataPoints::new(&body, Limits::default()));
    }
}
