//! Every endpoint and every statement with every kind of token. What a token may do is written out below by hand, place
//! by place, so that it shares nothing with the table of effects in the service.

use crate::support::prelude::*;

use super::{await_status, create, start_with_auth, token_command, with};

/// The right that a request needs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Need {
    Nothing,
    /// Any valid token.
    Token,
    /// Rights in the place that the request names.
    Read,
    Write,
    Admin,
    /// The same in the whole database of the place.
    ReadDatabase,
    WriteDatabase,
    AdminDatabase,
    /// Rights in the place and in database `b`.
    ReadBoth,
    Metrics,
    Service,
    /// The secret of a mapping in the path. A token in a header does not help.
    PathSecret,
}
use Need::*;

/// Databases and retention policies that requests name. `b/foo_lab` is a policy whose name looks like a database.
const PLACES: &[&str] = &["a", "a/week", "b", "b/week", "b/foo_lab", "x_lab", "x_lab/week"];
const A: &[&str] = &["a", "a/week"];
const LAB: &[&str] = &["x_lab", "x_lab/week"];
const A_AND_B: &[&str] = &["a", "a/week", "b", "b/week", "b/foo_lab"];

/// A kind of token, its flags, and the places where it may do something.
struct Kind {
    name: &'static str,
    flags: &'static [&'static str],
    read: &'static [&'static str],
    write: &'static [&'static str],
    admin: &'static [&'static str],
    metrics: bool,
    service: bool,
}

const fn kind(
    name: &'static str,
    flags: &'static [&'static str],
    [read, write, admin]: [&'static [&'static str]; 3],
) -> Kind {
    Kind { name, flags, read, write, admin, metrics: false, service: false }
}

const KINDS: &[Kind] = &[
    kind("write", &["--write", "a"], [&[], A, &[]]),
    kind("read", &["--read", "a"], [A, &[], &[]]),
    kind("both", &["--write", "?", "--read", "a*"], [A, A_AND_B, &[]]),
    kind("read-all", &["--read", "*"], [PLACES, &[], &[]]),
    kind("write-all", &["--write", "*"], [&[], PLACES, &[]]),
    kind("pinned", &["--write", "*", "--read", "*", "--sensor-tag", "site=lab"], [PLACES, PLACES, &[]]),
    kind("pinned-a", &["--write", "a", "--read", "a", "--sensor-tag", "site=lab"], [A, A, &[]]),
    kind("admin-a", &["--admin", "a"], [A, A, A]),
    kind("admin-one-letter", &["--admin", "?"], [A_AND_B, A_AND_B, A_AND_B]),
    // Matches every database, but only `*` itself covers the service.
    kind("admin-each", &["--admin", "**"], [PLACES, PLACES, PLACES]),
    // Regression: `*_lab` also covered `b/foo_lab`, a policy of another database.
    kind("read-lab", &["--read", "*_lab"], [LAB, &[], &[]]),
    kind("write-lab", &["--write", "*_lab"], [&[], LAB, &[]]),
    kind("admin-lab", &["--admin", "*_lab"], [LAB, LAB, LAB]),
    kind("policy-read", &["--read", "a/week"], [&["a/week"], &[], &[]]),
    kind("policy-write", &["--write", "a/week"], [&[], &["a/week"], &[]]),
    kind("policy-admin", &["--admin", "a/week"], [&["a/week"], &["a/week"], &["a/week"]]),
    kind("policies-of-b", &["--read", "b/*"], [&["b/week", "b/foo_lab"], &[], &[]]),
    kind("weeks", &["--read", "*/week"], [&["a/week", "b/week", "x_lab/week"], &[], &[]]),
    Kind { metrics: true, ..kind("metrics", &["--metrics"], [&[], &[], &[]]) },
    Kind { metrics: true, service: true, ..kind("admin", &["--admin", "*"], [PLACES, PLACES, PLACES]) },
];

/// A request: method, path, query, body and need. `{db}` stands for the database of a place, `{rp}` for its policy,
/// `{place}` for both as `a/week` or `a`, `{from}` for both in a statement. No request changes anything that another one needs.
type Case = (&'static str, &'static str, &'static str, &'static str, Need);

/// Method, path with query, body, need and place.
type Request = (&'static str, String, &'static str, Need, &'static str);

const LINE: &str = "m,site=lab v=1 1";
const JSON: &str = "{\"measurement\":\"m\",\"tags\":{\"site\":\"lab\"},\"time\":1,\"fields\":{\"v\":1}}";
const META: &str = "{\"sensor\":\"m,site=lab\",\"meta\":{}}";
const RENAME: &str = "{\"kind\":\"tag_key\",\"from\":\"unused\",\"to\":\"w\"}";

const MAPPING: &str = "name = \"plug\"\nmeasurement = \"plug\"\nfields = [{ path = \"/watts\" }]\n";
const BUCKET: &str = "{\"name\":\"a\"}";
const DELETION: &str = "{\"start\":\"2001-01-01T00:00:00Z\",\"stop\":\"2001-01-01T00:00:01Z\"}";

/// Requests that every permitted token gets refused: Flux, an unknown bucket, an existing one, the setup, lines where
/// protobuf is expected, an unknown mapping, and a secret without a name.
const REFUSING: &[(&str, &str, u16)] = &[
    ("POST", "/api/v2/query?", 400),
    ("GET", "/api/v2/buckets/{key}?", 404),
    ("POST", "/api/v2/buckets?", 409),
    ("POST", "/api/v2/setup?", 409),
    ("POST", "/api/v1/write?", 415),
    ("POST", "/v1/metrics?", 415),
    ("POST", "/api/v1/instances/drain?", 409),
    ("DELETE", "/api/v1/instances/{key}?", 404),
    ("DELETE", "/api/v1/mappings/{key}?", 404),
    ("POST", "/api/v1/mappings/{key}/secrets?", 400),
    ("DELETE", "/api/v1/mappings/{key}/secrets/{value}?", 409),
];

const ENDPOINTS: &[Case] = &[
    ("GET", "/", "", "", Nothing),
    ("GET", "/openapi.json", "", "", Nothing),
    ("GET", "/ping", "", "", Nothing),
    ("GET", "/health", "", "", Nothing),
    ("GET", "/ready", "", "", Nothing),
    ("GET", "/settings", "", "", Nothing),
    ("GET", "/ui/{key}", "", "", Nothing),
    ("GET", "/api/v1/caller", "", "", Token),
    ("POST", "/write", "db={db}&rp={rp}", LINE, Write),
    ("POST", "/api/v2/write", "bucket={place}", LINE, Write),
    ("POST", "/api/v3/write_lp", "db={place}", LINE, Write),
    ("POST", "/api/v1/write", "db={db}&rp={rp}", LINE, Write),
    ("POST", "/v1/metrics", "db={place}", LINE, Write),
    ("POST", "/api/v2/delete", "bucket={place}", DELETION, AdminDatabase),
    ("POST", "/api/v2/query", "", "buckets()", Token),
    ("GET", "/api/v2/buckets", "", "", Token),
    ("GET", "/api/v2/buckets/{key}", "", "", Token),
    ("POST", "/api/v2/buckets", "", BUCKET, WriteDatabase),
    ("GET", "/api/v2/orgs", "", "", Token),
    ("GET", "/api/v2/setup", "", "", Nothing),
    ("POST", "/api/v2/setup", "", "", Nothing),
    ("POST", "/api/v1/readings", "db={place}", JSON, Write),
    ("POST", "/api/v1/ingest/{key}", "db={place}", "{}", Write),
    ("POST", "/api/v1/ingest/{key}/{secret}", "db={place}", "{}", PathSecret),
    ("GET", "/api/v1/mappings", "db={place}", "", Admin),
    ("DELETE", "/api/v1/mappings/{key}", "db={place}", "", Admin),
    ("PUT", "/api/v1/mappings/{key}", "db={place}", MAPPING, Admin),
    ("POST", "/api/v1/mappings/{key}/secrets", "db={place}", "{}", Admin),
    ("DELETE", "/api/v1/mappings/{key}/secrets/{value}", "db={place}", "", Admin),
    ("POST", "/api/v1/explain", "db={place}", LINE, Write),
    ("PUT", "/api/v1/sensors/{key}/meta", "db={place}", "{}", Write),
    ("PATCH", "/api/v1/sensors/{key}/meta", "db={place}", "{}", Write),
    ("POST", "/api/v1/meta", "db={place}", META, Write),
    ("GET", "/api/v1/readings", "db={place}&measurement=m", "", Read),
    ("GET", "/api/v1/readings", "db={place}&sensor=m,site=lab", "", Read),
    ("GET", "/api/v1/export", "db={place}&measurement=m", "", Read),
    ("GET", "/api/v1/summary", "db={place}&measurement=m", "", Read),
    ("GET", "/api/v1/histogram", "db={place}&measurement=m&field=v&bounds=1", "", Read),
    ("GET", "/api/v1/sensors", "db={place}", "", Read),
    ("GET", "/api/v1/sensors/{key}/meta", "db={place}", "", Read),
    ("GET", "/api/v1/groups", "db={place}", "", Read),
    ("GET", "/api/v1/groups/{key}", "db={place}", "", Read),
    ("GET", "/api/v1/groups/{key}/{value}", "db={place}", "", Read),
    ("GET", "/api/v1/meta", "db={place}", "", Read),
    ("GET", "/api/v1/latest", "db={place}", "", Read),
    ("GET", "/api/v1/tail", "db={place}", "", Read),
    ("GET", "/api/v1/measurements", "db={place}", "", Read),
    ("GET", "/api/v1/tags", "db={place}", "", Read),
    ("GET", "/api/v1/tags/{key}", "db={place}", "", Read),
    ("GET", "/api/v1/fields", "db={place}", "", Read),
    ("GET", "/api/v1/documents", "db={place}&sensor=m,site=lab", "", Admin),
    ("GET", "/api/v1/rejections", "db={place}", "", Admin),
    ("DELETE", "/api/v1/rejections", "db={place}&through=1", "", Admin),
    ("GET", "/api/v1/renames", "db={place}", "", Admin),
    ("PUT", "/api/v1/renames", "db={place}&dry_run=true", RENAME, Admin),
    ("PUT", "/api/v1/renames", "db={place}", RENAME, Admin),
    ("DELETE", "/api/v1/readings", "db={place}&measurement=unused", "", Admin),
    ("DELETE", "/api/v1/readings", "db={place}&measurement=unused&dry_run=true", "", Admin),
    ("DELETE", "/api/v1/renames", "db={place}&dry_run=true&kind=tag_key&from=unused", "", Admin),
    ("GET", "/api/v1/databases", "", "", Token),
    ("GET", "/api/v1/databases/{place}", "", "", Admin),
    ("PUT", "/api/v1/databases/{place}", "dry_run=true", "{}", Admin),
    ("PUT", "/api/v1/databases/{place}", "", "{}", Admin),
    ("PATCH", "/api/v1/databases/{place}", "dry_run=true", "{}", Admin),
    ("PATCH", "/api/v1/databases/{place}", "", "{}", Admin),
    ("GET", "/api/v1/tokens", "", "", Service),
    ("POST", "/api/v1/tokens", "", "{\"name\":\"made\",\"read\":[\"x\"]}", Service),
    ("POST", "/api/v1/tokens/{key}/revoke", "", "", Service),
    ("POST", "/api/v1/flush", "", "", Service),
    ("GET", "/api/v1/instances", "", "", Service),
    ("POST", "/api/v1/instances/drain", "", "", Service),
    ("DELETE", "/api/v1/instances/{key}", "", "", Service),
    ("GET", "/api/v1/jobs", "", "", Service),
    ("GET", "/api/v1/jobs/{key}", "", "", Service),
    ("GET", "/api/v1/jobs/refresh/outdated", "db={place}", "", Service),
    ("POST", "/api/v1/jobs/{key}/run", "", "", Service),
    ("GET", "/api/v1/backup", "", "", Service),
    ("GET", "/api/v1/backup/days", "db={place}", "", Service),
    ("GET", "/api/v1/backup/day", "db={place}&day=0", "", Service),
    ("GET", "/api/v1/backup/sensors", "db={place}", "", Service),
    ("POST", "/api/v1/backup/completed", "began=1", "", Service),
    ("GET", "/api/v1/dead-letters", "", "", Service),
    ("GET", "/api/v1/overview", "", "", Metrics),
    ("GET", "/api/v1/status", "", "", Metrics),
    ("GET", "/metrics", "", "", Metrics),
];

/// Statements for `GET` and `POST /query`. The parameters name the place, unless the statement does.
const READS: &[(&str, &str, Need)] = &[
    ("", "SHOW DATABASES", Token),
    ("", "SHOW QUERIES", Token),
    ("", "SHOW USERS", Token),
    ("", "SHOW STATS", Metrics),
    ("", "SHOW DIAGNOSTICS", Metrics),
    ("db={db}&rp={rp}", "SELECT * FROM m", Read),
    ("db={db}&rp={rp}", "SELECT v FROM (SELECT v FROM m)", Read),
    ("db={db}&rp={rp}", "EXPLAIN SELECT v FROM m", Read),
    ("db={db}&rp={rp}", "EXPLAIN ANALYZE SELECT v FROM (SELECT v FROM m)", Read),
    ("db={db}&rp={rp}", "SELECT v FROM /m/ GROUP BY *", Read),
    ("db={db}&rp={rp}", "SHOW MEASUREMENTS", Read),
    ("db={db}&rp={rp}", "SHOW SERIES", Read),
    ("db={db}&rp={rp}", "SHOW TAG KEYS", Read),
    ("db={db}&rp={rp}", "SHOW TAG VALUES WITH KEY = site", Read),
    ("db={db}&rp={rp}", "SHOW FIELD KEYS", Read),
    ("db={db}&rp={rp}", "SHOW SERIES CARDINALITY", Read),
    ("db={db}&rp={rp}", "SHOW MEASUREMENT EXACT CARDINALITY", Read),
    ("db={db}&rp={rp}", "SHOW MEASUREMENTS;SHOW TAG KEYS", Read),
    ("db={db}&rp={rp}", "SHOW RETENTION POLICIES", ReadDatabase),
    // Another database than that of the request.
    ("db=b", "SELECT * FROM {from}.m", Read),
    ("", "SELECT * FROM {from}.m, b..m", ReadBoth),
    ("", "SELECT v FROM (SELECT v FROM {from}.m), (SELECT v FROM b..m)", ReadBoth),
    ("db=b&rp={rp}", "SHOW SERIES ON {db}", Read),
    ("db=b", "SHOW RETENTION POLICIES ON {db}", ReadDatabase),
];

/// Statements for `POST /query` with `dry_run`, which is checked as the change itself.
const CHANGES: &[(&str, &str, Need)] = &[
    ("", "CREATE DATABASE {db}", WriteDatabase),
    // Regression: a token with only writes could set a retention, which deletes readings.
    ("", "CREATE DATABASE {db} WITH DURATION 1h NAME p1", AdminDatabase),
    ("db=b", "CREATE RETENTION POLICY week ON {db} DURATION 7d REPLICATION 1", AdminDatabase),
    ("db=b", "ALTER RETENTION POLICY autogen ON {db} DURATION 900d", AdminDatabase),
    ("db=b", "DROP RETENTION POLICY week ON {db}", AdminDatabase),
    ("db=b", "DROP DATABASE {db}", AdminDatabase),
    ("db={db}&rp={rp}", "DELETE FROM m", AdminDatabase),
    ("db={db}&rp={rp}", "DELETE FROM m WHERE v > 1", AdminDatabase),
    ("db={db}&rp={rp}", "DROP SERIES FROM m", AdminDatabase),
    ("db={db}&rp={rp}", "DROP MEASUREMENT m", AdminDatabase),
];

impl Kind {
    fn may(&self, need: Need, place: &str) -> bool {
        let database = place.split('/').next().unwrap();
        match need {
            Nothing | Token => true,
            Read => self.read.contains(&place),
            Write => self.write.contains(&place),
            Admin => self.admin.contains(&place),
            ReadDatabase => self.read.contains(&database),
            WriteDatabase => self.write.contains(&database),
            AdminDatabase => self.admin.contains(&database),
            ReadBoth => self.read.contains(&place) && self.read.contains(&"b"),
            Metrics => self.metrics,
            Service => self.service,
            PathSecret => false,
        }
    }
}

/// A server that requires tokens, and its tokens by kind.
struct Matrix {
    server: Server,
    tokens: BTreeMap<&'static str, String>,
}

impl Matrix {
    fn new() -> Matrix {
        let (server, admin) = start_with_auth("[[groups]]\nname = \"site\"\nby = \"site\"\n");
        for place in PLACES {
            let (database, policy) = place.split_once('/').unwrap_or((place, "autogen"));
            let statement = format!(
                "CREATE DATABASE {database};CREATE RETENTION POLICY {policy} ON {database} DURATION INF REPLICATION 1"
            );
            with(&admin, "POST", &server.url(&format!("/query?q={}", encode(&statement))), "").expect(200);
            with(&admin, "POST", &server.url(&format!("/write?db={database}&rp={policy}")), LINE).expect(204);
        }
        let mut tokens = refused_tokens(&server, &admin);
        for Kind { name, flags, .. } in KINDS {
            let added = token_command(&server.data_dir(), &[&["add", "--name", *name], *flags].concat());
            tokens.insert(*name, added.expect_success().stdout.trim().to_owned());
        }
        for refused in ["revoked", "rotated away"] {
            await_status(&server, &tokens[refused], 401);
        }
        for Kind { name, .. } in KINDS {
            wait_until("the token is valid", || {
                with(&tokens[name], "GET", &server.url("/api/v1/caller"), "").status == 200
            });
        }
        Matrix { server, tokens }
    }

    fn requests() -> Vec<Request> {
        let reads = READS.iter().flat_map(|read| [("GET", read, ""), ("POST", read, "")]);
        let statements = reads.chain(CHANGES.iter().map(|change| ("POST", change, "&dry_run=true")));
        let statements = statements.map(|(method, (query, statement, need), dry_run)| {
            (method, format!("/query?pretty=true&{query}&q=").replace("&&", "&"), *statement, dry_run, "", *need)
        });
        let endpoints = ENDPOINTS
            .iter()
            .map(|(method, path, query, body, need)| (*method, format!("{path}?{query}"), "", "", *body, *need));
        let mut requests: Vec<Request> = Vec::new();
        for (method, path, statement, dry_run, body, need) in endpoints.chain(statements) {
            for place in PLACES {
                let (database, policy) = place.split_once('/').unwrap_or((place, ""));
                let rp = if policy.is_empty() { String::new() } else { format!("&rp={policy}") };
                let fill = |text: &str| {
                    let text = text.replace("{db}", database).replace("&rp={rp}", &rp);
                    text.replace("{from}", &format!("{database}.{policy}"))
                };
                let url = fill(&path).replace("databases/{place}", &format!("databases/{}", encode(place)));
                let url = url.replace("{place}", place) + &encode(&fill(statement)) + dry_run;
                if !requests.iter().any(|(known, sent, ..)| *known == method && *sent == url) {
                    requests.push((method, url, body, need, *place));
                }
            }
        }
        requests
    }

    /// Sends a request with one kind of token, and describes an answer that is not the expected one. Without a status,
    /// all but refusals will do, because not every request makes sense in every place.
    fn fault(&self, request: &Request, kind: &str, expected: Option<u16>) -> Option<String> {
        let (method, path, body, _, place) = request;
        let key = match path {
            path if path.contains("/sensors/") => "m,site=lab",
            path if path.contains("/jobs/") => "seal",
            path if path.contains("/ingest/") => "chirpstack",
            path if path.contains("/mappings/") => "plug",
            path if path.starts_with("/ui/") => "page.css",
            path if path.ends_with("/revoke?") => "made",
            _ => "site",
        };
        // This answer never ends; the head shows the status.
        let method = if path.starts_with("/api/v1/tail") { "HEAD" } else { *method };
        let path_secret = format!("hg_{}_{}", "0".repeat(12), "0".repeat(64));
        let url = path.replace("{key}", key).replace("{value}", "lab").replace("{secret}", &path_secret);
        let url = self.server.url(&url);
        let answer = match kind {
            "none" => http::request(method, &url, body.as_bytes(), &[]).unwrap(),
            kind => with(&self.tokens[kind], method, &url, body),
        };
        if answer.status == 401 {
            assert!(answer.header("www-authenticate").is_some() && !answer.text().contains("hg_"));
        }
        let is_expected = match expected {
            Some(expected) => answer.status == expected,
            None => match REFUSING.iter().find(|(refused, of, _)| *refused == method && path.starts_with(of)) {
                _ if answer.status == 400 && place.contains('/') => true,
                Some((.., status)) => answer.status == *status,
                None => (200..300).contains(&answer.status),
            },
        };
        let header_fault = answer.header_fault();
        let text: String = String::from_utf8_lossy(&answer.body).chars().take(150).collect();
        (!is_expected || header_fault.is_some()).then(|| {
            format!("{method} {path} with {kind}: {}, not {expected:?}: {text} {header_fault:?}", answer.status)
        })
    }

    fn list_databases(&self, kind: &str) -> Vec<String> {
        let url = self.server.url("/query?q=SHOW+DATABASES");
        let answer = with(&self.tokens[kind], "GET", &url, "").expect(200).json();
        let rows = answer["results"][0]["series"][0]["values"].as_array().cloned().unwrap_or_default();
        rows.iter().map(|row| row[0].as_str().unwrap().to_owned()).collect()
    }
}

/// Tokens that must be refused, by their defect.
fn refused_tokens(server: &Server, admin: &str) -> BTreeMap<&'static str, String> {
    let mut tokens = BTreeMap::new();
    for kind in ["revoked", "rotated away"] {
        let name = kind.replace(' ', "-");
        tokens.insert(kind, create(server, &["--name", &name, "--admin", "*", "--expires", "1h"]));
    }
    // Not by `create`, which would wait until the token is valid: on a slow machine it has expired by then.
    let expired = ["add", "--name", "expired", "--admin", "*", "--expires", "1s"];
    tokens.insert("expired", token_command(&server.data_dir(), &expired).expect_success().stdout.trim().to_owned());
    token_command(&server.data_dir(), &["revoke", "revoked"]).expect_success();
    token_command(&server.data_dir(), &["rotate", "rotated-away"]).expect_success();
    let flipped = |text: &str| text[..text.len() - 1].to_owned() + if text.ends_with('0') { "1" } else { "0" };
    tokens.insert("wrong secret", flipped(admin));
    tokens.insert("unknown", admin.replacen(&admin[3..15], "000000000000", 1));
    tokens.insert("malformed", "secret".to_owned());
    tokens.insert("empty", String::new());
    let is_expired = || token_command(&server.data_dir(), &["list"]).stdout.contains(" expired 2");
    wait_until("one has expired", is_expired);
    tokens
}

/// Accepted forms of a refusal.
const REFUSED: &[&str] =
    &["none", "malformed", "unknown", "wrong secret", "empty", "revoked", "expired", "rotated away"];

/// Regression: rights were judged by each endpoint and each kind of statement. A write token could set a retention by
/// `CREATE DATABASE`, and `--read '*_lab'` read a policy of another database.
#[test]
fn every_request_checks_every_kind_of_token() {
    let matrix = Matrix::new();
    let described = matrix.server.fetch("/openapi.json");
    for (path, operations) in described["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            let path = path.replace("databases/{key}", "databases/{place}");
            let is_known = path == "/query" || ENDPOINTS.iter().any(|(m, p, ..)| *m == method && *p == path);
            assert!(is_known, "{method} {path} has no case: what does it need?");
        }
    }
    let began = Instant::now();
    let mut cells = 0;
    let mut faults = Vec::new();
    for request in Matrix::requests() {
        let (_, _, _, need, place) = &request;
        // A refusal of the token does not depend on the place.
        for refused in REFUSED.iter().filter(|_| *place == PLACES[0]) {
            cells += 1;
            faults.extend(matrix.fault(&request, refused, (*need != Nothing).then_some(401)));
        }
        for kind in KINDS {
            cells += 1;
            let refusal = if *need == PathSecret { 401 } else { 403 };
            faults.extend(matrix.fault(&request, kind.name, (!kind.may(*need, place)).then_some(refusal)));
        }
    }
    for kind in KINDS {
        let visible = |name: &&str| {
            PLACES.iter().any(|place| {
                place.split('/').next() == Some(*name) && (kind.may(Read, place) || kind.may(Write, place))
            })
        };
        let expected: Vec<&str> = ["a", "b", "x_lab"].into_iter().filter(visible).collect();
        let listed = matrix.list_databases(kind.name);
        if listed != expected {
            faults.push(format!("SHOW DATABASES with {}: {listed:?}, not {expected:?}", kind.name));
        }
    }
    let _ = writeln!(std::io::stderr(), "access: {cells} cells checked in {:.1?}", began.elapsed());
    assert!(faults.is_empty(), "{} faults: {:#?}", faults.len(), &faults[..faults.len().min(40)]);
}
