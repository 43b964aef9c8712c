//! Subscribers of a real mosquitto: what it acknowledged to a device is stored, whatever is killed or restarted.

use crate::access::{create, start_with_auth, with};
use crate::support::mongod::free_port;
use crate::support::prelude::*;

/// The configuration of a subscriber of `home/#` and `owntracks/#`, with more lines.
fn entry(broker: &Broker, client_id: &str, lines: &str) -> String {
    format!(
        "[[mqtt]]\nurl = {:?}\nclient_id = {client_id:?}\ntopics = [\"home/#\", \"owntracks/#\"]\n\
         mappings = [\"plain\", \"owntracks\"]\ndatabase = \"d\"\n{lines}\n",
        broker.url()
    )
}

fn subscribe(broker: &Broker) -> Launch {
    Launch::embedded().config(entry(broker, "one", ""))
}

/// Returns the status and message of the check of a subscriber in `/health`.
fn check(server: &Server, client_id: &str) -> (String, String) {
    let health = get(&server.url("/health")).json();
    let name = format!("mqtt {client_id}");
    let check = health["checks"].as_array().unwrap().iter().find(|check| check["name"] == *name);
    let text = |key: &str| check.unwrap_or_else(|| panic!("{health}"))[key].as_str().unwrap().to_owned();
    (text("status"), text("message"))
}

fn await_connected(server: &Server, client_id: &str) {
    wait_until("the subscriber is connected", || check(server, client_id).1 == "connected");
}

/// Returns the number of messages with this outcome.
fn messages(server: &Server, outcome: &str) -> f64 {
    let answer = get(&server.url("/metrics")).expect(200);
    let is_counted = |line: &&str| line.starts_with("hourglass_mqtt_messages_total{") && line.contains(outcome);
    answer.text().lines().filter(is_counted).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

/// Returns the times of a sensor's readings in database `d`.
fn stored(server: &Server, sensor: &str) -> Vec<i64> {
    readings(server, "d", sensor, None, 10_000).into_iter().map(|(time, _)| time).collect()
}

fn count(server: &Server, measurement: &str, field: &str) -> u64 {
    let series = influxql(server, &format!("SELECT count({field}) FROM {measurement}"));
    series[0]["values"][0][1].as_u64().unwrap_or_default()
}

fn location(second: i64) -> String {
    format!(r#"{{"_type":"location","lat":1.5,"lon":2.5,"tst":{}}}"#, START / SECOND + second)
}

fn rejections(server: &Server) -> Vec<Value> {
    let answer = get(&server.url("/api/v1/rejections?db=d")).expect(200).json();
    answer["rejections"].as_array().expect("a list").clone()
}

/// Waits until a later message is stored, so that every earlier one is acknowledged.
fn await_later(server: &Server, broker: &Broker) {
    let before = count(server, "home", "later");
    broker.publish("home/lab/later", "1", &[]);
    wait_until("a later message is stored", || count(server, "home", "later") > before);
}

#[test]
fn messages_are_stored_by_both_versions_with_and_without_tls() {
    let Some(certificates) = Certificates::new() else { return };
    certificates.sign("server", "broker", "");
    certificates.sign("client", "hourglass", "");
    let path = |name: &str| certificates.file(name).display().to_string();
    let tls_port = free_port();
    let listener = format!(
        "listener {tls_port} 127.0.0.1\ncafile {}\ncertfile {}\nkeyfile {}\nrequire_certificate true",
        path("ca.pem"),
        path("server.pem"),
        path("server.key")
    );
    let Some(broker) = Broker::start_with(&listener) else { return };
    // Retained messages are sent with the subscription. Only a dated one is a reading of that time.
    broker.publish("owntracks/jane/phone", location(0), &["-r"]);
    broker.publish("home/lab/retained", "7", &["-r"]);
    let tls = format!(
        "[[mqtt]]\nurl = \"mqtts://127.0.0.1:{tls_port}\"\nclient_id = \"two\"\ntopics = [\"tele/+/SENSOR\"]\n\
         mappings = [\"tasmota-sensor\"]\ndatabase = \"t\"\nversion = \"3.1.1\"\nca_file = {:?}\ncert_file = {:?}\n\
         key_file = {:?}\n",
        path("ca.pem"),
        path("client.pem"),
        path("client.key")
    );
    let server = Launch::embedded().config(entry(&broker, "one", "") + &tls).start();
    await_connected(&server, "one");
    await_connected(&server, "two");
    broker.publish("home/lab/temp", "21.5", &[]);
    broker.publish("tele/plug/SENSOR", r#"{"Time":"2026-01-15T14:00:00","Epoch":1768485600,"T":{"V":3}}"#, &[]);
    await_later(&server, &broker);
    wait_until("all are counted", || messages(&server, "stored") == 4.0);
    assert_eq!(messages(&server, "skipped"), 1.0, "the retained message without a time");
    assert_eq!(stored(&server, "location,device=phone,user=jane"), [START]);
    assert_eq!(count(&server, "home", "temp"), 1);
    assert_eq!(count(&server, "home", "retained"), 0);
    let dated = readings(&server, "t", "tasmota,device=plug", None, 10);
    assert_eq!(dated.iter().map(|(time, _)| *time).collect::<Vec<_>>(), [START]);
    assert_eq!(metric(&server, "hourglass_mqtt_connected"), 2.0);
    assert_eq!(metric(&server, "hourglass_mqtt_in_flight"), 0.0);
}

/// Regression: messages of a session were stored side by side. One whose sensor was looked up, or which was refused for
/// lack of room, came after a later one, whose value was lost.
#[test]
fn the_later_message_wins() {
    let Some(broker) = Broker::start() else { return };
    let server = subscribe(&broker).start();
    write_over_and_over(&broker, &server);
}

/// Regression: a message that the log refused was tried again alone, after later ones had been logged.
#[test]
fn the_later_message_wins_after_a_failed_append() {
    let Some(broker) = Broker::start() else { return };
    // The last but one of a device.
    let server = subscribe(&broker).env("FAULT_FAIL_AT", "append:19").start();
    write_over_and_over(&broker, &server);
    let log = server.stderr();
    assert_eq!(log.matches("MQTT messages cannot be stored").count(), 1, "{log}");
    assert_eq!(log.matches("MQTT messages are stored again").count(), 1, "{log}");
}

/// Regression: a rejected message was listed once more for each time that the log refused an earlier one.
#[test]
fn a_rejection_is_listed_once_after_a_failed_append() {
    let Some(broker) = Broker::start() else { return };
    let server = subscribe(&broker).env("FAULT_FAIL_AT", "append:1").start();
    await_connected(&server, "one");
    broker.publish_lines("owntracks/jane/phone", &format!("{}\n{{not json\n{}\n", location(0), location(1)));
    await_later(&server, &broker);
    assert_eq!(stored(&server, "location,device=phone,user=jane").len(), 2);
    let log = server.stderr();
    assert_eq!(log.matches("MQTT messages cannot be stored").count(), 1, "{log}");
    assert_eq!(rejections(&server).len(), 1);
}

fn write_over_and_over(broker: &Broker, server: &Server) {
    await_connected(server, "one");
    let location = |value: i64| location(0).replace("1.5", &format!("{value}.5"));
    for device in 0..10 {
        let lines: String = (0..20).map(|value| location(value) + "\n").collect();
        broker.publish_lines(&format!("owntracks/jane/phone{device}"), &lines);
    }
    await_later(server, broker);
    let last = influxql(server, "SELECT lat FROM location GROUP BY device");
    let values: Vec<f64> = last.as_array().unwrap().iter().map(|one| one["values"][0][1].as_f64().unwrap()).collect();
    assert_eq!(values, [19.5; 10], "{last}");
}

/// Messages that were logged, but not acknowledged before the connection broke, are delivered again. Their undated
/// readings were stored twice.
#[test]
fn a_message_that_comes_again_keeps_its_arrival() {
    let Some(mut broker) = Broker::start() else { return };
    let halt = Halt::already_set();
    let launch = halt.launch(subscribe(&broker), "mqtt_unacknowledged").env("FAULT_FAIL_AT", "append:3");
    let server = launch.start();
    await_connected(&server, "one");
    broker.publish_lines("home/lab/temp", &"21.5\n".repeat(10));
    halt.await_met("a message is logged");
    wait_until("all are logged", || metric(&server, "hourglass_ingest_readings_accepted_total") >= 9.0);
    broker.stop();
    broker.restart();
    wait_until("the connection broke", || server.stderr().contains("not connected to the MQTT broker"));
    halt.lift();
    await_later(&server, &broker);
    assert_eq!(count(&server, "home", "temp"), 10);
}

/// A message is acknowledged after its record is synced. So a kill in between delivers it again, and a kill before loses
/// nothing. A dated one is stored once.
#[test]
fn every_message_survives_kills_before_its_acknowledgement() {
    let Some(broker) = Broker::start() else { return };
    let launch = subscribe(&broker);
    let mut server = launch.clone().env("FAULT_KILL_AT", "mqtt_stored:3").start();
    await_connected(&server, "one");
    let lines: String = (0..200).map(|second| location(second) + "\n").collect();
    broker.publish_lines("owntracks/jane/phone", &lines);
    broker.publish_lines("home/lab/temp", &"21.5\n".repeat(100));
    wait_until("the server killed itself", || server.exited().is_some());
    for round in 1..4 {
        server.relaunch(launch.clone().env("FAULT_KILL_AT", format!("mqtt_stored:{round}")));
        wait_until("the server killed itself", || server.exited().is_some());
    }
    server.restart_with(launch);
    await_later(&server, &broker);
    let expected: Vec<i64> = (0..200).map(|second| START + second * SECOND).collect();
    assert_eq!(stored(&server, "location,device=phone,user=jane"), expected);
    // Without a time, at least once: at most what is in flight is delivered again by each kill.
    let undated = count(&server, "home", "temp");
    assert!((100..=100 + 4 * 16).contains(&undated), "{undated}");
}

/// A message that cannot be stored must not be delivered for ever. So it is kept as a rejection, on disk before it is
/// acknowledged.
#[test]
fn unusable_messages_become_durable_rejections() {
    let Some(broker) = Broker::start() else { return };
    let lines = "version = \"3.1.1\"";
    let launch = Launch::embedded().config(entry(&broker, "one", lines));
    let mut server = launch.clone().env("FAULT_KILL_AT", "mqtt_stored:3").start();
    await_connected(&server, "one");
    broker.publish("home/lab/floor/temp", "21.5", &[]);
    wait_until("one is rejected", || messages(&server, "rejected") == 1.0);
    broker.publish("owntracks/jane/phone", "{not json", &[]);
    wait_until("two are rejected", || messages(&server, "rejected") == 2.0);
    // The third is killed before its acknowledgement, so it comes again.
    broker.publish("home/lab/large", vec![b'1'; 300 << 10], &[]);
    wait_until("the server killed itself", || server.exited().is_some());
    server.restart_with(launch);
    await_later(&server, &broker);
    let kept = rejections(&server);
    let brief = |line: &Value| format!("{} {} {}", line["topic"], line["mapping"], line["code"]);
    let kept: BTreeSet<String> = kept.iter().map(brief).collect();
    let expected = [
        r#""home/lab/floor/temp" "plain" "json""#,
        r#""home/lab/large" "plain" "limit""#,
        r#""owntracks/jane/phone" "owntracks" "json""#,
    ];
    assert_eq!(kept, expected.map(str::to_owned).into());
    assert_eq!(messages(&server, "rejected"), 1.0);
}

/// MQTT 5 brokers know the maximum packet size, so they drop larger messages of this subscriber.
#[test]
fn messages_wait_while_the_broker_or_the_service_is_away() {
    let Some(mut broker) = Broker::start() else { return };
    let mut server = subscribe(&broker).start();
    await_connected(&server, "one");
    broker.publish("home/lab/large", vec![b'1'; 300 << 10], &[]);
    await_later(&server, &broker);
    assert!(rejections(&server).is_empty());
    server.stop();
    broker.publish_lines("owntracks/jane/phone", &(0..50).map(|second| location(second) + "\n").collect::<String>());
    broker.stop();
    server.restart_with(subscribe(&broker));
    let away = ("warn".to_owned(), "not connected".to_owned());
    wait_until("health warns", || check(&server, "one") == away);
    broker.restart();
    await_later(&server, &broker);
    assert_eq!(stored(&server, "location,device=phone,user=jane").len(), 50);
    let log = server.stderr();
    assert_eq!(log.matches("not connected to the MQTT broker").count(), 1, "{log}");
    assert_eq!(log.matches("connected to the MQTT broker again").count(), 1, "{log}");
}

/// A token of a tenant limits what its messages write. While there is none, the broker keeps the messages.
#[test]
fn the_rights_of_a_token_apply() {
    let Some(broker) = Broker::start() else { return };
    let folder = Folder::new("token");
    let file = folder.file("token");
    let lines = format!("token_file = {:?}", file.display().to_string());
    let (server, admin) = start_with_auth(&entry(&broker, "one", &lines));
    let fetch = |path: &str| with(&admin, "GET", &server.url(path), "").expect(200).text().to_owned();
    wait_until("it is connected", || fetch("/metrics").contains("hourglass_mqtt_connected{client_id=\"one\"} 1"));
    broker.publish("home/hall/temp", "20", &[]);
    broker.publish("home/lab/temp", "21.5", &[]);
    wait_until("the token is missed", || fetch("/health").contains("cannot read token_file"));
    fs::write(&file, "hg_unknown_token\n").unwrap();
    wait_until("the token is refused", || {
        let audited = fs::read_to_string(server.data_dir().join("audit.log")).unwrap_or_default();
        audited.contains(r#""route":"mqtt""#)
    });
    let token = create(&server, &["--name", "tenant", "--write", "d", "--sensor-tag", "room=lab"]);
    fs::write(&file, token + "\n").unwrap();
    wait_until("a message is stored", || fetch("/metrics").contains("outcome=\"stored\"} 1"));
    let rejected: Value = serde_json::from_str(&fetch("/api/v1/rejections?db=d")).unwrap();
    assert_eq!(rejected["rejections"][0]["topic"], "home/hall/temp", "{rejected}");
    assert_eq!(rejected["rejections"][0]["code"], "forbidden", "{rejected}");
}

#[test]
fn one_of_two_instances_connects() {
    let Some(broker) = Broker::start() else { return };
    let store = mongod().uri(&fresh_database_name());
    let launch = Launch::with_store(&store).config(entry(&broker, "one", ""));
    let mut servers = [launch.clone().start(), launch.start()];
    let connected = |server: &Server| metric(server, "hourglass_mqtt_connected") == 1.0;
    let is_elsewhere = |server: &Server| check(server, "one").1 == "another instance connects";
    wait_until("one is connected, and the other knows", || {
        let [one, two] = servers.each_ref();
        (connected(one) && is_elsewhere(two)) || (connected(two) && is_elsewhere(one))
    });
    let owner = usize::from(connected(&servers[1]));
    broker.publish("owntracks/jane/phone", location(0), &[]);
    wait_until("the owner stores it", || messages(&servers[owner], "stored") == 1.0);
    servers[owner].stop();
    broker.publish("owntracks/jane/phone", location(1), &[]);
    wait_until("the other takes over", || messages(&servers[1 - owner], "stored") == 1.0);
    flush(&servers[1 - owner]);
    assert_eq!(stored(&servers[1 - owner], "location,device=phone,user=jane"), [START, START + SECOND]);
}

#[test]
fn mistakes_in_the_configuration_stop_the_start() {
    let entry = "[[mqtt]]\nurl = \"mqtt://user:secret@broker\"\nclient_id = \"one\"\ntopics = []\nmappings = []\n";
    let ended = Launch::embedded().config(entry).run_to_end();
    assert_eq!(ended.status.code(), Some(78), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("url has a user or password") && !ended.stderr.contains("secret"),
        "{}",
        ended.stderr
    );
}
