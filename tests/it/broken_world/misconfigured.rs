//! A reachable but unusable MongoDB: clients see the error class, operators the details, and no reading is lost.

use crate::support::prelude::*;

const CONFIG: &str =
    "[status]\nlisten = \"127.0.0.1:0\"\n[flush]\ninterval = \"100ms\"\n[ingest]\nack_timeout = \"2s\"\n";
/// Exit status of a first start with an unusable store.
const EXIT_STORE: i32 = 69;

/// A mongod with logins, and a database.
struct Logins {
    mongod: Mongod,
    database: String,
}

impl Logins {
    fn start() -> Logins {
        let mut mongod = Mongod::start();
        let database = fresh_database_name();
        let role = |role: &str| doc! { "role": role, "db": &database };
        for (user, role) in
            [("writer", role("readWrite")), ("reader", role("read")), ("root", doc! { "role": "root", "db": "admin" })]
        {
            run_command(
                &mongod.uri("admin"),
                Some("admin"),
                doc! { "createUser": user, "pwd": "right", "roles": [role] },
            );
        }
        mongod.restart_with_logins();
        Logins { mongod, database }
    }

    fn uri(&self, login: &str) -> String {
        let with_login = format!("mongodb://{login}127.0.0.1");
        let uri = self.mongod.uri(&self.database).replace("mongodb://127.0.0.1", &with_login);
        if login.is_empty() { uri } else { format!("{uri}&authSource=admin") }
    }

    fn grant_role(&self, role: &str) {
        let root = self.uri("root:right@").replace(&format!("/{}?", self.database), "/admin?");
        run_command(
            &root,
            Some("admin"),
            doc! { "updateUser": "writer", "roles": [doc! { "role": role, "db": &self.database }] },
        );
    }
}

/// Checks that a public text names no hosts, users, databases or driver internals.
#[track_caller]
fn assert_public(text: &str, logins: &Logins) {
    let port = format!(":{}", logins.mongod.port());
    for secret in [&port, &logins.database, "writer", "right", "Kind:", "labels:", "RawDocumentBuf", "Topology"] {
        assert!(!text.contains(secret), "{secret:?} in {text}");
    }
}

fn health(url: &str) -> Answer {
    request("GET", url, b"", &[]).expect("an answer")
}

/// Returns the message of the check `store`.
fn store_of(answer: &Answer) -> String {
    let checks = answer.json()["checks"].as_array().expect("checks").clone();
    let store = checks.into_iter().find(|check: &Value| check["name"] == "store").expect("a check of the store");
    store["message"].as_str().expect("a text").to_owned()
}

#[track_caller]
fn assert_reported(server: &Server, logins: &Logins, class: &str) {
    let answer = eventually(&format!("health reports {class}"), || {
        let answer = health(&server.url("/health"));
        (answer.status == 503 && store_of(&answer).contains(class)).then_some(answer)
    });
    let message = answer.json()["message"].as_str().expect("a text").to_owned();
    assert!(message.starts_with(&format!("store: {class}; ")), "{message}");
    assert_public(answer.text(), logins);
    let detail = store_of(&health(&format!("http://{}/health", server.status())));
    for part in [&logins.database, &format!("127.0.0.1:{}", logins.mongod.port())] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
    let log = server.stderr();
    assert!(log.lines().any(|line| line.contains(class) && line.contains(&logins.database)), "{log}");
    for dump in ["Kind: ", "RawDocumentBuf"] {
        assert!(!log.contains(dump), "{dump} in {log}");
    }
}

/// Regression: a read-only user, wrong credentials or a standalone with `?replicaSet=` did not stop the first start.
#[test]
fn the_first_start_fails_on_a_read_only_store() {
    let logins = Logins::start();
    let standalone = Mongod::start_standalone();
    for (uri, class) in [
        (logins.uri("reader:right@"), "not authorised"),
        (logins.uri(""), "not authorised"),
        (logins.uri("writer:wrong@"), "wrong credentials"),
        (logins.uri("nobody:right@"), "wrong credentials"),
        (logins.uri("writer:right@").replace("replicaSet=hourglass", "replicaSet=other"), "not a replica set"),
        (standalone.uri("d"), "not a replica set"),
        (standalone.uri("d").replace("?replicaSet=hourglass", ""), "not a replica set"),
    ] {
        let started = Instant::now();
        let ended = Launch::with_store(&uri).run_to_end();
        println!(
            "{class}: exit status {:?} after {:.1} s: {}",
            ended.status.code(),
            started.elapsed().as_secs_f64(),
            ended.stderr.lines().last().unwrap_or_default()
        );
        assert_eq!(ended.status.code(), Some(EXIT_STORE), "{uri}: {}", ended.stderr);
        let last = ended.stderr.lines().last().expect("a reason");
        assert!(last.starts_with(&format!("hourglass: store: {class} (")), "{uri}: {last}");
        assert!(!ended.stderr.contains("right") && !ended.stderr.contains("Kind: "), "{}", ended.stderr);
    }
}

/// After a password change the service acks into its WAL, and `/health` shows the cause without driver internals.
#[test]
fn a_store_that_turns_read_only_is_reported_and_costs_no_readings() {
    let logins = Logins::start();
    let launch = |login: &str| Launch::with_store(logins.uri(login)).config(CONFIG);
    let mut server = launch("writer:right@").start();
    let mut readings = 0;
    let mut write = |server: &Server| {
        let line = format!("m,s=1 v={readings} {}", 1_768_485_600_000_000_000_i64 + readings);
        post(&server.url("/write"), line, &[]).expect(204);
        readings += 1;
        server.fetch("/ready")
    };
    write(&server);
    get(&server.url("/health")).expect(200);
    logins.grant_role("read");
    assert_reported(&server, &logins, "not authorised");
    let message = write(&server)["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.starts_with("store: not authorised; ")), "{message}");
    let refused = post(&server.url("/api/v1/flush"), "", &[]).expect(503);
    assert!(refused.json()["code"] == "store_timeout", "{}", refused.text());
    logins.grant_role("readWrite");
    wait_until("health passes", || health(&server.url("/health")).status == 200);
    for (login, class) in
        [("writer:wrong@", "wrong credentials"), ("reader:right@", "not authorised"), ("", "not authorised")]
    {
        server.kill();
        server.restart_as(launch(login));
        assert_reported(&server, &logins, class);
        write(&server);
        let query = get(&server.url("/api/v1/readings?sensor=m,s=1"));
        assert_public(query.text(), &logins);
    }
    server.kill();
    server.restart_as(launch("writer:right@"));
    let stored = eventually("all of them are stored", || {
        let answer = get(&server.url("/api/v1/readings?sensor=m,s=1"));
        (answer.status == 200).then(|| answer.json()["series"][0]["readings"].as_array().expect("readings").len())
    });
    assert_eq!(i64::try_from(stored), Ok(readings));
}

/// The public messages of an outage.
#[test]
fn an_outage_is_reported_with_a_code_and_without_secrets() {
    let mut mongod = Mongod::start();
    let server = Launch::with_store(mongod.uri(&fresh_database_name())).config("[query]\nwait = \"1s\"\n").start();
    post(&server.url("/write?ack=store"), "m,s=1 v=1 1768485600000000000", &[]).expect(204);
    let port = format!(":{}", mongod.port());
    mongod.kill();
    wait_until("the outage is noticed", || store_of(&health(&server.url("/health"))).contains("unavailable"));
    let answers = [get(&server.url("/api/v1/readings?sensor=m,s=1")).expect(503), health(&server.url("/health"))];
    let error = answers[0].json();
    assert_eq!(error["code"], "store_unavailable", "{error}");
    assert!(error["error"].as_str().is_some_and(|text| text.contains("no primary") && text.contains("retry later")));
    for text in answers.iter().map(Answer::text).chain([server.stderr().as_str()]) {
        for part in ["Kind:", "labels:", "Topology", &port] {
            assert!(!text.contains(part), "{part} in {text}");
        }
    }
}
