//! The commands that send one request to a running service and print its answer: a row each.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use super::OutputFlags;
use crate::commands::{Exchange, FILE, Flag, Row, Service};

const DB: Flag = Flag { name: "db", about: "The database [default: default].", variable: Some("HOURGLASS_DB") };
const CONTAINS: Flag =
    Flag { name: "contains", about: "Only sensors of which a name or a value contains this text.", variable: None };

const RP: Flag = Flag { name: "rp", about: "The retention policy.", variable: None };
const PRECISION: Flag =
    Flag { name: "precision", about: "The unit of the timestamps: ns, us, ms, s, m, h or auto.", variable: None };

const ROWS: &[Row] = &[
    Row {
        words: &["db", "list"],
        about: "List the databases.",
        path: "/query?q=SHOW%20DATABASES",
        rows: "/results/0/series/0/values",
        columns: &[("database", "/0")],
        ..Row::PLAIN
    },
    Row {
        words: &["db", "show"],
        about: "Show how long a database keeps its readings, and its retention policies.",
        path: "/api/v1/databases/{NAME}",
        ..Row::PLAIN
    },
    Row {
        words: &["db", "flush"],
        about: "Have the service store everything that it acknowledged.",
        method: "POST",
        path: "/api/v1/flush",
        ..Row::PLAIN
    },
    Row {
        words: &["sensor", "list"],
        about: "List the sensors of a database.",
        path: "/api/v1/sensors",
        flags: &[DB, CONTAINS],
        rows: "/sensors",
        columns: &[("sensor", "/sensor"), ("last seen", "/last_seen"), ("metadata", "/meta")],
        ..Row::PLAIN
    },
    Row {
        words: &["explain"],
        about: "Print what would become of each line of a file, without keeping it. Exit status: 0 if all would be accepted.",
        method: "POST",
        path: "/api/v1/explain",
        flags: &[DB, RP, PRECISION],
        has_body: true,
        rows: "/lines",
        columns: &[
            ("line", "/line"),
            ("kept", "/kept"),
            ("sensor", "/sensor"),
            ("time", "/time"),
            ("rejected", "/rejected"),
            ("warnings", "/warnings"),
        ],
        is_good: |answer| matches!(answer["write"]["status"].as_u64(), Some(200 | 204)),
    },
];

/// Adds the commands of the table.
pub fn added_to(mut command: Command) -> Command {
    let databases = Command::new("db").about("List databases, show one, or have everything stored.");
    command = command.subcommand(databases.subcommand_required(true).arg_required_else_help(true));
    for row in ROWS {
        command = match row.words {
            [group, verb] => command.mut_subcommand(group, |group| group.subcommand(self::command(row, verb))),
            words => command.subcommand(self::command(row, words.first().unwrap_or(&""))),
        };
    }
    command
}

/// The request that the matches ask for; `None` if their command is not in the table.
pub fn of_matches(matches: &ArgMatches) -> Option<Result<Exchange, clap::Error>> {
    let (mut words, mut matches) = (Vec::new(), matches);
    while let Some((word, below)) = matches.subcommand() {
        words.push(word);
        matches = below;
    }
    let row = ROWS.iter().find(|row| *row.words == *words)?;
    Some(exchange(row, matches))
}

fn command(row: &'static Row, name: &'static str) -> Command {
    let command = Service::augment_args(Command::new(name).about(row.about));
    let mut command = OutputFlags::augment_args(command);
    for name in row.arguments() {
        command = command.arg(Arg::new(name).required(true));
    }
    if row.has_body {
        let file = Arg::new(FILE).help("The file; `-` or nothing for the standard input.");
        command = command.arg(file.value_parser(value_parser!(PathBuf)));
    }
    for flag in row.flags {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.about);
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

    /// More lines than most terminals show at a time.
    const SCREEN: usize = 50;

    #[test]
    fn every_help_fits_a_screen() {
        fn check(command: &mut Command) {
            let help = command.render_help().to_string();
            assert!(help.lines().count() <= SCREEN, "{help}");
            command.get_subcommands_mut().for_each(check);
        }
        let mut command = added_to(Arguments::command());
        command.build();
        check(&mut command);
    }

    #[test]
    fn a_row_becomes_a_request() {
        let words = ["hourglass", "db", "show", "a b", "--server", "http://h:1", "--output", "json"];
        let matches = added_to(Arguments::command()).get_matches_from(words);
        let exchange = of_matches(&matches).expect("it is in the table").expect("it is whole");
        assert_eq!((&*exchange.path(), exchange.is_json), ("/api/v1/databases/a%20b", true));
        assert_eq!(exchange.service.url, "http://h:1");
        let matches = added_to(Arguments::command()).get_matches_from(["hourglass", "version"]);
        assert!(of_matches(&matches).is_none());
    }
}
