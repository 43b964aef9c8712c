//! `hourglass instance`: lists the instances of a cluster, drains one, or gives a lost one up.

use anyhow::{Context, bail};
use clap::Subcommand;

use crate::commands::post::{Service, Target, url_encode};

#[derive(Debug, Subcommand)]
pub enum InstanceCommand {
    /// Print each instance with its id, its state and its address.
    List(Service),
    /// Give the sensors of the instance at --server to the others, store what it has acked, and stop it.
    Drain(Service),
    /// Give up an instance that will not come back: what it has acked and not stored is lost.
    Retire {
        /// The id, as `list` prints it.
        id: String,
        #[command(flatten)]
        service: Service,
    },
}

/// Runs an `instance` command.
pub fn instances(command: &InstanceCommand) -> anyhow::Result<()> {
    match command {
        InstanceCommand::List(service) => list(&Target::from_flags(service)?),
        InstanceCommand::Drain(service) => {
            let answer = Target::from_flags(service)?.post("/api/v1/instances/drain", b"")?;
            if answer.status != 202 {
                bail!("{answer}");
            }
            println!("the instance gives its sensors to the others, stores what it has acked, and stops");
            Ok(())
        }
        InstanceCommand::Retire { id, service } => {
            let target = Target::from_flags(service)?;
            let answer = target.send("DELETE", &format!("/api/v1/instances/{}", url_encode(id)), None)?;
            if answer.status != 204 {
                bail!("{answer}");
            }
            println!("gave up {id}: what it had acked and not stored is lost");
            Ok(())
        }
    }
}

fn list(target: &Target) -> anyhow::Result<()> {
    let body = target.json("GET", "/api/v1/instances", None)?;
    for instance in body["instances"].as_array().context("the answer has no instances")? {
        let text = |name: &str| instance[name].as_str().unwrap_or("none");
        let mark = if instance["self"] == true { " (this one)" } else { "" };
        println!("{}  {:8}  {}{mark}", text("id"), text("state"), text("address"));
    }
    Ok(())
}
