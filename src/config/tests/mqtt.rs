use super::*;

const ENTRY: &str =
    "[[mqtt]]\nurl = \"mqtt://broker\"\nclient_id = \"h\"\ntopics = [\"a/+\"]\nmappings = [\"plain\"]\n";

fn with(change: &str) -> Result<Vec<MqttSettings>, String> {
    let mut settings = Settings::default();
    let key = change.split(" =").next().unwrap();
    let kept = ENTRY.lines().filter(|line| !line.starts_with(&format!("{key} ")));
    let text = kept.chain([change]).collect::<Vec<_>>().join("\n");
    settings.declare(&text).map(|()| settings.mqtt)
}

#[test]
fn an_entry_needs_little() {
    let mut settings = Settings::default();
    settings.declare(ENTRY).unwrap();
    let entry = &settings.mqtt[0];
    assert_eq!((entry.qos, &*entry.database, entry.version), (1, "default", MqttVersion::V5));
    for (url, host, port, has_tls) in [
        ("mqtt://broker", "broker", 1883, false),
        ("mqtts://broker/", "broker", 8883, true),
        ("mqtt://[::1]:7", "::1", 7, false),
        ("mqtts://[::1]", "::1", 8883, true),
    ] {
        let entry = &with(&format!("url = {url:?}")).unwrap()[0];
        assert_eq!(entry.url, BrokerUrl { host: host.to_owned(), port, has_tls });
    }
    assert_eq!(with("version = \"3.1.1\"").unwrap()[0].version, MqttVersion::V3);
}

#[test]
fn mistakes_name_their_key() {
    let cases = [
        ("url = \"http://broker\"", "url"),
        ("url = \"mqtt://\"", "url"),
        ("url = \"mqtt://broker:port\"", "url"),
        ("url = \"mqtt://user:secret@broker\"", "password_file"),
        ("client_id = \"\"", "client_id"),
        ("topics = []", "topics"),
        ("topics = [\"a/#/b\"]", "topic filter"),
        ("mappings = []", "mappings"),
        ("qos = 2", "qos"),
        ("database = \"\"", "database"),
        ("version = \"4\"", "3.1.1"),
        ("password_file = \"p\"", "user"),
        ("cert_file = \"c\"", "key_file"),
        ("ca_file = \"c\"", "mqtts"),
        ("password = \"secret\"", "password"),
    ];
    for (change, named) in cases {
        let error = with(change).unwrap_err();
        assert!(error.contains("[[mqtt]]") && error.contains(named) && !error.contains("secret"), "{change}: {error}");
    }
    let error = Settings::default().declare(&ENTRY.repeat(2)).unwrap_err();
    assert!(error.contains("two entries"), "{error}");
}
