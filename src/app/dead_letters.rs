//! `hourglass dead-letters`: what could not be stored, listed, and sent again to a running service through the door
//! that all readings come through.

mod post;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use self::post::{Answer, Target};
use crate::config::Settings;
use crate::ingest::dead_letters::{Lot, Lots, Marks, Sending, parts};

/// About how many bytes of lines are sent at once.
const PART_BYTES: usize = 1 << 20;

/// Lists what was not sent again, lines and all.
#[must_use]
pub fn list_dead_letters(settings: &Settings) -> ExitCode {
    ended(list(&settings.dead_letters_file()))
}

/// Sends what was not sent again. Success when all of it was taken, and is in the store as far as that is told.
#[must_use]
pub fn send_dead_letters(settings: &Settings, url: &str, token: Option<String>, token_file: Option<&Path>) -> ExitCode {
    let token = match token_file {
        Some(file) => std::fs::read_to_string(file).map(Some).with_context(|| format!("reading {}", file.display())),
        None => Ok(token),
    };
    ended(token.and_then(|token| send(&settings.dead_letters_file(), url, token.as_deref().map(str::trim))))
}

fn ended(done: anyhow::Result<bool>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => super::failed(&error),
    }
}

fn list(path: &Path) -> anyhow::Result<bool> {
    let unreadable = || format!("reading {}", path.display());
    let marks = Marks::read(path).with_context(unreadable)?;
    let (mut out, mut readings, mut found) = (std::io::stdout().lock(), 0, 0);
    if let Some(mut lots) = Lots::open(path, 0).with_context(unreadable)? {
        while let Some(lot) = lots.next(usize::MAX).with_context(unreadable)? {
            if !marks.has(&lot) {
                (readings, found) = (readings + lot.head.readings, found + 1);
                writeln!(out, "# {}: {}", named(&lot), lot.head.reason)?;
                out.write_all(&lot.lines)?;
            }
        }
    }
    eprintln!("hourglass: {readings} readings in {found} lots of {}", path.display());
    Ok(true)
}

fn named(lot: &Lot) -> String {
    let kept = lot.head.kept.as_ref().map(|kept| format!(", kept {kept}")).unwrap_or_default();
    format!("database {:?}, {} readings{kept}", lot.head.database, lot.head.readings)
}

fn send(path: &Path, url: &str, token: Option<&str>) -> anyhow::Result<bool> {
    let target = Target::parse(url, token)?;
    if !path.exists() {
        println!("there are no dead letters: {}", path.display());
        return Ok(true);
    }
    let mut sending = match Sending::begin(path) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("they are being sent just now by another process"),
        sending => sending.context("marking what is sent")?,
    };
    let (taken, refused) = send_lots(path, &target, &mut sending)?;
    let aside: Option<PathBuf> = sending.finish().context("putting the file aside")?;
    println!("{taken} readings sent, {refused} not taken");
    if let Some(aside) = aside {
        println!("all is sent: the file is {} now", aside.display());
    }
    Ok(is_stored(&target, taken)? && refused == 0)
}

/// How many readings were taken, and how many not.
fn send_lots(path: &Path, target: &Target, sending: &mut Sending) -> anyhow::Result<(u64, u64)> {
    let (mut taken, mut refused) = (0, 0);
    let Some(mut lots) = Lots::open(path, 0)? else { return Ok((0, 0)) };
    while let Some(lot) = lots.next(usize::MAX)? {
        if sending.has(&lot) {
            continue;
        }
        if lot.is_torn {
            eprintln!(
                "hourglass: not sent: {}: its last line has no end. If a crash has cut it off, the service keeps these \
                 readings once more: delete the lot. Else end the line",
                named(&lot)
            );
            refused += lot.head.readings;
            continue;
        }
        match send_lot(target, &lot)? {
            Answer { status: 204, .. } => {
                sending.mark(&lot).context("marking what is sent")?;
                taken += lot.head.readings;
            }
            // It will have none of them now: what is sent is marked, the rest waits.
            answer @ Answer { status: 401 | 429 | 500.., .. } => bail!("{}: {answer}", named(&lot)),
            answer => {
                eprintln!("hourglass: not taken: {}: {answer}", named(&lot));
                refused += lot.head.readings;
            }
        }
    }
    Ok((taken, refused))
}

/// The answer to the first part that is not taken, or to the last.
fn send_lot(target: &Target, lot: &Lot) -> anyhow::Result<Answer> {
    let mut answer = Answer { status: 204, text: String::new() };
    let path = format!("/write?db={}&precision=ns&ack=log&accept_partial=false", post::escaped(&lot.head.database));
    for part in parts(&lot.lines, PART_BYTES) {
        answer = target.post(&path, part)?;
        if answer.status != 204 {
            break;
        }
    }
    Ok(answer)
}

/// Has the service bring what it has taken to the store, and says where that did not work.
fn is_stored(target: &Target, taken: u64) -> anyhow::Result<bool> {
    if taken == 0 {
        return Ok(true);
    }
    match target.post("/api/v1/flush", b"")? {
        Answer { status: 204, .. } => println!("all of it is in the store"),
        Answer { status: 401 | 403, .. } => println!("it is in the service's log; only an admin may ask for the store"),
        answer => {
            eprintln!("hourglass: {answer}");
            return Ok(false);
        }
    }
    Ok(true)
}
