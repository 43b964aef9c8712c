//! The names by which this service is asked where requests need no token. A page whose own name resolves to this machine
//! (DNS rebinding) is of the service's own origin for its browser; only the name that it asked for tells it apart. An IP
//! address is no such name, and nobody but this machine answers to `localhost`.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// From `server.hosts`.
#[derive(Debug, Clone, Default)]
pub struct Hosts {
    /// In lower case; `*.example.org` stands for all names below `example.org`, `*` for all names.
    names: Vec<String>,
}

impl Hosts {
    #[must_use]
    pub fn of(names: &[String]) -> Self {
        Self { names: names.iter().map(|name| name.to_ascii_lowercase()).collect() }
    }

    /// The host that was asked for, if it is none of this service's. A request of HTTP/1.0 may name none.
    pub(crate) fn stranger<'a>(&self, uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
        // `:authority` in HTTP/2, and the target of a request to a proxy.
        let target = uri.authority().map(|authority| authority.as_str());
        let named = headers.get(header::HOST).map(|host| host.to_str().unwrap_or("?"));
        [target, named].into_iter().flatten().find(|host| !self.has(host))
    }

    fn has(&self, host: &str) -> bool {
        if let Some((address, port)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.parse::<Ipv6Addr>().is_ok() && is_port(port);
        }
        let (name, port) = host.find(':').map_or((host, ""), |colon| host.split_at(colon));
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        is_port(port)
            && (name == "localhost"
                || name.parse::<Ipv4Addr>().is_ok()
                || self.names.iter().any(|known| is_below(known, &name)))
    }
}

fn is_below(known: &str, name: &str) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match known.strip_prefix('*') {
        Some(rest) => is_name && name.len() > rest.len() && name.ends_with(rest),
        None => name == known,
    }
}

/// Nothing, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_judged() {
        let none = Hosts::default();
        for host in [
            "localhost",
            "LocalHost:8086",
            "localhost.",
            "127.0.0.1:80",
            "127.9.9.9",
            "192.168.1.5:1",
            "[::1]",
            "[::1]:8086",
        ] {
            assert!(none.has(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "evil.example:8086",
            "127.0.0.1.evil.example",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "localhost@evil.example",
            "evil.example:localhost",
            "localhost:8086:1",
            "localhost:x",
            "[::1].evil.example",
            "[localhost]",
            "::1",
            ".",
            "?",
        ] {
            assert!(!none.has(host), "{host}");
        }
        let some = Hosts::of(&["hourglass".to_owned(), "ts.Example.org".to_owned(), "*.pods".to_owned()]);
        for (host, known) in [
            ("hourglass:8087", true),
            ("HOURGLASS", true),
            ("ts.example.org.", true),
            ("localhost", true),
            ("a.b.pods:1", true),
            ("pods", false),
            (".pods", false),
            (".pods", false),
            ("x.hourglass", false),
            ("example.org", false),
        ] {
            assert_eq!(some.has(host), known, "{host}");
        }
        let all = Hosts::of(&["*".to_owned()]);
        assert!(all.has("evil.example") && !all.has("") && !all.has("a@b"));
    }

    #[test]
    fn a_target_and_a_header_are_both_judged() {
        let stranger = |uri: &str, host: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, host.parse().unwrap());
            }
            Hosts::default().stranger(&uri.parse().unwrap(), &headers).map(str::to_owned)
        };
        assert_eq!(stranger("/write", None), None);
        assert_eq!(stranger("/write", Some("localhost")), None);
        assert_eq!(stranger("/write", Some("evil.example")).as_deref(), Some("evil.example"));
        assert_eq!(stranger("http://evil.example/write", None).as_deref(), Some("evil.example"));
        assert_eq!(stranger("http://evil.example/write", Some("localhost")).as_deref(), Some("evil.example"));
        assert_eq!(stranger("http://localhost/write", Some("evil.example")).as_deref(), Some("evil.example"));
    }
}
