//! Public messages for driver errors: a code and a short text, without the hosts and documents that the driver and the
//! server include. The log has the full errors at debug level.

use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Maximum length of a server's message, in characters.
const MESSAGE_CHARS_MAX: usize = 200;

/// Returns the message for a driver error.
pub fn driver_error(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => server_error(command.code, &command.message),
        ErrorKind::Write(WriteFailure::WriteError(write)) => server_error(write.code, &write.message),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => {
            write_concern_error(concern.code, &concern.message)
        }
        ErrorKind::InsertMany(partial) => match partial.write_errors.iter().flatten().next() {
            Some(write) => server_error(write.code, &write.message),
            None => "the insert failed".to_owned(),
        },
        ErrorKind::ServerSelection { .. } => "no primary was found in time".to_owned(),
        ErrorKind::DnsResolve { .. } => "the host name could not be resolved".to_owned(),
        ErrorKind::Authentication { .. } => "the login was rejected".to_owned(),
        ErrorKind::Io(io) => format!("the connection failed ({})", io.kind()),
        ErrorKind::ConnectionPoolCleared { .. } => "the connection was closed".to_owned(),
        ErrorKind::InvalidArgument { message, .. } => public(message),
        ErrorKind::InvalidTlsConfig { message, .. } => public(message),
        ErrorKind::InvalidResponse { .. } => "the server's answer was not understood".to_owned(),
        _ => "the driver failed (see the log at debug level)".to_owned(),
    }
}

/// Returns the message for an error of the server.
pub fn server_error(code: i32, message: &str) -> String {
    format!("{code} {}", public(message)).trim_end().to_owned()
}

/// Returns the message for a write that a majority did not confirm.
pub fn write_concern_error(code: i32, message: &str) -> String {
    format!("the write was not confirmed by a majority: {}", server_error(code, message))
}

/// Removes quoted commands and documents, the messages of shards, and hosts from a message.
fn public(message: &str) -> String {
    // Examples: `not authorized on d to execute command { insert: … }`, `E11000 … dup key: { … }`.
    let end = [" to execute command", " :: caused by", "{"].iter().filter_map(|mark| message.find(mark)).min();
    let words = message[..end.unwrap_or(message.len())].split_whitespace();
    let shown: Vec<&str> = words.map(|word| if has_port(word) { "(host)" } else { word }).collect();
    shown.join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}

/// Returns true if a word contains a colon and a port of three digits or more, as addresses do.
fn has_port(word: &str) -> bool {
    word.split(':').skip(1).any(|rest| rest.bytes().take_while(u8::is_ascii_digit).count() >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: answers and log lines contained 3 kB of `Kind: …, labels: {}, server response: Some(RawDocumentBuf…`,
    /// with the command, its session and the hosts of the replica set.
    #[test]
    fn messages_contain_neither_commands_nor_hosts() {
        for (code, message, shown) in [
            (13, "not authorized on d to execute command { insert: \"x\", lsid: { id: 1 } }", "13 not authorized on d"),
            (
                6,
                "Error connecting to mongo-1.internal:27017 (10.0.0.7:27017) :: caused by :: refused",
                "6 Error connecting to (host) (host)",
            ),
            (
                166,
                "Namespace d.one.buckets is a view, not a collection",
                "166 Namespace d.one.buckets is a view, not a collection",
            ),
            (121, "Document failed validation", "121 Document failed validation"),
            (0, "", "0"),
        ] {
            assert_eq!(server_error(code, message), shown);
        }
        assert_eq!(server_error(1, &"long".repeat(1000)).chars().count(), MESSAGE_CHARS_MAX + 2);
    }
}
