//! `hourglass dead-letters`: lists the dead letters, or sends them to a running service, which admits them like any
//! other readings.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::post::{PostAnswer, Service, Target, escaped};
use crate::config::Settings;
use crate::ingest::dead_letters::{Chunk, Chunks, Marks, Sending, parts};

/// Approximate size of one write request.
const PART_BYTES: usize = 1 << 20;

/// Prints the chunks that were not yet resent.
#[must_use]
pub fn list_dead_letters(settings: &Settings) -> ExitCode {
    ended(super::data_folder::must_exist(settings).and_then(|()| list(&settings.dead_letters_file())))
}

/// Sends the chunks that were not yet resent. Succeeds if the service accepted all of them and did not fail to flush
/// them.
#[must_use]
pub fn send_dead_letters(settings: &Settings, service: &Service) -> ExitCode {
    if let Err(error) = super::data_folder::must_exist(settings) {
        return super::failed(&error);
    }
    let sent = Target::of(service).and_then(|target| send(&settings.dead_letters_file(), &target));
    let is_plain = !service.url.starts_with("https://");
    ended(match settings.server.listen {
        None if is_plain => sent.context(
            "this configuration has no plain HTTP listener (server.listen is empty): name the one with TLS, --server https://HOST:PORT",
        ),
        _ => sent,
    })
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
    if let Some(mut chunks) = Chunks::open(path, 0).with_context(unreadable)? {
        while let Some(chunk) = chunks.next(usize::MAX).with_context(unreadable)? {
            if !marks.has(&chunk) {
                (readings, found) = (readings + chunk.head.readings, found + 1);
                writeln!(out, "# {}: {}", named(&chunk), chunk.head.reason)?;
                out.write_all(&chunk.lines)?;
            }
        }
    }
    eprintln!("hourglass: {readings} readings in {found} chunks of {}", path.display());
    Ok(true)
}

fn named(chunk: &Chunk) -> String {
    let kept = chunk.head.kept.as_ref().map(|kept| format!(", kept {kept}")).unwrap_or_default();
    format!("database {:?}, {} readings{kept}", chunk.head.database, chunk.head.readings)
}

fn send(path: &Path, target: &Target) -> anyhow::Result<bool> {
    if !path.exists() {
        println!("there are no dead letters: {} does not exist", path.display());
        return Ok(true);
    }
    let mut sending = match Sending::begin(path) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("another process is sending them at this moment"),
        sending => sending.context("marking sent chunks")?,
    };
    let (taken, refused) = send_chunks(path, target, &mut sending)?;
    let aside: Option<PathBuf> = sending.finish().context("renaming the dead-letter file")?;
    println!("{taken} readings sent, {refused} not accepted");
    if let Some(aside) = aside {
        println!("all dead letters are sent; the file is now {}", aside.display());
    }
    Ok(is_stored(target, taken)? && refused == 0)
}

/// The number of readings that the service accepted, and of those that it did not.
fn send_chunks(path: &Path, target: &Target, sending: &mut Sending) -> anyhow::Result<(u64, u64)> {
    let (mut taken, mut refused) = (0, 0);
    let Some(mut chunks) = Chunks::open(path, 0)? else { return Ok((0, 0)) };
    while let Some(chunk) = chunks.next(usize::MAX)? {
        if sending.has(&chunk) {
            continue;
        }
        if chunk.is_torn {
            eprintln!(
                "hourglass: not sent: {}: its last line has no newline. If a crash cut it off, the service writes these \
                 readings to the file again: delete this chunk. If not, add the newline",
                named(&chunk)
            );
            refused += chunk.head.readings;
            continue;
        }
        match send_chunk(target, &chunk)? {
            PostAnswer { status: 204, .. } => {
                sending.mark(&chunk).context("marking sent chunks")?;
                taken += chunk.head.readings;
            }
            // The service would reject the other chunks too. Those already sent are marked; a later run sends the rest.
            answer @ PostAnswer { status: 401 | 429 | 500.., .. } => bail!("{}: {answer}", named(&chunk)),
            answer => {
                eprintln!("hourglass: not accepted: {}: {answer}", named(&chunk));
                refused += chunk.head.readings;
            }
        }
    }
    Ok((taken, refused))
}

/// Sends a chunk in parts. Returns the answer to the first part that is not accepted, or else to the last one.
fn send_chunk(target: &Target, chunk: &Chunk) -> anyhow::Result<PostAnswer> {
    let mut answer = PostAnswer { status: 204, text: String::new() };
    let path = format!("/write?db={}&precision=ns&ack=log&accept_partial=false", escaped(&chunk.head.database));
    for part in parts(&chunk.lines, PART_BYTES) {
        answer = target.post(&path, part)?;
        if answer.status != 204 {
            break;
        }
    }
    Ok(answer)
}

/// Has the service flush what it accepted to the store. False if that fails.
fn is_stored(target: &Target, taken: u64) -> anyhow::Result<bool> {
    if taken == 0 {
        return Ok(true);
    }
    match target.post("/api/v1/flush", b"")? {
        PostAnswer { status: 204, .. } => println!("all sent readings are in the store"),
        PostAnswer { status: 401 | 403, .. } => {
            println!("all sent readings are in the service's WAL; only an admin's token can flush them to the store")
        }
        answer => {
            eprintln!("hourglass: {answer}");
            return Ok(false);
        }
    }
    Ok(true)
}
