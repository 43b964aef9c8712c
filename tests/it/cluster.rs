//! Several instances as one service, as real processes on one MongoDB.

use crate::support::prelude::*;

/// Instances that share a store, and the folder with their secret.
struct Cluster {
    servers: Vec<Server>,
    _folder: Folder,
}

impl Cluster {
    /// Starts instances and waits until all own sensors.
    #[track_caller]
    fn start(count: usize, more: &str) -> Cluster {
        Cluster::start_with(count, |folder| {
            let token = folder.file("token");
            fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
            format!("[cluster]\nlisten = \"127.0.0.1:0\"\ntoken_file = {}\n{more}\n", shown(&token))
        })
    }

    #[track_caller]
    fn start_with(count: usize, config: impl Fn(&Folder) -> String) -> Cluster {
        let folder = Folder::new("cluster");
        let launch = Launch::with_store(mongod().uri(&fresh_database_name())).config(config(&folder));
        let servers = (0..count).map(|_| launch.clone().start()).collect();
        let cluster = Cluster { servers, _folder: folder };
        cluster.await_members(count);
        cluster
    }

    fn await_members(&self, count: usize) {
        wait_until("all instances own sensors", || {
            self.servers.iter().all(|server| instances(server, "active").len() == count)
        });
    }

    /// Writes one reading of each of 60 sensors, through each instance in turn.
    fn write_through_all(&self, value: i64) {
        for (number, server) in self.servers.iter().enumerate() {
            let line = |sensor: usize| format!("m,s=s{:02} v={value} {}\n", sensor, 1_768_485_600 + value);
            let own = (0..60).filter(|sensor| sensor % self.servers.len() == number);
            write(server, own.map(line).collect::<String>());
        }
    }

    fn parts(&self) -> f64 {
        self.servers.iter().map(|server| metric(server, r#"hourglass_cluster_events_total{event="part"}"#)).sum()
    }
}

/// Returns the ids of the instances in a state, as this one lists them.
fn instances(server: &Server, state: &str) -> Vec<String> {
    let listed = get(&server.url("/api/v1/instances")).expect(200).json();
    let of_state = listed["instances"].as_array().unwrap().iter().filter(|one| one["state"] == state);
    of_state.map(|one| one["id"].as_str().unwrap().to_owned()).collect()
}

fn own_id(server: &Server) -> String {
    let listed = get(&server.url("/api/v1/instances")).expect(200).json();
    let own = listed["instances"].as_array().unwrap().iter().find(|one| one["self"] == true).unwrap();
    own["id"].as_str().unwrap().to_owned()
}

/// Asks for the number and the sum of all values.
fn totals(server: &Server) -> Answer {
    get(&server.url(&format!("/query?db=d&q={}", encode("SELECT count(v), sum(v) FROM m"))))
}

/// Three instances behind a balancer wrote the same hour pages, and two of three fresh readings were not there when
/// another instance was asked at once.
#[test]
fn what_one_instance_acks_all_answer_at_once() {
    let cluster = Cluster::start(3, "");
    for round in 1..=5 {
        cluster.write_through_all(round);
        for server in &cluster.servers {
            let sum = 60 * round * (round + 1) / 2;
            let expected = json!([["1970-01-01T00:00:00Z", 60 * round, sum]]);
            let answer = totals(server).expect(200).json();
            assert_eq!(answer["results"][0]["series"][0]["values"], expected, "round {round}");
            let latest = get(&server.url("/api/v1/latest?db=d&measurement=m")).expect(200).json();
            let latest = latest["series"].as_array().unwrap();
            assert_eq!(latest.len(), 60);
            for sensor in latest {
                assert_eq!(sensor["readings"][0]["v"].as_f64(), Some(round as f64), "{sensor}");
            }
            let listed = get(&server.url("/api/v1/sensors?db=d&limit=100")).expect(200).json();
            assert_eq!(listed["sensors"].as_array().unwrap().len(), 60);
            let series = influxql(server, "SHOW SERIES");
            assert_eq!(series[0]["values"].as_array().unwrap().len(), 60);
        }
    }
    assert!(cluster.parts() >= 10.0, "the owners got parts: {}", cluster.parts());
    assert_eq!(metric(&cluster.servers[0], r#"hourglass_cluster_events_total{event="stray"}"#), 0.0);
    // A flush through one instance stores what all have acked.
    flush(&cluster.servers[0]);
    let pages = find(cluster.servers[0].store(), "d.buckets", doc! {});
    let stored: i64 = pages.iter().map(|page| page.get_i32("count").map_or(0, i64::from)).sum();
    assert_eq!(stored, 300, "{} pages", pages.len());
}

/// An owner that is killed costs no write: others take its sensors at once. Questions fail until it counts as gone, and
/// then name it until it is back.
#[test]
fn a_killed_instance_costs_no_write_and_its_readings_come_back() {
    let mut cluster = Cluster::start(3, "query_grace = \"9s\"\ngrace = \"12s\"");
    cluster.write_through_all(1);
    let id = own_id(&cluster.servers[2]);
    let mut killed = cluster.servers.pop().unwrap();
    killed.kill();
    cluster.write_through_all(2);
    let refused = totals(&cluster.servers[0]).expect(503);
    assert_eq!(refused.header("content-type"), Some("application/json"));
    let incomplete = eventually("the answer names who is missing", || {
        let answer = totals(&cluster.servers[0]);
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(incomplete.header("x-hourglass-incomplete"), Some(&*id));
    let refuse = [("X-Hourglass-Incomplete", "refuse")];
    let url = cluster.servers[1].url("/api/v1/readings?db=d&measurement=m");
    let refused = request("GET", &url, b"", &refuse).unwrap().expect(503).json();
    assert_eq!(refused["code"], "instance_missing", "{refused}");
    wait_until("it owns nothing any more", || instances(&cluster.servers[0], "active").len() == 2);
    killed.restart();
    cluster.servers.push(killed);
    cluster.await_members(3);
    for server in &cluster.servers {
        let complete = totals(server).expect(200);
        assert_eq!(complete.header("x-hourglass-incomplete"), None);
        assert_eq!(complete.json()["results"][0]["series"][0]["values"][0][1], 120);
    }
}

/// A frozen owner that wakes up must not log what others have taken and corrected meanwhile.
#[test]
fn an_owner_that_wakes_up_reverts_nothing() {
    let mut cluster = Cluster::start(3, "query_grace = \"2s\"");
    let ask = |server: &Server| influxql(server, "SELECT v FROM m WHERE s='s00' OR s='s01' OR s='s02' GROUP BY s");
    let lines = |value: i64| (0..60).map(|s| format!("m,s=s{s:02} v={value}i 1768485600\n")).collect::<String>();
    write(&cluster.servers[0], lines(1));
    cluster.servers[1].signal("STOP");
    write(&cluster.servers[0], lines(2));
    write(&cluster.servers[2], lines(3));
    cluster.servers[1].signal("CONT");
    wait_until("it answers again", || totals(&cluster.servers[1]).status == 200);
    write(&cluster.servers[1], "other v=1 1768485600");
    for server in &cluster.servers {
        let answer = eventually("a complete answer", || {
            let answer = ask(server);
            answer.is_array().then_some(answer)
        });
        let series = answer.as_array().unwrap();
        let values: Vec<i64> = series.iter().map(|series| series["values"][0][1].as_i64().unwrap()).collect();
        assert_eq!(values, [3, 3, 3]);
    }
    flush(&cluster.servers[0]);
    assert_eq!(totals(&cluster.servers[2]).expect(200).json()["results"][0]["series"][0]["values"][0][2], 180);
}

#[test]
fn a_drained_instance_leaves_and_a_lost_one_is_given_up() {
    let mut cluster = Cluster::start(3, "query_grace = \"2s\"\ngrace = \"5s\"");
    cluster.write_through_all(1);
    let mut drained = cluster.servers.pop().unwrap();
    assert_eq!(hourglass(&["instance", "drain", "--server", &drained.url("")]).status, Some(0));
    let status = eventually("it ends", || drained.exited());
    assert!(status.success(), "{status}: {}", drained.stderr());
    wait_until("two own all sensors", || instances(&cluster.servers[0], "active").len() == 2);
    assert_eq!(totals(&cluster.servers[0]).expect(200).json()["results"][0]["series"][0]["values"][0][1], 60);

    let mut lost = cluster.servers.pop().unwrap();
    let id = own_id(&lost);
    let server = cluster.servers[0].url("");
    let refused = hourglass(&["instance", "retire", &id, "--server", &server]);
    assert!(refused.status == Some(1) && refused.stderr.contains("is alive"), "{}", refused.stderr);
    lost.kill();
    wait_until("it is given up", || hourglass(&["instance", "retire", &id, "--server", &server]).status == Some(0));
    let answer = eventually("answers are complete again", || {
        let answer = totals(&cluster.servers[0]);
        (answer.status == 200 && answer.header("x-hourglass-incomplete").is_none()).then_some(answer)
    });
    // What it had not stored is lost: the others' sensors are there.
    let count = answer.json()["results"][0]["series"][0]["values"][0][1].as_i64().unwrap();
    assert!((1..=60).contains(&count), "{count}");
    wait_until("one is left in the list", || {
        let listed = hourglass(&["instance", "list", "--server", &server]);
        assert_eq!(listed.status, Some(0), "{listed:?}");
        listed.stdout.lines().count() == 1
    });
}

/// Instances trust each other by their certificates and the secret; others get nothing out of the listener.
#[test]
fn instances_talk_by_tls_and_refuse_strangers() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "hourglass", "");
    let cluster = Cluster::start_with(2, |folder| {
        let token = folder.file("token");
        fs::write(&token, "0123456789abcdef0123456789abcdef\n").unwrap();
        let cluster = format!(
            "[cluster]\nlisten = \"127.0.0.1:0\"\ntoken_file = {}\nca_file = {}\n",
            shown(&token),
            shown(&certificates.file("ca.pem"))
        );
        certificates.config("") + &cluster
    });
    cluster.write_through_all(1);
    for server in &cluster.servers {
        assert_eq!(totals(server).expect(200).json()["results"][0]["series"][0]["values"][0][1], 60);
    }
    assert!(cluster.parts() >= 1.0);
    let listed = get(&cluster.servers[0].url("/api/v1/instances")).expect(200).json();
    for instance in listed["instances"].as_array().unwrap() {
        let mut stranger = TcpStream::connect(instance["address"].as_str().unwrap()).unwrap();
        stranger.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stranger.write_all(&[0; 256]).unwrap();
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = stranger.read_to_end(&mut answer);
        assert!(!answer.windows(8).any(|part| part == b"hgpeer01"), "without TLS");
    }
    for server in &cluster.servers {
        assert_eq!(totals(server).status, 200);
    }
}

/// An instance with another secret is not asked and gets no parts, and its own sensors stay its own.
#[test]
fn an_instance_with_another_secret_does_not_join() {
    let cluster = Cluster::start(1, "");
    let folder = Folder::new("other");
    fs::write(folder.file("token"), "ffffffffffffffffffffffffffffffff\n").unwrap();
    let config = format!("[cluster]\nlisten = \"127.0.0.1:0\"\ntoken_file = {}\n", shown(&folder.file("token")));
    let stranger = Launch::with_store(cluster.servers[0].store()).config(config).start();
    wait_until("it is refused", || cluster.servers[0].stderr().contains("was refused"));
    write(&cluster.servers[0], "m v=1 1768485600");
    assert_eq!(cluster.parts(), 0.0);
    assert!(!instances(&cluster.servers[0], "active").contains(&own_id(&stranger)));
}

#[test]
fn without_a_cluster_there_is_nothing_of_it() {
    let server = Launch::embedded().start();
    assert_eq!(get(&server.url("/api/v1/instances")).expect(200).json(), json!({ "instances": [] }));
    post(&server.url("/api/v1/instances/drain"), "", &[]).expect(409);
    request("DELETE", &server.url("/api/v1/instances/1f"), b"", &[]).unwrap().expect(409);
    let metrics = get(&server.url("/metrics")).expect(200);
    assert!(!metrics.text().contains("hourglass_cluster"));
    for (config, missing) in [
        ("listen = \"127.0.0.1:0\"", "cluster.token_file"),
        ("listen = \"0.0.0.0:8090\"\ntoken_file = \"t\"", "cluster.ca_file"),
    ] {
        let refused = Launch::embedded().config(format!("[cluster]\n{config}\n")).run_to_end();
        assert_eq!(refused.status.code(), Some(78), "{}", refused.stderr);
        assert!(refused.stderr.contains(missing), "{}", refused.stderr);
    }
}
