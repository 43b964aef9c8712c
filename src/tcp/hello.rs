//! What a connection begins with: perhaps a line that says who it is and where its lines belong, perhaps something
//! that belongs to another port.

use crate::reading::Precision;

/// What the first line asks for; nothing when it is a reading already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hello {
    /// Who it says it is.
    pub token: Option<String>,
    /// Where its lines go.
    pub database: Option<String>,
    /// How its times are to be read.
    pub precision: Option<Precision>,
}

/// What a connection turns out to be by its first line.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening {
    /// Lines, the first of them included.
    Lines,
    /// Lines after the first one, which says how.
    Hello(Hello),
    /// A first line that says so wrongly.
    Wrong(String),
    /// A request of HTTP.
    Http,
}

/// Why a connection's lines are not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// Methods that HTTP clients begin with.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PRI"];

/// Whether these first bytes are TLS: a handshake record of any version of it.
pub fn is_tls(first: &[u8]) -> bool {
    first.starts_with(&[0x16, 0x03])
}

/// Judges the first line, without its end.
pub fn opening(line: &[u8]) -> Opening {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(text) = std::str::from_utf8(line) else { return Opening::Lines };
    let method = text.split(' ').next().unwrap_or_default();
    if METHODS.contains(&method) && text.rsplit(' ').next().is_some_and(|last| last.starts_with("HTTP/")) {
        return Opening::Http;
    }
    match text.strip_prefix("auth ") {
        None => Opening::Lines,
        Some(rest) => hello(rest).map_or_else(Opening::Wrong, Opening::Hello),
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
            // What it says may be a part of the token.
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
            Opening::Hello(Hello { token, database, precision })
        };
        let wrong = |text: &str| Opening::Wrong(text.to_owned());
        let cases = [
            ("m v=1", Opening::Lines),
            ("", Opening::Lines),
            ("auth,site=a v=1", Opening::Lines),
            ("GET v=1", Opening::Lines),
            ("auth t0k", hello("t0k", None, None)),
            ("auth t0k db=plant precision=s\r", hello("t0k", Some("plant"), Some(Precision::Seconds))),
            ("auth t0k precision=ms", hello("t0k", None, Some(Precision::Milliseconds))),
            ("auth ", wrong("a token is missing: auth TOKEN [db=NAME] [precision=s]")),
            ("auth t db=", wrong("only db=NAME and precision=s may follow the token")),
            ("auth t secret", wrong("only db=NAME and precision=s may follow the token")),
            ("auth t precision=d", wrong("invalid precision \"d\" (use auto, ns, us, ms, s, m or h)")),
            ("GET / HTTP/1.1\r", Opening::Http),
            ("POST /write?db=d HTTP/1.0", Opening::Http),
            ("PRI * HTTP/2.0\r", Opening::Http),
        ];
        for (line, expected) in cases {
            assert_eq!(opening(line.as_bytes()), expected, "{line:?}");
        }
        assert_eq!(opening(b"\xff\xfe"), Opening::Lines);
        assert!(is_tls(&[0x16, 0x03, 0x01, 0x02]) && !is_tls(b"m v=1"));
    }
}
