//! The first line of a connection: `auth TOKEN [db=NAME] [precision=s]`, a reading, or another protocol that belongs
//! on another port.

use crate::reading::Precision;

/// The settings in an `auth` line; all `None` if the first line is a reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    pub token: Option<String>,
    pub database: Option<String>,
    pub precision: Option<Precision>,
}

/// The kind of a connection, by its first line.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// Line protocol, the first line included.
    Lines,
    /// An `auth` line, then line protocol.
    Hello(Hello),
    /// An invalid `auth` line, with the reason.
    Wrong(String),
    /// An HTTP request.
    Http,
}

/// Methods that an HTTP request starts with; `PRI` starts HTTP/2.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PRI"];

/// Whether the first bytes are TLS: a handshake record of any version.
pub fn is_tls(first: &[u8]) -> bool {
    first.starts_with(&[0x16, 0x03])
}

/// Classifies the first line, given without its newline.
pub fn opening(line: &[u8]) -> FirstLine {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(text) = std::str::from_utf8(line) else { return FirstLine::Lines };
    let method = text.split(' ').next().unwrap_or_default();
    if METHODS.contains(&method) && text.rsplit(' ').next().is_some_and(|last| last.starts_with("HTTP/")) {
        return FirstLine::Http;
    }
    match text.strip_prefix("auth ") {
        None => FirstLine::Lines,
        Some(rest) => hello(rest).map_or_else(FirstLine::Wrong, FirstLine::Hello),
    }
}

fn hello(rest: &str) -> Result<Hello, String> {
    let mut words = rest.split_ascii_whitespace();
    let token = words.next().ok_or("a token is missing: auth TOKEN [db=NAME] [precision=s]")?;
    let mut hello = Hello { token: Some(token.to_owned()), ..Hello::default() };
    for word in words {
        match word.split_once('=') {
            Some(("db", name)) if !name.is_empty() => hello.database = Some(name.to_owned()),
            Some(("precision", name)) => {
                let unknown = || format!("invalid precision {name:?} (use auto, ns, us, ms, s, m or h)");
                hello.precision = Some(Precision::from_name(name).ok_or_else(unknown)?);
            }
            // The error does not quote the word: it may be part of the token.
            _ => return Err("only db=NAME and precision=s may follow the token".to_owned()),
        }
    }
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_says_what_follows() {
        let hello = |token: &str, database: Option<&str>, precision| {
            let (token, database) = (Some(token.to_owned()), database.map(str::to_owned));
            FirstLine::Hello(Hello { token, database, precision })
        };
        let wrong = |text: &str| FirstLine::Wrong(text.to_owned());
        let cases = [
            ("m v=1", FirstLine::Lines),
            ("", FirstLine::Lines),
            ("auth,site=a v=1", FirstLine::Lines),
            ("GET v=1", FirstLine::Lines),
            ("auth t0k", hello("t0k", None, None)),
            ("auth t0k db=plant precision=s\r", hello("t0k", Some("plant"), Some(Precision::Seconds))),
            ("auth t0k precision=ms", hello("t0k", None, Some(Precision::Milliseconds))),
            ("auth ", wrong("a token is missing: auth TOKEN [db=NAME] [precision=s]")),
            ("auth t db=", wrong("only db=NAME and precision=s may follow the token")),
            ("auth t secret", wrong("only db=NAME and precision=s may follow the token")),
            ("auth t precision=d", wrong("invalid precision \"d\" (use auto, ns, us, ms, s, m or h)")),
            ("GET / HTTP/1.1\r", FirstLine::Http),
            ("POST /write?db=d HTTP/1.0", FirstLine::Http),
            ("PRI * HTTP/2.0\r", FirstLine::Http),
        ];
        for (line, expected) in cases {
            assert_eq!(opening(line.as_bytes()), expected, "{line:?}");
        }
        assert_eq!(opening(b"\xff\xfe"), FirstLine::Lines);
        assert!(is_tls(&[0x16, 0x03, 0x01, 0x02]) && !is_tls(b"m v=1"));
    }
}
