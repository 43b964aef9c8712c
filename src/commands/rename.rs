//! `hourglass rename`: sets, lists and removes renames of a running service.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::post::{ServiceDatabase, Target, url_encode};
use crate::ingest::plain;

#[derive(Debug, Subcommand)]
pub enum RenameCommand {
    /// Show a name under another one, or change an existing rename.
    Add {
        #[command(flatten)]
        scope: RenameScope,
        /// The name to show.
        shown: String,
        /// Only count what would be renamed.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// List the renames of a database.
    List(ServiceDatabase),
    /// Remove a rename, so that the stored name is shown again.
    Remove {
        #[command(flatten)]
        scope: RenameScope,
        #[command(flatten)]
        database: ServiceDatabase,
    },
}

/// The flags that select a rename by its stored name.
#[derive(Debug, Args)]
pub struct RenameScope {
    /// The kind of the name: sensor, measurement, tag_key or tag_value.
    pub kind: String,
    /// The stored name. For a sensor, its key: climate,room=lab,sensor=s1.
    pub stored: String,
    /// The key of the tag, for a tag value.
    #[arg(long, value_name = "KEY")]
    pub tag: Option<String>,
    /// The measurement, if the rename is for one measurement only.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
}

impl RenameScope {
    /// Returns the names and values of the flags that are set.
    fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let optional = [("tag", &self.tag), ("measurement", &self.measurement)];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
        [("kind", &*self.kind), ("from", &*self.stored)].into_iter().chain(optional)
    }
}

/// Runs the command.
pub fn rename(command: &RenameCommand) -> anyhow::Result<()> {
    let (RenameCommand::Add { database, .. } | RenameCommand::List(database) | RenameCommand::Remove { database, .. }) =
        command;
    let target = Target::from_flags(&database.service)?;
    let path = format!("/api/v1/renames?db={}", url_encode(&database.db));
    let answer = match command {
        RenameCommand::Add { scope, shown, dry_run, .. } => {
            let fields = scope.fields().chain([("to", &**shown)]);
            let body: Map<String, Value> = fields.map(|(name, text)| (name.to_owned(), text.into())).collect();
            let body = Value::from(body).to_string();
            let sent = Some(("application/json", body.as_bytes()));
            target.json("PUT", &format!("{path}&dry_run={dry_run}"), sent)?
        }
        RenameCommand::Remove { scope, .. } => {
            let fields: String = scope.fields().map(|(name, text)| format!("&{name}={}", url_encode(text))).collect();
            target.json("DELETE", &format!("{path}{fields}"), None)?
        }
        RenameCommand::List(_) => {
            let listed = target.json("GET", &path, None)?;
            listed["renames"]
                .as_array()
                .into_iter()
                .flatten()
                .for_each(|entry| println!("{}", plain(&line(entry), usize::MAX)));
            return Ok(());
        }
    };
    answer["examples"].as_array().into_iter().flatten().for_each(|pair| {
        println!("{}", plain(&format!("{} -> {}", text(&pair["from"]), text(&pair["to"])), usize::MAX));
    });
    let verb = if answer["dry_run"] == true { "would get" } else { "get" };
    println!("{} sensors {verb} another name", answer["renamed"]);
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Formats a rename as one line.
fn line(entry: &Value) -> String {
    let scope = |name: &str| entry[name].as_str().map(|value| format!(" {name} {value}")).unwrap_or_default();
    let kind = text(&entry["kind"]);
    let from = text(&entry["from"]);
    let to = text(&entry["to"]);
    format!("{kind}{}{}: {from} -> {to}", scope("tag"), scope("measurement"))
}
