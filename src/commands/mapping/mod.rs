//! `hourglass mapping`: prints a mapping, or tries one without a service. The commands that only send one request are in
//! `cli/requests.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Subcommand;

use super::post::{ServiceDatabase, Target, url_encode};
use super::read_input;
use crate::clock::now_ns;
use crate::ingest::plain;
use crate::mapping::{self, Mapping, builtin};
use crate::reading::Limits;

#[derive(Debug, Subcommand)]
pub enum MappingCommand {
    /// Print the text of a mapping, to change it and store it with `mapping set`.
    Show {
        /// The name of the mapping.
        name: String,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// Check a mapping without a service, and print step by step what it makes of a message.
    Try {
        /// A file with a mapping, or the name of a built-in one.
        mapping: PathBuf,
        /// A file with the message; `-` for the standard input. Without it, only the mapping is checked.
        message: Option<PathBuf>,
        /// The MQTT topic of the message.
        #[arg(long)]
        topic: Option<String>,
    },
}

/// Runs the command.
pub fn mapping(command: &MappingCommand) -> anyhow::Result<()> {
    match command {
        MappingCommand::Show { name, database } => show(name, database),
        MappingCommand::Try { mapping, message, topic } => {
            try_mapping(&read_mapping(mapping)?, message.as_deref(), topic.as_deref())
        }
    }
}

fn show(name: &str, database: &ServiceDatabase) -> anyhow::Result<()> {
    let path = format!("/api/v1/mappings?db={}", url_encode(&database.db));
    let body = Target::from_flags(&database.service)?.json("GET", &path, None)?;
    let mut mappings = body["mappings"].as_array().into_iter().flatten();
    let Some(found) = mappings.find(|mapping| mapping["name"] == name) else {
        bail!("database {:?} has no mapping {name:?}", database.db)
    };
    print_lines(found["text"].as_str().unwrap_or_default());
    Ok(())
}

fn read_mapping(path: &Path) -> anyhow::Result<Mapping> {
    if let Some(built_in) = path.to_str().and_then(builtin::get) {
        return Ok(Mapping::clone(built_in));
    }
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    Mapping::from_text(&text).with_context(|| path.display().to_string())
}

fn try_mapping(mapping: &Mapping, message: Option<&Path>, topic: Option<&str>) -> anyhow::Result<()> {
    if message.is_none() {
        println!("mapping {:?} is valid", mapping.name);
        return Ok(());
    }
    let body = read_input(message)?;
    print_lines(&mapping::explain(mapping, topic, &body, Limits::default(), now_ns()).join("\n"));
    Ok(())
}

/// Prints lines with their tabs, but without other control characters.
fn print_lines(text: &str) {
    for line in text.lines() {
        println!("{}", line.split('\t').map(|part| plain(part, usize::MAX)).collect::<Vec<_>>().join("\t"));
    }
}
