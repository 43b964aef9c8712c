//! Readings in and out: `write`, `query`, `tail`, `import` and `export`.

mod collections;
mod exports;
mod imports;
mod migration;
mod queries;

use crate::support::prelude::*;

/// Returns a command for the database `d` of a server.
fn command(server: &Server, arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(arguments).env("HOURGLASS_SERVER", server.url("")).env("HOURGLASS_DB", "d");
    command
}

#[track_caller]
fn run(server: &Server, arguments: &[&str]) -> CommandOutput {
    run_program(&mut command(server, arguments))
}

/// Readings of all types, with everything that a format must quote.
const ALL_TYPES: &str = r#"climate,room=lab\ 1,sensor=s\,1 temp=22,humidity=45i,on=true,note="a \"b\", c" 1768435200000000001
climate,room=lab\ 1,sensor=s\,1 temp=-0.1,humidity=-9223372036854775808i,on=false,note="" 1768435200000000002
climate,sensor=s2 temp=1e300,count=18446744073709551615u,note="two
lines, = \\ and \"quotes\"" -1
climate,sensor=s3 on="text beside booleans" 1768435260000000000
energy\ use,meter=é kwh=12345678901234i,spike=-0 1768435260000000000
plain v=1 1768435260000000000
"#;

/// Returns lines of many sensors, one reading per second.
fn many_lines(count: usize) -> String {
    let mut random = Random::new(seed());
    let mut lines = String::new();
    for number in 0..count {
        let time = 1_768_435_200_000_000_000_u64 + (number / 10) as u64 * 1_000_000_000;
        let value = random.below(10_000) as f64 / 100.0;
        writeln!(lines, "m,s={} v={value},n={number}i,t=\"x{}\" {time}", number % 10, number % 7).unwrap();
    }
    lines
}

/// Kills a command as soon as a file is there. Returns false if it ended before.
fn kill_once_there(command: &mut Command, file: &Path) -> bool {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the file is there", || file.exists() || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap().code().is_none()
}
