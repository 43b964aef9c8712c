//! The unmodified `influx` shell prints the same output for both servers.

use super::data::BASE;
use super::run::Side;
use crate::support::prelude::*;

const DATABASE: &str = "shell";
/// Written by the shell, so that `insert` is tested, too.
const INSERTS: [&str; 5] = [
    "climate,room=hall,floor=1 temp=21.5,seats=40i,open=true,note=\"first\" 1717408800000000000",
    "climate,room=hall,floor=1 temp=22,seats=39i 1717408860000000000",
    "climate,room=attic temp=-3.25,note=\"a, \\\"b\\\"\" 1717408800000000001",
    "power,phase=L1 volts=230.1 1717408800000000000",
    "my\\ power,phase=L1 volts=1e21 1717408800000000000",
];
const STATEMENTS: [&str; 22] = [
    "show databases",
    "show measurements",
    "show tag keys",
    "show tag values from climate with key = room",
    "show field keys",
    "show series",
    "show retention policies",
    "select * from climate",
    "select * from nothing",
    "select * from climate group by *",
    "select temp, room from climate",
    "select mean(temp), count(temp) from climate group by room",
    "select mean(temp) from climate where time >= '2024-06-03T10:00:00Z' and time < '2024-06-03T10:04:00Z' group by time(1m)",
    "select volts from power, \"my power\"",
    "select open, note from climate",
    "select temp from climate order by time desc limit 1",
    "select temp from climate; select volts from power",
    "select temp from climate where room = 'nowhere'",
    "select mean(temp), temp from climate",
    "select temp fro climate",
    "show",
    "drop measurement",
];
const FORMATS: [&[&str]; 7] = [
    &[],
    &["-format", "column"],
    &["-format", "csv"],
    &["-format", "json"],
    &["-format", "json", "-pretty"],
    &["-precision", "rfc3339"],
    &["-format", "csv", "-precision", "ms"],
];

/// Exit status, stdout and stderr.
type ShellOutput = (Option<i32>, String, String);

fn shell(influx: &Path, port: u16, arguments: &[&str], home: &Folder) -> ShellOutput {
    let mut command = Command::new(influx);
    command.args(["-host", "127.0.0.1", "-port", &port.to_string()]).args(arguments);
    // It writes a history file into its home.
    command.env("HOME", home.path()).env("NO_PROXY", "*");
    let output = command.output().expect("influx can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8").replace(&port.to_string(), "PORT");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_influx_shell_prints_both_servers_alike() {
    let Some(influx) = require(Package::InfluxShell) else { return };
    let Some(influxd) = Influxd::start() else { return };
    let server = Server::start("embedded");
    let home = Folder::new("shell");
    let mut differences = Vec::new();
    let mut compare = |arguments: &[&str]| {
        let ports = [influxd.port(), server.address().port()];
        let [expected, actual] = ports.map(|port| shell(&influx, port, arguments, &home));
        if expected != actual {
            differences.push(format!("influx {arguments:?}\n  influxd: {expected:?}\n  hourglass: {actual:?}"));
        }
        expected
    };
    let (status, ..) = compare(&["-execute", "create database shell"]);
    assert_eq!(status, Some(0));
    for line in INSERTS {
        let shown = compare(&["-database", DATABASE, "-execute", &format!("insert {line}")]);
        assert_eq!(shown, (Some(0), String::new(), String::new()), "{line}");
    }
    // A time in the precision of the shell.
    compare(&["-database", DATABASE, "-precision", "s", "-execute", "insert seconds v=1 1717408800"]);
    for format in FORMATS {
        for statement in STATEMENTS {
            compare(&[&["-database", DATABASE, "-execute", statement], format].concat());
        }
    }
    compare(&["-execute", "show measurements"]);
    compare(&["-execute", "show measurements on shell"]);
    compare(&["-database", DATABASE, "-execute", "use shell"]);
    compare(&["-database", "nothing", "-execute", "show measurements"]);
    let seen = differences.len();
    differences.truncate(10);
    assert!(seen == 0, "the shell prints {seen} times something else:\n{}", differences.join("\n"));
}

#[test]
fn the_shell_statements_print_their_readings() {
    let Some(influx) = require(Package::InfluxShell) else { return };
    let Some(influxd) = Influxd::start() else { return };
    let home = Folder::new("shell");
    let side = Side::influxd(&influxd);
    side.create(DATABASE);
    side.write(DATABASE, &INSERTS.join("\n"));
    let ask = |arguments: &[&str]| {
        let arguments = [&["-database", DATABASE, "-execute", "select temp from climate"], arguments].concat();
        shell(&influx, influxd.port(), &arguments, &home).1
    };
    let time = BASE.to_string();
    assert!(ask(&[]).contains(&format!("{time} 21.5")), "{}", ask(&[]));
    assert!(ask(&["-format", "csv"]).contains(&format!("climate,{time},21.5")), "{}", ask(&["-format", "csv"]));
    assert!(ask(&["-format", "json"]).contains(&format!("[{time},21.5]")), "{}", ask(&["-format", "json"]));
    assert!(
        ask(&["-precision", "rfc3339"]).contains("2024-06-03T10:00:00Z           21.5"),
        "{}",
        ask(&["-precision", "rfc3339"])
    );
}
