//! What is said of a driver's error: a code and a short message, without hosts and without the documents that the
//! driver and the server put into theirs. All of it stands in the log at debug level.

use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Maximum characters of a server's message.
const MESSAGE_CHARS: usize = 200;

/// What happened, by a driver error.
pub fn by_driver(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => by_server(command.code, &command.message),
        ErrorKind::Write(WriteFailure::WriteError(write)) => by_server(write.code, &write.message),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => write_concern(concern.code, &concern.message),
        ErrorKind::InsertMany(partial) => match partial.write_errors.iter().flatten().next() {
            Some(write) => by_server(write.code, &write.message),
            None => "the insert failed".to_owned(),
        },
        ErrorKind::ServerSelection { .. } => "no primary was found in time".to_owned(),
        ErrorKind::DnsResolve { .. } => "the name of its host could not be resolved".to_owned(),
        ErrorKind::Authentication { .. } => "it did not accept the login".to_owned(),
        ErrorKind::Io(io) => format!("the connection failed ({})", io.kind()),
        ErrorKind::ConnectionPoolCleared { .. } => "the connection was given up".to_owned(),
        ErrorKind::InvalidArgument { message, .. } => public(message),
        ErrorKind::InvalidTlsConfig { message, .. } => public(message),
        ErrorKind::InvalidResponse { .. } => "its answer was not understood".to_owned(),
        _ => "the driver failed (the log has the error at debug level)".to_owned(),
    }
}

/// What happened, by a code and message of the server.
pub fn by_server(code: i32, message: &str) -> String {
    format!("{code} {}", public(message)).trim_end().to_owned()
}

pub fn write_concern(code: i32, message: &str) -> String {
    format!("the write was not confirmed by a majority: {}", by_server(code, message))
}

/// The message without the command or document that it quotes and without hosts.
fn public(message: &str) -> String {
    // `not authorized on d to execute command { insert: … }`, `E11000 … dup key: { … }`, and what a shard said.
    let end = [" to execute command", " :: caused by", "{"].iter().filter_map(|mark| message.find(mark)).min();
    let words = message[..end.unwrap_or(message.len())].split_whitespace();
    let shown: Vec<&str> = words.map(|word| if has_port(word) { "(host)" } else { word }).collect();
    shown.join(" ").chars().take(MESSAGE_CHARS).collect()
}

/// Whether a word has a colon and a port of three digits or more, as addresses have.
fn has_port(word: &str) -> bool {
    word.split(':').skip(1).any(|rest| rest.bytes().take_while(u8::is_ascii_digit).count() >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The story: answers and log lines carried 3 kB of `Kind: …, labels: {}, server response: Some(RawDocumentBuf…`,
    /// with the command, its session and the hosts of the replica set.
    #[test]
    fn neither_commands_nor_hosts_are_told() {
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
            assert_eq!(by_server(code, message), shown);
        }
        assert_eq!(by_server(1, &"long".repeat(1000)).chars().count(), MESSAGE_CHARS + 2);
    }
}
