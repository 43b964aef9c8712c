//! The commands other than `serve`, one file each. Commands that talk to a running service use `post`.

mod audit;
mod backup;
mod compact;
mod copy;
mod dead_letters;
mod demo;
mod digest;
mod doctor;
mod exchange;
mod fill;
mod flush_wal;
mod healthcheck;
mod mapping;
mod operate;
mod origin;
mod post;
mod progress;
mod query;
mod rejections;
mod rename;
mod restore;
mod sensors;
mod tail;
mod tokens;
mod transfer;
mod verify;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context;

use crate::reading::duration::{DURATION_UNITS, parse_duration};

pub use audit::{check_audit, print_audit};
pub use backup::{BackupRequest, backup};
pub use compact::compact;
pub use copy::copy;
pub use dead_letters::{dead_letters_done, list_dead_letters, send_dead_letters};
pub use demo::{DemoRequest, demo};
pub use digest::digest;
pub use doctor::examine;
pub use exchange::{Exchange, FILE, Flag, Row};
pub use flush_wal::flush_wal;
pub use healthcheck::{healthcheck, healthcheck_at};
pub use mapping::{MappingCommand, mapping};
pub use operate::{InstanceCommand, JobCommand, instances, jobs};
pub use post::{Service, ServiceDatabase};
pub use query::{QueryFlags, query};
pub use rejections::{RejectedFlags, RejectionsCommand, rejections};
pub use rename::{RenameCommand, RenameScope, rename};
pub use restore::{restore, verify_backup};
pub use sensors::{SensorCommand, SensorsFormat, sensors};
pub use tail::{TailFlags, tail};
pub use tokens::{list_tokens, tokens};
pub use transfer::{ExportFlags, ImportFlags, WriteFlags, export, import, write};
pub use verify::verify;

/// Parses a duration such as `90d` into seconds.
///
/// # Errors
/// If the text is no duration, or shorter than a second.
pub fn lifetime(text: &str) -> Result<i64, String> {
    let nanoseconds =
        parse_duration(text, &DURATION_UNITS[5..]).map_err(|fault| format!("{fault}; expected for example 90d"))?;
    let seconds = nanoseconds / 1_000_000_000;
    if seconds > 0 { Ok(seconds) } else { Err("expected at least one second".to_owned()) }
}

/// Maximum size of an input that is read as a whole, in bytes. Services accept less.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Reads a whole file. `-` or `None` means the standard input.
fn read_input(file: Option<&Path>) -> anyhow::Result<Vec<u8>> {
    let mut input = Vec::new();
    open_input(file)?.take(INPUT_BYTES_MAX).read_to_end(&mut input).context("reading the input")?;
    Ok(input)
}

/// Opens a file. `-` or `None` means the standard input.
fn open_input(file: Option<&Path>) -> anyhow::Result<Box<dyn BufRead>> {
    match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let opened = File::open(file).with_context(|| format!("opening {}", file.display()))?;
            Ok(Box::new(BufReader::new(opened)))
        }
        None => Ok(Box::new(std::io::stdin().lock())),
    }
}
