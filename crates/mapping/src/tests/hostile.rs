//! Messages that try to break a mapping.

use proptest::prelude::*;

use super::*;

/// All built-in mappings, and one with an array.
fn mappings() -> Vec<Mapping> {
    let each = r#"
        name = "each"
        measurement = { path = "/a" }
        tags = { b = { path = "/c/*/b" } }
        each = "/c"
        time = { path = "/c/*/a", format = "local", zone = "Europe/Berlin" }
        fields = [{ path = "/c/*/c", type = "integer" }, { path = "/c/*" }]
        ignore = ["/c/*/d", "/d"]
    "#;
    builtin::all().iter().map(|mapping| Mapping::clone(mapping)).chain([mapping(each)]).collect()
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let text = prop_oneof!["[a-d]", "\\PC{0,8}", Just("2026-10-25T02:30:00".to_owned())];
    let scalar = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        text.prop_map(Into::into),
    ];
    scalar.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec(("[a-d]", inner), 0..6)
                .prop_map(|entries| serde_json::Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// A mapping that may fail its checks.
fn any_mapping() -> impl Strategy<Value = Mapping> {
    let path = || prop_oneof![Just(String::new()), "(/[a-d*0]){1,3}"];
    let source = move || {
        prop_oneof![
            "[a-d]{0,2}".prop_map(serde_json::Value::from),
            (0..4_usize).prop_map(|level| serde_json::json!({ "topic": level })),
            path().prop_map(|path| serde_json::json!({ "path": path })),
        ]
    };
    let field_type = prop_oneof![Just(None), Just(Some("float")), Just(Some("integer")), Just(Some("boolean"))];
    let field = (path(), prop::option::of(source()), field_type)
        .prop_map(|(path, name, wanted)| serde_json::json!({ "path": path, "name": name, "type": wanted }));
    let format = prop_oneof![Just("s"), Just("ns"), Just("rfc3339"), Just("local")];
    let time = (path(), format, prop_oneof![Just(None), Just(Some("Europe/Berlin")), Just(Some("Mars"))])
        .prop_map(|(path, format, zone)| serde_json::json!({ "path": path, "format": format, "zone": zone }));
    let parts = (
        source(),
        prop::collection::btree_map("[a-d]", source(), 0..2),
        prop::collection::vec(field, 0..4),
        prop::option::of(time),
        prop::option::of(path()),
        prop::collection::vec(path(), 0..2),
    );
    parts.prop_map(|(measurement, tags, fields, time, each, ignore)| {
        let mapping = serde_json::json!({
            "name": "m", "measurement": measurement, "tags": tags, "fields": fields, "time": time, "each": each,
            "ignore": ignore, "ignore_keys": ["d"], "missing": ["a"],
        });
        serde_json::from_value(mapping).expect("a mapping in form")
    })
}

/// Checks all built-in mappings and one with an array.
fn check(topic: &str, body: &[u8]) {
    for mapping in mappings() {
        check_one(&mapping, topic, body);
    }
}

/// Every reading has fields and valid names, and what `apply` gives is what `explain` says.
fn check_one(mapping: &Mapping, topic: &str, body: &[u8]) {
    let limits = Limits { fields: 20, ..Limits::default() };
    let mut points = apply(mapping, Some(topic), body, limits, ARRIVAL);
    let mut readings = 0;
    loop {
        let Some(point) = points.next() else {
            if points.is_paused() {
                continue;
            }
            break;
        };
        if let Ok(point) = point {
            readings += 1;
            assert!((1..=limits.fields).contains(&point.fields.len()));
            assert!(point.fields.iter().all(|(key, _)| !key.is_empty() && !key.contains(char::is_control)));
            assert!(point.sensor(&limits).is_ok());
        }
    }
    let trace = explain(mapping, Some(topic), body, limits, ARRIVAL);
    let explained = trace.iter().filter(|line| line.starts_with("reading: ")).count();
    assert!(explained == readings || trace.len() == LINES_MAX, "{trace:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_mapped_or_rejected(topic in "\\PC{0,12}", body in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&topic, &body);
    }

    #[test]
    fn any_json_is_mapped_or_rejected(topic in "[a-d/]{0,8}", value in json()) {
        check(&topic, value.to_string().as_bytes());
    }

    #[test]
    fn any_mapping_takes_any_json(mapping in any_mapping(), topic in "[a-d/]{0,8}", value in json()) {
        let _ = mapping.check();
        check_one(&mapping, &topic, value.to_string().as_bytes());
    }

    #[test]
    fn any_float_keeps_its_bits(value in any::<f64>().prop_filter("JSON has no others", |value| value.is_finite())) {
        let body = serde_json::to_vec(&value).expect("a number");
        let mapping = builtin::get("plain").expect("built in");
        let mut points = apply(mapping, Some("home/lab/temp"), &body, Limits::default(), ARRIVAL);
        let point = points.next().expect("a message").expect("a reading");
        match point.fields[0].1 {
            RawValue::Float(stored) => prop_assert_eq!(stored.to_bits(), value.to_bits()),
            ref other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn limits_reject_a_message_and_not_the_next() {
    let all = "fields = [{ path = \"\" }]";
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let many: Vec<String> = (0..257).map(|index| format!("\"f{index}\":1")).collect();
    let long = "k".repeat(1025);
    let wide: Vec<String> = (0..1001).map(|index| format!("\"f{index}\":[]")).collect();
    for (body, expected) in [
        (format!("{{\"a\":{deep}}}"), "recursion limit exceeded"),
        (format!("{{{}}}", many.join(",")), "fields: 257 exceeds the limit of 256 (limits.fields)"),
        (format!("{{{}}}", wide.join(",")), "an object has more than 1000 keys"),
        (format!("{{\"{long}\":1}}"), "bytes of a field key: 1025 exceeds the limit of 1024"),
        (format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)), "bytes of one message: 70008 exceeds the limit of 65536"),
    ] {
        let lines = mapped(all, &format!("{body}\n{{\"a\":1}}"));
        assert!(lines[0].contains(expected), "{}", lines[0]);
        assert_eq!(lines[1..], ["m a=1.0 arrival"]);
    }
    let elements = format!("{{\"v\":[{}1]}}", "1,".repeat(ELEMENTS_MAX));
    let lines = mapped("each = \"/v\"\nfields = [{ path = \"/v/*\" }]", &elements);
    assert_eq!(lines, ["line 1: each: 1001 elements, at most 1000 are allowed"]);
}

/// Names joined from one long key and many short ones took memory and time that grew with the square of the body.
#[test]
fn the_worst_messages_take_time_in_proportion() {
    let long = "k".repeat(30_000);
    let bodies = [
        format!("{{\"{long}\":[{}1]}}", "[],".repeat(11_000)),
        format!("{{\"{long}\":[{}1]}}", "\"nan\",".repeat(5_000)),
        format!("[[{}1]]", "null,".repeat(12_000)),
    ];
    for body in bodies {
        assert!(body.len() <= Limits::default().line_bytes);
        let lines = mapped("fields = [{ path = \"\" }]\nmissing = [\"nan\"]\nignore_keys = [\"x\"]", &body);
        assert_eq!(lines.len(), 1);
    }
}
