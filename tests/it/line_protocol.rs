//! Cases of line protocol and the lines parsed from them, with a note where implementations differ.

mod corpus;
mod properties;

use hourglass::reading::value::RawValue;
use hourglass::reading::{Limits, Precision, Reason, Rejection};
use hourglass::wire::Points;
use hourglass::wire::line_protocol::{Lines, parse_series};

/// A parsed line or JSON item, or the rejection.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// `number sensor-key field=value[,…] timestamp`, written by [`good`].
    Good(String),
    /// Line or element, column, reason.
    Bad(usize, usize, Reason),
}

use Outcome::Bad;

pub fn good(text: &str) -> Outcome {
    Outcome::Good(text.to_owned())
}

fn expected(line: usize, column: usize, expected: &'static str, found: impl Into<Option<char>>) -> Outcome {
    Bad(line, column, Reason::Syntax { expected, found: found.into() })
}

/// Parses a body: the outcome of each line, and each rejection in full.
fn read(body: &[u8], precision: Precision, limits: Limits) -> (Vec<Outcome>, Vec<Rejection>) {
    let mut lines = Lines::new(body, precision, limits);
    let mut outcomes = Vec::new();
    let mut rejections = Vec::new();
    while let Some(line) = lines.next() {
        let rejection = match line {
            Ok(line) => match line.sensor(&limits) {
                Ok(sensor) => {
                    outcomes.push(Outcome::Good(format!(
                        "{} {} {} {}",
                        line.number,
                        sensor.key,
                        line.fields.iter().map(|(key, value)| show(key, value)).collect::<Vec<_>>().join(","),
                        line.timestamp.map_or("-".to_owned(), |ts| ts.to_string()),
                    )));
                    continue;
                }
                Err(rejection) => rejection,
            },
            Err(rejection) => rejection,
        };
        outcomes.push(Bad(rejection.line, rejection.column, rejection.reason.clone()));
        rejections.push(rejection);
    }
    (outcomes, rejections)
}

pub fn show(key: &str, value: &RawValue<'_>) -> String {
    match value {
        RawValue::Float(v) => format!("{key}={v:?}"),
        RawValue::Integer(v) => format!("{key}={v}i"),
        RawValue::Unsigned(v) => format!("{key}={v}u"),
        RawValue::Boolean(v) => format!("{key}={v}"),
        RawValue::String(v) => format!("{key}={v:?}"),
    }
}

fn check(cases: Vec<(&[u8], Vec<Outcome>)>) {
    check_with(Precision::Nanoseconds, Limits::default(), cases);
}

fn check_with(precision: Precision, limits: Limits, cases: Vec<(&[u8], Vec<Outcome>)>) {
    for (body, outcomes) in cases {
        assert_eq!(read(body, precision, limits).0, outcomes, "of {:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn valid_lines_are_parsed() {
    check(vec![
        (
            b"climate,room=lab,sensor=s1 temp=22.1,humidity=45 1768485600000000000",
            vec![good("1 climate,room=lab,sensor=s1 temp=22.1,humidity=45.0 1768485600000000000")],
        ),
        (b"", vec![]),
        (b"m f=1", vec![good("1 m f=1.0 -")]),
        (b"m f=1\nm f=2\n", vec![good("1 m f=1.0 -"), good("2 m f=2.0 -")]),
        // CRLF, also at the end of a body before its LF; accepted by all peers but the Influx servers.
        (b"m f=1\r\n\r\nm f=2 3\r", vec![good("1 m f=1.0 -"), good("3 m f=2.0 3")]),
        (b"m f=\"x\"\r\n", vec![good("1 m f=\"x\" -")]),
        (b"\n\n   \n \r\n  # m f=1\n#\xff\x01\n m f=1", vec![good("7 m f=1.0 -")]),
        (b"  m   f=1   5   \n", vec![good("1 m f=1.0 5")]),
        (b"m f=1 ", vec![good("1 m f=1.0 -")]),
        // Tags are sorted bytewise by key.
        (b"m,b=1,a=2,B=3 f=1", vec![good("1 m,B=3,a=2,b=1 f=1.0 -")]),
        // Quotes in names are literal, as are '#' after the first character and '=' in a measurement.
        (b"a=b,\"t\"='v' \"f\"=1", vec![good("1 a=b,\"t\"='v' \"f\"=1.0 -")]),
        (b"m#,a#=#b #=1", vec![good("1 m#,a#=#b #=1.0 -")]),
        // The last of two equal field keys wins, in the place of the first.
        (b"m f=1,g=2,f=3i", vec![good("1 m f=3i,g=2.0 -")]),
        (b"m f=1,\\,=2,f=\"x\",\\,=t", vec![good("1 m f=\"x\",,=true -")]),
        ("größe,ort=köln wert\u{a0}=\"°C\"".as_bytes(), vec![good("1 größe,ort=köln wert\u{a0}=\"°C\" -")]),
    ]);
}

#[test]
fn values_of_every_type_are_parsed() {
    let mut cases: Vec<(String, String)> = [
        ("1.", "1.0"),
        (".5", "0.5"),
        ("-0.", "-0.0"),
        ("-.5", "-0.5"),
        ("1e4", "10000.0"),
        ("1E4", "10000.0"),
        ("1.0e-4", "0.0001"),
        ("6.6e+06", "6600000.0"),
        ("1e0", "1.0"),
        ("1e-400", "0.0"),
        ("0009", "9.0"),
        ("42", "42.0"),
        ("42i", "42i"),
        ("0009i", "9i"),
        ("-0i", "0i"),
        ("-9223372036854775808i", "-9223372036854775808i"),
        ("9223372036854775807i", "9223372036854775807i"),
        ("42u", "42u"),
        ("18446744073709551615u", "18446744073709551615u"),
        (r#""""#, r#""""#),
        (r#""a,b c=d""#, r#""a,b c=d""#),
        // Strings have two escapes; any other backslash is literal, so "\n" is two characters.
        (r#""say \"hi\" \\ \n \x""#, r#""say \"hi\" \\ \\n \\x""#),
        (r#""end\\""#, r#""end\\""#),
    ]
    .map(|(sent, value)| (sent.to_owned(), value.to_owned()))
    .to_vec();
    cases.extend(["t", "T", "true", "True", "TRUE"].map(|sent| (sent.to_owned(), "true".to_owned())));
    cases.extend(["f", "F", "false", "False", "FALSE"].map(|sent| (sent.to_owned(), "false".to_owned())));
    for (sent, value) in cases {
        let body = format!("m f={sent} 1\nm f={sent},g=1");
        check(vec![(
            body.as_bytes(),
            vec![good(&format!("1 m f={value} 1")), good(&format!("2 m f={value},g=1.0 -"))],
        )]);
    }
}

#[test]
fn invalid_values_are_rejected() {
    let invalid = |text: &str| Reason::InvalidNumber(text.to_owned());
    let not_finite = |text: &str| Reason::NotFinite(text.to_owned());
    let out_of_range = |text: &str| Reason::NumberOutOfRange(text.to_owned());
    let mut cases = Vec::new();
    cases.extend(["+1", "0x10", "1_000", "tRue", "yes", "1.5i", "1i1", "--1", ".", "-", "1e"].map(|t| (t, invalid(t))));
    cases.extend(["NaN", "nan", "Inf", "-inf", "+Infinity", "INFINITY"].map(|t| (t, not_finite(t))));
    cases.extend(
        ["9223372036854775808i", "-9223372036854775809i", "18446744073709551616u", "-1u", "1e400", "-1e400"]
            .map(|t| (t, out_of_range(t))),
    );
    for (text, reason) in cases {
        let body = format!("m ok=1,f={text},g=1 5\nm f=1");
        check(vec![(body.as_bytes(), vec![Bad(1, 10, reason), good("2 m f=1.0 -")])]);
    }
    let long = "9".repeat(1000);
    let body = format!("m f={long}i");
    check(vec![(body.as_bytes(), vec![Bad(1, 5, out_of_range(&format!("{}…", &long[..64])))])]);
}

#[test]
fn backslashes_in_names_are_parsed() {
    for (sent, name) in [
        (r"a\ b", "a b"),
        (r"a\,b", "a,b"),
        // A backslash before anything else is literal.
        (r"a\b", r"a\b"),
        (r"a\\b", r"a\\b"),
        // Only the backslash next to the space escapes it (as the official codec; some servers count parity).
        (r"two\\ words", r"two\ words"),
        (r"two\\\ words", r"two\\ words"),
        (r"\ ", " "),
    ] {
        let body = format!("{sent},{sent}={sent} {sent}=1");
        let (outcomes, _) = read(body.as_bytes(), Precision::Nanoseconds, Limits::default());
        let sensor = parse_series(body.rsplit_once(&format!(" {sent}=1")).expect("a field").0, &Limits::default());
        let sensor = sensor.expect("a sensor");
        assert_eq!((&*sensor.measurement, &*sensor.tags[0].0, &*sensor.tags[0].1), (name, name, name), "{sent}");
        assert_eq!(outcomes, vec![good(&format!("1 {} {name}=1.0 -", sensor.key))]);
    }
    check(vec![
        (br"m,a\=b=c\=d f\=g=1", vec![good(r"1 m,a\=b=c\=d f=g=1.0 -")]),
        // '=' does not end a measurement, so a backslash before it is literal.
        (br"m\=x f=1", vec![good(r"1 m\=x f=1.0 -")]),
        // A name may not end in a backslash, nor continue on the next line (some servers allow it).
        (b"m,a=b\\\nm f=1", vec![Bad(1, 6, Reason::TrailingBackslash), good("2 m f=1.0 -")]),
        (b"m\\\r\nm f=1", vec![Bad(1, 2, Reason::TrailingBackslash), good("2 m f=1.0 -")]),
        (b"m f\\\nm f=1", vec![Bad(1, 4, Reason::TrailingBackslash), good("2 m f=1.0 -")]),
        (br"m f\", vec![Bad(1, 4, Reason::TrailingBackslash)]),
        (br"m f\=1", vec![expected(1, 7, "'=' after the field key", None)]),
    ]);
    let error = parse_series(r"m,a=b\", &Limits::default()).expect_err("trailing");
    assert_eq!((error.column, error.reason), (6, Reason::TrailingBackslash));
}

#[test]
fn syntax_errors_have_a_position() {
    let invalid_timestamp = |text: &str| Reason::InvalidTimestamp(text.to_owned());
    check(vec![
        (b",a=b f=1", vec![expected(1, 1, "a measurement", ',')]),
        (b"m, f=1", vec![expected(1, 3, "a tag key", ' ')]),
        (b"m,=b f=1", vec![expected(1, 3, "a tag key", '=')]),
        (b"m,,a=b f=1", vec![expected(1, 3, "a tag key", ',')]),
        (b"m,a f=1", vec![expected(1, 4, "'=' after the tag key", ' ')]),
        (b"m,a,b=c f=1", vec![expected(1, 4, "'=' after the tag key", ',')]),
        (b"m,a= f=1", vec![expected(1, 5, "a tag value", ' ')]),
        (b"m,a=,b=c f=1", vec![expected(1, 5, "a tag value", ',')]),
        (b"m,a=b=c f=1", vec![expected(1, 6, "',' or a space after the tag value", '=')]),
        (b"  m,a=b,a=c f=1", vec![Bad(1, 9, Reason::DuplicateTag("a".to_owned()))]),
        (b"m,c=1,a\\ b=2,a\\ b=3 f=1", vec![Bad(1, 14, Reason::DuplicateTag("a b".to_owned()))]),
        (b"m", vec![Bad(1, 2, Reason::MissingFields)]),
        (b"cpu,a=x\r\nm f=1", vec![Bad(1, 8, Reason::MissingFields), good("2 m f=1.0 -")]),
        (b"cpu,a=x  \n", vec![Bad(1, 10, Reason::MissingFields)]),
        (b"m f", vec![expected(1, 4, "'=' after the field key", None)]),
        (b"m f\r\n", vec![expected(1, 4, "'=' after the field key", None)]),
        (b"m 1257894000", vec![expected(1, 13, "'=' after the field key", None)]),
        (b"m f,g=1", vec![expected(1, 4, "'=' after the field key", ',')]),
        (b"m =1", vec![expected(1, 3, "a field key", '=')]),
        (b"m f=1,", vec![expected(1, 7, "a field key", None)]),
        (b"m f=1, g=2", vec![expected(1, 7, "a field key", ' ')]),
        (b"m f=", vec![expected(1, 5, "a field value", None)]),
        (b"m f=,g=1", vec![expected(1, 5, "a field value", ',')]),
        ("m f=\"a\"é".as_bytes(), vec![expected(1, 8, "',', a space or the end of the line after the string", 'é')]),
        (b"m f=1 123 456", vec![expected(1, 11, "the end of the line after the timestamp", '4')]),
        (b"m f=1 1.5", vec![Bad(1, 7, invalid_timestamp("1.5"))]),
        (b"m f=1 g=2", vec![Bad(1, 7, invalid_timestamp("g=2"))]),
        (b"m f=1 -", vec![Bad(1, 7, invalid_timestamp("-"))]),
        (b"m f=1 2026-01-15T14:00:00Z", vec![Bad(1, 7, invalid_timestamp("2026-01-15T14:00:00Z"))]),
        // A no-break space separates nothing: it is part of the measurement.
        ("m\u{a0}f=1".as_bytes(), vec![Bad(1, 7, Reason::MissingFields)]),
    ]);
}

#[test]
fn control_characters_and_invalid_utf8_are_rejected() {
    let control = |column, code| vec![Bad(1, column, Reason::ControlCharacter(code))];
    check(vec![
        (b"\tm f=1", control(1, 9)),
        (b"m\x00x f=1", control(2, 0)),
        (b"m,a\x7f=b f=1", control(4, 0x7f)),
        // The official codec accepts this one in tag values only.
        (b"m,a=b\x01 f=1", control(6, 1)),
        ("m,a=\u{85} f=1".as_bytes(), control(5, 0x85)),
        (b"m f\x0b=1", control(4, 0x0b)),
        ("m f\u{9f}=1".as_bytes(), control(4, 0x9f)),
        (b"m f\xc2\x9f=\xff", control(4, 0x9f)),
        // A CR that ends no line.
        (b"m\r f=1", control(2, 0x0d)),
        (b"m f=1\r 5", control(6, 0x0d)),
        (b"m f=1 5\r\r", control(8, 0x0d)),
        (b"m f=1\t5", control(6, 9)),
        // In a string everything is literal.
        (b"m f=\"\x00\t\r\x1b\"", vec![good("1 m f=\"\\0\\t\\r\\u{1b}\" -")]),
    ]);
    let not_utf8 = |line, column| Bad(line, column, Reason::NotUtf8);
    check(vec![(
        b"m f=1\nm\xff f=1\nm a\xe2\x82=1\nm f=\"\xc3(\"\nm f=\xff\nm f=1 1\xff\n\xff\nm,\xc3\xa9=1 \xc3\xa9=\"\xc3\xa9\",f=2 5\n# \xff\nm f=3",
        vec![
            good("1 m f=1.0 -"),
            not_utf8(2, 2),
            not_utf8(3, 4),
            not_utf8(4, 6),
            not_utf8(5, 5),
            not_utf8(6, 8),
            Bad(7, 2, Reason::MissingFields),
            good("8 m,é=1 é=\"é\",f=2.0 5"),
            good("10 m f=3.0 -"),
        ],
    )]);
}

#[test]
fn timestamps_are_parsed_in_every_precision() {
    use Precision::{Auto, Hours, Microseconds, Milliseconds, Minutes, Nanoseconds, Seconds};
    let at = |ts: i64| good(&format!("1 m f=1.0 {ts}"));
    let outside = |text: &str| Bad(1, 7, Reason::TimeOutOfRange(text.to_owned()));
    for (precision, sent, outcome) in [
        (Nanoseconds, "-1", at(-1)),
        (Nanoseconds, "00012", at(12)),
        (Nanoseconds, "-9223372036854775806", at(-9_223_372_036_854_775_806)),
        (Nanoseconds, "9223372036854775806", at(9_223_372_036_854_775_806)),
        (Nanoseconds, "9223372036854775807", outside("9223372036854775807")),
        (Nanoseconds, "9223372036854775808", outside("9223372036854775808")),
        (Microseconds, "1768485600000001", at(1_768_485_600_000_001_000)),
        (Milliseconds, "1768485600001", at(1_768_485_600_001_000_000)),
        (Seconds, "-1768485600", at(-1_768_485_600_000_000_000)),
        (Seconds, "1768485600000", outside("1768485600000")),
        (Minutes, "29474760", at(1_768_485_600_000_000_000)),
        (Hours, "491246", at(1_768_485_600_000_000_000)),
        (Auto, "1768485600", at(1_768_485_600_000_000_000)),
        (Auto, "1768485600000", at(1_768_485_600_000_000_000)),
        (Auto, "1768485600000000", at(1_768_485_600_000_000_000)),
        (Auto, "1768485600000000000", at(1_768_485_600_000_000_000)),
    ] {
        check_with(precision, Limits::default(), vec![(format!("m f=1 {sent}").as_bytes(), vec![outcome])]);
    }
}

const OPEN: &str = "a closing '\"' for the string that starts here";

#[test]
fn a_bad_line_leaves_the_others_valid() {
    let invalid = |text: &str| Reason::InvalidNumber(text.to_owned());
    let two = || good("2 m f=2.0 -");
    check(vec![
        (
            b"m f=1\nm f=x\nm f=3\nm,a= f=4\r\nm f=5",
            vec![
                good("1 m f=1.0 -"),
                Bad(2, 5, invalid("x")),
                good("3 m f=3.0 -"),
                expected(4, 5, "a tag value", ' '),
                good("5 m f=5.0 -"),
            ],
        ),
        // A newline in a string is literal; the lines after it keep their numbers.
        (b"m f=\"a\nb\r\nc\" 1\nm f=2", vec![good("1 m f=\"a\\nb\\r\\nc\" 1"), good("4 m f=2.0 -")]),
        // Such a line with an error after its string is still one line.
        (b"m f=\"a\nm f=1\nb\",g=x 1\nm f=2", vec![Bad(1, 19, invalid("x")), good("4 m f=2.0 -")]),
        // An unclosed quote rejects its physical line, whatever quotes follow.
        (b"m f=\"abc", vec![expected(1, 5, OPEN, None)]),
        (b"m f=\"abc\nm f=2\n", vec![expected(1, 5, OPEN, None), two()]),
        (b"m f=\"abc\r\nm f=2\nm f=\"x\"", vec![expected(1, 5, OPEN, None), two(), good("3 m f=\"x\" -")]),
        (b"m f=\"abc\nm f=2\nm f=\"\"", vec![expected(1, 5, OPEN, None), two(), good("3 m f=\"\" -")]),
        (b"m f=\"abc\nm f=2\nm f=\",x\"", vec![expected(1, 5, OPEN, None), two(), good("3 m f=\",x\" -")]),
        (b"m f=\"abc\nm f=2\nm f=\" 12 \"", vec![expected(1, 5, OPEN, None), two(), good("3 m f=\" 12 \" -")]),
        (
            b"m f=\"abc\nm f=2\nm f=\"x\",g=\"y\"",
            vec![expected(1, 5, OPEN, None), two(), good("3 m f=\"x\",g=\"y\" -")],
        ),
        (b"m f=\"abc\nm f=2\nm f=\"\\\"\"", vec![expected(1, 5, OPEN, None), two(), good("3 m f=\"\\\"\" -")]),
        (b"m f=\"abc\\\"\nm f=2", vec![expected(1, 5, OPEN, None), two()]),
        (
            b"m f=\"abc\nm f=\"abc\" x\nm f=3",
            vec![expected(1, 5, OPEN, None), Bad(2, 11, Reason::InvalidTimestamp("x".to_owned())), good("3 m f=3.0 -")],
        ),
    ]);
    let (_, rejections) = read(b"m f=\"abc\r\nm f=2\n  m f=x \r\n", Precision::Nanoseconds, Limits::default());
    let texts: Vec<&str> = rejections.iter().map(|rejection| &*rejection.text).collect();
    assert_eq!(texts, ["m f=\"abc", "  m f=x "], "lines as sent, without their newline");
}

#[test]
fn exceeded_limits_name_their_key() {
    let limits = Limits { line_bytes: 40, tags: 2, fields: 3, name_bytes: 5 };
    let over = |line, column, what, found, limit, key| Bad(line, column, Reason::Limit { what, found, limit, key });
    let long_line = |found| over(1, 0, "bytes of one line", found, 40, "limits.line_bytes");
    let name = |column, what| vec![over(1, column, what, 6, 5, "limits.name_bytes"), good("2 m f=1.0 -")];
    check_with(
        Precision::Nanoseconds,
        limits,
        vec![
            (b"m,a=1,b=2 f=1,g=2,h=3 1234567890123456789", vec![long_line(41)]),
            (
                b"m,a=1,b=2 f=1,g=2,h=3 123456789012345678",
                vec![good("1 m,a=1,b=2 f=1.0,g=2.0,h=3.0 123456789012345678")],
            ),
            (b"m f=\"0123456789012345678901234567890123456789\"\nm f=1", vec![long_line(46), good("2 m f=1.0 -")]),
            (b"m f=\"012345678901234567890123456789012\"  \nm f=1", vec![long_line(41), good("2 m f=1.0 -")]),
            (
                b"m f=\"0123456789\n0123456789012345678901234567\" 1",
                vec![
                    expected(1, 5, "a closing '\"' within limits.line_bytes for the string that starts here", None),
                    expected(2, 32, "'=' after the field key", None),
                ],
            ),
            // A newline in the string of an oversized line starts no line.
            (b"m f=\"0\nm f=1\n8\",g=1234567890123456789012345\nm f=1", vec![long_line(43), good("4 m f=1.0 -")]),
            (b"m,a=1,b=2,c=3,d=4 f=1\nm f=1", vec![over(1, 0, "tags", 4, 2, "limits.tags"), good("2 m f=1.0 -")]),
            (b"m a=1,b=2,c=3,d=4,e=5\nm f=1", vec![over(1, 0, "fields", 5, 3, "limits.fields"), good("2 m f=1.0 -")]),
            (b"abcdef f=1\nm f=1", name(1, "bytes of the measurement")),
            (b"m,abcdef=1 f=1\nm f=1", name(3, "bytes of a tag key")),
            (b"m,a=abcdef f=1\nm f=1", name(5, "bytes of a tag value")),
            (b"m abcdef=1\nm f=1", name(3, "bytes of a field key")),
            // Lengths are those of the unescaped name.
            (br"a\ b\ c,a\ b\ c=a\ b\ c a\ b\ c=1", vec![good(r"1 a\ b\ c,a\ b\ c=a\ b\ c a b c=1.0 -")]),
        ],
    );
}

#[test]
fn repeated_field_keys_keep_the_last_value() {
    let fields = |numbers: std::ops::Range<usize>| numbers.map(|n| format!("f{n}={n}i")).collect::<Vec<_>>().join(",");
    let body = format!("m {},f7=1i,f100=t\nm {}", fields(0..200), fields(0..200));
    let last = fields(0..200).replace(",f7=7i,", ",f7=1i,").replace(",f100=100i,", ",f100=true,");
    check(vec![(body.as_bytes(), vec![good(&format!("1 m {last} -")), good(&format!("2 m {} -", fields(0..200)))])]);
}
