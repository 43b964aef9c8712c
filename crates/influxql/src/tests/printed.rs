//! Statements print as InfluxDB v1.6.7~rc0 prints them in its messages, trees have the expected shape, and bound
//! parameters are replaced by their values.

use super::super::{
    Expr, Fill, FromSource, KeyFilter, Listing, Literal, Measurement, MeasurementName, Operator, Params, ReferenceKind,
};
use super::display::Printed;
use super::{Statement, one, parsed, parsed_with, select};

#[test]
fn statements_print_as_influxdb_prints_them() {
    for (statement, printed) in [
        (
            "select value, mean(value) as m, 'a\"b' from db.autogen.cpu, /x\\/y/ where time > now() - 90m and \"host\" =~ \
             /a\\/b/ or host = 'it\\'s' group by time(0s, 1s), host, *, /r/ fill(1.5) order by time desc limit 1 offset 2 \
             slimit 3 soffset 4 tz('UTC')",
            "SELECT value, mean(value) AS m, 'a\"b' FROM db.autogen.cpu, /x\\/y/ WHERE time > now() - 90m AND host =~ \
             /a\\/b/ OR host = 'it\\'s' GROUP BY time(0s, 1s), host, *, /r/ fill(1.500) ORDER BY time DESC LIMIT 1 OFFSET \
             2 SLIMIT 3 SOFFSET 4 TZ('UTC')",
        ),
        (
            "select distinct value, -usage, *::tag, \"select\", \"a b\".\"c\" as \"x y\", value::float, true, 1h30m, \
             5000000000000ms, 2.0 from cpu group by time(0s, 1s) fill(linear)",
            "SELECT DISTINCT value, -1 * usage, *::tag, \"select\", \"a b.c\" AS \"x y\", value::float, true, 90m, \
             5000000000s, 2.000 FROM cpu GROUP BY time(0s, 1s) fill(linear)",
        ),
        (
            "select mean(value) from (select -1.5 * value as value from cpu where (a = 'b\\\\c' and (b != true))) group by \
             time(0s,1s) fill(-3)",
            "SELECT mean(value) FROM (SELECT -1.500 * value AS value FROM cpu WHERE (a = 'b\\\\c' AND (b != true))) GROUP \
             BY time(0s, 1s) fill(-3)",
        ),
    ] {
        assert_eq!(Printed(&one(statement)).to_string(), printed);
    }
}

/// InfluxDB would print 1.235, which is another number.
#[test]
fn printed_numbers_parse_to_the_same_value() {
    let condition = select("select v from m where v > 1.23456").condition;
    assert_eq!(condition.map(|condition| condition.to_string()), Some("v > 1.23456".to_owned()));
}

/// Found by fuzzing: `d % -a` was printed as `d % -1 * a`, which parses as `(d % -1) * a`; a statement stored as text
/// would change its meaning. InfluxDB still prints it so.
#[test]
fn a_sign_after_an_operator_round_trips() {
    for condition in ["d % -a = 1", "d / +((a)) > 2", "d * -a * -mean(b) = 3"] {
        let statement = one(&format!("select v from m where {condition}"));
        let printed = Printed(&statement).to_string();
        assert_eq!(printed, format!("SELECT v FROM m WHERE {condition}"));
        assert_eq!(one(&printed), statement);
    }
    // Where the product parses to the same tree, it prints as in InfluxDB.
    assert_eq!(Printed(&one("select a - -b from m")).to_string(), "SELECT a - -1 * b FROM m");
}

#[test]
fn operators_have_the_precedence_of_influxdb() {
    for (text, grouped) in [
        ("a = 1 or b = 2 and c = 3", "[[a = 1] OR [[b = 2] AND [c = 3]]]"),
        ("a and b and c", "[[a AND b] AND c]"),
        ("1 + 2 * 3 - 4", "[[1 + [2 * 3]] - 4]"),
        ("a | b & c ^ d", "[[a | [b & c]] ^ d]"),
        ("a < b + 1 and c", "[[a < [b + 1]] AND c]"),
        ("-a * b", "[[-1 * a] * b]"),
        ("a =~ /x/ and b !~ /y/", "[[a =~ /x/] AND [b !~ /y/]]"),
        ("a - b - c", "[[a - b] - c]"),
        ("(a or b) and c", "[([a OR b]) AND c]"),
    ] {
        let condition = select(&format!("select v from m where {text}")).condition.expect("there is a WHERE");
        assert_eq!(bracketed(&condition), grouped, "{text}");
    }
}

fn bracketed(expr: &Expr) -> String {
    match expr {
        Expr::Binary { operator, left, right } => {
            format!("[{} {} {}]", bracketed(left), operator.as_str(), bracketed(right))
        }
        Expr::Paren(inner) => format!("({})", bracketed(inner)),
        other => other.to_string(),
    }
}

#[test]
fn a_select_has_all_its_clauses() {
    let select =
        select("select top(v::float, \"Host\", 3) as t from db..m group by time(10s) fill(-1) order by desc limit 5");
    assert_eq!(
        select.columns[0].expr,
        Expr::Call {
            name: "top".to_owned(),
            args: vec![
                Expr::Reference { name: "v".to_owned(), kind: Some(ReferenceKind::Float) },
                Expr::reference("Host"),
                Expr::Literal(Literal::Integer(3)),
            ],
        }
    );
    assert_eq!(select.columns[0].alias.as_deref(), Some("t"));
    let name = MeasurementName::Exact("m".to_owned());
    assert_eq!(
        select.sources,
        [FromSource::Measurement(Measurement { database: Some("db".to_owned()), policy: None, name })]
    );
    assert_eq!((select.fill, select.limit, select.is_descending()), (Fill::Integer(-1), 5, true));
}

#[test]
fn key_filters_are_parsed() {
    for (text, filter) in [
        ("= host", KeyFilter::Is("host".to_owned())),
        ("!= \"a b\"", KeyFilter::IsNot("a b".to_owned())),
        ("=~ /a\\/b/", KeyFilter::Matches("a/b".to_owned())),
        ("!~ /x/", KeyFilter::MatchesNot("x".to_owned())),
        ("in (a, \"b\")", KeyFilter::In(vec!["a".to_owned(), "b".to_owned()])),
    ] {
        match one(&format!("show tag values with key {text}")) {
            Statement::Show(Listing { keys, .. }) => assert_eq!(keys, Some(filter)),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn bound_parameters_are_replaced_by_their_values() {
    let params = Params::from([
        ("n".to_owned(), Expr::Literal(Literal::Integer(5))),
        ("host".to_owned(), Expr::Literal(Literal::String("it's".to_owned()))),
        ("re".to_owned(), Expr::Literal(Literal::Regex("a/b".to_owned()))),
        ("long name".to_owned(), Expr::reference("cpu")),
        ("d".to_owned(), Expr::Literal(Literal::Duration(-60_000_000_000))),
    ]);
    let text = "select v from $\"long name\" where host = $host and r =~ $re and time > now() + $d limit $n";
    let statements = parsed_with(text, &params).expect("all parameters are there");
    let printed = "SELECT v FROM cpu WHERE host = 'it\\'s' AND r =~ /a\\/b/ AND time > now() + -1m LIMIT 5";
    assert_eq!(Printed(&statements[0]).to_string(), printed);
    let missing = parsed_with("select v from m where a = $x", &params).expect_err("x has no value");
    assert_eq!(missing.to_string(), "missing parameter: x");
}

#[test]
fn an_invalid_regex_is_reported_at_its_position() {
    let error = parsed("select v from m where a =~ /bad(/").expect_err("the regex is bad");
    assert_eq!(error.to_string(), "missing closing ) at line 1, char 27");
    assert_eq!(Operator::EqRegex.as_str(), "=~");
}
