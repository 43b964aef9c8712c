//! Numbers at the edges of their types and beyond, in line protocol and in JSON: kept to the bit, or refused, and no answer
//! becomes unreadable by them.

use crate::support::prelude::*;

use super::{START, while_a_good_client_is_served};

/// As line protocol has it, as JSON has it, and the bits of what is kept, if it is.
fn cases() -> Vec<(String, String, Option<f64>)> {
    let digits = |count: usize| "7".repeat(count);
    let float = |text: &str, value: Option<f64>| (text.to_owned(), text.to_owned(), value);
    vec![
        float("NaN", None),
        float("nan", None),
        float("Inf", None),
        float("-Infinity", None),
        float("1e999", None),
        float("-1e999", None),
        float(&digits(400), None),
        float(&format!("-{}.5", digits(400)), None),
        float(&digits(300), digits(300).parse().ok()),
        float(&format!("0.{}", digits(400)), format!("0.{}", digits(400)).parse().ok()),
        float("1.7976931348623157e308", Some(f64::MAX)),
        float("5e-324", Some(5e-324)),
        float("1e-400", Some(0.0)),
        float("-0", Some(-0.0)),
        float("-0.0", Some(-0.0)),
        ("9223372036854775807i".into(), "9223372036854775807".into(), Some(9_223_372_036_854_775_807_i64 as f64)),
        ("9223372036854775808i".into(), "1e400".into(), None),
        ("-9223372036854775808i".into(), "-9223372036854775808".into(), Some(i64::MIN as f64)),
        ("-9223372036854775809i".into(), "-1e400".into(), None),
        ("18446744073709551615u".into(), "18446744073709551615".into(), Some(u64::MAX as f64)),
        ("18446744073709551616u".into(), "--1".into(), None),
        ("-1u".into(), "0x10".into(), None),
        (format!("{}i", digits(400)), format!("{}e", digits(400)), None),
        ("00000000000000000000000000000005i".into(), "5".into(), Some(5.0)),
    ]
}

#[test]
fn numbers_are_kept_to_the_bit_or_refused() {
    let server = Launch::embedded().start();
    while_a_good_client_is_served(&server, "numbers", || {
        for (number, (line, json, kept)) in cases().into_iter().enumerate() {
            let status = if kept.is_some() { [204, 200] } else { [400, 400] };
            let text = format!("m,by=line,n={number} v={line} {START}");
            let answer = post(&server.url("/write?db=n"), text, &[]);
            assert_eq!(answer.status, status[0], "{line}: {}", answer.text());
            let text = format!(
                "{{\"measurement\":\"m\",\"tags\":{{\"by\":\"json\",\"n\":\"{number}\"}},\"fields\":{{\"v\":{json}}},\"ts\":{START}}}"
            );
            let answer = post(&server.url("/api/v1/readings?db=n"), text, &[]);
            assert_eq!(answer.status, status[1], "{json}: {}", answer.text());
        }
    });
    flush(&server);
    for (number, (line, _, kept)) in cases().into_iter().enumerate() {
        for by in ["line", "json"] {
            let found = readings(&server, "n", &format!("m,by={by},n={number}"), None, 10);
            let values: Vec<Option<u64>> =
                found.iter().map(|(_, fields)| fields["v"].parse::<f64>().ok().map(f64::to_bits)).collect();
            let expected: Vec<Option<u64>> = kept.into_iter().map(|value| Some(value.to_bits())).collect();
            assert_eq!(values, expected, "{line} by {by}");
        }
    }
}

/// The sum of two greatest doubles is infinite, which JSON has no word for.
#[test]
fn a_sum_beyond_all_numbers_leaves_answers_readable() {
    let server = Launch::embedded().start();
    let largest = f64::MAX;
    let lines = format!("m v={largest:e} {START}\nm v={largest:e} {}\n", START + 1);
    post(&server.url("/write?db=n"), lines, &[]).expect(204);
    for _ in ["unflushed", "from the store"] {
        for path in [
            "/api/v1/summary?db=n&sensor=m&step=1h",
            "/api/v1/readings?db=n&sensor=m",
            "/query?db=n&q=select+sum(v),mean(v),stddev(v),max(v)+from+m",
            "/query?db=n&q=select+v*v+from+m",
        ] {
            let answer = get(&server.url(path)).expect(200);
            assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok(), "{path}: {}", answer.text());
        }
        flush(&server);
    }
    assert!(!server.stderr().contains("panicked"));
}
