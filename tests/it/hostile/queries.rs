//! Hostile queries: each is answered or refused with its limit's key. Before limits, one took 5 GB. Costs are printed.

use super::{Memory, print, with_good_client};
use crate::support::prelude::*;

/// Maximum memory growth of a query.
pub const GROWTH_BYTES: u64 = 200 << 20;
/// Strings of `long`, and their length.
const TEXTS: usize = 2_000;
const TEXT_BYTES: usize = 16 << 10;
/// `query.timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);

enum QueryForm {
    /// `GET /query?q=`, and more parameters.
    Get(String, &'static str),
    /// `POST /query` with `q=` in the body.
    Post(String),
    /// `GET` of the native API.
    Api(String),
}

fn influxql(q: impl Into<String>) -> QueryForm {
    QueryForm::Get(q.into(), "")
}

impl QueryForm {
    fn statements(&self) -> u32 {
        let (Self::Get(q, _) | Self::Post(q) | Self::Api(q)) = self;
        1 + u32::try_from(q.matches(';').count()).expect("few")
    }

    /// Returns status and length of the answer, and the start of an error.
    fn ask(&self, server: &Server) -> (u16, usize, String) {
        let answer = match self {
            Self::Get(q, more) => request("GET", &server.url(&format!("/query?db=h&q={}{more}", encode(q))), b"", &[]),
            Self::Post(q) => {
                let form = [("content-type", "application/x-www-form-urlencoded")];
                request("POST", &server.url("/query?db=h"), format!("q={}", encode(q)).as_bytes(), &form)
            }
            Self::Api(path) => request("GET", &server.url(path), b"", &[]),
        };
        let answer = answer.expect("an answer");
        let text = answer.text();
        let error = text.find("\"error\"").map_or_else(String::new, |at| text[at..].chars().take(160).collect());
        (answer.status, text.len(), error)
    }
}

/// Joins the texts of `count` items.
fn many(count: usize, between: &str, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(between)
}

/// Queries found by attacks, and variants.
fn attacks() -> Vec<(&'static str, QueryForm)> {
    let or = |n: usize| many(n, " OR ", |_| "v=-1".to_owned());
    let four = |q: &str| [q; 4].join("; ");
    let api = |path: &str| QueryForm::Api(path.to_owned());
    let aggregates = many(150, ",", |n| format!("p{}", n % 99 + 1));
    let nested = |depth: usize| (0..depth).fold("big".to_owned(), |inner, _| format!("(SELECT v FROM {inner})"));
    let chosen_by = |condition: String| QueryForm::Post(format!("SELECT v FROM big WHERE {condition}"));
    let columns = |count: usize, between: &str| many(count, between, |_| "v".to_owned());
    let steps = format!("/api/v1/summary?db=h&measurement=big&step=1s&agg={aggregates}");
    vec![
        ("1,300 patterns", chosen_by(many(1300, " OR ", |n| format!("s=~/x{n}.*/")))),
        (
            "SHOW SERIES of 1,000 patterns",
            QueryForm::Post(format!("SHOW SERIES FROM {}", many(1000, ",", |n| format!("/x{n}.*/")))),
        ),
        ("200 columns and LIMIT 1", influxql(format!("SELECT {} FROM big LIMIT 1", columns(200, ",")))),
        ("200 columns", influxql(format!("SELECT {} FROM big", columns(200, ",")))),
        ("5,000 columns, LIMIT 1", QueryForm::Post(format!("SELECT {} FROM big LIMIT 1", columns(5000, ",")))),
        ("150 aggregates by 1 s", api(&steps)),
        ("150 aggregates by 1 s, filled", api(&format!("{steps}&fill=null"))),
        ("four times all texts", influxql(four("SELECT t FROM long"))),
        ("480 terms and four times", QueryForm::Post(four(&format!("SELECT v FROM big WHERE {}", or(480))))),
        ("20000 terms", chosen_by(or(20_000))),
        ("CSV of everything", api("/api/v1/readings?db=h&measurement=big&limit=100000&format=csv")),
        ("NDJSON of everything", api("/api/v1/readings?db=h&measurement=long&limit=100000&format=ndjson")),
        ("a chart of everything", api("/api/v1/readings?db=h&measurement=big&max_points=100000")),
        (
            "GROUP BY 1,000 absent tags",
            influxql(format!("SELECT mean(v) FROM big GROUP BY {}", many(1000, ",", |n| format!("a{n}")))),
        ),
        ("subqueries 40 deep", influxql(format!("SELECT v FROM {}", nested(40)))),
        (
            "percentile of everything",
            influxql(format!("SELECT {} FROM big", many(50, ",", |n| format!("percentile(v, {n})")))),
        ),
        ("a pattern on values", influxql("SELECT t FROM long WHERE t =~ /(a|b)*c/")),
        (
            "a giant LIMIT and OFFSET",
            influxql("SELECT v FROM big LIMIT 9000000000000000000 OFFSET 9000000000000000000"),
        ),
        ("fill(0) by 1 ns", influxql("SELECT mean(v) FROM big WHERE time > 0 GROUP BY time(1ns) fill(0)")),
        ("fill(linear) by 1 ms", influxql("SELECT mean(v) FROM big GROUP BY time(1ms) fill(linear)")),
        (
            "fill(previous) by 1 ms, LIMIT 1",
            influxql("SELECT mean(v) FROM big GROUP BY time(1ms) fill(previous) LIMIT 1"),
        ),
        ("time(1ns) without a fill", influxql("SELECT max(v) FROM big GROUP BY time(1ns) fill(none)")),
        (
            "by 1 s in a zone",
            influxql("SELECT mean(v) FROM big WHERE time > 0 GROUP BY time(1s) fill(0) tz('Europe/Berlin')"),
        ),
        ("top of everything", influxql("SELECT top(v, 100000) FROM big")),
        ("distinct texts", influxql("SELECT distinct(t) FROM long")),
        ("count of distinct texts", influxql("SELECT count(distinct(t)) FROM long; SELECT mode(t) FROM long")),
        ("a moving average", influxql("SELECT moving_average(v, 50000) FROM big")),
        (
            "pretty chunks of one row",
            QueryForm::Get("SELECT v FROM big".to_owned(), "&pretty=true&chunked=true&chunk_size=1"),
        ),
        ("2000 operands", QueryForm::Post(format!("SELECT {} FROM big", columns(2000, " + ")))),
        ("40 statements", QueryForm::Post(many(40, ";", |_| "SELECT * FROM big".to_owned()))),
        ("everything grouped", api("/api/v1/summary?db=h&step=1s&agg=p50,median,mode&group_by=*&measurement=big")),
        ("a list of 20,000 texts", chosen_by(format!("s =~ /^({})$/", many(20_000, "|", |n| format!("x{n}"))))),
    ]
}

pub fn with_data(config: &str) -> Server {
    let server = Launch::embedded().config(config).start();
    server.limit_memory(6 << 30);
    // Readings of `big`.
    for from in (0..scaled(20_000, 100_000)).step_by(10_000) {
        let line = |lines: &mut String, n: usize| {
            let _ = writeln!(lines, "big,s=s{} v={}.5 {}", n % 10, n % 977, START + n as i64 * SECOND);
        };
        let lines = (from..from + 10_000).fold(String::new(), |mut lines, n| {
            line(&mut lines, n);
            lines
        });
        post(&server.url("/write?db=h"), lines, &[]).expect(204);
    }
    for from in (0..TEXTS).step_by(200) {
        let line = |n: usize| format!("long t=\"{n}{}\" {}\n", "x".repeat(TEXT_BYTES), START + n as i64 * 60 * SECOND);
        post(&server.url("/write?db=h"), (from..from + 200).map(line).collect::<String>(), &[]).expect(204);
    }
    flush(&server);
    server
}

/// Returns the memory of a server and resets its peak.
pub fn reset_and_measure(server: &Server) -> Memory {
    forget_peak(server.pid());
    Memory::measure(server)
}

#[test]
fn a_query_stays_within_its_budget() {
    let server = with_data(&format!("[query]\ntimeout = \"{}s\"\n", TIMEOUT.as_secs()));
    for (name, attack) in attacks() {
        let before = reset_and_measure(&server);
        let (status, length, error) = with_good_client(&server, &format!("query {name}"), || {
            let started = Instant::now();
            let answer = attack.ask(&server);
            let took = started.elapsed();
            let peak = Memory::measure(&server).peak;
            let grown = peak.saturating_sub(before.resident) >> 20;
            print(&format!("| {name} | {grown} MiB | {:.2} s | {} {} |", took.as_secs_f64(), answer.0, answer.2));
            // `query.timeout`, and one late check, of each statement of a long answer.
            assert!(took < (TIMEOUT + Duration::from_secs(5)) * attack.statements(), "{name}: {took:?}");
            answer
        });
        Memory::assert_growth_at_most(&server, before, GROWTH_BYTES);
        assert!(matches!(status, 200 | 400 | 503), "{name}: {status} {error}");
        let names_its_bound = error.contains("query.") || error.contains("regular expressions");
        assert!(error.is_empty() || names_its_bound || length < 400, "{name}: {error}");
    }
}

#[test]
fn concurrent_queries_stay_within_the_total_budget() {
    let server = with_data("");
    let before = reset_and_measure(&server);
    let attacks = attacks();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some((name, attack)) = attacks.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                    let (status, _, error) = attack.ask(&server);
                    assert!(matches!(status, 200 | 400 | 503), "{name}: {status} {error}");
                }
            });
        }
    });
    // Other queries may be refused; writes never are.
    post(&server.url("/write?db=h"), "beside v=1 1", &[]).expect(204);
    print(&format!("all at once: {} MiB grown", (Memory::measure(&server).peak.saturating_sub(before.resident)) >> 20));
    Memory::assert_growth_at_most(&server, before, GROWTH_BYTES);
}

/// Regression: a hundred slow readers of large answers held 1.8 GB for ever.
#[test]
fn slow_readers_stay_within_the_answer_budget() {
    let server = with_data("");
    let before = reset_and_measure(&server);
    {
        let path = format!("/query?db=h&q={}", encode("SELECT t FROM long LIMIT 500"));
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let open = |_| {
            let mut stream = TcpStream::connect(server.address()).expect("a connection");
            stream.write_all(head.as_bytes()).expect("a request");
            stream
        };
        let streams: Vec<TcpStream> = (0..100).map(open).collect();
        let mut statuses = Vec::new();
        for mut stream in streams.iter() {
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).expect("an answer begins");
            statuses.push(String::from_utf8_lossy(&begin[9..]).into_owned());
        }
        let answered = statuses.iter().filter(|status| *status == "200").count();
        print(&format!("100 clients that hardly read: {answered} answered, the others 503"));
        assert!(answered > 0 && statuses.iter().all(|status| status == "200" || status == "503"), "{statuses:?}");
        Memory::assert_growth_at_most(&server, before, GROWTH_BYTES);
        // Other queries are refused; writes are not affected.
        post(&server.url("/write?db=h"), "beside v=1 1", &[]).expect(204);
    }
    // Their memory is released once the closed connections are noticed.
    let ask = || influxql("SELECT t FROM long LIMIT 500").ask(&server).0;
    assert!((0..100).any(|_| ask() == 200 || {
        std::thread::sleep(Duration::from_millis(50));
        false
    }));
}
