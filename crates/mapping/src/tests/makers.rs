//! Each built-in mapping with a message as its maker documents it.

use super::*;

#[test]
fn all_built_in_mappings_are_valid_and_named_after_their_files() {
    let names: Vec<String> = builtin::all().iter().map(|mapping| mapping.name.clone()).collect();
    assert_eq!(
        names,
        [
            "chirpstack",
            "esphome-binary",
            "esphome-sensor",
            "homeassistant-statestream",
            "owntracks",
            "plain",
            "shelly-rpc",
            "shelly-status",
            "tasmota-sensor",
            "tasmota-state",
            "the-things-stack",
            "zigbee2mqtt",
        ]
    );
    for (mapping, (name, text)) in builtin::all().iter().zip(builtin::texts()) {
        let json = serde_json::to_string(&**mapping).expect("JSON");
        assert_eq!(Mapping::from_text(&json).as_ref(), Ok(&**mapping), "as JSON and back");
        assert_eq!((name, Mapping::from_text(text).as_ref()), (&*mapping.name, Ok(&**mapping)));
    }
}

/// Checks the only reading of a message by a built-in mapping.
fn check(name: &str, topic: &str, body: &str, expected: &str) {
    let mapping = builtin::get(name).expect("built in");
    assert!(mapping.matches(topic), "{topic}");
    assert_eq!(lines(mapping, Some(topic), body.as_bytes()), [expected]);
}

/// Checks that a built-in mapping skips a message.
fn check_skipped(name: &str, topic: &str, body: &str) {
    let mapping = builtin::get(name).expect("built in");
    let mut points = apply(mapping, Some(topic), body.as_bytes(), Limits::default(), ARRIVAL);
    assert!(points.next().is_none(), "{body}");
    assert_eq!(points.skipped(), 1, "{body}");
}

/// Source: Tasmota documentation, "Matter" (SCD40), "MQTT" (DS18B20) and "DeepSleep" (Epoch). The message with ENERGY is
/// that of a meter with two channels.
#[test]
fn tasmota_sensor() {
    let topic = "tele/tasmota/SENSOR";
    let body = r#"{"Time":"2023-05-28T20:04:27","SCD40":{"CarbonDioxide":618,"eCO2":623,"Temperature":23.8,
        "Humidity":61.1,"DewPoint":15.8},"TempUnit":"C"}"#;
    let reading = "tasmota,device=tasmota SCD40_CarbonDioxide=618.0,SCD40_eCO2=623.0,SCD40_Temperature=23.8,\
        SCD40_Humidity=61.1,SCD40_DewPoint=15.8";
    check("tasmota-sensor", topic, body, &format!("{reading} arrival"));

    // With the device's own time, as the file's comment says.
    let mut local = Mapping::clone(builtin::get("tasmota-sensor").expect("built in"));
    let rule = r#"{"path":"/Time","format":"local","zone":"Europe/Berlin"}"#;
    local.time = Some(serde_json::from_str(rule).expect("a rule"));
    assert_eq!(lines(&local, Some(topic), body.as_bytes()), [format!("{reading} 2023-05-28T18:04:27Z")]);

    let body = r#"{"Time":"2022-01-11T21:57:38","ENERGY":{"TotalStartTime":"2020-10-21T22:15:00","Total":3.705,
        "Power":[5,0],"Factor":1.00}}"#;
    let reading = "tasmota,device=tasmota ENERGY_Total=3.705,\
        ENERGY_Power_0=5.0,ENERGY_Power_1=0.0,ENERGY_Factor=1.0 arrival";
    check("tasmota-sensor", topic, body, reading);
    check_skipped("tasmota-sensor", topic, r#"{"Time":"2022-01-11T21:57:38"}"#);
    let body = r#"{"Time":"2017-02-16T10:13:52", "DS18B20":{"Temperature":20.6}}"#;
    check("tasmota-sensor", topic, body, "tasmota,device=tasmota DS18B20_Temperature=20.6 arrival");
    let body = r#"{"Time":"2019-09-04T13:08:48","Epoch":1567595328,"ANALOG":{"A0":8}}"#;
    check("tasmota-sensor", topic, body, "tasmota,device=tasmota ANALOG_A0=8.0 2019-09-04T11:08:48Z");
}

/// Source: Tasmota documentation, "MQTT" and "JSON Status Responses".
#[test]
fn tasmota_state() {
    let body = r#"{"Time":"2024-02-24T22:20:38","Uptime":"0T00:10:11","UptimeSec":611,"Heap":24,"SleepMode":"Dynamic",
        "Sleep":50,"LoadAvg":19,"MqttCount":1,"POWER":"OFF","Wifi":{"AP":1,"SSId":"net","BSSId":"E6:8D:8C:4B:BE:F7",
        "Channel":3,"Mode":"11n","RSSI":44,"Signal":-78,"LinkCount":1,"Downtime":"0T00:00:05"}}"#;
    let reading = "tasmota_state,device=tasmota_9CF9D1 POWER=false,UptimeSec=611.0,Heap=24.0,SleepMode=\"Dynamic\",\
        Sleep=50.0,LoadAvg=19.0,MqttCount=1.0,Wifi_AP=1.0,Wifi_Channel=3.0,Wifi_Mode=\"11n\",Wifi_RSSI=44.0,\
        Wifi_Signal=-78.0,Wifi_LinkCount=1.0 arrival";
    check("tasmota-state", "tele/tasmota_9CF9D1/STATE", body, reading);
}

/// Source: Zigbee2MQTT documentation, "MQTT Topics and Messages".
#[test]
fn zigbee2mqtt() {
    let body = r#"{"temperature":27.34,"humidity":44.72,"linkquality":null}"#;
    check("zigbee2mqtt", "zigbee2mqtt/attic", body, "zigbee,device=attic temperature=27.34,humidity=44.72 arrival");
    let body =
        r#"{"state":"ON","brightness":215,"color_temp":325,"color":{"x":0.123,"y":0.123},"update":{"state":"idle"}}"#;
    let reading = "zigbee,device=my\\ bulb state=\"ON\",brightness=215.0,color_temp=325.0,color_x=0.123,color_y=0.123";
    check("zigbee2mqtt", "zigbee2mqtt/my bulb", body, &format!("{reading} arrival"));
    let mapping = builtin::get("zigbee2mqtt").expect("built in");
    assert!(!mapping.matches("zigbee2mqtt/bridge/state"));
}

/// Source: Shelly technical documentation, "Switch" (status) and "Notifications" (NotifyStatus, NotifyEvent).
#[test]
fn shelly() {
    let body = r#"{"id":0,"source":"WS_in","output":false,"apower":0,"voltage":225.9,"current":0,"freq":50,
        "aenergy":{"total":11.679,"by_minute":[0,0,0],"minute_ts":1654511972},
        "ret_aenergy":{"total":5.817,"by_minute":[0,0,0],"minute_ts":1654511615},
        "temperature":{"tC":53.3,"tF":127.9}}"#;
    let reading = "shelly,component=switch:0,device=shellyplus1pm-a8032abe54dc source=\"WS_in\",output=false,apower=0.0,\
        voltage=225.9,current=0.0,freq=50.0,aenergy_total=11.679,ret_aenergy_total=5.817,temperature_tC=53.3,\
        temperature_tF=127.9 arrival";
    check("shelly-status", "shellyplus1pm-a8032abe54dc/status/switch:0", body, reading);
    check_skipped("shelly-status", "shellyplus1pm-a8032abe54dc/status/ble", "{}");

    let body = r#"{"src":"shellypro4pm-f008d1d8b8b8","dst":"shellypro4pm-f008d1d8b8b8/events","method":"NotifyStatus",
        "params":{"ts":1631186545.04,"switch:0":{"id":0,"output":true,"source":"button"}}}"#;
    let reading = "shelly_rpc,device=shellypro4pm-f008d1d8b8b8 switch:0_output=true,switch:0_source=\"button\" \
        2021-09-09T11:22:25.040Z";
    check("shelly-rpc", "shellypro4pm-f008d1d8b8b8/events/rpc", body, reading);
    // The clock of a device that was just switched on is not set.
    let unset = body.replace("1631186545.04", "12.5");
    let reading = reading.replace("2021-09-09T11:22:25.040Z", "arrival");
    check("shelly-rpc", "shellypro4pm-f008d1d8b8b8/events/rpc", &unset, &reading);
    let event = r#"{"src":"s","dst":"s/events","method":"NotifyEvent","params":{"ts":1631266595.43,
        "events":[{"component":"input:0","id":0,"event":"single_push","ts":1631266595.43}]}}"#;
    check_skipped("shelly-rpc", "s/events/rpc", event);
}

/// Source: ESPHome documentation, "MQTT Client Component" (default topics), and its source of binary sensors.
#[test]
fn esphome() {
    check(
        "esphome-sensor",
        "livingroom/sensor/bme_temp/state",
        "23.40",
        "esphome,device=livingroom bme_temp=23.4 arrival",
    );
    check(
        "esphome-sensor",
        "livingroom/sensor/bme_temp/state",
        "23",
        "esphome,device=livingroom bme_temp=23.0 arrival",
    );
    check_skipped("esphome-sensor", "livingroom/sensor/bme_temp/state", "nan");
    check("esphome-binary", "livingroom/switch/relay/state", "ON", "esphome,device=livingroom relay=true arrival");
}

/// Source: Home Assistant documentation, "MQTT Statestream".
#[test]
fn homeassistant_statestream() {
    let name = "homeassistant-statestream";
    let sensor = "homeassistant,domain=light,entity=master_bedroom_dimmer";
    let topic = "homeassistant/light/master_bedroom_dimmer/state";
    check(name, topic, "on", &format!("{sensor} state=\"on\" arrival"));
    check(name, topic, "\"on\"", &format!("{sensor} state=\"on\" arrival"));
    check(name, topic, "21.5", &format!("{sensor} state=21.5 arrival"));
    check_skipped(name, topic, "unavailable");
    check_skipped(name, topic, "");
}

/// Source: ChirpStack documentation, "Event types" (up, join); `fCnt` and `object` as in `UplinkEvent` of its API.
#[test]
fn chirpstack() {
    let body = r#"{"deduplicationId":"3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
        "time":"2022-07-18T09:34:15.775023242+00:00","deviceInfo":{"tenantId":"52f14cd4-c6f1-4fbd-8f87-4025e1d49242",
        "tenantName":"ChirpStack","applicationId":"17c82e96-be03-4f38-aef3-f83d48582d97",
        "applicationName":"Test application","deviceProfileName":"Test device-profile","deviceName":"Test device",
        "devEui":"0101010101010101","tags":{"key":"value"}},"devAddr":"00189440","adr":true,"dr":1,"fCnt":4,"fPort":1,
        "confirmed":false,"data":"qg==","object":{"temperatureSensor":{"1":25.5},"motion":true},
        "rxInfo":[{"gatewayId":"0016c001f153a14c","uplinkId":4217106255,"rssi":-36,"snr":10.5,
        "location":{"latitude":52.3},"context":"E3OWOQ=="}],"txInfo":{"frequency":868100000}}"#;
    let reading = "lorawan,application=Test\\ application,device=0101010101010101 f_cnt=4.0,rssi=-36.0,snr=10.5,\
        temperatureSensor_1=25.5,motion=true 2022-07-18T09:34:15.775023242Z";
    check("chirpstack", "application/17c82e96/device/0101010101010101/event/up", body, reading);
    // A webhook also gets the other events.
    let join = r#"{"time":"2022-07-18T09:33:28.823500726+00:00","deviceInfo":{"devEui":"0101010101010101"}}"#;
    check_skipped("chirpstack", "application/17c82e96/device/0101010101010101/event/up", join);
}

/// Source: The Things Stack documentation, "Data Formats" (uplink messages) and "MQTT Server" (topics).
#[test]
fn the_things_stack() {
    let body = r#"{"end_device_ids":{"device_id":"dev1","application_ids":{"application_id":"app1"},
        "dev_eui":"0004A30B001C0530","join_eui":"800000000000000C","dev_addr":"00BCB929"},
        "correlation_ids":["as:up:01E0WZGT6Y7657CPFPE5WEYDSQ"],"received_at":"2020-02-12T15:15:46.787Z",
        "uplink_message":{"session_key_id":"AXA50tHUDE1jsx8b","f_port":1,"f_cnt":42,"frm_payload":"gkHe",
        "decoded_payload":{"temperature":1.0,"luminosity":0.64},"rx_metadata":[{"gateway_ids":{"gateway_id":"gtw1"},
        "time":"2020-02-12T15:15:45.787Z","timestamp":2463457000,"rssi":-35,"channel_rssi":-35,"snr":5}],
        "settings":{"frequency":"868300000"},"received_at":"2020-02-12T15:15:46.583379831Z"}}"#;
    let reading = "lorawan,application=app1,device=dev1 f_cnt=42.0,rssi=-35.0,snr=5.0,temperature=1.0,luminosity=0.64 \
        2020-02-12T15:15:46.583379831Z";
    check("the-things-stack", "v3/app1@tenant1/devices/dev1/up", body, reading);
    // A webhook has no topic.
    let mapping = builtin::get("the-things-stack").expect("built in");
    assert_eq!(lines(mapping, None, body.as_bytes()), [reading]);
}

#[test]
fn plain_values() {
    check("plain", "home/lab/temp", "21.5", "home,room=lab temp=21.5 arrival");
    check("plain", "home/lab/door", " open\n", "home,room=lab door=\"open\" arrival");
    check("plain", "home/lab/fan", "true", "home,room=lab fan=true arrival");
}

/// Source: OwnTracks Booklet, "JSON" (location, lwt).
#[test]
fn owntracks() {
    let body = r#"{"_type":"location","acc":75,"alt":13,"batt":88,"lat":48.856826,"lon":2.292713,"tid":"JJ",
        "tst":1376715317,"vac":10,"vel":54,"conn":"w","inregions":["home"]}"#;
    let reading = "location,device=phone,user=jane acc=75.0,alt=13.0,batt=88.0,lat=48.856826,lon=2.292713,vac=10.0,vel=54.0,\
        conn=\"w\" 2013-08-17T04:55:17Z";
    check("owntracks", "owntracks/jane/phone", body, reading);
    check_skipped("owntracks", "owntracks/jane/phone", r#"{"_type":"lwt","tst":1380738247}"#);
}
