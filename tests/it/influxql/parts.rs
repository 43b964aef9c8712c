//! Answers that do not fit into the memory of a request: read and sent in parts, and equal to those that fit.

use crate::support::prelude::*;

/// Memory with which every answer below has several parts, or is computed span by span.
const SMALL: &str = "[query]\nbytes = \"8MiB\"\ntimeout = \"2m\"\n";
const LARGE: &str = "[query]\nbytes = \"512MiB\"\n";
const SENSORS: i64 = 30;
const READINGS: i64 = 1_600;

/// Three of five minutes have a reading. Sensors differ in site, and the values repeat.
fn server(launch: Launch, config: &str) -> Server {
    let server = launch.config(config).start();
    for sensor in 0..SENSORS {
        let line = |n: i64| {
            let time = START + (n / 3 * 5 + n % 3) * 60 * SECOND + sensor;
            let v = (n * 7919 + sensor * 31) % 1009;
            let w = (n * 31 + sensor) % 97;
            format!("m,s={sensor:02},site=s{} v={v}i,w={w}.25,t=\"x{}\" {time}\n", sensor % 3, w % 5)
        };
        write_to(&server, "db=d&precision=ns", (0..READINGS).map(line).collect::<String>());
    }
    server
}

fn ask(server: &Server, parameters: &str, q: &str) -> Answer {
    let q = encode(q);
    get(&server.url(&format!("/query?db=d&epoch=ns&{parameters}&q={q}")))
}

/// Long answers were refused: they were held whole, and the values of all windows of a group at once.
#[test]
fn long_answers_equal_those_that_fit() {
    let large = server(Launch::embedded(), LARGE);
    for (first, store) in stores().into_iter().enumerate() {
        let small = server(Launch::with_store(store), SMALL);
        let questions = [
            "SELECT * FROM m",
            "SELECT * FROM m ORDER BY time DESC",
            "SELECT v, w * 2 FROM m WHERE w > 20 AND t != 'x1'",
            "SELECT v FROM m GROUP BY s",
            "SELECT v, t FROM m GROUP BY site, s ORDER BY time DESC",
            "SELECT * FROM m GROUP BY site",
            "SELECT w FROM m; SELECT count(v) FROM m; SELECT v FROM m GROUP BY *",
            // Each result fits, but not all of them together.
            &["SELECT * FROM m WHERE s='01'"; 50].join(";"),
            "SELECT v FROM m GROUP BY s LIMIT 1000 OFFSET 500",
            "SELECT median(w), percentile(v, 90), mode(v) FROM m GROUP BY time(1d)",
            "SELECT median(v), count(distinct(v)) FROM m GROUP BY time(36h), site fill(previous)",
            "SELECT difference(median(v)) FROM m GROUP BY time(6h), site",
        ];
        for q in shared(questions, first) {
            let expected = ask(&large, "", q).expect(200);
            let answer = ask(&small, "", q).expect(200);
            assert!(
                answer.text() == expected.text(),
                "{q}: {} and {} bytes",
                answer.text().len(),
                expected.text().len()
            );
        }
        let csv = |server: &Server| {
            let url = server.url("/query?db=d&epoch=ns&q=SELECT+v,w+FROM+m+GROUP+BY+s");
            request("GET", &url, b"", &[("accept", "application/csv")]).expect("an answer").expect(200)
        };
        assert!(csv(&small).text() == csv(&large).text(), "as CSV");
    }
}

/// The rows of chunks, by series, and whether each line says that more follow.
fn chunks(answer: &str) -> (Vec<(Value, Vec<Value>)>, Vec<bool>) {
    let (mut series, mut partial): (Vec<(Value, Vec<Value>)>, Vec<bool>) = Default::default();
    for line in answer.lines() {
        let line: Value = serde_json::from_str(line).expect("a line is a document");
        let result = &line["results"][0];
        partial.push(result["partial"] == true);
        for one in result["series"].as_array().into_iter().flatten() {
            let rows = one["values"].as_array().expect("rows").clone();
            match series.last_mut().filter(|(tags, _)| *tags == one["tags"]) {
                Some((_, held)) => held.extend(rows),
                None => series.push((one["tags"].clone(), rows)),
            }
        }
    }
    (series, partial)
}

/// A chunk may end with a part. Only the last line says that nothing follows.
#[test]
fn chunks_of_long_answers_have_all_rows() {
    let small = server(Launch::embedded(), SMALL);
    let large = server(Launch::embedded(), LARGE);
    for q in ["SELECT * FROM m", "SELECT v FROM m GROUP BY s"] {
        let parts = ask(&small, "chunked=true&chunk_size=700", q).expect(200);
        let whole = ask(&large, "chunked=true", q).expect(200);
        let (series, partial) = chunks(parts.text());
        assert!(series == chunks(whole.text()).0, "{q}");
        assert_eq!(partial.iter().position(|partial| !partial), Some(partial.len() - 1), "{q}");
    }
}

/// An answer that fails after its beginning must not look complete in any format.
#[test]
fn a_failed_part_aborts_the_answer() {
    let server = server(Launch::embedded().env("FAULT_FAIL_AT", "export_part:2"), SMALL);
    let url = server.url("/query?db=d&q=SELECT+*+FROM+m");
    let raw = |version: &str| {
        let mut connection = TcpStream::connect(server.address()).expect("a connection");
        connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        write!(
            connection,
            "GET /query?db=d&q=SELECT+*+FROM+m HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        )
        .expect("sent");
        let mut all = Vec::new();
        let _ = connection.read_to_end(&mut all);
        all
    };
    let answer = raw("1.1");
    assert!(answer.starts_with(b"HTTP/1.1 200") && !answer.ends_with(b"0\r\n\r\n"), "it looks complete");
    assert!(server.stderr().contains("an answer was aborted"));
    let json: Value = serde_json::from_str(get(&url).expect(200).text()).expect("only the second part failed");
    let rows = json["results"][0]["series"][0]["values"].as_array().expect("rows");
    assert_eq!(rows.len(), usize::try_from(SENSORS * READINGS).unwrap());
    assert!(raw("1.0").starts_with(b"HTTP/1.0 400"));
}

/// A part that began within a group began there within the next group, too, if the first one was deleted meanwhile: the
/// next one lacked its earlier readings.
#[test]
fn a_deleted_group_takes_nothing_from_the_next_one() {
    let server = Launch::embedded().config(SMALL).start();
    let count = 40_000;
    for group in ["a", "b"] {
        let line = |n: i64| format!("m,g={group} t=\"{n:060}\" {}\n", START + n * SECOND);
        write_to(&server, "db=d&precision=ns", (0..count).map(line).collect::<String>());
    }
    let mut slow = TcpStream::connect(server.address()).expect("a connection");
    slow.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let path = format!("/query?db=d&epoch=ns&q={}", encode("SELECT t FROM m GROUP BY g"));
    write!(slow, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").expect("sent");
    let mut all = vec![0; 1000];
    slow.read_exact(&mut all).expect("it has begun");
    execute(&server, "d", "DELETE FROM m WHERE g = 'a'");
    slow.read_to_end(&mut all).expect("an answer");
    let head = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let answer: Value = serde_json::from_slice(&joined(&all[head..])).expect("a complete document");
    let series = answer["results"][0]["series"].as_array().expect("series");
    let rows = |number: usize| series[number]["values"].as_array().expect("rows").len();
    assert!(rows(0) < usize::try_from(count).unwrap(), "the first group was deleted while it was sent");
    assert_eq!(rows(1), usize::try_from(count).unwrap());
}

/// Joins the chunks of a body.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = body.windows(2).position(|bytes| bytes == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).expect("a size");
        all.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 2 + size + 2..];
    }
    all
}
