//! `hourglass write`: sends rows of files or of the standard input to a running service.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{BatchSource, RowFlags, RowReader, Sender, open_source};
use crate::commands::lifetime;
use crate::commands::post::{ServiceDatabase, Target};
use crate::reading::Precision;

/// Maximum number of refused rows that are printed.
const PRINTED_MAX: u64 = 100;

/// The flags of `write`.
#[derive(Debug, Args)]
pub struct WriteFlags {
    /// The files; `-` or nothing for the standard input. They may be compressed with gzip or zstd.
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub rows: RowFlags,
    /// Give up if the service is busy or away for longer.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = lifetime)]
    pub patience: i64,
    #[command(flatten)]
    pub database: ServiceDatabase,
}

/// Runs the command. Returns true if no row was refused.
pub fn write(flags: &WriteFlags) -> anyhow::Result<bool> {
    let target = Target::from_flags(&flags.database.service)?;
    let mut sender = Sender::new(&target, &flags.database.db)?;
    sender.patience = Duration::from_secs(flags.patience.unsigned_abs());
    let mut written = 0_u64;
    let mut refused = 0_u64;
    let files = if flags.files.is_empty() { &[PathBuf::from("-")] } else { &*flags.files };
    for file in files {
        let is_input = *file == *"-";
        let is_lines = flags.rows.format(Some(file)) == super::columns::RowsFormat::Lp;
        // Converted rows have nanoseconds.
        let default = Precision::Nanoseconds;
        sender.precision = if is_lines { flags.rows.precision(default)?.name() } else { default.name() };
        let mut reader = RowReader::new(open_source(Some(file))?, &flags.rows, Some(file), is_input)?;
        while let Some(mut batch) = reader.next_batch()? {
            let answered = sender.send(&batch)?;
            written += (batch.rows.len() - answered.len()) as u64;
            batch.refusals.extend(answered);
            for refusal in &batch.refusals {
                refused += 1;
                if refused <= PRINTED_MAX {
                    eprintln!("{}:{}: {}", file.display(), refusal.number, refusal.reason);
                }
            }
        }
    }
    eprintln!("{written} rows written, {refused} refused");
    Ok(refused == 0)
}
