//! The table of commands that send one request to a running service and print its answer.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::OutputFlags;
use crate::commands::{Exchange, FILE, Flag, Row, Service};

const DB: Flag = Flag { name: "db", help: "The database [default: default]", variable: Some("HOURGLASS_DB") };
const CONTAINS: Flag =
    Flag { name: "contains", help: "Only sensors with this text in a name or a value", variable: None };

const FROM: Flag = Flag { name: "from", help: "The first time, such as 2026-01-15 or -24h", variable: None };
const TO: Flag = Flag { name: "to", help: "The end of the times", variable: None };
const LIMIT: Flag = Flag { name: "limit", help: "Maximum number of documents per collection", variable: None };

const RP: Flag = Flag { name: "rp", help: "The retention policy", variable: None };
const PRECISION: Flag =
    Flag { name: "precision", help: "The unit of the timestamps: ns, us, ms, s, m, h or auto", variable: None };

const MAPPING: Flag =
    Flag { name: "mapping", help: "The mapping, if the file has messages as devices send them", variable: None };
const TOPIC: Flag = Flag { name: "topic", help: "The MQTT topic of the messages", variable: None };

const ROWS: &[Row] = &[
    Row {
        words: &["db", "list"],
        help: "List the databases",
        path: "/query?q=SHOW%20DATABASES",
        rows: "/results/0/series/0/values",
        columns: &[("database", "/0")],
        ..Row::PLAIN
    },
    Row {
        words: &["db", "show"],
        help: "Show the retention of a database and its retention policies",
        path: "/api/v1/databases/{NAME}",
        ..Row::PLAIN
    },
    Row {
        words: &["db", "flush"],
        help: "Flush everything that the service acknowledged to the store",
        method: "POST",
        path: "/api/v1/flush",
        ..Row::PLAIN
    },
    Row {
        words: &["sensor", "list"],
        help: "List the sensors of a database",
        path: "/api/v1/sensors",
        flags: &[DB, CONTAINS],
        rows: "/sensors",
        columns: &[("sensor", "/sensor"), ("last seen", "/last_seen"), ("metadata", "/meta")],
        ..Row::PLAIN
    },
    Row {
        words: &["show"],
        help: "Show what the store has of a sensor: its document, pages and days. `--output json` prints them whole",
        path: "/api/v1/documents?sensor={SENSOR}",
        flags: &[DB, FROM, TO, LIMIT],
        rows: "/documents",
        columns: &[("collection", "/collection"), ("id", "/document/_id"), ("document", "/document")],
        ..Row::PLAIN
    },
    Row {
        words: &["explain"],
        help: "Print how the service would interpret each line of a file, without storing it. Exit status: 0 if it would \
                accept all of them",
        method: "POST",
        path: "/api/v1/explain",
        flags: &[DB, RP, PRECISION, MAPPING, TOPIC],
        has_body: true,
        rows: "/lines",
        columns: &[
            ("line", "/line"),
            ("kept", "/kept"),
            ("sensor", "/sensor"),
            ("fields", "/fields"),
            ("time", "/time"),
            ("rejected", "/rejected"),
            ("warnings", "/warnings"),
        ],
        is_good: |answer| matches!(answer["write"]["status"].as_u64(), Some(200 | 204)),
    },
    Row {
        words: &["mapping", "list"],
        help: "List the mappings of a database: its own and the built-in ones",
        path: "/api/v1/mappings",
        flags: &[DB],
        rows: "/mappings",
        columns: &[("mapping", "/name"), ("built in", "/built_in")],
        ..Row::PLAIN
    },
    Row {
        words: &["mapping", "set"],
        help: "Store a mapping of a database's own, in TOML or JSON",
        method: "PUT",
        path: "/api/v1/mappings/{NAME}",
        flags: &[DB],
        has_body: true,
        columns: &[("mapping", "/name")],
        ..Row::PLAIN
    },
    Row {
        words: &["mapping", "remove"],
        help: "Remove a mapping of a database's own",
        method: "DELETE",
        path: "/api/v1/mappings/{NAME}",
        flags: &[DB],
        ..Row::PLAIN
    },
];

/// Adds the commands of the table.
pub fn add_commands(mut command: Command) -> Command {
    let databases = Command::new("db").about("List databases, show one, or flush everything to the store");
    command = command.subcommand(databases.subcommand_required(true).arg_required_else_help(true));
    for row in ROWS {
        command = match row.words {
            [group, verb] => command.mut_subcommand(group, |group| group.subcommand(self::command(row, verb))),
            words => command.subcommand(self::command(row, words.first().unwrap_or(&""))),
        };
    }
    command
}

/// Returns the request of a parsed command, or `None` if the command is not in the table.
pub fn parse_exchange(matches: &ArgMatches) -> Option<Result<Exchange, clap::Error>> {
    let mut words = Vec::new();
    let mut matches = matches;
    while let Some((word, subcommand)) = matches.subcommand() {
        words.push(word);
        matches = subcommand;
    }
    let row = ROWS.iter().find(|row| *row.words == *words)?;
    Some(exchange(row, matches))
}

fn command(row: &'static Row, name: &'static str) -> Command {
    let command = OutputFlags::augment_args(Service::augment_args(Command::new(name)));
    // `augment_args` replaces the text with that of the flags, so set it last.
    let mut command = command.about(row.help);
    for name in row.arguments() {
        command = command.arg(Arg::new(name).required(true));
    }
    if row.has_body {
        let file = Arg::new(FILE).help("The file; `-` or nothing for the standard input");
        command = command.arg(file.value_parser(value_parser!(PathBuf)));
    }
    for flag in row.flags {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
        command = command.arg(match flag.variable {
            Some(variable) => arg.env(variable),
            None => arg,
        });
    }
    command
}

fn exchange(row: &'static Row, matches: &ArgMatches) -> Result<Exchange, clap::Error> {
    let service = Service::from_arg_matches(matches)?;
    let is_json = OutputFlags::from_arg_matches(matches)?.is_json();
    Ok(Exchange { row, service, is_json, matches: matches.clone() })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Arguments;
    use super::*;

    /// Maximum number of lines of a help text.
    const HELP_LINES_MAX: usize = 50;

    #[test]
    fn every_help_fits_a_screen() {
        fn check(command: &mut Command) {
            let help = command.render_help().to_string();
            assert!(help.lines().count() <= HELP_LINES_MAX, "{help}");
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = add_commands(Arguments::command());
        command.build();
        check(&mut command);
    }

    #[test]
    fn every_help_begins_with_its_own_text() {
        let mut root = add_commands(Arguments::command());
        root.build();
        for row in ROWS {
            let command = row.words.iter().try_fold(&mut root, |command, word| command.find_subcommand_mut(word));
            let help = command.expect("it is in the table").render_help().to_string();
            assert!(help.starts_with(&format!("{}\n", row.help)), "{help}");
        }
    }

    #[test]
    fn a_row_becomes_a_request() {
        let words = ["hourglass", "db", "show", "a b", "--server", "http://h:1", "--output", "json"];
        let matches = add_commands(Arguments::command()).get_matches_from(words);
        let exchange = parse_exchange(&matches).expect("it is in the table").expect("it is whole");
        assert_eq!((&*exchange.path(), exchange.is_json), ("/api/v1/databases/a%20b", true));
        assert_eq!(exchange.service.url, "http://h:1");
        let matches = add_commands(Arguments::command()).get_matches_from(["hourglass", "version"]);
        assert!(parse_exchange(&matches).is_none());
    }
}
