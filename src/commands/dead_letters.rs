//! `hourglass dead-letters`: lists the dead letters, sends them to a running service, which admits them like any other
//! readings, or marks them as done.

use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;

use anyhow::{Context, bail};

use super::post::{PostAnswer, Service, Target, escaped};
use crate::config::Settings;
use crate::ingest::dead_letters::{DeadLetter, DeadLetters, ReadingsLetter, parts};

/// Approximate size of one write request.
const PART_BYTES: usize = 1 << 20;
/// Dead letters that are read together.
const BATCH_LETTERS: usize = 1000;
const BATCH_BYTES: usize = 16 << 20;

/// Prints the dead letters that were not yet resent.
pub fn list_dead_letters(settings: &Settings) -> anyhow::Result<()> {
    list(&open(settings)?)
}

/// Sends the dead letters that were not yet resent. Returns whether the service accepted all of them and did not fail to flush
/// them.
pub fn send_dead_letters(settings: &Settings, service: &Service) -> anyhow::Result<bool> {
    let letters = open(settings)?;
    let sent = Target::of(service).and_then(|target| send(&letters, &target));
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
                let named = named(id, &letter);
                writeln!(out, "# {named}: {}", letter.reason.replace(['\n', '\r'], " "))
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
            "hourglass: {damaged} lines are no whole dead letter. The readings of one that a crash cut off are written to \
             the file again"
        );
    }
    Ok(())
}

fn named(id: u64, letter: &ReadingsLetter) -> String {
    format!("{id}: database {:?}, {} readings, kept {}", letter.database, letter.readings, letter.kept)
}

fn send(letters: &DeadLetters, target: &Target) -> anyhow::Result<bool> {
    let _sending = match letters.begin_sending() {
        Err(error) if error.kind() == ErrorKind::WouldBlock => bail!("another process is sending them at this moment"),
        sending => sending.context("marking sent dead letters")?,
    };
    let mut taken = 0;
    let mut refused = 0;
    let mut metadata = 0;
    // What the service cannot store again meanwhile is for the next run.
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
                // Marked before the next one is sent.
                PostAnswer { status: 204, .. } => {
                    letters.mark_done(vec![id]).context("marking sent dead letters")?;
                    taken += letter.readings;
                }
                // The service would reject the others too. Those already sent are marked; a later run sends the rest.
                answer @ PostAnswer { status: 401 | 429 | 500.., .. } => bail!("{}: {answer}", named(id, &letter)),
                answer => {
                    eprintln!("hourglass: not accepted: {}: {answer}", named(id, &letter));
                    refused += letter.readings;
                }
            }
        }
    }
    letters.remove_done().context("removing sent dead letters")?;
    println!("{taken} readings sent, {refused} not accepted");
    if metadata > 0 {
        println!("{metadata} changes of metadata are not sent: set them again, and then use `dead-letters done`");
    }
    Ok(is_stored(target, taken)? && refused == 0)
}

/// The dead letters after an id, and the id of the last one.
fn batch(letters: &DeadLetters, after: u64) -> anyhow::Result<(u64, Vec<(u64, DeadLetter)>)> {
    let mut last = after;
    let mut found = Vec::new();
    let mut bytes = 0;
    let read = letters.read(after, |id, letter| {
        last = id;
        if let DeadLetter::Readings(letter) = &letter {
            bytes += letter.lines.len();
        }
        found.push((id, letter));
        if found.len() >= BATCH_LETTERS || bytes >= BATCH_BYTES {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    read.context("reading the dead letters")?;
    Ok((last, found))
}

/// Sends readings in parts. Returns the answer to the first part that is not accepted, or else to the last one.
fn send_letter(target: &Target, letter: &ReadingsLetter) -> anyhow::Result<PostAnswer> {
    let mut answer = PostAnswer { status: 204, text: String::new() };
    let path = format!("/write?db={}&precision=ns&ack=log&accept_partial=false", escaped(&letter.database));
    for part in parts(letter.lines.as_bytes(), PART_BYTES) {
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
