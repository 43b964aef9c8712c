//! What a MongoDB error means for a write: was it applied, may it be sent again? By code and
//! kind, never by message (server `error_codes.yml`; driver `error.rs`).

use bson::Document;
use mongodb::error::{Error, ErrorKind, InsertManyError, WriteFailure};

use crate::bucket::StorageError;
use crate::bucket::store::Written;

/// Duplicate key: the document exists already, or an upsert's `rev` did not match.
const DUPLICATE_KEY: i32 = 11_000;
/// The validator said no.
const VALIDATION: i32 = 121;
/// Two transactions wrote one document.
const WRITE_CONFLICT: i32 = 112;
/// A lock that was not had in time, a snapshot or a transaction that is no more: what a transaction
/// meets beside others.
const TRANSACTION_LOST: [i32; 4] = [24, 239, 246, 251];
/// A document, or what an update would make of it, over 16 MiB.
const TOO_LARGE: [i32; 3] = [10_334, 17_419, 17_420];
/// The primary goes away, or the server gives up: all that a command has to do fails alike.
const PRIMARY_CHANGES: [i32; 9] = [50, 64, 91, 189, 10_107, 11_600, 11_602, 13_435, 13_436];

/// The class of a driver error.
pub fn classify(error: &Error) -> StorageError {
    let detail = error.to_string();
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return StorageError::Unknown { detail };
    }
    // Elections, cut connections, transactions in each other's way: whatever the code says, it passes.
    let passes = [mongodb::error::RETRYABLE_WRITE_ERROR, mongodb::error::TRANSIENT_TRANSACTION_ERROR];
    match error.kind.as_ref() {
        ErrorKind::Command(command) if passes.into_iter().any(|label| error.contains_label(label)) => {
            match classify_code(command.code, detail) {
                StorageError::Database { detail } => StorageError::Unknown { detail },
                class => class,
            }
        }
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => StorageError::Unavailable { detail },
        ErrorKind::Authentication { .. } => StorageError::Denied { detail },
        ErrorKind::Command(command) => classify_code(command.code, detail),
        ErrorKind::Write(WriteFailure::WriteError(write)) => classify_code(write.code, detail),
        // Something is wrong with what was asked, which says nothing of any document.
        ErrorKind::InvalidArgument { .. } | ErrorKind::Bson(_) | ErrorKind::BsonSerialization(_) => {
            StorageError::Failing { detail }
        }
        // Cut connections, cleared pools, unconfirmed write concerns and whatever is not known
        // here: it may have been applied, and resending is safe.
        _ => StorageError::Unknown { detail },
    }
}

/// Codes by which the server says that it is about to change, cut off or too slow: they are no database's own.
const PASSING: [i32; 29] = [
    // Host unreachable or not found, network timeout, lock timeout, over the time limit, shutting down.
    6, 7, 24, 50, 63, 64, 89, 91, 100, 112, 133, 149, 150, 189, 202, 234, 246, 251, 262, 290, 317, 358, 384,
    // Interrupted by a change of the primary, no primary, sockets.
    9001, 11_600, 11_601, 11_602, 13_388, 13_436,
];

/// The class of a server error code.
pub fn classify_code(code: i32, detail: String) -> StorageError {
    match code {
        // Unauthorized, authentication failed, Atlas' own refusal.
        13 | 18 | 8000 => StorageError::Denied { detail },
        // Overload: refused before anything ran. Not primary at dispatch. No room on the disk.
        462 | 10_107 | 13_435 | 13_436 | 14_031 => StorageError::Unavailable { detail },
        WRITE_CONFLICT => StorageError::Busy { detail },
        code if TRANSACTION_LOST.contains(&code) => StorageError::Busy { detail },
        VALIDATION => StorageError::Refused { detail },
        code if TOO_LARGE.contains(&code) => StorageError::Refused { detail },
        // Bad value, type clash: of an option, of a command, of a stored document that somebody changed.
        2 | 14 => StorageError::Failing { detail },
        // A prefix of the command may have run, here and in the last case.
        code if PASSING.contains(&code) => StorageError::Unknown { detail },
        // The server is there and has looked at the command: a view where a collection should be (166), an index
        // that cannot be had beside another (85), a collection that is being dropped (215), whatever else.
        _ => StorageError::Database { detail },
    }
}

/// Per-document outcomes of an unordered insert of `count` documents.
pub fn of_insert(result: Result<(), Error>, count: usize) -> Vec<Written> {
    match result {
        Ok(()) => vec![Written::Yes; count],
        Err(error) => match error.kind.as_ref() {
            ErrorKind::InsertMany(partial) => of_partial_insert(partial, count),
            _ => vec![Written::Failed(classify(&error)); count],
        },
    }
}

fn of_partial_insert(partial: &InsertManyError, count: usize) -> Vec<Written> {
    let unconfirmed = partial.write_concern_error.as_ref();
    let rest = unconfirmed.map_or(Written::Yes, |e| {
        Written::Failed(StorageError::Unknown { detail: format!("write concern: {} {}", e.code, e.message) })
    });
    let mut outcomes = vec![rest; count];
    for error in partial.write_errors.iter().flatten() {
        if let Some(outcome) = outcomes.get_mut(error.index) {
            *outcome = match error.code {
                DUPLICATE_KEY => Written::Conflict,
                other => Written::Failed(of_one(other, &error.message)),
            };
        }
    }
    outcomes
}

/// Per-statement outcomes of an unordered raw `update` command of `count` upserts by
/// compare-and-set. The driver answers `Ok` also when statements failed.
pub fn of_updates(result: Result<Document, Error>, count: usize) -> Vec<Written> {
    let reply = match result {
        Ok(reply) => reply,
        Err(error) => return vec![Written::Failed(classify(&error)); count],
    };
    let rest = match reply.get_document("writeConcernError") {
        Ok(error) => Written::Failed(StorageError::Unknown { detail: format!("write concern: {error}") }),
        Err(_) => Written::Yes,
    };
    let mut outcomes = vec![rest; count];
    // An insert where only a validator that is gone would have stopped it: see `remove_torsos`.
    for upserted in reply.get_array("upserted").into_iter().flatten().filter_map(|u| u.as_document()) {
        if let Some(outcome) = statement(upserted).and_then(|i| outcomes.get_mut(i)) {
            *outcome = Written::Conflict;
        }
    }
    for error in reply.get_array("writeErrors").into_iter().flatten().filter_map(|e| e.as_document()) {
        if let Some(outcome) = statement(error).and_then(|i| outcomes.get_mut(i)) {
            *outcome = of_statement(error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or(""));
        }
    }
    outcomes
}

/// The class of an error that one document of many met. Where the primary goes away, all of them
/// do; anything else not known here is about this document alone.
fn of_one(code: i32, message: &str) -> StorageError {
    let detail = format!("{code} {message}");
    match classify_code(code, detail) {
        StorageError::Unknown { detail } | StorageError::Database { detail } if !PRIMARY_CHANGES.contains(&code) => {
            StorageError::Failing { detail }
        }
        class => class,
    }
}

/// Which statement of a command a part of its reply is about.
pub fn statement(part: &Document) -> Option<usize> {
    part.get_i32("index").ok().and_then(|i| usize::try_from(i).ok())
}

/// The error of one upsert by compare-and-set. One that finds another rev tries to insert, which fails
/// with a duplicate key, or with the validator where the page was deleted: read again.
fn of_statement(code: i32, message: &str) -> Written {
    match code {
        DUPLICATE_KEY | VALIDATION => Written::Conflict,
        other => Written::Failed(of_one(other, message)),
    }
}

/// Which statements of a command the validator stopped. Of an upsert that does not tell what was wrong:
/// the page that it made because there was none, or the one that was there.
pub fn stopped_by_validator(reply: &Document) -> Vec<usize> {
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(|e| e.as_document());
    errors.filter(|error| error.get_i32("code").is_ok_and(|code| code == VALIDATION)).filter_map(statement).collect()
}

/// Which of a command's plain updates, which insert nothing, the validator stopped, and what it said: it
/// was asked about the very document that has the rev that was expected.
pub fn proven_invalid(reply: &Document) -> Vec<(usize, StorageError)> {
    let errors = reply.get_array("writeErrors").into_iter().flatten().filter_map(|e| e.as_document());
    let errors = errors.filter(|error| error.get_i32("code").is_ok_and(|code| code == VALIDATION));
    let told = |error: &Document| {
        let detail = format!("{VALIDATION} {}", error.get_str("errmsg").unwrap_or(""));
        Some((statement(error)?, StorageError::Refused { detail }))
    };
    errors.filter_map(told).collect()
}

/// What became of `count` plain updates by compare-and-set in a transaction: all of them hit, or not.
pub fn of_exact_updates(reply: &Document, count: usize) -> Written {
    let first = reply.get_array("writeErrors").into_iter().flatten().find_map(|e| e.as_document());
    if let Some(error) = first {
        return Written::Failed(of_one(error.get_i32("code").unwrap_or(0), error.get_str("errmsg").unwrap_or("")));
    }
    let hits = reply.get_i32("n").ok().and_then(|n| usize::try_from(n).ok());
    if hits == Some(count) { Written::Yes } else { Written::Conflict }
}

/// Whether a single insert found its `_id` taken.
pub fn is_duplicate_key(error: &Error) -> bool {
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(fault)) if fault.code == DUPLICATE_KEY)
}

/// What an error within a transaction means, of which nothing is left then, unless it is not known
/// whether it was committed.
pub fn of_transaction(error: &Error) -> Written {
    if error.contains_label(mongodb::error::UNKNOWN_TRANSACTION_COMMIT_RESULT) {
        return Written::Failed(classify(error));
    }
    let said = match error.kind.as_ref() {
        ErrorKind::Command(command) => Some((command.code, &command.message)),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some((write.code, &write.message)),
        ErrorKind::InsertMany(partial) => partial.write_errors.iter().flatten().map(|e| (e.code, &e.message)).next(),
        _ => None,
    };
    match said {
        Some((DUPLICATE_KEY, _)) => return Written::Conflict,
        Some((code, _)) if PRIMARY_CHANGES.contains(&code) => {}
        Some((code, message)) if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            return Written::Failed(StorageError::Busy { detail: format!("{code} {message}") });
        }
        Some((code, message)) => return Written::Failed(of_one(code, message)),
        None => {}
    }
    // The connection was lost, or the primary, before the commit was asked for.
    Written::Failed(match classify(error) {
        StorageError::Unknown { detail } if error.contains_label(mongodb::error::TRANSIENT_TRANSACTION_ERROR) => {
            StorageError::Unavailable { detail }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests;
