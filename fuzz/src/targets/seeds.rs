//! The seeds of the targets, and the words that mutation inserts.

use std::io::Write;

use super::http::PREFACE;

/// Words of line protocol, and numbers at the limits of their types.
pub const LINES: &[&str] = &[
    "\n",
    "\r\n",
    "\r",
    " ",
    ",",
    "=",
    "\\",
    "\"",
    "\\\"",
    "\\ ",
    "\\,",
    "\\=",
    "#",
    "\"\n\"",
    " 1",
    "i",
    "u",
    "t",
    "TRUE",
    "-",
    ".",
    "e5",
    "1e999",
    "-0",
    "NaN",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808i",
    "18446744073709551616u",
    "m f=1\n",
    ",g=\"x\"",
    "\u{85}",
    "\u{e9}",
    "\u{1f321}",
    "\t",
    "\0",
    "123456789.123456",
    "00000000000000000000001",
    "0.30000000000000004",
];
/// Words of JSON and of readings.
pub const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\u0000",
    "\\ud800",
    "\\n",
    "null",
    "true",
    "NaN",
    "-Infinity",
    "1e999",
    "-0",
    "9223372036854775808",
    "18446744073709551616",
    "0.1",
    "\n",
    " ",
    "\"fields\":{",
    "\"tags\":{",
    "\"sensor\":\"s\"",
    "\"value\":1",
    "\"ts\":1",
    "\"measurement\":\"m\"",
    "{\"sensor\":\"s1\",\"value\":1}",
    "[[[[[[[[",
    "{\"a\":{\"a\":",
];
/// Words of mappings, topics and messages.
pub const MAPPING: &[&str] = &[
    "\n",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    "=",
    "/",
    "/*",
    "~1",
    "~0",
    "~",
    "+",
    "#",
    "{ topic = 2 }",
    "{ path = \"/a\" }",
    "tags = { t = \"x\" }\n",
    "fields = [{ path = \"\" }]\n",
    "each = \"/a\"\n",
    "body = \"plain\"\n",
    "only_with = [\"/a\"]\n",
    "missing = [\"nan\"]\n",
    "type = \"integer\"",
    "time = { path = \"/t\", format = \"s\" }\n",
    "\"local\", zone = \"Europe/Berlin\"",
    "\"2026-10-25T02:30:00\"",
    "{\"a\":{\"a\":",
    "null",
    "1e999",
    "18446744073709551615",
    "\"on\"",
    "{\"a\":[{\"b\":1},{\"b\":2}],\"t\":1768485600}",
];
/// Words of HTTP requests.
pub const HTTP: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "GET ",
    "POST ",
    "HEAD ",
    "OPTIONS ",
    "PUT ",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "HTTP/2.0",
    "host: localhost\r\n",
    "connection: close\r\n",
    "connection: upgrade\r\n",
    "content-length: 0\r\n",
    "content-length: -1\r\n",
    "content-length: 18446744073709551616\r\n",
    "transfer-encoding: chunked\r\n",
    "transfer-encoding: x, chunked\r\n",
    "expect: 100-continue\r\n",
    "content-encoding: gzip\r\n",
    "content-type: application/x-www-form-urlencoded\r\n",
    "accept-encoding: gzip\r\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "5;ext=1\r\n",
    "/write?db=d",
    "/query?q=",
    "%00",
    "%ff",
    "%",
    "&",
    "&&",
    "=",
    "?",
    "#",
    "//",
    "..",
    "\0",
    "\u{80}",
    "authorization: Token \r\n",
    ": \r\n",
    "\n",
    "/health",
    "/metrics",
    "/api/v1/readings?sensor=",
    "&from=",
    "&to=now",
    "&limit=18446744073709551615",
    "&step=1ns",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];
/// Words of InfluxQL.
pub const INFLUXQL: &[&str] = &[
    "select ",
    " from ",
    " where ",
    " group by ",
    " order by ",
    " limit ",
    " offset ",
    " slimit ",
    " fill(",
    "tz('UTC')",
    "time(",
    "time",
    "now()",
    "mean(",
    "distinct ",
    "count(",
    "top(",
    " as ",
    " and ",
    " or ",
    "=",
    "!=",
    "=~",
    "!~",
    "<",
    ">=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "(",
    ")",
    ",",
    ";",
    ".",
    "..",
    "::",
    "float",
    "tag",
    "'",
    "\"",
    "\\'",
    "'2024-01-01'",
    "1",
    "1.5",
    "18446744073709551615",
    "9223372036854775807",
    "9223372036854775808",
    "1h",
    "106751d",
    "/re/",
    "\\/",
    "true",
    "show ",
    "tag values",
    "with key ",
    "in ",
    "cardinality",
    "series",
    "measurements",
    "desc",
    "into ",
    "$p",
    "--",
    "/*",
    "*/",
    "delete ",
    "drop ",
    "create database ",
    "1e5",
    ".5",
    "5.",
    "-1",
    "\u{b5}",
    "\n",
    "((((",
];
/// Characters and words with a special meaning in names or documents.
pub const NAMES: &[&str] = &[
    "$",
    ".",
    "%",
    "\0",
    "ts",
    "ns",
    "%74s",
    "%6Es",
    "system",
    "%73ystem",
    "%2",
    "%%",
    "_id",
    "__proto__",
    "\n",
    "\u{e9}",
];

/// Bodies of line protocol, each under several precisions and limits.
pub fn lines() -> Vec<Vec<u8>> {
    let bodies: [&[u8]; 12] = [
        b"climate,room=lab,sensor=s1 temp=22.1,humidity=45i,on=true,note=\"a \\\"b\\\" \\\\ c\" 1768485600000000000\n",
        b"m f=1\nm f=2u 5\r\n\n# comment\n  m2,t=v f=t,g=F -7 \n",
        b"m f=\"two\nlines\",g=2 3\nm f=4\n",
        b"m f=\"open\nm f=1\nm f=\"x\",g=\"y\nm f=2\n",
        b"my\\ m\\,x,t\\=a\\ b=c\\,d f\\ g\\=h=1e-5\n",
        b"two\\\\ words,t=a\\\\\\ b f=.5,g=5.,h=-0\nm\\ f=1\n",
        b"m f=1,f=2,g=3,f=\"4\" 00000000000000000000009\n",
        b"m,a=1,a=2 f=1\nm,b=2,a=1 f=1\nm, f=1\nm,a= f=1\n,a=1 f=1\n",
        b"m f=9223372036854775808i\nm f=18446744073709551615u\nm f=1e400\nm f=-9223372036854775808i 9223372036854775806\n",
        b"m\xff f=1\nm f=\"\xfe\"\nm \xc2\x85=1\nm f=\"\xc2\x85\"\nm\xc3\xa9,t=\xf0\x9f\x8c\xa1 \xc3\xa9=1\n",
        b"m f=\"a\nb\xff\nc\",g=1\nm f=1\nm f=\"\n\n\n\",g=zz\nm f=2\n",
        b"m f=123456789012345.5,g=0.1,h=1234567890123456.7,i=00000000000.1 1\nm f=1\r",
    ];
    let firsts = [0, 3, 6, 0x80, 0x86];
    bodies.iter().flat_map(|body| firsts.map(|first| [&[first], *body].concat())).collect()
}

/// Bodies of JSON readings, including deeply nested ones.
pub fn json() -> Vec<Vec<u8>> {
    let bodies = [
        r#"{"sensor":"temp-01","value":22.5}"#,
        r#"{"measurement":"climate","tags":{"room":"lab","sensor":"s1"},"ts":"2026-01-15T14:00:00Z","fields":{"temp":22.1,"n":9007199254740993,"s":"a\nb","b":true,"x":null}}"#,
        "[{\"sensor\":\"a\",\"value\":1},{\"sensor\":\"b\",\"value\":-0,\"ts\":1768485600},{\"sensor\":3}, 5, null]",
        "{\"sensor\":\"a\",\"value\":1}\n{\"sensor\":\"b\",\n{\"sensor\":\"c\",\"value\":\"\\u00e9\"}\r\n",
        "{\n \"sensor\": \"a\",\n \"fields\": {\"a.b\": 1e5, \"$x\": 18446744073709551615, \"a.b\": 2}\n}\n{\"sensor\":\"b\",\"value\":2}",
        r#"{"sensor":"a","value":NaN}"#,
        r#"{"tags":{"a":"1","a":"2"},"value":1,"value":2}"#,
        r#"{"fields":{"a":{"b":[1,{"c":2}]}}}"#,
        "\u{feff}{\"value\":1}",
    ];
    let deep = ["[".repeat(3000), "{\"a\":".repeat(3000), format!("{{\"fields\":{}", "{\"a\":[".repeat(1500))];
    let all = bodies.iter().map(|body| (*body).to_owned()).chain(deep);
    all.flat_map(|body| [0, 1, 0x82].map(|first| [&[first], body.as_bytes()].concat())).collect()
}

/// Built-in mappings and one with an array, each with topics and messages.
pub fn mapping() -> Vec<Vec<u8>> {
    let each = "name = \"each\"\nmeasurement = { path = \"/m\" }\ntags = { id = { path = \"/a/*/id\" } }\n\
        each = \"/a\"\nfields = [{ path = \"/a/*/b\", type = \"float\" }, { path = \"/a/*\" }]\n\
        time = { path = \"/t\", format = \"local\", zone = \"Europe/Berlin\", not_before = \"2000-01-01T00:00:00Z\" }\n";
    let messages = [
        ("", r#"{"m":"x","t":"2026-01-15T15:00:00","a":[{"id":1,"b":"2.5"},{"id":"two","b":3,"c":{"d":true}}]}"#),
        ("home/lab/temp", "21.5"),
        ("home/lab/on", "ON"),
        ("tele/plug/SENSOR", r#"{"Time":"2026-01-15T14:00:00","ENERGY":{"Power":[5,0],"Factor":1.0}}"#),
        ("zigbee2mqtt/bulb", "{\"state\":\"ON\",\"color\":{\"x\":0.1}}\n{\"state\":null}"),
    ];
    let texts = hourglass::mapping::builtin::texts().map(|(_, text)| text).chain([each]);
    let join = |text: &str, topic: &str, message: &str| {
        [text.as_bytes(), topic.as_bytes(), message.as_bytes()].join(&[super::mapping::SEPARATOR][..])
    };
    texts.flat_map(|text| messages.map(|(topic, message)| join(text, topic, message))).collect()
}

/// Compressed bodies: whole, cut off, of two members; and bodies to be compressed.
pub fn body() -> Vec<Vec<u8>> {
    let gzip = |plain: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(plain).and_then(|()| encoder.finish()).expect("memory")
    };
    let plain = b"climate,sensor=s1 temp=22.1 1\nbad line\nclimate temp=\"a\nb\" 2\n";
    let whole = gzip(plain);
    let members = [gzip(b"m f=1\n"), gzip(b""), whole.clone()].concat();
    let forms: Vec<(u8, Vec<u8>)> = vec![
        (0, whole.clone()),
        (0, whole[..whole.len() - 3].to_vec()),
        (0, [&whole[..], b"\0\0\0garbage"].concat()),
        (0, members),
        (0, gzip(&vec![b'#'; 200_000])),
        (0, Vec::new()),
        (1, plain.to_vec()),
        (0xa1, plain.to_vec()),
        (0xf1, vec![b'\n'; 64]),
        (1, br#"{"sensor":"s1","value":1}"#.to_vec()),
    ];
    let choices = [0, 0x40, 0x80, 0xc0, 0x01];
    forms
        .iter()
        .flat_map(|(form, rest)| {
            choices.iter().zip([0_u8, 1, 7]).map(|(choice, cut)| [&[*choice, cut, *form], &rest[..]].concat())
        })
        .collect()
}

/// Lines over TCP, some after a first line with a token.
pub fn tcp() -> Vec<Vec<u8>> {
    let hellos: [&[u8]; 5] = [
        b"auth hg_0123456789ab_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef db=d precision=s\n",
        b"auth x\n",
        b"auth \n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ];
    let begun = hellos.iter().flat_map(|hello| lines().into_iter().take(3).map(|body| [hello, &*body].concat()));
    begun.chain(lines()).collect()
}

pub fn http() -> Vec<Vec<u8>> {
    let gets = [
        "/",
        "/health",
        "/ping",
        "/metrics",
        "/status",
        "/openapi.json",
        "/query?q=show+databases",
        "/query?db=d&q=select+mean(temp)+from+climate+where+time+%3E+now()-1h+group+by+time(1m)&epoch=ms&pretty=true",
        "/api/v1/readings?sensor=climate,sensor=s1&from=2026-01-15T14:00:00Z&to=now&limit=10",
        "/api/v1/summary?sensor=climate,sensor=s1&from=0&to=1h&step=1m&fields=temp",
        "/api/v1/sensors?limit=5",
        "/api/v1/tags/site?db=d",
        "/api/v1/readings?measurement=climate&tag.site=lab&order=desc",
    ];
    let mut requests: Vec<Vec<u8>> = gets
        .iter()
        .map(|path| {
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\naccept-encoding: gzip\r\n\r\n")
        })
        .map(String::into_bytes)
        .collect();
    for (path, content, body) in [
        ("/write?db=d&precision=s", "text/plain", "climate,sensor=s1 temp=22.1 1\nbad\n"),
        ("/api/v2/write?org=o&bucket=d/autogen&precision=ms", "text/plain", "climate,sensor=s1 temp=22.1 1\n"),
        ("/api/v3/write_lp?db=d&accept_partial=false", "text/plain", "climate,sensor=s1 temp=22.1 1\n"),
        ("/api/v1/readings?db=d", "application/json", r#"{"sensor":"s1","value":1}"#),
        ("/query", "application/x-www-form-urlencoded", "db=d&q=select+*+from+m&params=%7B%22p%22%3A1%7D"),
        ("/api/v1/flush", "text/plain", ""),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content}\r\n");
        requests.push(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes());
        let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        requests.push(
            [chunked.as_bytes(), b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"].concat(),
        );
    }
    requests.push(b"DELETE /api/v1/readings?sensor=m&from=0&to=1 HTTP/1.0\r\n\r\n".to_vec());
    // With the HTTP/2 preface at the beginning, the answer consists of frames.
    requests.push(PREFACE.to_vec());
    let settings: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
    // GET / with scheme http and authority h, by the static table of HPACK.
    let get: &[u8] = b"\0\0\x06\x01\x05\0\0\0\x01\x82\x84\x86\x41\x01h";
    requests.push([PREFACE, settings, get].concat());
    requests
}

/// Every kind of change to every WAL.
pub fn log() -> Vec<Vec<u8>> {
    let change = |kind: u8, place: u8| vec![kind, place, place.wrapping_mul(37), place % 20, 200, 0, place, 1];
    (0..6_u8)
        .flat_map(|log| {
            (0..9_u8).map(move |kind| [vec![log], change(kind, kind * 3 + log), change(kind / 2, log)].concat())
        })
        .collect()
}

/// The statements of the parser's own tests.
pub fn influxql() -> Vec<Vec<u8>> {
    let tables = [
        include_str!("../../../crates/influxql/src/tests/clauses.txt"),
        include_str!("../../../crates/influxql/src/tests/functions_and_times.txt"),
        include_str!("../../../crates/influxql/src/tests/show_and_manage.txt"),
    ];
    let lines = tables.iter().flat_map(|table| table.lines()).filter(|line| !line.starts_with('#'));
    let deep = [
        format!("select {}1{} from m", "(".repeat(90), ")".repeat(90)),
        format!("select v from m where a = {}", "1 + ".repeat(400) + "1"),
    ];
    let statements = lines.filter_map(|line| line.split('\t').next()).map(str::to_owned);
    statements.chain(deep).map(String::into_bytes).collect()
}

/// Names of every kind.
pub fn names() -> Vec<Vec<u8>> {
    [
        "temp\nhumidity",
        "a.b\na%2Eb",
        "$where\n%24where",
        "ts\n%74s",
        "ns",
        "\0",
        "system\nSystem",
        "t\u{e9}mp\nte\u{301}mp",
        "",
    ]
    .map(|names| names.as_bytes().to_vec())
    .to_vec()
}

/// Sources of documents. Any bytes are valid.
pub fn documents() -> Vec<Vec<u8>> {
    let mut random = crate::random::Random::new(7);
    let mut seeds = Vec::new();
    for kind in 0..4 {
        for length in [16, 60, 200, 600] {
            let bytes = (0..length).map(|_| random.next().to_le_bytes()[0]);
            seeds.push(std::iter::once(kind).chain(bytes).collect());
        }
    }
    seeds
}
