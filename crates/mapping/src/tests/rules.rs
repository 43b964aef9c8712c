//! The rules of the format, one test each.

use super::*;

/// The example of the crate's documentation.
fn documented() -> Mapping {
    let text = include_str!("../lib.rs").split("//! ```toml").nth(1).and_then(|rest| rest.split("//! ```").next());
    let toml: Vec<&str> = text.expect("an example").lines().map(|line| line.trim_start_matches("//! ")).collect();
    mapping(&toml.join("\n"))
}

#[test]
fn the_documented_example_works_and_is_explained() {
    let mapping = documented();
    let body = r#"{"Time":"2026-01-15T15:00:00","ENERGY":{"Power":"5.5","Total":3.705,"Today":"nan","Period":1},
        "Meta":{"Kind":7,"Room":"lab"}}"#;
    let topic = Some("tele/desk/SENSOR");
    let reading = "plug,device=desk,kind=7,site=lab watts=5.5,Total=3.705 2026-01-15T14:00:00Z";
    assert_eq!(lines(&mapping, topic, body.as_bytes()), [reading]);
    let trace = explain(&mapping, topic, body.as_bytes(), Limits::default(), ARRIVAL);
    assert_eq!(
        trace,
        [
            r#"topic "tele/desk/SENSOR" matches "tele/+/SENSOR""#,
            "message 1",
            r#"measurement = "plug": constant"#,
            r#"tag device = "desk": topic level 2"#,
            r#"tag kind = "7": path "/Meta/Kind""#,
            r#"tag site = "lab": constant"#,
            r#"time = 2026-01-15T14:00:00Z: path "/Time""#,
            r#"fields[0].name = "watts": constant"#,
            "field watts = 5.5 (float): fields[0]",
            r#"left out "Power": used by another rule"#,
            "field Total = 3.705 (float): fields[1]",
            r#"left out "Today": missing"#,
            r#"left out "Period": ignore"#,
            "not used: /Meta/Room",
            "reading: plug,device=desk,kind=7,site=lab with 2 fields at 2026-01-15T14:00:00Z",
        ]
    );
}

#[test]
fn the_trace_says_why_a_message_is_rejected() {
    let trace = explain(&documented(), Some("x"), b"{}", Limits::default(), ARRIVAL);
    assert_eq!(trace[0], r#"topic "x" matches no filter of "plug", which is applied anyway"#);
    assert_eq!(trace.last().unwrap(), "rejected: line 1: tag device: the message has no value at topic level 2");
    let trace = explain(&documented(), None, b"{", Limits::default(), ARRIVAL);
    assert!(trace[0].starts_with("rejected: line 1: invalid JSON: EOF"), "{trace:?}");
}

#[test]
fn bodies_are_one_message_or_an_array_or_lines() {
    let keys = "fields = [{ path = \"/a\" }]";
    for body in [r#"[{"a":1},{"a":2}]"#, "{\"a\":1}\n{\"a\":2}\n", "\n{\"a\":1}\r\n\n{\"a\":2}"] {
        assert_eq!(mapped(keys, body), ["m a=1.0 arrival", "m a=2.0 arrival"], "{body:?}");
    }
    let rejected = mapped(keys, r#"[{"a":1},{"b":2},{"a":3}]"#);
    let reason = "line 2: no field: the message has none of the paths \"/a\"";
    assert_eq!(rejected, ["m a=1.0 arrival", reason, "m a=3.0 arrival"]);
    assert_eq!(mapped(keys, "").len(), 0);
}

#[test]
fn each_makes_one_reading_per_element() {
    let keys = r#"
        each = "/data"
        tags = { device = { path = "/dev" }, channel = { path = "/data/*/ch" } }
        time = { path = "/data/*/t", format = "ms" }
        fields = [{ path = "/data/*/v", name = { path = "/data/*/n" } }, { path = "/data/*" }]
        ignore = ["/data/*/raw"]
    "#;
    let body = r#"{"dev":"d1","data":[{"ch":1,"t":1768485600001,"n":"temp","v":21.5,"raw":[1],"q":0},{"ch":2,"v":3},
        {"ch":2,"n":"hum","v":null}, {"ch":2,"n":"hum","v":3}]}"#;
    assert_eq!(
        mapped(keys, body),
        [
            "m,channel=1,device=d1 temp=21.5,q=0.0 2026-01-15T14:00:00.001Z",
            "line 2: fields[0].name: the message has no value at path \"/data/*/n\"",
            "m,channel=2,device=d1 hum=3.0 arrival",
        ]
    );
    assert_eq!(mapped(keys, r#"{"dev":"d1"}"#), ["line 1: each: the message has no array at path \"/data\""]);
    assert!(mapped(keys, r#"{"dev":"d1","data":[]}"#).is_empty());
    let values = mapped("each = \"/v\"\nfields = [{ path = \"/v/*\" }]", r#"{"v":[1,2.5]}"#);
    assert_eq!(values, ["m value=1.0 arrival", "m value=2.5 arrival"]);
}

/// Undated elements of one message had the same number, and so the same time in a request with a key: all but one were
/// lost.
#[test]
fn elements_have_distinct_numbers() {
    let mapping = mapping("name = \"m\"\nmeasurement = \"m\"\neach = \"/v\"\nfields = [{ path = \"/v/*\" }]");
    let mut points = apply(&mapping, None, b"{\"v\":[1,2]}\n{\"v\":[3]}", Limits::default(), ARRIVAL);
    let numbers = std::iter::from_fn(|| points.next().map(|point| point.expect("a reading").number));
    assert_eq!(numbers.collect::<Vec<usize>>(), [1, 2, 3]);
}

/// A message with a thousand invalid elements was kept whole for each of their rejections.
#[test]
fn only_the_first_rejection_of_a_message_keeps_it() {
    let mapping = mapping("name = \"m\"\nmeasurement = \"m\"\neach = \"\"\nfields = [{ path = \"/*/a\" }]");
    let mut points = apply(&mapping, None, b"[[{}, {}]]", Limits::default(), ARRIVAL);
    let rejections = std::iter::from_fn(|| points.next().map(|point| point.expect_err("invalid")));
    let kept: Vec<bool> = rejections.map(|rejection| rejection.whole.is_some()).collect();
    assert_eq!(kept, [true, false]);
}

#[test]
fn numbers_keep_their_exact_value() {
    let body =
        r#"{"i":9223372036854775807,"n":-9223372036854775808,"u":18446744073709551615,"f":0.1,"z":-0.0,"e":1e300}"#;
    let reading =
        "m i=9223372036854775807i,n=-9.223372036854776e18,u=18446744073709551615u,f=0.1,z=-0.0,e=1e300 arrival";
    assert_eq!(mapped("fields = [{ path = \"\" }]", body), [reading]);
    assert!(
        mapped("fields = [{ path = \"\" }]", r#"{"a":1e400}"#)[0].starts_with("line 1: invalid JSON: number out of")
    );
}

#[test]
fn types_convert_only_what_fits() {
    let convert = |wanted: &str, value: &str| {
        let keys = format!("fields = [{{ path = \"/a\", type = \"{wanted}\" }}]");
        mapped(&keys, &format!("{{\"a\":{value}}}")).remove(0)
    };
    for (wanted, value, expected) in [
        ("float", "22", "22.0"),
        ("float", "\" 22.5 \"", "22.5"),
        ("integer", "22.0", "22i"),
        ("integer", "\"-7\"", "-7i"),
        ("integer", "\"18446744073709551615\"", "18446744073709551615u"),
        ("boolean", "\"On\"", "true"),
        ("boolean", "0", "false"),
        ("string", "22.5", "\"22.5\""),
        ("string", "true", "\"true\""),
    ] {
        assert_eq!(convert(wanted, value), format!("m a={expected} arrival"), "{wanted} {value}");
    }
    for (wanted, value) in
        [("float", "true"), ("float", "\"NaN\""), ("float", "\"\""), ("integer", "22.5"), ("boolean", "2")]
    {
        let expected = format!("does not fit the type {wanted}");
        assert!(convert(wanted, value).ends_with(&expected), "{wanted} {value}");
    }
}

#[test]
fn the_last_of_repeated_keys_and_names_wins() {
    let keys = "fields = [{ path = \"\" }]\ntime = { path = \"/t\", format = \"s\" }";
    let body = r#"{"t":1,"a":1,"t":2,"a":2,"b_c":3,"b":{"c":4}}"#;
    assert_eq!(mapped(keys, body), ["m a=2.0,b_c=4.0 1970-01-01T00:00:02Z"]);
}

#[test]
fn times_are_exact_in_every_format() {
    let time = |rule: &str, value: &str| {
        let keys = format!("fields = [{{ path = \"/a\" }}]\ntime = {{ path = \"/t\", {rule} }}");
        mapped(&keys, &format!("{{\"a\":1,\"t\":{value}}}")).remove(0).replace("m a=1.0 ", "")
    };
    for (format, value, expected) in [
        ("s", "1631186545.04", "2021-09-09T11:22:25.040Z"),
        ("s", "\"1631186545\"", "2021-09-09T11:22:25Z"),
        ("s", "-0.5", "1969-12-31T23:59:59.500Z"),
        ("ms", "1631186545040", "2021-09-09T11:22:25.040Z"),
        ("us", "1631186545040001.5", "2021-09-09T11:22:25.040001500Z"),
        ("ns", "1631186545040001002", "2021-09-09T11:22:25.040001002Z"),
        ("rfc3339", "\"2021-09-09T13:22:25+02:00\"", "2021-09-09T11:22:25Z"),
        ("s", "null", "arrival"),
    ] {
        assert_eq!(time(&format!("format = \"{format}\""), value), expected, "{format} {value}");
    }
    for value in ["\"\"", "\".\"", "1e30", "true", "{}", "\"2021-09-09T13:22:25\""] {
        assert!(time("format = \"s\"", value).starts_with("line 1: time: "), "{value}");
    }
    let local = |value: &str| time("format = \"local\", zone = \"Europe/Berlin\"", value);
    assert_eq!(local("\"2021-09-09T13:22:25\""), "2021-09-09T11:22:25Z");
    assert_eq!(local("\"2021-09-09 13:22:25\""), "2021-09-09T11:22:25Z");
    assert_eq!(local("\"2021-09-09T13:22:25+00:00\""), "2021-09-09T13:22:25Z");
    assert!(local("\"2021-09-09T13:22:25[Asia/Tokyo]\"").starts_with("line 1: time: "));
}

/// In the hour that a clock shows twice, both readings had the same time, and the second replaced the first.
#[test]
fn a_local_time_that_occurs_twice_is_the_one_near_the_arrival() {
    let mapping = documented();
    let body = br#"{"Time":"2026-10-25T02:30:00","ENERGY":{"Power":5},"Meta":{"Kind":7}}"#;
    for instant in ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"] {
        let arrival = time::parse_rfc3339(instant).unwrap();
        let mut points = apply(&mapping, Some("tele/a/SENSOR"), body, Limits::default(), arrival + 2_000_000_000);
        assert_eq!(points.next().unwrap().unwrap().timestamp, Some(arrival));
    }
}

#[test]
fn topic_filters_follow_mqtt_5() {
    let matches = |filter: &str, topic: &str| TopicFilter::try_from(filter.to_owned()).unwrap().matches(topic);
    for (filter, topic) in [
        ("sport/tennis/player1/#", "sport/tennis/player1"),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon"),
        ("sport/#", "sport"),
        ("#", "a/b"),
        ("sport/tennis/+", "sport/tennis/player1"),
        ("sport/+", "sport/"),
        ("+/+", "/finance"),
        ("/+", "/finance"),
        ("$SYS/#", "$SYS/broker"),
        ("$SYS/monitor/+", "$SYS/monitor/Clients"),
    ] {
        assert!(matches(filter, topic), "{filter} {topic}");
    }
    for (filter, topic) in [
        ("sport/tennis/+", "sport/tennis/player1/ranking"),
        ("sport/+", "sport"),
        ("+", "/finance"),
        ("#", "$SYS/broker"),
        ("+/monitor/Clients", "$SYS/monitor/Clients"),
        ("a/b", "a/B"),
    ] {
        assert!(!matches(filter, topic), "{filter} {topic}");
    }
    for invalid in ["", "sport/tennis#", "sport/tennis/#/ranking", "sport+", "a\0"] {
        assert!(TopicFilter::try_from(invalid.to_owned()).is_err(), "{invalid:?}");
    }
}

#[test]
fn problems_name_their_keys() {
    let problems = |keys: &str| Mapping::from_toml(keys).unwrap_err().to_string();
    let all = problems(
        r#"
        name = "a/b"
        topics = ["tele/+/SENSOR"]
        measurement = { topic = 0 }
        tags = { device = { topic = 4 }, site = "" }
        fields = [{ path = "/a" }]
        each = "/data"
        time = { path = "/t", format = "local", not_before = "2000" }
        "#,
    );
    let expected = [
        "name: use 1 to 64 of the characters A-Z a-z 0-9 - _ .",
        "measurement: the levels of a topic count from 1",
        "tags.device: topic level 4, but \"tele/+/SENSOR\" has 3 levels",
        "tags.site: expected a tag value, found '\"'",
        "fields[0].path: with each, a field's path must begin with /data/*",
        "time.zone: needed for the format \"local\", and only there",
        "time.not_before: expected an RFC 3339 time such as 2000-01-01T00:00:00Z",
    ];
    assert_eq!(all, expected.join("; "));
    for (keys, expected) in [
        ("feilds = []", "unknown field `feilds`"),
        ("fields = [{ path = \"a/b\" }]", "path \"a/b\" must begin with '/'"),
        ("fields = [{ path = \"/a\", type = \"flaot\" }]", "unknown variant `flaot`"),
        ("fields = [{ path = \"/a\", name = { topic = 1, path = \"\" } }]", "expected either topic or path"),
        ("fields = [{ path = \"/a\", name = { topik = 1 } }]", "unknown field `topik`"),
        (
            "fields = []\ntime = { path = \"\", format = \"local\", zone = \"Mars\" }",
            "time.zone: unknown zone \"Mars\"",
        ),
        (
            "fields = []\ntime = { path = \"\", format = \"s\", zone = \"UTC\" }",
            "time.zone: needed for the format \"local\"",
        ),
        ("fields = []\ntopics = [\"a/#/b\"]", "topic filter \"a/#/b\" must end after '#'"),
        ("fields = []", "fields: a mapping needs at least one field"),
        ("fields = [{ path = \"\", name = { topic = 1 } }]", "fields[0].name: a topic level needs a filter in topics"),
    ] {
        let text = problems(&format!("name = \"m\"\nmeasurement = \"m\"\n{keys}"));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn tags_identify_the_sensor_so_all_are_needed() {
    let keys = "tags = { id = { path = \"/id\" } }\nfields = [{ path = \"/a\" }]";
    assert_eq!(mapped(keys, r#"{"id":5,"a":1}"#), ["m,id=5 a=1.0 arrival"]);
    for body in [r#"{"a":1}"#, r#"{"id":null,"a":1}"#, r#"{"id":{},"a":1}"#] {
        assert_eq!(mapped(keys, body), ["line 1: tag id: the message has no value at path \"/id\""], "{body}");
    }
    let mapping = builtin::get("plain").unwrap();
    let expected = "line 1: measurement: the message has no topic, but the mapping uses topic level 1";
    assert_eq!(lines(mapping, None, b"1"), [expected]);
    assert_eq!(lines(mapping, Some("home//temp"), b"1"), ["line 1: expected a tag value, found '\"'"]);
    assert_eq!(lines(mapping, Some("home/a\nb/temp"), b"1"), ["line 1: control character U+000A is not allowed here"]);
}

#[test]
fn pointers_follow_rfc_6901() {
    let keys = r#"fields = [
        { path = "/a~1b" }, { path = "/m~0n" }, { path = "/l/1", name = "l" }, { path = "/l/01" },
    ]"#;
    assert_eq!(mapped(keys, r#"{"a/b":1,"m~n":2,"l":[3,4]}"#), ["m a/b=1.0,m~n=2.0,l=4.0 arrival"]);
}
