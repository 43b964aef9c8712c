//! `hourglass tail`: prints readings as a running service acknowledges them.

use std::io::{self, BufRead, BufReader, Write};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;

use super::post::{ServiceDatabase, Target, url_encode};
use super::transfer::SelectorFlags;

/// Pause before a broken connection is made again.
const PAUSE: Duration = Duration::from_secs(1);

/// The flags of `tail`.
#[derive(Debug, Args)]
pub struct TailFlags {
    /// The sensors of this measurement.
    #[arg(long, value_name = "NAME")]
    pub measurement: Option<String>,
    /// The sensors with this tag: site=lab, site!=lab, room=~^r[0-9]+$ or room!~^r.
    #[arg(long, value_name = "KEY=VALUE")]
    pub tag: Vec<String>,
    /// The fields.
    #[arg(long, value_name = "NAME,…")]
    pub fields: Option<String>,
    /// End after this number of readings.
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// Print the JSON of each reading.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub database: ServiceDatabase,
}

/// Runs the command until Ctrl-C. If the connection breaks, continues after the last reading.
pub fn tail(flags: &TailFlags) -> anyhow::Result<()> {
    let target = Target::from_flags(&flags.database.service)?;
    let selector = SelectorFlags {
        measurement: flags.measurement.clone(),
        tag: flags.tag.clone(),
        fields: flags.fields.clone(),
        ..SelectorFlags::default()
    };
    let path = format!("/api/v1/tail?db={}{}", url_encode(&flags.database.db), selector.parameters()?);
    let mut tail = Tail { path, is_json: flags.json, left: flags.count, last: None };
    let mut is_first = true;
    loop {
        match tail.listen(&target) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) if is_first => return Err(error),
            Err(error) => eprintln!("hourglass: {error:#}"),
        }
        is_first = false;
        thread::sleep(PAUSE);
    }
}

struct Tail {
    path: String,
    is_json: bool,
    /// The number of readings to print.
    left: Option<u64>,
    /// The id of the last reading.
    last: Option<String>,
}

impl Tail {
    /// Prints readings until the connection ends. Returns true if all wanted ones are printed.
    fn listen(&mut self, target: &Target) -> anyhow::Result<bool> {
        let last = self.last.clone();
        let headers: Vec<(&str, &str)> = last.iter().map(|id| ("last-event-id", &**id)).collect();
        let answer = target.get_with(&self.path, &headers)?.ok()?;
        let mut id = String::new();
        let mut event = String::new();
        for line in BufReader::new(answer.body).lines() {
            let line = line?;
            match line.split_once(": ") {
                Some(("id", text)) => text.clone_into(&mut id),
                Some(("event", text)) => text.clone_into(&mut event),
                Some(("data", text)) if event.is_empty() => {
                    self.print(text)?;
                    self.last = Some(id.clone());
                    self.left = self.left.map(|left| left.saturating_sub(1));
                    if self.left == Some(0) {
                        return Ok(true);
                    }
                }
                Some(("data", text)) => eprintln!("hourglass: {event}: {text}"),
                _ if line.is_empty() => event.clear(),
                _ => {}
            }
        }
        Ok(false)
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.is_json {
            writeln!(out, "{text}")?;
            return Ok(());
        }
        let event: Value = serde_json::from_str(text)?;
        let sensor = event["sensor"].as_str().unwrap_or_default();
        let fields = event["reading"].as_object().into_iter().flatten().filter(|(name, _)| *name != "ts");
        let fields: Vec<String> = fields.map(|(name, value)| format!("{name}={value}")).collect();
        let time = event["reading"]["ts"].as_str().unwrap_or_default();
        let line = format!("{time} {sensor} {}", fields.join(","));
        writeln!(out, "{}", line.replace(char::is_control, " "))?;
        Ok(())
    }
}
