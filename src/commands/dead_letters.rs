//! `hourglass dead-letters`: lists the dead letters, marks them as done, or sends them to a running service, which
//! admits them like any other readings.

use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;

use anyhow::{Context, bail};

use super::post::{PostAnswer, Service, Target, url_encode};
use crate::config::Settings;
use crate::ingest::dead_letters::{DeadLetter, DeadLetters, ReadingsLetter, parts};

/// Approximate size of one write request in bytes.
const PART_BYTES: usize = 1 << 20;
/// Maximum number of dead letters in a batch.
const BATCH_LETTERS_MAX: usize = 1000;
/// Size in bytes at which a batch ends.
const BATCH_BYTES: usize = 16 << 20;

/// Prints the dead letters that were not resent yet.
pub fn list_dead_letters(settings: &Settings) -> anyhow::Result<()> {
    list(&open(settings)?)
}

/// Sends the dead letters that were not resent yet. Returns true if the service accepted all of them and no flush
/// failed.
pub fn send_dead_letters(settings: &Settings, service: &Service) -> anyhow::Result<bool> {
    let letters = open(settings)?;
    let sent = Target::from_flags(service).and_then(|target| send(&letters, &target));
    let is_plain = !service.url.starts_with("https://");
    match settings.server.listen {
        None if is_plain => sent.context(
            "this configuration has no plain HTTP listener (server.listen is empty): name the one with TLS, --server https://HOST:PORT",
        ),
        _ => sent,
    }
}

/// Marks dead letters as done.
pub fn dead_letters_done(settings: &Settings, ids: Vec<u64>) -> anyhow::Result<()> {
    let letters = open(settings)?;
    letters.mark_done(ids).and_then(|()| letters.remove_done()).context("marking dead letters")
}

fn open(settings: &Settings) -> anyhow::Result<DeadLetters> {
    crate::app::data_folder::must_exist(settings)?;
    Ok(DeadLetters::new(settings.dead_letters_dir()))
}

fn list(letters: &DeadLetters) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let mut readings = 0;
    let mut metadata = 0;
    let mut printed = Ok(());
    let damaged = letters.read(0, |id, letter| {
        printed = match letter {
            DeadLetter::Readings(letter) => {
                readings += letter.readings;
                let describe = describe(id, &letter);
                writeln!(out, "# {describe}: {}", letter.reason.replace(['\n', '\r'], " "))
                    .and_then(|()| out.write_all(letter.lines.as_bytes()))
            }
            DeadLetter::Metadata(letter) => {
                metadata += 1;
                let Ok(text) = serde_json::to_string(&letter) else { return ControlFlow::Continue(()) };
                writeln!(out, "# {id}: metadata {text}")
            }
            DeadLetter::Done(_) => Ok(()),
        };
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let damaged = damaged.context("reading the dead letters")?;
    printed?;
    eprintln!("hourglass: {readings} readings and {metadata} changes of metadata");
    if damaged > 0 {
        eprintln!(
            "hourglass: {damaged} lines are incomplete dead letters. If a crash cut one off, its readings are written to the \
             file again"
        );
    }
    Ok(())
}

fn describe(id: u64, letter: &ReadingsLetter) -> String {
    format!("{id}: database {:?}, {} readings, kept {}", letter.database, letter.readings, letter.kept)
}

fn send(letters: &DeadLetters, target: &Target) -> anyhow::Result<bool> {
    let _sending = match letters.begin_sending() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("another process is sending them at this moment"),
        sending => sending.context("marking sent dead letters")?,
    };
    let mut accepted = 0;
    let mut rejected = 0;
    let mut metadata = 0;
    // Stop at the current last id: readings that the service cannot store again are left to the next run.
    let mut last = 0;
    let note = |id, _| {
        last = id;
        ControlFlow::Continue(())
    };
    letters.read(0, note).context("reading the dead letters")?;
    let mut after = 0;
    while after < last {
        let (end, found) = batch(letters, after)?;
        if found.is_empty() {
            break;
        }
        after = end;
        for (id, letter) in found.into_iter().filter(|(id, _)| *id <= last) {
            let DeadLetter::Readings(letter) = letter else {
                metadata += 1;
                continue;
            };
            match send_letter(target, &letter)? {
                // Mark this one before sending the next one.
                PostAnswer { status: 204, .. } => {
                    letters.mark_done(vec![id]).context("marking sent dead letters")?;
                    accepted += letter.readings;
                }
                // The service would reject the others too. The ones already sent are marked; a later run sends the
                // rest.
                answer @ PostAnswer { status: 401 | 429 | 500.., .. } => bail!("{}: {answer}", describe(id, &letter)),
                answer => {
                    eprintln!("hourglass: not accepted: {}: {answer}", describe(id, &letter));
                    rejected += letter.readings;
                }
            }
        }
    }
    letters.remove_done().context("removing sent dead letters")?;
    println!("{accepted} readings sent, {rejected} not accepted");
    if metadata > 0 {
        println!("{metadata} changes of metadata were not sent: set them again, and then use `dead-letters done`");
    }
    Ok(flush(target, accepted)? && rejected == 0)
}

/// Reads a batch of dead letters after an id. Returns the id of the last one, and the letters with their ids.
fn batch(letters: &DeadLetters, after_id: u64) -> anyhow::Result<(u64, Vec<(u64, DeadLetter)>)> {
    let mut last = after_id;
    let mut found = Vec::new();
    let mut bytes = 0;
    let read = letters.read(after_id, |id, letter| {
        last = id;
        if let DeadLetter::Readings(letter) = &letter {
            bytes += letter.lines.len();
        }
        found.push((id, letter));
        if found.len() >= BATCH_LETTERS_MAX || bytes >= BATCH_BYTES {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    read.context("reading the dead letters")?;
    Ok((last, found))
}

/// Sends readings in parts. Returns the answer to the first rejected part, or to the last part if all are accepted.
fn send_letter(target: &Target, letter: &ReadingsLetter) -> anyhow::Result<PostAnswer> {
    let mut answer = PostAnswer { status: 204, text: String::new(), retry_after: None };
    let path = format!("/write?db={}&precision=ns&ack=log&accept_partial=false", url_encode(&letter.database));
    for part in parts(letter.lines.as_bytes(), PART_BYTES) {
        answer = target.post(&path, part)?;
        if answer.status != 204 {
            break;
        }
    }
    Ok(answer)
}

/// Asks the service to flush the accepted readings to the store. Returns false if that fails.
fn flush(target: &Target, accepted: u64) -> anyhow::Result<bool> {
    if accepted == 0 {
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
