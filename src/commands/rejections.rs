//! `hourglass rejections`: lists, exports or removes the rejected lines of a running service.

use anyhow::Context;
use clap::{Args, Subcommand};

use super::post::{ServiceDatabase, Target, url_encode};
use crate::ingest::plain;

#[derive(Debug, Subcommand)]
pub enum RejectionsCommand {
    /// Print the number of rejected lines by code, and the last ones, newest first.
    List(RejectedFlags),
    /// Print all rejected lines as line protocol, oldest first, each below a comment with the reason. Correct the
    /// lines, send them again, and then use `done` with the id in the last comment.
    Export(RejectedFlags),
    /// Remove rejected lines that need no more attention.
    Done {
        /// The id of the last one to remove, as `list` and `export` print it.
        #[arg(long, value_name = "ID")]
        through: u64,
        #[command(flatten)]
        selection: RejectedFlags,
    },
}

/// The flags that select rejections of a running service.
#[derive(Debug, Args)]
pub struct RejectedFlags {
    /// Only rejections with this code: syntax, family, unit and others.
    #[arg(long)]
    pub code: Option<String>,
    /// Only lines of this measurement.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
    /// Only rejections whose line or reason contains this text.
    #[arg(long, value_name = "TEXT")]
    pub contains: Option<String>,
    /// Only rejections received at or after this time: RFC 3339, or a duration before now such as -24h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    #[command(flatten)]
    pub database: ServiceDatabase,
}

/// Runs the command.
pub fn rejections(command: &RejectionsCommand) -> anyhow::Result<()> {
    let (RejectionsCommand::List(flags)
    | RejectionsCommand::Export(flags)
    | RejectionsCommand::Done { selection: flags, .. }) = command;
    let target = Target::from_flags(&flags.database.service)?;
    let selection = [
        ("code", &flags.code),
        ("measurement", &flags.measurement),
        ("contains", &flags.contains),
        ("from", &flags.from),
    ];
    let mut path = format!("/api/v1/rejections?db={}", url_encode(&flags.database.db));
    for (name, value) in selection {
        path.extend(value.as_ref().map(|value| format!("&{name}={}", url_encode(value))));
    }
    match command {
        RejectionsCommand::List(_) => list(&target, &path),
        RejectionsCommand::Export(_) => export(&target, &path),
        RejectionsCommand::Done { through, .. } => {
            let body = target.json("DELETE", &format!("{path}&through={through}"), None)?;
            println!("{} rejections removed", body["removed"]);
            Ok(())
        }
    }
}

fn list(target: &Target, path: &str) -> anyhow::Result<()> {
    let body = target.json("GET", &format!("{path}&limit=1000"), None)?;
    for (code, count) in body["codes"].as_object().into_iter().flatten() {
        println!("{code}: {count}");
    }
    for line in body["rejections"].as_array().into_iter().flatten() {
        let text = |name: &str| line[name].as_str().unwrap_or("-");
        println!("{}  {}  {}  {}  {}", text("id"), text("time"), text("token"), text("address"), text("code"));
        println!("  {}\n  {}", text("text"), text("reason"));
        if line["mapping"].is_string() {
            println!("  mapping {}, topic {}", text("mapping"), plain(text("topic"), usize::MAX));
        }
    }
    Ok(())
}

/// Prints all lines, page by page.
fn export(target: &Target, path: &str) -> anyhow::Result<()> {
    let mut after = "0".to_owned();
    loop {
        let text = target.text("GET", &format!("{path}&limit=1000&format=lp&after={after}"), None)?.text;
        let Some(last) = text.lines().last() else { return Ok(()) };
        let (_, id) = last.rsplit_once(' ').context("the export has no last line")?;
        id.clone_into(&mut after);
        print!("{text}");
    }
}
