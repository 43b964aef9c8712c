//! docs/patterns.md does what it says: its shell blocks on a service that stores into a real mongod, its `js` blocks in
//! `mongosh` on the same database, in the order of the page; both print what the `text` blocks after them show.

use std::process::Command;

use crate::readme::{blocks, run};
use crate::support::mongod::{fresh_database_name, mongod};
use crate::support::packages::{self, Package};
use crate::support::server::Launch;

const PAGE: &str = "docs/patterns.md";

#[test]
fn every_pattern_is_shown_on_a_real_mongod() {
    let (Some(mongosh), Some(_)) = (packages::require(Package::Mongosh), packages::require(Package::Curl)) else {
        return;
    };
    let all = blocks(PAGE);
    let config: String = all.iter().filter(|block| block.language == "toml").map(|block| block.text.clone()).collect();
    let database = mongod().uri(&fresh_database_name());
    let server = Launch::with_store(&database).config(config).start();
    let address = server.address().to_string();
    let mut shown = 0;
    for mut block in all {
        let mut command = match block.language.as_str() {
            "sh" => {
                block.text = block.text.replace("127.0.0.1:8086", &address);
                let mut command = Command::new("sh");
                command.args(["-ec", &block.text]);
                command
            }
            "js" => {
                assert!(block.shows.is_some(), "{PAGE}: nothing is said to be printed by\n{}", block.text);
                shown += 1;
                let mut command = Command::new(&mongosh);
                command.args(["--quiet", "--norc", &database, "--eval", &block.text]);
                command
            }
            "toml" => continue,
            other => panic!("{PAGE}: nobody runs {other} blocks:\n{}", block.text),
        };
        command.env("HOME", server.data_dir());
        run(command, &block);
    }
    assert!(shown >= 8, "{PAGE}: only {shown} blocks for mongosh");
}
