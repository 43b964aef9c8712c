//! The first line of a connection: `auth TOKEN [db=NAME] [precision=s]`, a reading, or another protocol that was sent to
//! the wrong port.

use crate::reading::Precision;

/// The settings in an `auth` line; all `None` if the first line is a reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    pub token: Option<String>,
    pub database: Option<String>,
    pub precision: Option<Precision>,
}

/// The parsed first line of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum FirstLine {
    /// Line protocol. The first line is part of it.
    Lines,
    /// An `auth` line, then line protocol.
    Hello(Hello),
    /// An invalid `auth` line, with the reason.
    Invalid(String),
    /// An HTTP request.
    Http,
}

/// Methods at the start of an HTTP request; `PRI` starts HTTP/2.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PRI"];

/// Returns true if the first bytes are a TLS handshake record.
pub fn is_tls(first: &[u8]) -> bool {
    first.starts_with(&[0x16, 0x03])
}

/// Parses the first line, given without its newline.
pub fn parse_first_line(line: &[u8]) -> FirstLine {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(text) = std::str::from_utf8(line) else { return FirstLine::Lines };
    let method = text.split(' ').next().unwrap_or_default();
    if METHODS.contains(&method) && text.rsplit(' ').next().is_some_and(|last| last.starts_with("HTTP/")) {
        return FirstLine::Http;
    }
    match text.strip_prefix("auth ") {
        None => FirstLine::Lines,
        Some(rest) => parse_hello(rest).map_or_else(FirstLine::Invalid, FirstLine::Hello),
    }
}

fn parse_hello(rest: &str) -> Result<Hello, String> {
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
            // Do not quote the word, because it may be part of the token.
            _ => return Err("only db=NAME and precision=s may follow the token".to_owned()),
        }
    }
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines_are_classified() {
        let hello = |token: &str, database: Option<&str>, precision| {
            FirstLine::Hello(Hello { token: Some(token.to_owned()), database: database.map(str::to_owned), precision })
        };
        let invalid = |text: &str| FirstLine::Invalid(text.to_owned());
        let cases = [
            ("m v=1", FirstLine::Lines),
            ("", FirstLine::Lines),
            ("auth,site=a v=1", FirstLine::Lines),
            ("GET v=1", FirstLine::Lines),
            ("auth t0k", hello("t0k", None, None)),
            ("auth t0k db=plant precision=s\r", hello("t0k", Some("plant"), Some(Precision::Seconds))),
            ("auth t0k precision=ms", hello("t0k", None, Some(Precision::Milliseconds))),
            ("auth ", invalid("a token is missing: auth TOKEN [db=NAME] [precision=s]")),
            ("auth t db=", invalid("only db=NAME and precision=s may follow the token")),
            ("auth t secret", invalid("only db=NAME and precision=s may follow the token")),
            ("auth t precision=d", invalid("invalid precision \"d\" (use auto, ns, us, ms, s, m or h)")),
            ("GET / HTTP/1.1\r", FirstLine::Http),
            ("POST /write?db=d HTTP/1.0", FirstLine::Http),
            ("PRI * HTTP/2.0\r", FirstLine::Http),
        ];
        for (line, expected) in cases {
            assert_eq!(parse_first_line(line.as_bytes()), expected, "{line:?}");
        }
        assert_eq!(parse_first_line(b"\xff\xfe"), FirstLine::Lines);
        assert!(is_tls(&[0x16, 0x03, 0x01, 0x02]) && !is_tls(b"m v=1"));
    }
}
